"""The options of the sink: their table, and what a writer needs of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pulsar_spark.client import (
    COMPRESSION_TYPES,
    AccessMode,
    ClientOptions,
    HashingScheme,
    ProducerCryptoFailureAction,
    ProducerOptions,
    RoutingMode,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.connection import TOPIC, client_options
from pulsar_spark.spark.options.encryption import EncryptionOptions
from pulsar_spark.spark.options.option import Table, Values


class Delivery(Enum):
    """What the sink promises."""

    EFFECTIVELY_ONCE = "effectively-once"
    AT_LEAST_ONCE = "at-least-once"
    TRANSACTIONAL = "transactional"


SINK = Table()

_DELIVERY = SINK.add(
    "delivery",
    parsers.names_of(parsers.by_value(Delivery)),
    parsers.one_of(parsers.by_value(Delivery)),
    None,
    "Without it, rows of a stream and of foreachBatch are written once where the broker deduplicates, "
    "else at least once. `effectively-once`: an error before the first row where that cannot be kept. "
    "`transactional`: each micro-batch is written in transactions, and readers see all of it or nothing; "
    "see docs/guarantees.md.",
)
_FAIL_ON_DUPLICATES = SINK.add(
    "failOnDuplicates",
    "boolean",
    parsers.boolean,
    "false",
    "With `delivery=effectively-once`: fail with `[PULSAR_DUPLICATES]` where a micro-batch is run again and "
    "its rows are not known to be those that are stored. `false`: log a warning, and write all of them.",
)
_TRANSACTION_TIMEOUT = SINK.add(
    "transactionTimeout",
    "time (ms)",
    parsers.seconds("ms", 1.0),
    "10m",
    "With `delivery=transactional`: the longest that a micro-batch may take from its first row to its "
    "commit; it is then aborted, and fails. What a killed task or driver leaves open holds all readers "
    "of its topics back, until the query's next commit or this time.",
)
_TRANSACTION_LOG_KEY = SINK.add(
    "transactionLogKey",
    "file, variable",
    parsers.place_of_secret,
    None,
    "With `delivery=transactional` in a stream: `file:///PATH` or `env:NAME` of a secret of at least 16 "
    "characters, with which the query signs the records of its commits. Without it only the query's role "
    "may have the right to produce to its log; see docs/guarantees.md.",
    secret=True,
)
_UPSERT = SINK.add(
    "upsert",
    "boolean",
    parsers.boolean,
    "false",
    "For compacted topics: each row must have a `__key`, whose last value counts; a null deletes it.",
)
_ON_BATCH_WRITTEN = SINK.add(
    "onBatchWritten",
    "Python name",
    parsers.dotted_name,
    None,
    "`package.module.function`, called on the driver when a batch is written, with the micro-batch's "
    "number (None in a batch write) and a list that has for each topic partition `topic`, `messages`, "
    "`bytes`, `first_id`, `last_id` and `possible_duplicates`. An error in it is logged, the batch stays "
    "written.",
)
_PRODUCER_NAME = SINK.add(
    "pulsar.producer.producerName",
    "text",
    parsers.non_empty,
    None,
    "Names of producers are `<this>-<id of the query>-<number of the Spark task>`, in a stream without "
    "it `spark-...`; at least once `<this>-<number of the Spark task>`, in a transaction "
    "`<this>-<number of the Spark task>-<id of the transaction>`, and without it the broker's.",
)
_ACCESS_MODE = SINK.add(
    "pulsar.producer.accessMode",
    parsers.names_of(parsers.by_value(AccessMode)),
    parsers.one_of(parsers.by_value(AccessMode)),
    "Shared",
    "Whether others may write to the topic meanwhile. All but `Shared` are for a write with one Spark "
    "task (`coalesce(1)`): each task is a producer. `Exclusive` fails where there is another; "
    "`WaitForExclusive` waits for its turn, at most `pulsar.client.operationTimeoutMs`; "
    "`ExclusiveWithFencing` shuts the others out.",
)
_INITIAL_SEQUENCE_ID = SINK.add(
    "pulsar.producer.initialSequenceId",
    "number",
    parsers.sequence_id,
    None,
    "The first sequence id is this value + 1, or the broker's last id for this producer name + 1 if that is "
    "higher. Not for rows that are deduplicated, whose ids come from the micro-batch: a stream, or "
    "foreachBatch, needs `delivery=at-least-once` or `transactional` with it.",
)
_PROPERTIES = SINK.add(
    "pulsar.producer.properties",
    "JSON",
    parsers.properties,
    None,
    'Of each producer, shown in the topic\'s statistics: `{"name": "text"}`.',
)
_BATCHING = SINK.add(
    "pulsar.producer.batchingEnabled",
    "boolean",
    parsers.boolean,
    "true",
    "Several messages in one broker entry.",
)
_BATCHING_MAX_MESSAGES = SINK.add(
    "pulsar.producer.batchingMaxMessages",
    "number",
    parsers.count(0),
    "1000",
    "Messages that close a batch; 0: no such limit.",
)
_BATCHING_MAX_BYTES = SINK.add(
    "pulsar.producer.batchingMaxBytes",
    "size",
    parsers.size(0),
    "128k",
    "Bytes that close a batch; 0: the broker's largest message.",
)
_BATCHING_MAX_PUBLISH_DELAY = SINK.add(
    "pulsar.producer.batchingMaxPublishDelayMicros",
    "time (us)",
    parsers.seconds("us", 0.0),
    "1ms",
    "Time that closes a batch.",
)
_MAX_PENDING = SINK.add(
    "pulsar.producer.maxPendingMessages",
    "number",
    parsers.count(1),
    "10000",
    "Messages sent and not yet acknowledged, for each partition; 0, in Java no limit, is refused.",
)
_MAX_PENDING_ACROSS_PARTITIONS = SINK.add(
    "pulsar.producer.maxPendingMessagesAcrossPartitions",
    "number",
    parsers.count(1),
    "50000",
    "The same for all partitions of a topic together: each has min(first, this / partitions).",
)
_MEMORY_LIMIT = SINK.add(
    "pulsar.producer.memoryLimit",
    "size",
    parsers.size(1),
    "64m",
    "Bytes that a Spark task has sent, to all its topics together, and that are not yet acknowledged; 0, in "
    "Java no limit, is refused.",
)
_BLOCK_IF_QUEUE_FULL = SINK.add(
    "pulsar.producer.blockIfQueueFull",
    "boolean",
    parsers.boolean,
    "true",
    "When too many are pending: wait, or fail with `[PULSAR_QUEUE_FULL]`.",
)
_SEND_TIMEOUT = SINK.add(
    "pulsar.producer.sendTimeoutMs",
    "time (ms)",
    parsers.seconds("ms", 0.001),
    "30s",
    "Time without any progress after which the task fails: no acknowledgement of what a partition's "
    "producer has sent, and no bytes on their way to the broker. Where the broker limits the publish rate, a "
    "write may take much longer in all. What is sent again after a loss of the connection must bring an "
    "acknowledgement in this time. 0, in Java no limit, is refused.",
)
_COMPRESSION = SINK.add(
    "pulsar.producer.compressionType",
    parsers.names_of(COMPRESSION_TYPES),
    parsers.one_of(COMPRESSION_TYPES),
    "NONE",
    "Compression of batches and of single messages.",
)
_ROUTING_MODE = SINK.add(
    "pulsar.producer.messageRoutingMode",
    parsers.names_of(parsers.by_value(RoutingMode)),
    parsers.one_of(parsers.by_value(RoutingMode)),
    "RoundRobinPartition",
    "Where rows go that have no key and no `__partition`: all rows of a task to one partition, or a "
    "batch's worth to each partition in turn. `CustomPartition`: where `messageRouter` says.",
)
_HASHING_SCHEME = SINK.add(
    "pulsar.producer.hashingScheme",
    parsers.names_of(parsers.by_value(HashingScheme)),
    parsers.one_of(parsers.by_value(HashingScheme)),
    "JavaStringHash",
    "Chooses the partition of a key, as the Java client does.",
)
_SWITCH_FREQUENCY = SINK.add(
    "pulsar.producer.roundRobinRouterBatchingPartitionSwitchFrequency",
    "number",
    parsers.count(1),
    "10",
    "With batching, rows without a key go to the next partition after this many "
    "`batchingMaxPublishDelayMicros` too, where a batch is not full before.",
)
_ROUTER = SINK.add(
    "pulsar.producer.messageRouter",
    "Python name",
    parsers.dotted_name,
    None,
    "With `CustomPartition`: `package.module.function`, called with the keys of many rows (an Arrow "
    "array of binaries, null: no key) and the number of partitions; returns as many partition numbers, "
    "from 0. Tasks import it. The same keys must always get the same numbers.",
)
_CHUNKING = SINK.add(
    "pulsar.producer.chunkingEnabled",
    "boolean",
    parsers.boolean,
    "false",
    "Send a message that is larger than the broker's limit in several entries, which readers put "
    "together. Needs `batchingEnabled` false.",
)
_CHUNK_MAX_MESSAGE_SIZE = SINK.add(
    "pulsar.producer.chunkMaxMessageSize",
    "size",
    parsers.size(1024),
    None,
    "The most bytes of such an entry; without it, and at most, the broker's limit. Needs `chunkingEnabled`.",
)
_ENCRYPTION_KEYS = SINK.add(
    "pulsar.producer.encryptionKeys",
    "names",
    parsers.names,
    None,
    "Encrypt values, keys and properties of batches, and values alone where `batchingEnabled` is false, "
    "for the owners of these keys; several are separated by commas. Needs `cryptoKeyReader`.",
)
_CRYPTO_KEY_READER = SINK.add(
    "pulsar.producer.cryptoKeyReader",
    "folder, Python name",
    parsers.key_reader,
    None,
    "Who knows these public keys: a folder (`/path` or `file:///path`) with files `NAME.public.pem`, or "
    "`package.module.Class` of your own. Tasks use it: see docs/encryption.md.",
)
_CRYPTO_FAILURE_ACTION = SINK.add(
    "pulsar.producer.cryptoFailureAction",
    parsers.names_of(parsers.by_value(ProducerCryptoFailureAction)),
    parsers.one_of(parsers.by_value(ProducerCryptoFailureAction)),
    "FAIL",
    "Messages that cannot be encrypted: fail with `[PULSAR_CRYPTO]`, or send them WITHOUT encryption, "
    "with a warning.",
)
_INTERCEPTORS = SINK.add(
    "pulsar.producer.interceptors",
    "Python names",
    parsers.dotted_names,
    None,
    "Classes like `pulsar_spark.ProducerInterceptor`, `package.module.Class`, separated by commas: they "
    "may change rows before they are sent, and learn what became of them. Each task makes its own.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a writer needs.

    Attributes:
        client: how to reach the cluster.
        topic: where all rows go, or None where each row names its own topic.
        producer: how messages are sent.
        router: dotted name of the function that chooses partitions, or None.
        delivery: what was asked for; None for the best that the broker has.
        fail_on_duplicates: whether to fail rather than write rows that may be stored already.
        encryption: how messages are encrypted, or None.
        transaction_timeout: seconds that a micro-batch's transactions may last; None without transactions.
        transaction_log_key: where the key of the query's log is, or None.
        interceptors: dotted names of the interceptors' classes.
        upsert: whether each row must have a key.
        on_batch_written: dotted name of the function that is called for each batch, or None.
    """

    client: ClientOptions
    topic: TopicName | None
    producer: ProducerOptions
    router: str | None
    delivery: Delivery | None
    fail_on_duplicates: bool
    encryption: EncryptionOptions | None
    transaction_timeout: float | None
    transaction_log_key: str | None
    interceptors: tuple[str, ...]
    upsert: bool
    on_batch_written: str | None


