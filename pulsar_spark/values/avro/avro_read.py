"""Decodes AVRO payloads to a column, one field of all rows at a time.

Each step (see ``steps``) becomes a Reader, a function that decodes one value of each row. A Reader receives
the positions of the values in the payloads, and their rows. It returns the values as an array, and the
positions after the values. The array is None if the query does not need the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints, gather, joined, offsets_of, parts_by_size
from pulsar_spark.errors import SchemaError
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro import avro_types, steps
from pulsar_spark.values.avro.check_value import AvroValue, BadAvroError, Walker, walker
from pulsar_spark.values.avro.items import ItemsFinder
from pulsar_spark.values.avro.payloads import AvroPayloads, Rows, read_short_varints, read_spans, read_varints
from pulsar_spark.values.avro.resolve import resolve
from pulsar_spark.values.avro.value_ends import ends_finder, fail_some, rows_by_branch
from pulsar_spark.values.interfaces import DecodedValues, ValueDecoder
from pulsar_spark.values.primitives import decode_texts
from pulsar_spark.values.time_units import MAX_LONG
from pulsar_spark.values.value_bounds import (
    ANY_WORK,
    ValueCost,
    ValueRoom,
    ValueWork,
    largest_unchecked,
    max_growth,
    rows_to_check,
    too_large,
)

# One call decodes up to _MAX_ROWS rows and _MIN_BYTES, so that they fit into the processor's caches. If fewer
# than _MIN_ROWS rows would fit, it decodes more, up to _MAX_BYTES, because each numpy call has an overhead.
_MAX_ROWS = 16_384
_MIN_ROWS = 1_000
_MIN_BYTES = 1 << 20
_MAX_BYTES = 8 << 20
_WORD = (1 << 64) - 1

Reader: TypeAlias = Callable[[AvroPayloads, Ints, Rows], "tuple[pa.Array, Ints]"]


def decoder(writer: Schema, reader: Schema, target: pa.DataType) -> ValueDecoder:
    """Returns the decoder of values of one schema version as values of another; see ``formats.decoder``.

    Avro's rules of schema resolution apply, with two differences: a field that the writer lacks and that has
    no default is null, and names of records need not be equal. A value is bad if bytes remain after it, or if
    its arrays have more items of 0 bytes than the value has bytes.
    """
    wanted = avro_types.parse(reader)
    step = resolve(wanted if writer == reader else avro_types.parse(writer), wanted, target)
    return _AvroDecoder(step, target, _read_offset(writer))


class _AvroDecoder:
    """A :class:`ValueDecoder` of AVRO payloads; ``offset``: size in bytes of the header before each value."""

    def __init__(self, step: steps.Step, type: pa.DataType, offset: int) -> None:  # noqa: A002
        self.type = type
        items = ((steps.item_size(each), least) for each, least in steps.lists(step))
        self.cost = ValueCost(steps.added_text(step), max_growth(items))
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
            raise too_large(values, error) from None
        return DecodedValues(column, bad if bad.any() else None)

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        if value is None or len(value) < self._offset:
            return f"the value is shorter than the {self._offset} bytes that come before it"
        try:
            end = self._walk(_value_of(value), self._offset)
        except BadAvroError as error:
            return f"{error.where}{error.why}"
        return f"{len(value) - end} bytes remain after the value"

    def _is_good(self, payload: bytes, row: int, work: ValueWork) -> bool:
        """Whether a payload is a valid value within its limits of memory and work."""
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
def _reader(step: steps.Step, _type: pa.DataType) -> Reader:
    """Returns one reader for all schema versions with equal steps and with columns of type ``_type``."""
    return _reader_of(step)


def _value_of(payload: bytes, work: float = math.inf) -> AvroValue:
    return AvroValue(payload, len(payload), len(payload), ValueRoom(len(payload)), work)


def _slices(values: pa.BinaryArray) -> Iterator[tuple[int, int]]:
    """Yields, for each call of ``_decode``, the index of its first row, and the index after its last row."""
    if not len(values):
        return iter(())
    offsets = offsets_of(values)
    size = _MIN_ROWS * int(offsets[-1] - offsets[0]) // len(values)
    return parts_by_size(offsets, min(max(_MIN_BYTES, size), _MAX_BYTES), _MAX_ROWS)


def _read_offset(writer: Schema) -> int:
    text = writer.properties.get(avro_types.READ_OFFSET, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise SchemaError(
            f"property {avro_types.READ_OFFSET} of the topic's schema is {text[:100]!a}, which is not a "
            "number"
        )
    return int(text)


def _null_reader(step: steps.NullStep) -> Reader:
    return lambda _payloads, position, _rows: (pa.nulls(len(position), step.type), position)


def _boolean_reader(step: steps.BooleanStep) -> Reader:
    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        after = payloads.limit(position + 1, rows)
        value = payloads.bytes[position]
        wrong = value > 1
        if wrong.any():
            payloads.fail(rows, wrong)
        return pa.array(value.astype(np.bool_)), after

    return read


def _integer_reader(step: steps.IntegerStep) -> Reader:
    kind = step.type
    assert kind is not None
    least, most = step.bounds

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        value, after = read_varints(payloads, position, rows)
        if kind.bit_width == 32 and step.is_int:
            narrow = value.astype(np.int32)
            wrong = narrow != value
        else:
            wrong = (value > most) | (value < least) if most < MAX_LONG else None
        if wrong is not None and wrong.any():
            payloads.fail(rows, wrong)
            value = np.where(wrong, 0, value)
        value = step.unit.to_column(value)
        if step.through_float:
            value = value.astype(np.float32)
        if pa.types.is_floating(kind):
            return pa.array(value.astype(np.float32 if kind.bit_width == 32 else np.float64)), after
        array = pa.array(narrow if kind.bit_width == 32 else value)
        return array if array.type.equals(kind) else array.view(kind), after

    return read


def _float_reader(step: steps.FloatStep) -> Reader:
    kind = step.type
    is_wider = kind is not None and kind.bit_width > 8 * step.size

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        after = payloads.limit(position + step.size, rows)
        value: npt.NDArray[Any] = (payloads.doubles if step.size == 8 else payloads.floats)[position]
        if is_wider:
            with np.errstate(invalid="ignore"):  # numpy would warn of a signalling NaN, which remains a NaN
                value = value.astype(np.float64)
        return pa.array(value), after

    return read


def _bytes_reader(step: steps.BytesStep) -> Reader:
    kind = step.type
    size = step.size

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        if size is None:
            start, end = read_spans(payloads, position, rows)
        else:
            start, end = position, payloads.limit(position + size, rows)
        if pa.types.is_decimal(kind):
            return _decimals(payloads, start, end, rows, kind), end
        raw = gather(payloads.buffer, start, end, None)
        if not step.is_text:
            return raw, end
        found = decode_texts(raw)
        text = found.column
        if found.is_bad is not None:
            payloads.fail(rows, found.is_bad)
            text = text.fill_null("")  # not null, because the value may be the key of a map
        return (text if pa.types.is_string(kind) else raw), end

    return read


def _enum_reader(step: steps.EnumStep) -> Reader:
    symbols = pa.array([*step.symbols, None], pa.string())
    if step.type is not None:
        symbols = symbols.cast(step.type)
    count = len(step.symbols)
    has_unknown = None in step.symbols

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        index, after = read_varints(payloads, position, rows)
        wrong = (index < 0) | (index >= count)
        if wrong.any():
            payloads.fail(rows, wrong)
            index = np.where(wrong, count, index)
        array = symbols.take(pa.array(index))
        if has_unknown and array.null_count:
            payloads.fail(rows, array.is_null().to_numpy(zero_copy_only=False))
        return array, after

    return read


def _decimals(
    payloads: AvroPayloads, start: Ints, end: Ints, rows: Rows, kind: pa.Decimal128Type
) -> pa.Array:
    """Reads big-endian two's complement of any size; numbers beyond the precision are bad."""
    size = end - start
    wrong = size == 0
    low = _number(payloads, end, size)
    high = low >> 63
    if (size > 8).any():
        high = np.where(size > 8, _number(payloads, end - 8, size - 8), high)
        for i in np.flatnonzero(size > 16):
            value = payloads.bytes[start[i] : end[i]].tobytes()
            wrong[i] = value[:-16].strip(b"\xff" if value[-16] >= 0x80 else b"\x00") != b""
    most = 10**kind.precision - 1
    wrong |= _is_above(low, high, most) | _is_above(~low, ~high, most - 1)  # ~x is -x - 1
    if wrong.any():
        payloads.fail(rows, wrong)
    parts = np.stack((low, high), axis=1)
    parts[wrong] = 0
    return pa.Array.from_buffers(kind, len(size), [None, pa.py_buffer(parts)])


