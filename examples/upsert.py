"""Keeps a table in a compacted topic: changes come in, the topic keeps the latest state of each row.

A change is JSON: {"op": "create", "update" or "delete", "id": "7", "row": {...}}.

spark-submit examples/upsert.py pulsar://localhost:6650 changes customers /tmp/upsert
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter


def upserts(changes: DataFrame) -> DataFrame:
    """Make messages of changes: the id is the key, the row its value; null, a tombstone, deletes the key."""
    change = f.from_json(f.col("value").cast("string"), "op string, id string")
    row = f.get_json_object(f.col("value").cast("string"), "$.row")
    return changes.select(
        change["id"].alias("__key"),
        f.when(change["op"] != "delete", row).alias("value"),
    )


def query(
    spark: SparkSession, service_url: str, source: str, target: str, checkpoint: str
) -> DataStreamWriter:
    """Make the query, to be started.

    All changes of an id must be in one partition of the source (their messages have the id as their key):
    they then arrive in order, and nothing between source and sink shuffles them.
    """
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", source)
    changes = reader.option("startingOffsets", "earliest").load()
    writer = upserts(changes).writeStream.format("pulsar").option("service.url", service_url)
    writer = writer.option("upsert", "true")  # a row without a key is an error
    return writer.option("topic", target).option("checkpointLocation", checkpoint)


if __name__ == "__main__":
    session = SparkSession.builder.appName("upsert").getOrCreate()
    query(session, *sys.argv[1:]).start().awaitTermination()
