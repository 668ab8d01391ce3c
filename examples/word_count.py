"""Counts words into a compacted topic, which keeps the latest count of each word.

spark-submit examples/word_count.py pulsar://localhost:6650 lines counts /tmp/word-count
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter


def word_counts(lines: DataFrame) -> DataFrame:
    """Count words; each row is a message: the word is its key, the count its value."""
    text = f.lower(f.col("value").cast("string"))
    words = lines.select(f.explode(f.split(text, r"\W+")).alias("word")).where("word <> ''")
    return words.groupBy("word").count().selectExpr("word AS __key", "CAST(count AS STRING) AS value")


def query(
    spark: SparkSession, service_url: str, source: str, target: str, checkpoint: str
) -> DataStreamWriter:
    """Make the query, to be started.

    Complete mode sends all counts with each micro-batch, and compaction leaves the last of each. To send only
    those that have changed, write from foreachBatch in update mode: Spark refuses it for sinks in Python.
    """
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", source)
    lines = reader.option("startingOffsets", "earliest").load()
    writer = word_counts(lines).writeStream.format("pulsar").option("service.url", service_url)
    return writer.option("topic", target).option("checkpointLocation", checkpoint).outputMode("complete")


if __name__ == "__main__":
    session = SparkSession.builder.appName("word count").getOrCreate()
    query(session, *sys.argv[1:]).start().awaitTermination()
