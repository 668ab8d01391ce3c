"""Prints what the recipe for Delta has written, as JSON in the last line: the rows of each table."""

import json

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
tables = {
    name: spark.read.format("delta").load(f"/lake/{name}").select("customer", "json").collect()
    for name in ("orders", "orders-by-batch")
}
print(json.dumps(tables))
spark.stop()
