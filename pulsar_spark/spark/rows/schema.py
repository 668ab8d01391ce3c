"""RowColumns: the columns of rows that are read: their schema for Spark and Arrow, and what makes them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructType

from pulsar_spark.client import DecodedMessages
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS, Maker

VALUE = "value"


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of rows: the value's, then metadata columns.

    Attributes:
        metadata: names out of ``METADATA_COLUMNS``, in the order of the columns.
    """

    metadata: tuple[str, ...] = DEFAULT_METADATA_COLUMNS

    @property
    def schema(self) -> StructType:
        """For Spark."""
        schema = StructType().add(VALUE, BinaryType())
        for name in self.metadata:
            schema.add(name, METADATA_COLUMNS[name].type)
        return schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The same as Spark compares the first batch of a read with, exactly; later ones it only believes."""
        return to_arrow_schema(self.schema, timezone="UTC")

    def makers(self, topic: TopicName) -> list[Maker]:
        """What makes each column for a topic partition; the one place where payloads become a column."""
        return [_value, *(METADATA_COLUMNS[name].maker(topic) for name in self.metadata)]


def _value(messages: DecodedMessages) -> pa.BinaryArray:
    return messages.value


# With the columns that are given by default.
SOURCE_SCHEMA = RowColumns().schema
