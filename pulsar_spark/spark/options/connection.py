"""The options that source and sink share: where the cluster is, and how to log in.

Owns their table and the :class:`ClientOptions` made of them. Must not know what is read or written.
"""

from __future__ import annotations

from pulsar_spark.client import (
    ClientOptions,
    Credentials,
    check_identity,
    checked_admin_url,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.logs import LEVELS
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Table, Values
from pulsar_spark.spark.options.tls import TLS, tls_options

CONNECTION = Table()

_SERVICE_URL = CONNECTION.add(
    "service.url",
    "URL",
    parsers.service_url,
    None,
    "Required. `pulsar://h1:6650,h2:6650`, with TLS `pulsar+ssl://h1:6651`; with several hosts the "
    "first try is random, then they are tried in order.",
)
ADMIN_URL = CONNECTION.add(
    "admin.url",
    "URL",
    checked_admin_url,
    None,
    "`http://host:8080` of the admin service; `https://` where the service URL has TLS and a token or a "
    "password logs in. Only makes estimates of sizes better; nothing requires it, and the sink does not "
    "use it.",
)
_AUTH_PLUGIN = CONNECTION.add(
    "pulsar.client.authPluginClassName",
    "text",
    parsers.non_empty,
    None,
    "How to log in: `token`, `basic`, `tls`, `oauth2`, the Java client's class name of one of these, or "
    "the dotted name of a Python class of your own. See docs/security.md.",
)
_AUTH_PARAMS = CONNECTION.add(
    "pulsar.client.authParams",
    "text",
    parsers.non_empty,
    None,
    "What that takes, as in the Java client: `token:...`, `file:///...`, `env:NAME`, or JSON. It is "
    "secret: docs/security.md says what keeps it out of Spark's own output.",
    secret=True,
)
CONNECTION.extend(TLS)
_OPERATION_TIMEOUT = CONNECTION.add(
    "pulsar.client.operationTimeoutMs",
    "time (ms)",
    parsers.seconds("ms", 0.001),
    "30s",
    "For a request, with its retries.",
)
_LOOKUP_TIMEOUT = CONNECTION.add(
    "pulsar.client.lookupTimeoutMs",
    "time (ms)",
    parsers.seconds("ms", 0.001),
    None,
    "For the look-up of a topic's partitions, with its retries, and for each look-up of the broker that "
    "serves a partition, with its redirects. Without it `operationTimeoutMs`.",
)
_MAX_LOOKUP_REDIRECTS = CONNECTION.add(
    "pulsar.client.maxLookupRedirects",
    "number",
    parsers.count(1),
    "20",
    "Maximum redirects of one look-up, from broker to broker; 0, in Java no limit, is refused.",
)
_LISTENER_NAME = CONNECTION.add(
    "pulsar.client.listenerName",
    "text",
    parsers.non_empty,
    None,
    "Name of the listener, one of the brokers' `advertisedListeners`, whose addresses look-ups are answered "
    "with: for clients that reach brokers by other addresses than brokers reach each other, as outside of "
    "Kubernetes. Without it the brokers' internal listener.",
)
_CONNECTION_TIMEOUT = CONNECTION.add(
    "pulsar.client.connectionTimeoutMs",
    "time (ms)",
    parsers.seconds("ms", 0.001),
    "10s",
    "For one TCP connection and handshake.",
)
_KEEP_ALIVE_INTERVAL = CONNECTION.add(
    "pulsar.client.keepAliveIntervalSeconds",
    "time (s)",
    parsers.seconds("s", 1.0),
    "30s",
    "Silence after which a PING is sent.",
)
_CONNECTION_MAX_IDLE = CONNECTION.add(
    "pulsar.client.connectionMaxIdleSeconds",
    "time (s)",
    parsers.seconds("s", 1.0),
    "60s",
    "A connection that nobody has used for this time is closed.",
)
_SUBSCRIPTION_PREFIX = CONNECTION.add(
    "subscriptionPrefix",
    "text",
    parsers.non_empty,
    "spark-pulsar",
    "How the names of all subscriptions begin that the user does not name: a stream's durable one is "
    "`<prefix>-<uuid>`, made once per query and kept in its checkpoint. Where the namespace's "
    "subscription-auth-mode is `Prefix`, begin it with the role.",
)
LOG_LEVEL = CONNECTION.add(
    "logLevel",
    parsers.names_of(LEVELS),
    parsers.one_of(LEVELS),
    None,
    "The lines of this package that the planner and the tasks write to Spark's log, from this level on. "
    "`INFO` says rows, bytes, seconds and the backlog of each micro-batch. Default: `WARN`.",
)
TOPIC = CONNECTION.add(
    "topic",
    "topic",
    TopicName.parse,
    None,
    "Source: the one topic to read; a partitioned topic means all its partitions, `t-partition-2` "
    "means that one. Sink: where all rows go, also those with a column `__topic`; without it that column "
    "says it for each row.",
)


def client_options(values: Values) -> ClientOptions:
    """How to reach the cluster.

    Raises:
        OptionError: the service URL is missing, or the options of the login do not go together.
    """
    service_url = values[_SERVICE_URL]
    if service_url is None:
        raise OptionError(
            "the option service.url is missing", advice='Set .option("service.url", "pulsar://host:6650")'
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
            "option authParams needs to know for what login it is",
            advice=f"Set {_AUTH_PLUGIN.name}, such as token",
        )
    return None if plugin is None else Credentials(plugin, params or "")
