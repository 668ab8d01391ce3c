"""Words, times and ids become positions."""

from collections import Counter

import pytest

from pulsar_spark.client import PartitionBounds
from pulsar_spark.errors import AuthError, OptionError, TopicNotFoundError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.positions import AtTime, PositionWord
from pulsar_spark.spark.plan.resolve import (
    before_time,
    probe_bounds,
    resolve,
    subscribed,
    warn_of_late_starts,
)
from tests.spark.plan.simulated_cluster import OPENING_TURNS, SimulatedCluster
from tests.spark.plan.simulated_spark import at

T, U = TopicName.parse("t"), TopicName.parse("u")


@pytest.fixture
def cluster():
    """Topic t has two ledgers of two entries, published at 100, 200, ... ms; u is empty."""
    found = SimulatedCluster()
    (topic,) = found.create("t")
    topic.produce(time=100)
    topic.produce(time=200)
    topic.roll_over()
    topic.produce(time=300)
    topic.produce(time=400)
    found.create("u", ledger=70)
    return found


def test_bounds_are_asked_of_all_partitions(cluster):
    assert probe_bounds(cluster, [T, U]) == {
        T: PartitionBounds(at("10:-1"), at("20:1")),
        U: PartitionBounds(at("70:-1"), at("70:-1")),
    }
    gone = TopicName.parse("gone")
    assert list(probe_bounds(cluster, [gone, T, U], must_exist=False)) == [T, U]
    with pytest.raises(TopicNotFoundError, match=str(gone)):
        probe_bounds(cluster, [gone, T])
    cluster.failing[U] = AuthError("no")
    with pytest.raises(AuthError, match=str(U)):
        probe_bounds(cluster, [T, U])


@pytest.mark.parametrize(
    ("given", "position"),
    [
        (PositionWord.EARLIEST, "10:-1"),
        (PositionWord.LATEST, "20:1"),
        (at("10:0:3"), "10:0:3"),
        (at("1:1"), "1:1"),
        (at("99:9"), "99:9"),
        (AtTime(0), "10:-1"),
        (AtTime(100), "10:-1"),
        (AtTime(101), "10:0"),
        (AtTime(200), "10:0"),
        (AtTime(300), "20:-1"),
        (AtTime(400), "20:0"),
        (AtTime(401), "20:1"),
    ],
)
def test_what_a_user_may_give(cluster, given, position):
    assert resolve(cluster, {T: given}, probe_bounds(cluster, [T]), 60.0) == {T: at(position)}


@pytest.mark.parametrize("given", [PositionWord.EARLIEST, PositionWord.LATEST, AtTime(5)])
def test_in_an_empty_partition_everything_is_its_begin(cluster, given):
    assert resolve(cluster, {U: given}, probe_bounds(cluster, [U]), 60.0) == {U: at("70:-1")}


def test_empty_compacted_topics_are_asked_for_again_side_by_side(cluster):
    """However many stay empty, one that the broker opens in time is not taken for empty."""
    cluster.read_compacted = True
    late = cluster.create("many", 100)
    many = [TopicName.parse(f"many-partition-{number}") for number in range(100)]
    for number in range(90, 100):
        late[number].produce()
    cluster.unopened = dict.fromkeys(many[90:], OPENING_TURNS)
    bounds = probe_bounds(cluster, [T, *many])
    assert [topic for topic, each in bounds.items() if each.last.is_entry] == [T, *many[90:]]
    asked = Counter(cluster.requests)
    assert asked["bounds", T] == 1
    assert asked["bounds", many[0]] == 1 + OPENING_TURNS
    cluster.unopened = {many[90]: 2}
    assert probe_bounds(cluster, many[90:])[many[90]].last.is_entry


def test_nothing_waits_where_no_compacted_topic_is_empty(cluster):
    cluster.read_compacted = True
    assert probe_bounds(cluster, [T])[T].last.is_entry
    assert ("turn",) not in cluster.requests


