"""The options of the sink and of its producers: their table, and the fields of SinkOptions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pulsar_spark.client import (
    COMPRESSION_TYPES,
    AccessMode,
    BatcherBuilder,
    ClientOptions,
    HashingScheme,
    KeyValueEncoding,
    PartKind,
    ProducerCryptoFailureAction,
    ProducerOptions,
    RoutingMode,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.connection import LOG_LEVEL, TOPIC, EncryptionOptions, client_options
from pulsar_spark.spark.options.option import Table, Values
from pulsar_spark.spark.options.values import (
    KEY_SCHEMA,
    SCHEMA_TYPE,
    SCHEMAS,
    VALUE_FORMAT,
    VALUE_SCHEMA,
    GivenType,
    refuse_with_raw,
)
from pulsar_spark.spark.rows.write_values import SinkValues


class Delivery(Enum):
    """Delivery guarantee of the sink."""

    EFFECTIVELY_ONCE = "effectively-once"
    AT_LEAST_ONCE = "at-least-once"
    TRANSACTIONAL = "transactional"


class SchemaRegistration(Enum):
    """Whether the sink may register schemas."""

    AUTO = "auto"
    EXISTING = "existing"


SINK = Table(SCHEMAS)
_SCHEMA_REGISTRATION = SINK.add(
    "schemaRegistration",
    parsers.member_of(SchemaRegistration),
    "auto",
    "With `valueFormat`. `auto`: register a schema if the topic has none, and a new version for columns that "
    "the schema lacks. `existing`: register nothing; rows that do not fit the schema are an error.",
)
_KEY_COLUMNS = SINK.add_optional(
    "keyColumns",
    parsers.names,
    "With `valueFormat`: write with a KEY_VALUE schema. These columns, separated by commas, are the key, all "
    "others the value. See docs/schemas.md.",
)
_KEY_VALUE_ENCODING = SINK.add_optional(
    "keyValueEncoding",
    parsers.member_of(KeyValueEncoding),
    "With `keyColumns`. `SEPARATED`: the key is the message's key, which decides the partition and what "
    "compaction keeps. `INLINE`: it is part of the payload. Default: as in the topic's schema, otherwise "
    "`SEPARATED`.",
)
_DELIVERY = SINK.add_optional(
    "delivery",
    parsers.member_of(
        Delivery,
        {"exactly-once": "effectively-once or transactional", "none": "at-least-once"},
    ),
    "Default: effectively once in a stream and in foreachBatch if the namespace has deduplication enabled, "
    "otherwise at least once. `effectively-once`: fail in a batch write, with `__sequenceId`, and without "
    "deduplication (at the latest after the first batch of messages). `at-least-once`: retried rows may be "
    "duplicated. `transactional`: readers see all of a micro-batch, or nothing if it fails before its "
    "commit. See docs/guarantees.md.",
)
_FAIL_ON_DUPLICATES = SINK.add(
    "failOnDuplicates",
    parsers.boolean,
    "false",
    "With `delivery=effectively-once`, if a micro-batch runs again and its rows may differ from those "
    "stored: fail with `[PULSAR_DUPLICATES]`. `false`: log a warning and write all rows.",
)
_TRANSACTION_TIMEOUT = SINK.add(
    "transactionTimeout",
    parsers.seconds("ms", 1.0),
    "10m",
    "With `delivery=transactional`: the maximum time of a micro-batch from its first row to its commit. A "
    "micro-batch that takes longer is aborted and fails. After a crash, open transactions hold back all "
    "readers of their topics until the query's next commit, or for this time.",
)
_TRANSACTION_LOG_KEY = SINK.add_optional(
    "transactionLogKey",
    parsers.place_of_secret,
    "With `delivery=transactional` in a stream: where to find a secret of at least 16 characters, "
    "`file:PATH` or `env:NAME`. With it the query signs the records in its log of commits. Without it, "
    "let only the query's role produce to that log: see docs/guarantees.md.",
    secret=True,
)
_KEY_BYTES = SINK.add(
    "keyBytes",
    parsers.boolean,
    "false",
    "Send each key as base64 text, which readers decode, like the JVM connector and the Java client's "
    "`keyBytes`. The text that is sent decides the partition. `false`: send keys in UTF-8 as text, like the "
    "Java client's `key`, except keys of a KEY_VALUE schema with `SEPARATED`. See docs/migration.md.",
)
_UPSERT = SINK.add(
    "upsert",
    parsers.boolean,
    "false",
    "For compacted topics: each row must have a key (`__key` or `keyColumns`). A row replaces the earlier "
    "value of its key; a null value deletes the key.",
)
_ON_BATCH_WRITTEN = SINK.add_optional(
    "onBatchWritten",
    parsers.dotted_name,
    "`package.module.function`, called on the driver after each micro-batch or batch write with what was "
    "written: see docs/api.md. An error that the function raises is only logged.",
)
_PRODUCER_NAME = SINK.add_optional(
    "pulsar.producer.producerName",
    parsers.non_empty,
    "Prefix of producer names. Streams: `<prefix>-<hash of the query id>-<task>`; the default prefix is "
    "`spark`. At least once: `<prefix>-<task>`. Transactions: `<prefix>-<task>-<transaction id>`. In the "
    "last two cases, without this option, the broker chooses the names.",
)
_ACCESS_MODE = SINK.add(
    "pulsar.producer.accessMode",
    parsers.member_of(AccessMode),
    "Shared",
    "Whether others may write to the topic at the same time. All modes except `Shared` require a write with "
    "one Spark task (`coalesce(1)`). `Exclusive`: fail if the topic has another producer. "
    "`WaitForExclusive`: wait until it has none, up to `pulsar.client.operationTimeoutMs`. "
    "`ExclusiveWithFencing`: disconnect the other producers.",
)
_INITIAL_SEQUENCE_ID = SINK.add_optional(
    "pulsar.producer.initialSequenceId",
    parsers.sequence_id,
    "The first sequence id is this value + 1. If the broker's last id for this producer name is higher, ids "
    "continue after that one. Not allowed for deduplicated rows: their ids come from the micro-batch. In a "
    "stream or in foreachBatch, set `delivery=at-least-once` or `transactional` as well.",
)
_PROPERTIES = SINK.add_optional(
    "pulsar.producer.properties",
    parsers.properties,
    'Properties of each producer, shown in the topic\'s statistics: `{"name": "text"}`.',
)
_BATCHING = SINK.add(
    "pulsar.producer.batchingEnabled",
    parsers.boolean,
    "true",
    "Put several messages into one broker entry.",
)
_BATCHING_MAX_MESSAGES = SINK.add(
    "pulsar.producer.batchingMaxMessages",
    parsers.count(0),
    "1000",
    "Maximum messages per batch, up to 100,000. 0 = 100,000.",
)
_BATCHING_MAX_BYTES = SINK.add(
    "pulsar.producer.batchingMaxBytes",
    parsers.size(0),
    "128k",
    "Maximum bytes per batch; 0 = the broker's maximum message size.",
)
_BATCHING_MAX_PUBLISH_DELAY = SINK.add(
    "pulsar.producer.batchingMaxPublishDelayMicros",
    parsers.seconds("us", 0.0),
    "1ms",
    "Maximum time before a batch is sent.",
)
_BATCHER_BUILDER = SINK.add(
    "pulsar.producer.batcherBuilder",
    parsers.member_of(BatcherBuilder),
    "DEFAULT",
    "`KEY_BASED`: all messages of a batch have one key (`__orderingKey`, otherwise `__key`), so each key's "
    "messages go to one consumer of a Key_Shared subscription. `DEFAULT`: the key of a batch's first message "
    "decides which consumer gets the batch. Requires `batchingEnabled`.",
)
_MAX_PENDING = SINK.add(
    "pulsar.producer.maxPendingMessages",
    parsers.count(1),
    "10000",
    "Maximum unacknowledged messages per partition, and messages of a batch. 0 (unlimited in Java) is not "
    "allowed.",
)
_MAX_PENDING_ACROSS_PARTITIONS = SINK.add(
    "pulsar.producer.maxPendingMessagesAcrossPartitions",
    parsers.count(1),
    "1000000",
    "Maximum unacknowledged messages of a topic. Each partition's limit is min(`maxPendingMessages`, this "
    "value / partitions).",
)
_MEMORY_LIMIT = SINK.add(
    "pulsar.producer.memoryLimit",
    parsers.size(1),
    "64m",
    "Maximum unacknowledged bytes of a Spark task, in equal parts for all partitions of its topics. "
    "A row that is larger than its part is sent alone. 0 (unlimited in Java) is not allowed.",
)
_BLOCK_IF_QUEUE_FULL = SINK.add(
    "pulsar.producer.blockIfQueueFull",
    parsers.boolean,
    "true",
    "When `maxPendingMessages`, `maxPendingMessagesAcrossPartitions` or `memoryLimit` is reached: wait. "
    "`false`: fail with `[PULSAR_QUEUE_FULL]`.",
)
_SEND_TIMEOUT = SINK.add(
    "pulsar.producer.sendTimeoutMs",
    parsers.seconds("ms", 0.001),
    "30s",
    "The task fails if a partition's producer gets no acknowledgement and sends no bytes for this time. "
    "After a lost connection, one of the messages that are sent again must be acknowledged in this time. 0 "
    "(unlimited in Java) is not allowed.",
)
_COMPRESSION = SINK.add(
    "pulsar.producer.compressionType",
    parsers.one_of(COMPRESSION_TYPES),
    "NONE",
    "Compression of batches and of messages outside batches.",
)
_ROUTING_MODE = SINK.add(
    "pulsar.producer.messageRoutingMode",
    parsers.member_of(RoutingMode),
    "RoundRobinPartition",
    "Which partition a row without key and without `__partition` goes to. `SinglePartition`: all such rows "
    "of a task go to one partition. `RoundRobinPartition`: each partition in turn gets one batch of rows. "
    "`CustomPartition`: `messageRouter` chooses.",
)
_HASHING_SCHEME = SINK.add(
    "pulsar.producer.hashingScheme",
    parsers.member_of(HashingScheme),
    "JavaStringHash",
    "Java's hash function that chooses a key's partition (segments: always Murmur3).",
)
_SWITCH_FREQUENCY = SINK.add(
    "pulsar.producer.roundRobinRouterBatchingPartitionSwitchFrequency",
    parsers.count(1),
    "10",
    "With batching, rows without a key go to the next partition when a batch is full, or after this many "
    "times `batchingMaxPublishDelayMicros`.",
)
_ROUTER = SINK.add_optional(
    "pulsar.producer.messageRouter",
    parsers.dotted_name,
    "With `CustomPartition`: `package.module.function`, which tasks import. It is called with the keys of "
    "many rows (a binary Arrow array; null = no key) and the number of partitions. It returns one partition "
    "number, from 0, for each key. The same keys must always get the same numbers.",
)
_CHUNKING = SINK.add(
    "pulsar.producer.chunkingEnabled",
    parsers.boolean,
    "false",
    "Split a message that is larger than the broker's limit into several entries. Readers reassemble it. "
    "Requires `batchingEnabled=false`.",
)
_CHUNK_MAX_MESSAGE_SIZE = SINK.add_optional(
    "pulsar.producer.chunkMaxMessageSize",
    parsers.size(1024),
    "Maximum bytes of each chunk. Default and upper limit: the broker's limit. Requires `chunkingEnabled`.",
)
_ENCRYPTION_KEYS = SINK.add_optional(
    "pulsar.producer.encryptionKeys",
    parsers.names,
    "Names of the public keys to encrypt for, separated by commas. With `batchingEnabled=false` only values "
    "are encrypted: see docs/encryption.md. Requires `cryptoKeyReader`.",
)
_CRYPTO_KEY_READER = SINK.add_optional(
    "pulsar.producer.cryptoKeyReader",
    parsers.key_reader,
    "Where driver and tasks find these public keys: a folder with files `NAME.public.pem`, "
    "or your own class `package.module.Class`. See docs/encryption.md.",
)
_CRYPTO_FAILURE_ACTION = SINK.add(
    "pulsar.producer.cryptoFailureAction",
    parsers.member_of(ProducerCryptoFailureAction),
    "FAIL",
    "If messages cannot be encrypted: `FAIL` with `[PULSAR_CRYPTO]`, or `SEND` them WITHOUT encryption and "
    "log a warning.",
)
_INTERCEPTORS = SINK.add_optional(
    "pulsar.producer.interceptors",
    parsers.dotted_names,
    "Your own classes `package.module.Class`, separated by commas, that see and may change rows before they "
    "are sent: see docs/api.md. If `before_send` raises an exception, the task fails.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of a sink. Fields not listed here have the meaning of the option with their name.

    Attributes:
        topic: topic of all rows; None: each row names its topic.
        delivery: requested guarantee; None: the best that the broker has.
        transaction_timeout: maximum seconds of a micro-batch's transactions; None without transactions.
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
    values: SinkValues
    value_schema: str | Path | None
    key_schema: str | Path | None
    on_batch_written: str | None
    log_level: int | None


def sink_options(values: Values) -> SinkOptions:
    """Returns the options of a sink from parsed values, and checks their combinations."""
    client = client_options(values)
    _check_schema(values)
    _check_delivery(values)
    is_transactional = values[_DELIVERY] is Delivery.TRANSACTIONAL
    keys, reader, encryption = values[_ENCRYPTION_KEYS], values[_CRYPTO_KEY_READER], None
    interceptors = values[_INTERCEPTORS]
    if keys is not None and reader is not None:
        encryption = EncryptionOptions(reader, keys, values[_CRYPTO_FAILURE_ACTION])
    options = SinkOptions(
        client=client,
        topic=values[TOPIC],
        producer=_producer_options(values),
        router=values[_ROUTER],
        delivery=values[_DELIVERY],
        fail_on_duplicates=values[_FAIL_ON_DUPLICATES],
        encryption=encryption,
        transaction_timeout=values[_TRANSACTION_TIMEOUT] if is_transactional else None,
        transaction_log_key=values[_TRANSACTION_LOG_KEY],
        interceptors=interceptors or (),
        upsert=values[_UPSERT],
        values=_value_options(values),
        value_schema=values[VALUE_SCHEMA],
        key_schema=values[KEY_SCHEMA],
        on_batch_written=values[_ON_BATCH_WRITTEN],
        log_level=values[LOG_LEVEL],
    )
    if options.topic is not None:
        has_router = options.router is not None
        options.producer.check_topic(options.topic, has_router=has_router, is_transactional=is_transactional)
    return options


def _producer_options(values: Values) -> ProducerOptions:
    _check_producer(values)
    properties = values[_PROPERTIES]
    return ProducerOptions(
        name=values[_PRODUCER_NAME],
        key_bytes=values[_KEY_BYTES],
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


def _value_options(values: Values) -> SinkValues:
    key_columns = values[_KEY_COLUMNS]
    given = values[SCHEMA_TYPE] or GivenType.AVRO
    return SinkValues(
        format=values[VALUE_FORMAT],
        kind=PartKind(given.value),
        key_columns=key_columns or (),
        key_value_encoding=values[_KEY_VALUE_ENCODING],
        may_register=values[_SCHEMA_REGISTRATION] is SchemaRegistration.AUTO,
    )


_TYPED_ONLY = (
    *(VALUE_SCHEMA, KEY_SCHEMA, SCHEMA_TYPE),
    *(_SCHEMA_REGISTRATION, _KEY_COLUMNS, _KEY_VALUE_ENCODING),
)


def _check_schema(values: Values) -> None:
    refuse_with_raw(values, _TYPED_ONLY)
    if values[SCHEMA_TYPE] is GivenType.PROTOBUF:
        raise OptionError(
            "option schemaType is protobuf, but the sink does not write Protobuf: columns have no numbers",
            advice="Serialize messages in a UDF, and set valueFormat=raw",
        )
    if _KEY_COLUMNS not in values.given:
        advice = "Name the columns of the key, or leave it out"
        values.refuse([_KEY_VALUE_ENCODING], f"without {_KEY_COLUMNS.name}", advice)


def _check_delivery(values: Values) -> None:
    if values[_DELIVERY] is not Delivery.TRANSACTIONAL:
        advice = "Set delivery=transactional, or leave it out"
        values.refuse([_TRANSACTION_TIMEOUT, _TRANSACTION_LOG_KEY], "without delivery=transactional", advice)
    if values[_FAIL_ON_DUPLICATES] and values[_DELIVERY] is not Delivery.EFFECTIVELY_ONCE:
        advice = "Set delivery=effectively-once, or leave the option out"
        values.refuse([_FAIL_ON_DUPLICATES], "without delivery=effectively-once", advice)


def _check_producer(values: Values) -> None:
    if values[_CHUNKING] and values[_BATCHING]:
        raise OptionError(
            f"options {_CHUNKING.name} and {_BATCHING.name} are both true",
            advice=f"Set {_BATCHING.name} to false: a chunk cannot be part of a batch",
        )
    if not values[_CHUNKING]:
        advice = f"Set {_CHUNKING.name} to true, or leave it out"
        values.refuse([_CHUNK_MAX_MESSAGE_SIZE], f"without {_CHUNKING.name}", advice)
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
