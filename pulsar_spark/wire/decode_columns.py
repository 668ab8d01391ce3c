"""Fields -> Arrow arrays: the rules for nulls, and one copy of the bytes for each column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from pulsar_spark.wire import keys_and_texts
from pulsar_spark.wire.arrays import with_nulls
from pulsar_spark.wire.fields.alike_headers import AlikeHeaders
from pulsar_spark.wire.fields.field_spans import Fields, Flags, Ints
from pulsar_spark.wire.fields.field_walk import every
from pulsar_spark.wire.fields.grid import Grid, copy_spans, items_at

Readable: TypeAlias = "bytes | bytearray | memoryview"


class Numbers(NamedTuple):
    """The field numbers of one kind of metadata."""

    key: int
    event_time: int
    key_is_base64: int
    ordering_key: int
    sequence_id: int
    null_value: int
    null_key: int


class DecodedColumns:
    """Messages by column, as in :class:`~pulsar_spark.wire.message_columns.MessageColumns`.

    A column is made when it is first requested. Rules: :func:`batches.decode_batches`.

    Args:
        body: bytes that contain the spans of the fields.
        fields: positions of the fields.
        numbers: the number of each field.
        held: indexes of the selected rows, ascending; None: all.
        value: values of all rows if they are not in ``body``; only with ``held`` None.

    Raises:
        CorruptError: a key flagged as base64 is not base64.
    """

    def __init__(
        self,
        body: pa.Buffer,
        fields: Fields,
        numbers: Numbers,
        held: Ints | None = None,
        value: pa.BinaryArray | None = None,
    ) -> None:
        self._body = body
        self._fields = fields
        self._numbers = numbers
        self._held = held
        self._value = value
        if flag(fields, numbers.key_is_base64) is not None:
            _ = self.key  # so that a key that cannot be decoded is always found

    def __len__(self) -> int:
        return len(self._fields.start) if self._held is None else len(self._held)

    @cached_property
    def value(self) -> pa.BinaryArray:
        """``binary``; null means a tombstone."""
        if self._value is not None:
            return self._value
        fields, (at, end) = self._fields, self._fields.value
        null = flag(fields, self._numbers.null_value)
        grid = None if fields.grid is None else fields.grid.moved(int(at[0]))
        return gather(self._body, at, end, None if null is None else ~null, self._held, grid)

    @cached_property
    def key(self) -> pa.BinaryArray:
        """``binary``; null means no key."""
        fields, numbers, held = self._fields, self._numbers, self._held
        keys = self._span(numbers.key, flag(fields, numbers.null_key))
        base64_text = flag(fields, numbers.key_is_base64)
        if keys is None:
            return pa.nulls(len(self), pa.binary())
        if base64_text is None:
            return keys
        return keys_and_texts.decode_keys(keys, base64_text if held is None else base64_text[held])

    @cached_property
    def event_time(self) -> pa.Int64Array | None:
        """``int64`` in ms since the epoch, null if unset; None if no message has one."""
        return _signed(self._fields, self._numbers.event_time, self._held)

    @cached_property
    def properties(self) -> pa.MapArray | None:
        """``map<string, string>``, null-free; None if no message has any."""
        fields = self._fields
        if fields.alike is None:
            return _properties(self._body, fields, self._held)
        return _alike_properties(self._held_of(fields.alike)) if fields.alike.layout.properties else None

    @cached_property
    def ordering_key(self) -> pa.BinaryArray | None:
        """``binary``, null if unset; None if no message has one."""
        return self._span(self._numbers.ordering_key, None)

    @cached_property
    def sequence_id(self) -> pa.Int64Array | None:
        """``int64``, null if unset; None if no message has one."""
        return _signed(self._fields, self._numbers.sequence_id, self._held)

    def rows(self, rows: Ints) -> DecodedColumns:
        """The messages at the given indexes, which ascend; their values must be in ``body``."""
        held = rows if self._held is None else self._held[rows]
        return DecodedColumns(self._body, self._fields, self._numbers, held)

    def _held_of(self, alike: AlikeHeaders) -> AlikeHeaders:
        return alike if self._held is None else alike.held(self._held)

    def _span(self, number: int, null: Flags | None) -> pa.BinaryArray | None:
        """A field of bytes, null where it is unset or ``null``; None if no message has it."""
        alike = self._fields.alike
        if alike is not None:
            if number not in alike.layout.spans:
                return None
            column = self._held_of(alike).column(number)
            if null is None:
                return column
            return with_nulls(column, null if self._held is None else null[self._held])
        if number not in self._fields.spans:
            return None
        at, end, has = self._fields.spans[number]
        if not has.any():
            return None
        return gather(self._body, at, end, has if null is None else has & ~null, self._held)


def joined_buffer(parts: Sequence[Readable]) -> pa.Buffer:
    """Join bytes; a single part is not copied.

    The memory is Arrow's, which reuses freed memory; Python's would be mapped page by page each time.
    """
    if len(parts) == 1:
        return pa.py_buffer(parts[0])
    whole = pa.allocate_buffer(sum(len(part) for part in parts))
    view = memoryview(whole).cast("B")
    at = 0
    for part in parts:
        view[at : at + len(part)] = part
        at += len(part)
    return whole


def gather(
    body: pa.Buffer,
    at: Ints,
    end: Ints,
    has: Flags | None,
    held: Ints | None = None,
    grid: Grid | None = None,
) -> pa.BinaryArray:
    """Copy the spans [at, end) of the body into one array; ``at`` must ascend and spans not overlap.

    Spans of one size are copied as items. Otherwise the body is viewed as a binary array whose even elements
    are the spans, and whose odd elements are the bytes between them. One ``take`` of the even elements then
    copies all spans, in twice the time.

    Args:
        body: bytes that contain the spans.
        at: where they begin.
        end: where they end.
        has: whether there is one, else it is null; None: all are there.
        held: indexes of the selected spans, ascending; None: all.
        grid: that of ``at``, if it is known.
    """
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    if has is None or every(has):
        size = int(end[0] - at[0])
        if size and every(end - at == size):
            return _of_one_size(body, at if held is None else at[held], size, grid if held is None else None)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = at
    offsets[1::2] = end
    spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), body])
    even = np.arange(0, 2 * count, 2, dtype=np.int32) if held is None else (2 * held).astype(np.int32)
    absent = None if has is None or every(has) else ~(has if held is None else has[held])
    return spans.take(pa.array(even, mask=absent))


def _of_one_size(body: pa.Buffer, at: Ints, size: int, grid: Grid | None) -> pa.BinaryArray:
    """Copy spans that all have ``size`` bytes, at least one."""
    if grid is not None:
        return copy_spans(body, grid, [(0, size)])
    items = items_at(body, at, np.dtype((np.void, size)))
    offsets = np.arange(len(at) + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(pa.binary(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(items)])


def flag(fields: Fields, number: int) -> Flags | None:
    """The messages that have the bool field set to true; None if none has."""
    if number not in fields.numbers:
        return None
    true = fields.numbers[number][0] != 0
    return true if true.any() else None


def _signed(fields: Fields, number: int, held: Ints | None) -> pa.Int64Array | None:
    """A number of the rows ``held``, null if unset; None if no message has it."""
    if number not in fields.numbers:
        return None
    values, has = fields.numbers[number]
    if not has.any():
        return None
    if held is not None:
        values, has = values[held], has[held]
    return pa.array(values, mask=None if has.all() else ~has)


def _properties(body: pa.Buffer, fields: Fields, held: Ints | None) -> pa.MapArray | None:
    if fields.properties is None:
        return None
    row, key, key_end, value, value_end = fields.properties
    per_message = np.bincount(row, minlength=len(fields.start))
    chosen = None
    if held is not None:
        chosen = np.flatnonzero(np.isin(row, held))
        per_message = per_message[held]
    offsets = np.zeros(len(per_message) + 1, np.int32)
    np.cumsum(per_message, out=offsets[1:])
    names = keys_and_texts.to_strings(gather(body, key, key_end, None, chosen))
    values = keys_and_texts.to_strings(gather(body, value, value_end, None, chosen))
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def _alike_properties(headers: AlikeHeaders) -> pa.MapArray:
    each = len(headers.layout.properties)
    offsets = np.arange(0, (len(headers) + 1) * each, each, dtype=np.int32)
    names = keys_and_texts.to_strings(headers.property_names())
    values = keys_and_texts.to_strings(headers.property_values())
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)
