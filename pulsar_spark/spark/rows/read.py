"""Entries -> Arrow record batches of :class:`schema.RowColumns`: the rows that Spark reads.

Each read has one PayloadReader, chosen by ``valueFormat``, which also handles bad rows. Columns besides key
and value must cost almost no CPU. Small record batches are joined, because sending a batch takes about 2 ms,
as long as 10,000 rows of 100 bytes. This module neither decodes entries or values nor uses a Spark session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.client import (
    DecodedMessages,
    RangeEntries,
    TypedValueReader,
    TypedValues,
    decode_entries,
    now,
    parts_by_size,
)
from pulsar_spark.errors import assert_never
from pulsar_spark.spark.rows.schema import CORRUPT_VALUE, IS_NULL, MAX_ROWS, VALUE, RowColumns

_log = logging.getLogger(__name__)


class BadRows(Enum):
    """Treatment of rows whose payload the schema cannot decode, named as in Spark's option ``mode``."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class PayloadColumns(NamedTuple):
    """The columns of n payloads.

    Attributes:
        columns: columns by name, n rows each, possibly more than the selected columns.
        left_out: bool[n], True for rows to leave out; None: no row.
    """

    rows: int
    columns: Mapping[str, pa.Array]
    left_out: npt.NDArray[np.bool_] | None = None


# Yields the columns of one or more messages, in parts of consecutive rows. Keeps no reference to a yielded
# part. Raises the format's errors for bad rows.
PayloadReader: TypeAlias = Callable[[DecodedMessages], Iterator[PayloadColumns]]


def raw_values(columns: RowColumns) -> PayloadReader:
    """Returns the reader of payloads without a schema: the column ``value``, if it is selected."""
    is_wanted = VALUE in columns.schema.names
    return lambda messages: iter(
        [PayloadColumns(len(messages), {VALUE: messages.value} if is_wanted else {})]
    )


class SchemaValues:
    """Decodes payloads with their topic's schema."""

    def __init__(self, reader: TypedValueReader, columns: RowColumns, bad_rows: BadRows) -> None:
        self._reader = reader
        self._has_fields = columns.has_fields
        self._has_corrupt = CORRUPT_VALUE in columns.metadata
        self._has_is_null = IS_NULL in columns.metadata
        self._has_warned = False
        self._bad_rows = bad_rows

    def read(self, messages: DecodedMessages) -> Iterator[PayloadColumns]:
        """Yields the fields of the payloads as columns, or one column ``value``.

        Raises:
            SchemaError: a row cannot be decoded, and the mode is FAILFAST; names the first such row.
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
            # A bad row without a payload has its key, or b"", because null in this column means a good row.
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
        # One warning per task, because many warnings would hide all other log lines.
        _log.log(
            logging.DEBUG if self._has_warned else logging.WARNING,
            "%s: %d of %d messages cannot be read and %s; first: %s",
            *(messages.topic, np.count_nonzero(is_bad), len(is_bad), fate, first),
        )
        self._has_warned = True


# A batch is closed at this size or at MAX_ROWS. With half this size, messages of 1 KiB are read 10 % slower.
MAX_BYTES = 6 * 1024 * 1024


_DEFAULT_COLUMNS = RowColumns()


def record_batches(
    ranges: Iterable[RangeEntries],
    *,
    columns: RowColumns = _DEFAULT_COLUMNS,
    values: PayloadReader | None = None,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    leave_out_corrupt: bool = False,
    max_message_size: Callable[[], int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields record batches of the rows of ranges, in order; several short ranges share a batch.

    Args:
        ranges: ranges with their entries; a single one if ``values`` is given.
        values: reader of the payloads; None: the column ``value`` holds their bytes.
        max_rows: number of rows at which a batch is closed; a batch has fewer than twice as many.
        max_bytes: maximum bytes of a batch's entries, uncompressed, with metadata. Only a single larger row
            makes a larger batch.

    Raises:
        CorruptError: an entry cannot be decoded, and ``leave_out_corrupt`` is false; names topic and message
            id.
    """
    assembler = _Assembler(columns, values or raw_values(columns), max_rows, max_bytes)
    decoded = decode_entries(
        ranges,
        max_rows=max_rows,
        max_bytes=max_bytes,
        leave_out_corrupt=leave_out_corrupt,
        max_message_size=max_message_size,
    )
    return chain.from_iterable(map(assembler.record_batches, decoded))


