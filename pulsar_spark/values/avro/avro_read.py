"""Values of kind AVRO -> a column of the reader's type, all rows of a field at a time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import joined, offsets_of, parts_by_size
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro import avro_types
from pulsar_spark.values.avro.check_value import AvroValue, BadAvroError, Walker, walker
from pulsar_spark.values.avro.payloads import AvroPayloads
from pulsar_spark.values.avro.readers import Reader
from pulsar_spark.values.avro.readers import reader as reader_of
from pulsar_spark.values.avro.resolve import resolve
from pulsar_spark.values.avro.steps import Step, added_text, item_size, lists
from pulsar_spark.values.interfaces import DecodedValues, ValueDecoder
from pulsar_spark.values.value_bounds import (
    ANY_WORK,
    ValueCost,
    ValueRoom,
    ValueWork,
    largest_unchecked,
    max_growth,
    rows_to_check,
)

# Property with the number of bytes before the value; adaptors of Kafka and Debezium write a header there.
READ_OFFSET = "__AVRO_READ_OFFSET__"

# Limits of one call, so that its values fit into the processor's caches. Calls with large values have about
# _MIN_ROWS rows, or up to _MAX_BYTES, because each numpy call has an overhead.
_MAX_ROWS = 16_384
_MIN_ROWS = 1_000
_MIN_BYTES = 1 << 20
_MAX_BYTES = 8 << 20


def decoder(writer: Schema, reader: Schema, target: pa.DataType) -> ValueDecoder:
    """Makes the decoder of values of one schema version as values of another; see ``formats.decoder``.

    Avro's rules of schema resolution apply, with two differences: a field that the writer lacks and that has
    no default is null, and names of records need not be equal. A value is bad if bytes remain after it, or if
    its arrays have more items without bytes than it has bytes.
    """
    wanted = avro_types.parse(reader)
    step = resolve(wanted if writer == reader else avro_types.parse(writer), wanted, target)
    return AvroDecoder(step, target, _read_offset(writer))


class AvroDecoder:
    """A :class:`ValueDecoder` of AVRO.

    Args:
        offset: bytes before each value.
    """

    def __init__(self, step: Step, type: pa.DataType, offset: int) -> None:  # noqa: A002
        self.type = type
        items = ((item_size(each), least) for each, least in lists(step))
        self.cost = ValueCost(added_text(step), max_growth(items))
        self._step = step
        self._read = _reader(step, type)
        self._unchecked = largest_unchecked(self.cost.growth)
        self._offset = offset
        self.plan: Hashable = (self._read, offset)

    @cached_property
    def _walk(self) -> Walker:
        return walker(self._step)

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ANY_WORK
    ) -> DecodedValues:
        """Decodes n values; see :class:`ValueDecoder`.

        Raises:
            UnsupportedError: the texts of a column have more than 2 GiB.
        """
        try:
            parts = [
                self._decode(values[first:last], work.part(slice(first, last)))
                for first, last in _slices(values)
            ]
            if not parts:
                return DecodedValues(pa.array([], self.type))
            bad = np.concatenate([bad for _, bad in parts])
            columns = [column for column, _ in parts]
            parts.clear()
            column = joined(columns)
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            raise UnsupportedError(
                f"{len(values)} values are too large for one Arrow column: {error}",
                advice="Read fewer rows at a time, or read the topic with valueFormat=raw",
            ) from None
        return DecodedValues(column, bad if bad.any() else None)

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        """Returns the path of the first mistake in a bad value, and the mistake."""
        if value is None or len(value) < self._offset:
            return f"the value is shorter than the {self._offset} bytes that come before it"
        try:
            end = self._walk(_value_of(value), self._offset)
        except BadAvroError as error:
            return f"{error.where}{error.why}"
        return f"{len(value) - end} bytes remain after the value"

    def _is_good(self, payload: bytes, row: int, work: ValueWork) -> bool:
        """Whether a payload is a valid value that exceeds neither its limit of memory nor that of work."""
        value = _value_of(payload, left := work.left(row))
        is_good = True
        try:
            self._walk(value, self._offset)
        except BadAvroError:
            is_good = False
        return work.take(row, left - value.work) and is_good

    def _decode(self, values: pa.BinaryArray, work: ValueWork) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """Decodes values in one call; returns the column and flags of the bad rows."""
        payloads = AvroPayloads(values, work)
        position = payloads.start + self._offset
        is_read = position <= payloads.end
        for row in rows_to_check(values, self._unchecked).tolist():
            is_read[row] &= self._is_good(values[row].as_py(), row, work)
        if values.null_count:
            is_null = values.is_null().to_numpy(zero_copy_only=False)
            payloads.bad[:] = ~is_read & ~is_null
            is_read &= ~is_null
        else:
            payloads.bad[:] = ~is_read
        rows = None if is_read.all() else np.flatnonzero(is_read)
        if rows is not None:
            position = position[rows]
        column, after = self._read(payloads, position, rows)
        payloads.fail(rows, after != payloads.ends(rows))
        if rows is None and not payloads.bad.any():
            return column, payloads.bad
        # ``take`` with a null index also makes the fields of the null row null.
        place = np.full(len(values), -1, np.int32)
        place[is_read] = np.arange(len(position), dtype=np.int32)
        place[payloads.bad] = -1
        return column.take(pa.array(place, mask=place < 0)), payloads.bad


@lru_cache(maxsize=256)
def _reader(step: Step, _type: pa.DataType) -> Reader:
    """Returns one reader for all schema versions with equal steps and with columns of type ``_type``."""
    return reader_of(step)


def _value_of(payload: bytes, work: float = math.inf) -> AvroValue:
    return AvroValue(payload, len(payload), len(payload), ValueRoom(len(payload)), work)


def _slices(values: pa.BinaryArray) -> Iterator[tuple[int, int]]:
    """Yields the first and the end row of each slice that is decoded in one call."""
    if not len(values):
        return iter(())
    offsets = offsets_of(values)
    size = _MIN_ROWS * int(offsets[-1] - offsets[0]) // len(values)
    return parts_by_size(offsets, min(max(_MIN_BYTES, size), _MAX_BYTES), _MAX_ROWS)


def _read_offset(writer: Schema) -> int:
    text = writer.properties.get(READ_OFFSET, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise SchemaError(
            f"property {READ_OFFSET} of the topic's schema is {text[:100]!a}, which is not a number"
        )
    return int(text)
