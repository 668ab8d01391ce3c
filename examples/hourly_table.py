"""Adds the orders that came since the last run to a Parquet table, by hour; a scheduler starts it each hour.

spark-submit examples/hourly_table.py pulsar://localhost:6650 orders 0 /tmp/hourly-orders
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter


def query(spark: SparkSession, service_url: str, topic: str, version: str, table: str) -> DataStreamWriter:
    """Make the query, to be started.

    The columns are those of one version of the topic's schema. So all files of the table have the same
    columns, whatever version the topic has by then, until you give a later one.
    """
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", topic)
    reader = reader.option("valueFormat", "columns").option("schemaVersion", version)
    reader = reader.option("metadataColumns", "__publishTime").option("startingOffsets", "earliest")
    orders = reader.load().selectExpr("*", "date_format(__publishTime, 'yyyy-MM-dd-HH') AS hour")
    writer = orders.writeStream.format("parquet").partitionBy("hour").option("path", table)
    return writer.option("checkpointLocation", f"{table}-checkpoint").trigger(availableNow=True)


if __name__ == "__main__":
    session = SparkSession.builder.appName("hourly table").getOrCreate()
    query(session, *sys.argv[1:]).start().awaitTermination()
