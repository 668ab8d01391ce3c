"""QueryPlanner on a cluster in memory: new partitions, and those that answer late."""

import logging
import threading

import pytest

from pulsar_spark.client import Kind, PendingCalls
from pulsar_spark.errors import DeadlineError, SchemaError
from pulsar_spark.spark.plan import stream
from pulsar_spark.spark.plan.source_reporter import OldestMessages
from tests.client.clients import wait_until
from tests.spark.plan.simulated_spark import P0, P1, P2, SimulatedSpark, T, rows_of


def make_late(patch, cluster, operation):
    """Let an operation of the cluster take 30 s for P1, and fail; returns the list of its attempts."""
    real, tried = getattr(cluster, operation), []

    def take_long(topic, *arguments):
        if topic == P1:
            tried.append(topic)
            cluster.clock += 30.0
            raise DeadlineError("late")
        return real(topic, *arguments)

    patch.setattr(cluster, operation, take_long)
    return tried


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
    monkeypatch.setattr(stream, "PROMPT", 0.01)
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
        wait_until(lambda: spark.planner._calls[Kind.LAST_MESSAGE].late)
        spark.drain()
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
    monkeypatch.setattr(stream, "PROMPT", 0.01)
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
    with monkeypatch.context() as patch:
        # Monitoring probes, too; in this simulation that takes time as well.
        patch.setattr(OldestMessages, "refresh", lambda *_: None)
        tried = make_late(patch, cluster, "probe_entries")
        for _ in range(60):
            first.produce(1)
            spark.trigger()
    assert 6 <= len(tried) <= 30, "660 s of triggers, pauses of up to 30 s, and 30 s for each attempt"
    assert len(spark.rows) == 60
    cluster.clock += 30.0
    spark.drain()
    assert len(spark.rows) == 61


def test_a_run_over_what_there_was_waits_for_all(cluster, monkeypatch):
    monkeypatch.setattr(stream, "PROMPT", 0.0)
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="2")
    spark.trigger()
    first.produce(1)
    second.produce(3)
    spark.restart(available_now=True)
    spark.trigger()
    cluster.stalled[P1] = threading.Event()
    timer = threading.Timer(0.2, cluster.stalled[P1].set)
    timer.start()
    spark.drain()
    timer.join()
    assert len(spark.rows) == 4


def test_the_one_micro_batch_of_trigger_once_waits_for_all(cluster, monkeypatch):
    monkeypatch.setattr(stream, "PROMPT", 0.0)
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.trigger()
    first.produce(1)
    ids = second.produce(1)
    spark.restart()
    cluster.stalled[P1] = threading.Event()
    timer = threading.Timer(0.2, cluster.stalled[P1].set)
    timer.start()
    start = spark._logged(-1)
    assert spark.planner.latest(start, limited=False).positions[P1] == ids[0]
    timer.join()


def test_a_partition_that_is_late_again_and_again_is_warned_of_once(cluster, monkeypatch, caplog):
    monkeypatch.setattr(stream, "PROMPT", 0.01)
    cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.trigger()
    partition = spark.planner._partitions[P1]
    late = {partition}
    monkeypatch.setattr(PendingCalls, "late", property(lambda _: late))
    for _ in range(3):
        cluster.clock += 20.0  # a tail follows the end, so it is requested rarely
        answered = cluster.stalled[P1] = threading.Event()
        spark.trigger()
        answered.set()
        wait_until(lambda: not spark.planner._subscription.silent)
        del cluster.stalled[P1]
        spark.trigger()
    assert caplog.text.count("does not respond promptly") == 1
    late.clear()
    cluster.clock += 20.0
    spark.trigger()
    late.add(partition)
    cluster.clock += 20.0
    answered = cluster.stalled[P1] = threading.Event()
    spark.trigger()
    answered.set()
    wait_until(lambda: not spark.planner._subscription.silent)
    assert caplog.text.count("does not respond promptly") == 2, "it had answered promptly again"


def test_attempts_to_take_in_new_partitions_leave_time_for_the_others(cluster, monkeypatch):
    (first,) = cluster.create("t", 1)
    spark = SimulatedSpark(cluster)
    spark.trigger()
    cluster.create("t", 2)
    tried = make_late(monkeypatch, cluster, "subscribe")
    for _ in range(60):
        first.produce(1)
        spark.trigger()
    assert 6 <= len(tried) <= 30, "660 s of triggers, pauses of up to 30 s, and 30 s for each attempt"
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
    spark.drain()
    assert caplog.text.count("this is retried") == 1
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
