"""QueryPlanner driven in Spark's order on a cluster in memory: offsets, ranges, acknowledgements, loss."""

import inspect
import json
import logging
import threading
import time

import pytest

from pulsar_spark.client import PlanningClient
from pulsar_spark.errors import BusyError, DataLossError, DeadlineError, SchemaError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan import ends, stream
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.ranges import Range
from tests.client.clients import wait_until
from tests.fake_broker import HANG
from tests.spark.plan import simulated_cluster
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import SimulatedSpark, iso_time

T, U = TopicName.parse("t"), TopicName.parse("u")
P0, P1, P2 = (T.of_partition(number) for number in range(3))


@pytest.fixture
def cluster():
    return SimulatedCluster()


@pytest.fixture
def topic(cluster):
    """A topic without partitions."""
    return cluster.create("t")[0]


def at(text):
    return MessageId.parse(text)


def rows_of(topic, ids):
    return [(topic, each) for each in ids]


def acked(cluster, topic=T):
    return [request[2] for request in cluster.requests if request[:2] == ("ack", topic)]


def mark(spark, topic=T):
    """Where the query's subscription stands."""
    return spark.cluster.topics[topic].cursors[spark.subscription]


def test_the_simulated_cluster_has_the_face_of_the_real_one():
    public = {name: each for name, each in vars(PlanningClient).items() if not name.startswith("_")}
    assert public
    for name, real in public.items():
        simulated = vars(SimulatedCluster)[name]
        if not isinstance(real, classmethod):
            assert list(inspect.signature(simulated).parameters) == list(inspect.signature(real).parameters)


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
    found = [record.getMessage() for record in caplog.records if record.name == stream.__name__]
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


@pytest.mark.parametrize("retain", [True, False])
def test_a_planned_query_leaves_its_subscription_if_asked(cluster, topic, retain):
    spark = SimulatedSpark(cluster, retainSubscription=str(retain).lower())
    spark.trigger()
    spark.planner.close()
    assert bool(topic.cursors) is retain
    assert cluster.open_readers == 0
    assert spark.planner.report()["topics"] == {}


# ---- restarts


def test_a_restart_goes_on_after_what_is_checkpointed(cluster, topic):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    for _ in range(3):
        topic.produce(2)
        spark.drain()
        spark.restart()
    topic.produce(1)
    spark.drain()
    assert spark.rows == rows_of(T, topic.ids)
    assert list(topic.cursors) == [spark.subscription]


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
    assert spark.ranges == planned == [Range(T, at("10:1"), at("10:4"))]
    spark.drain()
    assert spark.rows == rows_of(T, topic.ids)


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


@pytest.mark.parametrize("start", [{}, {"startingOffsets": "latest"}])
def test_a_named_subscription_of_a_batch_0_that_did_not_finish_goes_on_from_the_checkpoint(
    cluster, topic, start
):
    before = topic.produce(2)
    topic.cursors["mine"] = before[0]
    spark = SimulatedSpark(cluster, predefinedSubscription="mine", **start)
    spark.trigger(fails=True)
    more = topic.produce(3)
    spark.restart()
    spark.trigger()
    assert topic.cursors["mine"] == before[0], "what Spark has not checkpointed is not acknowledged"
    spark.drain()
    assert spark.rows == rows_of(T, before[1:] + more if not start else more)
    assert topic.cursors["mine"] == more[-1]


def test_a_restart_that_fails_leaves_the_subscription_as_it_was(cluster):
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    first.produce(1)
    spark.drain()
    second.held.add(spark.subscription)
    spark.restart()
    with pytest.raises(BusyError, match="predefinedSubscription"):
        spark.trigger()
    spark.planner.close()
    assert list(first.cursors) == [spark.subscription]


# ---- partitions that come and go


def test_new_partitions_are_read_from_their_first_message(cluster):
    cluster.create("t", 1)
    spark = SimulatedSpark(cluster)
    spark.trigger()
    (second,) = cluster.create("t", 2)
    ids = second.produce(2)
    assert spark.drain() == rows_of(P1, ids)
    (third,) = cluster.create("t", 3)
    ids = third.produce(1)
    spark.restart()
    assert spark.drain() == rows_of(P2, ids)


