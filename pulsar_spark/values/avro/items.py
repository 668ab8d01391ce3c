"""Items of arrays and entries of maps: blocks of values, of which each row has its own number.

Items whose positions are known without reading them (all of one size, or varints) are read in one call for
all rows. Others are read in waves: item 0 of all rows, then item 1. Where few rows are left, their items are
found one by one, and then read together, since a wave costs the same for one row as for a thousand. So an
item in nested arrays is read at most once for each array that contains it.

A single large value is read some items at a time; temporary arrays are freed before the next items are read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.arrow.growing_array import GrowingArray
from pulsar_spark.values.avro.leaves import Reader
from pulsar_spark.values.avro.payloads import AvroPayloads, Rows
from pulsar_spark.values.avro.varint_ends import VarintEnds
from pulsar_spark.values.avro.varints import read_varints
from pulsar_spark.values.avro.walk import AvroValue, BadAvroError, Walker, read_block

FEW_ROWS = 50  # with this many or fewer, one by one is faster than a wave
# These bound the memory of temporary arrays.
ITEMS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 20
_BLOCKS_AT_ONCE = 1 << 14
_MAX_COUNT = 1 << 32  # no row has this many bytes


class ItemsReader:
    """Reads the items of an array of each row.

    Args:
        read: reads items.
        walk: goes over one item.
        kind: of the items; None where they are not wanted.
        width: bytes of each item, None where they differ.
        is_varint: whether each item is one varint.
        cost: what an item counts beyond its bytes, see ``AvroPayloads.credit``.
    """

    def __init__(
        self,
        read: Reader,
        walk: Walker,
        kind: pa.DataType | None,
        width: int | None,
        is_varint: bool,
        cost: int,
    ) -> None:
        self._read = read
        self._walk = walk
        self._kind = kind
        self._width = width
        self._is_varint = is_varint
        self._cost = cost

    def read(
        self, payloads: AvroPayloads, position: Ints, rows: Rows
    ) -> tuple[npt.NDArray[np.int32], pa.Array, Ints]:
        """Read an array at each position.

        Returns:
            int32[n + 1], where the items of each array begin in the array of all items; that array, None
            where items are not wanted; the positions after the arrays.
        """
        if self._width is not None or self._is_varint:
            return self._read_known(payloads, position, rows)
        count, after = self._blocks(payloads, position, rows)
        total = np.zeros(len(position), np.int64)
        parts: list[pa.Array] = []
        owners: list[Ints] = []
        active = np.flatnonzero(count)
        while len(active) > FEW_ROWS:
            mine = active if rows is None else rows[active]
            part, after[active] = self._read(payloads, after[active], mine)
            parts.append(part)
            owners.append(active)
            total[active] += 1
            count[active] -= 1
            ended = active[count[active] == 0]
            if len(ended):
                ended_rows = ended if rows is None else rows[ended]
                count[ended], after[ended] = self._blocks(payloads, after[ended], ended_rows)
            count[active[payloads.bad[mine]]] = 0
            active = active[count[active] > 0]
        rest = self._one_by_one(payloads, rows, active, count, after, total) if len(active) else None
        offsets = _offsets(total)
        if self._kind is None:
            return offsets, None, after
        return offsets, _in_order(parts, owners, rest, active, offsets, self._kind), after

    def _blocks(self, payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[Ints, Ints]:
        """Read what stands before the items of a block; the number of items is 0 in rows that are bad."""
        count, after = read_varints(payloads, position, rows)
        negative = np.flatnonzero(count < 0)
        if len(negative):
            mine = negative if rows is None else rows[negative]
            _, after[negative] = read_varints(payloads, after[negative], mine)
            count = np.abs(count)
        if self._cost:
            # The number that has no positive counterpart is still negative.
            payloads.charge(rows, np.where(count < 0, _MAX_COUNT, np.minimum(count, _MAX_COUNT)) * self._cost)
        if self._width != 0:
            most = (payloads.ends(rows) - after) // (self._width or 1)
            wrong = (count < 0) | (count > most)
            if wrong.any():
                payloads.fail(rows, wrong)
        return np.where(payloads.is_bad(rows), 0, count), after

    def _one_by_one(
        self, payloads: AvroPayloads, rows: Rows, active: Ints, count: Ints, after: Ints, total: Ints
    ) -> pa.Array | None:
        """Read all further items of some arrays; ``after`` and ``total`` are brought up to date."""
        whole, walk = payloads.bytes.data, self._walk
        items = None if self._kind is None else GrowingArray(self._kind)
        starts, owners = array("i"), array("i")  # of items that are found, and not read yet

        def keep(i: int) -> None:
            total[i] += len(starts) - len(owners)
            owners.extend(repeat(i, len(starts) - len(owners)))

        def read() -> None:
            mine = np.frombuffer(owners, np.int32).astype(np.int64)
            some = np.frombuffer(starts, np.int32).astype(np.int64)
            if items is not None and len(some):
                items.add(self._read(payloads, some, mine if rows is None else rows[mine])[0])

        for i in active.tolist():
            row = i if rows is None else int(rows[i])
            end = int(payloads.end[row])
            value = AvroValue(whole, end, end - int(payloads.start[row]))
            position, left = int(after[i]), int(count[i])
            limit = position + _BYTES_AT_ONCE
            try:
                while left:
                    for _ in range(left):
                        if position > limit or len(starts) == ITEMS_AT_ONCE:
                            limit = position + _BYTES_AT_ONCE
                            keep(i)
                            read()
                            starts, owners = array("i"), array("i")
                        starts.append(position)
                        position = walk(value, position)
                    left, position = read_block(value, position, self._cost)
            except BadAvroError:
                payloads.bad[row] = True
                del starts[len(owners) :]
                position = end
            after[i] = position
            keep(i)
        read()
        return None if items is None else items.finish()

    def _read_known(
        self, payloads: AvroPayloads, position: Ints, rows: Rows
    ) -> tuple[npt.NDArray[np.int32], pa.Array, Ints]:
        """Read items whose positions follow from where their block begins."""
        after = position.copy()
        total = np.zeros(len(position), np.int64)
        blocks = _Blocks()
        active = np.arange(len(position))
        while len(active) > FEW_ROWS:
            mine = active if rows is None else rows[active]
            count, begin = self._blocks(payloads, after[active], mine)
            count, begin, after[active] = self._extent(payloads, begin, count, mine)
            has = count > 0
            active = active[has]
            blocks.add(active, begin[has], count[has])
            total[active] += count[has]
        items = GrowingArray(pa.null() if self._kind is None else self._kind)
        for i in active.tolist():
            row = i if rows is None else int(rows[i])
            more: int | None = int(after[i])
            while more is not None:
                after[i], more = self._blocks_of_one(payloads, row, more, i, blocks, total)
                if blocks.are_many:
                    self._read_blocks(payloads, blocks, rows, items)
                    blocks = _Blocks()
        self._read_blocks(payloads, blocks, rows, items)
        return _offsets(total), None if self._kind is None else items.finish(), after

    def _read_blocks(self, payloads: AvroPayloads, blocks: _Blocks, rows: Rows, items: GrowingArray) -> None:
        """Read the items of blocks."""
        if self._kind is None and not self._is_varint:
            return
        for at, owner in blocks.items(self._width, payloads.varint_ends if self._is_varint else None):
            part, _ = self._read(payloads, at, owner if rows is None else rows[owner])
            if self._kind is not None:
                items.add(part)

    def _extent(
        self, payloads: AvroPayloads, begin: Ints, count: Ints, rows: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Find where blocks end.

        Returns:
            The numbers of items; what finds the items: the position of the first, or which varint it is; and
            the positions after the blocks.
        """
        if self._width is not None:
            return count, begin, begin + count * self._width
        ends = payloads.varint_ends
        index = ends.before(begin)
        last = index + count - 1
        end = ends.places(np.clip(last, 0, len(ends) - 1)) + 1
        wrong = (count > 0) & ((last >= len(ends)) | (end > payloads.end[rows]))
        if wrong.any():
            payloads.fail(rows, wrong)
            count = np.where(wrong, 0, count)
        return count, index, np.where(count > 0, end, begin)

    def _blocks_of_one(
        self, payloads: AvroPayloads, row: int, position: int, owner: int, blocks: _Blocks, total: Ints
    ) -> tuple[int, int | None]:
        """Find blocks of one array, as many as are read together.

        Returns:
            The position after them, and the same if there may be more.
        """
        end = int(payloads.end[row])
        value = AvroValue(payloads.bytes.data, end, int(payloads.credit[row]) if self._cost else 0)
        ends = payloads.varint_ends if self._is_varint else None
        more: int | None = None
        try:
            while True:
                count, begin = read_block(value, position, self._cost)
                if not count:
                    position = begin
                    break
                if ends is None:
                    at, position = begin, begin + count * (self._width or 0)
                else:
                    at = ends.before_one(begin)
                    position = ends.after_one(begin, at, count)
                if position > end:
                    raise BadAvroError("items reach over the end")
                blocks.add_one(owner, at, count)
                total[owner] += count
                if blocks.are_many:
                    more = position
                    break
        except BadAvroError:
            payloads.bad[row] = True
            position = end
        if self._cost:
            payloads.credit[row] = value.credit
        return position, more


