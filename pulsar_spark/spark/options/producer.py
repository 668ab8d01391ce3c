"""The options of producers, ``pulsar.producer...``: their table, and the fields of ProducerOptions."""

from __future__ import annotations

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
from pulsar_spark.spark.options.connection import EncryptionOptions
from pulsar_spark.spark.options.option import Table, Values

PRODUCER = Table()

_PRODUCER_NAME = PRODUCER.add_optional(
    "pulsar.producer.producerName",
    parsers.non_empty,
    "Prefix of producer names. Streams: `<prefix>-<hash of the query id>-<task>`; the default prefix is "
    "`spark`. At least once: `<prefix>-<task>`. Transactions: `<prefix>-<task>-<transaction id>`. In the "
    "last two cases, without this option, the broker chooses the names.",
)
_ACCESS_MODE = PRODUCER.add(
    "pulsar.producer.accessMode",
    parsers.member_of(AccessMode),
    "Shared",
    "Whether others may write to the topic at the same time. All modes except `Shared` require a write with "
    "one Spark task (`coalesce(1)`). `Exclusive`: fail if the topic has another producer. "
    "`WaitForExclusive`: wait until it has none, up to `pulsar.client.operationTimeoutMs`. "
    "`ExclusiveWithFencing`: disconnect the other producers.",
)
_INITIAL_SEQUENCE_ID = PRODUCER.add_optional(
    "pulsar.producer.initialSequenceId",
    parsers.sequence_id,
    "The first sequence id is this value + 1. If the broker's last id for this producer name is higher, ids "
    "continue after that one. Not allowed for deduplicated rows: their ids come from the micro-batch. In a "
    "stream or in foreachBatch, set `delivery=at-least-once` or `transactional` as well.",
)
_PROPERTIES = PRODUCER.add_optional(
    "pulsar.producer.properties",
    parsers.properties,
    'Properties of each producer, shown in the topic\'s statistics: `{"name": "text"}`.',
)
_BATCHING = PRODUCER.add(
    "pulsar.producer.batchingEnabled",
    parsers.boolean,
    "true",
    "Put several messages into one broker entry.",
)
_BATCHING_MAX_MESSAGES = PRODUCER.add(
    "pulsar.producer.batchingMaxMessages",
    parsers.count(0),
    "1000",
    "Maximum messages per batch, up to 100,000. 0 = 100,000.",
)
_BATCHING_MAX_BYTES = PRODUCER.add(
    "pulsar.producer.batchingMaxBytes",
    parsers.size(0),
    "128k",
    "Maximum bytes per batch; 0 = the broker's maximum message size.",
)
_BATCHING_MAX_PUBLISH_DELAY = PRODUCER.add(
    "pulsar.producer.batchingMaxPublishDelayMicros",
    parsers.seconds("us", 0.0),
    "1ms",
    "Maximum time before a batch is sent.",
)
_BATCHER_BUILDER = PRODUCER.add(
    "pulsar.producer.batcherBuilder",
    parsers.member_of(BatcherBuilder),
    "DEFAULT",
    "`KEY_BASED`: all messages of a batch have one key (`__orderingKey`, otherwise `__key`), so each key's "
    "messages go to one consumer of a Key_Shared subscription. `DEFAULT`: the key of a batch's first message "
    "decides which consumer gets the batch. Requires `batchingEnabled`.",
)
_MAX_PENDING = PRODUCER.add(
    "pulsar.producer.maxPendingMessages",
    parsers.count(1),
    "10000",
    "Maximum unacknowledged messages per partition, and messages of a batch. 0 (unlimited in Java) is not "
    "allowed.",
)
_MAX_PENDING_ACROSS_PARTITIONS = PRODUCER.add(
    "pulsar.producer.maxPendingMessagesAcrossPartitions",
    parsers.count(1),
    "1000000",
    "Maximum unacknowledged messages of a topic. Each partition's limit is min(`maxPendingMessages`, this "
    "value / partitions).",
)
_MEMORY_LIMIT = PRODUCER.add(
    "pulsar.producer.memoryLimit",
    parsers.size(1),
    "64m",
    "Maximum unacknowledged bytes of a Spark task, in equal parts for all partitions of its topics. "
    "A row that is larger than its part is sent alone. 0 (unlimited in Java) is not allowed.",
)
_BLOCK_IF_QUEUE_FULL = PRODUCER.add(
    "pulsar.producer.blockIfQueueFull",
    parsers.boolean,
    "true",
    "When `maxPendingMessages`, `maxPendingMessagesAcrossPartitions` or `memoryLimit` is reached: wait. "
    "`false`: fail with `[PULSAR_QUEUE_FULL]`.",
)
_SEND_TIMEOUT = PRODUCER.add(
    "pulsar.producer.sendTimeoutMs",
    parsers.seconds("ms", 0.001),
    "30s",
    "The task fails if a partition's producer gets no acknowledgement and sends no bytes for this time. "
    "After a lost connection, one of the messages that are sent again must be acknowledged in this time. 0 "
    "(unlimited in Java) is not allowed.",
)
_COMPRESSION = PRODUCER.add(
    "pulsar.producer.compressionType",
    parsers.one_of(COMPRESSION_TYPES),
    "NONE",
    "Compression of batches and of messages outside batches.",
)
_ROUTING_MODE = PRODUCER.add(
    "pulsar.producer.messageRoutingMode",
    parsers.member_of(RoutingMode),
    "RoundRobinPartition",
    "Which partition a row without key and without `__partition` goes to. `SinglePartition`: all such rows "
    "of a task go to one partition. `RoundRobinPartition`: each partition in turn gets one batch of rows. "
    "`CustomPartition`: `messageRouter` chooses.",
)
_HASHING_SCHEME = PRODUCER.add(
    "pulsar.producer.hashingScheme",
    parsers.member_of(HashingScheme),
    "JavaStringHash",
    "Java's hash function that chooses the partition of a key.",
)
_SWITCH_FREQUENCY = PRODUCER.add(
    "pulsar.producer.roundRobinRouterBatchingPartitionSwitchFrequency",
    parsers.count(1),
    "10",
    "With batching, rows without a key go to the next partition when a batch is full, or after this many "
    "times `batchingMaxPublishDelayMicros`.",
)
_ROUTER = PRODUCER.add_optional(
    "pulsar.producer.messageRouter",
    parsers.dotted_name,
    "With `CustomPartition`: `package.module.function`, which tasks import. It is called with the keys of "
    "many rows (a binary Arrow array; null = no key) and the number of partitions. It returns one partition "
    "number, from 0, for each key. The same keys must always get the same numbers.",
)
_CHUNKING = PRODUCER.add(
    "pulsar.producer.chunkingEnabled",
    parsers.boolean,
    "false",
    "Split a message that is larger than the broker's limit into several entries. Readers reassemble it. "
    "Requires `batchingEnabled=false`.",
)
_CHUNK_MAX_MESSAGE_SIZE = PRODUCER.add_optional(
    "pulsar.producer.chunkMaxMessageSize",
    parsers.size(1024),
    "Maximum bytes of each chunk. Default and upper limit: the broker's limit. Requires `chunkingEnabled`.",
)
_ENCRYPTION_KEYS = PRODUCER.add_optional(
    "pulsar.producer.encryptionKeys",
    parsers.names,
    "Names of the public keys to encrypt for, separated by commas. With `batchingEnabled=false` only values "
    "are encrypted: see docs/encryption.md. Requires `cryptoKeyReader`.",
)
_CRYPTO_KEY_READER = PRODUCER.add_optional(
    "pulsar.producer.cryptoKeyReader",
    parsers.key_reader,
    "Where driver and tasks find these public keys: a folder with files `NAME.public.pem`, "
    "or your own class `package.module.Class`. See docs/encryption.md.",
)
_CRYPTO_FAILURE_ACTION = PRODUCER.add(
    "pulsar.producer.cryptoFailureAction",
    parsers.member_of(ProducerCryptoFailureAction),
    "FAIL",
    "If messages cannot be encrypted: `FAIL` with `[PULSAR_CRYPTO]`, or `SEND` them WITHOUT encryption and "
    "log a warning.",
)
_INTERCEPTORS = PRODUCER.add_optional(
    "pulsar.producer.interceptors",
    parsers.dotted_names,
    "Your own classes `package.module.Class`, separated by commas, that see and may change rows before they "
    "are sent: see docs/api.md. If `before_send` raises an exception, the task fails.",
)


