"""Decides which messages share a batch.

``Batcher`` closes batches by count, bytes and time. Before that, ``split_runs`` cuts messages where a batch
must end: by the sequence ids that rows have (``SequenceIds``), and around messages with a delivery time.

Key_Shared consumers need batches of one key, because a broker sends a whole batch to one consumer, by the key
in the entry's metadata: the ordering key if there is one, else the key. So messages are grouped by this
key. Messages of one key stay in their order:

    KeyedRows of any size -> KeyWindow -> KeyedRows of ``max_bytes`` -> order_by_key -> GroupedOrder
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Buffer, Flags, Ints
from pulsar_spark.arrow.join import EncodedMessages
from pulsar_spark.errors import OptionError
from pulsar_spark.protocol.writing.routing import Partitions, Words
from pulsar_spark.wire.columns.message_columns import DecodedColumns, MessageColumns
from pulsar_spark.wire.entry.entries import FREE_MESSAGES


class BatcherBuilder(Enum):
    """The Java client's ``batcherBuilder``: the messages that may share a batch."""

    DEFAULT = "DEFAULT"  # consecutive messages
    KEY_BASED = "KEY_BASED"  # messages of one key


class Batch(NamedTuple):
    """The messages of one broker entry: consecutive slices of encoded messages, not yet compressed.

    Attributes:
        size: bytes of all slices.
        sequence_ids: ids of the first and the last message; None: the producer assigns its next ids.
        hashes: lowest and highest of the messages' ``bucket_hashes``; None: the entry's metadata gets none.
    """

    parts: tuple[Buffer, ...]
    messages: int
    size: int
    sequence_ids: tuple[int, int] | None = None
    hashes: tuple[int, int] | None = None


