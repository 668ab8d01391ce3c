"""The tables and flows of the pipeline; spark-pipelines imports this file."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
service_url = str(spark.conf.get("orders.service.url"))


@dp.table
def orders() -> DataFrame:
    """All orders, as they are stored in the topic."""
    reader = spark.readStream.format("pulsar").option("service.url", service_url)
    return reader.option("topic", "orders").option("startingOffsets", "earliest").load()


dp.create_sink("large_orders", "pulsar", {"service.url": service_url, "topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """Orders of at least 100."""
    amount = "try_cast(get_json_object(CAST(value AS STRING), '$.amount') AS INT)"
    return spark.readStream.table("orders").where(f"{amount} >= 100").select("value", "__key")
