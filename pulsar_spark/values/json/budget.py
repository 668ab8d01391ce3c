"""The memory and work that each payload of a batch may still use while it becomes columns.

Memory is counted only for payloads of more bytes than ``value_bounds.largest_unchecked``. Work is counted for
values that are converted one by one: values kept as JSON text, and distinct values that Arrow cannot convert.
A value of a union is read as one member after the other until one fits, and each attempt is work. From the
second attempt on, each value nested in that value is work, too.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.values.json.unions import UnionMembers
from pulsar_spark.values.value_bounds import ValueWork, accepted

_AGAIN_UNITS: Final = 0.2  # units of work of a value that is read again as another member of a union
# Maximum values of a payload that are read again: AGAIN, plus AGAIN_PER_BYTE for each byte of the payload.
AGAIN: Final = 1_000_000
AGAIN_PER_BYTE: Final = 16
_ANY: Final = np.iinfo(np.int64).max >> 1


class JsonBudget:
    """The memory and work that each of n payloads may still use.

    Args:
        sizes: bytes of each payload, int64[n].
        unchecked: maximum bytes of payloads whose memory is not counted; None: no memory is counted.

    Attributes:
        is_spent: flags of the payloads that used too much memory or work, bool[n].
        choices: (number of a union, ``id()`` of an object or array) -> index of the member that fits, or -1;
            a cache, because otherwise nested unions would take exponential time.
    """

    def __init__(self, sizes: Ints, unchecked: int | None, work: ValueWork) -> None:
        self.is_spent: Flags = np.zeros(len(sizes), np.bool_)
        self.any_spent = False
        self.reason = ""
        self.choices: dict[tuple[int, int], int] = {}
        self.members: dict[int, UnionMembers] = {}
        self._work = work
        self._again = AGAIN + AGAIN_PER_BYTE * sizes
        is_large = np.zeros(0) if unchecked is None else sizes > unchecked
        self._accepted = accepted(sizes)
        self.room: Ints | None = np.where(is_large, self._accepted, _ANY) if is_large.any() else None

    def take_room(self, rows: Ints, sizes: Ints) -> None:
        """Subtracts the bytes that values use from ``room``; ``rows``: index of each value's payload."""
        assert self.room is not None
        np.subtract.at(self.room, rows, sizes)
        is_full = self.room < 0
        if is_full.any():
            row = int(is_full.argmax())
            most = int(self._accepted[row])
            taken = most - int(self.room[row])
            self._spend(is_full, f"it would take at least {taken} bytes as columns; the maximum is {most}")

    def give_room_back(self, before: Ints, rows: Ints, others: Ints) -> None:
        """Restores the memory of values that were read as a union's member, but did not fit it.

        Args:
            before: ``room`` before the values were read.
            others: payloads whose values did fit; their memory is not restored.
        """
        assert self.room is not None
        again = np.setdiff1d(rows, others)
        self.room[again] = before[again]

    def take_work(self, rows: Ints, units: float) -> None:
        """Uses ``units`` of work for each value; ``rows``: index of each value's payload."""
        if self._work.is_limited:
            self._spend(~self._work.take_each(self._counts(rows) * units), "it makes too much work")

    def read_again(self, rows: Ints) -> None:
        """Counts values that are read again as another member of a union; too many make a payload bad."""
        self._again -= self._counts(rows)
        self._spend(self._again < 0, "its unions have to be read too often to find their types")
        self.take_work(rows, _AGAIN_UNITS)

    def _counts(self, rows: Ints) -> npt.NDArray[np.int64]:
        return np.bincount(rows, minlength=len(self.is_spent))

    def _spend(self, flags: Flags, reason: str) -> None:
        if flags.any():
            self.is_spent |= flags
            self.any_spent = True
            self.reason = reason
