"""What one value may take as columns: so many bytes for each of its own, beyond what any value may take.

A few bytes can be many items, and each item takes the width of all columns that it has, set or not. So items
of lists and maps are counted before they are read: each takes what its type has of fixed width, and what text
the schema adds. What the payload itself has of text takes its own size and is not counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ALLOWANCE = 16 << 20  # bytes, for any value
PER_BYTE = 10

_OFFSET_BITS = 32


def accepted(size: int) -> int:
    """Bytes that a value of ``size`` bytes may take."""
    return ALLOWANCE + PER_BYTE * size


def largest_unchecked(growth: float) -> int | None:
    """How many bytes a value may have that is never too large, so that nothing of it need be counted.

    Args:
        growth: bytes of columns, at most, that a byte of a value can become.

    Returns:
        None: as many as it likes.
    """
    return None if growth <= PER_BYTE else int(ALLOWANCE / (growth - PER_BYTE))


def rows_to_check(values: pa.BinaryArray, unchecked: int | None) -> npt.NDArray[np.int64]:
    """Indexes of values that have more bytes than ``largest_unchecked`` says."""
    if unchecked is None or values.nbytes <= unchecked:
        return np.zeros(0, np.int64)
    sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    return np.flatnonzero(sizes > unchecked)


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
    """

    __slots__ = ("accepted", "left")

    def __init__(self, size: int) -> None:
        self.accepted = self.left = accepted(size)

    @property
    def why(self) -> str:
        """Why a value that is too large is bad."""
        taken = self.accepted - self.left
        return f"it would take at least {taken} bytes as columns, where {self.accepted} are accepted"