def test_a_partition_without_an_answer_is_left_out_until_it_has_one(cluster, monkeypatch, caplog):
    monkeypatch.setattr(stream, "_PATIENCE", 0.01)
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.trigger()
    known = second.produce(1)
    spark.trigger()
    answered = cluster.stalled[P1] = threading.Event()
    try:
        known += second.produce(1)
        for _ in range(3):
            ids = first.produce(1)
            assert spark.drain() == rows_of(P0, ids)
        assert caplog.text.count("does not respond") == 1
        assert str(P1) in caplog.text
        assert cluster.count("last", P1) <= 3 + 1
    finally:
        answered.set()
    del cluster.stalled[P1]
    while len(spark.rows) < 5:
        spark.trigger()
    assert [each for topic, each in spark.rows if topic == P1] == known


def test_a_partition_that_answers_late_each_time_is_read(cluster, topic, monkeypatch):
    monkeypatch.setattr(stream, "_PATIENCE", 0.01)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.trigger()
    produced = []
    for _ in range(3):
        produced += topic.produce(1)
        answered = cluster.stalled[T] = threading.Event()
        try:
            assert spark.trigger() is None
        finally:
            answered.set()
        wait_until(lambda: not spark.planner._subscription.silent)
        asked = cluster.count("last", T)
        # One that is asked now would be late again.
        late = cluster.stalled[T] = threading.Event()
        try:
            assert spark.trigger() == rows_of(T, produced[-1:])
            assert cluster.count("last", T) == asked, "its answer is used before it is asked again"
        finally:
            late.set()
    assert spark.rows == rows_of(T, produced)


def test_a_partition_that_is_probed_in_vain_leaves_time_for_the_others(cluster, monkeypatch):
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="10")
    spark.trigger()
    second.produce(1)
    probe, tried = cluster.probe_entries, []

    def take_long(topic, after):
        if topic == P1:
            tried.append(topic)
            cluster.clock += 30.0
            raise DeadlineError("late")
        return probe(topic, after)

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "probe_entries", take_long)
        for _ in range(60):
            first.produce(1)
            spark.trigger()
    assert 2 <= len(tried) <= 4, "660 s of triggers, and 30 s for each attempt"
    assert len(spark.rows) == 60
    cluster.clock += 300.0
    spark.drain()
    assert len(spark.rows) == 61


def test_a_run_over_what_there_was_waits_for_all(cluster, monkeypatch):
    monkeypatch.setattr(stream, "_PATIENCE", 0.0)
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.trigger()
    first.produce(1)
    ids = second.produce(1)
    spark.restart(available_now=True)
    cluster.stalled[P1] = threading.Event()
    timer = threading.Timer(0.2, cluster.stalled[P1].set)
    timer.start()
    found = spark.drain()
    timer.join()
    assert (P1, ids[0]) in found


def test_attempts_to_take_in_new_partitions_leave_time_for_the_others(cluster, monkeypatch):
    (first,) = cluster.create("t", 1)
    spark = SimulatedSpark(cluster)
    spark.trigger()
    cluster.create("t", 2)
    subscribe, tried = cluster.subscribe, []

    def take_long(topic, options):
        if topic == P1:
            tried.append(topic)
            cluster.clock += 30.0
            raise DeadlineError("late")
        return subscribe(topic, options)

    monkeypatch.setattr(cluster, "subscribe", take_long)
    for _ in range(60):
        first.produce(1)
        spark.trigger()
    assert 2 <= len(tried) <= 4, "660 s of triggers, and 30 s for each attempt"
    assert len(spark.rows) == 60


def test_new_partitions_that_cannot_be_had_are_tried_again(cluster, caplog):
    (first,) = cluster.create("t", 1)
    spark = SimulatedSpark(cluster)
    spark.trigger()
    (second,) = cluster.create("t", 2)
    (third,) = cluster.create("t", 3)
    ids = second.produce(1)
    first_ids, third_ids = first.produce(1), third.produce(1)
    second.held.add(spark.subscription)
    with caplog.at_level(logging.WARNING):
        assert spark.drain() == rows_of(P0, first_ids) + rows_of(P2, third_ids), "the others are not held up"
    assert "this is retried" in caplog.text
    second.held.clear()
    assert spark.drain() == rows_of(P1, ids)


