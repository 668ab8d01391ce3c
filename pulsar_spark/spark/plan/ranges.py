"""The ranges that tasks read, from a start and an end: long ones are split, short ones share a task. Pure.

Entries of a ledger are numbered without gaps, so a range is cut by entry numbers, without a request to the
broker. Over several ledgers it is cut in the last one, and in those whose last entries the caller knows. As
far as is known, a range's pieces have the same number of entries, to within one; whatever is known, together
they are the range, in its order and without overlap.

To start a Python task costs as much as to read some hundred entries. So where there are many ranges, those of
a few entries are read by few tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple, Protocol, TypeAlias

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Offsets

# So many ranges have a task each; more never have fewer tasks than this.
_MIN_TASKS = 16
# Of a task of several ranges. The bytes of entries are not known here: a batch of a producer has up to
# 128 KiB by default, and so many of them are read in about a second; so many single messages cost nothing.
_MAX_ENTRIES = 512
_MAX_RANGES = 64
# Messages that an entry is taken to hold: producers put as many into a batch by default.
_MESSAGES_PER_ENTRY = 1000


class Range(NamedTuple):
    """What a task reads, alone or after others: all of ``topic``, a partition, in ``(start, end]``.

    Attributes:
        topic: the partition.
        start: taken up to here.
        end: the last message, inclusive.
        visible: whether ``end`` is a message that was visible when it was planned: not to find it is data
            loss. False for borders within a split range and for ends that users gave, which may be markers,
            aborted, or after their ledger's end.
        begins: batches: the position before the first entry that the broker had when it was planned; a reader
            that begins later has lost data. None in streams, whose durable subscription holds the data.
    """

    topic: TopicName
    start: MessageId
    end: MessageId
    visible: bool = True
    begins: MessageId | None = None


# What one task reads: ranges, one after the other.
Task: TypeAlias = tuple[Range, ...]


def plan_ranges(start: Offsets, end: Offsets, starts: Mapping[TopicName, MessageId]) -> list[Range]:
    """One range for each partition that has something between ``start`` and ``end``.

    Args:
        start: the end of the batch before. If it names another subscription than ``end``, it is not the
            start of the first plan, but was created again for a batch 0 that did not finish.
        end: as it was planned first.
        starts: for each partition, where the subscription of ``end`` stood when this run opened it: the start
            of partitions that ``start`` does not know, and of a batch 0 that is planned again.
    """
    anew = start.subscription != end.subscription
    ranges = []
    for topic, last in end.positions.items():
        opened = starts.get(topic, last)
        first = start.positions.get(topic, opened)
        if anew:
            first = min(first, opened)
        # An end before the start is that of a topic that was set back: nothing of it was read.
        if first < last:
            ranges.append(Range(topic, first, last))
    return ranges


def plan_batch(
    starts: Mapping[TopicName, MessageId],
    ends: Mapping[TopicName, MessageId],
    begins: Mapping[TopicName, MessageId],
    lasts: Mapping[TopicName, MessageId],
) -> list[Range]:
    """One range for each partition of a batch read that has something between its start and its end.

    Args:
        starts: by partition, resolved: up to where it counts as taken. A position before the first message
            that is left means that one.
        ends: of the same partitions, resolved. A position after the last message means that one.
        begins: the position before the first entry the broker has.
        lasts: the last visible message; entry -1 where there is none.
    """
    ranges = []
    for topic, begin in begins.items():
        last = lasts[topic].whole_entry
        start, end = max(starts[topic], begin), min(ends[topic], last)
        if last.is_message and start < end:
            ranges.append(Range(topic, start, end, visible=end == last, begins=begin))
    return ranges


class SplitSource(Protocol):
    """What the splitting of ranges asks the broker. Its methods raise PulsarError."""

    def ledger_ends(self, ranges: Sequence[Range]) -> Mapping[TopicName, Sequence[MessageId]]:
        """By topic, the last entries of the ledgers that end within its range, as far as known."""

    def messages_per_entry(self, ranges: Sequence[Range]) -> Mapping[TopicName, float]:
        """By topic, an estimate."""


def split_ranges(
    ranges: list[Range], source: SplitSource, *, min_partitions: int | None, max_messages: int | None
) -> list[Range]:
    """:func:`split` with what the broker knows, which is asked only where it matters.

    The same again when the batch is planned again.
    """
    if (min_partitions is None or min_partitions <= len(ranges)) and max_messages is None:
        return ranges
    return split(
        ranges,
        min_partitions=min_partitions,
        max_messages=max_messages,
        ledger_ends=source.ledger_ends(ranges),
        messages_per_entry=None if max_messages is None else source.messages_per_entry(ranges),
    )


def split(
    ranges: Sequence[Range],
    *,
    min_partitions: int | None,
    max_messages: int | None,
    ledger_ends: Mapping[TopicName, Sequence[MessageId]] | None = None,
    messages_per_entry: Mapping[TopicName, float] | None = None,
) -> list[Range]:
    """Cut ranges until there are ``min_partitions`` and none holds more than ``max_messages``.

    Args:
        ranges: what is to be read, at most one of each topic.
        min_partitions: of tasks in all; the longest are cut first. None: any number.
        max_messages: of one task, by estimate. None: any number.
        ledger_ends: by topic the last entries of the ledgers that it holds, in order, as far as known.
        messages_per_entry: by topic an average; 1 where it is not given.

    Returns:
        Fewer than requested if there are fewer entries.
    """
    tracks = [_track(each, (ledger_ends or {}).get(each.topic, ())) for each in ranges]
    lengths = [sum(_entries(a, b) for a, b in pairwise(track)) for track in tracks]
    pieces = [1] * len(ranges)
    if max_messages is not None:
        for place, each in enumerate(ranges):
            mean = max(1.0, (messages_per_entry or {}).get(each.topic, 1.0))
            entries = max(1, int(max_messages / mean))
            pieces[place] = max(1, -(-lengths[place] // entries))
    _raise_to(pieces, lengths, min_partitions or 0)
    return [
        piece
        for each, track, length, count in zip(ranges, tracks, lengths, pieces, strict=True)
        for piece in _cut(each, track, length, count)
    ]


def _raise_to(pieces: list[int], lengths: Sequence[int], wanted: int) -> None:
    """Cut where pieces are longest until there are ``wanted``, or each is one entry."""
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


def _track(each: Range, ledger_ends: Sequence[MessageId]) -> list[MessageId]:
    """The range's start, the ledgers' ends within it, and its end, whole entries all."""
    start, end = each.start.last_whole_entry, each.end.whole_entry
    between = sorted(border for border in ledger_ends if start < border and border.ledger < end.ledger)
    return [start, *between, end]


def _entries(start: MessageId, end: MessageId) -> int:
    """How many entries of ``end``'s ledger lie in (start, end]: all that are known."""
    count = end.entries_since(start)
    return end.entry + 1 if count is None else count


