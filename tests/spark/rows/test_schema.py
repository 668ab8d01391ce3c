"""Spark's schema and Arrow's are the same, in the order that is asked for."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, TimestampType

from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA, arrow_schema, source_schema


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
    assert source_schema(DEFAULT_METADATA_COLUMNS) == SOURCE_SCHEMA


@pytest.mark.parametrize("wanted", [(), ("__key",), ("__index", "__offset"), tuple(METADATA_COLUMNS)[::-1]])
def test_columns_come_in_the_order_that_is_asked_for(wanted):
    assert source_schema(wanted).names == ["value", *wanted]
    assert arrow_schema(wanted).equals(
        to_arrow_schema(source_schema(wanted), timezone="UTC"), check_metadata=True
    )


def test_the_types_of_numbers():
    schema = source_schema(("__partition", "__sequenceId", "__index"))
    assert [field.dataType for field in schema.fields[1:]] == [IntegerType(), LongType(), LongType()]