def sink_options(values: Values) -> SinkOptions:
    """What a writer needs, of options that are right by themselves.

    Args:
        values: of the tables CONNECTION and SINK.

    Raises:
        OptionError: options do not go together.
    """
    client = client_options(values)
    for check in _CHECKS:
        check(values)
    is_transactional = values[_DELIVERY] is Delivery.TRANSACTIONAL
    interceptors = values[_INTERCEPTORS]
    return SinkOptions(
        client=client,
        topic=values[TOPIC],
        producer=_producer_options(values),
        router=values[_ROUTER],
        delivery=values[_DELIVERY],
        fail_on_duplicates=values[_FAIL_ON_DUPLICATES],
        encryption=_encryption(values),
        transaction_timeout=values[_TRANSACTION_TIMEOUT] if is_transactional else None,
        transaction_log_key=values[_TRANSACTION_LOG_KEY],
        interceptors=interceptors or (),
        upsert=values[_UPSERT],
        on_batch_written=values[_ON_BATCH_WRITTEN],
    )


def _producer_options(values: Values) -> ProducerOptions:
    properties = values[_PROPERTIES]
    return ProducerOptions(
        name=values[_PRODUCER_NAME],
        access_mode=values[_ACCESS_MODE],
        initial_sequence_id=values[_INITIAL_SEQUENCE_ID],
        properties=properties or (),
        batching=values[_BATCHING],
        batching_max_messages=values[_BATCHING_MAX_MESSAGES],
        batching_max_bytes=values[_BATCHING_MAX_BYTES],
        batching_max_publish_delay=values[_BATCHING_MAX_PUBLISH_DELAY],
        compression=values[_COMPRESSION],
        chunking=values[_CHUNKING],
        chunk_max_message_size=values[_CHUNK_MAX_MESSAGE_SIZE],
        max_pending_messages=values[_MAX_PENDING],
        max_pending_messages_across_partitions=values[_MAX_PENDING_ACROSS_PARTITIONS],
        memory_limit=values[_MEMORY_LIMIT],
        block_if_queue_full=values[_BLOCK_IF_QUEUE_FULL],
        send_timeout=values[_SEND_TIMEOUT],
        routing_mode=values[_ROUTING_MODE],
        hashing_scheme=values[_HASHING_SCHEME],
        switch_frequency=values[_SWITCH_FREQUENCY],
    )


