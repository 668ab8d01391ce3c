"""Steps -> readers: functions that read a value of each row into one array.

A reader receives positions and their rows, and returns the values as an array, and the positions after the
values. The array is None if the values are not wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints, joined
from pulsar_spark.arrow.spans import gather
from pulsar_spark.values.avro import steps
from pulsar_spark.values.avro.items import ItemsFinder
from pulsar_spark.values.avro.payloads import AvroPayloads, Rows, read_short_varints, read_spans, read_varints
from pulsar_spark.values.avro.steps import BooleanStep, BytesStep, EnumStep, FloatStep, IntegerStep, NullStep
from pulsar_spark.values.avro.value_ends import ends_finder, fail_some, rows_by_branch
from pulsar_spark.values.primitives import decode_texts
from pulsar_spark.values.time_units import MAX_LONG

Reader: TypeAlias = Callable[[AvroPayloads, Ints, Rows], "tuple[pa.Array, Ints]"]

_WORD = (1 << 64) - 1


def _null_reader(step: NullStep) -> Reader:
    kind = step.type

    def read(_: AvroPayloads, position: Ints, __: Rows) -> tuple[pa.Array, Ints]:
        return pa.nulls(len(position), kind), position

    return read


def _boolean_reader(step: BooleanStep) -> Reader:
    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        after = payloads.limit(position + 1, rows)
        value = payloads.bytes[position]
        wrong = value > 1
        if wrong.any():
            payloads.fail(rows, wrong)
        return pa.array(value.astype(np.bool_)), after

    return read


def _integer_reader(step: IntegerStep) -> Reader:
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


def _float_reader(step: FloatStep) -> Reader:
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


def _bytes_reader(step: BytesStep) -> Reader:
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
        if step.is_text:
            text = _text(payloads, raw, rows)
            return (text if pa.types.is_string(kind) else raw), end
        return raw, end

    return read


def _enum_reader(step: EnumStep) -> Reader:
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


def _text(payloads: AvroPayloads, raw: pa.BinaryArray, rows: Rows) -> pa.StringArray:
    found = decode_texts(raw)
    if found.is_bad is None:
        return found.column
    payloads.fail(rows, found.is_bad)
    return found.column.fill_null("")  # not null, because the value may be the key of a map


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
    wrong |= _is_above(low, high, most) | _is_below(low, high, -most)
    if wrong.any():
        payloads.fail(rows, wrong)
    parts = np.stack((low, high), axis=1)
    parts[wrong] = 0
    return pa.Array.from_buffers(kind, len(size), [None, pa.py_buffer(parts)])


def _number(payloads: AvroPayloads, end: Ints, size: Ints) -> Ints:
    """Returns the last ``size`` of the 8 bytes before ``end`` as a signed number; 0 if the size is 0."""
    whole = payloads.words[end - 8].byteswap().view(np.int64)
    unused = (8 - np.clip(size, 1, 8)) * 8
    return np.where(size > 0, (whole << unused) >> unused, 0)


def _is_above(low: Ints, high: Ints, bound: int) -> Flags:
    equal = low.view(np.uint64) > np.uint64(bound & _WORD)
    above: Flags = (high > bound >> 64) | ((high == bound >> 64) & equal)
    return above


def _is_below(low: Ints, high: Ints, bound: int) -> Flags:
    equal = low.view(np.uint64) < np.uint64(bound & _WORD)
    below: Flags = (high < bound >> 64) | ((high == bound >> 64) & equal)
    return below


Places: TypeAlias = "npt.NDArray[np.int32]"


def reader(step: steps.Step) -> Reader:
    """Makes the reader of a step."""
    return _unwanted_reader(step) if step.type is None else _READERS[type(step)](step)


def _unwanted_reader(step: steps.Step) -> Reader:
    find = ends_finder(step)

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        return None, payloads.limit(find(payloads, position, rows), rows)

    return read


def _list_reader(step: steps.ListStep) -> Reader:
    read_item = reader(step.item)
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
    fields = [(reader(field.step), field.index) for field in step.fields]

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
    """Makes the reader of a union, which makes the struct of members once, not once for each branch."""
    kind = step.type
    assert kind is not None
    is_struct = any(isinstance(each, steps.MemberStep) for each in step.branches)
    branches: list[Reader | None] = []
    for each in step.branches:
        inner = each.inner if isinstance(each, steps.MemberStep) else each
        branches.append(None if isinstance(inner, str) else reader(inner))
    is_null = [isinstance(each, steps.NullStep) for each in step.branches]
    columns = [each.index if isinstance(each, steps.MemberStep) else 0 for each in step.branches]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        which, after = read_short_varints(payloads, position, rows)
        count = len(position)
        is_valid = np.zeros(count, np.bool_)
        parts: dict[int, list[pa.Array]] = {}
        places: dict[int, Places] = {}
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
    read_inner = reader(step.inner)
    kind = step.type

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        inner, after = read_inner(payloads, position, rows)
        count = len(position)
        columns = [inner if i == step.index else pa.nulls(count, field.type) for i, field in enumerate(kind)]
        return _struct(columns, kind, count), after

    return read


def _placed(parts: list[pa.Array], place: Places) -> pa.Array:
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
