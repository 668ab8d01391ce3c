"""QueryPlanner on a cluster in memory: a fresh query, and one that is started again."""

import logging

import pytest

from pulsar_spark.client import Range
from pulsar_spark.errors import BusyError
from pulsar_spark.spark.plan import batch, stream
from tests.spark.plan.simulated_spark import (
    P1,
    POLL,
    SimulatedSpark,
    T,
    acked,
    at,
    iso_time,
    mark,
    reading,
    rows_of,
)

# ---- a fresh query


@pytest.mark.parametrize("start", ["latest", "10:1", "earliest"])
def test_the_start_of_a_fresh_query_is_durable_before_the_first_row(cluster, topic, start):
    ids = topic.produce(3)
    given = f'{{"t": {{"-1": "{start}"}}}}' if ":" in start else start
    spark = SimulatedSpark(cluster, startingOffsets=given)
    first = spark.trigger()
    if start == "earliest":
        assert first == rows_of(T, ids)
    else:
        assert first == []
        assert spark.ranges == []
        topic.produce(1)
        assert spark.drain() == rows_of(T, topic.ids[1:] if ":" in start else topic.ids[3:])
    assert spark.trigger() is None


def test_a_start_that_spark_gives_again_is_durable(cluster, topic):
    spark = SimulatedSpark(cluster, startingOffsets="latest")
    start = spark.planner.initial()
    assert spark.planner.latest(start) == start
    topic.produce(1)
    cluster.clock += POLL
    assert spark.planner.latest(start).positions == {T: topic.last}


def test_nothing_is_acknowledged_before_it_is_checkpointed(cluster, topic):
    ids = topic.produce(3)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    assert spark.trigger() == rows_of(T, ids)
    assert acked(cluster) == []
    assert mark(spark) == topic.begin
    more = topic.produce(2)
    assert spark.trigger() == rows_of(T, more)
    assert acked(cluster) == [ids[-1]]
    assert spark.trigger() is None
    assert acked(cluster) == [ids[-1], more[-1]]


def test_each_micro_batch_is_logged_with_its_time_and_the_backlog_after_it(cluster, topic, caplog):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    with caplog.at_level(logging.INFO):
        first = topic.produce(3)
        spark.trigger()
        topic.produce(4)
        spark.trigger()
        assert spark.trigger() is None
        assert spark.trigger() is None
    names = (batch.__name__, stream.__name__)
    found = [record.getMessage() for record in caplog.records if record.name in names]
    assert found[0].startswith("a micro-batch of 1 tasks: ")
    assert str(first[-1]) in found[0]
    assert [line.partition("; ")[2] for line in found if "took" in line] == [
        "backlog after it: 4 entries",
        "backlog after it: 0 entries",
    ]
    assert len(found) == 4


def test_a_start_that_is_not_there_yet_is_waited_for(cluster, topic):
    topic.produce(2)
    spark = SimulatedSpark(cluster, startingOffsets='{"t": {"-1": "10:4"}}')
    assert spark.trigger() == []
    topic.produce(4)
    assert spark.drain() == rows_of(T, [at("10:4"), at("10:5")])
    assert max(acked(cluster)) <= topic.last


def test_a_fresh_query_that_plans_nothing_leaves_no_subscription(cluster, topic):
    spark = SimulatedSpark(cluster)
    spark.planner.initial()
    assert len(topic.cursors) == 1
    spark.planner.close()
    assert topic.cursors == {}
    assert cluster.open_readers == 0


def test_a_run_that_plans_nothing_removes_no_subscription_but_its_own(cluster, topic):
    named = SimulatedSpark(cluster, startingOffsets="earliest", predefinedSubscription="mine")
    named.planner.initial()
    named.planner.close()
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.trigger()
    topic.produce(1)
    spark.play("fail restart fail stop")
    assert topic.cursors.keys() == {"mine", spark.subscription}


@pytest.mark.parametrize("retain", [True, False])
def test_a_planned_query_leaves_its_subscription_if_asked(cluster, topic, retain):
    spark = SimulatedSpark(cluster, retainSubscription=str(retain).lower())
    spark.play("trigger stop")
    assert bool(topic.cursors) is retain
    assert cluster.open_readers == 0
    assert spark.planner.report()["topics"] == {}


# ---- restarts


def test_a_restart_goes_on_after_what_is_checkpointed(cluster, topic):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    for _ in range(3):
        topic.produce(2)
        spark.play("drain restart")
    topic.produce(1)
    spark.drain()
    assert spark.rows == rows_of(T, topic.ids)
    assert list(topic.cursors) == [spark.subscription]


@pytest.mark.parametrize("given", [{}, {"startingTime": "2024-05-01"}])
def test_a_start_that_a_checkpoint_makes_useless_is_told_once(cluster, topic, caplog, given):
    spark = SimulatedSpark(cluster, **given)
    told = "startingTime is not used: the query continues from its checkpoint"
    with caplog.at_level(logging.INFO):
        topic.produce(2)
        spark.drain()
        assert told not in caplog.messages
        spark.restart(**given)
        topic.produce(2)
        spark.drain()
    assert caplog.messages.count(told) == len(given)


