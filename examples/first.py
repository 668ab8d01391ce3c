"""Writes two messages to a topic and reads them."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
orders = spark.createDataFrame([("ann", "tea"), ("bob", "milk")], "__key string, value string")
pulsar = {"service.url": "pulsar://localhost:6650", "topic": "first"}
orders.write.format("pulsar").options(**pulsar).mode("append").save()

messages = spark.read.format("pulsar").options(**pulsar).load()
messages.selectExpr("CAST(__key AS STRING) AS key", "CAST(value AS STRING) AS value").sort("key").show()
