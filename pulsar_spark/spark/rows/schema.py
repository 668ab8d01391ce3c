"""The schema of rows that are read, as Spark and as Arrow say it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructType

from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS

VALUE = "value"


def source_schema(columns: Sequence[str]) -> StructType:
    """What the source makes of a message whose topic has no schema: its value, then the metadata columns."""
    schema = StructType().add(VALUE, BinaryType())
    for name in columns:
        schema.add(name, METADATA_COLUMNS[name].type)
    return schema


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The same as Spark compares the first batch of a read with, exactly; later ones it only believes."""
    return to_arrow_schema(source_schema(columns), timezone="UTC")


# With the columns that are given by default.
SOURCE_SCHEMA = source_schema(DEFAULT_METADATA_COLUMNS)
