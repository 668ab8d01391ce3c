"""The names of pyspark that are not the same in all versions, with stand-ins for Spark 4.0 and 4.1.

Those two call ``latestOffset()`` without a start and a limit, and never ``reportLatestOffset`` or
``prepareForTriggerAvailableNow``; see :mod:`older_spark`.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS = True
except ImportError:  # Spark 4.0 and 4.1
    HAS_READ_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]  # stands in for the class above
        """A limit of a micro-batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]  # as above
        """No limit."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]  # as above
        """A marker that the user's limits apply."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]  # as above
        """A source that Spark tells of Trigger.AvailableNow."""


try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef, misc]  # as above
        """A streaming sink that takes Arrow: Spark 4.0 looks for the batch class in both kinds of writes."""


# Without it Spark 4.2 and newer would make times without a zone; older ones have UTC by default.
_UTC = {"timezone": "UTC"} if HAS_READ_LIMITS else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark has for columns; times are in UTC."""
    return to_arrow_schema(schema, **_UTC)


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type that Spark has for a type; times are in UTC."""
    return to_arrow_type(kind, **_UTC)


__all__ = [
    "HAS_READ_LIMITS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "arrow_type",
]
