"""The memory that one value may take as columns: an allowance for any value, plus a multiple of its size.

A few bytes can be many items, and each item takes the width of all columns that it has, set or not. So items
of lists and maps are counted before they are read: each takes the fixed width of its type, and the text that
the schema adds. Text of the payload itself takes its own size and is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import parts_by_size

Size = TypeVar("Size", int, npt.NDArray[np.int64])

Rows: TypeAlias = "npt.NDArray[np.int64] | None"

ALLOWANCE = 16 << 20  # bytes, for any value
PER_BYTE = 10
_MAX_TOGETHER = 128 << 20  # bytes that values read together may take

_OFFSET_BITS = 32


def accepted(size: Size) -> Size:
    """Bytes that a value of ``size`` bytes may take."""
    return ALLOWANCE + PER_BYTE * size


def largest_unchecked(growth: float) -> int | None:
    """The size in bytes up to which a value is never too large, so that its items need not be counted.

    Args:
        growth: bytes of columns, at most, that a byte of a value can become.

    Returns:
        None: any size.
    """
    return None if growth <= PER_BYTE else int(ALLOWANCE / (growth - PER_BYTE))


def rows_to_check(values: pa.BinaryArray, unchecked: int | None) -> npt.NDArray[np.int64]:
    """Indexes of values that have more bytes than ``largest_unchecked`` says."""
    if unchecked is None or values.nbytes <= unchecked:
        return np.zeros(0, np.int64)
    sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    return np.flatnonzero(sizes > unchecked)


class ValueCost(NamedTuple):
    """What a value may take as columns at most, beside the width of a row and its own text.

    Attributes:
        row: bytes that it gets from the schema.
        growth: bytes that a byte of it becomes as items of lists and maps, with the text they get.
    """

    row: int = 0
    growth: float = 0.0


class ValueParts:
    """Cuts values into parts that are read one after the other, so that each takes bounded memory.

    Args:
        target: the type that values are read as.
    """

    def __init__(self, target: pa.DataType) -> None:
        self._row = (_bits(target) + 7) // 8

    def ends(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, costs: Sequence[ValueCost], of_row: Rows = None
    ) -> list[int]:
        """The index after the last value of each part; a value that alone takes more is its own part.

        Args:
            values: ``binary`` [n], at least one.
            keys: ``binary`` [n].
            costs: of the values.
            of_row: int64[n], which of ``costs`` each value has; None: all have the first.
        """
        rows, growths = (np.array(each) for each in zip(*costs, strict=True))
        most = values.nbytes + keys.nbytes
        if len(values) * (self._row + rows.max()) + most * growths.max() <= _MAX_TOGETHER:
            return [len(values)]
        row, growth = (rows[0], growths[0]) if of_row is None else (rows[of_row], growths[of_row])
        sizes = np.zeros(len(values), np.int64)
        for each in (values, keys):
            sizes += pc.fill_null(pc.binary_length(each), 0).to_numpy()
        items = np.minimum((sizes * growth).astype(np.int64), accepted(sizes))
        taken = np.append(0, np.cumsum(self._row + row + items))
        return [stop for _, stop in parts_by_size(taken, _MAX_TOGETHER)]


def item_width(kind: pa.DataType) -> int:
    """Bytes that an item of a list, or an entry of a map, takes; without its text and its own items."""
    if pa.types.is_map(kind):
        bits = 1 + _bits(kind.key_type) + _bits(kind.item_type)
    else:
        bits = _bits(kind.value_type)
    return max(1, (bits + 7) // 8)


def _bits(kind: pa.DataType) -> int:
    """Bits of a row of a column."""
    if pa.types.is_struct(kind):
        return 1 + sum(_bits(field.type) for field in kind)
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_nested(kind) or kind in (pa.string(), pa.binary()):
        return 1 + _OFFSET_BITS
    bits: int = 1 + kind.bit_width
    return bits


class ValueRoom:
    """What one value may still take.

    Attributes:
        accepted: bytes, in all.
        left: bytes; below 0 the value is too large.
        work: items, by the time that they take; below 0 there are too many.
    """

    __slots__ = ("accepted", "left", "work")

    def __init__(self, size: int, work: float = math.inf) -> None:
        self.accepted = self.left = accepted(size)
        self.work = work

    @property
    def why(self) -> str:
        """Why a value that is too large is bad."""
        taken = self.accepted - self.left
        return f"it would take at least {taken} bytes as columns; the maximum is {self.accepted}"
