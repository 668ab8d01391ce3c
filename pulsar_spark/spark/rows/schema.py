"""The columns of a row that is read, and the names that columns of a row to be written may have."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

VALUE = "value"
KEY = "__key"
TOPIC = "__topic"
MESSAGE_ID = "__messageId"
PUBLISH_TIME = "__publishTime"
EVENT_TIME = "__eventTime"
PROPERTIES = "__messageProperties"
PARTITION = "__partition"
OFFSET = "__offset"
ORDERING_KEY = "__orderingKey"
SEQUENCE_ID = "__sequenceId"
PRODUCER_NAME = "__producerName"
SCHEMA_VERSION = "__schemaVersion"
REPLICATED_FROM = "__replicatedFrom"
IS_NULL = "__isNull"
INDEX = "__index"
# Of rows that are written only:
DELIVER_AT = "__deliverAt"
DELIVER_AFTER = "__deliverAfter"

# What the source tells of a message beside its value.
METADATA_COLUMNS: dict[str, DataType] = {
    KEY: BinaryType(),
    TOPIC: StringType(),
    MESSAGE_ID: BinaryType(),
    PUBLISH_TIME: TimestampType(),
    EVENT_TIME: TimestampType(),
    PROPERTIES: MapType(StringType(), StringType()),
    PARTITION: IntegerType(),
    OFFSET: StringType(),
    ORDERING_KEY: BinaryType(),
    SEQUENCE_ID: LongType(),
    PRODUCER_NAME: StringType(),
    SCHEMA_VERSION: BinaryType(),
    REPLICATED_FROM: StringType(),
    IS_NULL: BooleanType(),
    INDEX: LongType(),
}
DEFAULT_METADATA_COLUMNS = (KEY, TOPIC, MESSAGE_ID, PUBLISH_TIME, EVENT_TIME, PROPERTIES)


def source_schema(columns: Sequence[str]) -> StructType:
    """What the source makes of a message whose topic has no schema: its value, then the metadata columns."""
    schema = StructType().add(VALUE, BinaryType())
    for name in columns:
        schema.add(name, METADATA_COLUMNS[name])
    return schema


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The same as Spark compares the first batch of a read with, exactly; later ones it only believes."""
    return to_arrow_schema(source_schema(columns), timezone="UTC")


# With the columns that are given unasked.
SOURCE_SCHEMA = source_schema(DEFAULT_METADATA_COLUMNS)

# Columns that only the source makes: a sink leaves them out, so that rows can be written as they were read.
READ_ONLY = frozenset(
    {
        MESSAGE_ID,
        PUBLISH_TIME,
        OFFSET,
        PRODUCER_NAME,
        SCHEMA_VERSION,
        REPLICATED_FROM,
        IS_NULL,
        INDEX,
    }
)
