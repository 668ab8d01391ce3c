"""A function is called after each micro-batch with what was written: here it notes it in a file.

In the folder of this file:
spark-submit --py-files written_batches.py written_batches.py pulsar://localhost:6650 in out /tmp/checkpoint
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pulsar_spark import TopicPartitionMetrics

NOTES = Path("/tmp/written-batches.txt")


def report(batch: int | None, partitions: list[TopicPartitionMetrics]) -> None:
    """Add a line for each topic partition. Spark calls this in a process beside the driver."""
    with NOTES.open("a") as notes:
        notes.writelines(f"batch {batch}, {each}\n" for each in partitions)


def query(
    spark: SparkSession,
    service_url: str,
    source: str,
    target: str,
    checkpoint: str,
    function: str = "written_batches.report",
) -> DataStreamWriter:
    """Make the query, to be started; ``function`` is the name by which the function is imported."""
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", source)
    rows = reader.option("startingOffsets", "earliest").load().select("__key", "value")
    writer = rows.writeStream.format("pulsar").option("service.url", service_url).option("topic", target)
    return writer.option("onBatchWritten", function).option("checkpointLocation", checkpoint)


if __name__ == "__main__":
    session = SparkSession.builder.appName("written batches").getOrCreate()
    query(session, *sys.argv[1:]).start().awaitTermination()
