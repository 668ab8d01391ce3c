"""QueryPlanner driven in Spark's order on a cluster in memory: ends, ranges, acknowledgements."""

import inspect

import pytest

from pulsar_spark.client import PlanningClient
from pulsar_spark.errors import DeadlineError, TopicNotFoundError
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import (
    P0,
    P1,
    P2,
    SimulatedSpark,
    T,
    acked,
    at,
    iso_time,
    mark,
    reading,
    rows_of,
)


def test_the_simulated_cluster_has_the_face_of_the_real_one():
    public = {name: each for name, each in vars(PlanningClient).items() if not name.startswith("_")}
    assert public
    for name, real in public.items():
        simulated = vars(SimulatedCluster)[name]
        if not isinstance(real, classmethod):
            assert list(inspect.signature(simulated).parameters) == list(inspect.signature(real).parameters)


# ---- ends


def test_available_now_ends_where_the_topics_ended_at_its_beginning(cluster):
    first, second = cluster.create("t", 2)
    ids = rows_of(P0, first.produce(4)) + rows_of(P1, second.produce(2))
    limits = {"maxMessagesPerTrigger": "2", "minMessagesPerTrigger": "2", "maxTriggerDelay": "1h"}
    spark = SimulatedSpark(cluster, startingOffsets="earliest", **limits)
    spark.restart(available_now=True)
    first.produce(3)
    cluster.create("t", 3)[0].produce(1)
    assert sorted(spark.drain()) == ids
    assert len(spark.offsets) >= 3, "limited batches"
    spark.restart(available_now=True)
    assert sorted(spark.drain()) == rows_of(P0, first.ids[4:]) + rows_of(P2, [at("10:0")])
    spark.planner.freeze()
    ids = rows_of(P0, first.produce(1))
    assert spark.drain() == []
    spark.planner.freeze()
    first.produce(1)
    assert spark.drain() == ids


def test_limits_do_not_hold_where_spark_says_so(cluster, topic):
    ids = topic.produce(5)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="2")
    start = spark.planner.initial()
    assert spark.planner.latest(start).positions == {T: ids[1]}
    assert spark.planner.latest(start, limited=False).positions == {T: ids[-1]}


def test_a_batch_that_is_not_due_is_held_back_for_a_moment(cluster, topic):
    topic.produce(3)
    spark = SimulatedSpark(
        cluster, startingOffsets="earliest", minMessagesPerTrigger="5", maxTriggerDelay="1h"
    )
    start = spark.planner.initial()
    assert spark.planner.latest(start) == start
    ids = topic.produce(2)
    cluster.clock += 0.4
    assert spark.planner.latest(start) == start
    cluster.clock += 0.2
    assert spark.planner.latest(start).positions == {T: ids[-1]}


def test_backlogs_are_counted_within_a_ledger_and_else_by_the_broker(cluster, topic):
    topic.produce(7)
    topic.roll_over()
    topic.produce(3)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="2")
    spark.trigger()
    report = spark.planner.report()
    assert report["topics"] == {
        str(T): {
            "-1": {"end": "20:2", "backlogEntries": 10, "batchEntries": 2, "backlogMessagesEstimate": 10}
        }
    }
    assert report["subscription"] == spark.subscription
    assert report["serviceUrl"] == "pulsar://localhost:1"
    assert [report[name] for name in ("backlogEntries", "batchEntries", "backlogMessagesEstimate")] == [
        10,
        2,
        10,
    ]
    assert [report[name] for name in ("batchBytesEstimate", "dataLosses", "retries")] == [200, 0, 0]
    spark.drain()
    report = spark.planner.report()
    assert report["backlogEntries"] == report["backlogMessagesEstimate"] == report["batchBytesEstimate"] == 0


def test_a_micro_batch_that_takes_all_shows_how_far_the_query_was_behind(cluster, topic):
    topic.produce(300, messages=1000)
    topic.roll_over()
    topic.produce(700, messages=1000)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    assert len(spark.trigger()) == 1000
    report = spark.planner.report()
    assert report["backlogEntries"] == report["batchEntries"] == 1000
    assert report["backlogMessagesEstimate"] == 1_000_000
    assert report["timeMs"] == cluster.time_ms()
    assert spark.trigger() is None
    assert spark.planner.report()["backlogMessagesEstimate"] == 0
    topic.produce(5, messages=1000)
    spark.trigger()
    assert spark.planner.report()["backlogMessagesEstimate"] == 5000


def test_the_broker_counts_a_backlog_over_ledgers_once(cluster, topic):
    topic.produce(3)
    topic.roll_over()
    topic.produce(3)
    spark = SimulatedSpark(
        cluster, startingOffsets="earliest", minMessagesPerTrigger="1000", maxTriggerDelay="1h"
    )
    start = spark.planner.initial()
    for _ in range(5):
        assert spark.planner.latest(start) == start
        assert spark.planner.report()["backlogEntries"] == 6
    assert cluster.count("backlog") == 1
    topic.produce(1)
    cluster.clock += 20.0
    spark.planner.latest(start)
    assert spark.planner.report()["backlogEntries"] == 7
    assert cluster.count("backlog") == 2