def test_a_new_partition_that_can_never_be_had_is_an_error(cluster):
    cluster.create("t", 1)
    spark = SimulatedSpark(cluster)
    spark.trigger()
    cluster.create("t", 2)
    cluster.failing[P1] = SchemaError("refused")
    with pytest.raises(SchemaError):
        spark.trigger()


@pytest.mark.parametrize("fails", [True, False])
def test_a_partition_that_is_deleted_with_unread_messages_is_loss(cluster, fails, caplog):
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", failOnDataLoss=str(fails).lower())
    spark.trigger()
    second.produce(3)
    spark.trigger(fails=True)
    spark.committed += 1  # its tasks read nothing of it: the position in the checkpoint is made older
    spark.offsets[-1] = spark.offsets[-2]
    cluster.delete(str(P1))
    ids = first.produce(1)
    if fails:
        with pytest.raises(DataLossError, match=r"the topic was deleted.*\(10:-1, 10:2\]"):
            spark.trigger()
    else:
        assert spark.trigger() == rows_of(P0, ids)
        assert "the topic was deleted" in caplog.text
        assert spark.trigger() is None


def test_a_partition_that_is_deleted_when_all_is_read_is_left_out(cluster, caplog):
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    second.produce(1)
    spark.drain()
    cluster.delete(str(P1))
    ids = first.produce(1)
    assert spark.drain() == rows_of(P0, ids)
    assert "all its messages that the query had seen are processed" in caplog.text
    assert str(P1.partition) not in spark.planner.report()["topics"][str(T)]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted_while_the_query_is_stopped_is_loss(cluster, fails, caplog):
    first, second = cluster.create("t")[0], cluster.create("u")[0]
    options = {"failOnDataLoss": str(fails).lower(), "waitingForNonExistedTopic": "true"}
    spark = SimulatedSpark(cluster, startingOffsets="earliest", **options)
    del spark.options["topic"]
    spark.restart(topics="t,u")
    second.produce(1)
    spark.drain()
    spark.planner.close()
    cluster.delete("u")
    ids = first.produce(1)
    spark.start()
    if fails:
        with pytest.raises(DataLossError, match=r"deleted while the query was stopped.*the end\]"):
            spark.trigger()
    else:
        assert spark.trigger() == rows_of(T, ids)
        assert "deleted while the query was stopped" in caplog.text


@pytest.fixture
def several(cluster):
    """A query on all topics whose names begin with t; options as a user gives them."""

    def make(**options):
        spark = SimulatedSpark(cluster, startingOffsets="earliest", **options)
        del spark.options["topic"]
        spark.restart(topicsPattern="[tu].*")
        return spark

    return make


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("is_new", [True, False])
def test_an_unfinished_batch_that_names_a_deleted_topic(cluster, several, caplog, fails, is_new):
    """Also one that had come with that batch."""
    (first,) = cluster.create("t")
    spark = several(failOnDataLoss=str(fails).lower())
    if not is_new:
        cluster.create("u")[0].produce(1)
    first.produce(1)
    spark.drain()
    if is_new:
        cluster.create("u")
    cluster.topics[U].produce(1)
    ids = first.produce(1)
    spark.trigger(fails=True)
    assert {each.topic for each in spark.ranges} == {T, U}
    spark.planner.close()
    cluster.delete("u")
    for _ in range(2):
        spark.start()
        if fails:
            with pytest.raises(DataLossError, match=r"deleted while.*/u; .*failOnDataLoss=false to continue"):
                spark.trigger()
        else:
            spark.trigger(fails=True)
            assert [each.topic for each in spark.ranges] == [T]
            assert spark.planner.report()["dataLosses"] == 1
        spark.planner.close()
    if not fails:
        caplog.clear()
        spark.start()
        assert spark.trigger() == rows_of(T, ids)
        more = first.produce(1)
        assert spark.drain() == rows_of(T, more)
        assert caplog.text.count("[PULSAR_DATA_LOSS]") == 1
        assert str(U) in caplog.text


