"""TopicLayout: the segments of a scalable topic, and which of them come before which. Pure.

A segment owns the keys of a range of hashes. A split or a merge seals its segments, which get no more
messages, and makes new ones in their range. At each time one segment takes the messages of a key. So of two
segments that have a key in common, all messages of the older one come before those of the newer one. Brokers
name the parents of a segment as well, but only while they exist: one that is empty is removed early, and
then its children seem to follow nothing, although an older segment is not read yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pulsar_spark.errors import OptionError, ProtocolError
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb

# Maximum segments, sealed ones included, far above real topics: a micro-batch compares each with all others.
MAX_SEGMENTS = 4_000
_MAX_HASH = 0xFFFF
_MAX_NUMBER = (1 << 31) - 1  # rows have it as an int


class Segment(NamedTuple):
    """One segment.

    Attributes:
        topic: the name by which it is read. A partition of a migrated topic keeps its own.
        is_sealed: whether it gets no more messages.
        first_hash: of its keys.
        last_hash: of its keys, inclusive.
        is_legacy: whether it was a partition of a classic topic, which were beside each other.
    """

    topic: TopicName
    is_sealed: bool
    first_hash: int
    last_hash: int
    is_legacy: bool = False

    def follows(self, older: Segment) -> bool:
        """Whether messages of an older segment come before those of this one."""
        has_key_in_common = older.first_hash <= self.last_hash and self.first_hash <= older.last_hash
        return has_key_in_common and not (self.is_legacy and older.is_legacy)


class TopicLayout(NamedTuple):
    """All segments of a topic at one time.

    Attributes:
        epoch: grows with each change.
        segments: by the name by which each is read, the oldest first.
        is_scalable: whether the topic is a scalable one; a classic topic has one segment a partition.
    """

    epoch: int
    segments: Mapping[TopicName, Segment]
    is_scalable: bool


def read_layout(update: pb.CommandScalableTopicUpdate, topic: TopicName) -> TopicLayout:
    """Read the segments that a broker sent.

    Args:
        update: without an error.
        topic: what was looked up.

    Raises:
        ProtocolError: they are not those of a topic.
    """
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
        )
        for each in sorted(sent, key=lambda each: each.segment_id)  # which only grow
        for name in [_name(each, resolved)]
    }
    if len({each.segment_id for each in sent}) < len(sent) or len(segments) < len(sent):
        raise ProtocolError("the broker reports a segment twice", topic=str(topic))
    is_scalable = any(each.state == pb.SEALED or not each.legacy_topic_name for each in sent)
    return TopicLayout(update.dag.epoch, segments, is_scalable)


def _resolved(update: pb.CommandScalableTopicUpdate, topic: TopicName) -> TopicName:
    """The name that the broker has for the topic: of the same, be it classic or scalable."""
    try:
        found = TopicName.parse(update.resolved_topic_name or str(topic), scalable=True)
    except OptionError as error:
        raise ProtocolError(f"the broker sent an invalid name: {error.what}", topic=str(topic)) from None
    if found.scalable != topic.scalable:
        raise ProtocolError(f"the broker sent the segments of {found}", topic=str(topic))
    return found


def _name(segment: pb.SegmentInfoProto, topic: TopicName) -> TopicName:
    """The name by which a segment is read; raises ProtocolError for one that the topic cannot have."""
    number, first, last = segment.segment_id, segment.hash_start, segment.hash_end
    if number > _MAX_NUMBER or not first <= last <= _MAX_HASH:
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
