"""The options of source and sink alike: where the cluster is, and who asks."""

from __future__ import annotations

from functools import partial

from pulsar_spark.client import checked_admin_url
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options import parsers as values
from pulsar_spark.spark.options.option import CLIENT, Option, Scope, option

_client = partial(option, scope=Scope.BOTH, prefix=CLIENT)

CONNECTION: tuple[Option, ...] = (
    Option(
        name="service.url",
        kind="URL",
        parse=values.service_url,
        default=None,
        scope=Scope.BOTH,
        doc="Required. `pulsar://h1:6650,h2:6650`, with TLS `pulsar+ssl://h1:6651`; with several hosts the "
        "first try is random, then they are tried in order.",
    ),
    Option(
        name="admin.url",
        kind="URL",
        parse=checked_admin_url,
        default=None,
        scope=Scope.BOTH,
        doc="`http://host:8080` of the admin service. Only makes estimates of sizes better; nothing requires "
        "it, and the sink does not use it.",
    ),
    _client(
        "authPluginClassName",
        "text",
        values.non_empty,
        None,
        "How to log in: `token`, `basic`, `tls`, `oauth2`, the Java client's class name of one of these, or "
        "the dotted name of a Python class of your own. See docs/security.md.",
    ),
    _client(
        "authParams",
        "text",
        values.non_empty,
        None,
        "What that takes, as in the Java client: `token:...`, `file:///...`, `env:NAME`, or JSON. It is "
        "secret: docs/security.md says what keeps it out of Spark's own output.",
        secret=True,
    ),
    _client(
        "tlsTrustCertsFilePath",
        "path",
        values.non_empty,
        None,
        "PEM file of the authorities that are trusted; without it those of the system. This file and the "
        "next two are read on the driver's host and on those of the tasks, for each new connection.",
    ),
    _client(
        "tlsCertificateFilePath",
        "path",
        values.non_empty,
        None,
        "PEM file of this client's certificate, with its chain, for mutual TLS.",
    ),
    _client("tlsKeyFilePath", "path", values.non_empty, None, "PEM file of its key, without a passphrase."),
    _client(
        "tlsAllowInsecureConnection",
        "boolean",
        values.boolean,
        "false",
        "Take any certificate of the broker, which protects from nobody in between.",
    ),
    _client(
        "tlsHostnameVerificationEnable",
        "boolean",
        values.boolean,
        "true",
        "Whether the broker's certificate must name the host that was asked for.",
    ),
    _client(
        "operationTimeoutMs",
        "time (ms)",
        values.seconds("ms", 0.001),
        "30s",
        "For a request, with its retries.",
    ),
    _client(
        "connectionTimeoutMs",
        "time (ms)",
        values.seconds("ms", 0.001),
        "10s",
        "For one TCP connection and handshake.",
    ),
    _client(
        "keepAliveIntervalSeconds",
        "time (s)",
        values.seconds("s", 1.0),
        "30s",
        "Silence after which a PING is sent.",
    ),
    Option(
        name="topic",
        kind="topic",
        parse=TopicName.parse,
        default=None,
        scope=Scope.BOTH,
        doc="Source: the one topic to read; a partitioned topic means all its partitions, `t-partition-2` "
        "means that one. Sink: where all rows go; without it the column `__topic` says it for each row.",
    ),
)  # fmt: skip - a call to a line keeps the table a table