class Batcher:
    """The open batch of one topic partition.

    A batch closes when the next message does not fit (``max_messages``, ``max_bytes``), or when it has been
    open for ``max_delay`` seconds. A message larger than ``max_bytes`` is a batch alone.

    Args:
        max_messages: maximum messages, at most FREE_MESSAGES, which readers accept; 0 or less: FREE_MESSAGES.
        max_bytes: maximum bytes before compression; 0 or less: the limit set by ``fit``.
        max_delay: maximum seconds from the first message until the batch is sent.
    """

    def __init__(self, max_messages: int, max_bytes: int, max_delay: float) -> None:
        most = FREE_MESSAGES
        self._max_messages = min(max_messages, most) if max_messages > 0 else most
        self._max_bytes = max_bytes
        self._max_delay = max_delay
        self._parts: list[Buffer] = []
        self._messages = 0
        self._size = 0
        self._opened_at = 0.0
        self._sequence_ids: tuple[int, int] | None = None
        self._hashes: list[int] = []

    def fit(self, max_bytes: int, max_messages: int) -> list[Batch]:
        """Lowers the limits to these values; closes and returns the open batch if it has too many bytes."""
        self._max_bytes = max(1, min(self._max_bytes, max_bytes) if self._max_bytes > 0 else max_bytes)
        self._max_messages = min(self._max_messages, max_messages)
        return self.take() if self._size > self._max_bytes else []

    @property
    def due_at(self) -> float | None:
        """Time at which the open batch must be sent; None if there is none."""
        return self._opened_at + self._max_delay if self._messages else None

    def add(
        self,
        body: memoryview,
        offsets: Ints,
        now: float,
        sequence_ids: Ints | None = None,
        hashes: Words | None = None,
    ) -> list[Batch]:
        """Appends messages, the i-th at ``body[offsets[i]:offsets[i + 1]]``; returns the closed batches.

        ``sequence_ids``: ids from a column of the rows, ascending, int64[n]; None: the producer assigns ids.
        ``hashes``: the messages' bucket hashes, uint32[n], or None.
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
            if hashes is not None:
                some = hashes[first:last]
                self._hashes += int(np.minimum.reduce(some)), int(np.maximum.reduce(some))
            self._messages += last - first
            self._size += end - start
            first = last
        if self._messages >= self._max_messages or self._size >= self._max_bytes:
            closed.append(self._close())
        return closed

    def add_groups(
        self, body: memoryview, offsets: Ints, starts: Ints, hashes: Words | None = None
    ) -> list[Batch]:
        """Closes the open batch, and makes batches that have messages of only one group.

        ``starts``: index of each group's first message, ascending from 0, int64[g]. For the other arguments
        see ``add``.
        """
        closed = self.take()
        bounds = np.append(starts, len(offsets) - 1)
        counts, sizes = np.diff(bounds), np.diff(offsets[bounds])
        fits = (sizes <= self._max_bytes) & (counts <= self._max_messages)
        places = pairwise(offsets[bounds].tolist())
        for group, ((start, end), messages, is_one) in enumerate(
            zip(places, counts.tolist(), fits.tolist(), strict=True)
        ):
            if is_one and hashes is None:
                closed.append(Batch((body[start:end],), messages, end - start))
            else:
                first, last = bounds[group], bounds[group + 1]
                some = None if hashes is None else hashes[first:last]
                closed += self.add(body, offsets[first : last + 1], 0.0, hashes=some)
                closed += self.take()
        return closed

    def take(self) -> list[Batch]:
        """Closes and returns the open batch; an empty list if there is none."""
        return [self._close()] if self._messages else []

    def _room_until(self, offsets: Ints, first: int, count: int) -> int:
        """Returns the index after the last message that fits into the open batch; ``first`` if none fits."""
        limit = offsets[first] + self._max_bytes - self._size
        last = int(np.searchsorted(offsets, limit, side="right")) - 1
        last = min(last, first + self._max_messages - self._messages)
        last = min(max(last, first), count)
        return first + 1 if last == first and not self._messages else last

    def _close(self) -> Batch:
        hashes = (min(self._hashes), max(self._hashes)) if self._hashes else None
        batch = Batch(tuple(self._parts), self._messages, self._size, self._sequence_ids, hashes)
        self._parts = []
        self._messages = 0
        self._size = 0
        self._sequence_ids = None
        self._hashes = []
        return batch


class SendRun(NamedTuple):
    """Consecutive messages that are sent in the same way: in batches, or each as its own entry.

    Attributes:
        last: index after the last message.
        alone: whether each message is its own entry.
        begins: whether the open batch must be sent before these messages.
    """

    first: int
    last: int
    alone: bool
    begins: bool


def split_runs(begins: Flags, alone: Flags, first: int, last: int) -> Iterator[SendRun]:
    """Cuts the messages of one topic partition from index ``first`` up to ``last`` into SendRuns.

    ``begins``, bool[n]: messages that must not share a batch with the message before. ``alone``, bool[n]:
    messages that must not share a batch at all.
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
    """The sequence ids that rows have in a column, for one topic partition, in the order of sending.

    A broker that deduplicates judges a batch by its first id, and drops or stores the whole batch. So ids
    ascend within a batch, and two kinds of messages never share one: new messages, whose ids are above all
    earlier ids, and messages that the broker may have stored.

    Args:
        highest: last id that the broker has stored; -1 for none.
    """

    def __init__(self, highest: int) -> None:
        self._highest = self._last = highest
        self._last_is_new = True

    def take(self, given: pa.Int64Array) -> tuple[Ints, Flags]:
        """Returns the ids of the next n messages, int64[n], and whether each begins a batch, bool[n].

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


class KeyedRows(NamedTuple):
    """n encoded messages of one topic, in the order of their rows.

    Attributes:
        messages: messages, encoded as in a batch, large_binary[n].
        keys: keys by which brokers choose a Key_Shared consumer, binary[n]; null for none.
    """

    messages: pa.LargeBinaryArray
    keys: pa.BinaryArray
    partitions: Partitions

    def slice(self, first: int, last: int) -> KeyedRows:
        """Returns the rows from ``first`` up to ``last``."""
        count = last - first
        return KeyedRows(
            self.messages.slice(first, count), self.keys.slice(first, count), self.partitions[first:last]
        )

    def copy(self) -> KeyedRows:
        """Copies the messages to new buffers, because a slice's buffers keep all rows in memory."""
        return KeyedRows(
            pa.concat_arrays([self.messages]), pa.concat_arrays([self.keys]), self.partitions.copy()
        )


def keyed_rows(
    columns: MessageColumns | DecodedColumns, encoded: EncodedMessages, partitions: Partitions
) -> KeyedRows:
    """Combines encoded rows with their keys and partitions."""
    # large_binary, because the rows of one Arrow batch may have 2 GiB or more with keys and properties.
    buffers = [None, pa.py_buffer(encoded.offsets.astype(np.int64)), pa.py_buffer(encoded.buffer)]
    messages = pa.Array.from_buffers(pa.large_binary(), len(columns), buffers)
    return KeyedRows(messages, _sticky_keys(columns), partitions)


