"""The streaming source on Spark 4.0 and 4.1, by their calls, on a cluster in memory."""

import json
import random
from dataclasses import replace

import pytest

from pulsar_spark.errors import (
    BusyError,
    DataLossError,
    NotReadyError,
    OptionError,
    OtherClusterError,
    UnsupportedError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.spark import older_spark
from pulsar_spark.spark.older_spark import OlderStreamReader
from pulsar_spark.spark.plan.offsets import Left, Offsets
from pulsar_spark.spark.plan.stream import QueryPlanner
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA
from tests.loops import a_few_of
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_segments import ScalableTopic
from tests.spark.plan.simulated_spark import POLL, SimulatedSpark, T, acked, iso_time, options_of, rows_of

pytestmark = pytest.mark.usefixtures("folder")

NAME = "q"


class SimulatedOlderSpark:
    """A query over its runs, with its checkpoint; rows are entries.

    Attributes:
        offsets: the offset log; committed: how many batches are in the commit log.
        rows: of all batches that are committed.
        skipped: how many entries there were when a new query asked first.
        before: called before each call of the source.
    """

    def __init__(self, cluster, topic="t", **options):
        self.cluster, self.options = cluster, {"topic": topic, "predefinedSubscription": NAME} | options
        self.offsets, self.committed, self.rows = [], 0, []
        self.reader = None
        self.before = lambda: None

    def start(self, *, available_now=False, **options):
        self.options |= options
        given = {name: text for name, text in self.options.items() if text is not None}
        self.reader = OlderStreamReader({"service.url": "pulsar://localhost:1", **given}, SOURCE_SCHEMA)
        self.reader._started = QueryPlanner(options_of(**given), self.cluster)
        self.fixed = self.call("latestOffset") if available_now else None
        if self.offsets:
            self.call("partitions", self.offsets[-1], self.offsets[-1])

    def close(self):
        self.reader._started.close()

    def call(self, method, *offsets):
        self.before()
        if not self.offsets and self.reader._calls.first_end is None:
            self.skipped = {name: len(topic.ids) for name, topic in self.cluster.topics.items()}
        found = getattr(self.reader, method)(*(json.loads(each) for each in offsets))
        if self.offsets:
            self.check_acknowledged()
        return found if method == "partitions" else json.dumps(found)

    def check_acknowledged(self):
        """Nothing is acknowledged that a replay may read."""
        if self.committed:
            done = Offsets.from_json(json.loads(self.offsets[self.committed - 1])).positions
            for topic, state in self.cluster.topics.items():
                mark = state.cursors.get(NAME)
                if mark is not None and mark.is_entry and topic in done:
                    assert mark <= max(done[topic], state.begin), (topic, mark, done[topic])

    def trigger(self, *, dies=False, dies_early=False):
        """One trigger; False if there was no batch. One that ``dies_early`` writes the offset log only."""
        self.cluster.clock += POLL
        if len(self.offsets) == self.committed:
            if self.fixed is not None:
                if not self.offsets:
                    self.call("initialOffset")
                self.call("latestOffset")  # to report
                found = self.fixed
            else:
                found = self.call("latestOffset")
            if self.offsets and found == self.offsets[-1]:
                return False
            self.offsets.append(found)
            if dies_early:
                return True
            if self.committed:
                self.call("commit", self.offsets[-2])
        start = self.offsets[-2] if len(self.offsets) > 1 else self.call("initialOffset")
        tasks = self.call("partitions", start, self.offsets[-1])
        if not dies:
            self.rows += [
                (each.topic, found)
                for task in tasks
                for each in task.value
                for found in self.cluster.topics[each.topic].between(each.start, each.end)
            ]
            self.committed += 1
        return True

    def run(self, **options):
        """A run to the end of what there is."""
        self.start(**options)
        while self.trigger():
            pass
        self.close()


@pytest.mark.parametrize("seed", a_few_of(40, 12))
def test_each_row_is_read_once_whatever_the_triggers_and_crashes(seed):
    chance = random.Random(seed)
    cluster = SimulatedCluster()
    topics = cluster.create("t", 2)
    cluster.clock += POLL
    start = chance.choice(["earliest", "latest"])
    for topic in topics:
        topic.produce(chance.randrange(4))
    options = {"maxMessagesPerTrigger": str(chance.choice([1, 3, 100]))} if chance.random() < 0.6 else {}
    spark = SimulatedOlderSpark(cluster, startingOffsets=start, **options)

    def produce():
        if chance.random() < 0.4:
            chance.choice(topics).produce(chance.randrange(1, 4))
        if chance.random() < 0.1:
            chance.choice(topics).roll_over()

    spark.before = produce
    for _ in range(chance.randrange(2, 8)):
        spark.start(available_now=chance.random() < 0.5)
        for _ in range(chance.randrange(5)):
            dies, dies_early = chance.random() < 0.3, chance.random() < 0.1
            if not spark.trigger(dies=dies, dies_early=dies_early) or dies or dies_early:
                break
        spark.close()
    spark.before = lambda: None
    spark.run(available_now=chance.random() < 0.5)
    expected = sorted(
        (name, each)
        for name, topic in cluster.topics.items()
        for each in topic.ids[spark.skipped[name] if start == "latest" else 0 :]
    )
    assert sorted(spark.rows) == expected


def test_a_new_query_takes_all_that_is_there_and_then_the_limits_hold(cluster, topic, caplog):
    topic.produce(5)
    spark = SimulatedOlderSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="2")
    spark.start()
    assert spark.trigger()
    assert len(spark.rows) == 5
    assert caplog.text.count("cannot limit the first micro-batch") == 1
    topic.produce(5)
    assert spark.trigger()
    assert len(spark.rows) == 7
    spark.close()
    spark.start()
    assert spark.trigger()
    assert len(spark.rows) == 9, "a restart knows its start"


