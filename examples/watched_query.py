"""A listener serves a live page and Prometheus' figures of all queries of a session.

spark-submit examples/watched_query.py pulsar://localhost:6650 orders
"""

import logging
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pulsar_spark import PulsarProgressListener


def watch(
    spark: SparkSession, service_url: str, topic: str, port: int = 0
) -> tuple[StreamingQuery, PulsarProgressListener, str]:
    """Start a query that is watched; returns it, the listener, and the address of the page."""
    listener = PulsarProgressListener()
    spark.streams.addListener(listener)
    page = listener.serve(port)
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", topic)
    rows = reader.option("startingOffsets", "earliest").option("retainSubscription", "false").load()
    return rows.writeStream.format("noop").queryName("watched").start(), listener, page


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)  # one line a micro-batch, of the logger pulsar_spark.progress
    url, name = sys.argv[1:]
    watched, _, address = watch(SparkSession.builder.getOrCreate(), url, name, port=4050)
    logging.info("the page is at %s, the figures at %smetrics", address, address)
    watched.awaitTermination()
