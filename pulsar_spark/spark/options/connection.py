"""The options that source and sink share: the cluster's address, the login, and end-to-end encryption.

This module owns the table CONNECTION, from which it makes :class:`ClientOptions`. Spark sends only options to
tasks, never keys. So each task's process creates its own encryptor and decryptor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pulsar_spark.client import (
    ClientOptions,
    ConsumerCryptoFailureAction,
    Credentials,
    CryptoKeyReader,
    Decryptor,
    Encryptor,
    KeyFolder,
    KeyStore,
    ProducerCryptoFailureAction,
    TlsOptions,
    check_identity,
    checked_admin_url,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Option, Parser, Table, Values
from pulsar_spark.spark.options.user_code import load_class
from pulsar_spark.spark.processes import LEVELS

_OPTION = "cryptoKeyReader"
_METHODS = ("get_public_key", "get_private_key")


@dataclass(frozen=True, slots=True)
class EncryptionOptions:
    """The sink's options of end-to-end encryption. ``keys``: names of the public keys."""

    key_reader: Path | str
    keys: tuple[str, ...]
    action: ProducerCryptoFailureAction


@dataclass(frozen=True, slots=True)
class DecryptionOptions:
    """The source's options of end-to-end decryption.

    ``key_reader``: a folder, or the dotted name of a class of key readers; None: nothing can be decrypted.
    """

    key_reader: Path | str | None
    action: ConsumerCryptoFailureAction


@lru_cache(maxsize=100)
def encryptor_of(options: EncryptionOptions) -> Encryptor:
    """Returns this process's encryptor for the options, so that tasks share a data key.

    Raises OptionError: the key reader cannot be imported, or is not a class of key readers.
    """
    return Encryptor(_key_reader(options.key_reader), options.keys, options.action)


@lru_cache(maxsize=100)
def decryptor_of(options: DecryptionOptions) -> Decryptor:
    """Returns this process's decryptor for the options, so that tasks share decrypted data keys."""
    reader = None if options.key_reader is None else _key_reader(options.key_reader)
    return Decryptor(reader, options.action)


def own_decryptor(options: EncryptionOptions) -> Decryptor:
    """Returns a decryptor of the messages that a sink has written; its key reader must have private keys."""
    return decryptor_of(DecryptionOptions(options.key_reader, ConsumerCryptoFailureAction.FAIL))


def check_key_reader(place: Path | str | None) -> None:
    """Raises OptionError if this process, the driver, has no folder, or no class, named ``place``."""
    if isinstance(place, str):
        load_class(_OPTION, place, *_METHODS)
    elif place is not None and not place.is_dir():
        raise OptionError(
            f"option {_OPTION} is {place}, and there is no such folder in {Path.cwd()}",
            advice="Put the folder of keys on the hosts of the driver and of the tasks",
        )


def _key_reader(place: Path | str) -> CryptoKeyReader:
    if isinstance(place, Path):
        return KeyFolder(place)
    reader: CryptoKeyReader = load_class(_OPTION, place, *_METHODS)()
    return reader


TLS = Table()

_PASSWORD = "or where it is: `file:PATH` or `env:NAME`."

