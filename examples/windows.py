"""Sums up sales by shop and by ten seconds of event time; a watermark says when a window is complete.

A sale is JSON, {"shop": "Cork", "amount": 12.5}, and the event time of its message is when it was made.

spark-submit examples/windows.py pulsar://localhost:6650 sales sums /tmp/windows
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter


def sums(messages: DataFrame) -> DataFrame:
    """Sum up; a sale that comes more than five seconds of event time late is left out."""
    sale = f.from_json(f.col("value").cast("string"), "shop string, amount double")
    windows = (
        messages.select(f.col("__eventTime").alias("time"), sale.alias("sale"))
        .withWatermark("time", "5 seconds")
        .groupBy(f.window("time", "10 seconds"), "sale.shop")
        .agg(f.sum("sale.amount").alias("amount"))
    )
    return windows.select(
        f.col("shop").alias("__key"),
        f.col("window.end").alias("__eventTime"),
        f.to_json(f.struct("shop", "amount")).alias("value"),
    )


def query(
    spark: SparkSession, service_url: str, source: str, target: str, checkpoint: str
) -> DataStreamWriter:
    """Make the query, to be started; append mode sends each window once, when it is complete."""
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", source)
    messages = reader.option("startingOffsets", "earliest").load()
    writer = sums(messages).writeStream.format("pulsar").option("service.url", service_url)
    return writer.option("topic", target).option("checkpointLocation", checkpoint).outputMode("append")


if __name__ == "__main__":
    session = SparkSession.builder.appName("windows").getOrCreate()
    query(session, *sys.argv[1:]).start().awaitTermination()
