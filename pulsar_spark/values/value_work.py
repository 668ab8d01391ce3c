"""The work that values may make one item after the other: as much as their bytes pay for, and an allowance.

A unit is about a microsecond, which an item takes that is read by itself. Items that are read by column take
a tenth, and are not counted, because honest values of the same size take as long.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Flags, Ints

Floats: TypeAlias = npt.NDArray[np.floating]


@dataclass(slots=True)
class WorkPool:
    """The units that values of a task may still take beyond what their bytes pay for."""

    left: float = 300_000.0


class ValueWork:
    """The work that n values may still make.

    Args:
        own: float64[n], units that each value's bytes pay for, infinite: any number; None: any for all.
        pool: the allowance.

    Attributes:
        is_limited: whether work is counted at all.
    """

    def __init__(self, own: Floats | None, pool: WorkPool) -> None:
        self.is_limited = own is not None
        self._own = np.zeros(0) if own is None else own
        self._pool = pool
        self._rows: Ints = np.arange(len(self._own))
        self._refused: Flags = np.zeros(len(self._own), np.bool_)

    def part(self, rows: Ints | slice) -> ValueWork:
        """The work of some of the values; it is also taken from the whole."""
        made = copy(self)
        if self.is_limited:
            made._rows = self._rows[rows]
        return made

    @property
    def refused(self) -> Flags:
        """Which values would have made more, bool[n]."""
        return self._refused[self._rows]

    def left(self, row: int) -> float:
        """Return the units that a value may still take; below 0 if it was refused."""
        if not self.is_limited:
            return math.inf
        place = self._rows[row]
        return -1.0 if self._refused[place] else float(self._own[place]) + self._pool.left

    def take(self, row: int, units: float) -> bool:
        """Take units for a value; False: they are too many, and took all of the allowance."""
        if not self.is_limited or math.isinf(self._own[place := self._rows[row]]):
            return True
        beyond = units - float(self._own[place])
        if beyond > 0:
            self._refused[place] |= beyond > self._pool.left
            self._pool.left = max(0.0, self._pool.left - beyond)
        self._own[place] = max(0.0, -beyond)
        return not self._refused[place]

    def take_each(self, units: Floats) -> Flags:
        """Take units for each value, in their order; return which values may make the work, bool[n]."""
        beyond = np.maximum(units - self._own[self._rows], 0.0)
        taken = np.cumsum(beyond)
        self._refused[self._rows] |= (beyond > 0) & (taken > self._pool.left)
        self._pool.left = max(0.0, self._pool.left - float(taken[-1]))
        self._own[self._rows] = np.maximum(self._own[self._rows] - units, 0.0)
        return ~self.refused


ANY_WORK = ValueWork(None, WorkPool(math.inf))
