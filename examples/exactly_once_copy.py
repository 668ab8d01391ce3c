"""Copies a topic, with keys, event times and properties, so that no failure makes a message come twice.

spark-submit examples/exactly_once_copy.py pulsar://localhost:6650 orders copy /tmp/copy effectively-once
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter


def query(
    spark: SparkSession, service_url: str, source: str, target: str, checkpoint: str, delivery: str
) -> DataStreamWriter:
    """Make the query, to be started.

    ``delivery`` is ``effectively-once``, where the target's namespace deduplicates, or ``transactional``,
    where brokers have transactions: docs/guarantees.md says what each promises.

    The columns that only the source makes, such as ``__messageId``, are left out by the sink. The option
    ``topic`` wins over the column ``__topic``.
    """
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", source)
    messages = reader.option("startingOffsets", "earliest").load()
    writer = messages.writeStream.format("pulsar").option("service.url", service_url)
    writer = writer.option("topic", target).option("delivery", delivery)
    return writer.option("checkpointLocation", checkpoint)


if __name__ == "__main__":
    session = SparkSession.builder.appName("exactly-once copy").getOrCreate()
    query(session, *sys.argv[1:]).start().awaitTermination()
