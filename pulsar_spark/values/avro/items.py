"""Finds the positions of the items of arrays and of the entries of maps, which are stored in blocks.

If items have a fixed size or are varints, one call finds the items of a block in each row, because their
positions follow from the block's start. Other items are found in waves: the first wave is one call, which
finds item 0 of each row; the second wave finds item 1. When few rows are left, their items are found one by
one, because even a wave of one row takes as long as about 64 single items, and longer if items contain
arrays. Found items are decoded about ``ITEMS_AT_ONCE`` at a time, which bounds temporary arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Ints, offsets_from
from pulsar_spark.values.avro.check_value import BLOCK_WORK, BadAvroError, read_block, walker
from pulsar_spark.values.avro.payloads import AvroPayloads, Rows, VarintEnds, read_varints
from pulsar_spark.values.avro.steps import ListStep, fixed_width, is_varint, item_cost, item_work, lists

# Maximum rows whose items are found one by one, not in waves; higher if items contain arrays.
FEW_ROWS = 64
# Maximum rows whose blocks are found one by one, if the items have one size or are varints.
_FEW_KNOWN = 12
ITEMS_AT_ONCE = 1 << 16  # maximum items that a ``Take`` receives in one call, which bounds temporary arrays
_BYTES_AT_ONCE = 1 << 20  # bytes of items that are found one by one, before these items are decoded
_BLOCKS_AT_ONCE = 1 << 14  # blocks that are found one by one, before their items are decoded
_MAX_COUNT = 1 << 32  # caps item counts, so count * cost cannot overflow; exceeds any ``AvroPayloads.credit``

# Receives the positions of items, sorted by array, and for each item the index of its array.
Take: TypeAlias = Callable[[Ints, Ints], None]


class ItemsFinder:
    """Finds the items of the arrays or maps that begin at given positions.

    Args:
        find: function that returns the ends of items; see ``value_ends.FindEnds``.
        is_charged: True to subtract ``steps.item_cost`` of each item from ``AvroPayloads.credit``.
    """

    def __init__(
        self, step: ListStep, find: Callable[[AvroPayloads, Ints, Rows], Ints], *, is_charged: bool
    ) -> None:
        item = step.item
        self._find = find
        self._walk = walker(item)
        self._width = fixed_width(item)
        self._is_varint = is_varint(item)
        self._cost = item_cost(item) if is_charged else 0
        self._work = item_work(item)
        self._few = FEW_ROWS * (1 + sum(1 for _ in lists(item)))

    def find(
        self, payloads: AvroPayloads, position: Ints, rows: Rows, take: Take | None
    ) -> tuple[npt.NDArray[np.int32], Ints]:
        """Finds the items of an array at each position.

        Args:
            take: receives all items, some at a time; None: only the ends of arrays are needed.

        Returns:
            int32[n + 1], the index of each array's first item among all items; the positions after the
            arrays.
        """
        if self._width is not None or self._is_varint:
            total, after = self._find_known(payloads, position, rows, take)
        else:
            total, after = self._find_in_waves(payloads, position, rows, take)
        return offsets_from(total, np.int32), after

    def _blocks(self, payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[Ints, Ints]:
        """Reads the item counts of blocks; returns counts, 0 in bad rows, and positions of first items."""
        count, after = read_varints(payloads, position, rows)
        negative = np.flatnonzero(count < 0)
        if len(negative):
            mine = negative if rows is None else rows[negative]
            _, after[negative] = read_varints(payloads, after[negative], mine)
            count = np.abs(count)
        if self._cost:
            # np.abs(-2 ** 63) is still negative; such a count is charged as _MAX_COUNT.
            payloads.charge(rows, np.where(count < 0, _MAX_COUNT, np.minimum(count, _MAX_COUNT)) * self._cost)
        if self._width != 0:
            most = (payloads.ends(rows) - after) // (self._width or 1)
            wrong = (count < 0) | (count > most)
            if wrong.any():
                payloads.fail(rows, wrong)
        return np.where(payloads.is_bad(rows), 0, count), after

    # ---- items of different sizes

    def _find_in_waves(
        self, payloads: AvroPayloads, position: Ints, rows: Rows, take: Take | None
    ) -> tuple[Ints, Ints]:
        count, after = self._blocks(payloads, position, rows)
        total = np.zeros(len(position), np.int64)
        waves: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]] = []
        active = np.flatnonzero(count)
        while len(active) > self._few:
            mine = active if rows is None else rows[active]
            payloads.count_wave(mine, self._few * self._work)
            start = after[active]
            if take is not None:
                waves.append((active.astype(np.int32), start.astype(np.int32)))
            after[active] = payloads.limit(self._find(payloads, start, mine), mine)
            total[active] += 1
            count[active] -= 1
            ended = active[count[active] == 0]
            if len(ended):
                ended_rows = ended if rows is None else rows[ended]
                count[ended], after[ended] = self._blocks(payloads, after[ended], ended_rows)
            count[active[payloads.bad[mine]]] = 0
            active = active[count[active] > 0]
        rest = _Rest(take if not waves else None)
        for i in active.tolist():
            row = i if rows is None else int(rows[i])
            after[i] = self._one_by_one(payloads, row, i, int(count[i]), int(after[i]), total, rest)
        rest.take_all()
        if take is not None and waves:
            _take_in_order(waves, rest, total, take)
        return total, after

    def _one_by_one(
        self, payloads: AvroPayloads, row: int, owner: int, left: int, position: int, total: Ints, rest: _Rest
    ) -> int:
        """Finds the remaining items of one array, one by one; returns the position after the array."""
        walk = self._walk
        value = payloads.value_of(row, int(payloads.end[row] - payloads.start[row]))
        limit = position + _BYTES_AT_ONCE
        starts, found = rest.starts, len(rest.starts)
        try:
            while left:
                value.work -= BLOCK_WORK + left * self._work
                if value.work < 0:
                    raise BadAvroError("it has too many items")
                for _ in range(left):
                    if position > limit or len(starts) - found == ITEMS_AT_ONCE:
                        limit = position + _BYTES_AT_ONCE
                        total[owner] += len(starts) - found
                        rest.add(owner)
                        rest.take_all()
                        found = len(starts)
                    starts.append(position)
                    position = walk(value, position)
                left, position = read_block(value, position, self._cost)
        except BadAvroError:
            payloads.bad[row] = True
            del starts[found:]
            position = value.end
        payloads.take_work(row, value)
        total[owner] += len(starts) - found
        rest.add(owner)
        return position

    # ---- items whose positions follow from the start of their block

    def _find_known(
        self, payloads: AvroPayloads, position: Ints, rows: Rows, take: Take | None
    ) -> tuple[Ints, Ints]:
        after = position.copy()
        total = np.zeros(len(position), np.int64)
        blocks = _Blocks()
        active = np.arange(len(position))
        while len(active) > _FEW_KNOWN:
            mine = active if rows is None else rows[active]
            payloads.count_wave(mine, _FEW_KNOWN * BLOCK_WORK)
            count, begin = self._blocks(payloads, after[active], mine)
            count, begin, after[active] = self._block_ends(payloads, begin, count, mine)
            has = count > 0
            active = active[has]
            blocks.add(active, begin[has], count[has])
            total[active] += count[has]
        for i in active.tolist():
            row = i if rows is None else int(rows[i])
            more: int | None = int(after[i])
            while more is not None:
                after[i], more = self._blocks_of_one(payloads, row, more, i, blocks, total)
                if blocks.are_many:
                    self._take_blocks(payloads, blocks, take)
                    blocks = _Blocks()
        self._take_blocks(payloads, blocks, take)
        return total, after

    def _take_blocks(self, payloads: AvroPayloads, blocks: _Blocks, take: Take | None) -> None:
        if take is not None:
            for at, owner in blocks.items(self._width, payloads.varint_ends if self._is_varint else None):
                take(at, owner)

    def _block_ends(
        self, payloads: AvroPayloads, begin: Ints, count: Ints, rows: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Returns each block's number of items, position of the first item, and position after the block.

        For varints, the second array has the index of the first item's end in ``varint_ends``.
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
        """Finds blocks of one array, until the array ends or ``blocks.are_many``.

        Returns the position after the blocks, and the next block's position; None: the array has ended.
        """
        value = payloads.value_of(row, int(payloads.credit[row]) if self._cost else 0)
        end = value.end
        ends = payloads.varint_ends if self._is_varint else None
        more: int | None = None
        try:
            while True:
                count, begin = read_block(value, position, self._cost)
                if not count:
                    position = begin
                    break
                value.work -= BLOCK_WORK
                if value.work < 0:
                    raise BadAvroError("it has too many blocks")
                if ends is None:
                    at, position = begin, begin + count * (self._width or 0)
                else:
                    at = ends.before_one(begin)
                    position = ends.after_one(at, count)
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
        payloads.take_work(row, value)
        if self._cost:
            payloads.credit[row] = value.credit
        return position, more


class _Blocks:
    """The blocks of many arrays, added in any order of arrays, but in order within an array."""

    def __init__(self) -> None:
        self._waves: list[tuple[Ints, Ints, Ints]] = []
        self._ones = (array("q"), array("q"), array("q"))

    def add(self, owner: Ints, at: Ints, count: Ints) -> None:
        self._waves.append((owner, at, count))

    def add_one(self, owner: int, at: int, count: int) -> None:
        for column, number in zip(self._ones, (owner, at, count), strict=True):
            column.append(number)

    @property
    def are_many(self) -> bool:
        """Whether enough blocks are here to read; False after ``add``, because then all must be sorted."""
        return len(self._ones[0]) >= _BLOCKS_AT_ONCE and not self._waves

    def items(self, width: int | None, ends: VarintEnds | None) -> Iterator[tuple[Ints, Ints]]:
        """Yields the positions of items, sorted by array, and for each item the index of its array."""
        ones = tuple(np.frombuffer(column, np.int64) for column in self._ones)
        owner, at, count = (np.concatenate(columns) for columns in zip(*self._waves, ones, strict=True))
        if len(self._waves) > 1 or len(ones[0]):
            order = np.argsort(owner, kind="stable")
            owner, at, count = owner[order], at[order], count[order]
        upto = np.cumsum(count)
        before = upto - count
        total = int(upto[-1]) if len(upto) else 0
        for first in range(0, total, ITEMS_AT_ONCE):
            last = min(first + ITEMS_AT_ONCE, total)
            begin, end = np.searchsorted(upto, (first, last - 1), side="right")
            some = slice(begin, end + 1)  # the blocks of items ``first`` to ``last``
            inside = np.minimum(upto[some], last) - np.maximum(before[some], first)
            block = np.repeat(np.arange(begin, end + 1), inside)
            index = np.arange(first, last) - before[block]
            if ends is None:
                yield at[block] + index * (width or 0), owner[block]
            else:
                # Each item begins after the end of the item before; item 0 begins after the block's header.
                yield ends.places(at[block] + index - 1) + 1, owner[block]


class _Rest:
    """Collects the positions of items that are found one by one, and passes them to ``take``.

    ``take``: called once there are ITEMS_AT_ONCE positions, or earlier; None: all stay in ``starts``.
    """

    def __init__(self, take: Take | None) -> None:
        self._take = take
        self.starts = array("i")
        self.owners = array("i")

    def add(self, owner: int) -> None:
        """Records that the items found since the last call belong to the array ``owner``."""
        self.owners.extend(repeat(owner, len(self.starts) - len(self.owners)))
        if len(self.starts) >= ITEMS_AT_ONCE:
            self.take_all()

    def take_all(self) -> None:
        """Passes the items in ``starts`` to ``take``, and clears them; does nothing if ``take`` is None."""
        if self._take is not None and len(self.starts):
            self._take(_numbers(self.starts), _numbers(self.owners))
            del self.starts[:], self.owners[:]


def _numbers(numbers: array[int]) -> Ints:
    return np.array(numbers, np.int64)


def _take_in_order(
    waves: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]], rest: _Rest, total: Ints, take: Take
) -> None:
    """Passes all items to ``take``, sorted by array; ``waves[k]``: arrays and positions of items k."""
    first = np.cumsum(total) - total
    at = np.empty(int(total.sum()), np.int32)
    for k, (owner, start) in enumerate(waves):
        at[first[owner] + k] = start
    if len(rest.starts):
        owners = _numbers(rest.owners)
        # Arrays in ``rest`` have an item in every wave, so their first in ``rest`` is item len(waves).
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        place = np.arange(len(owners)) - np.repeat(begins, np.diff(begins, append=len(owners)))
        at[first[owners] + len(waves) + place] = _numbers(rest.starts)
    whose = np.repeat(np.arange(len(total)), total)
    for begin in range(0, len(at), ITEMS_AT_ONCE):
        some = slice(begin, begin + ITEMS_AT_ONCE)
        take(at[some].astype(np.int64), whose[some])
