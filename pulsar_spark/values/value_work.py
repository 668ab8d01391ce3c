"""The work that decoding may cost: a budget for each value by its size, and an allowance for the whole task.

A unit is about a microsecond, the time of reading one item by itself. Items that are read by column take a
tenth of that. They are not counted, because ordinary values of the same size take as long.
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
    """The allowance of a task: units that its values may still use beyond their own budgets."""

    left: float = 300_000.0


class ValueWork:
    """The work that n values may still cost.

    Args:
        own: float64[n], budget of each value in units, infinite: no limit; None: no limit for any value.
        pool: allowance that all values of the task share.

    Attributes:
        is_limited: True if work is counted.
    """

    def __init__(self, own: Floats | None, pool: WorkPool) -> None:
        self.is_limited = own is not None
        self._own = np.zeros(0) if own is None else own
        self._pool = pool
        self._rows: Ints = np.arange(len(self._own))
        self._refused: Flags = np.zeros(len(self._own), np.bool_)

    def part(self, rows: Ints | slice) -> ValueWork:
        """Returns the work of some of the values; both objects share the budgets."""
        made = copy(self)
        if self.is_limited:
            made._rows = self._rows[rows]
        return made

    @property
    def refused(self) -> Flags:
        """Flags of the values whose work exceeded budget and allowance, bool[n]."""
        return self._refused[self._rows]

    def left(self, row: int) -> float:
        """Returns the units that a value may still use; -1 if it was refused."""
        if not self.is_limited:
            return math.inf
        place = self._rows[row]
        return -1.0 if self._refused[place] else float(self._own[place]) + self._pool.left

    def take(self, row: int, units: float) -> bool:
        """Uses units for a value; returns False if it is refused, which uses up the allowance."""
        if not self.is_limited or math.isinf(self._own[place := self._rows[row]]):
            return True
        beyond = units - float(self._own[place])
        if beyond > 0:
            self._refused[place] |= beyond > self._pool.left
            self._pool.left = max(0.0, self._pool.left - beyond)
        self._own[place] = max(0.0, -beyond)
        return not self._refused[place]

    def take_each(self, units: Floats) -> Flags:
        """Uses units for each value, in order; returns flags of the values that are not refused, bool[n]."""
        beyond = np.maximum(units - self._own[self._rows], 0.0)
        taken = np.cumsum(beyond)
        self._refused[self._rows] |= (beyond > 0) & (taken > self._pool.left)
        self._pool.left = max(0.0, self._pool.left - float(taken[-1]))
        self._own[self._rows] = np.maximum(self._own[self._rows] - units, 0.0)
        return ~self.refused


ANY_WORK = ValueWork(None, WorkPool(math.inf))
