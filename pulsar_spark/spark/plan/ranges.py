"""The ranges that tasks read, from a start to an end: long ones are split, short ones share a task. Pure.

Entries of a ledger are numbered without gaps, so a range is cut by entry numbers, without a request to the
broker. A range over several ledgers is cut in the last one, and in those whose last entries the caller knows.
As far as is known, the parts of a range have the same number of entries, give or take one. In any case the
parts together are the range, in order and without overlap.

Starting a Python task costs as much as reading a few hundred entries. So if there are many ranges, few tasks
read those that have only a few entries.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple, Protocol, TypeAlias

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Offsets

# Up to this many ranges have a task each. More ranges never have fewer tasks than this.
_MIN_TASKS = 16
# Maximum entries, and maximum ranges, of a task of several ranges. The bytes of entries are not known here: a
# producer's batch has up to 128 KiB by default, and that many of them are read in about a second; that many
# single messages cost almost nothing.
_MAX_ENTRIES = 512
_MAX_RANGES = 64
# Assumed messages per entry: producers put up to this many into a batch by default.
_MESSAGES_PER_ENTRY = 1000


class Range(NamedTuple):
    """A range that a task reads, alone or after others: the messages of a partition in ``(start, end]``.

    Attributes:
        topic: topic partition.
        start: position up to which everything is taken already.
        end: last message, inclusive.
        visible: whether ``end`` was a visible message when the range was planned; it is data loss if that is
            not found. False for borders within a split range, and for ends from users, which may be markers,
            aborted, or after the end of their ledger.
        begins: position after which the broker had everything when the range was planned; a reader that can
            only begin later has lost data. None: unknown.
        followed: whether a visible message came after ``end`` when the range was planned.
    """

    topic: TopicName
    start: MessageId
    end: MessageId
    visible: bool = True
    begins: MessageId | None = None
    followed: bool = False


# The ranges that one task reads, one after another.
Task: TypeAlias = tuple[Range, ...]


def plan_ranges(start: Offsets, end: Offsets, starts: Mapping[TopicName, MessageId]) -> list[Range]:
    """Make one range for each partition that has something between ``start`` and ``end``.

    Args:
        start: end of the previous batch. If it names another subscription than ``end``, it is not the start
            of the first plan, but was created again for a batch 0 that did not finish.
        end: end of the batch as it was planned first.
        starts: position of the subscription of ``end`` when this run opened it, by partition: the start of
            partitions that ``start`` does not have, and of a batch 0 that is planned again.
    """
    anew = start.subscription != end.subscription
    ranges = []
    for topic, last in end.positions.items():
        opened = starts.get(topic, last)
        first = start.positions.get(topic, opened)
        if anew:
            first = min(first, opened)
        # An end before the start belongs to a topic that was set back: nothing of it was read.
        if first < last:
            ranges.append(Range(topic, first, last))
    return ranges


def plan_batch(
    starts: Mapping[TopicName, MessageId],
    ends: Mapping[TopicName, MessageId],
    begins: Mapping[TopicName, MessageId],
    lasts: Mapping[TopicName, MessageId],
) -> list[Range]:
    """Make one range for each partition of a batch read that has something between its start and end.

    Args:
        starts: resolved starts, by partition: everything up to them counts as taken. A position before the
            first message still there means that message.
        ends: resolved ends of the same partitions. A position after the last message means that message.
        begins: position before the broker's first entry, by partition.
        lasts: last visible message, by partition; entry -1 if there is none.
    """
    ranges = []
    for topic, begin in begins.items():
        last = lasts[topic].whole_entry
        start, end = max(starts[topic], begin), min(ends[topic], last)
        if last.is_message and start < end:
            ranges.append(Range(topic, start, end, visible=end == last, begins=begin, followed=end < last))
    return ranges


class SplitSource(Protocol):
    """The information from the broker for splitting ranges. Its methods raise PulsarError."""

    def ledger_ends(self, ranges: Sequence[Range]) -> Mapping[TopicName, Sequence[MessageId]]:
        """The last entries of ledgers that end within each range, by topic, as far as they are known."""

    def messages_per_entry(self, ranges: Sequence[Range]) -> Mapping[TopicName, float]:
        """An estimate of the messages per entry, by topic."""


def split_ranges(
    ranges: list[Range], source: SplitSource, *, min_partitions: int | None, max_messages: int | None
) -> list[Range]:
    """Call :func:`split` with information from the broker, requested only if it matters.

    The result is the same when the batch is planned again.
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
    """Cut ranges until there are ``min_partitions``, and none holds more than ``max_messages``.

    Args:
        ranges: ranges to read, at most one for each topic.
        min_partitions: minimum number of tasks; the longest ranges are cut first. None: no minimum.
        max_messages: estimated maximum messages of one task. None: no maximum.
        ledger_ends: last entries of the ledgers within each range, by topic, in order, as far as they are
            known.
        messages_per_entry: average messages per entry, by topic; 1 for topics that are not given.

    Returns:
        The parts; fewer than requested if there are fewer entries.
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
    """The range's start, the ends of ledgers within it, and its end, all as whole entries."""
    start, end = each.start.last_whole_entry, each.end.whole_entry
    between = sorted(border for border in ledger_ends if start < border and border.ledger < end.ledger)
    return [start, *between, end]


def _entries(start: MessageId, end: MessageId) -> int:
    """The number of entries in (start, end] that lie in the ledger of ``end``; others are unknown."""
    count = end.entries_since(start)
    return end.entry + 1 if count is None else count


def _cut(each: Range, track: Sequence[MessageId], length: int, count: int) -> list[Range]:
    borders = [_place(track, length * number // count) for number in range(1, count)]
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


def _place(track: Sequence[MessageId], offset: int) -> MessageId:
    """The position after ``offset`` entries of the track."""
    for start, end in pairwise(track):
        entries = _entries(start, end)
        if offset <= entries:
            return end.back(entries - offset)
        offset -= entries
    raise AssertionError("an offset lies within its track")


def share_tasks(
    ranges: Sequence[Range], *, min_tasks: int | None = None, max_messages: int | None = None
) -> list[Task]:
    """Combine short ranges into tasks if there are many.

    The result depends only on the ranges and the user's options, not on the cluster. So a micro-batch that is
    planned again after a restart, with more or fewer cores, has the same tasks with the same rows in the same
    order. A sink that stores each row once compares a task's rows with those that the task has stored before.

    Args:
        ranges: ranges to read. Their order is kept: within a task, and among tasks by their first ranges.
        min_tasks: minimum number of tasks; one for each range if there are fewer ranges. None: no minimum.
        max_messages: estimated maximum messages of a task of several ranges. None: no maximum.

    Returns:
        The tasks, which together hold each range once.
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
    """The number of entries of a range; very many if it crosses the end of a ledger, which may be long."""
    count = each.end.whole_entry.entries_since(each.start.last_whole_entry)
    return _MAX_ENTRIES if count is None else count


def _fill(places: Sequence[int], sizes: Sequence[int], share: int, wanted: int) -> list[list[int]]:
    """Combine consecutive places into lists, at least ``wanted`` lists if there are enough places."""
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