@pytest.mark.parametrize("when", ["start", "restart", "running"])
def test_a_topic_that_is_deleted_while_it_is_taken_in_is_left_out(cluster, several, monkeypatch, when):
    """It is listed, and gone when the subscription is opened on it."""
    (first,) = cluster.create("t")
    first.produce(1)
    if when == "start":
        cluster.create("u")
    spark = several()
    if when != "start":
        spark.drain()
        if when == "restart":
            spark.planner.close()
        cluster.create("u")
        if when == "restart":
            spark.start()
    subscribe = cluster.subscribe

    def delete_first(topic, options):
        if topic == U:
            cluster.delete("u")
        return subscribe(topic, options)

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "subscribe", delete_first)
        first.produce(1)
        spark.drain()
    assert spark.rows == rows_of(T, first.ids)
    ids = cluster.create("u")[0].produce(1)
    assert spark.drain() == rows_of(U, ids), "one of its name that comes later is read"


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("what", ["probe_entries", "probe_entry"])
def test_a_topic_that_is_deleted_while_a_batch_is_planned(cluster, several, monkeypatch, caplog, fails, what):
    limits = {"maxMessagesPerTrigger": "5"} if what == "probe_entries" else {"maxMessagesPerPartition": "5"}
    (first,) = cluster.create("t")
    cluster.create("u")
    spark = several(failOnDataLoss=str(fails).lower(), **limits)
    spark.trigger()
    ids = first.produce(2)
    cluster.topics[U].produce(2)
    asked = getattr(cluster, what)

    def delete_first(topic, position):
        if topic == U:
            cluster.delete("u")
        return asked(topic, position)

    monkeypatch.setattr(cluster, what, delete_first)
    if fails:
        with pytest.raises(DataLossError, match="the topic was deleted; topic persistent://public/default/u"):
            spark.trigger()
    else:
        assert spark.trigger() == rows_of(T, ids)
        assert "the topic was deleted; topic persistent://public/default/u" in caplog.text
        assert spark.planner.report()["dataLosses"] == 1
        more = first.produce(1)
        assert spark.drain() == rows_of(T, more)


def test_a_topic_that_is_deleted_when_a_restart_judges_it(cluster, several, monkeypatch):
    (first,) = cluster.create("t")
    cluster.create("u")[0].produce(1)
    spark = several(failOnDataLoss="false")
    spark.drain()
    spark.planner.close()
    del cluster.topics[U].cursors[spark.subscription]

    def delete(topic):
        cluster.delete("u")
        raise TopicNotFoundError("it does not exist", topic=str(topic))

    monkeypatch.setattr(cluster, "bounds", delete)
    ids = first.produce(1)
    spark.start()
    assert spark.drain() == rows_of(T, ids)


def test_a_topic_that_is_named_no_longer_is_no_loss(cluster, caplog):
    cluster.create("t")
    cluster.create("u")
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    del spark.options["topic"]
    spark.restart(topics="t,u")
    spark.trigger()
    ids = cluster.topics[T].produce(1)
    spark.restart(topics="t")
    assert spark.drain() == rows_of(T, ids)
    assert "the query no longer reads persistent://public/default/u" in caplog.text


# ---- what compaction left


@pytest.mark.parametrize("options", [{"startingOffsets": "earliest"}, {"startingTime": "0"}])
@pytest.mark.parametrize("later", [0, 2])
@pytest.mark.parametrize("fails", [True, False])
def test_what_compaction_left_begins_before_the_log(options, later, fails):
    cluster = SimulatedCluster(read_compacted=True)
    (topic,) = cluster.create("t")
    topic.produce(6)
    topic.compact_and_trim(at("10:1"), at("10:4"))
    topic.produce(later)
    spark = SimulatedSpark(cluster, readCompacted="true", **options)
    spark.trigger(fails=fails)
    if fails:
        spark.restart()
    spark.drain()
    topic.produce(1)
    spark.drain()
    spark.restart()
    topic.produce(1)
    spark.drain()
    expected = [at("10:1"), at("10:4"), *topic.ids]
    assert spark.rows == [(T, each) for each in expected]


def test_what_compaction_left_of_a_new_topic_is_read():
    cluster = SimulatedCluster(read_compacted=True)
    cluster.create("t", 1)
    spark = SimulatedSpark(cluster, startingOffsets="latest", readCompacted="true")
    spark.drain()
    (new,) = cluster.create("t", 2)
    new.produce(6)
    new.compact_and_trim(at("10:1"), at("10:4"))
    cluster.clock += 100.0
    spark.drain()
    new.produce(1)
    spark.drain()
    assert [entry for _, entry in spark.rows] == [at("10:1"), at("10:4"), *new.ids]


