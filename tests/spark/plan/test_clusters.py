"""The witness of a query on clusters in memory: chosen without requests, compared at a restart."""

import json
import logging
import threading
from contextlib import nullcontext
from dataclasses import replace

import pytest

from pulsar_spark.client import Calls, LastMessageId, Source, Witness
from pulsar_spark.errors import DataLossError, DeadlineError, OtherClusterError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan import clusters as clusters_module
from pulsar_spark.spark.plan.broker_probe import KnownEntries
from pulsar_spark.spark.plan.clusters import Witnesses, copied_partition
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.partition import Partition
from tests.client.clients import wait_until
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import P0, P1, SimulatedSpark, T, U, at, iso_time, options_of

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


def test_entries_at_hand_put_off_the_probe(cluster, topic):
    spark = begun(cluster, topic)
    cluster.clock += 3500
    spark.poll(3.0)  # it gets a tail
    topic.produce(1, time=TIME)
    spark.drain()
    cluster.clock += 3500
    topic.roll_over()  # a tail does not follow
    topic.produce(40, time=TIME)
    spark.drain()
    assert cluster.count("entry at") == 1


def renewing(cluster, topic, entries=5, **options):
    """The witnesses of a query with a partition of which no entry is known, and the partition."""
    topic.produce(entries, time=TIME)
    partition = Partition.opened(T, None, LastMessageId(topic.last, topic.begin))
    return Witnesses(cluster, Calls(), options_of(Mode.STREAM, topic="t", **options)), partition


def test_an_hour_is_over_when_it_is_over(cluster, topic):
    witnesses, partition = renewing(cluster, topic)
    old = Witness(T, at("10:0"), TIME)
    cluster.clock += 3599
    assert witnesses.renewed(old, {partition: at("10:1")}) == old
    assert cluster.count("entry at") == 0
    cluster.clock += 1
    witnesses.renewed(old, {partition: at("10:1")})
    assert cluster.count("entry at") == 1


def test_an_entry_replaces_the_witness_when_it_is_known_for_the_margin(cluster, topic):
    witnesses, partition = renewing(cluster, topic, publishTimeMargin="60s")
    old = Witness(T, at("10:0"), TIME)
    cluster.clock += 3600
    assert witnesses.renewed(old, {partition: at("10:1")}) == old
    partition.known = KnownEntries(cluster, T, topic.begin)
    partition.known.scan(None, None, topic.last)
    cluster.clock += 59
    assert witnesses.renewed(old, {partition: at("10:2")}) == old
    cluster.clock += 1
    assert witnesses.renewed(old, {partition: at("10:3")}).id == at("10:1")
    partition.close_known()


def test_only_one_entry_is_probed_in_an_hour_though_it_is_gone(cluster, topic):
    witnesses, partition = renewing(cluster, topic)
    old = Witness(T, at("10:0"), TIME)
    cluster.clock += 3600
    for _ in range(2):
        assert witnesses.renewed(old, {partition: at("10:9")}) == old
    assert cluster.count("entry at") == 1


def test_only_new_messages_are_probed(cluster, topic):
    witnesses, partition = renewing(cluster, topic)
    partition.take_up(at("10:3"))
    assert witnesses.renewed(None, {partition: at("10:3")}) is None
    assert witnesses.renewed(None, {partition: at("11:-1")}) is None
    assert cluster.count("entry at") == 0
    assert witnesses.renewed(None, {partition: at("10:4")}).id == at("10:4")


def test_a_probe_that_is_not_answered_holds_up_nothing(cluster, topic, monkeypatch):
    witnesses, partition = renewing(cluster, topic)
    answered, probe = threading.Event(), cluster.entry_at

    def slow(*given):
        assert answered.wait(10)
        return probe(*given)

    monkeypatch.setattr(cluster, "entry_at", slow)
    assert witnesses.renewed(None, {partition: at("10:4")}) is None
    answered.set()
    wait_until(lambda: witnesses.renewed(None, {partition: at("10:4")}) is not None)


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


def test_an_empty_topic_is_no_other_cluster(cluster, topic):
    spark = begun(cluster, topic)
    topic.roll_over(trims=True)
    spark.restart()
    assert spark.drain() == []


def test_a_copy_of_another_entry_is_none_of_a_copied_witness(cluster, topic):
    """Its position in the third cluster is that of the witness here."""
    topic.produce(2, time=TIME)
    topic.entries[0] = replace(topic.entries[0], source=Source("b", at("20:3")))
    spark = SimulatedSpark(cluster, startingOffsets="earliest", predefinedSubscription="s")
    spark.drain()
    witness = Witness(T, at("10:0"), TIME, Source("b", at("20:3")))
    spark.offsets[-1] = json.dumps(replace(last(spark), witness=witness).to_json())
    topic.entries[0] = replace(topic.entries[0], source=None)
    topic.entries[1] = replace(topic.entries[1], source=Source("c", at("10:0")))
    spark.restart()
    with pytest.raises(OtherClusterError):
        spark.trigger()


