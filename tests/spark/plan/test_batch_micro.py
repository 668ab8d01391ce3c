"""MicroBatchPlanner on a cluster in memory: which partitions a micro-batch leaves out, and for how long."""

import math
import threading

import pytest

from pulsar_spark.client import Calls, InitialPosition
from pulsar_spark.errors import DeadlineError, TopicNotFoundError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.plan import batch as batch_module
from pulsar_spark.spark.plan.batch import MicroBatchPlanner
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.subscription import Subscription
from tests.client.clients import wait_until
from tests.spark.plan.simulated_spark import P0, P1, at, options_of

BEGIN, END = at("10:-1"), at("10:2")
START = Offsets("s", {P0: BEGIN, P1: BEGIN})


@pytest.fixture
def partitions(cluster):
    """The states of two partitions of three entries each, of which none is processed."""
    for topic in cluster.create("t", 2):
        topic.produce(3)
    subscription = Subscription(cluster, Calls(), "s")
    subscription.open(dict.fromkeys((P0, P1), InitialPosition.EARLIEST))
    for state in subscription.partitions.values():
        state.take_up(BEGIN)
    return subscription.partitions


class PlannerByTopic(MicroBatchPlanner):
    """A planner whose ends are by topic, with requests of its own."""

    def __init__(self, cluster, options, on_chunk):
        self.calls = Calls()
        super().__init__(cluster, self.calls, options, on_chunk)

    def ends(self, partitions, *given, **options):
        return {each.topic: end for each, end in super().ends(partitions, *given, **options).items()}


def planner(cluster, met=None, **options):
    on_chunk = (lambda topic: None) if met is None else met.append
    return PlannerByTopic(cluster, options_of(topic="t", **options), on_chunk)


def test_without_limits_all_is_taken_without_a_request(cluster, partitions):
    requests = len(cluster.requests)
    found = planner(cluster)
    assert found.ends(partitions, START) == {P0: END, P1: END}
    assert found.due_at(cluster.clock) == math.inf
    assert len(cluster.requests) == requests
    assert cluster.open_readers == 0


def test_a_partition_that_does_not_respond_or_has_no_position_is_left_out(cluster, partitions):
    found = planner(cluster)
    partitions[P1].be_silent(is_silent=True)
    assert found.ends(partitions, START) == {P0: END, P1: BEGIN}
    partitions[P1].position = None
    assert found.ends(partitions, START) == {P0: END}


def test_a_partition_that_was_set_back_is_first_in_the_checkpoint(cluster, partitions):
    found = planner(cluster)
    checkpoint = Offsets("s", {P0: at("30:5"), P1: BEGIN})
    assert found.ends(partitions, checkpoint) == {P0: BEGIN, P1: END}
    assert found.ends(partitions, START) == {P0: END, P1: END}


def test_limits_hold_unless_spark_says_otherwise(cluster, partitions):
    found = planner(cluster, maxMessagesPerTrigger="2")
    assert found.ends(partitions, START) == {P0: at("10:0"), P1: at("10:0")}
    assert found.ends(partitions, START, limited=False) == {P0: END, P1: END}
    assert cluster.open_readers == 2
    for each in partitions.values():
        each.close(found.calls)
    assert cluster.open_readers == 0


def test_a_batch_that_is_not_due_is_planned_again_after_a_moment(cluster, partitions):
    found = planner(cluster, minMessagesPerTrigger="7", maxTriggerDelay="1h")
    assert found.ends(partitions, START) == START.positions
    due_at = found.due_at(cluster.clock)
    assert cluster.clock < due_at <= cluster.clock + 1
    partitions[P0].last = cluster.topics[P0].produce(1)[-1]
    assert found.ends(partitions, START) == START.positions, "it is held back"
    cluster.clock = due_at
    assert found.due_at(cluster.clock) == math.inf
    assert found.ends(partitions, START) == {P0: at("10:3"), P1: END}
    partitions[P0].last = END
    found = planner(cluster, minMessagesPerTrigger="7", maxTriggerDelay="1h")
    assert found.ends(partitions, START, available_now=True) == {P0: END, P1: END}, "the run ends"


def test_a_partition_that_could_not_be_probed_rests(cluster, partitions, monkeypatch):
    def fail(topic, after):
        if topic == P1:
            cluster.clock += 3.0
            raise DeadlineError("late")
        return real(topic, after)

    real = cluster.probe_entries
    found = planner(cluster, maxMessagesPerTrigger="100")
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "probe_entries", fail)
        assert found.ends(partitions, START) == {P0: END, P1: BEGIN}
    assert found.due_at(cluster.clock) == cluster.clock + 1.0
    assert found.ends(partitions, START) == {P0: END, P1: BEGIN}
    assert found.ends(partitions, START, available_now=True) == {P0: END, P1: END}, "it waits for all"
    cluster.clock += 1.0
    assert found.ends(partitions, START) == {P0: END, P1: END}
    assert found.due_at(cluster.clock) == math.inf


