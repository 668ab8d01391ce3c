"""Authentication: plugins for a client's login. Credentials are read again at each use, to allow renewal."""

from __future__ import annotations

import base64
import difflib
import math
import pkgutil
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable
from urllib.parse import unquote, urlencode

from pulsar_spark.client.net.file_or_env import text_at
from pulsar_spark.client.net.http import HttpError, fetch, is_in_clear, is_on_this_host, parse_json
from pulsar_spark.client.net.tls import TlsOptions
from pulsar_spark.errors import AuthError, ConnectError, OptionError
from pulsar_spark.wire.commands import Login

_DISCOVERY = "/.well-known/openid-configuration"
# Fraction of an access token's lifetime after which it is renewed, to allow for delays and clock differences.
_USED = 0.9
_MAX_ANSWER = 1 << 20  # maximum bytes of an issuer's answer
_ERROR_CODE = re.compile(r"[a-z_]{1,50}")
_ADVICE = "Check issuerUrl, audience, scope and the key file in authParams"

_JAVA = "org.apache.pulsar.client.impl.auth."


@dataclass(frozen=True, slots=True)
class Credentials:
    """The login that a user gave.

    Attributes:
        plugin: short name, the Java client's class name, or dotted name of the user's class.
        params: parameters in the Java client's form; secret.
    """

    plugin: str
    params: str = field(default="", repr=False)


@runtime_checkable
class Authentication(Protocol):
    """An authentication plugin. Its methods may be called from several threads."""

    method: str

    def data(self) -> bytes:
        """Returns the credentials to send now. It is called for each connection and challenge, and may block.

        Raises:
            PulsarError: there are no credentials. The text must not contain a secret.
        """


class Token:
    """A token (JWT) as text, from a file, or from an environment variable.

    The parameters are ``token:TEXT`` or the text alone, ``file:///PATH``, ``env:NAME``, or a JSON object
    ``{"token": "TEXT"}``.
    """

    method = "token"

    def __init__(self, params: str) -> None:
        if params.startswith(("file:", "env:")):
            self._read: Callable[[], str] = lambda: text_at(params, "authParams", AuthError)
        else:
            text = str(_json(params).get("token", "")) if params.startswith("{") else params
            text = text.removeprefix("token:").strip()
            self._read = lambda: text
            if not text or text.startswith("Bearer "):
                raise _bad("token", "token:TEXT (without Bearer), file:PATH or env:NAME")

    def data(self) -> bytes:
        """Returns the token that the text, file or variable has now."""
        token = self._read().strip()
        if not token:
            raise AuthError(
                "the token is empty", advice="Check the file or environment variable that authParams names"
            )
        return token.encode()


class Basic:
    """A user's name and password; the parameters are ``{"userId": ..., "password": ...}``, as in Java."""

    method = "basic"

    def __init__(self, params: str) -> None:
        given = _json(params)
        if not all(isinstance(given.get(name), str) for name in ("userId", "password")):
            raise _bad("basic", 'JSON: {"userId": "...", "password": "..."}')
        self._data = f"{given['userId']}:{given['password']}".encode()

    def data(self) -> bytes:
        """Returns ``user:password``."""
        return self._data


class ClientCertificate:
    """Mutual TLS: the certificate in the handshake is the login, and no other credentials are sent.

    Args:
        params: ``tlsCertFile:PATH,tlsKeyFile:PATH``, the same as JSON, or empty if the options
            ``tlsCertificateFilePath`` and ``tlsKeyFilePath`` name the files.
    """

    method = "tls"

    def __init__(self, params: str) -> None:
        given: Mapping[str, Any] = {}
        if params.startswith("{"):
            given = _json(params)
        elif params:
            given = dict(part.strip().partition(":")[::2] for part in params.split(","))
        known = {"tlsCertFile", "tlsKeyFile"}
        if set(given) - known or not all(isinstance(path, str) for path in given.values()):
            raise _bad("tls", "tlsCertFile:PATH,tlsKeyFile:PATH")
        self.certificate: str | None = given.get("tlsCertFile")
        self.key: str | None = given.get("tlsKeyFile")

    def data(self) -> bytes:
        """Returns no bytes, because the TLS handshake has sent the certificate."""
        return b""


