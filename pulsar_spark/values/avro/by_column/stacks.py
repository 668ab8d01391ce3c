"""Fields of one kind in a record, of few rows: found one after the other, and read together.

A call of numpy costs the same for one value as for a thousand. So where a record has many fields, and few
rows fit into memory, the calls of each field cost more than its values do. Where a value ends takes few
calls; all others are made once, for the values of all fields that are alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Final

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.avro import steps
from pulsar_spark.values.avro.by_column.extents import UNCHECKED, Extent, extent
from pulsar_spark.values.avro.by_column.leaves import Reader
from pulsar_spark.values.avro.by_column.payloads import AvroPayloads, Rows

FEW_TO_STACK: Final = 2_000  # rows; with more, each field by itself takes less time
_MIN_FIELDS: Final = 4  # of one kind
_MAX_VALUES: Final = 1 << 17  # that are read together; of each are some numbers on the way


class Stacks:
    """Reads the fields of a record.

    Args:
        fields: for each field of the writer what reads it, and its index in the struct; or what finds where
            it ends, and its number in the stacks.
        kinds: what reads the values of each stack, and the indexes of its fields in the struct, in order.
    """

    def __init__(
        self,
        fields: list[tuple[Reader, int] | tuple[Extent, None, int]],
        kinds: list[tuple[Reader, list[int]]],
    ) -> None:
        self._fields = fields
        self._kinds = kinds

    def read(self, payloads: AvroPayloads, position: Ints, rows: Rows, columns: dict[int, pa.Array]) -> Ints:
        """Read the record at each position into columns; returns the positions after them."""
        found: list[list[Ints]] = [[] for _ in self._kinds]
        since = 0
        for field in self._fields:
            if len(field) == 3:
                find, _, number = field
                found[number].append(position)
                position = find(payloads, position, rows)
                since += 1
                if since == UNCHECKED:
                    position, since = payloads.limit(position, rows), 0
                continue
            read, index = field
            column, position = read(payloads, payloads.limit(position, rows), rows)
            since = 0
            if index >= 0:
                columns[index] = column
        position = payloads.limit(position, rows)
        height = max(_MIN_FIELDS, _MAX_VALUES // max(1, len(position)))
        for starts, (read, indexes) in zip(found, self._kinds, strict=True):
            for first in range(0, len(starts), height):
                some = slice(first, first + height)
                _read_stack(payloads, starts[some], rows, read, indexes[some], columns)
        return position


def _read_stack(
    payloads: AvroPayloads,
    starts: list[Ints],
    rows: Rows,
    read: Reader,
    indexes: list[int],
    columns: dict[int, pa.Array],
) -> None:
    count, height = len(starts[0]), len(starts)
    # Row by row, as positions must ascend; where a row was found to be bad, they may be after its end.
    ends = payloads.ends(rows)
    at = np.minimum(np.stack(starts, axis=1), ends[:, np.newaxis]).ravel()
    whose = np.repeat(np.arange(count) if rows is None else rows, height)
    values, _ = read(payloads, at, whose)
    order = np.arange(count * height, dtype=np.int32).reshape(count, height).T.ravel()
    values = values.take(pa.array(order))
    for number, index in enumerate(indexes):
        columns[index] = values[number * count : (number + 1) * count]


def make_stacks(step: steps.RecordStep, reader: Callable[[steps.Step], Reader]) -> Stacks | None:
    """Make what reads the fields of a record in stacks; None where too few are alike."""
    keys = [steps.step_key(field) if _is_short(field) else None for _, field, _ in step.fields]
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        if key is not None:
            alike[key].append(number)
    numbers = {
        key: number for number, key in enumerate(key for key, own in alike.items() if len(own) >= _MIN_FIELDS)
    }
    if not numbers:
        return None
    fields: list[tuple[Reader, int] | tuple[Extent, None, int]] = []
    for key, (_, field, index) in zip(keys, step.fields, strict=True):
        if key in numbers:
            fields.append((extent(field, is_read_later=True), None, numbers[key]))
        else:
            fields.append((reader(field), index))
    kinds = [
        (reader(step.fields[alike[key][0]][1]), [step.fields[each][2] for each in alike[key]])
        for key in numbers
    ]
    return Stacks(fields, kinds)


def _is_short(step: steps.Step) -> bool:
    """Whether it takes few calls to find where a value ends that is wanted."""
    if step.type is None:
        return False
    if isinstance(step, steps.UnionStep):
        inner = [each for each in step.branches if not isinstance(each, str | steps.NullStep)]
        return len(inner) == 1 < len(step.branches) and _is_short(inner[0])
    return isinstance(
        step, steps.IntegerStep | steps.FloatStep | steps.BooleanStep | steps.EnumStep | steps.BytesStep
    )
