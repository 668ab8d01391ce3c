"""Lets Spark find ``format("pulsar_spark")`` by itself, as ``pyspark_pulsar`` does for ``"pulsar"``.

A module gives Spark one source, so each name has a module of its own.
"""

try:
    from pulsar_spark.spark.data_source import PulsarSparkDataSource as DefaultSource
except ImportError:  # pyspark_pulsar, which Spark imports as well, says what is missing
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
