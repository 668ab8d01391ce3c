"""The columns of a row that is read, and the names that columns of a row to be written may have."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, MapType, StringType, StructType, TimestampType

VALUE = "value"
KEY = "__key"
TOPIC = "__topic"
MESSAGE_ID = "__messageId"
PUBLISH_TIME = "__publishTime"
EVENT_TIME = "__eventTime"
PROPERTIES = "__messageProperties"
ORDERING_KEY = "__orderingKey"

# What the source makes of a message whose topic has no schema.
SOURCE_SCHEMA = (
    StructType()
    .add(VALUE, BinaryType())
    .add(KEY, BinaryType())
    .add(TOPIC, StringType())
    .add(MESSAGE_ID, BinaryType())
    .add(PUBLISH_TIME, TimestampType())
    .add(EVENT_TIME, TimestampType())
    .add(PROPERTIES, MapType(StringType(), StringType()))
)

# Spark compares the first batch of a read with this, exactly; later ones it only believes.
ARROW_SCHEMA: pa.Schema = to_arrow_schema(SOURCE_SCHEMA, timezone="UTC")

# Columns that only the source makes: a sink leaves them out, so that rows can be written as they were read.
READ_ONLY = frozenset(
    {
        MESSAGE_ID,
        PUBLISH_TIME,
        "__offset",
        "__producerName",
        "__schemaVersion",
        "__replicatedFrom",
        "__isNull",
        "__index",
    }
)
# Names that a later version gives a meaning: refused today, so that they never go out as something else.
NOT_YET_WRITTEN = frozenset({"__deliverAt", "__deliverAfter", "__partition", "__sequenceId"})
