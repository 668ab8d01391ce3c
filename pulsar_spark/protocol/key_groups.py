"""Which messages have one key, so that they may share a batch where consumers are of the type Key_Shared.

A broker gives a whole batch to one consumer, by the key in the entry's metadata: the ordering key where there
is one, else the key. So messages are put together by these same bytes. Those of a key stay in their order.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pulsar_spark.wire.message_columns import MessageColumns

Ints: TypeAlias = npt.NDArray[np.int64]


class KeyGroups(NamedTuple):
    """n messages by partition, in each of them by key, and of each key in their order.

    Keys are in the order in which they come first among all n, so the same messages give the same order.

    Attributes:
        order: int64[n], the messages' indexes.
        bounds: int64[p + 1]; partition i has those from ``bounds[i]`` up to ``bounds[i + 1]`` of ``order``.
        starts: for each partition int64[g], where its keys begin, counted from its own first message.
    """

    order: Ints
    bounds: Ints
    starts: list[Ints]


def group_by_key(columns: MessageColumns, partitions: npt.NDArray[np.int32], count: int) -> KeyGroups:
    """Put messages together by partition and key.

    Args:
        columns: n messages; those without any key are one group.
        partitions: int32[n], where each goes.
        count: how many partitions there are.
    """
    keys = _key_numbers(columns)
    groups = partitions.astype(np.int64) * (keys.max(initial=0) + 1) + keys
    # As small a type as possible: numpy sorts 16 bits ten times as fast as 64.
    order = np.argsort(groups.astype(np.min_scalar_type(groups.max(initial=0))), kind="stable")
    bounds = np.searchsorted(partitions[order], np.arange(count + 1))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    of_partition = np.searchsorted(starts, bounds)
    return KeyGroups(
        order,
        bounds,
        [
            starts[first:last] - bound
            for first, last, bound in zip(of_partition, of_partition[1:], bounds, strict=False)
        ],
    )


def begin_keys(columns: MessageColumns, bounds: Ints) -> npt.NDArray[np.bool_]:
    """Which messages have another key than the one before, or are a partition's first, bool[n].

    Args:
        columns: n messages by partition, which keep their order.
        bounds: int64[p + 1]; partition i has those from ``bounds[i]`` up to ``bounds[i + 1]``.
    """
    begins: npt.NDArray[np.bool_] = np.diff(_key_numbers(columns), prepend=-1) != 0
    begins[bounds[:-1][np.diff(bounds) > 0]] = True
    return begins


def _key_numbers(columns: MessageColumns) -> Ints:
    """A number for the key of each message, int64[n]: how many other keys came before it."""
    keys = columns.key if columns.ordering_key is None else pc.coalesce(columns.ordering_key, columns.key)
    numbers: Ints = keys.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return numbers
