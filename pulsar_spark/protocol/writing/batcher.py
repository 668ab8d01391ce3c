"""Which messages share a batch, and which must not.

``Batcher`` closes batches by count, by bytes and by time. Before that, ``split_runs`` cuts messages where no
batch may go on: ``SequenceIds`` says where, if messages have their own ids, and messages with a time of
delivery share no batch at all.

Key_Shared consumers need batches of one key, because a broker sends a whole batch to one consumer, by the key
in the entry's metadata: the ordering key if there is one, else the key. So messages are grouped by the same
bytes. Messages of one key stay in their order:

    KeyedRows, in any portions -> KeyWindow -> KeyedRows, in windows -> group_by_key -> KeyGroups
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Buffer, Flags, Ints
from pulsar_spark.arrow.join import EncodedMessages
from pulsar_spark.errors import OptionError
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.entry import entry_limits


class BatcherBuilder(Enum):
    """The Java client's ``batcherBuilder``: which messages may share a batch."""

    DEFAULT = "DEFAULT"  # those that follow each other
    KEY_BASED = "KEY_BASED"  # those of one key


class Batch(NamedTuple):
    """The messages of one broker entry: consecutive slices of encoded messages, not yet compressed.

    Attributes:
        parts: the slices.
        messages: how many they hold.
        size: bytes of all slices.
        sequence_ids: of the first message and of the last, which is the highest; None: the producer's next.
    """

    parts: tuple[Buffer, ...]
    messages: int
    size: int
    sequence_ids: tuple[int, int] | None = None


class Batcher:
    """The open batch of one topic partition.

    A batch closes when the next message does not fit into it (``max_messages``, ``max_bytes``), or when it
    has been open for ``max_delay`` seconds. A message larger than ``max_bytes`` is a batch alone.

    Args:
        max_messages: maximum messages; 0 or less, and more than readers accept: what readers accept.
        max_bytes: maximum bytes before compression; 0 or less: the limit that ``fit`` gives.
        max_delay: maximum seconds from its first message until it is sent.
    """

    def __init__(self, max_messages: int, max_bytes: int, max_delay: float) -> None:
        most = entry_limits.MESSAGES
        self._max_messages = min(max_messages, most) if max_messages > 0 else most
        self._max_bytes = max_bytes
        self._max_delay = max_delay
        self._parts: list[Buffer] = []
        self._messages = 0
        self._size = 0
        self._opened_at = 0.0
        self._sequence_ids: tuple[int, int] | None = None

    def fit(self, max_bytes: int, max_messages: int) -> list[Batch]:
        """Make no batch larger than the broker and the pending window take; return one that is now full."""
        self._max_bytes = max(1, min(self._max_bytes, max_bytes) if self._max_bytes > 0 else max_bytes)
        self._max_messages = min(self._max_messages, max_messages)
        return self.take() if self._size > self._max_bytes else []

    @property
    def due_at(self) -> float | None:
        """When the open batch is to be sent by time; None if there is none."""
        return self._opened_at + self._max_delay if self._messages else None

    def add(
        self,
        body: memoryview,
        offsets: Ints,
        now: float,
        sequence_ids: Ints | None = None,
    ) -> list[Batch]:
        """Append messages, the i-th at ``body[offsets[i]:offsets[i + 1]]``; return what this closes.

        All messages of a batch have their own ``sequence_ids``, which grow, or none has.
        """
        closed: list[Batch] = []
        count = len(offsets) - 1
        first = 0
        while first < count:
            last = self._room_until(offsets, first, count)
            if last == first:
                closed.append(self._close())
                continue
            if not self._messages:
                self._opened_at = now
            start, end = int(offsets[first]), int(offsets[last])
            self._parts.append(body[start:end])
            if sequence_ids is not None:
                opened_with = (
                    int(sequence_ids[first]) if self._sequence_ids is None else self._sequence_ids[0]
                )
                self._sequence_ids = opened_with, int(sequence_ids[last - 1])
            self._messages += last - first
            self._size += end - start
            first = last
        if self._messages >= self._max_messages or self._size >= self._max_bytes:
            closed.append(self._close())
        return closed

    def add_groups(self, body: memoryview, offsets: Ints, starts: Ints) -> list[Batch]:
        """Close the open batch, and make batches of messages, none of them of two groups.

        ``starts``, int64[g], are where groups begin, growing from 0. The others are those of ``add``.
        """
        closed = self.take()
        bounds = np.append(starts, len(offsets) - 1)
        counts, sizes = np.diff(bounds), np.diff(offsets[bounds])
        fits = (sizes <= self._max_bytes) & (counts <= self._max_messages)
        places = pairwise(offsets[bounds].tolist())
        for group, ((start, end), messages, is_one) in enumerate(
            zip(places, counts.tolist(), fits.tolist(), strict=True)
        ):
            if is_one:
                closed.append(Batch((body[start:end],), messages, end - start))
            else:
                closed += self.add(body, offsets[bounds[group] : bounds[group + 1] + 1], 0.0)
                closed += self.take()
        return closed

    def take(self) -> list[Batch]:
        """Close the open batch, whatever it holds; empty if there is none."""
        return [self._close()] if self._messages else []

    def _room_until(self, offsets: Ints, first: int, count: int) -> int:
        """Index after the last message that still fits; ``first`` if none does."""
        limit = offsets[first] + self._max_bytes - self._size
        last = int(np.searchsorted(offsets, limit, side="right")) - 1
        last = min(last, first + self._max_messages - self._messages)
        last = min(max(last, first), count)
        return first + 1 if last == first and not self._messages else last

    def _close(self) -> Batch:
        batch = Batch(tuple(self._parts), self._messages, self._size, sequence_ids=self._sequence_ids)
        self._parts = []
        self._messages = 0
        self._size = 0
        self._sequence_ids = None
        return batch


class SendRun(NamedTuple):
    """Messages from ``first`` up to ``last`` that are sent in the same way.

    Attributes:
        alone: whether each is its own entry.
        begins: whether the open batch must be sent before.
    """

    first: int
    last: int
    alone: bool
    begins: bool


def split_runs(begins: Flags, alone: Flags, first: int, last: int) -> Iterator[SendRun]:
    """Cut the messages of one topic partition, those from ``first`` up to ``last``, into runs.

    A message that ``begins``, bool[n], must not share a batch with the one before, and one that is ``alone``,
    bool[n], must not share a batch at all.
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


def begin_keys(columns: MessageColumns, bounds: Ints) -> npt.NDArray[np.bool_]:
    """Which messages have another key than the one before, or are a partition's first, bool[n].

    ``bounds`` is int64[p + 1]; partition i has the messages from ``bounds[i]`` up to ``bounds[i + 1]``.
    """
    begins: npt.NDArray[np.bool_] = np.diff(_numbers(_sticky_keys(columns)), prepend=-1) != 0
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
