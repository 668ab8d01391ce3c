"""The witness of a query on clusters in memory: chosen without requests, compared at a restart."""

import json
import logging
from dataclasses import replace

import pytest

from pulsar_spark.client import Calls, LastMessageId, Source, Witness
from pulsar_spark.errors import DataLossError, DeadlineError, OtherClusterError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan.broker_probe import KnownEntries
from pulsar_spark.spark.plan.clusters.witnesses import Witnesses
from pulsar_spark.spark.plan.offsets import OffsetCache, Offsets
from pulsar_spark.spark.plan.partition import Partition
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import P0, SimulatedSpark, T, U, at, iso_time, options_of

TIME = 1_764_400_000_000


@pytest.fixture
def cluster():
    return SimulatedCluster()


@pytest.fixture
def topic(cluster):
    (made,) = cluster.create("t")
    return made


def last(spark):
    return Offsets.from_json(json.loads(spark.offsets[-1]))


def begun(cluster, topic, **options):
    """A query that has read five entries."""
    topic.produce(5, time=TIME)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", predefinedSubscription="s", **options)
    spark.drain()
    return spark


def test_a_run_probes_one_entry_and_then_uses_those_at_hand(cluster, topic):
    spark = begun(cluster, topic)
    assert last(spark).witness == (T, at("10:4"), TIME, None)
    assert cluster.count("entry at") == 1
    spark.poll(3.0)  # it gets a tail
    for number in range(5, 20):
        topic.produce(1, time=TIME + number)
        spark.trigger()
        spark.poll(0.3)
    assert at("10:10") <= last(spark).witness.id <= at("10:13")  # known for a minute, in triggers of 11 s
    assert cluster.count("entry at") == 1


def starting(cluster, **options):
    """The witness of a query that has read nothing yet, and the requests for it."""
    before = len(cluster.requests)
    spark = SimulatedSpark(cluster, predefinedSubscription="s", **options)
    found = spark.planner.initial().witness
    asked = [each[:2] for each in cluster.requests[before:] if each[0] in ("entry at", "first after")]
    spark.stop()
    return found, asked


def test_a_query_that_begins_at_the_end_takes_the_last_message(cluster, topic):
    topic.produce(2, time=TIME)
    assert starting(cluster) == ((T, at("10:1"), TIME, None), [("entry at", T)])


def test_a_query_that_begins_at_the_end_takes_a_partition_with_messages(cluster):
    cluster.create("t", 2)
    cluster.topics[P0].produce(1, time=TIME)
    found, asked = starting(cluster)
    assert (found.topic, asked) == (P0, [("entry at", P0)])


def test_a_query_that_begins_at_a_time_takes_the_first_message(cluster, topic):
    topic.produce(2, time=TIME)
    topic.roll_over()
    topic.produce(1, time=TIME + 100)
    found, asked = starting(cluster, startingTime=iso_time(TIME + 100), publishTimeMargin="0")
    assert found == (T, at("10:0"), TIME, None)
    assert asked == [("first after", T), ("entry at", T)]


@pytest.mark.parametrize("word", ["earliest", "latest"])
def test_nothing_is_asked_where_a_query_begins_before_all_messages(cluster, topic, word):
    assert starting(cluster, startingOffsets=word) == (None, [])


def test_a_query_that_begins_at_the_time_of_the_first_message_has_no_witness(cluster, topic):
    topic.produce(1, time=TIME)
    found, asked = starting(cluster, startingTime=iso_time(TIME), publishTimeMargin="0")
    assert (found, asked) == (None, [("first after", T)])


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_message_that_is_corrupt_or_gone_is_no_witness(cluster, topic, monkeypatch, is_gone):
    topic.produce(1, time=TIME)
    entry = None if is_gone else replace(cluster.entry_at(T, at("10:0")), corrupt=True)
    monkeypatch.setattr(cluster, "entry_at", lambda topic, position: entry)
    assert starting(cluster)[0] is None


def test_the_witness_of_a_start_is_replaced_like_any(cluster, topic):
    topic.produce(1, time=TIME)
    spark = SimulatedSpark(cluster, predefinedSubscription="s", maxMessagesPerTrigger="1")
    spark.trigger()
    topic.produce(2, time=TIME)
    spark.drain()
    assert last(spark).witness.id == at("10:0")  # the others are not known for a minute yet


def test_a_probe_that_fails_is_no_witness(cluster, topic, monkeypatch):
    def fail(topic, position):
        raise DeadlineError("no answer")

    monkeypatch.setattr(cluster, "entry_at", fail)
    spark = begun(cluster, topic)
    assert last(spark).witness is None