# ---- ends


def test_available_now_ends_where_the_topics_ended_at_its_beginning(cluster):
    first, second = cluster.create("t", 2)
    ids = rows_of(P0, first.produce(4)) + rows_of(P1, second.produce(2))
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="2")
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
    spark.drain()
    assert caplog.text.count("is not known at the moment") == 2


def test_a_broker_that_refuses_is_an_error(cluster, topic):
    spark = SimulatedSpark(cluster)
    spark.trigger()
    cluster.failing[T] = SchemaError("refused")
    with pytest.raises(SchemaError):
        spark.trigger()


def test_a_topic_that_does_not_exist_is_an_error_at_once(cluster):
    with pytest.raises(TopicNotFoundError):
        SimulatedSpark(cluster)


# ---- acknowledgements


def test_an_acknowledgement_that_failed_is_tried_again(cluster, topic, caplog):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    ids = topic.produce(1)
    spark.drain()
    more = topic.produce(1)
    spark.trigger()
    cluster.failing[T] = DeadlineError("no answer")
    spark.trigger()
    assert acked(cluster) == ids
    cluster.failing.clear()
    cluster.clock += 2.0
    spark.planner.commit()
    assert acked(cluster) == [*ids, *more]


def test_an_acknowledgement_that_a_crashed_broker_forgot_is_sent_again(cluster, topic, caplog):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(3)
    spark.drain()
    topic.cursors[spark.subscription] = at("10:0")
    assert spark.trigger() is None
    assert mark(spark) == topic.last
    assert caplog.text == ""


def test_nothing_is_acknowledged_by_a_commit_before_the_first_trigger(cluster, topic):
    topic.produce(3)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.planner.commit()
    spark.trigger(fails=True)
    spark.restart()
    spark.trigger()
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


# ---- what a trigger costs


def test_nothing_is_done_for_what_has_not_moved(cluster):
    topics = cluster.create("t", 5)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    for topic in topics:
        topic.produce(2)
    spark.drain()
    start = spark.planner.latest(Offsets.from_json(json.loads(spark.offsets[-1])))
    for _ in range(3):
        cluster.clock += 0.3
        assert spark.planner.latest(start) is start
    report, requests = spark.planner.report(), len(cluster.requests)
    for _ in range(90):
        cluster.clock += 0.1
        assert spark.planner.latest(start) is start
        assert spark.planner.report()["topics"] is report["topics"]
        assert spark.planner.report()["timeMs"] == cluster.time_ms(), "it is of now"
    assert len(cluster.requests) == requests
    ids = topics[3].produce(3)
    found = spark.planner.latest(start)
    assert {each for each in found.positions if found.positions[each] != start.positions[each]} == {
        T.of_partition(3)
    }
    assert found.positions[T.of_partition(3)] == ids[-1]
    assert spark.planner.report()["topics"] != report["topics"]
    same = [each for each in found.positions if found.positions[each] is start.positions[each]]
    assert len(same) == 4, "what has not moved is the same object"


def follow_quietly(cluster, **options):
    """A query on one partition, whose tail follows, and which has nothing to do."""
    (topic,) = cluster.create("t", 1, ledger=500)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", **options)
    topic.produce(5)
    spark.drain()
    spark.poll(3.0)
    assert topic.tails
    return spark, topic


@pytest.mark.parametrize("ledger", [30, 500, 900])
def test_a_topic_that_is_made_again_shows_at_once_in_quiet_times(cluster, ledger):
    spark, _ = follow_quietly(cluster)
    requests = len(cluster.requests)
    cluster.delete("t")
    (new,) = cluster.create("t", 1, ledger=ledger)
    new.produce(2)
    start = Offsets.from_json(json.loads(spark.offsets[-1]))
    if ledger < 500:
        with pytest.raises(
            DataLossError, match="ends at 30:1, before the position that this query has processed"
        ):
            spark.poll(1.0)
    elif ledger > 500:
        cluster.clock += 0.2
        assert spark.planner.latest(start).positions == {P0: new.last}, "it is read from its beginning"
    else:
        assert spark.planner.latest(start) == start
    assert len(cluster.requests) > requests