@pytest.mark.parametrize(
    ("time", "is_found"), [(TIME + 60_000, True), (TIME + 60_001, False), (TIME - 60_001, True)]
)
def test_the_names_of_clusters_are_those_of_copies_near_the_witness(cluster, topic, time, is_found):
    """Else a producer could have many entries read."""
    spark = begun(cluster, topic)
    original = topic.entries[4]
    topic.entries[3:] = [replace(each, publish_time=TIME + 1) for each in topic.entries[3:]]
    topic.produce(1, time=time)
    topic.produce(1, time=TIME)
    topic.entries[-1] = replace(topic.entries[-1], source=Source("a", original.id))
    spark.restart()
    with pytest.raises(OtherClusterError) if not is_found else nullcontext():
        spark.trigger()
    assert (last(spark).left is not None) is is_found


@pytest.mark.parametrize("limit", [1, 2])
def test_few_entries_are_read_for_the_names_of_clusters(cluster, topic, monkeypatch, limit):
    monkeypatch.setattr(clusters_module, "_MAX_SEARCHED", limit)
    spark = begun(cluster, topic)
    original = topic.entries[4]
    topic.entries = [replace(topic.entries[4], publish_time=TIME + 1)]
    topic.produce(1, time=TIME)
    topic.entries[-1] = replace(topic.entries[-1], source=Source("a", original.id))
    spark.restart()
    with pytest.raises(OtherClusterError) if limit == 1 else nullcontext():
        spark.trigger()


@pytest.mark.parametrize(("limit", "is_found"), [(1, False), (2, True)])
def test_copies_of_few_clusters_are_searched_for(cluster, topic, monkeypatch, limit, is_found):
    """A producer can write any number of names."""
    monkeypatch.setattr(clusters_module, "_MAX_CLUSTERS", limit)
    spark = begun(cluster, topic)
    original = topic.entries[4].id
    topic.entries = [replace(topic.entries[4], publish_time=TIME, source=Source("x", at("1:1")))]
    topic.produce(1, time=TIME)
    topic.entries[-1] = replace(topic.entries[-1], source=Source("a", original))
    spark.restart()
    with nullcontext() if is_found else pytest.raises(OtherClusterError):
        spark.trigger()


def test_later_reads_of_a_search_are_longer(cluster, topic):
    """The first one is short, because a copy is found soon where all entries are copies."""
    topic.produce(100, time=TIME)
    assert copied_partition(cluster, T, "a").around(at("5:5")) == (None, None)
    assert cluster.probed == [1, 0, 16, 32, 52]


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


@pytest.mark.parametrize("is_held", [False, True])
def test_a_gone_witness_at_which_the_subscription_stands_is_no_loss(cluster, topic, is_held):
    spark = begun(cluster, topic)
    topic.entries.pop()
    topic.produce(1, time=TIME)
    topic.cursors["s"] = at("10:4") if is_held else at("10:3")
    spark.restart()
    with (
        nullcontext()
        if is_held
        else pytest.raises(
            DataLossError, match=r"neither 10:4 of .*/t, which this query has read, nor a subscription"
        )
    ):
        spark.drain()


@pytest.mark.parametrize("is_named", [False, True])
def test_an_empty_start_is_compared_in_each_partition(cluster, is_named):
    """The first one is missing, the second one has what was published before the query began."""
    cluster.create("t", 2)
    named = json.dumps({str(T): {"0": "0:-1", "1": "12:-1"}})
    options = options_of(Mode.STREAM, topic="t", **({"startingOffsets": named} if is_named else {}))
    cluster.topics[P1].produce(1, time=TIME)
    witnesses = Witnesses(cluster, Calls(), options)
    processed = {P0: at("9:-1"), T: at("9:3"), P1: at("12:-1")}
    answers = {topic: LastMessageId(at("10:0"), at("9:-1")) for topic in (T, P1)}
    why = witnesses.why_unsure(None, processed, {P1}, answers)
    if is_named:
        assert why == ""
    else:
        assert f"the broker has messages before 12:-1 of {P1}, where this query began, and no sub" in why


def test_a_checkpoint_without_a_witness_is_continued(cluster, topic):
    spark = begun(cluster, topic)
    spark.offsets[-1] = json.dumps(replace(last(spark), witness=None).to_json())
    topic.entries[-1] = replace(topic.entries[-1], publish_time=TIME + 1)
    spark.restart()
    topic.produce(1, time=TIME)
    assert len(spark.drain()) == 1
    assert last(spark).witness is not None
