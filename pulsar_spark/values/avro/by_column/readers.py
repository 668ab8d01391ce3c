"""Steps -> readers: functions that read a value of each row into one array."""

from __future__ import annotations

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
    if isinstance(step, steps.ListStep):
        return _list_reader(step)
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


def _list_reader(step: steps.ListStep) -> Reader:
    read_item = reader(step.item)
    found = finder(step, is_charged=True, is_read_later=True)

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        growing = GrowingArray(step.item.type)

        def take(at: Ints, owner: Ints) -> None:
            growing.add(read_item(payloads, at, owner if rows is None else rows[owner])[0])

        offsets, after = found.find(payloads, position, rows, take)
        items, begins = growing.finish(), pa.array(offsets)
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
        for index, constant in step.constants:
            columns[index] = constant.repeated(count)
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
