"""The columns that payloads become: one implementation for each format of values, chosen once per read.

This module decides what happens to bad rows. It must not know how values are decoded, nor about record
batches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.client import DecodedMessages, TypedValueReader, TypedValues
from pulsar_spark.errors import assert_never
from pulsar_spark.spark.rows.metadata_columns import CORRUPT_VALUE, IS_NULL
from pulsar_spark.spark.rows.schema import VALUE, RowColumns

_log = logging.getLogger(__name__)


class BadRows(Enum):
    """What happens to rows whose payload the schema cannot decode, in the terms of Spark's ``mode``."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class PayloadColumns(NamedTuple):
    """The rows that n payloads become.

    Attributes:
        rows: number of rows, n.
        columns: columns by name, n rows each. There may be more than are selected.
        left_out: bool[n], true for rows that are left out; None if none is.
    """

    rows: int
    columns: Mapping[str, pa.Array]
    left_out: npt.NDArray[np.bool_] | None = None


class PayloadReader(Protocol):
    """Makes columns from payloads."""

    def read(self, messages: DecodedMessages) -> Iterator[PayloadColumns]:
        """Yield the columns of at least one message, in parts; raises the errors of the format for bad rows.

        No reference to a part is kept while the next one is made.
        """
        ...


class RawValues:
    """Payloads without a schema: the column ``value``, if it is selected."""

    def __init__(self, columns: RowColumns) -> None:
        self._is_wanted = VALUE in columns.schema.names

    def read(self, messages: DecodedMessages) -> Iterator[PayloadColumns]:
        """Yield the column ``value``, in one part."""
        yield PayloadColumns(len(messages), {VALUE: messages.value} if self._is_wanted else {})


class SchemaValues:
    """Payloads decoded with their topic's schema.

    Args:
        reader: decodes payloads to the target type of the columns.
        columns: columns of the rows.
        bad_rows: what happens to rows that cannot be decoded.
    """

    def __init__(self, reader: TypedValueReader, columns: RowColumns, bad_rows: BadRows) -> None:
        self._reader = reader
        self._has_fields = columns.has_fields
        self._has_corrupt = CORRUPT_VALUE in columns.metadata
        self._has_is_null = IS_NULL in columns.metadata
        self._has_warned = False
        self._bad_rows = bad_rows

    def read(self, messages: DecodedMessages) -> Iterator[PayloadColumns]:
        """Yield the fields of the payloads, or one column ``value``, in the same parts as the reader.

        Raises:
            SchemaError: a row cannot be decoded, and the mode is FAILFAST; the error names the first such
                row.
            SchemaChangedError: as in :meth:`pulsar_spark.client.TypedValueReader.read`.
        """
        return map(partial(self._columns, messages), self._reader.read(messages))

    def _columns(self, messages: DecodedMessages, values: TypedValues) -> PayloadColumns:
        column = values.column
        if self._has_fields:
            columns = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
        else:
            columns = {VALUE: column}
        if self._has_is_null:
            columns[IS_NULL] = values.payloads.is_null()
        if values.is_bad is None:
            return PayloadColumns(len(column), columns)
        self._report(messages, values, values.is_bad)
        if self._bad_rows is BadRows.DROPMALFORMED:
            return PayloadColumns(len(column), columns, values.is_bad)
        if self._has_corrupt:
            # A bad key may come without a payload. A null in this column would mean that the row is good.
            given = pc.coalesce(values.payloads, values.keys, pa.scalar(b""))
            columns[CORRUPT_VALUE] = pc.replace_with_mask(
                given, pa.array(~values.is_bad), pa.scalar(None, pa.binary())
            )
        return PayloadColumns(len(column), columns)

    def _report(self, messages: DecodedMessages, values: TypedValues, is_bad: npt.NDArray[np.bool_]) -> None:
        first = values.error(int(is_bad.argmax()), is_fatal=self._bad_rows is BadRows.FAILFAST)
        match self._bad_rows:
            case BadRows.FAILFAST:
                raise first
            case BadRows.DROPMALFORMED:
                fate = "are left out"
            case BadRows.PERMISSIVE:
                fate = "have null in their columns"
            case mode:
                assert_never(mode)
        # A topic may have many bad rows. One warning per task keeps them from hiding all other log lines.
        _log.log(
            logging.DEBUG if self._has_warned else logging.WARNING,
            "%s: %d of %d messages cannot be read and %s; first: %s",
            *(messages.topic, np.count_nonzero(is_bad), len(is_bad), fate, first),
        )
        self._has_warned = True
