"""The columns that rows have of their payloads: one way for each format of values, chosen once a read.

Owns what becomes of bad rows. Must not know how values are decoded, nor of record batches.
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
from pulsar_spark.spark.rows.metadata_columns import CORRUPT_VALUE
from pulsar_spark.spark.rows.schema import VALUE, RowColumns

_log = logging.getLogger(__name__)

_NULL = pa.scalar(None, pa.binary())


class BadRows(Enum):
    """What becomes of rows whose payload cannot be read by the schema; in Spark's words."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class PayloadColumns(NamedTuple):
    """What n payloads are in rows.

    Attributes:
        rows: n.
        columns: by name, n rows each; it may have more than are wanted.
        left_out: bool[n], the rows that are left out; None where none is.
    """

    rows: int
    columns: Mapping[str, pa.Array]
    left_out: npt.NDArray[np.bool_] | None = None


class PayloadReader(Protocol):
    """Makes columns of payloads."""

    def read(self, messages: DecodedMessages) -> Iterator[PayloadColumns]:
        """The columns of at least one message, in parts; raises what the format says of bad rows.

        No part is kept when the next one is made.
        """
        ...


class RawValues:
    """Payloads as they are: the column ``value``, where it is wanted."""

    def __init__(self, columns: RowColumns) -> None:
        self._is_wanted = VALUE in columns.schema.names

    def read(self, messages: DecodedMessages) -> Iterator[PayloadColumns]:
        """The column ``value``, in one part."""
        yield PayloadColumns(len(messages), {VALUE: messages.value} if self._is_wanted else {})


class SchemaValues:
    """Payloads read by their topic's schema.

    Args:
        reader: gives values of the columns' target.
        columns: of the rows.
        bad_rows: what becomes of those that cannot be read.
    """

    def __init__(self, reader: TypedValueReader, columns: RowColumns, bad_rows: BadRows) -> None:
        self._reader = reader
        self._has_fields = columns.has_fields
        self._has_corrupt = CORRUPT_VALUE in columns.metadata
        self._has_warned = False
        self._bad_rows = bad_rows

    def read(self, messages: DecodedMessages) -> Iterator[PayloadColumns]:
        """The fields of the payloads, or one column ``value``; parts as those of the reader.

        Raises:
            SchemaError: the first row that cannot be read, in the mode FAILFAST.
            SchemaChangedError: as :meth:`pulsar_spark.client.TypedValueReader.read`.
        """
        return map(partial(self._columns, messages), self._reader.read(messages))

    def _columns(self, messages: DecodedMessages, values: TypedValues) -> PayloadColumns:
        column = values.column
        if self._has_fields:
            columns = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
        else:
            columns = {VALUE: column}
        if values.is_bad is None:
            return PayloadColumns(len(column), columns)
        self._report(messages, values, values.is_bad)
        if self._bad_rows is BadRows.DROPMALFORMED:
            return PayloadColumns(len(column), columns, values.is_bad)
        if self._has_corrupt:
            # A bad key may come without a payload; null would say that the row is good.
            given = pc.coalesce(values.payloads, values.keys, pa.scalar(b""))
            columns[CORRUPT_VALUE] = pc.replace_with_mask(given, pa.array(~values.is_bad), _NULL)
        return PayloadColumns(len(column), columns)

    def _report(self, messages: DecodedMessages, values: TypedValues, is_bad: npt.NDArray[np.bool_]) -> None:
        is_fatal = self._bad_rows is BadRows.FAILFAST
        first = values.error(int(is_bad.argmax()), is_fatal=is_fatal)
        if is_fatal:
            raise first
        fate = "are left out" if self._bad_rows is BadRows.DROPMALFORMED else "have null in their columns"
        # A topic may have many of them: one warning a task, or they hide all else.
        _log.log(
            logging.DEBUG if self._has_warned else logging.WARNING,
            "%s: %d of %d messages cannot be read and %s; first: %s",
            *(messages.topic, np.count_nonzero(is_bad), len(is_bad), fate, first),
        )
        self._has_warned = True
