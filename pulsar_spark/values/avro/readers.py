"""Steps -> readers: functions that read a value of each row into one array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.avro import leaves, steps
from pulsar_spark.values.avro.items import ItemsReader
from pulsar_spark.values.avro.leaves import Reader
from pulsar_spark.values.avro.payloads import AvroPayloads, Rows
from pulsar_spark.values.avro.varints import read_varints
from pulsar_spark.values.avro.walk import AvroValue, BadAvroError, walker

Places: TypeAlias = "npt.NDArray[np.int32]"

_FEW_BRANCHES = 16  # which are looked for one after the other


def reader(step: steps.Step) -> Reader:
    """Make the reader of a step."""
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
    if isinstance(step, steps.RecursiveStep):
        return _recursive_reader(step)
    return _union_reader(step) if isinstance(step, steps.UnionStep) else _member_reader(step)


def _array_reader(step: steps.ArrayStep) -> Reader:
    kind = step.type
    items = ItemsReader(
        reader(step.item),
        walker(step.item),
        None if kind is None else kind.value_type,
        steps.fixed_width(step.item),
        steps.is_varint(step.item),
        steps.item_cost(step.item),
    )

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        offsets, array, after = items.read(payloads, position, rows)
        if kind is None:
            return None, after
        return pa.ListArray.from_arrays(pa.array(offsets), array, type=kind), after

    return read


def _map_reader(step: steps.MapStep) -> Reader:
    kind = step.type
    entry = None if kind is None else pa.struct([("key", kind.key_type), ("value", kind.item_type)])
    both = steps.RecordStep(entry, (("key", step.key, 0), ("value", step.value, 1)), {})
    items = ItemsReader(reader(both), walker(both), entry, None, False, steps.item_cost(step.value))

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        offsets, array, after = items.read(payloads, position, rows)
        if kind is None:
            return None, after
        keys, values = array.flatten()
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values, type=kind), after

    return read


def _record_reader(step: steps.RecordStep) -> Reader:
    kind = step.type
    fields = [(reader(field), index) for _, field, index in step.fields]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        count = len(position)
        columns: dict[int, pa.Array] = {}
        for read_field, index in fields:
            column, position = read_field(payloads, position, rows)
            if index >= 0:
                columns[index] = column
        if kind is None:
            return None, position
        for index, constant in step.constants.items():
            columns[index] = _repeated(constant, count)
        return _struct([columns[i] for i in range(kind.num_fields)], kind, count), position

    return read


def _recursive_reader(step: steps.RecursiveStep) -> Reader:
    walk = walker(step)

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        after = position.copy()
        whole = payloads.bytes.data
        for i in range(len(position)):
            row = i if rows is None else int(rows[i])
            end = int(payloads.end[row])
            value = AvroValue(whole, end, int(payloads.credit[row]))
            try:
                after[i] = walk(value, int(position[i]))
            except BadAvroError:
                payloads.bad[row] = True
                after[i] = end
            payloads.credit[row] = value.credit
        return None, after

    return read


def _union_reader(step: steps.UnionStep) -> Reader:
    if any(isinstance(each, steps.MemberStep) for each in step.branches):
        return _members_reader(step)
    kind = step.type
    branches = [None if isinstance(each, str) else reader(each) for each in step.branches]
    is_null = [isinstance(each, steps.NullStep) for each in step.branches]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        which, after = read_varints(payloads, position, rows)
        count = len(position)
        place = np.full(count, -1, np.int32)
        parts = []
        base = 0
        for number, mine in _by_branch(which, len(branches)):
            read_branch = branches[number] if 0 <= number < len(branches) else None
            if read_branch is None:
                _fail(payloads, rows, mine, count)
                continue
            if len(mine) == count:
                return read_branch(payloads, after, rows)
            if is_null[number]:
                continue
            part, after[mine] = read_branch(payloads, after[mine], mine if rows is None else rows[mine])
            place[mine] = np.arange(base, base + len(mine), dtype=np.int32)
            base += len(mine)
            parts.append(part)
        return None if kind is None else _placed(parts, place, kind), after

    return read


def _members_reader(step: steps.UnionStep) -> Reader:
    """Read a union into a struct with a column for each member, each of which is made once."""
    kind = step.type
    assert kind is not None
    branches = [reader(each.inner) if isinstance(each, steps.MemberStep) else None for each in step.branches]
    indexes = [each.index if isinstance(each, steps.MemberStep) else -1 for each in step.branches]
    is_null = [isinstance(each, steps.NullStep) for each in step.branches]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        which, after = read_varints(payloads, position, rows)
        count = len(position)
        is_valid = np.zeros(count, np.bool_)
        parts: dict[int, list[pa.Array]] = {}
        places: dict[int, Places] = {}
        for number, mine in _by_branch(which, len(branches)):
            read_branch = branches[number] if 0 <= number < len(branches) else None
            if read_branch is None:
                if not (0 <= number < len(branches) and is_null[number]):
                    _fail(payloads, rows, mine, count)
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


def _by_branch(which: Ints, branches: int) -> Iterator[tuple[int, Ints]]:
    """The numbers of branches that there are, wrong ones too, and the indexes of their rows."""
    if branches > _FEW_BRANCHES:
        order = np.argsort(which, kind="stable")
        numbers, starts = np.unique(which[order], return_index=True)
        if len(which):
            yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)
        return
    left = len(which)
    for number in range(branches):
        if not left:
            return
        mine = np.flatnonzero(which == number)
        if len(mine):
            left -= len(mine)
            yield number, mine
    if left:
        yield -1, np.flatnonzero((which < 0) | (which >= branches))


def _fail(payloads: AvroPayloads, rows: Rows, wrong: Ints, count: int) -> None:
    """Make some of ``count`` rows bad."""
    flags = np.zeros(count, np.bool_)
    flags[wrong] = True
    payloads.fail(rows, flags)


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
