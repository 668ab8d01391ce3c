"""QueryPlanner on a cluster in memory: topics and partitions that are deleted, and topics that have ended."""

import threading

import pytest

from pulsar_spark.client import Kind, TopicEnd
from pulsar_spark.errors import DataLossError, TopicNotFoundError
from pulsar_spark.spark.plan import batch, ends, source_reporter
from tests.client.clients import wait_until
from tests.spark.plan.simulated_spark import P0, P1, KeptOffsets, SimulatedSpark, T, U, reading, rows_of

# ---- topics and partitions that are deleted


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


@pytest.mark.parametrize("available_now", [False, True])
def test_a_partition_that_is_deleted_when_all_is_read_is_left_out(cluster, caplog, available_now):
    first, second = cluster.create("t", 2)
    spark = reading(cluster, second, 1)
    cluster.delete(str(P1))
    ids = first.produce(1)
    if available_now:
        spark.planner.freeze()
    assert spark.drain() == rows_of(P0, ids)
    assert "all messages that the query had seen are processed" in caplog.text
    assert str(P1.partition) not in spark.planner.report()["topics"][str(T)]


@pytest.mark.parametrize("gone", ["t", "u"])
def test_new_partitions_are_read_also_while_another_topic_is_gone(cluster, gone):
    left = {"t": "u", "u": "t"}[gone]
    for name in (gone, left):
        cluster.create(name, 1)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    del spark.options["topic"]
    spark.restart(topics="t,u")
    spark.drain()
    cluster.delete(gone)
    spark.drain()
    (new,) = cluster.create(left, 2)
    ids = new.produce(3)
    assert spark.drain() == rows_of({"t": T, "u": U}[left].of_partition(1), ids)


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted_while_the_query_is_stopped_is_loss(cluster, fails, caplog):
    first, second = cluster.create("t")[0], cluster.create("u")[0]
    options = {"failOnDataLoss": str(fails).lower(), "waitingForNonExistedTopic": "true"}
    spark = SimulatedSpark(cluster, startingOffsets="earliest", **options)
    del spark.options["topic"]
    spark.restart(topics="t,u")
    second.produce(1)
    spark.play("drain stop")
    cluster.delete("u")
    ids = first.produce(1)
    spark.start()
    if fails:
        with pytest.raises(DataLossError, match=r"while the query was stopped.*\(10:0, the end\]"):
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


@pytest.mark.parametrize("is_stopped", [True, False])
def test_topics_of_a_pattern_that_are_deleted_without_a_loss_are_one_line(cluster, caplog, is_stopped):
    """Half of them are processed, the others were never used."""
    names = [f"many-{number}" for number in range(60)]
    for number, name in enumerate(names):
        cluster.create(name)[0].produce(number % 2)
    (kept,) = cluster.create("t")
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    del spark.options["topic"]
    spark.restart(topicsPattern="many-.*|t")
    spark.drain()
    if is_stopped:
        spark.planner.close()
    for name in names:
        cluster.delete(name)
    if is_stopped:
        spark.start()
    ids = kept.produce(1)
    assert spark.drain() == rows_of(T, ids)
    report = spark.planner.report()
    (line,) = caplog.messages
    assert "59 more partitions" in line
    full = {f"persistent://public/default/{name}" for name in names}
    if is_stopped:
        assert "may be lost" in line
        shown = report["topics"]
        assert {name for name in shown if shown[name]["-1"].get("possibleLoss")} == full
    else:
        assert "all messages that the query had seen are processed" in line
        assert set(report["deletedTopics"]) == full
    assert report["dataLosses"] == 0
    caplog.clear()
    spark.restart()
    assert spark.drain() == []
    assert not caplog.messages, "the checkpoint does not have them any more"


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
        spark.planner.ranges(spark._logged(-2), spark._logged(-1))  # again
        assert "the topic was deleted; topic persistent://public/default/u" in caplog.text
        assert spark.planner.report()["dataLosses"] == 1
        more = first.produce(1)
        assert spark.drain() == rows_of(T, more)


@pytest.fixture
def slow_scan(cluster, several, monkeypatch):
    """A query whose probes of the topic u have no answer until the event is set; both topics have rows."""
    monkeypatch.setattr(batch, "PROMPT", 0.0)
    monkeypatch.setattr(source_reporter, "_FIRST_PATIENCE", 0.0)
    for name in "tu":
        cluster.create(name)[0].produce(2)
    spark, answered, real = several(maxMessagesPerTrigger="8"), threading.Event(), cluster.probe_entries

    def probe_entries(topic, after):
        if topic == U:
            probed = cluster.topics[U]
            answered.wait(60)
            if cluster.topics.get(U) is not probed:
                raise TopicNotFoundError("it does not exist", topic=str(topic))
        return real(topic, after)

    monkeypatch.setattr(cluster, "probe_entries", probe_entries)
    wait_until(spark.trigger)
    assert {topic for topic, _ in spark.rows} == {T}
    yield spark, answered
    answered.set()
    spark.planner.close()
    wait_until(lambda: cluster.open_readers == 0)