def test_empty_topics_are_asked_for_once_where_the_log_is_read(cluster):
    cluster.unopened = {U: 1}
    assert not probe_bounds(cluster, [U])[U].last.is_entry
    assert cluster.requests.count(("bounds", U)) == 1


def test_where_the_begin_is_in_time_nothing_is_left_out(cluster):
    cluster.topics[T].produce(time=50)

    def before(time, begin):
        last = cluster.topics[T].last
        return before_time(cluster, T, AtTime(time), 60.0, at(begin), last, looks_back=True)

    assert before(300, "20:0") == at("20:0")
    assert before(400, "20:1") == at("20:1")
    assert before(300, "10:1") == at("20:-1")


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_begin_after_the_first_one_in_time_leaves_nothing_out(cluster, is_stored):
    """As of a query that is started again: what is in time may be stored before its position, or not."""
    topic = cluster.topics[T]
    topic.produce(time=1000)
    topic.roll_over()
    begin, *late = topic.produce(2, time=300) + topic.produce(1, time=1000)
    if not is_stored:
        topic.trim()

    def before(time, *, looks_back):
        return before_time(cluster, T, AtTime(time), 60.0, begin, topic.last, looks_back=looks_back)

    assert before(1000, looks_back=True) == (begin if is_stored else late[0])
    assert before(1000, looks_back=False) == late[0], "as where all of it was searched before"
    assert before(1001, looks_back=True) == topic.last


def test_where_a_subscription_stands(cluster):
    cluster.topics[T].cursors["s"] = at("10:1")
    assert subscribed(cluster, [T], "s") == {T: at("10:1")}
    with pytest.raises(OptionError, match=str(U)):
        subscribed(cluster, [T, U], "s")
    assert cluster.topics[U].cursors == {}


# ---- starts after the end


def warned(cluster, caplog, starts):
    """What is logged for starts by topic."""
    bounds = probe_bounds(cluster, starts)
    warn_of_late_starts(
        cluster, "startingOffsets", {topic: at(text) for topic, text in starts.items()}, bounds
    )
    return caplog.text


@pytest.mark.parametrize("start", ["20:2", "20:1:0", "99:1", "21:0"])
@pytest.mark.parametrize("topic", [T, U])
def test_a_start_after_the_end_is_warned_of(cluster, caplog, topic, start):
    late = at(start) > cluster.bounds(topic).last
    said = warned(cluster, caplog, {topic: start})
    assert (f"{topic}: the start is after {start}, the end is {cluster.bounds(topic).last}" in said) == late
    assert ("startingOffsets is after the end of 1 topic partitions" in said) == late


@pytest.mark.parametrize("start", ["20:1", "10:0", "-1:-1", "99:-1", "20:-1"])
def test_other_starts_are_not(cluster, caplog, start):
    assert warned(cluster, caplog, {T: start}) == ""
    assert cluster.count("stored end") == 0


def test_a_start_at_what_readers_are_not_given_is_not(cluster, caplog):
    marker = cluster.topics[T].mark_transaction()
    assert marker > cluster.bounds(T).last
    assert warned(cluster, caplog, {T: str(marker)}) == ""
    assert "the start is after" in warned(cluster, caplog, {T: str(marker.next_entry)})


def test_of_many_late_starts_some_are_named(cluster, caplog):
    starts = {}
    for number in range(12):
        cluster.create(f"v{number}")
        starts[TopicName.parse(f"v{number}")] = "99:1"
    said = warned(cluster, caplog, {**starts, T: "20:1"})
    assert "is after the end of 12 topic partitions" in said
    assert said.count("the start is after") == 10
    assert "and 2 more" in said
    assert len(caplog.records) == 1


def test_a_topic_that_is_gone_meanwhile_is_not_warned_of(cluster, caplog):
    bounds = probe_bounds(cluster, [T])
    cluster.delete("t")
    warn_of_late_starts(cluster, "startingOffsets", {T: at("99:1")}, bounds)
    assert caplog.text == ""
