"""The options of producers, ``pulsar.producer...``: their table, and what a writer needs of them."""

from __future__ import annotations

from collections.abc import Callable

from pulsar_spark.client import (
    COMPRESSION_TYPES,
    AccessMode,
    BatcherBuilder,
    HashingScheme,
    ProducerCryptoFailureAction,
    ProducerOptions,
    RoutingMode,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.encryption import EncryptionOptions
from pulsar_spark.spark.options.option import Table, Values

PRODUCER = Table()

_PRODUCER_NAME = PRODUCER.add(
    "pulsar.producer.producerName",
    "text",
    parsers.non_empty,
    None,
    "Names of producers are `<this>-<id of the query>-<number of the Spark task>`, in a stream without "
    "it `spark-...`; at least once `<this>-<number of the Spark task>`, in a transaction "
    "`<this>-<number of the Spark task>-<id of the transaction>`, and without it the broker's.",
)
_ACCESS_MODE = PRODUCER.add(
    "pulsar.producer.accessMode",
    parsers.names_of(parsers.by_value(AccessMode)),
    parsers.one_of(parsers.by_value(AccessMode)),
    "Shared",
    "Whether others may write to the topic meanwhile. All but `Shared` are for a write with one Spark "
    "task (`coalesce(1)`): each task is a producer. `Exclusive` fails where there is another; "
    "`WaitForExclusive` waits for its turn, at most `pulsar.client.operationTimeoutMs`; "
    "`ExclusiveWithFencing` shuts the others out.",
)
_INITIAL_SEQUENCE_ID = PRODUCER.add(
    "pulsar.producer.initialSequenceId",
    "number",
    parsers.sequence_id,
    None,
    "The first sequence id is this value + 1, or the broker's last id for this producer name + 1 if that is "
    "higher. Not for rows that are deduplicated, whose ids come from the micro-batch: a stream, or "
    "foreachBatch, needs `delivery=at-least-once` or `transactional` with it.",
)
_PROPERTIES = PRODUCER.add(
    "pulsar.producer.properties",
    "JSON",
    parsers.properties,
    None,
    'Of each producer, shown in the topic\'s statistics: `{"name": "text"}`.',
)
_BATCHING = PRODUCER.add(
    "pulsar.producer.batchingEnabled",
    "boolean",
    parsers.boolean,
    "true",
    "Several messages in one broker entry.",
)
_BATCHING_MAX_MESSAGES = PRODUCER.add(
    "pulsar.producer.batchingMaxMessages",
    "number",
    parsers.count(0),
    "1000",
    "Messages that close a batch; 0: no such limit.",
)
_BATCHING_MAX_BYTES = PRODUCER.add(
    "pulsar.producer.batchingMaxBytes",
    "size",
    parsers.size(0),
    "128k",
    "Bytes that close a batch; 0: the broker's largest message.",
)
_BATCHING_MAX_PUBLISH_DELAY = PRODUCER.add(
    "pulsar.producer.batchingMaxPublishDelayMicros",
    "time (us)",
    parsers.seconds("us", 0.0),
    "1ms",
    "Time that closes a batch.",
)
_BATCHER_BUILDER = PRODUCER.add(
    "pulsar.producer.batcherBuilder",
    parsers.names_of(parsers.by_value(BatcherBuilder)),
    parsers.one_of(parsers.by_value(BatcherBuilder)),
    "DEFAULT",
    "`KEY_BASED`: the messages of a batch have one key (`__orderingKey`, else `__key`), so that each key's "
    "messages go to one consumer of a Key_Shared subscription. `DEFAULT`: a broker gives such consumers "
    "whole batches by the key of their first message. Needs `batchingEnabled`.",
)
_MAX_PENDING = PRODUCER.add(
    "pulsar.producer.maxPendingMessages",
    "number",
    parsers.count(1),
    "10000",
    "Messages sent and not yet acknowledged, for each partition; 0, in Java no limit, is refused.",
)
_MAX_PENDING_ACROSS_PARTITIONS = PRODUCER.add(
    "pulsar.producer.maxPendingMessagesAcrossPartitions",
    "number",
    parsers.count(1),
    "50000",
    "The same for all partitions of a topic together: each has min(first, this / partitions).",
)
_MEMORY_LIMIT = PRODUCER.add(
    "pulsar.producer.memoryLimit",
    "size",
    parsers.size(1),
    "64m",
    "Bytes that a Spark task has sent, to all its topics together, and that are not yet acknowledged; 0, in "
    "Java no limit, is refused.",
)
_BLOCK_IF_QUEUE_FULL = PRODUCER.add(
    "pulsar.producer.blockIfQueueFull",
    "boolean",
    parsers.boolean,
    "true",
    "When too many are pending: wait, or fail with `[PULSAR_QUEUE_FULL]`.",
)
_SEND_TIMEOUT = PRODUCER.add(
    "pulsar.producer.sendTimeoutMs",
    "time (ms)",
    parsers.seconds("ms", 0.001),
    "30s",
    "Time without any progress after which the task fails: no acknowledgement of what a partition's "
    "producer has sent, and no bytes on their way to the broker. Where the broker limits the publish rate, a "
    "write may take much longer in all. What is sent again after a loss of the connection must bring an "
    "acknowledgement in this time. 0, in Java no limit, is refused.",
)
_COMPRESSION = PRODUCER.add(
    "pulsar.producer.compressionType",
    parsers.names_of(COMPRESSION_TYPES),
    parsers.one_of(COMPRESSION_TYPES),
    "NONE",
    "Compression of batches and of single messages.",
)
_ROUTING_MODE = PRODUCER.add(
    "pulsar.producer.messageRoutingMode",
    parsers.names_of(parsers.by_value(RoutingMode)),
    parsers.one_of(parsers.by_value(RoutingMode)),
    "RoundRobinPartition",
    "Where rows go that have no key and no `__partition`: all rows of a task to one partition, or a "
    "batch's worth to each partition in turn. `CustomPartition`: where `messageRouter` says.",
)
_HASHING_SCHEME = PRODUCER.add(
    "pulsar.producer.hashingScheme",
    parsers.names_of(parsers.by_value(HashingScheme)),
    parsers.one_of(parsers.by_value(HashingScheme)),
    "JavaStringHash",
    "Chooses the partition of a key, as the Java client does.",
)
_SWITCH_FREQUENCY = PRODUCER.add(
    "pulsar.producer.roundRobinRouterBatchingPartitionSwitchFrequency",
    "number",
    parsers.count(1),
    "10",
    "With batching, rows without a key go to the next partition after this many "
    "`batchingMaxPublishDelayMicros` too, where a batch is not full before.",
)
_ROUTER = PRODUCER.add(
    "pulsar.producer.messageRouter",
    "Python name",
    parsers.dotted_name,
    None,
    "With `CustomPartition`: `package.module.function`, called with the keys of many rows (an Arrow "
    "array of binaries, null: no key) and the number of partitions; returns as many partition numbers, "
    "from 0. Tasks import it. The same keys must always get the same numbers.",
)
_CHUNKING = PRODUCER.add(
    "pulsar.producer.chunkingEnabled",
    "boolean",
    parsers.boolean,
    "false",
    "Send a message that is larger than the broker's limit in several entries, which readers put "
    "together. Needs `batchingEnabled` false.",
)
_CHUNK_MAX_MESSAGE_SIZE = PRODUCER.add(
    "pulsar.producer.chunkMaxMessageSize",
    "size",
    parsers.size(1024),
    None,
    "The most bytes of such an entry; without it, and at most, the broker's limit. Needs `chunkingEnabled`.",
)
_ENCRYPTION_KEYS = PRODUCER.add(
    "pulsar.producer.encryptionKeys",
    "names",
    parsers.names,
    None,
    "Encrypt values, keys and properties of batches, and values alone where `batchingEnabled` is false, "
    "for the owners of these keys; several are separated by commas. Needs `cryptoKeyReader`.",
)
_CRYPTO_KEY_READER = PRODUCER.add(
    "pulsar.producer.cryptoKeyReader",
    "folder, Python name",
    parsers.key_reader,
    None,
    "Who knows these public keys: a folder (`/path` or `file:///path`) with files `NAME.public.pem`, or "
    "`package.module.Class` of your own. Tasks use it: see docs/encryption.md.",
)
_CRYPTO_FAILURE_ACTION = PRODUCER.add(
    "pulsar.producer.cryptoFailureAction",
    parsers.names_of(parsers.by_value(ProducerCryptoFailureAction)),
    parsers.one_of(parsers.by_value(ProducerCryptoFailureAction)),
    "FAIL",
    "Messages that cannot be encrypted: fail with `[PULSAR_CRYPTO]`, or send them WITHOUT encryption, "
    "with a warning.",
)
_INTERCEPTORS = PRODUCER.add(
    "pulsar.producer.interceptors",
    "Python names",
    parsers.dotted_names,
    None,
    "Classes like `pulsar_spark.ProducerInterceptor`, `package.module.Class`, separated by commas: they "
    "may change rows before they are sent, and learn what became of them. Each task makes its own.",
)


def producer_options(values: Values) -> ProducerOptions:
    """How messages are sent, without the user's code.

    Args:
        values: of the table PRODUCER.

    Raises:
        OptionError: options do not go together.
    """
    for check in _CHECKS:
        check(values)
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
        batcher_builder=values[_BATCHER_BUILDER],
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


def router(values: Values) -> str | None:
    """The dotted name of the function that chooses partitions, or None."""
    return values[_ROUTER]


def interceptors(values: Values) -> tuple[str, ...]:
    """The dotted names of the interceptors' classes."""
    return values[_INTERCEPTORS] or ()


def producer_encryption(values: Values) -> EncryptionOptions | None:
    """How messages are encrypted, or None."""
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


def _check_batcher_builder(values: Values) -> None:
    if values[_BATCHER_BUILDER] is BatcherBuilder.KEY_BASED and not values[_BATCHING]:
        raise OptionError(
            f"option {_BATCHER_BUILDER.name} has no use without {_BATCHING.name}",
            advice="Leave it out: a message that is in no batch goes to the consumer of its key",
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
    _check_batcher_builder,
    _check_router,
    _check_encryption,
)