def _encryption(values: Values) -> EncryptionOptions | None:
    keys, reader = values[_ENCRYPTION_KEYS], values[_CRYPTO_KEY_READER]
    if keys is None or reader is None:
        return None
    return EncryptionOptions(reader, keys, values[_CRYPTO_FAILURE_ACTION])


def _check_chunking_or_batching(values: Values) -> None:
    if values[_CHUNKING] and values[_BATCHING]:
        raise OptionError(
            f"options {_CHUNKING.name} and {_BATCHING.name} are both true",
            advice=f"Set {_BATCHING.name} to false: chunks are never part of a batch",
        )


def _check_size_of_chunks(values: Values) -> None:
    if values[_CHUNK_MAX_MESSAGE_SIZE] is not None and not values[_CHUNKING]:
        raise OptionError(
            f"option {_CHUNK_MAX_MESSAGE_SIZE.name} has no use without {_CHUNKING.name}",
            advice=f"Set {_CHUNKING.name} to true, or leave it out",
        )


def _check_router(values: Values) -> None:
    if (values[_ROUTER] is not None) != (values[_ROUTING_MODE] is RoutingMode.CUSTOM):
        raise OptionError(
            "options messageRouter and messageRoutingMode=CustomPartition go together",
            advice="Set both or none",
        )


