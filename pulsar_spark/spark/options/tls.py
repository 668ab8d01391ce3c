"""The options of TLS: who is trusted, who this client is, and what may be spoken."""

from __future__ import annotations

from pulsar_spark.client import KeyStore, TlsOptions
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Option, Table, Values

TLS = Table()

_PASSWORD = "or where it is: `file:///PATH` or `env:NAME`."

_TRUST_CERTS = TLS.add(
    "pulsar.client.tlsTrustCertsFilePath",
    "path",
    parsers.non_empty,
    None,
    "PEM file of the authorities that are trusted; without it those of the system. All files that options "
    "name are read on the driver's host and on those of the tasks; those of TLS for each new connection.",
)
_TRUST_STORE_PATH = TLS.add(
    "pulsar.client.tlsTrustStorePath",
    "path",
    parsers.non_empty,
    None,
    "PKCS#12 file of the authorities that are trusted, in place of `tlsTrustCertsFilePath`. Stores need the "
    "package `cryptography`, and one in JKS must be converted first: see docs/security.md.",
)
_TRUST_STORE_PASSWORD = TLS.add(
    "pulsar.client.tlsTrustStorePassword",
    "text",
    parsers.non_empty,
    None,
    f"The password of that store, {_PASSWORD}",
    secret=True,
)
_CERTIFICATE = TLS.add(
    "pulsar.client.tlsCertificateFilePath",
    "path",
    parsers.non_empty,
    None,
    "PEM file of this client's certificate, with its chain, for mutual TLS.",
)
_KEY = TLS.add(
    "pulsar.client.tlsKeyFilePath",
    "path",
    parsers.non_empty,
    None,
    "PEM file of its private key.",
)
_KEY_PASSWORD = TLS.add(
    "pulsar.client.tlsKeyPassword",
    "text",
    parsers.non_empty,
    None,
    f"The passphrase of the key in `tlsKeyFilePath`, where it has one, {_PASSWORD}",
    secret=True,
)
_KEY_STORE_PATH = TLS.add(
    "pulsar.client.tlsKeyStorePath",
    "path",
    parsers.non_empty,
    None,
    "PKCS#12 file of this client's certificate and key, in place of `tlsCertificateFilePath` and "
    "`tlsKeyFilePath`. Where it holds several keys the first one is used.",
)
_KEY_STORE_PASSWORD = TLS.add(
    "pulsar.client.tlsKeyStorePassword",
    "text",
    parsers.non_empty,
    None,
    f"The password of that store, {_PASSWORD}",
    secret=True,
)
_ALLOW_INSECURE = TLS.add(
    "pulsar.client.tlsAllowInsecureConnection",
    "boolean",
    parsers.boolean,
    "false",
    "Take any certificate of the broker, which protects from nobody in between.",
)
_VERIFY_HOSTNAME = TLS.add(
    "pulsar.client.tlsHostnameVerificationEnable",
    "boolean",
    parsers.boolean,
    "true",
    "Whether the broker's certificate must name the host that was asked for.",
)
_PROTOCOLS = TLS.add(
    "pulsar.client.tlsProtocols",
    "names",
    parsers.tls_protocols,
    None,
    "Versions of TLS that may be spoken, separated by commas: `TLSv1.3`, `TLSv1.2`. Without it both.",
)
_CIPHERS = TLS.add(
    "pulsar.client.tlsCiphers",
    "names",
    parsers.tls_ciphers,
    None,
    "Cipher suites that may be used, by Java's names, separated by commas: "
    "`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` and the like for TLS 1.2, `TLS_AES_256_GCM_SHA384`, "
    "`TLS_CHACHA20_POLY1305_SHA256` and `TLS_AES_128_GCM_SHA256` for TLS 1.3. Python cannot choose among the "
    "latter: name all three, or none of them, and TLS 1.3 is not spoken. Without it OpenSSL's default.",
)
_PROXY = TLS.add(
    "pulsar.client.proxyServiceUrl",
    "URL",
    parsers.proxy_url,
    None,
    "`pulsar+ssl://proxy:443`: a proxy to which all connections to brokers are opened, and which finds each "
    "broker by the host that the TLS handshake names (SNI). `service.url` and the brokers must then name "
    "hosts, not IP addresses. `admin.url` does not go through it.",
)


def tls_options(values: Values) -> TlsOptions:
    """How TLS is spoken, of the table TLS.

    Raises:
        OptionError: options do not go together.
    """
    if values[_TRUST_CERTS] is not None and values[_TRUST_STORE_PATH] is not None:
        raise OptionError(
            "options tlsTrustCertsFilePath and tlsTrustStorePath both say who is trusted",
            advice="Leave one of them out",
        )
    stores = ((_TRUST_STORE_PATH, _TRUST_STORE_PASSWORD), (_KEY_STORE_PATH, _KEY_STORE_PASSWORD))
    for path, password in stores:
        if values[password] is not None and values[path] is None:
            raise OptionError(
                f"option {password.name} needs the store that it is for", advice=f"Set {path.name}"
            )
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
