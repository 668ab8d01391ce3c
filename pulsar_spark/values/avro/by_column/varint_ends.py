"""VarintEnds: the bytes, of many, that may be the last of a varint; counted from 0 on in their order."""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Ints: TypeAlias = npt.NDArray[np.int64]

_AT_ONCE = 1 << 18  # bytes that are searched at once, which bounds the memory on the way


class VarintEnds:
    """Finds ends by their number, and the other way round. It takes four times as much memory as the bytes.

    Args:
        whole: the bytes, of which at least one is an end.
    """

    def __init__(self, whole: npt.NDArray[np.uint8]) -> None:
        self._behind = len(whole) + 1
        is_end = whole < 0x80
        self._places = np.empty(np.count_nonzero(is_end), np.int32)
        count = 0
        for at in range(0, len(is_end), _AT_ONCE):
            found = np.flatnonzero(is_end[at : at + _AT_ONCE])
            self._places[count : count + len(found)] = found + at
            count += len(found)

    def __len__(self) -> int:
        return len(self._places)

    def before(self, position: _Ints) -> _Ints:
        """How many ends lie before each position; int64[n]."""
        return np.searchsorted(self._places, position.astype(np.int32))  # of one type, so nothing is copied

    def places(self, number: _Ints) -> _Ints:
        """The positions of ends, each below ``len``; int64[n]."""
        return self._places[number].astype(np.int64)

    def before_one(self, position: int) -> int:
        """How many ends lie before a position."""
        return bisect_left(self._places.data, position)

    def after_one(self, number: int, count: int) -> int:
        """The position after ``count`` varints, before which there are ``number`` ends.

        Where there are fewer, one that is after all bytes.
        """
        last = number + count - 1
        return int(self._places[last]) + 1 if last < len(self._places) else self._behind
