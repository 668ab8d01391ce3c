"""TLS settings: trusted authorities, this client's certificate, protocols and cipher suites."""

from __future__ import annotations

import pkgutil
import secrets
import ssl
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pulsar_spark.client.net.file_or_env import text_at
from pulsar_spark.errors import LibraryError, OptionError, TlsError
from pulsar_spark.protocol.lookup import Address

_PASSPHRASE = "; a key with a passphrase requires pulsar.client.tlsKeyPassword"

# Allowed protocols; older protocols are always refused.
PROTOCOLS: Mapping[str, ssl.TLSVersion] = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}

# Suites of TLS 1.3, which have the same names in Java and OpenSSL.
_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_KEY_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "RSA": "",
}
_CIPHERS = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
}

# First bytes of files in JKS and JCEKS, keytool's default formats before Java 9.
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A PKCS#12 file, and its password in the form of ``TlsOptions.key_password``."""

    path: str
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS settings, named as their options; files are read again for each new connection.

    Attributes:
        trust_store: store of the authorities' certificates. Without it and ``trust_certs`` the system's
            authorities are trusted.
        key_password: passphrase of the key, or ``file:///PATH`` or ``env:NAME`` to read it from; None: no
            passphrase. Secret.
        key_store: store with this client's certificate and key, instead of ``certificate`` and ``key``.
        proxy: address to connect to instead of brokers. The proxy forwards connections to the host that the
            handshake names (SNI).
    """

    trust_certs: str | None = None
    trust_store: KeyStore | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    key_store: KeyStore | None = None
    allow_insecure: bool = False
    verify_hostname: bool = True
    protocols: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    proxy: Address | None = None

    @property
    def has_certificate(self) -> bool:
        """Whether this client sends a certificate."""
        return self.certificate is not None or self.key_store is not None


def tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """Returns the SSL context for ``tls``, with the current files.

    Raises:
        TlsError: a file cannot be used.
        OptionError: protocols and suites conflict.
    """
    context = context_without_files(tls)
    context.check_hostname = tls.verify_hostname and not tls.allow_insecure
    if tls.allow_insecure:
        context.verify_mode = ssl.CERT_NONE
    elif tls.trust_certs is None and tls.trust_store is None:
        context.load_default_certs()
    else:
        # As in Java, all certificates in the file are trusted, not only roots of authorities.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if tls.trust_store is None:
            with _using("tlsTrustCertsFilePath"):
                context.load_verify_locations(tls.trust_certs)
        else:
            with _using("tlsTrustStorePath"):
                found = _stores().certificates_of(*_read(tls.trust_store, "tlsTrustStore"))
                context.load_verify_locations(cadata=found)
    if tls.key_store is not None:
        _load_key_of_store(context, tls.key_store)
    elif tls.certificate is not None:
        with _using("tlsCertificateFilePath or tlsKeyFilePath", _PASSPHRASE):
            # Without a passphrase OpenSSL would ask the terminal for one.
            password = "" if tls.key_password is None else _password(tls.key_password, "tlsKeyPassword")
            context.load_cert_chain(tls.certificate, tls.key, password)
    return context


def context_without_files(tls: TlsOptions) -> ssl.SSLContext:
    """Returns an SSL context without certificates; raises OptionError if protocols and suites conflict."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    restrict(context, tls.protocols, tls.ciphers)
    return context


def _load_key_of_store(context: ssl.SSLContext, store: KeyStore) -> None:
    with _using("tlsKeyStorePath"):
        data, password = _read(store, "tlsKeyStore")
        # Python's ssl reads keys only from files. Only this user can read the file; the key is encrypted.
        passphrase = secrets.token_urlsafe()
        with tempfile.NamedTemporaryFile(prefix="pulsar-spark-") as file:
            file.write(_stores().key_of(data, password, passphrase))
            file.flush()
            context.load_cert_chain(file.name, password=passphrase)


