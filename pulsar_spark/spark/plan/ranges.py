"""The ranges that tasks read, from a start to an end: long ranges are split, short ranges share a task. Pure.

Entries of a ledger are numbered without gaps, so a range is cut by entry numbers, without a request to the
broker. For a range over several ledgers the caller counts entries. The parts of a range differ by at most one
entry; together they are the range, in order and without overlap.

Starting a Python task costs as much as reading a few hundred entries. So if there are many ranges, one task
reads several short ranges.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol, TypeAlias

from pulsar_spark.client import Ledger, PartitionBounds, Range
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Offsets

# Up to this number of ranges, each range is a task. More ranges share at least this number of tasks.
_MIN_TASKS = 16
# Maximum entries, and maximum ranges, of a task of several ranges. The sizes of entries are unknown here, but
# this number of entries of 128 KiB, the default maximum of a batch, is read in about a second.
_MAX_ENTRIES = 512
_MAX_RANGES = 64
# Assumed messages per entry: the default maximum of a producer's batch.
_MESSAGES_PER_ENTRY = 1000
# Maximum successive requests without a new ledger end (rollovers, new entries); then a cut may be inexact.
_MAX_FAILURES = 20

# The ranges that one task reads, one after another.
Task: TypeAlias = tuple[Range, ...]


def plan_ranges(start: Offsets, end: Offsets, starts: Mapping[TopicName, MessageId]) -> list[Range]:
    """Returns a range for each partition with messages between ``start`` and ``end``, in a fixed order.

    Args:
        start: end of the previous batch. If it names another subscription than ``end``, batch 0 did not
            finish, and the query has started again.
        end: end of the batch, as it was first planned.
        starts: by partition, the subscription's position when this run opened it. A partition that ``start``
            lacks begins at this position, or has no range if ``starts`` lacks it, too. A batch 0 that is
            planned again begins at the earlier of both positions.
    """
    anew = start.subscription != end.subscription
    ranges = []
    for topic, last in end.positions.items():
        if not anew and start.positions.get(topic) is last:  # no new messages, as in most partitions
            continue
        opened = starts.get(topic, last)
        first = start.positions.get(topic, opened)
        if anew:
            first = min(first, opened)
        # A range is left out if its end is before its start, or is (ledger, -1), the position before a
        # ledger's first entry. Spark 4.0 and 4.1 may pass this position as the end.
        if first < last and last.is_entry:
            ranges.append(Range(topic, first, last))
    # Sorted, because a checkpoint's offset has another order than the equal offset of the earlier run.
    return sorted(ranges, key=lambda each: (str(each.topic.base), each.topic.partition))


def plan_batch(
    starts: Mapping[TopicName, MessageId],
    ends: Mapping[TopicName, MessageId],
    bounds: Mapping[TopicName, PartitionBounds],
) -> list[Range]:
    """Returns a range for each partition of a batch read with messages between its start and end.

    Args:
        starts: by partition, the position after which to read; if older messages are deleted, reading begins
            at the first stored one.
        ends: position up to which to read each partition, at most its last message.
        bounds: by partition, the position before the broker's first entry, and the last visible message.
    """
    ranges = []
    for topic, (begin, last) in bounds.items():
        last = last.whole_entry
        start, end = max(starts[topic], begin), min(ends[topic], last)
        if last.is_entry and start < end:
            ranges.append(Range(topic, start, end, visible=end == last, begins=begin, followed=end < last))
    return ranges


class SplitSource(Protocol):
    """The broker's answers for splitting ranges. Its methods raise PulsarError."""

    def tracks(self, ranges: Sequence[Range]) -> Mapping[TopicName, Track]:
        """Returns a :class:`Track` for each range, by topic, which numbers its entries across ledgers."""

    def find(self, offsets: Mapping[TopicName, tuple[Track, Sequence[int]]]) -> object:
        """Finds the ledgers of a track's entries by their numbers, by topic; adds their ends to the track."""

    def messages_per_entry(self, ranges: Sequence[Range]) -> Mapping[TopicName, float]:
        """Returns estimates of the messages per entry, by topic."""