def test_a_restart_looks_for_old_ends_after_what_is_processed(cluster, topic, monkeypatch):
    spark, seen = SimulatedSpark(cluster, startingOffsets="earliest"), []
    topic.produce(3)
    spark.play("drain restart")
    monkeypatch.setattr(cluster, "may_have_old_end", lambda topic: True)
    monkeypatch.setattr(cluster, "visible_end", lambda topic, told, after: seen.append(after) or told)
    spark.trigger()
    assert seen == [topic.last] * len(seen)
    assert seen


def test_a_batch_that_did_not_finish_is_planned_the_same_again(cluster, topic):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(2)
    spark.trigger()
    ids = topic.produce(3)
    spark.trigger(fails=True)
    planned = spark.ranges
    topic.produce(1)
    spark.restart()
    assert spark.trigger() == rows_of(T, ids)
    assert spark.ranges == planned == [Range(T, at("10:1"), at("10:4"), begins=at("10:1"))]
    spark.drain()
    assert spark.rows == rows_of(T, topic.ids)


def test_a_batch_that_is_planned_twice_begins_at_the_start_time_both_times(cluster, topic):
    """Spark plans it for each use of the stream, such as both sides of a self-join."""
    spark = SimulatedSpark(cluster, startingTime=iso_time(1000))
    assert spark.trigger() == []
    topic.produce(time=500)
    ids = topic.produce(time=1500)
    assert spark.trigger() == rows_of(T, ids)
    assert spark.planner.ranges(spark._logged(-2), spark._logged(-1)) == spark.ranges
    assert spark.drain() == []
    slow = topic.produce(time=900)
    assert spark.trigger() == rows_of(T, slow)


def test_a_batch_0_that_did_not_finish_keeps_its_subscription(cluster, topic):
    ids = topic.produce(2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.trigger(fails=True)
    planned = spark.ranges
    topic.produce(1)
    spark.restart()
    assert spark.trigger() == rows_of(T, ids)
    assert spark.ranges == planned
    assert list(topic.cursors) == [spark.subscription], "the one that initial() made again is removed"
    spark.drain()
    assert spark.rows == rows_of(T, topic.ids)


def test_a_batch_0_that_did_not_finish_is_judged_by_its_end(cluster, topic, caplog):
    """The start that a restart finds may come after it."""
    spark = SimulatedSpark(cluster, startingOffsets="latest")
    spark.play("fail stop")
    del topic.cursors[spark.subscription]
    topic.produce(2)
    spark.play("start trigger")
    assert "nothing is lost" in caplog.text


@pytest.mark.parametrize("start", [{}, {"startingOffsets": "latest"}])
def test_a_named_subscription_of_a_batch_0_that_did_not_finish_goes_on_from_the_checkpoint(
    cluster, topic, start
):
    before = topic.produce(2)
    topic.cursors["mine"] = before[0]
    spark = SimulatedSpark(cluster, predefinedSubscription="mine", **start)
    spark.trigger(fails=True)
    more = topic.produce(3)
    spark.play("restart trigger")
    assert topic.cursors["mine"] == before[0], "what Spark has not checkpointed is not acknowledged"
    spark.drain()
    assert spark.rows == rows_of(T, before[1:] + more if not start else more)
    assert topic.cursors["mine"] == more[-1]


def test_a_subscription_that_is_removed_while_a_restart_opens_it_holds_again(
    cluster, topic, monkeypatch, caplog
):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    ids = topic.produce(3)
    spark.drain()
    more = topic.produce(2)
    spark.planner.close()
    monkeypatch.setattr(cluster, "has_subscription", lambda *_: topic.cursors.clear() or True)
    spark.start()
    assert spark.trigger() == rows_of(T, more)
    assert "nothing is lost" in caplog.text
    assert mark(spark) <= ids[-1]


def test_a_restart_judges_partitions_of_which_its_batch_has_nothing(cluster, caplog):
    first, second = cluster.create("t", 2)
    spark = reading(cluster, second, 3)
    first.produce(1)
    spark.play("fail stop")
    ids = second.produce(2)
    second.cursors[spark.subscription] = second.last
    spark.play("start trigger")
    assert "nothing is lost" in caplog.text
    assert mark(spark, P1) < ids[0]


def test_a_restart_that_fails_leaves_the_subscription_as_it_was(cluster):
    first, second = cluster.create("t", 2)
    spark = reading(cluster, first, 1)
    second.held.add(spark.subscription)
    spark.restart()
    with pytest.raises(BusyError, match="predefinedSubscription"):
        spark.trigger()
    spark.planner.close()
    assert list(first.cursors) == [spark.subscription]