def test_new_partitions_show_at_once_in_quiet_times(cluster):
    spark, topic = follow_quietly(cluster)
    (second,) = cluster.create("t", 2)
    ids = second.produce(2)
    start = Offsets.from_json(json.loads(spark.offsets[-1]))
    cluster.clock += 0.2
    assert spark.planner.latest(start).positions == {P0: topic.last, P1: ids[-1]}


def test_a_subscription_that_is_moved_in_quiet_times_holds_again(cluster, caplog):
    """Messages may wait for hours for others that are to be read with them."""
    spark, topic = follow_quietly(cluster, minMessagesPerTrigger="5", maxTriggerDelay="2h")
    processed, ids = topic.last, topic.produce(2)
    spark.poll(3.0)
    topic.cursors[spark.subscription] = topic.last
    spark.poll(30.0)
    assert mark(spark, P0) <= processed
    assert "nothing is lost" in caplog.text
    more = topic.produce(3)
    assert spark.drain() == rows_of(P0, ids + more)


def test_a_micro_batch_costs_two_requests_a_partition(cluster):
    count = 10
    topics = cluster.create("t", count)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    for topic in topics:
        topic.produce(3)
    spark.drain()
    for _ in range(3):
        spark.trigger()
    cluster.requests.clear()
    batches = 20
    for _ in range(batches):
        for topic in topics:
            topic.produce(5)
        spark.poll(2.0)
        assert len(spark.trigger()) == 5 * count
    asked = {kind: sum(each[0] == kind for each in cluster.requests) for kind, *_ in cluster.requests}
    assert asked.keys() == {"last", "ack", "follow"}, "follow is no request"
    assert asked["ack"] <= count * batches
    assert asked["last"] <= count * (batches + 5), "some are asked anyway"


def test_it_waits_for_news_only_where_there_was_none(cluster, topic, monkeypatch):
    monkeypatch.setattr(ends, "_MIN_WAIT", HANG)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(1)
    spark.drain()
    start = Offsets.from_json(json.loads(spark.offsets[-1]))
    began = time.monotonic()
    spark.planner.await_news()  # as much was found last
    for _ in range(5):
        cluster.clock += 0.3
        start = spark.planner.latest(start)
    pushing = threading.Timer(0.01, topic.produce)
    pushing.start()
    spark.planner.await_news()
    pushing.join()
    assert spark.planner.latest(start) != start
    spark.planner.await_news()
    assert time.monotonic() < began + HANG / 2


@pytest.mark.parametrize("entries", [5, 40])
def test_chunks_are_found_in_a_topic_that_had_none_for_long(cluster, topic, entries):
    """The ledger is gone when the last chunk comes, unless what begins in it is held."""
    spark = SimulatedSpark(cluster, startingOffsets="earliest", expireTimeOfIncompleteChunkedMessage="60s")
    for _ in range(10):
        topic.produce(entries)
        spark.drain()
        spark.poll(3.0)
    assert mark(spark) == topic.last
    topic.produce(entries)
    first, *_ = topic.produce(2, chunks=True)
    topic.entries.pop()  # its last chunk comes later
    topic.produce(3)
    spark.drain()
    spark.poll(5.0)
    assert mark(spark) < first


@pytest.mark.parametrize("probe", ["has_chunks_before", "probe_entry"])
def test_one_probe_that_fails_late_delays_acknowledgements_little(cluster, topic, monkeypatch, probe):
    """Such as one that meets the unload of its topic, which takes 30 s to be loaded."""
    spark = SimulatedSpark(cluster, startingOffsets="earliest", expireTimeOfIncompleteChunkedMessage="60s")
    topic.produce(5)
    real, waits = getattr(cluster, probe), [30.0]

    def fail_once(*args):
        if waits:
            cluster.clock += waits.pop()
            raise DeadlineError("late")
        return real(*args)

    monkeypatch.setattr(cluster, probe, fail_once)
    spark.trigger()
    topic.roll_over()
    topic.produce(4, chunks=True, time=cluster.time_ms())
    spark.drain()
    spark.poll(60.0)
    assert mark(spark) < topic.ids[5]
    spark.poll(60.0)
    assert not waits
    assert mark(spark) == topic.last


