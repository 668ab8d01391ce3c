"""Which messages must not share a batch: those with sequence ids of their own, or with a time of delivery."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.errors import OptionError

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class SendRun(NamedTuple):
    """Consecutive messages that are sent in the same way.

    Attributes:
        first: index of the first one.
        last: index after the last one.
        alone: whether each is an entry of its own.
        begins: whether the open batch must be sent before.
    """

    first: int
    last: int
    alone: bool
    begins: bool


def split_runs(begins: Flags, alone: Flags, first: int, last: int) -> Iterator[SendRun]:
    """Cut the messages of one topic partition, those from ``first`` up to ``last``, into runs.

    Args:
        begins: for each message, whether it must not share a batch with the one before.
        alone: for each message, whether it must not share a batch at all.
        first: index of the first message.
        last: index after the last one.
    """
    if first == last:
        return
    cut = begins[first:last] | alone[first:last]
    edges = cut.copy()
    edges[1:] &= ~(alone[first + 1 : last] & alone[first : last - 1])
    edges[1:] |= alone[first + 1 : last] != alone[first : last - 1]
    edges[0] = True
    for start, end in pairwise([*np.flatnonzero(edges).tolist(), last - first]):
        yield SendRun(first + start, first + end, bool(alone[first + start]), bool(cut[start]))


class SequenceIds:
    """Sequence ids that rows bring with them, of one topic partition, in the order they are sent.

    A broker that deduplicates judges a batch by its first id, and drops or stores it whole. So messages that
    it may have already, by an id that is not above all before, never share a batch with new ones; and within
    a batch ids grow.

    Args:
        highest: the id that the broker has stored last, -1 for none.
    """

    def __init__(self, highest: int) -> None:
        self._highest = self._last = highest
        self._last_is_new = True

    def take(self, given: pa.Int64Array) -> tuple[Ints, Flags]:
        """The ids of the next n messages, int64[n], and which of them must begin a batch, bool[n].

        A null becomes the highest id so far + 1.

        Raises:
            OptionError: a negative id.
        """
        ids = self._filled(given)
        if len(ids) == 0:
            return ids, np.zeros(0, np.bool_)
        if ids.min() < 0:
            raise OptionError(
                f"a row's sequence id is {ids.min()}", advice="Sequence ids must be 0 or higher"
            )
        highest = np.maximum.accumulate(np.append(self._highest, ids))
        is_new = ids > highest[:-1]
        begins = is_new != np.append(self._last_is_new, is_new[:-1])
        begins |= ids <= np.append(self._last, ids[:-1])
        self._highest, self._last, self._last_is_new = int(highest[-1]), int(ids[-1]), bool(is_new[-1])
        return ids, begins

    def _filled(self, given: pa.Int64Array) -> Ints:
        if given.null_count == 0:
            ids: Ints = given.to_numpy()
            return ids
        filled = []
        highest = self._highest
        for one in given.to_pylist():
            filled.append(highest + 1 if one is None else one)
            highest = max(highest, filled[-1])
        return np.array(filled, np.int64)
