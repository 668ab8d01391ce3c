"""Copies large orders, typed columns in and typed columns out, and goes on when the schema of orders changes.

spark-submit examples/typed_orders.py pulsar://localhost:6650 orders large-orders /tmp/typed-orders
"""

import sys
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter


def query(
    spark: SparkSession, service_url: str, source: str, target: str, checkpoint: str
) -> DataStreamWriter:
    """Make the query, to be started.

    The columns are the fields of the source's schema, as it is now. Orders of older versions of it lack some:
    those are null, or the field's default. The target's schema is made from the columns; where the target has
    one already, columns that are new to it become new fields, and its older messages stay readable.
    """
    reader = spark.readStream.format("pulsar").option("service.url", service_url).option("topic", source)
    reader = reader.option("valueFormat", "columns").option("schemaEvolutionMode", "restart")
    reader = reader.option("metadataColumns", "__key").option("startingOffsets", "earliest")
    large = reader.load().where("amount >= 100")
    writer = large.writeStream.format("pulsar").option("service.url", service_url).option("topic", target)
    return writer.option("valueFormat", "columns").option("checkpointLocation", checkpoint)


def run(start: Callable[[], StreamingQuery]) -> None:
    """Start a query, and another one each time that the schema has new fields; return when one just ends.

    A query ends with this error before it has done anything with orders of the new version. The next one
    begins with them, and has the new columns.
    """
    while True:
        try:
            start().awaitTermination()
            return
        except StreamingQueryException as error:
            if "[PULSAR_SCHEMA_CHANGED]" not in str(error):
                raise


if __name__ == "__main__":
    session = SparkSession.builder.appName("typed orders").getOrCreate()
    run(lambda: query(session, *sys.argv[1:]).start())