def _number(payloads: AvroPayloads, end: Ints, size: Ints) -> Ints:
    """Reads ``size`` bytes before ``end``, at most the last 8, as a big-endian signed number; 0 if none."""
    whole = payloads.words[end - 8].byteswap().view(np.int64)
    unused = (8 - np.clip(size, 1, 8)) * 8
    return np.where(size > 0, (whole << unused) >> unused, 0)


def _is_above(low: Ints, high: Ints, bound: int) -> Flags:
    equal = low.view(np.uint64) > np.uint64(bound & _WORD)
    above: Flags = (high > bound >> 64) | ((high == bound >> 64) & equal)
    return above


def _reader_of(step: steps.Step) -> Reader:
    return _unwanted_reader(step) if step.type is None else _READERS[type(step)](step)


def _unwanted_reader(step: steps.Step) -> Reader:
    find = ends_finder(step)

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        return None, payloads.limit(find(payloads, position, rows), rows)

    return read


def _list_reader(step: steps.ListStep) -> Reader:
    read_item = _reader_of(step.item)
    found = ItemsFinder(step, ends_finder(step.item, is_read_later=True), is_charged=True)

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        parts: list[pa.Array] = []

        def take(at: Ints, owner: Ints) -> None:
            parts.append(read_item(payloads, at, owner if rows is None else rows[owner])[0])

        offsets, after = found.find(payloads, position, rows, take)
        items = joined(parts) if parts else pa.array([], step.item.type)
        begins = pa.array(offsets)
        if step.is_map:
            return pa.MapArray.from_arrays(begins, *items.flatten(), type=step.type), after
        return pa.ListArray.from_arrays(begins, items, type=step.type), after

    return read


