"""A test of one's own query, with a real Pulsar and a real Spark: ``python3 -m pytest test_totals.py``."""

pytest_plugins = ["pulsar_spark.testing"]  # it has the fixture pulsar; in a conftest.py for several files


def totals(source):
    """The query: orders by customer, as messages."""
    counts = source.groupBy("__key").count()
    return counts.selectExpr("__key", "CAST(count AS STRING) AS value")


def test_totals(pulsar, tmp_path):
    """Two customers, three orders."""
    orders, counted = pulsar.new_topic(), pulsar.new_topic()
    pulsar.send(orders, [("ann", "tea"), ("bob", "milk"), ("ann", "rice")])

    reader = pulsar.spark.readStream.format("pulsar").option("service.url", pulsar.service_url)
    source = reader.option("topic", orders).option("startingOffsets", "earliest").load()
    writer = totals(source).writeStream.format("pulsar").option("service.url", pulsar.service_url)
    writer = writer.option("topic", counted).option("checkpointLocation", str(tmp_path))
    writer.outputMode("complete").trigger(availableNow=True).start().awaitTermination()

    rows = pulsar.read_all(counted)
    assert {row["__key"]: row["value"] for row in rows} == {b"ann": b"2", b"bob": b"1"}
