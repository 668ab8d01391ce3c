"""The options of the sink: their table, and the fields of SinkOptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from pulsar_spark.client import ClientOptions, KeyValueEncoding, PartKind, ProducerOptions
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.connection import LOG_LEVEL, TOPIC, EncryptionOptions, client_options
from pulsar_spark.spark.options.option import Table, Values
from pulsar_spark.spark.options.producer import (
    PRODUCER,
    interceptors,
    producer_encryption,
    producer_options,
    router,
)
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
    """Schemas that the sink may register."""

    AUTO = "auto"
    EXISTING = "existing"


SINK = Table()

SINK.extend(SCHEMAS)
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
SINK.extend(PRODUCER)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of a sink. Fields not listed here have the meaning of the option with their name.

    Attributes:
        topic: topic of all rows; None: each row names its topic.
        delivery: requested guarantee; None: the best that the broker has.
        transaction_timeout: maximum seconds of a micro-batch's transactions; None without transactions.
        transaction_log_key: file or environment variable with the key of the query's log, or None.
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
    options = SinkOptions(
        client=client,
        topic=values[TOPIC],
        producer=replace(producer_options(values), key_bytes=values[_KEY_BYTES]),
        router=router(values),
        delivery=values[_DELIVERY],
        fail_on_duplicates=values[_FAIL_ON_DUPLICATES],
        encryption=producer_encryption(values),
        transaction_timeout=values[_TRANSACTION_TIMEOUT] if is_transactional else None,
        transaction_log_key=values[_TRANSACTION_LOG_KEY],
        interceptors=interceptors(values),
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