class KeyWindow:
    """Collects rows up to ``max_bytes`` of encoded messages; a larger message is a window alone."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[KeyedRows] = []
        self._size = 0

    def add(self, rows: KeyedRows) -> Iterator[KeyedRows]:
        """Adds rows; yields the windows that are full now."""
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
        """Returns the collected rows; None if there are none."""
        parts, self._parts, self._size = self._parts, [], 0
        if len(parts) <= 1:
            return parts[0] if parts else None
        messages, keys, partitions = zip(*parts, strict=True)
        return KeyedRows(pa.concat_arrays(messages), pa.concat_arrays(keys), np.concatenate(partitions))


class GroupedOrder(NamedTuple):
    """The order that sorts n messages by partition and group; messages of one group keep their order.

    Attributes:
        order: indexes of the messages, int64[n].
        bounds: bounds of the partitions, int64[p + 1]; partition i has ``bounds[i]`` up to ``bounds[i + 1]``.
        starts: index of each group's first message within its partition, by partition, int64[g].
    """

    order: Ints
    bounds: Ints
    starts: list[Ints]


def order_by_group(partitions: Partitions, numbers: Ints, count: int) -> GroupedOrder:
    """Sorts n > 0 messages by partition and group; ``numbers``: group of each message, from 0, int64[n]."""
    groups = partitions.astype(np.int64) * (numbers.max() + 1) + numbers
    order = stable_order(groups)
    bounds = np.searchsorted(partitions[order], np.arange(count + 1))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    of_partition = np.searchsorted(starts, bounds)
    places = zip(of_partition, of_partition[1:], bounds, strict=False)
    return GroupedOrder(order, bounds, [starts[first:last] - bound for first, last, bound in places])


def order_by_key(rows: KeyedRows, count: int) -> GroupedOrder:
    """Sorts at least one message by partition and key; messages without a key are one group.

    Keys are in the order of their first messages among all rows, so the same rows always have the same order.
    """
    return order_by_group(rows.partitions, _numbers(rows.keys), count)


def in_order(messages: pa.LargeBinaryArray, order: Ints) -> EncodedMessages:
    """Copies the messages at the indexes ``order``, in that order."""
    taken = messages.take(pa.array(order))
    # Cast, because Arrow declares its bytes as signed.
    return EncodedMessages(memoryview(taken.buffers()[2]).cast("B"), _offsets(taken))


def parts_of(bounds: Ints) -> list[tuple[int, int, int]]:
    """Returns (i, first, end) of each part that has rows; part i has the rows [bounds[i], bounds[i + 1])."""
    places = enumerate(pairwise(bounds.tolist()))
    return [(number, first, last) for number, (first, last) in places if first < last]


def by_partition(partitions: Partitions, count: int) -> tuple[Ints, Ints]:
    """Returns indexes that sort rows by partition, int64[n], and the partitions' bounds, int64[count + 1]."""
    if count == 1:
        return np.arange(len(partitions)), np.array([0, len(partitions)])
    order = stable_order(partitions)
    return order, np.searchsorted(partitions[order], np.arange(count + 1))


def unless_all(rows: Ints, count: int) -> Ints | None:
    """Returns ``rows``, which are indexes; None if they are 0 to ``count - 1`` in order: all rows."""
    return None if np.array_equal(rows, np.arange(count)) else rows


def stable_order(groups: npt.NDArray[np.integer]) -> Ints:
    """Returns the stable order that sorts rows by group, int64[n]; groups are integers from 0 on."""
    # The smallest type, because numpy sorts 16 bits ten times as fast as 64.
    return np.argsort(groups.astype(np.min_scalar_type(groups.max(initial=0))), kind="stable")


def begin_keys(columns: MessageColumns, order: Ints, bounds: Ints) -> npt.NDArray[np.bool_]:
    """Whether each message has another key than the message before, or is a partition's first, bool[n].

    Args:
        order: indexes of the messages in the order of sending, int64[n].
        bounds: int64[p + 1]; partition i has the sent messages from ``bounds[i]`` up to ``bounds[i + 1]``.
    """
    begins: npt.NDArray[np.bool_] = np.diff(_numbers(_sticky_keys(columns))[order], prepend=-1) != 0
    begins[bounds[:-1][np.diff(bounds) > 0]] = True
    return begins


def _sticky_keys(columns: MessageColumns | DecodedColumns) -> pa.BinaryArray:
    return columns.key if columns.ordering_key is None else pc.coalesce(columns.ordering_key, columns.key)


def _numbers(keys: pa.BinaryArray) -> Ints:
    """Numbers keys from 0 in the order of their first messages; returns each message's number, int64[n]."""
    numbers: Ints = keys.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return numbers


def _offsets(messages: pa.LargeBinaryArray) -> Ints:
    """Returns the start of each message in the buffer, and the last end, int64[n + 1]."""
    held = np.frombuffer(messages.buffers()[1], np.int64)
    return held[messages.offset : messages.offset + len(messages) + 1]
