"""TopicLayout: the segments of a scalable topic, and their order. Pure.

A segment owns the keys of a range of hashes. A split or a merge seals segments, which get no more messages,
and makes new segments in their range. At each time one segment gets the messages of a key. So if two segments
share a key, all messages of the older segment precede the messages of the newer one. The parents that brokers
name do not prove the order: an empty parent is removed early, and then its children seem to follow no
segment, although an older segment is not read yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pulsar_spark.errors import OptionError, ProtocolError
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb

# Maximum active and sealed segments, because a micro-batch compares all pairs. Real topics have far fewer.
MAX_SEGMENTS = 4_000
HASHES = 1 << 16  # number of hashes of keys
_MAX_NUMBER = (1 << 31) - 1  # rows have a segment's number as a 32-bit int


class Segment(NamedTuple):
    """One segment.

    Attributes:
        topic: name to read and write it by; a partition of a migrated topic keeps its own name.
        is_sealed: whether the segment gets no more messages.
        last_hash: last hash of its keys, inclusive.
        is_legacy: whether the segment was a partition of a classic topic; partitions have no order.
        bucket_splits: first hashes of its buckets after the first one, ascending. Messages of two buckets do
            not share a batch, because brokers give each bucket to one of several consumers.
        created_at: epoch of the first layout that has the segment; -1 for a partition, which is older.
        sealed_at: epoch of the first layout in which the segment is sealed; None for an active segment.
    """

    topic: TopicName
    is_sealed: bool
    first_hash: int
    last_hash: int
    is_legacy: bool = False
    bucket_splits: tuple[int, ...] = ()
    created_at: int = 0
    sealed_at: int | None = None

    def follows(self, older: Segment) -> bool:
        """Whether messages of an older segment precede the messages of this segment."""
        has_key_in_common = older.first_hash <= self.last_hash and self.first_hash <= older.last_hash
        return has_key_in_common and not (self.is_legacy and older.is_legacy)


class TopicLayout(NamedTuple):
    """All segments of a topic at one time.

    Attributes:
        epoch: version number of the layout, which grows with each change.
        segments: segments by their names, the oldest first.
        is_scalable: whether the topic is scalable; a classic topic has one segment for each partition.
    """

    epoch: int
    segments: Mapping[TopicName, Segment]
    is_scalable: bool

    @property
    def active(self) -> list[Segment]:
        """Returns the segments that get messages, ordered by their hashes.

        Raises:
            ProtocolError: a hash belongs to no active segment, or to two.
        """
        active = sorted(
            (each for each in self.segments.values() if not each.is_sealed), key=lambda each: each.first_hash
        )
        if not _have_each_hash_once(active):
            raise ProtocolError("the broker's active segments do not have each hash once")
        return active


def _have_each_hash_once(segments: Sequence[Segment]) -> bool:
    """Whether each hash belongs to one segment; ``segments`` are ordered by their hashes."""
    ends = [-1, *(each.last_hash for each in segments)]
    return [each.first_hash for each in segments] == [end + 1 for end in ends[:-1]] and ends[-1] == HASHES - 1


def read_layout(update: pb.CommandScalableTopicUpdate, topic: TopicName) -> TopicLayout:
    """Converts an update without an error to the layout; raises ProtocolError for invalid segments."""
    sent = update.dag.segments
    if len(sent) > MAX_SEGMENTS:
        raise ProtocolError(
            f"the broker reports {len(sent)} segments; the maximum is {MAX_SEGMENTS}", topic=str(topic)
        )
    resolved = _resolved(update, topic)
    segments = {
        name: Segment(
            name,
            each.state == pb.SEALED,
            each.hash_start,
            each.hash_end,
            is_legacy=bool(each.legacy_topic_name),
            bucket_splits=tuple(each.entry_bucket_splits),
            created_at=-1 if each.legacy_topic_name else each.created_at_epoch,
            sealed_at=_sealed_at(each, update.dag.epoch),
        )
        for each in sorted(sent, key=lambda each: each.segment_id)  # ids only grow, so the oldest is first
        for name in [_name(each, resolved)]
    }
    if len({each.segment_id for each in sent}) < len(sent) or len(segments) < len(sent):
        raise ProtocolError("the broker reports a segment twice", topic=str(topic))
    is_scalable = any(each.state == pb.SEALED or not each.legacy_topic_name for each in sent)
    return TopicLayout(update.dag.epoch, segments, is_scalable)


def _sealed_at(segment: pb.SegmentInfoProto, epoch: int) -> int | None:
    """Returns the epoch in which a segment was sealed, or the layout's epoch if unknown; None: active."""
    if segment.state != pb.SEALED:
        return None
    return segment.sealed_at_epoch if segment.HasField("sealed_at_epoch") else epoch


def _resolved(update: pb.CommandScalableTopicUpdate, topic: TopicName) -> TopicName:
    """Returns the topic's name in ``update``; raises ProtocolError if it names another topic."""
    try:
        found = TopicName.parse(update.resolved_topic_name or str(topic), scalable=True)
    except OptionError as error:
        raise ProtocolError(f"the broker sent an invalid name: {error.what}", topic=str(topic)) from None
    if found.scalable != topic.scalable:
        raise ProtocolError(f"the broker sent the segments of {found}", topic=str(topic))
    return found


def _name(segment: pb.SegmentInfoProto, topic: TopicName) -> TopicName:
    """Returns a segment's name; raises ProtocolError if the topic cannot have the segment."""
    number, first, last = segment.segment_id, segment.hash_start, segment.hash_end
    if number > _MAX_NUMBER or not first <= last < HASHES:
        what = f"the broker reports a segment {number} of the hashes {first:04x} to {last:04x}"
        raise ProtocolError(what, topic=str(topic))
    if not segment.legacy_topic_name:
        return topic.segment(first, last, number)
    legacy = TopicName.found(segment.legacy_topic_name)
    if legacy is None or topic.scalable not in (
        legacy.scalable,
        legacy._replace(domain=topic.scalable.domain),
    ):
        what = f"the broker reports {segment.legacy_topic_name[:500]!r} as a partition of another topic"
        raise ProtocolError(what, topic=str(topic))
    return legacy