_TRUST_CERTS = TLS.add_optional(
    "pulsar.client.tlsTrustCertsFilePath",
    parsers.file,
    "PEM file of the trusted certificate authorities. Default: the system's.",
)
_TRUST_STORE_PATH = TLS.add_optional(
    "pulsar.client.tlsTrustStorePath",
    parsers.file,
    "PKCS#12 file of the trusted certificate authorities. Replaces `tlsTrustCertsFilePath`. Requires the "
    "package `cryptography`. Convert JKS first: see docs/security.md.",
)
_TRUST_STORE_PASSWORD = TLS.add_optional(
    "pulsar.client.tlsTrustStorePassword",
    parsers.non_empty,
    f"Password of `tlsTrustStorePath`, {_PASSWORD}",
    secret=True,
)
_CERTIFICATE = TLS.add_optional(
    "pulsar.client.tlsCertificateFilePath",
    parsers.file,
    "PEM file of this client's certificate, with its chain, for mutual TLS.",
)
_KEY = TLS.add_optional(
    "pulsar.client.tlsKeyFilePath", parsers.file, "PEM file of that certificate's private key."
)
_KEY_PASSWORD = TLS.add_optional(
    "pulsar.client.tlsKeyPassword",
    parsers.non_empty,
    f"Passphrase of the key in `tlsKeyFilePath`, if it has one, {_PASSWORD}",
    secret=True,
)
_KEY_STORE_PATH = TLS.add_optional(
    "pulsar.client.tlsKeyStorePath",
    parsers.file,
    "PKCS#12 file of this client's certificate and key. Replaces `tlsCertificateFilePath` and "
    "`tlsKeyFilePath`. If it holds several keys, the first one is used.",
)
_KEY_STORE_PASSWORD = TLS.add_optional(
    "pulsar.client.tlsKeyStorePassword",
    parsers.non_empty,
    f"Password of `tlsKeyStorePath`, {_PASSWORD}",
    secret=True,
)
_ALLOW_INSECURE = TLS.add(
    "pulsar.client.tlsAllowInsecureConnection",
    parsers.boolean,
    "false",
    "Accept any broker certificate. Offers no protection against man-in-the-middle attacks.",
)
_VERIFY_HOSTNAME = TLS.add(
    "pulsar.client.tlsHostnameVerificationEnable",
    parsers.boolean,
    "true",
    "Require that the broker's certificate names the host that the client connects to.",
)
_PROTOCOLS = TLS.add_optional(
    "pulsar.client.tlsProtocols",
    parsers.tls_protocols,
    "Allowed TLS versions, separated by commas: `TLSv1.3`, `TLSv1.2`. Default: both.",
)
_CIPHERS = TLS.add_optional(
    "pulsar.client.tlsCiphers",
    parsers.tls_ciphers,
    "Allowed cipher suites by their Java names, separated by commas. TLS 1.2: names such as "
    "`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`. TLS 1.3: `TLS_AES_256_GCM_SHA384`, "
    "`TLS_CHACHA20_POLY1305_SHA256` and `TLS_AES_128_GCM_SHA256`: name all three, or none to disable TLS "
    "1.3. Default: those of OpenSSL.",
)
_PROXY = TLS.add_optional(
    "pulsar.client.proxyServiceUrl",
    parsers.proxy_url,
    "Connect to all brokers through this proxy, which finds each broker by the host name in the TLS "
    "handshake (SNI): `pulsar+ssl://proxy:443`. See docs/security.md.",
)


