"""Words, times and ids become positions."""

import pytest

from pulsar_spark.client import PartitionBounds
from pulsar_spark.errors import AuthError, OptionError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import AtTime, PositionWord
from pulsar_spark.spark.plan.resolve import before_time, probe_bounds, resolve, subscribed
from tests.spark.plan.simulated_cluster import SimulatedCluster

T, U = TopicName.parse("t"), TopicName.parse("u")


def at(text):
    return MessageId.parse(text)


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
    assert resolve(cluster, {T: given}, probe_bounds(cluster, [T])) == {T: at(position)}


@pytest.mark.parametrize("given", [PositionWord.EARLIEST, PositionWord.LATEST, AtTime(5)])
def test_in_an_empty_partition_everything_is_its_begin(cluster, given):
    assert resolve(cluster, {U: given}, probe_bounds(cluster, [U])) == {U: at("70:-1")}


def test_where_the_begin_is_in_time_nothing_is_left_out(cluster):
    cluster.topics[T].produce(time=50)
    assert before_time(cluster, T, AtTime(300), at("20:0"), cluster.topics[T].last) == at("20:0")
    assert before_time(cluster, T, AtTime(300), at("10:1"), cluster.topics[T].last) == at("20:-1")


def test_where_a_subscription_stands(cluster):
    cluster.topics[T].cursors["s"] = at("10:1")
    assert subscribed(cluster, [T], "s") == {T: at("10:1")}
    with pytest.raises(OptionError, match=str(U)):
        subscribed(cluster, [T, U], "s")
    assert cluster.topics[U].cursors == {}
