"""Apache Pulsar source and sink for PySpark Structured Streaming, in pure Python.

``register(spark)`` makes ``format("pulsar")`` known where Spark does not find it by itself;
``PulsarProgressListener`` tells how far behind streaming queries are.
"""

try:
    from pulsar_spark.spark.progress import PulsarProgressListener
    from pulsar_spark.spark.source import register
except ModuleNotFoundError as _error:
    # The layers under spark/ can be used, and are tested, where there is no pyspark.
    if (_error.name or "").partition(".")[0] != "pyspark":
        raise

__all__ = ["PulsarProgressListener", "register"]
