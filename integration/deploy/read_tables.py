"""Prints, as JSON in its last line, the customers and values of the tables that it is given."""

import json
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
tables = [spark.sql(f"SELECT customer, json FROM {table}").collect() for table in sys.argv[1:]]
print(json.dumps(tables))
spark.stop()