@contextmanager
def _using(option: str, more_advice: str = "") -> Iterator[None]:
    """Converts OSError and ValueError of the block into TlsError, about the file that an option names."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason: str | None = str(error)
        if isinstance(error, OSError):
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise TlsError(
            f"the file named by {option} cannot be used: {reason or 'it contains no certificate'}",
            advice=f"It must be readable on the hosts of the query's driver and its tasks{more_advice}",
        ) from None


def _read(store: KeyStore, kind: str) -> tuple[bytes, str | None]:
    """Returns the bytes and the password of a store; ``kind`` is the prefix of its options."""
    data = Path(store.path).read_bytes()
    if data.startswith(_JKS_MAGIC):
        raise TlsError(
            f"the file named by {kind}Path has a Java format, JKS or JCEKS, which is not supported",
            advice="Convert it to PKCS#12: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 "
            "-deststoretype PKCS12",
        )
    return data, None if store.password is None else _password(store.password, f"{kind}Password")


def _password(place: str, option: str) -> str:
    """Returns a password; a line break at the end of a file is removed."""
    return text_at(place, option, TlsError).rstrip("\r\n")


def _stores() -> _Stores:
    """Returns the module that needs ``cryptography``, an extra that loads slowly; loads it on first use."""
    try:
        module: _Stores = pkgutil.resolve_name("pulsar_spark.client.net.key_stores:")
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise LibraryError(
            "key stores and trust stores require the package cryptography, which is not installed",
            advice="Run pip install 'cryptography>=42' on the hosts of Spark's Python workers, or use "
            "PEM files",
        ) from error
    return module


class _Stores(Protocol):
    def certificates_of(self, data: bytes, password: str | None) -> bytes: ...

    def key_of(self, data: bytes, password: str | None, passphrase: str) -> bytes: ...


def has_suite(name: str) -> bool:
    """Whether this Python's OpenSSL has the suite that Java calls ``name``."""
    if name in _TLS_1_3:
        return True
    known = _openssl_name(name)
    return known is not None and not _choose(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), [known])


def restrict(context: ssl.SSLContext, protocols: Collection[str], suites: Collection[str]) -> None:
    """Restricts ``context`` to these protocols and cipher suites; TLS 1.2 or newer in any case.

    ``protocols``: keys of :data:`PROTOCOLS`; empty: all. ``suites``: names for which :func:`has_suite` is
    true; empty: OpenSSL's default suites.

    Python cannot disable single suites of TLS 1.3. So ``suites`` must have all TLS 1.3 suites that OpenSSL
    offers, or none of them, which disables TLS 1.3.

    Raises OptionError if protocols and suites cannot be combined, or this Python's OpenSSL lacks a suite.
    """
    new = {name for name in suites if name in _TLS_1_3}
    old = [known for name in suites if (known := _openssl_name(name)) is not None]
    allowed = {PROTOCOLS[name] for name in protocols or PROTOCOLS}
    if suites and not new:
        allowed.discard(ssl.TLSVersion.TLSv1_3)
    if suites and not old:
        allowed.discard(ssl.TLSVersion.TLSv1_2)
    if not allowed:
        raise OptionError(
            "no cipher suite of tlsCiphers belongs to a version of tlsProtocols",
            advice="TLS_AES_... and TLS_CHACHA20_... are for TLSv1.3, TLS_..._WITH_... for TLSv1.2",
        )
    if lacking := old and _choose(context, old):
        raise OptionError(
            "the OpenSSL of this Python does not have these suites of tlsCiphers: "
            f"{', '.join(sorted(lacking))}",
            advice="Leave them out",
        )
    missing = {each["name"] for each in context.get_ciphers() if each["name"] in _TLS_1_3} - new
    if new and missing and ssl.TLSVersion.TLSv1_3 in allowed:
        raise OptionError(
            f"tlsCiphers lacks {', '.join(sorted(missing))}, which Python cannot disable in TLSv1.3",
            advice="Add it, or set tlsProtocols to TLSv1.2 and use only suites of TLSv1.2",
        )
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)


def _choose(context: ssl.SSLContext, names: list[str]) -> set[str]:
    """Restricts OpenSSL to these suites of TLS 1.2; returns the suites that OpenSSL lacks."""
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:  # OpenSSL lacks all suites
        return set(names)
    return set(names) - {each["name"] for each in context.get_ciphers()}


def _openssl_name(name: str) -> str | None:
    """Returns OpenSSL's name of a TLS 1.2 suite, even if OpenSSL lacks the suite; None for other names."""
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not name.startswith("TLS_") or exchange not in _KEY_EXCHANGES or cipher not in _CIPHERS:
        return None
    return _KEY_EXCHANGES[exchange] + _CIPHERS[cipher]
