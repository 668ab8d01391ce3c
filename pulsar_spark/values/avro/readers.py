"""Steps -> readers: functions that read a value of each row into one array."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.avro import leaves, steps
from pulsar_spark.values.avro.items import ItemsReader
from pulsar_spark.values.avro.leaves import Reader
from pulsar_spark.values.avro.payloads import AvroPayloads, Rows
from pulsar_spark.values.avro.varints import read_varints
from pulsar_spark.values.avro.walk import walker


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


def _union_reader(step: steps.UnionStep) -> Reader:
    kind = step.type
    branches = [None if isinstance(each, str) else reader(each) for each in step.branches]
    is_null = [isinstance(each, steps.NullStep) for each in step.branches]

    def read(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[pa.Array, Ints]:
        which, after = read_varints(payloads, position, rows)
        count = len(position)
        place = np.full(count, -1, np.int32)
        unread = np.ones(count, np.bool_)
        parts = []
        base = 0
        for i, read_branch in enumerate(branches):
            mine = np.flatnonzero(which == i)
            if read_branch is None or not len(mine):
                continue
            if len(mine) == count:
                return read_branch(payloads, after, rows)
            unread[mine] = False
            if is_null[i]:
                continue
            part, after[mine] = read_branch(payloads, after[mine], mine if rows is None else rows[mine])
            place[mine] = np.arange(base, base + len(mine), dtype=np.int32)
            base += len(mine)
            parts.append(part)
        if unread.any():
            payloads.fail(rows, unread)
        if kind is None:
            return None, after
        if not parts:
            return pa.nulls(count, kind), after
        whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return whole.take(pa.array(place, mask=place < 0)), after

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


def _struct(columns: list[pa.Array], kind: pa.StructType, count: int) -> pa.StructArray:
    if not columns:
        return pa.Array.from_buffers(kind, count, [None])
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _repeated(constant: pa.Array, count: int) -> pa.Array:
    if constant.null_count:
        return pa.nulls(count, constant.type)
    return constant.take(pa.array(np.zeros(count, np.int32)))