def test_a_broker_that_is_silent_holds_up_its_partition_only(cluster, caplog):
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster)
    spark.trigger()
    ids = first.produce(1), second.produce(1)
    cluster.failing[P1] = DeadlineError("no answer")
    assert spark.drain() == rows_of(P0, ids[0])
    assert "is not known at the moment" in caplog.text
    spark.drain()
    assert caplog.text.count("is not known at the moment") == 1
    cluster.failing.clear()
    assert spark.drain() == rows_of(P1, ids[1])
    cluster.failing[P1] = DeadlineError("no answer")
    cluster.clock += 20.0  # a tail follows the end, so it is requested rarely
    spark.drain()
    assert caplog.text.count("is not known at the moment") == 2


def test_a_topic_that_does_not_exist_is_an_error_at_once(cluster):
    with pytest.raises(TopicNotFoundError):
        SimulatedSpark(cluster)


# ---- acknowledgements


def test_an_acknowledgement_that_a_crashed_broker_forgot_is_sent_again(cluster, topic, caplog):
    spark = reading(cluster, topic, 3)
    topic.cursors[spark.subscription] = at("10:0")
    cluster.clock += 20.0  # a tail follows the end, so it is requested rarely
    assert spark.trigger() is None
    assert mark(spark) == topic.last
    assert caplog.text == ""


def test_nothing_is_acknowledged_by_a_commit_before_the_first_trigger(cluster, topic):
    topic.produce(3)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.planner.commit()
    spark.play("fail restart trigger")
    spark.planner.commit()
    assert acked(cluster) == []


def test_where_chunks_are_met_acknowledgements_wait_for_them(cluster, topic):
    spark = SimulatedSpark(cluster, startingOffsets="earliest", expireTimeOfIncompleteChunkedMessage="60s")
    ids = topic.produce(1)
    spark.drain()
    assert acked(cluster) == ids
    chunks = topic.produce(3, chunks=True)
    spark.drain()
    more = topic.produce(1, time=60_000)
    spark.drain()
    assert acked(cluster) == ids
    late = topic.produce(1, time=60_001)
    spark.drain()
    assert acked(cluster) == [*ids, chunks[-1]]
    for _ in range(8):
        assert spark.trigger() is None
    assert acked(cluster) == [*ids, chunks[-1], late[-1]], "nothing came for so long"
    assert more[-1] < late[-1]


@pytest.mark.parametrize("expire", ["60s", "0"])
def test_the_first_chunk_is_there_when_the_last_comes_after_a_long_batch(cluster, topic, expire):
    spark = SimulatedSpark(cluster, startingOffsets="earliest", expireTimeOfIncompleteChunkedMessage=expire)
    first, *_ = topic.produce(2, chunks=True)
    topic.entries.pop()  # its last chunk comes later
    spark.trigger()
    topic.roll_over()
    topic.produce(1, time=1000)
    assert spark.trigger()
    cluster.clock += 100.0  # so long the tasks of that batch take
    topic.roll_over()
    last = topic.produce(1, time=1300)
    assert spark.trigger() == rows_of(T, last)
    assert mark(spark) < first


# ---- ranges


def test_what_was_published_before_the_start_time_is_left_out(cluster, topic):
    topic.produce(2, time=100)
    spark = SimulatedSpark(cluster, startingTime=iso_time(1000))
    assert spark.trigger() == []
    topic.produce(2, time=900)
    assert spark.trigger() == [], "a batch, but without a task"
    topic.produce(1, time=950)
    ids = topic.produce(1, time=1000) + topic.produce(1, time=10)
    assert spark.trigger() == rows_of(T, ids)
    late = topic.produce(1, time=20)
    assert spark.drain() == rows_of(T, late), "the start is found once"


def test_a_long_range_is_split(cluster, topic):
    ids = topic.produce(4)
    topic.roll_over()
    ids += topic.produce(2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", minPartitions="3")
    assert spark.trigger() == rows_of(T, ids)
    assert [str(each.end) for each in spark.ranges] == ["10:1", "10:3", "20:1"]
    assert [each.visible for each in spark.ranges] == [False, False, True]


# ---- threads


class _DroppedMeanwhile(dict):
    """Partitions of which each is gone once somebody has looked whether it is there."""

    def __contains__(self, topic):
        return self.pop(topic, None) is not None


def test_a_partition_is_dropped_while_a_request_about_it_finds_a_chunk(cluster, topic):
    """The error of such a thread was raised at each trigger after it."""
    topic.produce(1)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.drain()
    subscription = spark.planner._subscription
    subscription.partitions = _DroppedMeanwhile(subscription.partitions)
    spark.planner._meet_chunks(T)