def _check_transactions(values: Values) -> None:
    for option in (_TRANSACTION_TIMEOUT, _TRANSACTION_LOG_KEY):
        if values[_DELIVERY] is not Delivery.TRANSACTIONAL and option in values.given:
            raise OptionError(
                f"option {option.name} has no use without transactions",
                advice="Set delivery=transactional, or leave it out",
            )


def _check_duplicates(values: Values) -> None:
    if values[_FAIL_ON_DUPLICATES] and values[_DELIVERY] is not Delivery.EFFECTIVELY_ONCE:
        raise OptionError(
            f"option {_FAIL_ON_DUPLICATES.name} has no use without delivery=effectively-once",
            advice="Set that, or leave it out",
        )


def _check_encryption(values: Values) -> None:
    if (values[_ENCRYPTION_KEYS] is None) != (values[_CRYPTO_KEY_READER] is None):
        raise OptionError(
            "options encryptionKeys and cryptoKeyReader of the producer go together",
            advice="Set both or none: names of public keys, and who knows them",
        )


# What is right by itself and wrong together; the first that finds something raises OptionError.
_CHECKS: tuple[Callable[[Values], None], ...] = (
    _check_chunking_or_batching,
    _check_size_of_chunks,
    _check_router,
    _check_transactions,
    _check_duplicates,
    _check_encryption,
)