# ---- subscriptions that somebody moves or removes


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("remove", [True, False])
def test_a_subscription_that_was_moved_holds_again(cluster, topic, stopped, remove, caplog):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(2)
    spark.drain()
    processed, name = topic.last, spark.subscription
    if stopped:
        spark.planner.close()
    ids = topic.produce(3)
    if remove:
        del topic.cursors[name]
    else:
        topic.cursors[name] = topic.last
    if stopped:
        spark.start()
    assert spark.trigger() == rows_of(T, ids)
    assert "nothing is lost" in caplog.text
    assert cluster.count("seek", T, processed) == 1
    assert mark(spark) <= processed
    assert spark.trigger() is None
    assert mark(spark) == ids[-1]


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("remove", [True, False])
def test_a_subscription_that_was_moved_over_what_is_gone_is_loss(cluster, topic, stopped, remove, caplog):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(2)
    spark.drain()
    name = spark.subscription
    if stopped:
        spark.planner.close()
    topic.produce(3)
    topic.roll_over()
    ids = topic.produce(2)
    if remove:
        del topic.cursors[name]
    else:
        topic.cursors[name] = topic.last
    topic.trim()
    if stopped:
        spark.start()
    for _ in range(2):  # it is found again by the next start
        with pytest.raises(DataLossError, match=r"\(10:1, 20:-1\]"):
            spark.trigger()
        spark.restart()
        assert (name in topic.cursors) is not (stopped and remove)
    spark.restart(failOnDataLoss="false")
    assert spark.trigger() == rows_of(T, ids)
    assert "(10:1, 20:-1]" in caplog.text


def test_what_the_broker_says_counts_also_where_a_tail_fails(cluster, topic, monkeypatch):
    """A tail of a topic that was made again may wait for its broker until it gives up."""
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(2)
    spark.drain()
    for _ in range(3):
        cluster.clock += 0.3
        spark.trigger()
    assert cluster.count("tail", T)
    topic.produce(3)
    topic.roll_over()
    topic.produce(2)
    del topic.cursors[spark.subscription]
    topic.trim()

    def follow(tail, end):
        raise DeadlineError("no message came")

    monkeypatch.setattr(simulated_cluster._Tail, "follow", follow)
    with pytest.raises(DataLossError, match=r"\(10:1, 20:-1\]"):
        spark.trigger()


def test_a_consumed_ledger_that_goes_away_is_no_loss(cluster, topic, caplog):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(2)
    spark.drain()
    topic.roll_over()
    topic.trim()
    assert spark.trigger() is None
    ids = topic.produce(2)
    assert spark.drain() == rows_of(T, ids)
    topic.roll_over()
    topic.trim()
    spark.restart()
    assert spark.trigger() is None
    assert caplog.text == ""