class _Blocks:
    """Which items lie where; blocks come in any order, but those of one array in theirs."""

    def __init__(self) -> None:
        self._waves: list[tuple[Ints, Ints, Ints]] = []
        self._ones = (array("q"), array("q"), array("q"))

    def add(self, owner: Ints, at: Ints, count: Ints) -> None:
        """Add one block of each of some arrays."""
        self._waves.append((owner, at, count))

    def add_one(self, owner: int, at: int, count: int) -> None:
        """Add one block; after all that come with others."""
        for column, number in zip(self._ones, (owner, at, count), strict=True):
            column.append(number)

    @property
    def are_many(self) -> bool:
        """Whether to read them before more are added; those of waves are put in order with the others."""
        return len(self._ones[0]) >= _BLOCKS_AT_ONCE and not self._waves

    def items(self, width: int | None, ends: VarintEnds | None) -> Iterator[tuple[Ints, Ints]]:
        """Positions of items and whose they are, in the order of arrays, some at a time."""
        ones = tuple(np.frombuffer(column, np.int64) for column in self._ones)
        owner, at, count = (np.concatenate(columns) for columns in zip(*self._waves, ones, strict=True))
        if len(self._waves) > 1 or len(ones[0]):
            order = np.argsort(owner, kind="stable")
            owner, at, count = owner[order], at[order], count[order]
        upto = np.cumsum(count)
        before = upto - count
        total = int(upto[-1]) if len(upto) else 0
        for first in range(0, total, ITEMS_AT_ONCE):
            index = np.arange(first, min(first + ITEMS_AT_ONCE, total))
            block = np.searchsorted(upto, index, side="right")
            index -= before[block]
            if ends is None:
                yield at[block] + index * (width or 0), owner[block]
            else:
                # Before an item is the last byte of another, or of the number of items.
                yield ends.places(at[block] + index - 1) + 1, owner[block]


def _offsets(total: Ints) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(total) + 1, np.int32)
    np.cumsum(total, out=offsets[1:])
    return offsets


def _in_order(
    waves: list[pa.Array],
    owners: list[Ints],
    rest: pa.Array | None,
    rest_owners: Ints,
    offsets: npt.NDArray[np.int32],
    kind: pa.DataType,
) -> pa.Array:
    """Bring items into the order of their arrays: wave k has the k-th items, the rest all that come later."""
    parts = waves if rest is None else [*waves, rest]
    if len(parts) < 2:
        return parts[0] if parts else pa.array([], kind)
    whole = pa.concat_arrays(parts)
    order = np.empty(len(whole), np.int32)
    base = 0
    for k, owner in enumerate(owners):
        order[offsets[owner] + k] = np.arange(base, base + len(owner), dtype=np.int32)
        base += len(owner)
    if rest is not None:
        # Arrays of the rest were in all waves.
        late = np.zeros(len(whole), np.bool_)
        for i in rest_owners.tolist():
            late[offsets[i] + len(waves) : offsets[i + 1]] = True
        order[late] = np.arange(base, len(whole), dtype=np.int32)
    return whole.take(pa.array(order))
