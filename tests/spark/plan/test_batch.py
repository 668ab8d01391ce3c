"""The tasks of a batch read, on a cluster in memory; nothing is left there."""

import json

import pytest

from pulsar_spark.client import Range
from pulsar_spark.errors import OptionError, TopicNotFoundError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan.batch import plan_read
from tests.spark.plan.simulated_spark import at, iso_time, options_of, two_ledgers

T = TopicName.parse("t")


@pytest.fixture
def cluster():
    """With a subscription in the middle."""
    found = two_ledgers()
    found.topics[T].cursors["mine"] = at("10:1")
    return found


def plan(cluster, **options):
    tasks = plan_read(options_of(Mode.BATCH, topic="t", **options), cluster)
    assert cluster.topics[T].cursors == {"mine": at("10:1")}
    assert cluster.open_readers == 0
    return tasks


@pytest.mark.parametrize(
    ("options", "start", "end", "visible"),
    [
        ({}, "10:-1", "20:2", True),
        ({"startingOffsets": '{"t": {"-1": "20:0"}}'}, "20:-1", "20:2", True),
        ({"endingOffsets": '{"t": {"-1": "20:0"}}'}, "10:-1", "20:0", False),
        ({"endingOffsets": '{"t": {"-1": "99:0"}}'}, "10:-1", "20:2", True),
        ({"startingTime": iso_time(200), "endingTime": iso_time(401)}, "10:1", "20:1", False),
        ({"startingOffsets": "subscription", "predefinedSubscription": "mine"}, "10:1", "20:2", True),
    ],
)
def test_one_task_a_partition(cluster, options, start, end, visible):
    (task,) = plan(cluster, **options)
    assert task == Range(T, at(start), at(end), visible, begins=at("10:-1"), followed=not visible)


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({}, "-1:-1", "30:1"),
        ({"startingOffsets": '{"t": {"-1": "10:1"}}'}, "10:0", "30:1"),
        ({"endingOffsets": '{"t": {"-1": "20:0"}}'}, "-1:-1", "20:0"),
        ({"startingTime": iso_time(100)}, "-1:-1", "30:1"),
        ({"startingTime": iso_time(101)}, "20:0", "30:1"),
        ({"startingTime": iso_time(101), "endingTime": iso_time(401)}, "20:0", "20:1"),
    ],
)
def test_what_compaction_left_begins_before_the_log(cluster, options, start, end):
    """Its ledgers are gone: 10:1 and 20:1 are kept of them, and two entries came later."""
    cluster.read_compacted = True
    topic = cluster.topics[T]
    topic.compact_and_trim(at("10:1"), at("20:1"))
    topic.produce(2, time=600)
    topic.cursors["mine"] = at("10:1")
    [task] = plan(cluster, readCompacted="true", **options)
    assert topic.between(task.start, task.end) == topic.between(at(start), at(end))


def test_what_compaction_left_is_read_where_the_log_is_empty(cluster):
    cluster.read_compacted = True
    cluster.topics[T].compact_and_trim(at("10:1"), at("20:1"))
    cluster.topics[T].cursors["mine"] = at("10:1")
    [task] = plan(cluster, readCompacted="true")
    assert (task.start, task.end) == (at("-1:-1"), at("20:1"))


def test_nothing_to_read_has_no_task(cluster):
    assert plan(cluster, startingOffsets="latest") == []


def test_long_ranges_are_split(cluster):
    tasks = plan(cluster, minPartitions="3")
    assert [str(task.end) for task in tasks] == ["10:1", "20:0", "20:2"]
    tasks = plan(cluster, maxMessagesPerPartition="1")
    assert len(tasks) == 6


def test_what_does_not_exist_is_an_error(cluster):
    with pytest.raises(OptionError, match="no subscription 'other'"):
        plan(cluster, startingOffsets="subscription", predefinedSubscription="other")
    cluster.delete("t")
    with pytest.raises(TopicNotFoundError):
        plan_read(options_of(Mode.BATCH, topic="t"), cluster)


def test_between_the_ends_of_two_queries(cluster):
    shown = [json.dumps({"subscription": "s", "topics": {"t": {"-1": each}}}) for each in ("10:0", "20:1")]
    [task] = plan(cluster, startingOffsets=shown[0], endingOffsets=shown[1])
    assert (task.start, task.end) == (at("10:0"), at("20:1"))
