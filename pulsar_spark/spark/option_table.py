"""``TABLE``: names, defaults and meanings of all options, for the code and for docs/options.md alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag
from functools import partial
from typing import Any

from pulsar_spark.client import AccessMode, ConsumerCryptoFailureAction, ProducerCryptoFailureAction
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.protocol.routing import HashingScheme, RoutingMode
from pulsar_spark.spark import option_values as values
from pulsar_spark.spark.positions import parse_offsets, parse_times
from pulsar_spark.spark.schema import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS


class Mode(Enum):
    """How a source is read."""

    BATCH = "batch"
    STREAM = "stream"


class Scope(Flag):
    """Which side takes an option."""

    SOURCE = 1
    SINK = 2
    BOTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One line of the table.

    Attributes:
        name: as users write it; looked up without regard to case.
        kind: what is accepted, for the docs page.
        parse: makes the value, or raises ValueError with what would be right.
        default: as a user would write it; None where there is none.
        secret: whether no error may repeat the value.
        scope: which side takes it.
        doc: the meaning, one sentence or two.
        only: the mode of reading that it is for; None: both.
    """

    name: str
    kind: str
    parse: Callable[[str], Any]
    default: str | None
    scope: Scope
    doc: str
    only: Mode | None = None
    secret: bool = False


def names_of(kind: type[Enum]) -> str:
    """What an option of these texts takes, for the docs page."""
    return ", ".join(f"`{member.value}`" for member in kind)


CLIENT = "pulsar.client."
PRODUCER = "pulsar.producer."
READER = "pulsar.reader."


def _client(
    name: str,
    kind: str,
    parse: Callable[[str], Any],
    default: str | None,
    doc: str,
    *,
    secret: bool = False,
) -> Option:
    return Option(
        name=CLIENT + name,
        kind=kind,
        parse=parse,
        default=default,
        scope=Scope.BOTH,
        doc=doc,
        secret=secret,
    )


def _producer(name: str, kind: str, parse: Callable[[str], Any], default: str | None, doc: str) -> Option:
    return Option(name=PRODUCER + name, kind=kind, parse=parse, default=default, scope=Scope.SINK, doc=doc)


def _sink(name: str, kind: str, parse: Callable[[str], Any], default: str | None, doc: str) -> Option:
    return Option(name=name, kind=kind, parse=parse, default=default, scope=Scope.SINK, doc=doc)


def _source(
    name: str,
    kind: str,
    parse: Callable[[str], Any],
    default: str | None,
    doc: str,
    *,
    only: Mode | None = None,
) -> Option:
    return Option(name=name, kind=kind, parse=parse, default=default, scope=Scope.SOURCE, doc=doc, only=only)