def test_what_available_now_found_at_its_begin_is_acknowledged_and_no_more(cluster, topic):
    ids = topic.produce(3)
    spark = SimulatedOlderSpark(cluster, startingOffsets="earliest")
    spark.before = lambda: topic.produce(1)
    spark.start(available_now=True)
    while spark.trigger():
        pass
    assert spark.rows == rows_of(T, topic.ids[:4]), "one came before the first call"
    assert acked(cluster) == [topic.ids[3]]
    assert len(topic.ids) > len(ids) + 4


def test_a_start_at_latest_is_the_end_that_spark_has(cluster, topic):
    topic.produce(2)
    spark = SimulatedOlderSpark(cluster, startingOffsets="latest")
    spark.start()
    end = spark.call("latestOffset")
    late = topic.produce(2)
    spark.before = lambda: None
    assert json.loads(spark.call("initialOffset")) == json.loads(end)
    assert topic.cursors[NAME] < late[0]


def test_a_start_after_the_end_is_refused(cluster, topic):
    topic.produce(2)
    spark = SimulatedOlderSpark(cluster, startingOffsets='{"t": {"-1": "10:7"}}')
    spark.start()
    spark.call("latestOffset")
    with pytest.raises(OptionError, match="the start is after 10:6, but the first micro-batch ends at 10:1"):
        spark.call("initialOffset")


def test_a_start_time_holds_when_batch_0_ends_before_it(cluster, topic):
    topic.produce(1, time=100)
    spark = SimulatedOlderSpark(cluster, startingTime=iso_time(1000))
    spark.start()
    assert spark.trigger(dies=True)
    spark.close()
    topic.produce(2, time=200)
    topic.produce(1, time=5000)
    spark.run()
    assert spark.rows == rows_of(T, topic.ids[3:])


def test_a_topic_without_messages_has_nothing_to_read(cluster, topic):
    topic.produce(3)
    spark = SimulatedOlderSpark(cluster, startingOffsets="earliest")
    spark.run()
    spark.run()
    topic.roll_over(trims=True)
    topic.reload()
    spark.start(available_now=True)
    spark.trigger()
    assert json.loads(spark.offsets[-1])["topics"] == {str(T): {"-1": "20:-1"}}
    assert spark.call("partitions", *spark.offsets[-2:]) == []
    spark.close()
    more = topic.produce(1)
    spark.run()
    assert spark.rows[3:] == rows_of(T, more)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_messages_of_a_batch_0_that_are_gone_when_it_runs_again_are_noted(cluster, topic, caplog, start):
    topic.produce(2)
    spark = SimulatedOlderSpark(cluster, startingOffsets=start)
    spark.start()
    assert spark.trigger(dies=True)
    spark.close()
    cluster.delete("t")
    again = cluster.create("t", ledger=90)[0]
    ids = again.produce(2)
    spark.run()
    assert spark.rows == rows_of(T, ids)
    assert "may be lost" in caplog.text


def test_a_subscription_in_use_is_refused_before_the_checkpoint_names_it(cluster, topic):
    topic.produce(1)
    topic.cursors[NAME] = topic.begin
    topic.held.add(NAME)
    spark = SimulatedOlderSpark(cluster)
    spark.start()
    with pytest.raises(BusyError):
        spark.call("latestOffset")


def test_a_batch_0_that_did_not_finish_keeps_its_subscription(cluster, topic):
    topic.produce(1)
    spark = SimulatedOlderSpark(cluster)
    spark.start()
    assert spark.trigger(dies_early=True)
    spark.close()
    spark.start(predefinedSubscription="other")
    with pytest.raises(OptionError, match=f"Set predefinedSubscription={NAME}"):
        spark.trigger()
    assert "other" not in topic.cursors


