"""Groups the rows of a union by their branch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.avro.by_column.payloads import AvroPayloads, Rows

_FEW_BRANCHES = 16  # up to this number, each branch is searched for in turn; more are sorted


def rows_by_branch(which: Ints | npt.NDArray[np.int8], branches: int) -> Iterator[tuple[int, Ints]]:
    """Yields each branch number in use and the indexes of its rows; invalid numbers too."""
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
    """Marks rows bad, at the indexes ``wrong`` of ``count`` positions."""
    flags = np.zeros(count, np.bool_)
    flags[wrong] = True
    payloads.fail(rows, flags)