def producer_options(values: Values) -> ProducerOptions:
    """Returns the settings of producers, without the user's code."""
    _check(values)
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
    """Returns the dotted name of the function that chooses partitions, or None."""
    return values[_ROUTER]


def interceptors(values: Values) -> tuple[str, ...]:
    """Returns the dotted names of the interceptors' classes."""
    return values[_INTERCEPTORS] or ()


def producer_encryption(values: Values) -> EncryptionOptions | None:
    """Returns the options of encryption; None: messages are not encrypted."""
    keys, reader = values[_ENCRYPTION_KEYS], values[_CRYPTO_KEY_READER]
    if keys is None or reader is None:
        return None
    return EncryptionOptions(reader, keys, values[_CRYPTO_FAILURE_ACTION])


def _check(values: Values) -> None:
    """Refuses options that cannot be used together."""
    if values[_CHUNKING] and values[_BATCHING]:
        raise OptionError(
            f"options {_CHUNKING.name} and {_BATCHING.name} are both true",
            advice=f"Set {_BATCHING.name} to false: a chunk cannot be part of a batch",
        )
    if values[_CHUNK_MAX_MESSAGE_SIZE] is not None and not values[_CHUNKING]:
        raise OptionError(
            f"option {_CHUNK_MAX_MESSAGE_SIZE.name} has no effect without {_CHUNKING.name}",
            advice=f"Set {_CHUNKING.name} to true, or leave it out",
        )
    if values[_BATCHER_BUILDER] is BatcherBuilder.KEY_BASED and not values[_BATCHING]:
        raise OptionError(
            f"option {_BATCHER_BUILDER.name} has no effect without {_BATCHING.name}",
            advice="Leave it out: a message outside a batch always goes to the consumer of its key",
        )
    if (values[_ROUTER] is not None) != (values[_ROUTING_MODE] is RoutingMode.CUSTOM):
        raise OptionError(
            "only one of messageRouter and messageRoutingMode=CustomPartition is set",
            advice="Set both, or neither",
        )
    if (values[_ENCRYPTION_KEYS] is None) != (values[_CRYPTO_KEY_READER] is None):
        raise OptionError(
            "only one of the options pulsar.producer.encryptionKeys and pulsar.producer.cryptoKeyReader is "
            "set",
            advice="Set both, or neither: the names of public keys, and where to find them",
        )
