"""SegmentOrder: the segments of a scalable topic that may be read, so that the rows of a key stay in order.

If two segments share a key, all messages of the older segment are earlier (:class:`TopicLayout`). A
micro-batch has no order between its tasks. So a segment is read in later micro-batches than the segments
that it follows. Each segment is in the first state that applies:

    state   condition                                    effect
    HELD    it follows a HELD or OPEN segment            it is not read yet
    OPEN    it is active, or its final end is not        it is read up to its last message
            processed
    DONE    any other                                    its position in the offset is ``done``

The final end of a sealed segment is its last entry, visible or not, because an open transaction may still
make messages visible up to it. If all visible messages are processed, but not the final end, the broker is
asked whether the segment has ended (:func:`find_ended`). It has if only transaction markers follow. The final
end is unknown after a migration, because brokers report a topic's old partitions as sealed too early.

A broker removes a segment from the layout once the query's subscription has acknowledged all of it, so no
segment waits for it any more. ``done`` stays in the offset until then, because it alone shows that the
segment was read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import PROMPT, Calls, Kind, PlanningClient, Segment, TopicLayout
from pulsar_spark.errors import NotReadyError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.partition import Partition

_log = logging.getLogger(__name__)

# The position of a segment that has been read to its final end.
DONE = MessageId.LATEST

_ADVICE = "End or abort open transactions. Start the query again if it has stopped"


class SegmentOrder(NamedTuple):
    """The data that decides which segments of a scalable topic may be read.

    ``final_ends``: last entry of each sealed segment, or its last message if no message can follow.
    """

    layout: TopicLayout
    final_ends: Mapping[TopicName, MessageId]

    def held(self, processed: Mapping[TopicName, MessageId]) -> set[TopicName]:
        """Returns the HELD segments, which are not read until all segments that they follow are DONE.

        ``processed``: position up to which each segment is processed; missing segments are unprocessed.
        """
        held: set[TopicName] = set()
        older: list[Segment] = []  # HELD or OPEN segments
        for name, segment in self.layout.segments.items():
            position = processed.get(name, MessageId.EARLIEST)
            if position == DONE:  # first, because there may be hundreds of these
                continue
            if any(map(segment.follows, older)):
                held.add(name)
                older.append(segment)
            elif not self.is_done(name, position):
                older.append(segment)
        return held

    def unsure(self, processed: Mapping[TopicName, MessageId], held: Collection[TopicName]) -> set[TopicName]:
        """Returns the sealed segments, except ``held`` ones, that are not known to be read to their ends."""
        return {
            name
            for name, segment in self.layout.segments.items()
            if segment.is_sealed
            and name not in held
            and not self.is_done(name, processed.get(name, MessageId.EARLIEST))
        }

    def oldest_after(self, segment: TopicName, processed: Mapping[TopicName, MessageId]) -> MessageId:
        """Returns the smallest known position in segments that follow ``segment``; ``LATEST`` if none."""
        known, one = self.layout.segments, self.layout.segments[segment]
        later = (
            position
            for name, position in processed.items()
            if position.ledger >= 0 and name in known and _number(name) > _number(segment)
            if known[name].follows(one)
        )
        return min(later, default=MessageId.LATEST)

    def is_done(self, segment: TopicName, position: MessageId) -> bool:
        """Whether a segment, processed up to ``position``, is read to its final end."""
        if position == DONE:
            return True
        final = self.final_ends.get(segment)
        return final is not None and (not final.is_entry or position.last_whole_entry >= final)


def skipped(known: Iterable[TopicName], layout: TopicLayout) -> int:
    """Returns how many numbers of segments after the newest one in ``known`` are missing in ``layout``.

    These segments were created and removed, because new segments have ascending numbers.
    """
    newest = max(map(_number, known))
    later = [number for number in map(_number, layout.segments) if number > newest]
    return max(later, default=newest) - newest - len(later)


def _number(segment: TopicName) -> int:
    return max(segment.partition, 0)  # a migrated topic without partitions is segment 0


def done_in(offsets: Offsets) -> set[TopicName]:
    """Returns the segments that have the position ``done`` in an offset: they were read to their ends."""
    # Each trigger compares all positions, so the ledger is compared first, which is fast.
    return {
        topic
        for topic, position in offsets.positions.items()
        if position.ledger == DONE.ledger and position == DONE
    }


def is_moved(planned: Mapping[TopicName, MessageId], start: Offsets) -> bool:
    """Whether a micro-batch moves any position. It does not if only done segments have left their topics."""
    if planned == start.positions:
        return False
    kept = {topic: end for topic, end in start.positions.items() if topic in planned or end != DONE}
    return planned != kept


def without_done(
    offsets: Offsets, old: Collection[TopicName], partitions: Mapping[TopicName, Partition]
) -> Offsets:
    """Returns the offset with the last visible messages of done segments instead of ``done``.

    Leaves out the segments ``old``, which were done before the micro-batch.
    """
    done = done_in(offsets)
    if not done and not old:
        return offsets
    positions = {
        topic: partitions[topic].last if topic in done and topic in partitions else position
        for topic, position in offsets.positions.items()
        if topic not in old
    }
    return Offsets(offsets.subscription, positions)


def find_ended(
    client: PlanningClient, calls: Calls[Partition], segments: Iterable[Partition], *, waits: bool
) -> set[Partition]:
    """Asks the brokers which sealed segments have ended; warns once of each that has not.

    ``segments``: sealed segments that are processed up to their last visible messages.
    """
    pending, now = calls[Kind.FINAL_END], client.now()
    asked = {
        each: partial(client.has_ended, each.topic, each.position_or_start)
        for each in segments
        if waits or pending.pauses.is_over(each, now)
    }
    ended = set()
    for segment, answer in pending.run(asked, None if waits else PROMPT).items():
        if answer is True:
            pending.pauses.succeeded(segment)
            ended.add(segment)
            continue
        level = logging.WARNING if pending.pauses.failed(segment, client.now()) else logging.INFO
        _log.log(level, "%s", answer if isinstance(answer, PulsarError) else not_ended(segment.topic))
    return ended


def not_ended(segment: TopicName) -> NotReadyError:
    """Returns the error of a segment for which later segments wait."""
    return NotReadyError(
        "the segment is sealed and read to its last message, but the broker does not say that it has ended; "
        "segments after it are not read before that",
        topic=str(segment),
        advice=_ADVICE,
    )