def _cut(each: Range, track: Sequence[MessageId], length: int, count: int) -> list[Range]:
    borders = [_place(track, length * number // count) for number in range(1, count)]
    ends = [*borders, each.end]
    return [
        each._replace(start=start, end=end, visible=each.visible and end is each.end)
        for start, end in zip([each.start, *borders], ends, strict=True)
    ]


def _place(track: Sequence[MessageId], offset: int) -> MessageId:
    """The position after so many entries of the track."""
    for start, end in pairwise(track):
        entries = _entries(start, end)
        if offset <= entries:
            return end.back(entries - offset)
        offset -= entries
    raise AssertionError("an offset lies within its track")


def share_tasks(
    ranges: Sequence[Range], *, min_tasks: int | None = None, max_messages: int | None = None
) -> list[Task]:
    """Put ranges that are short into tasks together, where there are many.

    All follows from the ranges and the user's options, and nothing from the cluster: a micro-batch that is
    planned again after a restart, with more cores or fewer, has the same tasks with the same rows in the same
    order. A sink that writes each row once compares a task's rows with what that task has stored before.

    Args:
        ranges: what is to be read, in any order, which stays: within a task, and of tasks by their first
            ranges.
        min_tasks: there are at least so many tasks, or one for each range. None: any number.
        max_messages: of a task of several ranges, by estimate. None: any number.

    Returns:
        Tasks that hold each range once.
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
    """How many entries a range has: very many if it goes over the end of a ledger, which may be far."""
    count = each.end.whole_entry.entries_since(each.start.last_whole_entry)
    return _MAX_ENTRIES if count is None else count


def _fill(places: Sequence[int], sizes: Sequence[int], share: int, wanted: int) -> list[list[int]]:
    """Put places together, one after the other, in at least ``wanted`` lists if there are as many."""
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