@pytest.fixture
def set_back(cluster):
    """A query on a topic that ends in an older ledger than what it has processed; it is stopped or runs."""

    def make(*, stopped, fail=True, restored=False):
        (old,) = cluster.create("t", ledger=500)
        spark = SimulatedSpark(cluster, startingOffsets="earliest", failOnDataLoss=str(fail).lower())
        old.produce(5)
        spark.drain()
        if stopped:
            spark.planner.close()
        cluster.delete("t")
        (new,) = cluster.create("t", ledger=30)
        new.produce(2)
        if restored:
            new.cursors[spark.subscription] = new.begin
        cluster.clock += 5.0
        if stopped:
            spark.start()
        return spark, new

    return make


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("restored", [True, False])
def test_a_topic_that_ends_before_what_was_processed_is_an_error(set_back, stopped, restored):
    spark, new = set_back(stopped=stopped, restored=restored)
    before = dict(new.cursors)
    for _ in range(2):
        with pytest.raises(
            DataLossError, match="ends at 30:1, before the position that this query has processed"
        ):
            spark.trigger()
        if stopped:
            assert new.cursors == before, "the broker is left as it was"
        spark.planner.close()
        spark.start()
    assert len(spark.rows) == 5


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("restored", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_such_a_topic_is_read_from_its_end_where_loss_is_no_error(set_back, caplog, stopped, restored, fails):
    spark, new = set_back(stopped=stopped, fail=False, restored=restored)
    spark.trigger(fails=fails)
    assert caplog.text.count("before the position that this query has processed") == 1
    if fails:
        new.produce(1)
        ids = new.ids[2:]
        spark.restart()
        spark.trigger()
        assert spark.ranges == [], "nothing is read twice"
    else:
        ids = new.produce(1)
    spark.drain()
    assert spark.rows[5:] == rows_of(T, ids)
    assert mark(spark) == ids[-1]
    spark.restart()
    more = new.produce(1)
    spark.drain()
    assert spark.rows[5:] == rows_of(T, ids + more)
    assert caplog.text.count("before the position that this query has processed") == 1


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("rolls_over", [True, False])
def test_a_query_may_begin_at_a_marker_in_a_later_ledger_than_the_last_message(
    cluster, topic, caplog, own, rolls_over
):
    topic.produce(2)
    topic.roll_over()
    marker = topic.mark_transaction()
    topic.cursors["named"] = marker
    spark = SimulatedSpark(cluster, **({} if own else {"predefinedSubscription": "named"}))
    spark.drain()
    assert mark(spark) == marker
    if rolls_over:
        topic.roll_over()
        topic.cursors[spark.subscription] = MessageId(topic.ledgers[-1], -1)
        spark.drain()
    spark.restart()
    spark.drain()
    ids = topic.produce(1)
    assert spark.drain() == rows_of(T, ids)
    assert caplog.text == ""


def test_an_unfinished_batch_of_a_topic_that_is_set_back_reads_nothing(cluster, topic, caplog):
    topic.roll_over(500)
    topic.produce(2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", failOnDataLoss="false")
    spark.drain()
    topic.produce(1)
    spark.trigger(fails=True)
    spark.planner.close()
    (new,) = cluster.create("t", ledger=30)
    new.produce(2)
    spark.start()
    assert spark.trigger() == []
    ids = new.produce(1)
    assert spark.drain() == rows_of(T, ids)


def test_a_start_after_all_there_is_is_waited_for(cluster, topic):
    topic.produce(2)
    spark = SimulatedSpark(cluster, startingOffsets='{"t": {"-1": "30:0"}}')
    spark.trigger()
    topic.produce(1)
    assert spark.drain() == []
    spark.restart()
    topic.roll_over(30)
    ids = topic.produce(2)
    assert spark.drain() == rows_of(T, ids)


def test_a_topic_that_is_made_again_under_the_running_query_is_read_from_its_beginning(cluster):
    (old,) = cluster.create("t", 1, ledger=500)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    old.produce(5)
    spark.drain()
    cluster.delete("t")
    cluster.clock += 5.0
    assert spark.trigger() == []
    (new,) = cluster.create("t", 1, ledger=900)
    ids = new.produce(2)
    assert spark.drain() == rows_of(P0, ids)


@pytest.mark.parametrize("is_reported", [True, False])
@pytest.mark.parametrize("seen", [0, 2])
def test_a_topic_that_is_deleted_and_made_again_at_once(cluster, caplog, is_reported, seen):
    (old,) = cluster.create("t", 1, ledger=500)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="5")
    old.produce(5 + seen)
    spark.trigger()
    cluster.delete("t")
    if not is_reported:
        cluster.deleted.clear()
    (new,) = cluster.create("t", 1, ledger=900)
    ids = new.produce(2)
    if seen or not is_reported:
        with pytest.raises(DataLossError, match="the topic was deleted and created again"):
            spark.trigger()
    else:
        assert spark.trigger() == rows_of(P0, ids)
        assert "deleted and created again" in caplog.text
        more = new.produce(2)
        assert spark.drain() == rows_of(P0, more)
        assert mark(spark, P0) == more[-1]


def test_an_old_report_of_a_deletion_does_not_hide_loss(cluster, topic):
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(2)
    spark.drain()
    cluster.deleted.add(T)
    topic.produce(1)
    spark.drain()
    topic.produce(1)
    topic.roll_over()
    topic.produce(1)
    del topic.cursors[spark.subscription]
    topic.trim()
    with pytest.raises(DataLossError, match="its subscription was removed"):
        spark.trigger()


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