def tls_options(values: Values) -> TlsOptions:
    """Returns the TLS settings from parsed values, and checks their combinations."""
    if values[_TRUST_CERTS] is not None and values[_TRUST_STORE_PATH] is not None:
        raise OptionError(
            "options tlsTrustCertsFilePath and tlsTrustStorePath are both set", advice="Leave one of them out"
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


CONNECTION = Table()

SERVICE_URL = CONNECTION.add_optional(
    "service.url",
    parsers.service_url,
    "Required. `pulsar://h1:6650,h2:6650`, with TLS `pulsar+ssl://h1:6651`. Several hosts must be of one "
    "cluster. The client begins with a random one, then tries the others in order.",
)
ADMIN_URL = CONNECTION.add_optional(
    "admin.url",
    Parser("URL", checked_admin_url),
    "Pulsar's HTTP admin service: `http://host:8080`. Must be `https://` if the service URL has TLS and you "
    "log in with a token or a password. Required for a stream of a scalable topic (`topic://`). Otherwise it "
    "only improves estimates of sizes. The sink does not use it.",
)
_AUTH_PLUGIN = CONNECTION.add_optional(
    "pulsar.client.authPluginClassName",
    parsers.non_empty,
    "How to log in: `token`, `basic`, `tls`, `oauth2`, the Java class name of one of these, or the dotted "
    "name of your own Python class. See docs/security.md.",
)
_AUTH_PARAMS = CONNECTION.add_optional(
    "pulsar.client.authParams",
    parsers.non_empty,
    "Parameters of the login, as in the Java client: `token:...`, `file:PATH`, `env:NAME`, or JSON. A "
    "secret: see docs/security.md.",
    secret=True,
)
CONNECTION.extend(TLS)
# The options of the client's identity, and of the certificates that it trusts.
LOGIN: tuple[Option[Any], ...] = (_AUTH_PLUGIN, _AUTH_PARAMS, *TLS)
_OPERATION_TIMEOUT = CONNECTION.add(
    "pulsar.client.operationTimeoutMs",
    parsers.seconds("ms", 0.001),
    "30s",
    "Timeout of a request, including its retries.",
)
_LOOKUP_TIMEOUT = CONNECTION.add_optional(
    "pulsar.client.lookupTimeoutMs",
    parsers.seconds("ms", 0.001),
    "Timeout of a lookup, including retries and redirects. Default: `operationTimeoutMs`.",
)
_MAX_LOOKUP_REDIRECTS = CONNECTION.add(
    "pulsar.client.maxLookupRedirects",
    parsers.count(1),
    "20",
    "Maximum redirects from broker to broker in one lookup. 0 (unlimited in Java) is not allowed.",
)
_LISTENER_NAME = CONNECTION.add_optional(
    "pulsar.client.listenerName",
    parsers.non_empty,
    "Which of the brokers' `advertisedListeners` to connect to. Set it if clients need other addresses than "
    "the brokers' internal ones, for example outside Kubernetes. Default: the internal listener.",
)
_CONNECTION_TIMEOUT = CONNECTION.add(
    "pulsar.client.connectionTimeoutMs",
    parsers.seconds("ms", 0.001),
    "10s",
    "Timeout of one TCP connection, its handshake, and its silence while a request waits.",
)
_KEEP_ALIVE_INTERVAL = CONNECTION.add(
    "pulsar.client.keepAliveIntervalSeconds",
    parsers.seconds("s", 1.0),
    "30s",
    "A PING is sent when nothing was received for this time.",
)
_CONNECTION_MAX_IDLE = CONNECTION.add(
    "pulsar.client.connectionMaxIdleSeconds",
    parsers.seconds("s", 1.0),
    "60s",
    "A connection that was not used for this time is closed.",
)
_SUBSCRIPTION_PREFIX = CONNECTION.add(
    "subscriptionPrefix",
    parsers.non_empty,
    "spark-pulsar",
    "Prefix of the names of subscriptions that you do not name yourself. A stream's durable subscription is "
    "`<prefix>-<uuid>`. If the namespace's subscription-auth-mode is `Prefix`, the prefix must start with "
    "the role.",
)
LOG_LEVEL = CONNECTION.add_optional(
    "logLevel",
    parsers.one_of(LEVELS),
    "Minimum level of what this package's planner and tasks log, to standard error. `INFO` shows rows, "
    "bytes, seconds and the backlog of each micro-batch. Default: `WARN`.",
)
TOPIC = CONNECTION.add_optional(
    "topic",
    parsers.topic,
    "Source: the topic to read, with all its partitions; `t-partition-2` is one partition, `topic://...` a "
    "scalable topic: see docs/pulsar5.md. Sink: the topic to write all rows to, even if they have a column "
    "`__topic`. Without this option that column names the topic of each row.",
)


def client_options(values: Values) -> ClientOptions:
    """Returns the address of the cluster and the login.

    Raises OptionError: the service URL is missing, or the options of the login cannot be used together.
    """
    service_url = values[SERVICE_URL]
    if service_url is None:
        raise OptionError(
            "the option service.url is missing",
            advice='Set .option("service.url", "pulsar://host:6650"), in SQL WITH (...)',
        )
    options = ClientOptions(
        service_url=service_url,
        operation_timeout=values[_OPERATION_TIMEOUT],
        lookup_timeout=values[_LOOKUP_TIMEOUT],
        max_lookup_redirects=values[_MAX_LOOKUP_REDIRECTS],
        listener_name=values[_LISTENER_NAME],
        connection_timeout=values[_CONNECTION_TIMEOUT],
        keep_alive_interval=values[_KEEP_ALIVE_INTERVAL],
        connection_max_idle=values[_CONNECTION_MAX_IDLE],
        subscription_prefix=values[_SUBSCRIPTION_PREFIX],
        tls=tls_options(values),
        credentials=_credentials(values),
    )
    check_identity(options, values[ADMIN_URL])
    return options


def _credentials(values: Values) -> Credentials | None:
    plugin, params = values[_AUTH_PLUGIN], values[_AUTH_PARAMS]
    if plugin is None and params is not None:
        raise OptionError(
            "option authParams is set without authPluginClassName",
            advice=f"Set {_AUTH_PLUGIN.name}, such as token",
        )
    return None if plugin is None else Credentials(plugin, params or "")
