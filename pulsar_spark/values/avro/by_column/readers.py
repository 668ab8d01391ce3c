"""Steps -> readers: functions that read a value of each row into one array."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.arrow.growing_array import GrowingArray
from pulsar_spark.values.avro import steps
from pulsar_spark.values.avro.by_column import leaves
from pulsar_spark.values.avro.by_column.branches import fail_some, rows_by_branch
from pulsar_spark.values.avro.by_column.extents import extent, finder
from pulsar_spark.values.avro.by_column.leaves import Reader
from pulsar_spark.values.avro.by_column.payloads import AvroPayloads, Rows
from pulsar_spark.values.avro.by_column.varints import read_short_varints

Places: TypeAlias = "npt.NDArray[np.int32]"


def reader(step: steps.Step) -> Reader:
    """Make the reader of a step; its array is None where values are not wanted."""
    if step.type is None:
        return _unwanted_reader(step)
    if isinstance(step, steps.NullStep):
        return leaves.null_reader(step)
    if isinstance(step, steps.BooleanStep):
        return leaves.boolean_reader(step)
    if isinstance(step, steps.IntegerStep):
        return leaves.integer_reader(step)
    if isinstance(step, steps.FloatStep):
        return leaves.float_reader(step)
    if isinstance(step, steps.BytesStep):
        return leaves.bytes_reader(step)
    if isinstance(step, steps.EnumStep):
        return leaves.enum_reader(step)
    if isinstance(step, steps.ArrayStep):
        return _array_reader(step)
    if isinstance(step, steps.MapStep):
        return _map_reader(step)
    if isinstance(step, steps.RecordStep):
        return _record_reader(step)
    if isinstance(step, steps.UnionStep):
        return _union_reader(step)
    assert isinstance(step, steps.MemberStep)
    return _member_reader(step)


def _unwanted_reader(step: steps.Step) -> Reader:
    find = extent(step)

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        return None, payloads.limit(find(payloads, position, rows), rows)

    return read


def _array_reader(step: steps.ArrayStep) -> Reader:
    kind = step.type
    assert kind is not None
    items = _items_reader(step, reader(step.item), kind.value_type)

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        offsets, array, after = items(payloads, position, rows)
        return pa.ListArray.from_arrays(offsets, array, type=kind), after

    return read


def _map_reader(step: steps.MapStep) -> Reader:
    kind = step.type
    assert kind is not None
    entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
    both = steps.RecordStep(entry, (("key", step.key, 0), ("value", step.value, 1)), {})
    items = _items_reader(step, reader(both), entry)

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        offsets, array, after = items(payloads, position, rows)
        keys, values = array.flatten()
        return pa.MapArray.from_arrays(offsets, keys, values, type=kind), after

    return read


def _items_reader(
    step: steps.ArrayStep | steps.MapStep, read_item: Reader, kind: pa.DataType
) -> Callable[[AvroPayloads, Ints, Rows], tuple[pa.Array, pa.Array, Ints]]:
    """Make what gives where the items of each row begin, the items of all, and the positions after them."""
    found = finder(step, is_charged=True, is_read_later=True)

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, pa.Array, Ints]:
        items = GrowingArray(kind)

        def take(at: Ints, owner: Ints) -> None:
            items.add(read_item(payloads, at, owner if rows is None else rows[owner])[0])

        offsets, after = found.find(payloads, position, rows, take)
        return pa.array(offsets), items.finish(), after

    return read


def _record_reader(step: steps.RecordStep) -> Reader:
    kind = step.type
    assert kind is not None
    fields = [(reader(field), index) for _, field, index in step.fields]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        count = len(position)
        columns: dict[int, pa.Array] = {}
        for read_field, index in fields:
            column, position = read_field(payloads, position, rows)
            if index >= 0:
                columns[index] = column
        for index, constant in step.constants.items():
            columns[index] = _repeated(constant, count)
        return _struct([columns[i] for i in range(kind.num_fields)], kind, count), position

    return read


def _union_reader(step: steps.UnionStep) -> Reader:
    if any(isinstance(each, steps.MemberStep) for each in step.branches):
        return _members_reader(step)
    kind = step.type
    branches = [None if isinstance(each, str) else reader(each) for each in step.branches]
    is_null = [isinstance(each, steps.NullStep) for each in step.branches]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        which, after = read_short_varints(payloads, position, rows)
        count = len(position)
        first = int(which[0]) if count else -1
        read_first = branches[first] if 0 <= first < len(branches) else None
        if read_first is not None and (which == first).all():
            return read_first(payloads, after, rows)
        place = np.full(count, -1, np.int32)
        parts = []
        base = 0
        for number, mine in rows_by_branch(which, len(branches)):
            read_branch = branches[number] if 0 <= number < len(branches) else None
            if read_branch is None:
                fail_some(payloads, rows, mine, count)
                continue
            if is_null[number]:
                continue
            part, after[mine] = read_branch(payloads, after[mine], mine if rows is None else rows[mine])
            place[mine] = np.arange(base, base + len(mine), dtype=np.int32)
            base += len(mine)
            parts.append(part)
        return _placed(parts, place, kind), after

    return read


def _members_reader(step: steps.UnionStep) -> Reader:
    """Read a union into a struct with a column for each member, each of which is made once."""
    kind = step.type
    assert kind is not None
    branches = [reader(each.inner) if isinstance(each, steps.MemberStep) else None for each in step.branches]
    indexes = [each.index if isinstance(each, steps.MemberStep) else -1 for each in step.branches]
    is_null = [isinstance(each, steps.NullStep) for each in step.branches]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        which, after = read_short_varints(payloads, position, rows)
        count = len(position)
        is_valid = np.zeros(count, np.bool_)
        parts: dict[int, list[pa.Array]] = {}
        places: dict[int, Places] = {}
        for number, mine in rows_by_branch(which, len(branches)):
            read_branch = branches[number] if 0 <= number < len(branches) else None
            if read_branch is None:
                if not (0 <= number < len(branches) and is_null[number]):
                    fail_some(payloads, rows, mine, count)
                continue
            part, after[mine] = read_branch(payloads, after[mine], mine if rows is None else rows[mine])
            is_valid[mine] = True
            index = indexes[number]
            if index >= 0:
                place = places.setdefault(index, np.full(count, -1, np.int32))
                base = sum(map(len, parts.setdefault(index, [])))
                place[mine] = np.arange(base, base + len(mine), dtype=np.int32)
                parts[index].append(part)
        columns = [
            _placed(parts[i], places[i], field.type) if i in parts else pa.nulls(count, field.type)
            for i, field in enumerate(kind)
        ]
        validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
        return pa.Array.from_buffers(kind, count, [validity], children=columns), after

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


def _placed(parts: list[pa.Array], place: Places, kind: pa.DataType) -> pa.Array:
    """A row for each place, in the parts one after the other; null for -1."""
    if not parts:
        return pa.nulls(len(place), kind)
    whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return whole.take(pa.array(place, mask=place < 0))


def _struct(columns: list[pa.Array], kind: pa.StructType, count: int) -> pa.StructArray:
    if not columns:
        return pa.Array.from_buffers(kind, count, [None])
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _repeated(constant: pa.Array, count: int) -> pa.Array:
    if constant.null_count:
        return pa.nulls(count, constant.type)
    return constant.take(pa.array(np.zeros(count, np.int32)))
