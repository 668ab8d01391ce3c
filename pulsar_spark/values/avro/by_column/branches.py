"""Rows of a union, by the branch that they are of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.avro.by_column.payloads import AvroPayloads, Rows

_FEW_BRANCHES = 16  # which are looked for one after the other


def rows_by_branch(which: Ints | npt.NDArray[np.int8], branches: int) -> Iterator[tuple[int, Ints]]:
    """The numbers of branches that there are, wrong ones too, and the indexes of their rows."""
    if branches > _FEW_BRANCHES:
        order = np.argsort(which, kind="stable")
        numbers, starts = np.unique(which[order], return_index=True)
        if len(which):
            yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)
        return
    left = len(which)
    for number in range(branches):
        if not left:
            return
        mine = np.flatnonzero(which == number)
        if len(mine):
            left -= len(mine)
            yield number, mine
    if left:
        yield -1, np.flatnonzero((which < 0) | (which >= branches))


def fail_some(payloads: AvroPayloads, rows: Rows, wrong: Ints, count: int) -> None:
    """Make some of ``count`` rows bad."""
    flags = np.zeros(count, np.bool_)
    flags[wrong] = True
    payloads.fail(rows, flags)
