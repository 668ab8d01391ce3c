"""The Spark side: the only layer that imports pyspark."""

import sys

from pulsar_spark.errors import LibraryError

try:
    from pyspark.sql.datasource import DataSourceArrowWriter  # noqa: F401 - new in Spark 4.0
except ImportError as _error:
    if (_error.name or "").partition(".")[0] != "pyspark" or sys.modules.get("pyspark") is None:
        raise
    raise LibraryError(f"this pyspark is too old: pulsar_spark needs 4.0 or newer ({_error})") from _error
