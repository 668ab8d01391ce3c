"""Groups messages by key, so that those of a batch have one key, as Key_Shared consumers need.

A broker gives a whole batch to one consumer, by the key in the entry's metadata: the ordering key where there
is one, else the key. So messages are put together by these same bytes. Those of a key stay in their order.

    KeyedRows, in any portions -> KeyWindow -> KeyedRows, in windows -> group_by_key -> KeyGroups
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.arrow.join import EncodedMessages
from pulsar_spark.wire.columns.message_columns import MessageColumns

Partitions: TypeAlias = npt.NDArray[np.int32]


class KeyedRows(NamedTuple):
    """n encoded messages of one topic, in the order of their rows.

    Attributes:
        messages: large_binary[n], each as it is in a batch.
        keys: binary[n], by which brokers choose a consumer; null for none.
        partitions: int32[n], the topic partition of each.
    """

    messages: pa.LargeBinaryArray
    keys: pa.BinaryArray
    partitions: Partitions

    def slice(self, first: int, last: int) -> KeyedRows:
        """Those from ``first`` up to ``last``."""
        count = last - first
        return KeyedRows(
            self.messages.slice(first, count), self.keys.slice(first, count), self.partitions[first:last]
        )

    def copy(self) -> KeyedRows:
        """The same messages in their own buffers; the buffers of a slice keep all rows in memory."""
        return KeyedRows(
            pa.concat_arrays([self.messages]), pa.concat_arrays([self.keys]), self.partitions.copy()
        )


def keyed_rows(columns: MessageColumns, encoded: EncodedMessages, partitions: Partitions) -> KeyedRows:
    """Combine encoded rows with their keys and partitions."""
    # Large: with keys and properties, rows of one Arrow batch may have 2 GiB and more.
    buffers = [None, pa.py_buffer(encoded.offsets.astype(np.int64)), pa.py_buffer(encoded.buffer)]
    messages = pa.Array.from_buffers(pa.large_binary(), len(columns), buffers)
    return KeyedRows(messages, _sticky_keys(columns), partitions)


class KeyWindow:
    """Holds rows until there are ``max_bytes`` of encoded messages; a message of more is a window alone."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[KeyedRows] = []
        self._size = 0

    def add(self, rows: KeyedRows) -> Iterator[KeyedRows]:
        """Take what comes next; give the windows that are full now."""
        offsets = _offsets(rows.messages)
        first, count = 0, len(rows.messages)
        while first < count:
            limit = offsets[first] + self._max_bytes - self._size
            last = int(np.searchsorted(offsets, limit, side="right")) - 1
            if last <= first:
                last = first if self._parts else first + 1
            if last > first:
                part = rows.slice(first, last)
                self._parts.append(part.copy() if first > 0 and last == count else part)
                self._size += int(offsets[last] - offsets[first])
            if last < count or self._size >= self._max_bytes:
                full = self.take()
                assert full is not None
                yield full
            first = last

    def take(self) -> KeyedRows | None:
        """Give what is held; None if nothing is."""
        parts, self._parts, self._size = self._parts, [], 0
        if len(parts) <= 1:
            return parts[0] if parts else None
        messages, keys, partitions = zip(*parts, strict=True)
        return KeyedRows(pa.concat_arrays(messages), pa.concat_arrays(keys), np.concatenate(partitions))


class KeyGroups(NamedTuple):
    """n encoded messages by partition, in each of them by key, and of each key in their order.

    Keys are in the order in which they come first among all n, so the same messages give the same order.

    Attributes:
        body: the messages, one after the other.
        offsets: int64[n + 1], where each begins.
        bounds: int64[p + 1]; partition i has those from ``bounds[i]`` up to ``bounds[i + 1]``.
        starts: for each partition int64[g], where its keys begin, counted from its own first message.
    """

    body: memoryview
    offsets: Ints
    bounds: Ints
    starts: list[Ints]


def group_by_key(rows: KeyedRows, count: int) -> KeyGroups:
    """Put messages, at least one, together by partition and key; those without a key are one group."""
    numbers = _numbers(rows.keys)
    groups = rows.partitions.astype(np.int64) * (numbers.max() + 1) + numbers
    order = stable_order(groups)
    messages = rows.messages.take(pa.array(order))
    bounds = np.searchsorted(rows.partitions[order], np.arange(count + 1))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    of_partition = np.searchsorted(starts, bounds)
    return KeyGroups(
        memoryview(messages.buffers()[2]).cast("B"),  # Arrow says its bytes are signed
        _offsets(messages),
        bounds,
        [
            starts[first:last] - bound
            for first, last, bound in zip(of_partition, of_partition[1:], bounds, strict=False)
        ],
    )


def stable_order(groups: npt.NDArray[np.integer]) -> Ints:
    """The order that puts rows of the same group together, int64[n]; rows of a group keep theirs.

    The group of each row is 0 or more, of any integer type.
    """
    # As small a type as possible: numpy sorts 16 bits ten times as fast as 64.
    return np.argsort(groups.astype(np.min_scalar_type(groups.max(initial=0))), kind="stable")


def begin_keys(columns: MessageColumns, order: Ints, bounds: Ints) -> npt.NDArray[np.bool_]:
    """Returns which messages have another key than the one before, or are a partition's first, bool[n].

    Args:
        columns: n messages.
        order: indexes of the messages in the order in which they are sent, int64[n].
        bounds: int64[p + 1]; partition i has the sent messages from ``bounds[i]`` up to ``bounds[i + 1]``.
    """
    begins: npt.NDArray[np.bool_] = np.diff(_numbers(_sticky_keys(columns))[order], prepend=-1) != 0
    begins[bounds[:-1][np.diff(bounds) > 0]] = True
    return begins


def _sticky_keys(columns: MessageColumns) -> pa.BinaryArray:
    return columns.key if columns.ordering_key is None else pc.coalesce(columns.ordering_key, columns.key)


def _numbers(keys: pa.BinaryArray) -> Ints:
    """A number for each key, int64[n]: how many other keys came before it."""
    numbers: Ints = keys.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return numbers


def _offsets(messages: pa.LargeBinaryArray) -> Ints:
    """Where each message begins in its buffer, and where the last one ends, int64[n + 1]."""
    held = np.frombuffer(messages.buffers()[1], np.int64)
    return held[messages.offset : messages.offset + len(messages) + 1]
