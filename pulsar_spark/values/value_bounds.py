"""Limits of the memory and of the work that decoding a value may use.

Memory: each value may use ALLOWANCE bytes, plus PER_BYTE for each byte of its payload. A few bytes can encode
many items, and each item uses the width of all its columns, even null columns. So the items of lists and maps
are counted before they are read. An item counts as the fixed width of its type, plus the text of the schema's
defaults. Text in the payload is not counted, because its column has the same size.

Work: each value has a budget that depends on its size. A value that exceeds its budget uses a pool that all
values of the task share. A unit of work is about a microsecond, the time to read one item by itself. Items
that are read many at once are not counted, because each takes only a tenth of a unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Flags, Ints, parts_by_size
from pulsar_spark.errors import UnsupportedError

Size = TypeVar("Size", int, Ints)

ALLOWANCE = 16 << 20  # column bytes that any value may use
PER_BYTE = 10  # further column bytes for each byte of the payload
_MAX_TOGETHER = 128 << 20  # maximum column bytes of the values of one call

_OFFSET_BITS = 32


def accepted(size: Size) -> Size:
    """Returns how many column bytes the value of a payload of ``size`` bytes may use."""
    return ALLOWANCE + PER_BYTE * size


def largest_unchecked(growth: float) -> int | None:
    """Returns the maximum payload bytes with which no value can exceed the limit :func:`accepted`.

    None: no value of any size can exceed the limit. ``growth``: maximum column bytes for each payload byte.
    """
    return None if growth <= PER_BYTE else int(ALLOWANCE / (growth - PER_BYTE))


def rows_to_check(values: pa.BinaryArray, unchecked: int | None) -> Ints:
    """Returns the indexes of values of more than ``unchecked`` bytes, int64[m]; None: no indexes."""
    if unchecked is None or values.nbytes <= unchecked:
        return np.zeros(0, np.int64)
    sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    return np.flatnonzero(sizes > unchecked)


def max_growth(lists: Iterable[tuple[float, int]]) -> float:
    """Returns the maximum column bytes for each payload byte.

    Args:
        lists: for each list and map of a schema, an item's maximum column bytes and minimum payload bytes.
            A payload may have as many items of 0 bytes as it has bytes, in addition to other items.
    """
    found = list(lists)
    return max((size / least for size, least in found if least), default=0.0) + max(
        (size for size, least in found if not least), default=0.0
    )


class ValueCost(NamedTuple):
    """The maximum column bytes of a value, without the fixed width of its row and the text of its payload.

    Attributes:
        row: bytes that the schema adds to each row.
        growth: bytes of list and map items, with texts that the schema adds to them, for each payload byte.
    """

    row: int = 0
    growth: float = 0.0


def part_ends(
    target: pa.DataType,
    values: pa.BinaryArray,
    keys: pa.BinaryArray,
    costs: Sequence[ValueCost],
    of_row: Ints | None = None,
) -> list[int]:
    """Cuts values into parts to decode one after the other, each with at most 128 MiB of column memory.

    Returns the index after the last value of each part. A value that may need more is a part by itself.

    Args:
        target: type of the column.
        values: ``binary`` [n], at least one.
        costs: one cost, or several to which ``of_row`` refers.
        of_row: index into ``costs`` for each value, int64[n]; None: the first cost for all values.
    """
    width = (_bits(target) + 7) // 8
    rows, growths = (np.array(each) for each in zip(*costs, strict=True))
    most = values.nbytes + keys.nbytes
    if len(values) * (width + rows.max()) + most * growths.max() <= _MAX_TOGETHER:
        return [len(values)]
    row, growth = (rows[0], growths[0]) if of_row is None else (rows[of_row], growths[of_row])
    sizes = np.zeros(len(values), np.int64)
    for each in (values, keys):
        sizes += pc.fill_null(pc.binary_length(each), 0).to_numpy()
    items = np.minimum((sizes * growth).astype(np.int64), accepted(sizes))
    taken = np.append(0, np.cumsum(width + row + items))
    return [stop for _, stop in parts_by_size(taken, _MAX_TOGETHER)]


def item_width(kind: pa.DataType) -> int:
    """Returns the bytes of a list item or map entry, without its text and nested items."""
    if pa.types.is_map(kind):
        bits = 1 + _bits(kind.key_type) + _bits(kind.item_type)
    else:
        bits = _bits(kind.value_type)
    return max(1, (bits + 7) // 8)


def _bits(kind: pa.DataType) -> int:
    """Returns the bits of one row of a column, with its validity bit."""
    if pa.types.is_struct(kind):
        return 1 + sum(_bits(field.type) for field in kind)
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_nested(kind) or kind in (pa.string(), pa.binary()):
        return 1 + _OFFSET_BITS
    bits: int = 1 + kind.bit_width
    return bits


def too_large(values: pa.BinaryArray, error: Exception) -> UnsupportedError:
    """Returns the error for values with more than 2 GiB of text, or of items, in a column."""
    return UnsupportedError(
        f"{len(values)} values are too large for one Arrow column: {error}",
        advice="Read fewer rows at a time, or read the topic with valueFormat=raw",
    )


class ValueRoom:
    """The memory and work that one value may still use.

    Attributes:
        left: remaining column bytes; below 0: the value is too large.
        work: remaining units of work, as ValueWork counts them; below 0: too many items.
    """

    __slots__ = ("accepted", "left", "work")

    def __init__(self, size: int, work: float = math.inf) -> None:
        self.accepted = self.left = accepted(size)
        self.work = work

    @property
    def why(self) -> str:
        """Returns the reason for refusing a value that is too large."""
        taken = self.accepted - self.left
        return f"it would take at least {taken} bytes as columns; the maximum is {self.accepted}"


Floats: TypeAlias = npt.NDArray[np.floating]


@dataclass(slots=True)
class WorkPool:
    """The work that the values of a task may still use, in units, beyond their own budgets."""

    left: float = 300_000.0


class ValueWork:
    """The remaining work of n values.

    Args:
        own: budget of each value in units, float64[n], infinite: no limit; None: no limit for any value.
        pool: work that all values of the task share.
    """

    def __init__(self, own: Floats | None, pool: WorkPool) -> None:
        self.is_limited = own is not None
        self._own = np.zeros(0) if own is None else own
        self._pool = pool
        self._rows: Ints = np.arange(len(self._own))
        self._refused: Flags = np.zeros(len(self._own), np.bool_)

    def part(self, rows: Ints | slice) -> ValueWork:
        """Returns the remaining work of the values ``rows``; both objects share the values' budgets."""
        made = copy(self)
        if self.is_limited:
            made._rows = self._rows[rows]
        return made

    @property
    def refused(self) -> Flags:
        """Returns flags of the values that needed more units than their budget and the pool had, bool[n]."""
        return self._refused[self._rows]

    def left(self, row: int) -> float:
        """Returns the units that a value may still use; -1 for a value that has used too many."""
        if not self.is_limited:
            return math.inf
        place = self._rows[row]
        return -1.0 if self._refused[place] else float(self._own[place]) + self._pool.left

    def take(self, row: int, units: float) -> bool:
        """Uses units of a value's budget, then of the task's pool; returns False if the value is refused.

        A value is refused if the budget and the pool together have fewer units; then the pool becomes empty.
        """
        if not self.is_limited or math.isinf(self._own[place := self._rows[row]]):
            return True
        beyond = units - float(self._own[place])
        if beyond > 0:
            self._refused[place] |= beyond > self._pool.left
            self._pool.left = max(0.0, self._pool.left - beyond)
        self._own[place] = max(0.0, -beyond)
        return not self._refused[place]

    def take_each(self, units: Floats) -> Flags:
        """Uses ``units``, [n], as :meth:`take` does for each value in order; returns the results, bool[n]."""
        beyond = np.maximum(units - self._own[self._rows], 0.0)
        taken = np.cumsum(beyond)
        self._refused[self._rows] |= (beyond > 0) & (taken > self._pool.left)
        self._pool.left = max(0.0, self._pool.left - float(taken[-1]))
        self._own[self._rows] = np.maximum(self._own[self._rows] - units, 0.0)
        return ~self.refused


ANY_WORK = ValueWork(None, WorkPool(math.inf))
