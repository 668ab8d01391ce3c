"""Apache Pulsar source and sink for PySpark Structured Streaming, in pure Python.

``register(spark)`` makes ``format("pulsar")`` known where Spark does not find it by itself;
``PulsarProgressListener`` tells how far behind streaming queries are; ``ProducerInterceptor`` is the base of
classes that change what is written.
"""

import sys

import pulsar_spark.libraries  # noqa: F401 - before all else: it lets the others be imported
from pulsar_spark.errors import LibraryError

try:
    from pulsar_spark.client import ProducerInterceptor
    from pulsar_spark.spark.data_source import register
    from pulsar_spark.spark.progress_listener import PulsarProgressListener
except ImportError as _error:
    # The layers under spark/ can be used, and are tested, where there is no pyspark.
    if (_error.name or "").partition(".")[0] != "pyspark":
        raise
    if sys.modules.get("pyspark") is not None:
        raise LibraryError(f"this pyspark is too old: pulsar_spark needs 4.2 or newer ({_error})") from _error

__all__ = ["ProducerInterceptor", "PulsarProgressListener", "register"]
