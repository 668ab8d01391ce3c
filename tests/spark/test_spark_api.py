"""What is the same on each Spark: Arrow types with times in UTC, and a streaming sink that takes Arrow."""

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import LongType, StructType, TimestampType

from pulsar_spark.spark.spark_api import DataSourceStreamArrowWriter, arrow_schema, arrow_type


def test_times_are_in_utc():
    assert arrow_type(TimestampType()) == pa.timestamp("us", tz="UTC")
    schema = StructType().add("n", LongType()).add("at", TimestampType())
    assert arrow_schema(schema).types == [pa.int64(), pa.timestamp("us", tz="UTC")]


def test_a_streaming_sink_takes_arrow():
    assert issubclass(DataSourceStreamArrowWriter, DataSourceStreamWriter)