def test_a_query_must_name_its_subscription(cluster, topic):
    spark = SimulatedOlderSpark(cluster, predefinedSubscription=None)
    spark.start()
    with pytest.raises(OptionError, match="must name its subscription"):
        spark.call("latestOffset")


def test_a_checkpoint_of_a_newer_spark_goes_on_without_a_name_but_not_with_available_now(cluster, topic):
    topic.produce(2)
    spark = SimulatedOlderSpark(cluster, startingOffsets="earliest")
    spark.run()
    more = topic.produce(1)
    spark.start(predefinedSubscription=None)
    assert spark.trigger()
    assert spark.rows[-1:] == rows_of(T, more)
    spark.close()
    with pytest.raises(OptionError, match="must name its subscription"):
        spark.start(available_now=True)
    spark.close()
    with pytest.raises(OptionError, match=f"Set predefinedSubscription={NAME}"):
        spark.start(available_now=True, predefinedSubscription="other")


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("way", [{"dies": True}, {"dies_early": True}, {}], ids=str)
def test_a_newer_spark_goes_on_from_its_checkpoint(cluster, topic, start, way):
    ids = topic.produce(2)
    spark = SimulatedOlderSpark(cluster, startingOffsets=start)
    spark.start()
    spark.trigger(**way)
    spark.close()
    ids += topic.produce(2)
    newer = SimulatedSpark(cluster, predefinedSubscription=NAME, startingOffsets=start)
    newer.offsets, newer.committed = spark.offsets, spark.committed
    newer.trigger()
    ids += topic.produce(1)
    newer.drain()
    assert spark.rows + newer.rows == rows_of(T, ids if start == "earliest" else ids[2:])


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("fails", [False, True])
def test_it_goes_on_from_the_checkpoint_of_a_newer_spark(cluster, topic, start, fails):
    ids = topic.produce(2)
    newer = SimulatedSpark(cluster, startingOffsets=start)
    newer.trigger(fails=fails)
    newer.stop()
    ids += topic.produce(2)
    spark = SimulatedOlderSpark(cluster, predefinedSubscription=None, startingOffsets=start)
    spark.offsets, spark.committed = newer.offsets, newer.committed
    spark.run()
    ids += topic.produce(1)
    spark.run()
    assert newer.rows + spark.rows == rows_of(T, ids if start == "earliest" else ids[2:])


def test_a_scalable_topic_is_refused(cluster):
    topic = ScalableTopic(cluster)
    options = {"startingOffsets": "earliest", "admin.url": "http://localhost:1"}
    spark = SimulatedOlderSpark(cluster, str(topic.name), **options)
    spark.start()
    with pytest.raises(UnsupportedError, match="segments cannot be kept"):
        spark.call("latestOffset")


@pytest.mark.parametrize("available_now", [False, True])
def test_a_topic_that_was_deleted_with_unread_messages_is_a_loss(cluster, topic, available_now):
    spark = SimulatedOlderSpark(cluster, "t", startingOffsets="earliest")
    spark.run()
    topic.produce(2)
    spark.start()
    assert spark.trigger(dies=True)
    spark.close()
    cluster.delete("t")
    cluster.create("t", ledger=90)[0].produce(1)
    spark.start(available_now=available_now)
    with pytest.raises(DataLossError):
        spark.trigger()


def test_an_end_before_the_checkpoint_is_refused(cluster, topic, monkeypatch):
    topic.produce(3)
    spark = SimulatedOlderSpark(cluster, startingOffsets="earliest")
    spark.run()
    topic.produce(1)
    earlier = {T: MessageId(10, 1)}
    monkeypatch.setattr(QueryPlanner, "ends", lambda self: earlier)
    spark.start(available_now=True)
    with pytest.raises(NotReadyError, match="10:1 as the end, but the query has read up to 10:2"):
        spark.trigger()


def test_the_report_goes_to_the_file_of_the_planner(cluster, topic, monkeypatch):
    reports = []
    monkeypatch.setattr(OlderStreamReader, "reportLatestOffset", lambda self: reports.append(1))
    topic.produce(1)
    spark = SimulatedOlderSpark(cluster, startingOffsets="earliest")
    spark.run()
    assert reports


def test_a_run_whose_end_is_known_cannot_move_to_another_cluster():
    old, end = Offsets("s", {}), Offsets("s", {})
    older_spark._require_progress(old, end, end)
    with pytest.raises(OtherClusterError, match="Run the query once with another trigger"):
        older_spark._require_progress(old, replace(end, left=Left("a", 1, {})), end)