def test_entries_that_limits_have_probed_are_at_hand(cluster, topic):
    spark = begun(cluster, topic, maxMessagesPerTrigger="1", publishTimeMargin="0")
    witnesses = [Offsets.from_json(json.loads(each)).witness.id.entry for each in spark.offsets[-5:]]
    assert witnesses == [0, 0, 1, 2, 3]  # each known for one trigger
    assert cluster.count("entry at") == 0


@pytest.mark.parametrize(("end", "seen"), [("10:2", "10:2"), ("10:3:5", "10:2"), ("10:4", "10:4")])
def test_an_entry_after_the_planned_end_is_no_witness(cluster, topic, end, seen):
    topic.produce(5, time=TIME)
    options = options_of(Mode.STREAM, topic="t")
    partition = Partition.opened(T, None, LastMessageId(topic.last, topic.begin))
    partition.known = KnownEntries(cluster, T, topic.begin)
    partition.known.scan(None, None, topic.last)
    witnesses = Witnesses(cluster, Calls(), options)
    found = witnesses.renewed(None, {partition: MessageId.parse(end)})
    partition.close_known()
    assert found.id == at(seen)


def test_an_own_entry_is_not_replaced_by_a_copy(cluster, topic):
    spark = begun(cluster, topic, maxMessagesPerTrigger="1", publishTimeMargin="0")
    for number in range(5, 8):
        topic.produce(1, time=TIME)
        topic.entries[-1] = replace(topic.entries[-1], source=Source("c", MessageId(1, number)))
        spark.drain()
    assert last(spark).positions == {T: at("10:7")}
    assert last(spark).witness.id == at("10:3")


def test_an_own_entry_replaces_a_copy_at_once_and_is_not_replaced_by_an_older_copy(cluster, topic):
    for number in range(4):
        topic.produce(1, time=TIME + number)
        if number < 3:
            topic.entries[-1] = replace(topic.entries[-1], source=Source("c", MessageId(1, number)))
    spark = SimulatedSpark(
        cluster, startingOffsets="earliest", predefinedSubscription="s", maxMessagesPerTrigger="1"
    )
    spark.drain()
    assert last(spark).witness.id == at("10:3")
    cluster.clock += 61
    topic.produce(1, time=TIME)
    spark.drain()
    cluster.clock += 61
    topic.produce(1, time=TIME)
    spark.drain()
    assert last(spark).witness.id == at("10:4")


def test_a_busy_query_probes_one_entry_an_hour(cluster, topic):
    spark = begun(cluster, topic)
    for hour in range(1, 4):
        cluster.clock += 3600
        topic.roll_over()  # a tail does not follow
        for _ in range(3):
            topic.produce(40, time=TIME + hour)
            spark.trigger()
            cluster.clock += 61
        assert cluster.count("entry at") == 1 + hour
    assert last(spark).witness.publish_time == TIME + 2  # the next one replaces it


def test_the_same_entry_costs_one_probe(cluster, topic):
    spark = begun(cluster, topic)
    before = len(cluster.requests)
    spark.restart()
    topic.produce(2, time=TIME)
    assert len(spark.drain()) == 2
    assert cluster.count("entry at") == 2
    assert [each for each in cluster.requests[before:] if each[0] == "entry at"] == [("entry at", T)]


@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize("change", [{"publish_time": TIME + 1}, {"source": Source("a", at("10:3"))}], ids=str)
def test_another_entry_is_refused_whatever_the_subscription_says(cluster, topic, change, loss):
    spark = begun(cluster, topic, failOnDataLoss=loss)
    topic.entries[-1] = replace(topic.entries[-1], **change)
    marks = dict(topic.cursors)
    spark.restart()
    with pytest.raises(
        OtherClusterError, match=r"/t; message 10:4\. .*startingTime=2025-11-29T07:05:40.000\+00:00"
    ):
        spark.trigger()
    assert topic.cursors == marks


def test_a_copy_elsewhere_is_refused_though_the_witness_is_gone(cluster, topic):
    spark = begun(cluster, topic)
    topic.roll_over(trims=True)
    topic.produce(1, time=TIME)
    topic.entries[-1] = replace(topic.entries[-1], source=Source("a", at("10:4")))
    spark.restart()
    with pytest.raises(OtherClusterError):
        spark.trigger()


