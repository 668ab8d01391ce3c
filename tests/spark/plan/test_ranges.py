import pytest

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.ranges import Range, plan_batch, plan_ranges, progress

P0, P1 = TopicName.parse("t-partition-0"), TopicName.parse("t-partition-1")
NOTHING = MessageId(-1, -1)


def offsets(**positions: MessageId) -> Offsets:
    return Offsets("s", {{"p0": P0, "p1": P1}[name]: position for name, position in positions.items()})


def test_an_empty_batch_has_no_ranges():
    end = offsets(p0=MessageId(1, 1))
    assert plan_ranges(end, end, {}) == []


def test_a_batch_0_that_is_planned_again_begins_where_its_own_subscription_stands():
    end, begins = offsets(p0=MessageId(1, 9), p1=MessageId(2, 2)), {P0: MessageId(1, 1), P1: MessageId(2, 2)}
    expected = [Range(P0, MessageId(1, 1), MessageId(1, 9))]
    later = Offsets("made anew", {P0: MessageId(1, 9), P1: MessageId(5, 5)})
    assert plan_ranges(later, end, begins) == expected
    acknowledged = {P0: MessageId(1, 9), P1: MessageId(2, 2)}
    earliest = Offsets("made anew", {P0: MessageId(1, 1), P1: MessageId(2, 2)})
    assert plan_ranges(earliest, end, acknowledged) == expected


def test_only_whole_entries_are_acknowledged():
    assert (MessageId(3, 4)).last_whole_entry == MessageId(3, 4)
    assert (MessageId(3, 4, 0)).last_whole_entry == MessageId(3, 3)
    assert (MessageId(3, 0, 5)).last_whole_entry == MessageId(3, -1)


@pytest.mark.parametrize(
    ("start", "end", "planned"),
    [
        (MessageId(1, -1), MessageId(5, 9), (MessageId(2, 3), MessageId(5, 9), True)),
        (MessageId(1, -1), MessageId(9, 9, 1), (MessageId(2, 3), MessageId(5, 9), True)),
        (MessageId(3, 1, 4), MessageId(4, 4), (MessageId(3, 1, 4), MessageId(4, 4), False)),
        (MessageId(5, 8), MessageId(5, 9, 2), (MessageId(5, 8), MessageId(5, 9, 2), False)),
        (MessageId(5, 9), MessageId(9, 9), None),
        (MessageId(9, 9), MessageId(9, 9), None),
        (MessageId(4, 4), MessageId(4, 4), None),
        (MessageId(1, 1), MessageId(2, 2), None),
    ],
)
def test_a_batch_reads_what_there_is_between_its_start_and_its_end(start, end, planned):
    begin, last = MessageId(2, 3), MessageId(5, 9, 7)
    ranges = plan_batch({P0: start}, {P0: end}, {P0: begin}, {P0: last})
    assert ranges == ([] if planned is None else [Range(P0, planned[0], planned[1], planned[2], begin)])


def test_a_batch_of_an_empty_topic_has_no_ranges():
    assert plan_batch({P0: NOTHING}, {P0: MessageId(9, 9)}, {P0: NOTHING}, {P0: NOTHING}) == []


def test_the_ranges_of_a_stream_end_in_visible_messages_and_are_held_by_the_subscription():
    (planned,) = plan_ranges(offsets(p0=MessageId(1, 1)), offsets(p0=MessageId(1, 3)), {})
    assert planned.visible
    assert planned.begins is None


def test_an_end_before_its_start_is_another_topics():
    assert plan_ranges(
        offsets(p0=MessageId(900, 5)), offsets(p0=MessageId(3, 7)), {P0: MessageId(2, -1)}
    ) == [Range(P0, MessageId(2, -1), MessageId(3, 7))]


def test_progress_tells_ends_and_backlogs():
    lasts = {P0: MessageId(7, 9), P1: MessageId(9, 0)}
    report = progress({P0: MessageId(7, 4), P1: MessageId(8, 3)}, lasts, {P1: 12})
    assert report == {
        "topics": {
            "persistent://public/default/t": {
                "0": {"end": "7:9", "backlogEntries": 5},
                "1": {"end": "9:0", "backlogEntries": 12},
            }
        },
        "backlogEntries": 17,
    }


def test_progress_at_the_end_knows_of_no_messages_left():
    report = progress({P0: MessageId(7, 9)}, {P0: NOTHING}, {})
    assert report["backlogEntries"] == report["backlogMessages"] == 0
    assert report["topics"]["persistent://public/default/t"]["0"] == {
        "end": "7:9",
        "backlogEntries": 0,
        "backlogMessages": 0,
    }
