"""A Pulsar that demands TLS or a login, and what opens it: certificates, tokens, an OAuth2 issuer."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import ipaddress
import json
import secrets
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import pulsar
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from integration.broker import StandaloneBroker
from integration.helpers.cluster import TEST_JVM
from integration.helpers.peer import Peer
from pulsar_spark_broker.ports import free_port

_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_CLIENT = "org.apache.pulsar.client.impl.auth.AuthenticationToken"

# Seconds between the broker's looks at logins that have expired, and at its own certificate's files.
CHECK = 1

USER, PASSWORD = "basic-user", "basic-pw-3141592"
_PASSWORD_HASH = "$apr1$pulsarsp$YzQUBLebTukWeghZ3.ULv/"

# Each role's name; `ADMIN` may do everything, `CLERK` what a test grants it.
ADMIN, CLERK = "admin", "clerk"

_DAY = datetime.timedelta(days=1)


class Pem(NamedTuple):
    """Files of a certificate and of its key."""

    certificate: str
    key: str


class Authority:
    """A certificate authority of its own; all files go into `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        ca = x509.BasicConstraints(ca=True, path_length=0)
        made = _builder(self._name, self._name, self._key, days=1).add_extension(ca, critical=True)
        self.file = _write(folder / f"{name}.pem", _pem(made.sign(self._key, hashes.SHA256())))

    def issue(
        self, name: str, *, host: str | None = None, days: int = 1, file: str | None = None, also: str = ""
    ) -> Pem:
        """A certificate for `name`; expired for negative `days`.

        Of a server it is for an IP address, and for `also`, a host's name.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        made = _builder(subject, self._name, key, days=days)
        if host is not None:
            names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(host))]
            names += [x509.DNSName(also)] if also else []
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        file = file or f"{name}-{days}"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Pem(
            _write(self._folder / f"{file}.cert.pem", _pem(made.sign(self._key, hashes.SHA256()))),
            _write(self._folder / f"{file}.key.pem", private),
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 10 * _DAY)
        .not_valid_after(now + days * _DAY)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(file: Path, data: bytes) -> str:
    """Replace the file as a whole, as those do who renew certificates."""
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.replace(file)
    return str(file)


class TokenMaker:
    """Makes JWTs (HS256) that the broker takes."""

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)

    def token(self, role: str, seconds: float | None = None) -> str:
        """A token for `role` that ends in so many seconds (in the past where negative), or never."""
        claims: dict[str, object] = {"sub": role, "jti": secrets.token_hex(8)}
        if seconds is not None:
            claims["exp"] = time.time() + seconds
        signed = _base64url(b'{"alg":"HS256"}') + "." + _base64url(json.dumps(claims).encode())
        return f"{signed}.{_base64url(hmac.digest(self.key, signed.encode(), hashlib.sha256))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker with TLS and logins on both of its pairs of ports.

    Attributes:
        authority: whose certificates it trusts and shows.
    """

    broker: StandaloneBroker
    authority: Authority
    stranger: Authority
    tokens: TokenMaker
    folder: Path

    @property
    def tls_url(self) -> str:
        return self.broker.tls_service_url

    def options(self, login: str = "token", params: str | None = None, **others: str) -> dict[str, str]:
        """Options of source and sink for TLS and a login; by default the administrator's token."""
        params = params or f"token:{self.tokens.token(ADMIN)}"
        client = {
            "tlsTrustCertsFilePath": self.authority.file,
            "authPluginClassName": login,
            "authParams": params,
            **others,
        }
        return {f"pulsar.client.{name}": value for name, value in client.items()}

    def peer(self) -> Peer:
        """The C++ client through TLS, with the administrator's token."""
        login = pulsar.AuthenticationToken(self.tokens.token(ADMIN))
        return Peer(self.tls_url, authentication=login, tls_trust_certs_file_path=self.authority.file)

    def grant(self, topic: str, role: str, *actions: str) -> None:
        """Allow a role `produce` or `consume` on a topic."""
        path = topic.replace("://", "/")
        self.broker.admin.request("POST", f"{path}/permissions/{role}", list(actions))


@contextmanager
def open_secured(
    folder: Path, settings: Mapping[str, str] | None = None, *, name: str = ""
) -> Iterator[Secured]:
    """Start a broker that lets nobody in without a login; files go into `folder`.

    Its certificate is for 127.0.0.1, and for `name`.
    """
    authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger")
    tokens = TokenMaker()
    server = authority.issue("broker", host="127.0.0.1", also=name)
    ports = {"brokerServicePortTls": "0", "webServicePortTls": "0"}
    secured = secured_settings(authority, tokens, server) | ports | dict(settings or {})
    with StandaloneBroker(secured, jvm=TEST_JVM) as broker:
        yield Secured(broker, authority, stranger, tokens, folder)


def outside_settings(host: str) -> dict[str, str]:
    """Settings of a broker that is `internal` at 127.0.0.1, and `external` at a host by TLS."""
    plain, tls = free_port(), free_port()
    return {
        # Brokers take either addresses of listeners or one for all, from which the bookie has its own.
        "advertisedAddress": "",
        "allowLoopback": "true",
        "brokerServicePort": str(plain),
        "brokerServicePortTls": str(tls),
        "advertisedListeners": f"internal:pulsar://127.0.0.1:{plain},internal:pulsar+ssl://127.0.0.1:{tls},"
        f"external:pulsar://localhost:{plain},external:pulsar+ssl://{host}:{tls}",
        "internalListenerName": "internal",
    }


def secured_settings(authority: Authority, tokens: TokenMaker, server: Pem) -> dict[str, str]:
    """Settings of a broker that lets nobody in without a login; ports of TLS come on top."""
    users = base64.b64encode(f"{USER}:{_PASSWORD_HASH}\n".encode()).decode()
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": ",".join(_PROVIDERS + kind for kind in ("Token", "Tls", "Basic")),
        "superUserRoles": f"{ADMIN},{USER}",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(tokens.key).decode()}",
        "basicAuthConf": f"data:;base64,{users}",
        "authenticationRefreshCheckSeconds": str(CHECK),
        "brokerClientAuthenticationPlugin": _CLIENT,
        "brokerClientAuthenticationParameters": f"token:{tokens.token(ADMIN)}",
        "tlsCertificateFilePath": server.certificate,
        "tlsKeyFilePath": server.key,
        "tlsTrustCertsFilePath": authority.file,
        "tlsRequireTrustedClientCertOnConnect": "false",
        "tlsCertRefreshCheckDurationSec": str(CHECK),
    }


class Issuer(ThreadingHTTPServer):
    """An OAuth2 issuer; a context manager.

    Attributes:
        lifetime: seconds of its tokens.
        asked: the forms of all requests for a token.
        issued: all its tokens.
        refuse: answer with this status and error code.
    """

    CLIENT_ID, SECRET = "client-27182", "oauth-secret-81828"

    def __init__(self, tokens: TokenMaker, role: str = ADMIN) -> None:
        super().__init__(("127.0.0.1", 0), _IssuerHandler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.tokens, self.role = tokens, role
        self.lifetime = 3600.0
        self.asked: list[dict[str, str]] = []
        self.issued: list[str] = []
        self.refuse: tuple[int, str] | None = None
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Issuer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def params(self, key: str, **others: str) -> str:
        """The authParams for it; `key` is as `privateKey` takes it."""
        return json.dumps({"issuerUrl": self.url, "privateKey": key, **others})

    def key_file(self, file: Path) -> str:
        """Write the key file, and name it."""
        file.write_text(json.dumps({"client_id": self.CLIENT_ID, "client_secret": self.SECRET}))
        return f"file://{file}"

    def answer(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """What a request for a token gets."""
        self.asked.append(form)
        if self.refuse is not None:
            status, code = self.refuse
            return status, {"error": code, "error_description": f"not {form.get('client_secret')}"}
        if (form.get("client_id"), form.get("client_secret")) != (self.CLIENT_ID, self.SECRET):
            return 401, {"error": "invalid_client"}
        self.issued.append(self.tokens.token(self.role, self.lifetime))
        return 200, {"access_token": self.issued[-1], "expires_in": self.lifetime}


class _IssuerHandler(BaseHTTPRequestHandler):
    server: Issuer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        found = self.path == "/.well-known/openid-configuration"
        described = {"issuer": self.server.url, "token_endpoint": f"{self.server.url}/token"}
        self._say(200 if found else 404, described)

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(sent).items()}
        self._say(*self.server.answer(form))

    def _say(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def server_context(pem: Pem) -> ssl.SSLContext:
    """TLS for a server that is no broker, which shows a certificate that no broker should."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem.certificate, pem.key)
    return context
