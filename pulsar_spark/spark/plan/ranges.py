"""The ranges that tasks read, from a start and an end, and the splitting of long ones into several. Pure.

Entries of a ledger are numbered without gaps, so a range is cut by entry numbers, without a request to the
broker. Over several ledgers it is cut in the last one, and in those whose last entries the caller knows. As
far as is known, a range's pieces have the same number of entries, to within one; whatever is known, together
they are the range, in its order and without overlap.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Offsets


class Range(NamedTuple):
    """What one task reads: all of ``topic``, a partition, in ``(start, end]``.

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


def plan_ranges(start: Offsets, end: Offsets, starts: Mapping[TopicName, MessageId]) -> list[Range]:
    """One range for each partition that has something between ``start`` and ``end``.

    Args:
        start: the end of the batch before. Where it names another subscription than ``end`` it is not that of
            the batch as it was planned first, but one that was made anew for a batch 0 that did not finish.
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
        Fewer than asked for where there are fewer entries.
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
