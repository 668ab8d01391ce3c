"""The options of TLS: trusted authorities, this client's certificate, protocols and cipher suites."""

from __future__ import annotations

from pulsar_spark.client import KeyStore, TlsOptions
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Option, Table, Values

TLS = Table()

_PASSWORD = "or where it is: `file:PATH` or `env:NAME`."

_TRUST_CERTS = TLS.add(
    "pulsar.client.tlsTrustCertsFilePath",
    "path",
    parsers.file,
    None,
    "PEM file of the trusted certificate authorities. Default: the system's.",
)
_TRUST_STORE_PATH = TLS.add(
    "pulsar.client.tlsTrustStorePath",
    "path",
    parsers.file,
    None,
    "PKCS#12 file of the trusted certificate authorities. Replaces `tlsTrustCertsFilePath`. Requires the "
    "package `cryptography`. Convert JKS first: see docs/security.md.",
)
_TRUST_STORE_PASSWORD = TLS.add(
    "pulsar.client.tlsTrustStorePassword",
    "text",
    parsers.non_empty,
    None,
    f"Password of `tlsTrustStorePath`, {_PASSWORD}",
    secret=True,
)
_CERTIFICATE = TLS.add(
    "pulsar.client.tlsCertificateFilePath",
    "path",
    parsers.file,
    None,
    "PEM file of this client's certificate, with its chain, for mutual TLS.",
)
_KEY = TLS.add(
    "pulsar.client.tlsKeyFilePath",
    "path",
    parsers.file,
    None,
    "PEM file of that certificate's private key.",
)
_KEY_PASSWORD = TLS.add(
    "pulsar.client.tlsKeyPassword",
    "text",
    parsers.non_empty,
    None,
    f"Passphrase of the key in `tlsKeyFilePath`, if it has one, {_PASSWORD}",
    secret=True,
)
_KEY_STORE_PATH = TLS.add(
    "pulsar.client.tlsKeyStorePath",
    "path",
    parsers.file,
    None,
    "PKCS#12 file of this client's certificate and key. Replaces `tlsCertificateFilePath` and "
    "`tlsKeyFilePath`. If it holds several keys, the first one is used.",
)
_KEY_STORE_PASSWORD = TLS.add(
    "pulsar.client.tlsKeyStorePassword",
    "text",
    parsers.non_empty,
    None,
    f"Password of `tlsKeyStorePath`, {_PASSWORD}",
    secret=True,
)
_ALLOW_INSECURE = TLS.add(
    "pulsar.client.tlsAllowInsecureConnection",
    "boolean",
    parsers.boolean,
    "false",
    "Accept any broker certificate. Offers no protection against man-in-the-middle attacks.",
)
_VERIFY_HOSTNAME = TLS.add(
    "pulsar.client.tlsHostnameVerificationEnable",
    "boolean",
    parsers.boolean,
    "true",
    "Require that the broker's certificate names the host that the client connects to.",
)
_PROTOCOLS = TLS.add(
    "pulsar.client.tlsProtocols",
    "names",
    parsers.tls_protocols,
    None,
    "Allowed TLS versions, separated by commas: `TLSv1.3`, `TLSv1.2`. Default: both.",
)
_CIPHERS = TLS.add(
    "pulsar.client.tlsCiphers",
    "names",
    parsers.tls_ciphers,
    None,
    "Allowed cipher suites by their Java names, separated by commas. TLS 1.2: names such as "
    "`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`. TLS 1.3: `TLS_AES_256_GCM_SHA384`, "
    "`TLS_CHACHA20_POLY1305_SHA256` and `TLS_AES_128_GCM_SHA256`: name all three, or none to disable TLS "
    "1.3. Default: those of OpenSSL.",
)
_PROXY = TLS.add(
    "pulsar.client.proxyServiceUrl",
    "URL",
    parsers.proxy_url,
    None,
    "Connect to all brokers through this proxy, which finds each broker by the host name in the TLS "
    "handshake (SNI): `pulsar+ssl://proxy:443`. See docs/security.md.",
)


def tls_options(values: Values) -> TlsOptions:
    """The TLS settings, from the table TLS.

    Raises:
        OptionError: options cannot be used together.
    """
    if values[_TRUST_CERTS] is not None and values[_TRUST_STORE_PATH] is not None:
        raise OptionError(
            "options tlsTrustCertsFilePath and tlsTrustStorePath are both set",
            advice="Leave one of them out",
        )
    stores = ((_TRUST_STORE_PATH, _TRUST_STORE_PASSWORD), (_KEY_STORE_PATH, _KEY_STORE_PASSWORD))
    for path, password in stores:
        if values[password] is not None and values[path] is None:
            raise OptionError(f"option {password.name} is set without {path.name}", advice=f"Set {path.name}")
    protocols, ciphers = values[_PROTOCOLS], values[_CIPHERS]
    return TlsOptions(
        trust_certs=values[_TRUST_CERTS],
        trust_store=_store(values, _TRUST_STORE_PATH, _TRUST_STORE_PASSWORD),
        certificate=values[_CERTIFICATE],
        key=values[_KEY],
        key_password=values[_KEY_PASSWORD],
        key_store=_store(values, _KEY_STORE_PATH, _KEY_STORE_PASSWORD),
        allow_insecure=values[_ALLOW_INSECURE],
        verify_hostname=values[_VERIFY_HOSTNAME],
        protocols=protocols or (),
        ciphers=ciphers or (),
        proxy=values[_PROXY],
    )


def _store(values: Values, path: Option[str | None], password: Option[str | None]) -> KeyStore | None:
    file = values[path]
    return None if file is None else KeyStore(file, values[password])
