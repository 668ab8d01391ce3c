"""Sends orders one way, and what is no order another way with its topic's name, by foreachBatch.

An order is JSON, {"id": 7, "amount": 12.5}.

spark-submit examples/foreach_batch.py pulsar://localhost:6650 inbox orders rejected /tmp/foreach-batch
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter


def query(
    spark: SparkSession, service_url: str, source: str, orders: str, rejected: str, checkpoint: str
) -> DataStreamWriter:
    """Make the query, to be started."""
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", source)
    messages = reader.option("startingOffsets", "earliest").load()

    def write(rows: DataFrame, topic: str) -> None:
        writer = rows.write.format("pulsar").option("service.url", service_url).option("topic", topic)
        writer.mode("append").save()

    def split(batch: DataFrame, number: int) -> None:
        """Write a micro-batch; after a failure Spark calls this again with the same number and rows."""
        order = f.from_json(f.col("value").cast("string"), "id bigint, amount double")
        is_order = f.coalesce(order["id"].isNotNull() & order["amount"].isNotNull(), f.lit(False))
        rows = batch.withColumn("is_order", is_order).persist()  # it is read twice
        write(rows.where("is_order").select("__key", "value"), orders)
        origin = f.create_map(f.lit("origin"), f.col("__topic")).alias("__messageProperties")
        write(rows.where("NOT is_order").select("__key", "value", origin), rejected)
        rows.unpersist()

    return messages.writeStream.foreachBatch(split).option("checkpointLocation", checkpoint)


if __name__ == "__main__":
    session = SparkSession.builder.appName("orders").getOrCreate()
    query(session, *sys.argv[1:]).start().awaitTermination()
