"""Several tasks for one long range of a topic partition. Pure.

Entries of a ledger are numbered without gaps, so a range is cut by entry numbers, and needs no question to
the broker. Over several ledgers it is cut in the last, and in those whose last entries the caller knows. As
far as is known, a range's pieces have the same number of entries, to within one; whatever is known, together
they are the range, in its order and without overlap.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import pairwise

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.ranges import Range


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


def _raise_to(pieces: list[int], lengths: Sequence[int], least: int) -> None:
    """Cut where pieces are longest until there are ``least``, or each is one entry."""
    longest = [
        (-length / count, place) for place, (length, count) in enumerate(zip(lengths, pieces, strict=True))
    ]
    heapq.heapify(longest)
    for _ in range(least - sum(pieces) if longest else 0):
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
    """How many entries of ``end``'s ledger lie in (start, end]: all that are known of."""
    return end.entry - (start.entry if start.ledger == end.ledger else -1)


def _cut(each: Range, track: Sequence[MessageId], length: int, count: int) -> list[Range]:
    borders = [_place(track, length * number // count) for number in range(1, count)]
    ends = [*borders, each.end]
    return [
        each._replace(start=start, end=end, visible=each.visible and end is each.end)
        for start, end in zip([each.start, *borders], ends, strict=True)
    ]


def _place(track: Sequence[MessageId], offset: int) -> MessageId:
    """The position behind so many entries of the track."""
    for start, end in pairwise(track):
        entries = _entries(start, end)
        if offset <= entries:
            return MessageId(end.ledger, end.entry - entries + offset)
        offset -= entries
    raise AssertionError("an offset lies within its track")
