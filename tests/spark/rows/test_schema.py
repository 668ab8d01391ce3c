"""Spark's schema and Arrow's are the same, in the order that is asked for."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, TimestampType

from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA, RowColumns


def test_the_default_columns():
    assert [(field.name, field.dataType) for field in SOURCE_SCHEMA.fields] == [
        ("value", BinaryType()),
        ("__key", BinaryType()),
        ("__topic", StringType()),
        ("__messageId", BinaryType()),
        ("__publishTime", TimestampType()),
        ("__eventTime", TimestampType()),
        ("__messageProperties", MapType(StringType(), StringType())),
    ]
    assert RowColumns(DEFAULT_METADATA_COLUMNS).schema == SOURCE_SCHEMA


@pytest.mark.parametrize("wanted", [(), ("__key",), ("__index", "__offset"), tuple(METADATA_COLUMNS)[::-1]])
def test_columns_come_in_the_order_that_is_asked_for(wanted):
    assert RowColumns(wanted).schema.names == ["value", *wanted]
    assert RowColumns(wanted).arrow_schema.equals(
        to_arrow_schema(RowColumns(wanted).schema, timezone="UTC"), check_metadata=True
    )


def test_the_types_of_numbers():
    schema = RowColumns(("__partition", "__sequenceId", "__index")).schema
    assert [field.dataType for field in schema.fields[1:]] == [IntegerType(), LongType(), LongType()]