@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_topic_that_is_deleted_under_a_probe(cluster, slow_scan, is_made_again, caplog):
    """Whatever the probe finds is nothing of a topic that is created with the same name."""
    spark, answered = slow_scan
    spark.restart(failOnDataLoss="false")
    spark.trigger()
    cluster.delete("u")
    spark.trigger()
    assert U not in spark.planner._partitions
    ids = []
    if is_made_again:
        ids = cluster.create("u", ledger=50)[0].produce(2)
        spark.trigger()
    answered.set()
    wait_until(lambda: not spark.planner._micro_batches._admission.is_busy)
    more = cluster.topics[T].produce(1)
    wait_until(lambda: spark.trigger() is None and (T, more[0]) in spark.rows)
    if is_made_again:
        wait_until(lambda: spark.trigger() or (U, ids[-1]) in spark.rows)
    assert [each for topic, each in spark.rows if topic == U] == ids
    assert caplog.text.count("the topic was deleted") == 1


@pytest.mark.parametrize("what", ["subscribe", "bounds"])
def test_a_topic_that_is_deleted_when_a_restart_judges_it(cluster, several, monkeypatch, caplog, what):
    (first,) = cluster.create("t")
    cluster.create("u")[0].produce(1)
    spark = several(failOnDataLoss="false")
    spark.play("drain stop")
    del cluster.topics[U].cursors[spark.subscription]

    real = getattr(cluster, what)

    def delete(topic, *options):
        if topic == U:
            cluster.delete("u")
        return real(topic, *options)

    monkeypatch.setattr(cluster, what, delete)
    ids = first.produce(1)
    spark.start()
    assert spark.drain() == rows_of(T, ids)
    assert caplog.text.count("may be lost") == caplog.text.count(str(U)) == 1


def test_a_topic_that_is_deleted_when_an_answer_is_judged(cluster, several, monkeypatch, caplog):
    (first,) = cluster.create("t")
    (second,) = cluster.create("u")
    spark = several()
    spark.drain()
    second.produce(1)
    second.cursors[spark.subscription] = second.last
    real = cluster.bounds
    monkeypatch.setattr(cluster, "bounds", lambda topic: cluster.delete("u") or real(topic))
    ids = first.produce(1)
    assert spark.drain() == rows_of(T, ids)
    assert "persistent://public/default/u: deleted; all messages" in caplog.text


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
    assert "the checkpoint is of a query that reads persistent://public/default/u, which" in caplog.text
    assert f"remove the subscription {spark.subscription} from that topic" in caplog.text


# ---- topics that have ended


@pytest.mark.parametrize("end", list(TopicEnd))
@pytest.mark.parametrize("available_now", [True, False])
def test_a_topic_that_has_ended_is_warned_of_once_and_counted(cluster, caplog, end, available_now):
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    ids = first.produce(2)
    first.topic_end = end
    spark.restart(available_now=available_now)
    assert spark.drain() == rows_of(P0, ids)
    for _ in range(3):
        assert spark.trigger() is None
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "[PULSAR_TOPIC_ENDED] nothing more will come from this topic: it was"
    )
    assert str(P0) in record.getMessage()
    assert spark.planner.report()["endedPartitions"] == 1
    if not available_now:
        spark.restart()
        for _ in range(3):
            assert spark.trigger() is None
        assert spark.planner.report()["endedPartitions"] == 1, "its tail was told"
        ids = second.produce(1)
        assert spark.drain() == rows_of(P1, ids), "the others are read on"


@pytest.mark.parametrize("seen", [0, 1])
@pytest.mark.parametrize("available_now", [True, False])
def test_all_messages_of_an_ended_topic_are_read_although_brokers_report_none(cluster, seen, available_now):
    first, _ = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="1")
    ids = first.produce(seen)
    found = spark.drain()
    ids += first.produce(3)
    first.topic_end, first.hides_end = TopicEnd.TERMINATED, True
    spark.restart(available_now=available_now)
    assert found + spark.drain() == rows_of(P0, ids)


def test_a_topic_that_ends_while_it_is_read_is_read_to_its_end_although_brokers_report_none(cluster):
    first, _ = cluster.create("t", 2)
    ids = first.produce(5)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="2")
    spark.trigger()
    first.topic_end, first.hides_end = TopicEnd.TERMINATED, True
    spark.drain()
    assert spark.rows == rows_of(P0, ids)


def test_a_topic_that_was_empty_and_ended_is_read_although_brokers_report_no_message(cluster):
    first, second = cluster.create("t", 2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    second.produce(1)
    spark.drain()
    ids = first.produce(3)
    first.topic_end, first.hides_end = TopicEnd.TERMINATED, True
    assert spark.drain() == rows_of(P0, ids)


def test_an_end_of_a_topic_is_noted_that_a_reader_was_told_before_it_was_used(cluster, monkeypatch):
    first, second = cluster.create("t", 2)
    spark = KeptOffsets(cluster, startingOffsets="earliest")
    first.produce(2)
    spark.drain()
    real, opening = cluster.open_tail, threading.Event()

    def open_slowly(topic, after, on_arrival):
        tail = real(topic, after, on_arrival)
        return tail if topic == P1 or opening.wait(60) else None

    monkeypatch.setattr(cluster, "open_tail", open_slowly)
    monkeypatch.setattr(ends, "PROMPT", 0.01)
    spark.restart()  # what acknowledges nothing is told by its readers alone
    spark.poll(1.0)
    first.topic_end = TopicEnd.TERMINATED
    first.tails[0].reached = first.last
    first.tails[0]._on_arrival()
    spark.poll(0.3)
    opening.set()
    wait_until(lambda: not spark.planner._calls[Kind.TAIL].busy)
    end = spark.kept
    for _ in range(20):  # the other one has news at once
        cluster.clock += 0.01
        second.produce(1)
        end = spark.planner.latest(end)
    assert spark.planner.report()["endedPartitions"] == 1
