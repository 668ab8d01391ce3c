"""ClientCredentials: access tokens of an OAuth 2.0 issuer, kept until shortly before they expire."""

from __future__ import annotations

import math
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from pulsar_spark.client.net.http import HttpError, fetch, is_in_clear, is_on_this_host, parse_json
from pulsar_spark.errors import AuthError, ConnectError

_DISCOVERY = "/.well-known/openid-configuration"
# Fraction of its lifetime in which a token is used; the rest covers delays and clock differences.
_USED = 0.9
_MAX_ANSWER = 1 << 20  # bytes
_ERROR_CODE = re.compile(r"[a-z_]{1,50}")
_ADVICE = "Check issuerUrl, audience, scope and the key file in authParams"


class ClientCredentials:
    """Access tokens by the client credentials grant; thread-safe.

    Args:
        issuer: URL of the issuer; the token endpoint is found through ``/.well-known/openid-configuration``.
        key: function that returns the key file's text, JSON with ``client_id`` and ``client_secret``; called
            for each token.
    """

    def __init__(
        self,
        *,
        issuer: str,
        key: Callable[[], str],
        audience: str | None,
        scope: str | None,
        timeout: float,
    ) -> None:
        self._issuer = issuer.rstrip("/")
        self._key = key
        self._wanted = {"audience": audience, "scope": scope}
        self._timeout = timeout
        self._lock = threading.Lock()
        self._token = ""
        self._used_until = 0.0

    def token(self) -> str:
        """Returns a valid token; requests one if there is none.

        Raises:
            ConnectError: the issuer does not answer, or is not available now.
            AuthError: the issuer refuses, or its answer is invalid; or the key file is wrong.
        """
        with self._lock:
            if time.monotonic() >= self._used_until:
                asked_at = time.monotonic()
                self._token, lifetime = self._ask()
                self._used_until = asked_at + _USED * lifetime
            return self._token

    def _ask(self) -> tuple[str, float]:
        fields = {"grant_type": "client_credentials", **self._client(), **self._wanted}
        described = self._request(self._issuer + _DISCOVERY)
        issuer, endpoint = described.get("issuer"), described.get("token_endpoint")
        if not isinstance(issuer, str) or issuer.rstrip("/") != self._issuer:
            # Refused, because a server of several issuers could direct the secret to another issuer.
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
        form = urlencode({name: value for name, value in fields.items() if value is not None})
        answer = self._request(endpoint, form.encode())
        token = answer.get("access_token")
        # Other characters cannot be sent; RFC 6750 allows even fewer.
        if not isinstance(token, str) or not token or not (token.isascii() and token.isprintable()):
            raise AuthError("the OAuth2 issuer's response contains no access token", advice=_ADVICE)
        return token, _lifetime(answer.get("expires_in"))

    def _client(self) -> Mapping[str, str]:
        try:
            found = parse_json(self._key().encode())
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
                # A proxy would receive a secret that must not leave this host, and would connect to its own
                # loopback.
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
        try:
            found = parse_json(body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise AuthError("the OAuth2 issuer's response is not a JSON object", advice=_ADVICE)
        return found


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
    try:
        code = str(parse_json(body)["error"])
    except (ValueError, KeyError, TypeError):
        code = ""
    said = f" ({code})" if _ERROR_CODE.fullmatch(code) and code.encode() not in form else ""
    what = f"the OAuth2 issuer answered with status {status}{said}"
    if status >= 500 or status == 429:
        return ConnectError(what, advice=_ADVICE)
    return AuthError(what, advice=_ADVICE)