def _record_reader(step: steps.RecordStep) -> Reader:
    kind = step.type
    assert kind is not None
    fields = [(_reader_of(field.step), field.index) for field in step.fields]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        count = len(position)
        columns: dict[int, pa.Array] = {}
        for read_field, index in fields:
            column, position = read_field(payloads, position, rows)
            if index >= 0:
                columns[index] = column
        if step.reason:
            payloads.fail(rows, np.ones(count, np.bool_))
            return pa.nulls(count, kind), position
        for index, constant in step.constants:
            columns[index] = constant.repeated(count)
        return _struct([columns[i] for i in range(kind.num_fields)], kind, count), position

    return read


def _union_reader(step: steps.UnionStep) -> Reader:
    """Returns the reader of a union; it makes one struct array for all branches, not one for each."""
    kind = step.type
    assert kind is not None
    is_struct = any(isinstance(each, steps.MemberStep) for each in step.branches)
    branches: list[Reader | None] = []
    for each in step.branches:
        inner = each.inner if isinstance(each, steps.MemberStep) else each
        branches.append(None if isinstance(inner, str) else _reader_of(inner))
    is_null = [isinstance(each, steps.NullStep) for each in step.branches]
    columns = [each.index if isinstance(each, steps.MemberStep) else 0 for each in step.branches]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        which, after = read_short_varints(payloads, position, rows)
        count = len(position)
        is_valid = np.zeros(count, np.bool_)
        parts: dict[int, list[pa.Array]] = {}
        places: dict[int, npt.NDArray[np.int32]] = {}
        for number, mine in rows_by_branch(which, len(branches)):
            read_branch = branches[number] if 0 <= number < len(branches) else None
            if read_branch is None:
                fail_some(payloads, rows, mine, count)
                continue
            if is_null[number]:
                continue
            if len(mine) == count and not is_struct:
                return read_branch(payloads, after, rows)
            part, after[mine] = read_branch(payloads, after[mine], mine if rows is None else rows[mine])
            is_valid[mine] = True
            index = columns[number]
            if index >= 0:
                place = places.setdefault(index, np.full(count, -1, np.int32))
                base = sum(map(len, parts.setdefault(index, [])))
                place[mine] = np.arange(base, base + len(mine), dtype=np.int32)
                parts[index].append(part)
        if not is_struct:
            return (_placed(parts[0], places[0]) if parts else pa.nulls(count, kind)), after
        fields = [
            _placed(parts[i], places[i]) if i in parts else pa.nulls(count, field.type)
            for i, field in enumerate(kind)
        ]
        validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
        return pa.Array.from_buffers(kind, count, [validity], children=fields), after

    return read


def _member_reader(step: steps.MemberStep) -> Reader:
    read_inner = _reader_of(step.inner)
    kind = step.type

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        inner, after = read_inner(payloads, position, rows)
        count = len(position)
        columns = [inner if i == step.index else pa.nulls(count, field.type) for i, field in enumerate(kind)]
        return _struct(columns, kind, count), after

    return read


def _placed(parts: list[pa.Array], place: npt.NDArray[np.int32]) -> pa.Array:
    """Concatenates the parts, and returns the rows at the indexes ``place``; index -1 gives null."""
    whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return whole.take(pa.array(place, mask=place < 0))


def _struct(columns: list[pa.Array], kind: pa.StructType, count: int) -> pa.StructArray:
    if not columns:
        return pa.Array.from_buffers(kind, count, [None])
    return pa.StructArray.from_arrays(columns, fields=list(kind))


_READERS: Final[dict[type[steps.Step], Callable[[Any], Reader]]] = {
    steps.NullStep: _null_reader,
    steps.BooleanStep: _boolean_reader,
    steps.IntegerStep: _integer_reader,
    steps.FloatStep: _float_reader,
    steps.BytesStep: _bytes_reader,
    steps.EnumStep: _enum_reader,
    steps.ListStep: _list_reader,
    steps.RecordStep: _record_reader,
    steps.UnionStep: _union_reader,
    steps.MemberStep: _member_reader,
}
