"""VarintEnds: the bytes, of many, that may be the last of a varint; counted from 0 on in their order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Ints: TypeAlias = npt.NDArray[np.int64]

MAX_LISTED = 4 << 20  # bytes of which all ends are listed, which takes four times as much
_AT_ONCE = 1 << 18  # bytes that are searched at once, which bounds the memory on the way
GROUP = 64
_FEW = 32
_MAX_BYTES = 10  # of a varint


class VarintEnds(Protocol):
    """Finds ends by their number, and the other way round."""

    def __len__(self) -> int: ...

    def before(self, position: _Ints) -> _Ints:
        """How many ends lie before each position; int64[n]."""
        ...

    def places(self, number: _Ints) -> _Ints:
        """The positions of ends, each below ``len``; int64[n]."""
        ...

    def before_one(self, position: int) -> int:
        """How many ends lie before a position."""
        ...

    def after_one(self, position: int, number: int, count: int) -> int:
        """The position after ``count`` varints that begin at one, before which there are ``number`` ends.

        Where there are fewer, one that is after all bytes.
        """
        ...


def varint_ends(whole: npt.NDArray[np.uint8]) -> VarintEnds:
    """Find them in some bytes: a multiple of GROUP, of which the last is one."""
    return _ListedEnds(whole) if len(whole) <= MAX_LISTED + _AT_ONCE else _CountedEnds(whole)


class _ListedEnds:
    """All of them, which is fastest."""

    def __init__(self, whole: _Bytes) -> None:
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
        return np.searchsorted(self._places, position.astype(np.int32))  # of one type, so nothing is copied

    def places(self, number: _Ints) -> _Ints:
        return self._places[number].astype(np.int64)

    def before_one(self, position: int) -> int:
        return bisect_left(self._places.data, position)

    def after_one(self, position: int, number: int, count: int) -> int:
        last = number + count - 1
        return int(self._places[last]) + 1 if last < len(self._places) else self._behind


class _CountedEnds:
    """How many there are before each group of bytes: little memory, and more to do for each question."""

    def __init__(self, whole: _Bytes) -> None:
        self._bytes = whole
        self._behind = len(whole) + 1
        self._groups = whole.reshape(-1, GROUP)
        self._upto = np.zeros(len(self._groups) + 1, np.int32)  # before each group, and in all
        for at in range(0, len(self._groups), _AT_ONCE // GROUP):
            some = self._groups[at : at + _AT_ONCE // GROUP]
            self._upto[at + 1 : at + 1 + len(some)] = np.count_nonzero(some < 0x80, axis=1)
        np.cumsum(self._upto, out=self._upto)

    def __len__(self) -> int:
        return int(self._upto[-1])

    def before(self, position: _Ints) -> _Ints:
        group, at = np.divmod(position, GROUP)
        is_before = np.arange(GROUP) < at[:, np.newaxis]
        inside = np.count_nonzero((self._groups[group] < 0x80) & is_before, axis=1)
        before: _Ints = self._upto[group] + inside
        return before

    def places(self, number: _Ints) -> _Ints:
        if not len(number):
            return number
        first, last = np.searchsorted(self._upto, (number.min(), number.max()), side="right")
        if (last - first) * GROUP <= _MAX_BYTES * len(number):  # they are near each other
            near = np.flatnonzero(self._groups[first - 1 : last] < 0x80) + (first - 1) * GROUP
            own: _Ints = near[number - self._upto[first - 1]]
            return own
        group = np.searchsorted(self._upto, number, side="right") - 1
        some, which = np.unique(group, return_inverse=True)
        ends = np.flatnonzero(self._groups[some] < 0x80)  # those of all these groups
        counts = self._upto[some + 1] - self._upto[some]
        found = ends[(np.cumsum(counts) - counts)[which] + number - self._upto[group]]
        places: _Ints = some[found // GROUP] * GROUP + found % GROUP
        return places

    def before_one(self, position: int) -> int:
        group = position // GROUP
        return int(self._upto[group]) + int(np.count_nonzero(self._bytes[group * GROUP : position] < 0x80))

    def after_one(self, position: int, number: int, count: int) -> int:
        last = number + count - 1
        if last >= len(self):
            return self._behind
        if count <= _FEW:
            near = np.flatnonzero(self._bytes[position : position + 10 * _FEW] < 0x80)
            if count <= len(near):
                return position + int(near[count - 1]) + 1
        group = bisect_right(self._upto.data, last) - 1
        some = np.flatnonzero(self._groups[group] < 0x80)
        return group * GROUP + int(some[last - int(self._upto[group])]) + 1
