"""QueryPlanner driven in Spark's order on a cluster in memory: what a trigger costs."""

import json
import random
import threading
import time
from dataclasses import replace

import pytest

from pulsar_spark.errors import DataLossError, DeadlineError
from pulsar_spark.spark.plan import ends, stream
from pulsar_spark.spark.plan.offsets import OffsetCache, Offsets
from tests.client.clients import wait_until
from tests.fake_broker import HANG
from tests.loops import a_few_of
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import P0, P1, KeptOffsets, SimulatedSpark, T, mark, reading, rows_of
from tests.work import calls


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


def disturb(rnd, cluster, partitions, turn):
    """One random event at a broker."""
    topic = rnd.choice(partitions)
    what = rnd.random()
    if what < 0.6:
        topic.produce(rnd.randint(1, 3), time=turn * 1000)
    elif what < 0.75:
        topic.roll_over()
    elif what < 0.9 and len(partitions) < 9:
        partitions += cluster.create("t", len(partitions) + 1)
    else:
        topic.produce(2, chunks=True, time=turn * 1000)


@pytest.mark.parametrize("seed", a_few_of(3, 1))
@pytest.mark.parametrize("options", [{}, {"maxMessagesPerTrigger": "3"}, {"minMessagesPerTrigger": "4"}])
def test_a_trigger_over_what_has_changed_decides_as_one_over_all(seed, options):
    runs = []
    for kind in (SimulatedSpark, KeptOffsets):
        cluster, rnd = SimulatedCluster(), random.Random(seed)
        found: list[object] = []
        random.seed(seed)  # the turns of partitions begin with any of them
        partitions = list(cluster.create("t", 4))
        spark = kind(cluster, startingOffsets="earliest", predefinedSubscription="s", **options)
        for turn in range(40):
            disturb(rnd, cluster, partitions, turn)
            step = rnd.random()
            if step < 0.7:
                found.append(spark.trigger())
                report = spark.planner.report()
                found.append(report["backlogEntries"])
                found.append(report["batchEntries"])
                for parts in report["topics"].values():
                    found += [(part, each["end"], each["backlogEntries"]) for part, each in parts.items()]
            elif step < 0.75:
                spark.trigger(fails=True)
            elif step < 0.8:
                spark.restart()
            elif spark.offsets:
                spark.poll(rnd.choice((0.3, 3.0)))
        found.append(spark.drain())
        spark.poll(120.0)  # longer than a chunked message may be incomplete
        marks = {topic: each.cursors["s"] for topic, each in cluster.topics.items()}
        # Which entries are at hand, so which one is the witness, depends on what a trigger goes over.
        offsets = [replace(Offsets.from_json(json.loads(each)), witness=None) for each in spark.offsets]
        runs.append(([each for each in found if not isinstance(each, str)], offsets, marks))
    assert runs[0] == runs[1]


def test_what_waits_is_read_in_time_though_its_topic_seemed_empty_meanwhile(cluster, topic):
    """As a topic does to which transactions are written, while its broker loads it."""
    spark = KeptOffsets(
        cluster, startingOffsets="earliest", minMessagesPerTrigger="3", maxTriggerDelay="100s"
    )
    topic.produce(3)
    spark.trigger()
    planned_at, hidden = cluster.clock, topic.entries
    topic.roll_over()
    topic.produce(2)
    assert spark.trigger() is None
    topic.entries = []
    spark.poll(20.0)
    topic.entries = hidden
    spark.poll(20.0)
    while spark.planner.latest(spark.kept) is spark.kept:
        cluster.clock += 0.5
    assert 99.0 < cluster.clock - planned_at < 101.0


def one_changes(cluster, spark, partitions, *, is_new):
    """What Spark asks for about a micro-batch of one partition among many, and after it."""
    cache, start = OffsetCache(), spark.kept
    cache.to_json(start)
    changed = cluster.create("t", partitions + 1)[0] if is_new else cluster.topics[P0]
    changed.produce(1)

    def triggers():
        end = spark.planner.latest(start)
        cache.to_json(end)
        spark.planner.report()
        assert len(spark.planner.ranges(start, end)) == 1
        assert spark.planner.latest(end) is end
        spark.planner.report()

    return triggers


@pytest.mark.parametrize("is_new", [False, True])
def test_a_trigger_costs_by_the_partitions_that_have_changed(is_new):
    costs = []
    for count in (100, 400):
        cluster = SimulatedCluster()
        cluster.create("t", count)[0].produce(1)
        spark = KeptOffsets(cluster, startingOffsets="earliest")
        spark.drain()
        spark.poll(3.0)
        spark.planner.report()
        costs.append(calls(one_changes(cluster, spark, count, is_new=is_new)))
    assert costs[1] - costs[0] < 300 * 12, "of a partition that has not changed, only look-ups"


def follow_quietly(cluster, **options):
    """A query on one partition, whose tail follows, and which has nothing to do."""
    (topic,) = cluster.create("t", 1, ledger=500)
    spark = reading(cluster, topic, 5, **options)
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
    if ledger <= 500:
        with pytest.raises(
            DataLossError, match=f"ends at {ledger}:1, before the position that this query has processed"
        ):
            spark.poll(1.0)
    else:
        cluster.clock += 0.2
        assert spark.planner.latest(start).positions == {P0: new.last}, "it is read from its beginning"
    assert len(cluster.requests) > requests


def test_new_partitions_show_at_once_in_quiet_times(cluster):
    spark, topic = follow_quietly(cluster)
    start = Offsets.from_json(json.loads(spark.offsets[-1]))
    assert spark.planner.latest(start) is start
    (second,) = cluster.create("t", 2)
    ids = second.produce(2)
    cluster.clock += 0.2
    assert spark.planner.latest(start).positions == {P0: topic.last, P1: ids[-1]}


def test_new_partitions_that_are_slow_to_open_show_soon_in_quiet_times(cluster, monkeypatch):
    monkeypatch.setattr(stream, "PROMPT", 0.0)
    spark, topic = follow_quietly(cluster)
    opening, real = threading.Event(), cluster.subscribe
    monkeypatch.setattr(cluster, "subscribe", lambda *asked: opening.wait(60) and real(*asked))
    (second,) = cluster.create("t", 2)
    second.produce(2)
    start = Offsets.from_json(json.loads(spark.offsets[-1]))
    for _ in range(2):
        cluster.clock += 0.2
        assert spark.planner.latest(start) == start
    opening.set()
    wait_until(lambda: not spark.planner._subscription.openings.busy)
    cluster.clock += 0.2
    assert spark.planner.latest(start).positions == {P0: topic.last, P1: second.last}


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
    asked.pop("probe entries")  # of monitoring, which has tests of its own
    assert asked.keys() == {"last", "ack", "follow"}, "follow is no request"
    assert asked["ack"] <= count * batches
    assert asked["last"] <= count * (batches + 5), "some are asked anyway"


def test_it_waits_for_news_only_where_there_was_none(cluster, topic, monkeypatch):
    monkeypatch.setattr(ends, "_MIN_WAIT", HANG)
    spark = reading(cluster, topic, 1)
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