def test_a_slow_partition_is_waited_for_only_in_a_run_that_ends(cluster, partitions, monkeypatch):
    def probe_entries(topic, after):
        if topic == P1:
            answered.wait(60)
        return real(topic, after)

    real, answered = cluster.probe_entries, threading.Event()
    monkeypatch.setattr(cluster, "probe_entries", probe_entries)
    monkeypatch.setattr(batch_module, "PROMPT", 0.0)
    endless, ends = (planner(cluster, maxMessagesPerTrigger="100") for _ in range(2))
    assert endless.ends(partitions, START)[P1] == BEGIN
    timer = threading.Timer(0.2, answered.set)
    timer.start()
    assert ends.ends(partitions, START, available_now=True) == {P0: END, P1: END}
    timer.join()
    for each in partitions.values():
        each.close(endless.calls)
    wait_until(lambda: cluster.open_readers == 0)


def test_tasks_are_of_partitions_that_exist_and_were_not_set_back(cluster, partitions):
    end = Offsets("s", {P0: END, P1: END})
    found = planner(cluster)
    assert [each.topic for each in found.tasks(partitions, START, end)] == [P0, P1]
    partitions[P0].is_set_back = True
    assert [each.topic for each in found.tasks(partitions, START, end)] == [P1]
    del partitions[P1]
    assert found.tasks(partitions, START, end) == []


@pytest.mark.parametrize(
    ("start", "begins", "asked"),
    [
        # within a ledger, of which something is not read
        ("20:-1", "20:-1", 0),
        ("20:1", "20:1", 0),
        ("20:1:2", "20:0", 0),
        # across ledgers: before the first message, wherever that is
        ("10:1", "10:1", 1),
        ("10:2", "20:0", 1),
        ("10:2:1", "10:1", 1),
        ("9:7", "9:-1", 1),
        ("-1:-1", "9:-1", 1),
    ],
)
@pytest.mark.parametrize("min_partitions", ["1", "3"])
def test_tasks_know_after_which_position_everything_is_stored(cluster, start, begins, asked, min_partitions):
    (topic,) = cluster.create("t", 1, ledger=9)
    topic.produce(1)
    topic.roll_over(10)
    topic.produce(3)
    topic.roll_over(20)
    topic.mark_transaction()
    end = topic.produce(4)[-1]
    subscription = Subscription(cluster, Calls(), "s")
    subscription.open({P0: InitialPosition.EARLIEST})
    if start == "9:7":
        topic.entries = topic.entries[1:]
        begins = "10:-1"
    tasks = planner(cluster, minPartitions=min_partitions).tasks(
        subscription.partitions, Offsets("s", {P0: at(start)}), Offsets("s", {P0: end})
    )
    assert {each.begins for each in tasks} == {at(begins)}
    assert cluster.count("first after") == asked


def test_what_was_seen_and_is_deleted_before_the_tasks_are_planned_is_missed_by_them(cluster):
    (topic,) = cluster.create("t", 1, ledger=10)
    start, seen = topic.produce(2)
    topic.roll_over(11)
    end = topic.produce(4)[-1]
    subscription = Subscription(cluster, Calls(), "s")
    subscription.open({P0: InitialPosition.EARLIEST})
    state = subscription.partitions[P0]
    state.take_up(start)
    state.see(seen)
    topic.entries = topic.entries[2:]
    (task,) = planner(cluster).tasks(
        subscription.partitions, Offsets("s", {P0: start}), Offsets("s", {P0: end})
    )
    assert (task.start, task.begins) == (start, start), "and not where ledger 11 begins"


def test_tasks_of_what_is_gone_know_nothing(cluster, partitions):
    end = Offsets("s", {P0: at("20:1"), P1: at("20:1")})
    cluster.topics[P0].compact_and_trim()
    cluster.topics[P1].compact_and_trim()
    cluster.topics[P1].roll_over()
    cluster.topics[P1].produce(1)
    assert [each.begins for each in planner(cluster).tasks(partitions, START, end)] == [None, None]


def test_tasks_of_compacted_topics_take_what_is_left(cluster, partitions):
    cluster.read_compacted = True
    cluster.topics[P0].roll_over()
    end = Offsets("s", {P0: cluster.topics[P0].produce()[-1], P1: END})
    assert [each.begins for each in planner(cluster).tasks(partitions, START, end)] == [None, None]
    assert cluster.count("first after") == 0


def test_chunks_that_a_probe_finds_are_reported(cluster, partitions):
    met = []
    partitions[P1].last = cluster.topics[P1].produce(2, chunks=True)[-1]
    found = planner(cluster, met, maxMessagesPerTrigger="100")
    assert found.ends(partitions, START)[P1] == MessageId(10, 4)
    assert set(met) == {P1}


def test_a_deleted_partition_is_named(cluster, partitions):
    cluster.delete(str(P1))
    with pytest.raises(TopicNotFoundError) as caught:
        planner(cluster, maxMessagesPerTrigger="100").ends(partitions, START)
    assert caught.value.topic == str(P1)
