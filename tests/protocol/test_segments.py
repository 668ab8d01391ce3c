"""Layout: what a broker says of the segments of a topic."""

import pytest

from pulsar_spark.errors import ProtocolError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.segments import Segment, read_layout
from pulsar_spark.wire import pulsar_pb2 as pb

TOPIC = TopicName.parse("topic://public/default/st", scalable=True)


def segment(number, first, last, *, sealed=False, legacy=None):
    return pb.SegmentInfoProto(
        segment_id=number,
        hash_start=first,
        hash_end=last,
        state=pb.SEALED if sealed else pb.ACTIVE,
        created_at_epoch=0,
        created_at_ms=0,
        legacy_topic_name=legacy,
    )


def layout(*segments, resolved=str(TOPIC), topic=TOPIC):
    dag = pb.ScalableTopicDAG(epoch=3, segments=segments)
    return read_layout(
        pb.CommandScalableTopicUpdate(session_id=1, dag=dag, resolved_topic_name=resolved), topic
    )


def test_names_are_computed_and_older_ones_come_first():
    found = layout(segment(10, 0x8000, 0xFFFF), segment(2, 0, 0xFFFF, sealed=True), segment(9, 0, 0x7FFF))
    assert [str(name) for name in found.segments] == [
        "segment://public/default/st/0000-ffff-2",
        "segment://public/default/st/0000-7fff-9",
        "segment://public/default/st/8000-ffff-10",
    ]
    assert [each.is_sealed for each in found.segments.values()] == [True, False, False]
    assert (found.epoch, found.is_scalable) == (3, True)


def test_segments_say_when_they_were_created_and_sealed():
    segments = [segment(0, 0, 0xFFFF, sealed=True), segment(1, 0, 0xFFFF, sealed=True), segment(2, 0, 0xFFFF)]
    segments[0].sealed_at_epoch = segments[1].created_at_epoch = 1
    segments[2].created_at_epoch = 2
    found = layout(*segments).segments.values()
    assert [(each.created_at, each.sealed_at) for each in found] == [(0, 1), (1, 3), (2, None)]


def test_a_segment_follows_older_ones_that_have_a_key_in_common():
    left, right = (Segment(TOPIC, True, *hashes) for hashes in ((0, 0x7FFF), (0x8000, 0xFFFF)))
    middle, edge = Segment(TOPIC, False, 0x4000, 0xBFFF), Segment(TOPIC, False, 0x7FFF, 0x7FFF)
    assert middle.follows(left)
    assert middle.follows(right)
    assert edge.follows(left)
    assert left.follows(edge)
    assert not edge.follows(right)
    assert not right.follows(left)


def test_partitions_of_a_migrated_topic_keep_their_names_and_follow_none_of_each_other():
    name = "persistent://public/default/st-partition-"
    found = layout(
        *(segment(number, 0, 0xFFFF, sealed=True, legacy=f"{name}{number}") for number in range(2)),
        segment(2, 0, 0xFFFF),
    )
    first, second, new = found.segments.values()
    assert [str(first.topic), str(second.topic)] == [f"{name}0", f"{name}1"]
    assert not second.follows(first)
    assert new.follows(first)
    assert new.follows(second)
    assert found.is_scalable


def test_a_classic_topic_is_none():
    name = TopicName.parse("t")
    assert not layout(segment(0, 0, 0xFFFF, legacy=str(name)), resolved="", topic=name).is_scalable
    assert not layout(resolved="", topic=name).is_scalable


def test_a_classic_topic_may_be_named_as_a_partition_is():
    name = TopicName.parse("odd-partition-7")
    migrated = TopicName.parse("topic://public/default/odd-partition-7", scalable=True)
    for topic in (name, name.base, migrated):
        found = layout(segment(0, 0, 0xFFFF, legacy=str(name)), resolved="", topic=topic)
        assert list(found.segments) == [name]


def test_what_no_topic_can_have_is_an_error_of_the_protocol():
    """Whatever a broker sends: no wrong order, no topic of somebody else, no row that Spark cannot hold."""
    whole = (0, 0, 0xFFFF)
    for bad in (
        [segment(0, 0, 0x10000)],
        [segment(0, 0x10000, 0x10000)],
        [segment(0, 8, 7)],
        [segment(1 << 31, 0, 0xFFFF)],
        [segment((1 << 64) - 1, 0, 0xFFFF)],
        [segment(*whole), segment(*whole)],
        [segment(*whole), segment(0, 0, 0x7FFF)],
        [segment(0, 0, 0xFFFF, legacy="t"), segment(1, 0, 0xFFFF, legacy="t")],
        *(
            [segment(*whole, sealed=True, legacy=legacy)]
            for legacy in (
                *("topic://public/default/st", "segment://public/default/st/0000-ffff-0"),
                *("persistent://public/default/st\n", "persistent://public/default/other"),
                *("persistent://public/default/st2-partition-0", "persistent://public/other/st"),
                *("persistent://other/default/st-partition-0", "st-partition-0", "?"),
            )
        ),
    ):
        with pytest.raises(ProtocolError):
            layout(*bad)
    for resolved in ("topic://public/default/other", "persistent://public/other/st", "segment://a/b/c"):
        with pytest.raises(ProtocolError):
            layout(segment(*whole), resolved=resolved)
    largest = layout(segment((1 << 31) - 1, 0xFFFF, 0xFFFF))
    assert [name.partition for name in largest.segments] == [(1 << 31) - 1]


def test_a_topic_has_some_thousand_segments_at_most():
    sealed = [segment(number, 0, 0xFFFF, sealed=True) for number in range(4001)]
    assert len(layout(*sealed[:4000]).segments) == 4000
    with pytest.raises(ProtocolError, match="4001 segments; the maximum is 4000"):
        layout(*sealed)


@pytest.mark.parametrize("bad", [{"resolved": "topic://x"}, {"resolved": "a://b/c/d"}])
def test_names_of_nothing_are_an_error_of_the_protocol(bad):
    with pytest.raises(ProtocolError):
        layout(segment(0, 0, 0xFFFF), **bad)
    with pytest.raises(ProtocolError):
        layout(segment(0, 0, 0xFFFF, legacy="non-persistent://a/b/c"))


def test_active_segments_are_ordered_by_their_hashes():
    found = layout(
        segment(0, 0, 0xFFFF, sealed=True), segment(1, 0x8000, 0xFFFF), segment(2, 0, 0x7FFF)
    ).active
    assert [each.first_hash for each in found] == [0, 0x8000]


@pytest.mark.parametrize(
    "ranges",
    [[], [(0, 0x7FFF)], [(1, 0xFFFF)], [(0, 0x7FFF), (0x8001, 0xFFFF)], [(0, 0x8000), (0x8000, 0xFFFF)]],
)
def test_each_hash_has_one_active_segment(ranges):
    found = layout(
        segment(9, 0, 0xFFFF, sealed=True), *(segment(at, *each) for at, each in enumerate(ranges))
    )
    with pytest.raises(ProtocolError, match="each hash once"):
        _ = found.active


def test_buckets_of_a_segment():
    given = segment(0, 0, 0xFFFF)
    given.entry_bucket_splits.extend([0x4000, 0x9000])
    assert [each.bucket_splits for each in layout(given).segments.values()] == [(0x4000, 0x9000)]
