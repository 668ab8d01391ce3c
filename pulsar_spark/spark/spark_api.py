"""Names of pyspark that differ between versions, with stand-ins for Spark 4.0 and 4.1.

These two versions pass no start and no limit to ``latestOffset``, see :mod:`older_spark`, and never use the
stand-ins.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

__all__ = ["HAS_READ_LIMITS", "DataSourceStreamArrowWriter", "arrow_schema", "arrow_type"]
__all__ += ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow", "TimeType"]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS = True
except ImportError:
    HAS_READ_LIMITS = False
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = type("Absent", (), {})  # type: ignore[misc, assignment]

try:
    from pyspark.sql.types import TimeType
except ImportError:  # Spark 4.0
    TimeType = type("Absent", (), {})  # type: ignore[misc, assignment]

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef, misc]
        """Stand-in for Spark 4.0, which passes Arrow to a stream writer that is a DataSourceArrowWriter."""


# Argument that Spark 4.2 and newer need for timestamps in UTC; earlier versions always use UTC.
_UTC: dict[str, Any] = {"timezone": "UTC"} if HAS_READ_LIMITS else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns Spark's Arrow schema for columns; times are in UTC."""
    return to_arrow_schema(schema, **_UTC)


def arrow_type(kind: DataType) -> pa.DataType:
    """Returns Spark's Arrow type for a type; times are in UTC."""
    return to_arrow_type(kind, **_UTC)
