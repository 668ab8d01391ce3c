"""Planning of a micro-batch: from a start and what the broker holds to an end and to tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Json, Offsets


class Range(NamedTuple):
    """What one task reads: all of ``topic``, a partition, in ``(start, end]``.

    Attributes:
        topic: the partition.
        start: taken up to here.
        end: the last message, inclusive.
        visible: whether ``end`` is a message that was visible when it was planned: not to find it is data
            loss. False for borders within a split range and for ends that users gave, which may be markers,
            aborted, or behind their ledger's end.
        begins: batches: the position before the first entry that the broker had when it was planned; a reader
            that begins later has lost data. None in streams, whose durable subscription holds the data.
    """

    topic: TopicName
    start: MessageId
    end: MessageId
    visible: bool = True
    begins: MessageId | None = None


def plan_ranges(start: Offsets, end: Offsets, begins: Mapping[TopicName, MessageId]) -> list[Range]:
    """One range for each partition that has something between ``start`` and ``end``.

    Args:
        start: the end of the batch before. Where it names another subscription than ``end`` it is not that of
            the batch as it was planned first, but one that was made anew for a batch 0 that did not finish.
        end: as it was planned first.
        begins: for each partition, where the subscription of ``end`` stood when this run opened it: the start
            of partitions that ``start`` does not know, and of a batch 0 that is planned again.
    """
    anew = start.subscription != end.subscription
    ranges = []
    for topic, last in end.positions.items():
        begin = begins.get(topic, last)
        first = start.positions.get(topic, begin)
        if anew or last < first:
            # An end before the start is that of another topic of the same name, read from its beginning.
            first = min(first, begin)
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
        starts: by partition, resolved: up to where it counts as taken. What lies before the first message
            that is left means that one.
        ends: of the same partitions, resolved. What lies behind the last message means that one.
        begins: the position before the first entry the broker has.
        lasts: the last visible message; entry -1 where there is none.
    """
    ranges = []
    for topic, begin in begins.items():
        last = lasts[topic].whole_entry
        start, end = max(starts[topic], begin), min(ends[topic], last)
        if last.entry >= 0 and start < end:
            ranges.append(Range(topic, start, end, visible=end == last, begins=begin))
    return ranges


def progress(
    positions: Mapping[TopicName, MessageId],
    lasts: Mapping[TopicName, MessageId],
    backlogs: Mapping[TopicName, int],
) -> Json:
    """What StreamingQueryProgress shows: by topic and partition the end, and what is left behind a batch.

    Args:
        positions: by partition, where the batch ends.
        lasts: the last message; in front of everything where there is none.
        backlogs: entries that were not acknowledged when it was planned, for where they cannot be counted.

    Returns:
        ``{"topics": {topic: {partition: {"end": id, "backlogEntries": n, "backlogMessages": n}}}}``, and the
        sums beside it. Messages are told only where none is left: entries are batches of any size.
    """
    topics: dict[str, dict[str, Json]] = {}
    total = 0
    for topic in sorted(positions, key=lambda name: (str(name.base), name.partition)):
        position, last = positions[topic].last_whole_entry, lasts[topic]
        left = 0
        if position < last:
            same = position.ledger == last.ledger
            left = last.entry - position.entry if same else max(1, backlogs.get(topic, 1))
        shown: Json = {"end": str(max(last, positions[topic])), "backlogEntries": left}
        if left == 0:
            shown["backlogMessages"] = 0
        total += left
        topics.setdefault(str(topic.base), {})[str(topic.partition)] = shown
    report: Json = {"topics": topics, "backlogEntries": total}
    if total == 0:
        report["backlogMessages"] = 0
    return report