def split_ranges(
    ranges: list[Range], source: SplitSource, *, min_partitions: int | None, max_messages: int | None
) -> list[Range]:
    """Cuts ranges until there are ``min_partitions``, and none has more than ``max_messages``.

    The result is the same when the batch is planned again.

    Args:
        min_partitions: minimum number of tasks; the longest ranges are cut first. None: no minimum.
        max_messages: estimated maximum messages of one task. None: no maximum.

    Returns:
        The parts; fewer than requested if there are fewer entries.
    """
    if (min_partitions is None or min_partitions <= len(ranges)) and max_messages is None:
        return ranges
    across = source.tracks([each for each in ranges if 0 <= each.start.ledger < each.end.ledger])
    tracks = [
        across.get(each.topic) or Track(each.start.last_whole_entry, each.end.whole_entry) for each in ranges
    ]
    lengths = [track.length for track in tracks]
    pieces = [1] * len(ranges)
    if max_messages is not None:
        means = source.messages_per_entry(ranges)
        for place, each in enumerate(ranges):
            entries = max(1, int(max_messages / max(1.0, means.get(each.topic, 1.0))))
            pieces[place] = max(1, -(-lengths[place] // entries))
    _raise_to(pieces, lengths, min_partitions or 0)
    offsets = [
        [length * number // count for number in range(1, count)]
        for length, count in zip(lengths, pieces, strict=True)
    ]
    source.find(
        {each.topic: (track, cuts) for each, track, cuts in zip(ranges, tracks, offsets, strict=True) if cuts}
    )
    return [
        piece
        for each, track, cuts in zip(ranges, tracks, offsets, strict=True)
        for piece in _cut(each, [track.place(number) for number in cuts])
    ]


class Track:
    """The entries of a range, numbered from 1, and the known ends of the range's ledgers.

    Args:
        length: number of the range's entries. None: computed, over several ledgers only the last one's.
    """

    def __init__(self, start: MessageId, end: MessageId, length: int | None = None) -> None:
        if length is None:
            within = end.entries_since(start)
            length = end.entry + 1 if within is None else within
        self.end, self.length = end, length
        self._ends = [(0, start), (length, end)]  # (number, position): start, then last entries of ledgers

    @classmethod
    def over(cls, start: MessageId, end: MessageId, ledgers: Iterable[Ledger]) -> Track:
        """Returns the numbered entries of ``(start, end]``; ``ledgers``: all ledgers of the partition."""
        ends, length = [], 0
        for each in ledgers:
            if start.ledger <= each.id < end.ledger:
                length += each.entries - (start.entry + 1 if each.id == start.ledger else 0)
                ends.append((length, MessageId(each.id, each.entries - 1)))
        track = cls(start, end, length + end.entry + 1)
        track._ends[1:1] = ends
        return track

    def find(self, number: int, count: Callable[[MessageId], tuple[MessageId, int]]) -> None:
        """Finds the ledger of an entry by bisection over ledger ids, unless it is known.

        Args:
            number: number of the entry.
            count: function of a position; returns the last entry before it, and the number of the range's
                entries from it on. After a rollover, ``(ledger, -1)`` may be returned as the entry.
        """
        first = failures = 0  # ``first``: lowest possible ledger id of the entry
        for turn in itertools.count():
            (before, lower), (after, upper) = self._around(number)
            # Unless ``lower`` is the range's start, it ends its ledger, so the entry is in a later ledger.
            first = max(first, lower.ledger + bool(before))
            if after - number <= upper.entry or first >= upper.ledger or failures == _MAX_FAILURES:
                return
            ledger = (first + upper.ledger + 1) // 2
            if turn % 2 == 0:  # even turns interpolate, as if ledgers had equal sizes; odd turns bisect
                share = -(number - before + upper.entry + 1) * (upper.ledger - lower.ledger)
                ledger = min(max(first + 1, lower.ledger - share // (after - before)), upper.ledger)
            last, left = count(MessageId(ledger, 0))
            found = self.length - left
            if found < number:
                first = ledger
            if last.is_entry and lower < last < upper and before <= found <= after:
                insort(self._ends, (found, last))
                failures = 0
            elif found >= number:
                failures += 1

    def place(self, number: int) -> MessageId:
        """Returns the position of an entry by its number; :meth:`find` must have found its ledger."""
        _, (after, upper) = self._around(number)
        return upper.back(after - number)

    def _around(self, number: int) -> tuple[tuple[int, MessageId], tuple[int, MessageId]]:
        place = bisect_left(self._ends, (number,))
        return self._ends[place - 1], self._ends[place]


def _raise_to(pieces: list[int], lengths: Sequence[int], wanted: int) -> None:
    """Raises ``pieces``, each range's number of parts, where parts are longest; ``wanted`` is the sum."""
    longest = [
        (-length / count, place) for place, (length, count) in enumerate(zip(lengths, pieces, strict=True))
    ]
    heapq.heapify(longest)
    for _ in range(wanted - sum(pieces) if longest else 0):
        _, place = longest[0]
        if pieces[place] >= lengths[place]:
            return
        pieces[place] += 1
        heapq.heapreplace(longest, (-lengths[place] / pieces[place], place))


def _cut(each: Range, borders: Sequence[MessageId]) -> list[Range]:
    ends = [*borders, each.end]
    return [
        each._replace(
            start=start,
            end=end,
            visible=each.visible and end is each.end,
            followed=each.followed or (each.visible and end is not each.end),
        )
        for start, end in zip([each.start, *borders], ends, strict=True)
    ]


def share_tasks(
    ranges: Sequence[Range], *, min_tasks: int | None = None, max_messages: int | None = None
) -> list[Task]:
    """Combines short ranges into tasks if there are many.

    The result depends only on the ranges and the user's options, not on the cluster. So a micro-batch that is
    planned again after a restart, with more or fewer cores, has the same tasks with the same rows in the same
    order. A deduplicating sink compares a task's rows with the rows that the task has stored before.

    Args:
        min_tasks: minimum number of tasks; with fewer ranges, each has a task. None: no minimum.
        max_messages: estimated maximum messages of a task of several ranges. None: no maximum.

    Returns:
        The tasks, which together have each range once.
    """
    wanted = max(_MIN_TASKS, min_tasks or 0)
    if len(ranges) <= wanted:
        return [(each,) for each in ranges]
    max_entries = _MAX_ENTRIES
    if max_messages is not None:
        max_entries = max(1, min(max_entries, max_messages // _MESSAGES_PER_ENTRY))
    sizes = [min(_size(each), max_entries) for each in ranges]
    share = min(max_entries, sum(sizes) // wanted)
    small = [place for place, size in enumerate(sizes) if size < share]
    alone = [[place] for place, size in enumerate(sizes) if size >= share]
    shared = _fill(small, sizes, share, wanted - len(alone))
    return [tuple(ranges[place] for place in places) for places in sorted(chain(alone, shared))]


def _size(each: Range) -> int:
    """Returns the number of entries of a range; the maximum of a task if the range spans ledgers."""
    count = each.end.whole_entry.entries_since(each.start.last_whole_entry)
    return _MAX_ENTRIES if count is None else count


def _fill(places: Sequence[int], sizes: Sequence[int], share: int, wanted: int) -> list[list[int]]:
    """Combines consecutive ranges, by index, into ``wanted`` or more tasks of up to ``share`` entries."""
    filled: list[list[int]] = []
    entries = 0
    for number, place in enumerate(places):
        left = len(places) - number
        is_full = entries + sizes[place] > share or not filled or len(filled[-1]) == _MAX_RANGES
        if is_full or len(filled) + left <= wanted:
            filled.append([])
            entries = 0
        filled[-1].append(place)
        entries += sizes[place]
    return filled
