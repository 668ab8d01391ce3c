"""Joins orders with the payments that come within an hour, typed columns in and typed columns out.

spark-submit examples/paid_orders.py pulsar://localhost:6650 orders payments paid-orders /tmp/paid-orders
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter


def table(spark: SparkSession, service_url: str, topic: str) -> DataFrame:
    """The columns of a topic's schema, and the event time, of which messages may be ten minutes late."""
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", topic)
    reader = reader.option("valueFormat", "columns").option("metadataColumns", "__eventTime")
    return reader.option("startingOffsets", "earliest").load().withWatermark("__eventTime", "10 minutes")


def query(
    spark: SparkSession, service_url: str, orders: str, payments: str, target: str, checkpoint: str
) -> DataStreamWriter:
    """Make the query, to be started. The target's schema is made from the columns."""
    o = table(spark, service_url, orders).alias("o")
    p = table(spark, service_url, payments).alias("p")
    hour = o["__eventTime"] + f.expr("INTERVAL 1 HOUR")
    paid = o.join(p, [o["id"] == p["order_id"], p["__eventTime"].between(o["__eventTime"], hour)])
    writer = paid.select("o.id", "o.item", "p.amount").writeStream.format("pulsar")
    writer = (
        writer.option("service.url", service_url).option("topic", target).option("valueFormat", "columns")
    )
    return writer.option("checkpointLocation", checkpoint)


if __name__ == "__main__":
    session = SparkSession.builder.appName("paid orders").getOrCreate()
    query(session, *sys.argv[1:]).start().awaitTermination()