class _Assembler:
    def __init__(self, columns: RowColumns, values: PayloadReader, max_rows: int, max_bytes: int) -> None:
        self._schema = columns.arrow_schema
        self._values = values
        self._makers = columns.makers()
        self._max_rows = max_rows
        self._max_bytes = max_bytes

    def record_batches(self, messages: DecodedMessages) -> Iterator[pa.RecordBatch]:
        """Yields the rows as one record batch; too many rows as several batches that share memory.

        Keeps no reference to a yielded batch. So the caller frees the batch before the next rows are decoded
        into the same memory, which is still in the processor's cache.
        """
        if not len(messages):
            return
        count, first = len(messages), 0
        ends = [count]
        # ``max_bytes`` limits the bytes of the entries; the columns made from them may be larger.
        if count >= 2 * self._max_rows or messages.size >= 2 * self._max_bytes:
            sizes = pc.fill_null(pc.binary_length(messages.value), 0).to_numpy()
            offsets = np.append(0, np.cumsum(sizes, dtype=np.int64))
            ends = [stop for _, stop in parts_by_size(offsets, self._max_bytes, self._max_rows)]
        made: dict[str, pa.Array] = {}
        read = self._values(messages)
        while first < count:
            rows, columns, left_out = next(read)
            for name in self._schema.names:
                if name not in columns and name not in made:
                    made[name] = self._makers[name](messages)
            arrays = [
                columns[name] if name in columns else made[name].slice(first, rows)
                for name in self._schema.names
            ]
            batch = (
                pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else _without_columns(rows)
            )
            del arrays
            del columns
            if first + rows == count:
                del messages, read, made
            for begin, end in pairwise([0, *(end - first for end in ends if 0 < end - first < rows), rows]):
                part = batch if end - begin == rows else batch.slice(begin, end - begin)
                yield part if left_out is None else part.filter(pa.array(~left_out[begin:end]))
            first += rows
            del batch, part, left_out


def _without_columns(rows: int) -> pa.RecordBatch:
    """Returns a batch without columns, of which Spark reads only the number of rows."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


# Limits of joined batches.
JOINED_ROWS = 40_000
JOINED_BYTES = 8 << 20
JOINED_SECONDS = 0.1  # maximum time for which batches are collected


def joined(
    batches: Iterable[pa.RecordBatch],
    max_rows: int = JOINED_ROWS,
    max_bytes: int = JOINED_BYTES,
    clock: Callable[[], float] = now,
) -> Iterator[pa.RecordBatch]:
    """Joins consecutive batches, up to a number of rows and bytes; a larger batch is yielded alone.

    The first batch is yielded at once, so a slow task sends its first rows early. Later batches are collected
    up to a limit of rows, bytes or time. Because of the time limit, a replay may have other batches. Batches
    without rows are left out. No reference to a yielded batch is kept.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    began = 0.0
    is_first = True
    for batch in batches:
        if not batch.num_rows:
            continue
        is_late, count, nbytes = clock() - began >= JOINED_SECONDS, batch.num_rows, batch.nbytes
        if held and (is_late or rows + count > max_rows or size + nbytes > max_bytes):
            yield _one(held)
        if not held:
            rows, size, began = 0, 0, clock()
        held.append(batch)
        rows += count
        size += nbytes
        del batch
        if is_first or rows >= max_rows or size >= max_bytes:
            is_first = False
            yield _one(held)
    if held:
        yield _one(held)


def _one(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Joins the held batches, and empties the list."""
    if len(held) == 1:
        return held.pop()
    table = pa.Table.from_batches(held)
    held.clear()
    (whole,) = table.combine_chunks().to_batches()
    return whole