class OAuth2:
    """OAuth 2.0 client credentials; the access token is sent to the broker as with :class:`Token`.

    An access token is used until shortly before it expires.

    Args:
        params: JSON with ``issuerUrl``, ``privateKey`` (``file:///PATH`` or ``data:...;base64,...``, a JSON
            with ``client_id`` and ``client_secret``), and optionally ``audience`` and ``scope``.
    """

    method = "token"

    def __init__(self, params: str, timeout: float) -> None:
        given = _json(params)
        known = {"type", "issuerUrl", "privateKey", "audience", "scope"}
        needed = {"issuerUrl", "privateKey"}
        if (
            not needed <= set(given) <= known
            or not all(isinstance(value, str) for value in given.values())
            or given.get("type", "client_credentials") != "client_credentials"
            or not given["issuerUrl"].startswith(("https://", "http://"))
            or not given["privateKey"].startswith(("file:", "data:"))
        ):
            raise _bad(
                "oauth2",
                'JSON: {"issuerUrl": "https://...", "privateKey": "file:///PATH", "audience": "...", '
                '"scope": "..."}; the last two may be left out',
            )
        self.issuer_url: str = given["issuerUrl"]
        self._issuer = self.issuer_url.rstrip("/")
        self._key: str = given["privateKey"]
        self._wanted: dict[str, str] = {name: given[name] for name in ("audience", "scope") if name in given}
        self._timeout = timeout
        self._lock = threading.Lock()
        self._token = ""
        self._used_until = 0.0

    def data(self) -> bytes:
        """Returns an access token that is valid now; requests one from the issuer if necessary.

        Raises:
            ConnectError: the issuer does not answer, or is not available now.
            AuthError: the issuer refuses, or its answer is invalid; or the key file is wrong.
        """
        with self._lock:
            if time.monotonic() >= self._used_until:
                asked_at = time.monotonic()
                self._token, lifetime = self._ask()
                self._used_until = asked_at + _USED * lifetime
            return self._token.encode()

    def _ask(self) -> tuple[str, float]:
        fields = {"grant_type": "client_credentials", **self._client(), **self._wanted}
        described = self._request(self._issuer + _DISCOVERY)
        issuer, endpoint = described.get("issuer"), described.get("token_endpoint")
        if not isinstance(issuer, str) or issuer.rstrip("/") != self._issuer:
            # Refused, because a server with several issuers might send the secret to the wrong issuer's URL.
            raise AuthError(
                "the OAuth2 issuer's metadata names another issuer",
                advice="Set issuerUrl to the issuer in the metadata, if that is yours",
            )
        # TLS must be kept, because the next request has the secret.
        schemes = ("https://",) if self._issuer.startswith("https://") else ("https://", "http://")
        if (
            not isinstance(endpoint, str)
            or not endpoint.startswith(schemes)
            or (is_in_clear(endpoint) and not is_in_clear(self._issuer))
        ):
            raise AuthError("the OAuth2 issuer's metadata names no usable token endpoint", advice=_ADVICE)
        answer = self._request(endpoint, urlencode(fields).encode())
        token = answer.get("access_token")
        # A token with non-ASCII or control characters cannot be sent. RFC 6750 allows even fewer characters.
        if not isinstance(token, str) or not token or not (token.isascii() and token.isprintable()):
            raise AuthError("the OAuth2 issuer's response contains no access token", advice=_ADVICE)
        return token, _lifetime(answer.get("expires_in"))

    def _client(self) -> Mapping[str, str]:
        try:
            found = parse_json(_key_of(self._key).encode())
            client = {name: str(found[name]) for name in ("client_id", "client_secret")}
            urlencode(client)  # raises an error for values that are not text
            return client
        except (ValueError, KeyError, TypeError):
            raise AuthError(
                "the OAuth2 key file is not JSON with client_id and client_secret", advice=_ADVICE
            ) from None

    def _request(self, url: str, form: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(url, form, {"Accept": "application/json"})
        try:
            status, body = fetch(
                request,
                redirect=_redirected,
                timeout=self._timeout,
                # No proxy for a loopback URL, because the proxy would receive the secret, and connect to its
                # own loopback.
                environment_proxy=not is_on_this_host(url),
                max_size=_MAX_ANSWER,
            )
        except HttpError as error:
            cause = error.cause
            # Only these parts of a cause are shown, because its text may repeat the request with the secret.
            reason = str(error) if cause is None else getattr(cause, "strerror", None) or type(cause).__name__
            raise ConnectError(f"the OAuth2 issuer does not answer: {reason}", advice=_ADVICE) from None
        if status >= 300:
            raise _refusal(status, body, form or b"")
        found = _object(body)
        if found is None:
            raise AuthError("the OAuth2 issuer's response is not a JSON object", advice=_ADVICE)
        return found


class _Known(NamedTuple):
    java: str
    make: Callable[[str, float], Authentication]


_KNOWN = {
    "token": _Known(_JAVA + "AuthenticationToken", lambda params, timeout: Token(params)),
    "basic": _Known(_JAVA + "AuthenticationBasic", lambda params, timeout: Basic(params)),
    "tls": _Known(_JAVA + "AuthenticationTls", lambda params, timeout: ClientCertificate(params)),
    "oauth2": _Known(_JAVA + "oauth2.AuthenticationOAuth2", OAuth2),
}


def authentication_of(credentials: Credentials, timeout: float = 10.0) -> Authentication:
    """Returns the plugin that ``credentials`` name; reads no file and sends no request yet.

    Raises OptionError, without the parameters, if there is no such plugin or they are wrong.
    """
    plugin, params = credentials.plugin, credentials.params
    for name, known in _KNOWN.items():
        if plugin.lower() == name or plugin == known.java:
            return known.make(params, timeout)
    if "." not in plugin or plugin.startswith("org.apache.pulsar."):
        raise OptionError(
            f"option authPluginClassName names an unknown authentication plugin{_echo(plugin)}",
            advice=f"Set it to one of {', '.join(_KNOWN)}, or to the dotted name of your own Python class",
        )
    return _users_own(plugin, params)


def _echo(plugin: str) -> str:
    """Returns " PLUGIN: did you mean NAME?", or "" without a similar name: ``plugin`` may be a secret."""
    simple = plugin.rpartition(".")[2].removeprefix("Authentication").lower()
    near = difflib.get_close_matches(simple, ["jwt", *_KNOWN], n=1)
    return f" {plugin}: did you mean {near[0].replace('jwt', 'token')}?" if near else ""


def _users_own(plugin: str, params: str) -> Authentication:
    try:
        found = pkgutil.resolve_name(plugin)
    except (ImportError, AttributeError, ValueError):
        # The error omits the name, because a token in the wrong option has dots, too.
        raise OptionError(
            "the class named by option authPluginClassName cannot be imported",
            advice="Install its module on the hosts of the query's driver and its tasks",
        ) from None
    # Checked before the object is called, because the option can name any function, such as os.system.
    is_plugin = (
        isinstance(found, type) and hasattr(found, "method") and callable(getattr(found, "data", None))
    )
    if not is_plugin:
        raise OptionError(
            "the class named by option authPluginClassName is not an authentication plugin",
            advice="It must be a class with an attribute `method` and a method `data`, see docs/security.md",
        )
    made: Authentication = found(params)
    return made


class Identity:
    """A client's credentials, for the TLS handshake and the CONNECT command.

    Args:
        credentials: login that the user gave, or None. Without it a certificate in ``tls`` is the login.

    Attributes:
        tls: TLS settings with this client's certificate, from ``tls`` or from the credentials.

    Raises:
        OptionError: an error of :func:`authentication_of`, or a certificate login has none, or two.
    """

    def __init__(self, credentials: Credentials | None, tls: TlsOptions, timeout: float = 10.0) -> None:
        self.tls = tls
        self._authentication: Authentication | None = None
        if credentials is not None:
            self._authentication = authentication_of(credentials, timeout)
        elif tls.has_certificate:
            self._authentication = ClientCertificate("")
        if isinstance(self._authentication, ClientCertificate):
            mine = self._authentication
            self.tls = replace(tls, certificate=mine.certificate or tls.certificate, key=mine.key or tls.key)
        if (self.tls.certificate is None) != (self.tls.key is None) or (
            isinstance(self._authentication, ClientCertificate) and not self.tls.has_certificate
        ):
            raise OptionError(
                "a login by TLS requires both a certificate and its key",
                advice="Set pulsar.client.tlsCertificateFilePath and pulsar.client.tlsKeyFilePath, or "
                "pulsar.client.tlsKeyStorePath",
            )
        if self.tls.key_password is not None and self.tls.key is None:
            raise OptionError(
                "option tlsKeyPassword is set without tlsKeyFilePath",
                advice="Set pulsar.client.tlsKeyFilePath. For the password of a key store, use "
                "tlsKeyStorePassword",
            )
        if self.tls.certificate is not None and self.tls.key_store is not None:
            raise OptionError(
                "this client's certificate is given twice, in a PEM file and in a key store",
                advice="Set either pulsar.client.tlsKeyStorePath, or "
                "pulsar.client.tlsCertificateFilePath and tlsKeyFilePath",
            )

    @property
    def by_certificate(self) -> bool:
        """Whether the login is this client's TLS certificate."""
        return isinstance(self._authentication, ClientCertificate)

    def login(self) -> Login | None:
        """Returns the current login; None without authentication. Raises as ``Authentication.data``."""
        if self._authentication is None:
            return None
        return Login(self._authentication.method, self._authentication.data())

    def explain_refused(self, error: AuthError) -> AuthError:
        """Adds the expiry of a token to a refusal, because the broker does not report it."""
        login = self.login()
        if login is None:
            return AuthError(error.what, advice="Set the options authPluginClassName and authParams")
        expired = _expired(login.data) if login.method == Token.method else None
        if expired is None:
            return error
        return AuthError(f"{error.what}; the token expired {expired:.0f} s ago", advice="Renew the token")

    @property
    def sends_secret(self) -> bool:
        """Whether the login sends a secret."""
        return self._authentication is not None and not self.by_certificate

    @property
    def issuer_url(self) -> str | None:
        """Returns the URL of the OAuth2 issuer; None for other logins."""
        return self._authentication.issuer_url if isinstance(self._authentication, OAuth2) else None

    @staticmethod
    def http_headers(login: Login | None) -> dict[str, str]:
        """Returns the result of :meth:`login` as HTTP headers for the admin service."""
        if login is None or login.method == ClientCertificate.method:
            return {}
        if login.method == Basic.method:
            return {"Authorization": f"Basic {base64.b64encode(login.data).decode()}"}
        token = login.data.decode("ascii", errors="replace")
        if not (token.isascii() and token.isprintable()):
            # Refused here, because http.client would repeat the token in its error.
            raise AuthError("the token is not a line of ASCII text and cannot be sent to the admin service")
        return {"Authorization": f"Bearer {token}"}


def _expired(token: bytes) -> float | None:
    """Returns seconds since a JWT expired; None if it is valid, or has no expiry."""
    try:
        claims = parse_json(base64.urlsafe_b64decode(token.split(b".")[1] + b"=="))
        # Fractions of a second are dropped, because the broker ignores them.
        ago = time.time() - int(claims["exp"])
    except (ValueError, LookupError, TypeError, OverflowError):
        return None
    return ago if ago >= 0 else None


def _redirected(request: urllib.request.Request, url: str) -> urllib.request.Request | None:
    """Follows redirects, but never with the secret, and never from https to http."""
    leaves_tls = request.type == "https" and not url.startswith("https:")
    if request.data is not None or leaves_tls:
        return None  # the redirect is not followed, and counts as the issuer's answer
    return urllib.request.Request(url, headers=dict(request.headers))


def _lifetime(given: object) -> float:
    """Returns seconds, 0 if the lifetime is not a number. Some issuers send numbers as text."""
    try:
        lifetime = float(given) if isinstance(given, str | int | float) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return lifetime if math.isfinite(lifetime) else 0.0


def _refusal(status: int, body: bytes, form: bytes) -> AuthError | ConnectError:
    """Returns an error with the answer's standard error code only; other text may repeat secrets."""
    code = str((_object(body) or {}).get("error", ""))
    said = f" ({code})" if _ERROR_CODE.fullmatch(code) and code.encode() not in form else ""
    what = f"the OAuth2 issuer answered with status {status}{said}"
    if status >= 500 or status == 429:
        return ConnectError(what, advice=_ADVICE)
    return AuthError(what, advice=_ADVICE)


def _key_of(key: str) -> str:
    """Returns the text at ``file:///PATH`` or in ``data:[TYPE][;base64],DATA``."""
    if key.startswith("file:"):
        return text_at(key, "authParams", AuthError)
    kind, _, data = key.partition(",")
    try:
        return base64.b64decode(data).decode() if kind.endswith(";base64") else unquote(data)
    except ValueError:
        raise AuthError("the data in authParams is not base64-encoded text") from None


def _object(data: bytes) -> dict[str, Any] | None:
    """Parses a JSON object; returns None for other data."""
    try:
        found = parse_json(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _json(text: str) -> dict[str, Any]:
    found = _object(text.encode(errors="replace"))
    if found is None:
        raise OptionError(
            "authParams is not a JSON object",
            advice='As docs/security.md shows: {"userId": "...", "password": "..."} for basic',
        )
    return found


def _bad(plugin: str, right: str) -> OptionError:
    return OptionError(
        f"authParams is wrong for the authentication plugin {plugin}", advice=f"It must be {right}"
    )