def test_the_original_of_a_copy_is_refused(cluster, topic):
    """The query read copies alone; here the same messages are the cluster's own."""
    topic.produce(1, time=TIME)
    topic.entries[-1] = replace(topic.entries[-1], source=Source("b", at("20:3")))
    spark = SimulatedSpark(cluster, startingOffsets="earliest", predefinedSubscription="s")
    spark.drain()
    topic.roll_over(trims=True)
    topic.produce(4, time=TIME)
    spark.restart()
    with pytest.raises(OtherClusterError):
        spark.trigger()


def test_a_topic_that_is_not_read_any_more_says_nothing(cluster, topic):
    spark = begun(cluster, topic)
    cluster.create("u")
    topic.entries[-1] = replace(topic.entries[-1], publish_time=TIME + 1)
    spark = SimulatedSpark(cluster, topic="u", startingOffsets="earliest", predefinedSubscription="s")
    start = Offsets("s", {}, Witness(T, at("10:4"), TIME))
    spark.planner.latest(start)
    assert cluster.count("entry at") == 1
    cluster.topics[U].produce(1, time=TIME)
    cluster.clock += 11
    assert spark.planner.latest(start).witness.topic == U  # the old one says nothing


def test_an_entry_that_cannot_be_probed_is_not_asked_for_again_and_again(cluster, topic, monkeypatch):
    monkeypatch.setattr(cluster, "entry_at", lambda topic, position: cluster.note("entry at", topic))
    topic.produce(1)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", predefinedSubscription="s")
    for _ in range(9):
        topic.roll_over()  # a tail does not follow
        topic.produce(40, time=TIME)
        spark.drain()
    assert last(spark).witness is None
    assert cluster.count("entry at") == 3


def test_a_deleted_witness_is_replaced(cluster, topic):
    spark = begun(cluster, topic)
    topic.roll_over(trims=True)
    topic.produce(1, time=TIME + 5)
    spark.restart()
    assert len(spark.drain()) == 1
    assert last(spark).witness.id == at("20:0")


@pytest.mark.parametrize("is_held", [False, True])
def test_a_gone_witness_that_is_not_acknowledged_is_a_loss(cluster, topic, is_held, caplog):
    """The ids seem to fit, and no message says that they do."""
    spark = begun(cluster, topic)
    before = topic.entries.pop()
    del topic.entries[2:]
    topic.produce(1, time=TIME)  # after the witness
    assert topic.last > before.id
    topic.cursors = {"s": at("10:0")} if is_held else {}
    spark.restart()
    with pytest.raises(DataLossError, match="may be another cluster"):
        spark.trigger()
    assert topic.cursors == ({"s": at("10:0")} if is_held else {})
    spark = SimulatedSpark(
        cluster, startingOffsets="earliest", predefinedSubscription="s", failOnDataLoss="false"
    )
    with caplog.at_level(logging.WARNING):
        assert "another cluster" not in caplog.text


def test_a_checkpoint_without_a_witness_is_continued(cluster, topic):
    spark = begun(cluster, topic)
    spark.offsets[-1] = json.dumps(replace(last(spark), witness=None).to_json())
    topic.entries[-1] = replace(topic.entries[-1], publish_time=TIME + 1)
    spark.restart()
    topic.produce(1, time=TIME)
    assert len(spark.drain()) == 1
    assert last(spark).witness is not None


@pytest.mark.parametrize("source", [None, Source("a", at("3:4")), Source("a", None)])
def test_a_witness_is_written_and_read(source):
    spark_text = {"subscription": "s", "topics": {str(T): {"-1": "1:2"}}}
    before = Offsets.from_json(spark_text)
    after = replace(before, witness=begun_witness(source))
    cache = OffsetCache()
    cache.to_json(before)
    assert cache.to_json(after) == after.to_json()
    assert Offsets.from_json(json.loads(json.dumps(after.to_json()))) == after
    assert len(json.dumps(after.to_json())) - len(json.dumps(spark_text)) <= len(str(T)) + 110


def begun_witness(source):
    return Witness(T, at("1:2"), TIME, source)


@pytest.mark.parametrize(
    "found",
    [
        1,
        {},
        {"topic": "t#x", "id": "1:2", "time": 1},
        {"topic": "t#-1", "id": "1", "time": 1},
        {"topic": "t#-1", "id": "1:2", "time": None},
        {"topic": "t#-1", "id": "1:2", "time": 1, "from": 3},
    ],
)
def test_a_malformed_witness_is_refused(found):
    with pytest.raises(Exception, match="PULSAR_OPTION"):
        Offsets.from_json({"subscription": "s", "topics": {}, "witness": found})
