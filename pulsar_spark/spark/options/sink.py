"""The options of the sink."""

from __future__ import annotations

from functools import partial

from pulsar_spark.client import (
    COMPRESSION_TYPES,
    AccessMode,
    HashingScheme,
    ProducerCryptoFailureAction,
    RoutingMode,
)
from pulsar_spark.spark.options import parsers as values
from pulsar_spark.spark.options.option import PRODUCER, Option, Scope, names_of, option

_producer = partial(option, scope=Scope.SINK, prefix=PRODUCER)
_sink = partial(option, scope=Scope.SINK)

SINK: tuple[Option, ...] = (
    _sink(
        "delivery",
        names_of(values.Delivery),
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
        ", ".join(f"`{name}`" for name in COMPRESSION_TYPES),
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