TABLE: tuple[Option, ...] = (
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
        parse=values.admin_url,
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
    Option(
        name="topics",
        kind="topics",
        parse=values.topics,
        default=None,
        scope=Scope.SOURCE,
        doc="Several topics to read, separated by commas; in place of `topic`.",
    ),
    _source(
        "topicsPattern",
        "pattern",
        TopicPattern.parse,
        None,
        "All topics of a namespace whose own name this regular expression matches in full, in place of "
        "`topic`: `persistent://tenant/namespace/regex`, `tenant/namespace/regex`, or `regex` for "
        "public/default. Looked up again while the query runs.",
    ),
    _source(
        "startingOffsets",
        "words, JSON",
        partial(parse_offsets, "startingOffsets", end=False),
        None,
        "Where a query without a checkpoint begins: `earliest`, `latest`, `subscription` (where "
        "`predefinedSubscription` stands), or JSON "
        '`{"topic": {"0": "ledger:entry[:batch]", "1": "earliest", "2": "latest"}}` with the key `"-1"` for '
        "a topic without partitions; the message named is the first one read. The JVM connector's "
        '`{"persistent://...": [8, 12, 16, ...]}` is read too. Default: `latest` in a stream, `earliest` in '
        "a batch.",
    ),
    _source(
        "endingOffsets",
        "words, JSON",
        partial(parse_offsets, "endingOffsets", end=True),
        None,
        "The last message read, in the same forms. Default: `latest`, what there is when it is planned.",
        only=Mode.BATCH,
    ),
    _source(
        "startingTime",
        "time, JSON",
        partial(parse_times, "startingTime"),
        None,
        "Begin at the first message published at or after this time: milliseconds since 1970, ISO-8601 "
        '(without a zone: UTC), or JSON by topic `{"topic": time}`. In place of `startingOffsets`.',
    ),
    _source(
        "endingTime",
        "time, JSON",
        partial(parse_times, "endingTime"),
        None,
        "End before the first message published at or after this time. In place of `endingOffsets`.",
        only=Mode.BATCH,
    ),
    _source(
        "failOnDataLoss",
        "boolean",
        values.boolean,
        "true",
        "Messages that were not processed yet are gone at the broker: fail with `[PULSAR_DATA_LOSS]`, or "
        "warn and read on.",
    ),
    _source(
        "maxMessagesPerTrigger",
        "number",
        values.count(1),
        None,
        "The most messages of one micro-batch; see docs/limits.md for what is exact when.",
        only=Mode.STREAM,
    ),
    _source(
        "maxBytesPerTrigger",
        "size",
        values.size(1),
        None,
        "The most bytes of one micro-batch, as stored.",
        only=Mode.STREAM,
    ),
    _source(
        "minMessagesPerTrigger",
        "number",
        values.count(1),
        None,
        "A micro-batch waits until there are as many messages, for `maxTriggerDelay` at most. "
        "Trigger.AvailableNow does not wait.",
        only=Mode.STREAM,
    ),
    _source(
        "maxTriggerDelay",
        "time (ms)",
        values.seconds("ms", 0.0),
        "15m",
        "The longest that `minMessagesPerTrigger` holds a micro-batch back.",
        only=Mode.STREAM,
    ),
    _source(
        "minPartitions",
        "number",
        values.count(1),
        None,
        "The least number of Spark tasks, where there are as many entries: long ranges are split.",
    ),
    _source(
        "maxMessagesPerPartition",
        "number",
        values.count(1),
        None,
        "Ranges with more messages than this, by estimate, are split into several Spark tasks.",
    ),
    _source(
        "predefinedSubscription",
        "text",
        values.non_empty,
        None,
        "Streams: name of the durable subscription, in place of one made from `subscriptionPrefix`. "
        "Batches: the one whose position the word `subscription` means; it is not moved.",
    ),
    _source(
        "subscriptionPrefix",
        "text",
        values.non_empty,
        "spark-pulsar",
        "Streams: the durable subscription is named `<prefix>-<uuid>`, made once per query and kept "
        "in its checkpoint.",
    ),
    _source(
        "retainSubscription",
        "boolean",
        values.boolean,
        "true",
        "Whether the durable subscription stays when the query stops, for its next run. Batches leave none.",
        only=Mode.STREAM,
    ),
    _source(
        "pollTimeoutMs",
        "time (ms)",
        values.seconds("ms", 0.001),
        "2m",
        "How long a task waits for a message that must exist before it fails.",
    ),
    _source(
        "waitingForNonExistedTopic",
        "boolean",
        values.boolean,
        "false",
        "Wait for a topic that does not exist yet; else that is an error at the start.",
    ),
    _source(
        "allowDifferentTopicSchemas",
        "boolean",
        values.boolean,
        "false",
        "Let topics with different schemas be read together.",
    ),
    _source(
        "readCompacted",
        "boolean",
        values.boolean,
        "false",
        "Read the compacted topic: of each key the last message only, as far as compaction has come.",
    ),
    _source(
        "maxPendingChunkedMessages",
        "number",
        values.count(0),
        "10",
        "Incomplete chunked messages that a task keeps at once; over it the oldest is given up. "
        "0: any number.",
    ),
    _source(
        "expireTimeOfIncompleteChunkedMessage",
        "time (ms)",
        values.seconds("ms", 0.0),
        "1m",
        "A chunked message whose chunks were published over a longer time is given up. 0: any time.",
    ),
    _source(
        "autoAckOldestChunkedMessageOnQueueFull",
        "boolean",
        values.boolean,
        "false",
        "Whether a chunked message given up over `maxPendingChunkedMessages` counts as processed.",
    ),
    _source(
        "metadataColumns",
        "column names",
        values.metadata_columns,
        ",".join(DEFAULT_METADATA_COLUMNS),
        "The columns behind the value, in this order, separated by commas; fewer are faster, an empty list "
        f"is allowed. Also: {', '.join(f'`{name}`' for name in tuple(METADATA_COLUMNS)[6:])}.",
    ),
    _sink(
        "delivery",
        ", ".join(f"`{each.value}`" for each in values.Delivery),
        values.one_of(values.Delivery),
        None,
        "Without it, rows of a stream and of foreachBatch are written once where the broker deduplicates, "
        "else at least once. `effectively-once`: an error before the first row where that cannot be kept. "
        "`transactional`: each micro-batch is written in transactions, and readers see all of it or nothing; "
        "see docs/guarantees.md.",
    ),
    _sink(
        "transactionTimeout",
        "time (ms)",
        values.seconds("ms", 1.0),
        "10m",
        "With `delivery=transactional`: the longest that a micro-batch may take from its first row to its "
        "commit; it is then aborted, and fails. What a killed task or driver leaves open holds all readers "
        "of its topics back, until the query's next commit or this time.",
    ),
    _sink(
        "upsert",
        "boolean",
        values.boolean,
        "false",
        "For compacted topics: each row must have a `__key`, whose last value counts; a null deletes it.",
    ),
    _sink(
        "onBatchWritten",
        "Python name",
        values.dotted_name,
        None,
        "`package.module.function`, called on the driver when a batch is written, with the micro-batch's "
        "number (None in a batch write) and a list that has for each topic partition `topic`, `messages`, "
        "`bytes`, `first_id` and `last_id`. An error in it is logged, the batch stays written.",
    ),
    Option(
        name=READER + "cryptoKeyReader",
        kind="folder, Python name",
        parse=values.key_reader,
        default=None,
        scope=Scope.SOURCE,
        doc="Who knows the private keys of messages that are encrypted end to end: a folder (`/path` or "
        "`file:///path`) with files `NAME.private.pem`, or `package.module.Class` of your own. Tasks use it: "
        "see docs/encryption.md.",
    ),
    Option(
        name=READER + "cryptoFailureAction",
        kind=names_of(ConsumerCryptoFailureAction),
        parse=values.one_of(ConsumerCryptoFailureAction),
        default="FAIL",
        scope=Scope.SOURCE,
        doc="Messages that cannot be decrypted: fail with `[PULSAR_CRYPTO]`, leave them out with a warning, "
        "or give each entry as one row whose value is what is stored.",
    ),
    _producer(
        "producerName",
        "text",
        values.non_empty,
        None,
        "Names of producers are `<this>-<id of the query>-<number of the Spark task>`, in a stream without "
        "it `spark-...`; at least once `<this>-<number of the Spark task>`, and without it the broker's.",
    ),
    _producer(
        "accessMode",
        names_of(AccessMode),
        values.one_of(AccessMode),
        "Shared",
        "Whether others may write to the topic meanwhile. All but `Shared` are for a write with one Spark "
        "task (`coalesce(1)`): each task is a producer. `Exclusive` fails where there is another; "
        "`WaitForExclusive` waits for its turn, at most `pulsar.client.operationTimeoutMs`; "
        "`ExclusiveWithFencing` shuts the others out.",
    ),
    _producer(
        "initialSequenceId",
        "number",
        values.sequence_id,
        None,
        "Sequence ids begin behind this one, and never below what the broker has of the producer's name, so "
        "that no row is taken for a duplicate.",
    ),
    _producer(
        "properties",
        "JSON",
        values.properties,
        None,
        'Of each producer, shown in the topic\'s statistics: `{"name": "text"}`.',
    ),
    _producer("batchingEnabled", "boolean", values.boolean, "true", "Several messages in one broker entry."),
    _producer(
        "batchingMaxMessages",
        "number",
        values.count(0),
        "1000",
        "Messages that close a batch; 0: no such limit.",
    ),
    _producer(
        "batchingMaxBytes",
        "size",
        values.size(0),
        "128k",
        "Bytes that close a batch; 0: the broker's largest message.",
    ),
    _producer(
        "batchingMaxPublishDelayMicros",
        "time (us)",
        values.seconds("us", 0.0),
        "1ms",
        "Time that closes a batch.",
    ),
    _producer(
        "maxPendingMessages",
        "number",
        values.count(1),
        "10000",
        "Messages sent and not yet acknowledged, for each partition; 0, in Java no limit, is refused.",
    ),
    _producer(
        "maxPendingMessagesAcrossPartitions",
        "number",
        values.count(1),
        "50000",
        "The same for all partitions of a topic together: each has min(first, this / partitions).",
    ),
    _producer(
        "memoryLimit",
        "size",
        values.size(1),
        "64m",
        "Bytes sent to a topic and not yet acknowledged; 0, in Java no limit, is refused.",
    ),
    _producer(
        "blockIfQueueFull",
        "boolean",
        values.boolean,
        "true",
        "When too many are pending: wait, or fail with `[PULSAR_QUEUE_FULL]`.",
    ),
    _producer(
        "sendTimeoutMs",
        "time (ms)",
        values.seconds("ms", 0.001),
        "30s",
        "Not acknowledged in this time: the task fails; nothing is dropped in silence. "
        "0, in Java no limit, is refused.",
    ),
    _producer(
        "compressionType",
        ", ".join(f"`{name}`" for name in values.COMPRESSIONS),
        values.compression,
        "NONE",
        "Compression of batches and of single messages.",
    ),
    _producer(
        "messageRoutingMode",
        names_of(RoutingMode),
        values.one_of(RoutingMode),
        "RoundRobinPartition",
        "Where rows go that have no key and no `__partition`: all rows of a task to one partition, or a "
        "batch's worth to each partition in turn. `CustomPartition`: where `messageRouter` says.",
    ),
    _producer(
        "hashingScheme",
        names_of(HashingScheme),
        values.one_of(HashingScheme),
        "JavaStringHash",
        "Chooses the partition of a key, as the Java client does.",
    ),
    _producer(
        "roundRobinRouterBatchingPartitionSwitchFrequency",
        "number",
        values.count(1),
        "10",
        "With batching, rows without a key go to the next partition after this many "
        "`batchingMaxPublishDelayMicros` too, where a batch is not full before.",
    ),
    _producer(
        "messageRouter",
        "Python name",
        values.dotted_name,
        None,
        "With `CustomPartition`: `package.module.function`, called with the keys of many rows (an Arrow "
        "array of binaries, null: no key) and the number of partitions; returns as many partition numbers, "
        "from 0. Tasks import it. The same keys must always get the same numbers.",
    ),
    _producer(
        "chunkingEnabled",
        "boolean",
        values.boolean,
        "false",
        "Send a message that is larger than the broker's limit in several entries, which readers put "
        "together. Needs `batchingEnabled` false.",
    ),
    _producer(
        "chunkMaxMessageSize",
        "size",
        values.size(1024),
        None,
        "The most bytes of such an entry; without it, and at most, the broker's limit. Needs "
        "`chunkingEnabled`.",
    ),
    _producer(
        "encryptionKeys",
        "names",
        values.names,
        None,
        "Encrypt values, keys and properties of batches, and values alone where `batchingEnabled` is false, "
        "for the owners of these keys; several are separated by commas. Needs `cryptoKeyReader`.",
    ),
    _producer(
        "cryptoKeyReader",
        "folder, Python name",
        values.key_reader,
        None,
        "Who knows these public keys: a folder (`/path` or `file:///path`) with files `NAME.public.pem`, or "
        "`package.module.Class` of your own. Tasks use it: see docs/encryption.md.",
    ),
    _producer(
        "cryptoFailureAction",
        names_of(ProducerCryptoFailureAction),
        values.one_of(ProducerCryptoFailureAction),
        "FAIL",
        "Messages that cannot be encrypted: fail with `[PULSAR_CRYPTO]`, or send them WITHOUT encryption, "
        "with a warning.",
    ),
    _producer(
        "interceptors",
        "Python names",
        values.dotted_names,
        None,
        "Classes like `pulsar_spark.ProducerInterceptor`, `package.module.Class`, separated by commas: they "
        "may change rows before they are sent, and learn what became of them. Each task makes its own.",
    ),
)  # fmt: skip - a call to a line keeps the table a table
