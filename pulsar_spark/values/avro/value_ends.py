"""Makes functions that find the ends of the values of many rows, without decoding the values.

A value is short if its branch index and its length have one byte each. As most values are short, a few numpy
calls first compute the ends of all values as if they were short. The ends of long values are then corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.avro import steps
from pulsar_spark.values.avro.check_value import BadAvroError, walker
from pulsar_spark.values.avro.items import ItemsFinder
from pulsar_spark.values.avro.payloads import (
    SLACK,
    AvroPayloads,
    Rows,
    read_short_varints,
    read_spans,
    read_varints,
    varint_ends_at,
)

# Receives positions and their rows, returns the positions after the values. A returned position may be up to
# ``_MAX_SHORT`` bytes after the row's end; then ``AvroPayloads.limit`` marks the row bad.
FindEnds: TypeAlias = Callable[[AvroPayloads, Ints, Rows], Ints]
_Bits: TypeAlias = npt.NDArray[np.integer]

_MAX_SHORT: Final = 200  # maximum bytes of a short value; the sum with its branch and length fits into uint8
_UNCHECKED: Final = SLACK // 256  # ``limit`` is called once for this many fields, <= 256 bytes each
_LONG_LENGTH: Final = 0x81  # sign and continuation bit of a length's first byte; a short length has neither
_LONG_BRANCH: Final = 0xFD  # bits of a branch's first byte; all are 0 for the branches 0 and 1


def ends_finder(step: steps.Step, *, is_read_later: bool = False) -> FindEnds:
    """Returns the function that finds the ends of values of a step.

    Args:
        is_read_later: True if a reader reads the values afterwards; then the reader checks them, and counts
            items without bytes.
    """
    width = steps.fixed_width(step)
    if width is not None:
        return _fixed(width)
    if isinstance(step, steps.IntegerStep | steps.EnumStep):
        return varint_ends_at
    if isinstance(step, steps.BytesStep):
        return _sized
    if isinstance(step, steps.ListStep):
        return _items(step, is_read_later=is_read_later)
    if isinstance(step, steps.RecordStep):
        return _record(step, is_read_later=is_read_later)
    if isinstance(step, steps.RecursiveStep):
        return _recursive(step, is_read_later=is_read_later)
    if isinstance(step, steps.MemberStep):
        return ends_finder(step.inner, is_read_later=is_read_later)
    assert isinstance(step, steps.UnionStep)
    return _nullable(step) or _union(step, is_read_later=is_read_later)


def _fixed(width: int) -> FindEnds:
    def find(payloads: AvroPayloads, position: Ints, rows: Rows) -> Ints:
        after: Ints = position + width
        return after if width <= _MAX_SHORT else payloads.limit(after, rows)

    return find


def _sized(payloads: AvroPayloads, position: Ints, rows: Rows) -> Ints:
    first = payloads.bytes[position]
    after: Ints = position + ((first >> 1) + 1)
    _correct(payloads, rows, position, after, first & _LONG_LENGTH, lambda *some: read_spans(*some)[1])
    return after


def _correct(
    payloads: AvroPayloads, rows: Rows, position: Ints, after: Ints, is_long: _Bits, find: FindEnds
) -> None:
    """Replaces the ends in ``after`` by results of ``find`` where ``is_long`` is not 0; skips bad rows."""
    if not np.count_nonzero(is_long):
        return
    long = np.flatnonzero(is_long)
    mine = long if rows is None else rows[long]
    is_bad = payloads.bad[mine]
    if is_bad.any():
        long, mine = long[~is_bad], mine[~is_bad]
    if len(long):
        after[long] = find(payloads, position[long], mine)


def _nullable(step: steps.UnionStep) -> FindEnds | None:
    """Returns the function for a union of null and one type of short values; None for other unions."""
    if len(step.branches) != 2:
        return None
    first, second = step.branches
    if isinstance(first, str) or isinstance(second, str):
        return None
    is_first_null = isinstance(first, steps.NullStep)
    inner = second if is_first_null else first
    if not (is_first_null or isinstance(second, steps.NullStep)):
        return None
    whole = _union(step, is_read_later=True)
    width = steps.fixed_width(inner)
    flip = np.uint8(0 if is_first_null else 1)
    if width is not None and width <= _MAX_SHORT:
        factor = np.uint8(width)

        def find_fixed(payloads: AvroPayloads, position: Ints, rows: Rows) -> Ints:
            branch = payloads.bytes[position]
            after: Ints = position + (((branch >> 1) ^ flip) * factor + 1)
            _correct(payloads, rows, position, after, branch & _LONG_BRANCH, whole)
            return after

        return find_fixed
    while isinstance(inner, steps.MemberStep):
        inner = inner.inner
    if not isinstance(inner, steps.BytesStep) or inner.size is not None:
        return None

    def find_sized(payloads: AvroPayloads, position: Ints, rows: Rows) -> Ints:
        branch = payloads.bytes[position]
        has = (branch >> 1) ^ flip
        length = payloads.bytes[position + 1] * has
        after: Ints = position + ((length >> 1) + has + 1)
        _correct(payloads, rows, position, after, (branch & _LONG_BRANCH) | (length & _LONG_LENGTH), whole)
        return after

    return find_sized


def _union(step: steps.UnionStep, *, is_read_later: bool) -> FindEnds:
    branches: list[FindEnds | None] = []
    for each in step.branches:
        branches.append(None if isinstance(each, str) else ends_finder(each, is_read_later=is_read_later))

    def find(payloads: AvroPayloads, position: Ints, rows: Rows) -> Ints:
        which, after = read_short_varints(payloads, position, rows)
        for number, mine in rows_by_branch(which, len(branches)):
            find_branch = branches[number] if 0 <= number < len(branches) else None
            if find_branch is None:
                fail_some(payloads, rows, mine, len(position))
            else:
                after[mine] = find_branch(payloads, after[mine], mine if rows is None else rows[mine])
        return payloads.limit(after, rows)

    return find


def _record(step: steps.RecordStep, *, is_read_later: bool) -> FindEnds:
    fields = [ends_finder(field.step, is_read_later=is_read_later) for field in step.fields]

    def find(payloads: AvroPayloads, position: Ints, rows: Rows) -> Ints:
        for number, find_field in enumerate(fields, 1):
            position = find_field(payloads, position, rows)
            if number % _UNCHECKED == 0:
                position = payloads.limit(position, rows)
        return payloads.limit(position, rows)

    return find


def _items(step: steps.ListStep, *, is_read_later: bool) -> FindEnds:
    find_item = ends_finder(step.item, is_read_later=is_read_later)
    items = ItemsFinder(step, find_item, is_charged=not is_read_later)
    is_checked = steps.is_varint(step.item) and not is_read_later

    def find(payloads: AvroPayloads, position: Ints, rows: Rows) -> Ints:
        def check(at: Ints, owner: Ints) -> None:
            read_varints(payloads, at, owner if rows is None else rows[owner])

        return items.find(payloads, position, rows, check if is_checked else None)[1]

    return find


def _recursive(step: steps.RecursiveStep, *, is_read_later: bool) -> FindEnds:
    walk = walker(step)

    def find(payloads: AvroPayloads, position: Ints, rows: Rows) -> Ints:
        after: Ints = position.copy()
        for i in range(len(position)):
            row = i if rows is None else int(rows[i])
            value = payloads.value_of(row, int(payloads.credit[row]))
            try:
                after[i] = walk(value, int(position[i]))
            except BadAvroError:
                payloads.bad[row] = True
                after[i] = value.end
            payloads.take_work(row, value)
            if not is_read_later:
                payloads.credit[row] = value.credit
        return after

    return find


_FEW_BRANCHES = 16  # maximum branches that are searched for one by one; more branches are sorted


def rows_by_branch(which: Ints | npt.NDArray[np.int8], branches: int) -> Iterator[tuple[int, Ints]]:
    """Yields each branch index and its positions in ``which``; an invalid index may be yielded as -1."""
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


def fail_some(payloads: AvroPayloads, rows: Rows, wrong: Ints, count: int) -> None:
    """Marks rows bad; ``wrong``: their indexes in ``rows``, which has ``count`` rows."""
    flags = np.zeros(count, np.bool_)
    flags[wrong] = True
    payloads.fail(rows, flags)
