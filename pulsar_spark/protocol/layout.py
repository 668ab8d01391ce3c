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

# Maximum segments, sealed ones included, far above real topics: each takes memory.
MAX_SEGMENTS = 100_000


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
    try:
        resolved = TopicName.parse(update.resolved_topic_name or str(topic), scalable=True)
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
    except OptionError as error:
        raise ProtocolError(f"the broker sent an invalid name: {error.what}", topic=str(topic)) from None
    is_scalable = any(each.state == pb.SEALED or not each.legacy_topic_name for each in sent)
    return TopicLayout(update.dag.epoch, segments, is_scalable)


def _name(segment: pb.SegmentInfoProto, topic: TopicName) -> TopicName:
    if segment.legacy_topic_name:
        return TopicName.parse(segment.legacy_topic_name)
    return topic.segment(segment.hash_start, segment.hash_end, segment.segment_id)
