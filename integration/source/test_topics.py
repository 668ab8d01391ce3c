"""Topics and partitions that come and go, and the durable subscription over runs of a query."""

import json
import threading
from collections import Counter

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from integration.broker.waiting import HANG, wait_until
from integration.fixtures.spark import Collector, await_rows, drain, finish, start
from integration.helpers.peer import Peer, Record

IMPATIENT = {"pulsar.client.operationTimeoutMs": "8s"}


def records(*values):
    return [Record(value.encode()) for value in values]


def several(here, naming, **options):
    """A stream of topics that are named in another way than by `topic`."""
    given = {"service.url": here.service_url, "startingOffsets": "earliest", **naming, **options}
    return here.spark.readStream.format("pulsar").options(**given).load()


def mark_delete(admin, topic, subscription):
    """Where the durable position of a subscription is."""
    return str(admin.internal_stats(topic)["cursors"][subscription]["markDeletePosition"])


def place(message_id):
    return f"{message_id.ledger_id()}:{message_id.entry_id()}"


class Blocked(Collector):
    """A sink that keeps its first batch with rows until it is let go."""

    def __init__(self):
        super().__init__()
        self.reached, self.let_go = threading.Event(), threading.Event()

    def __call__(self, batch, number):
        super().__call__(batch, number)
        if self.batches[number][-1]:
            self.reached.set()
            assert self.let_go.wait(HANG)


def test_what_a_pattern_means_comes_and_goes_while_it_is_read(
    pulsar_in_spark, peer, admin, namespace, checkpoint
):
    base = f"persistent://{namespace}"
    admin.create_partitioned_topic(f"{base}/x-parts", 1)
    peer.produce(f"{base}/x-parts", records("before"))
    naming = {"topicsPattern": f"{namespace}/x-.*"}
    sink = Collector()
    query = start(several(pulsar_in_spark, naming, startingOffsets="latest"), sink, checkpoint)

    def come(*values):
        wait_until(lambda: Counter(sink.values) == Counter(values) or not query.isActive)
        assert Counter(sink.values) == Counter(values)

    try:
        wait_until(lambda: 0 in sink.batches or not query.isActive)
        peer.produce(f"{base}/x-parts", records("1"))
        come("1")
        peer.produce(f"{base}/x-new", records("2"))
        peer.produce(f"{base}/y-other", records("none"))
        come("1", "2")
        admin.grow_partitioned_topic(f"{base}/x-parts", 3)
        peer.produce(f"{base}/x-parts-partition-2", records("3"))
        come("1", "2", "3")
        admin.delete_topic(f"{base}/x-new")
        peer.produce(f"{base}/x-parts-partition-1", records("4"))
        come("1", "2", "3", "4")
        peer.produce(f"{base}/x-new", records("5"))
        come("1", "2", "3", "4", "5")
        admin.delete_partitioned_topic(f"{base}/x-parts")
        peer.produce(f"{base}/x-new", records("6"))
        come("1", "2", "3", "4", "5", "6")
    finally:
        query.stop()
    assert query.exception() is None
    peer.produce(f"{base}/x-late", records("7"))
    peer.produce(f"{base}/x-new", records("8"))
    run = several(pulsar_in_spark, naming, startingOffsets="latest")
    drain(run, sink, checkpoint)
    come("1", "2", "3", "4", "5", "6", "7", "8")


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_is_deleted_before_it_is_processed(pulsar_in_spark, peer, admin, topic, checkpoint, fails):
    other = f"{topic}-other"
    peer.produce(topic, records("1", "2", "3"))
    peer.produce(other, records("4"))
    sink = Blocked()
    naming = {"topics": f"{topic},{other}"}
    options = {"maxMessagesPerTrigger": "2", "failOnDataLoss": str(fails)}
    query = start(several(pulsar_in_spark, naming, **options, **IMPATIENT), sink, checkpoint)
    try:
        assert sink.reached.wait(HANG)
        admin.delete_topic(topic)
        sink.let_go.set()
        if fails:
            with pytest.raises(StreamingQueryException, match=r"\[PULSAR_DATA_LOSS\]") as caught:
                finish(query)
            assert topic in str(caught.value)
            assert "the topic was deleted" in str(caught.value)
        else:
            peer.produce(other, records("5"))
            wait_until(lambda: sink.values[-1:] == ["5"] or not query.isActive)
    finally:
        sink.let_go.set()
        query.stop()
    if not fails:
        assert query.exception() is None
        assert Counter(sink.values) == Counter(["1", "4", "5"])


def test_topics_that_do_not_exist_yet_are_waited_for(pulsar_in_spark, peer, admin, topic, checkpoint):
    there = f"{topic}-there"
    peer.produce(there, records("1"))
    naming, waits = {"topics": f"{topic},{there}"}, {"waitingForNonExistedTopic": "true"}
    with pytest.raises(PySparkException, match=r"\[PULSAR_TOPIC_NOT_FOUND\]"):
        drain(several(pulsar_in_spark, naming), Collector(), checkpoint.with_name("other"))
    rows = pulsar_in_spark.spark.read.format("pulsar").options(**naming, **waits)
    batch = rows.option("service.url", pulsar_in_spark.service_url).load().collect()
    assert [bytes(row.value) for row in batch] == [b"1"]
    sink = Collector()
    drain(several(pulsar_in_spark, {"topic": topic}, **waits), sink, checkpoint)
    assert sink.values == []
    query = start(several(pulsar_in_spark, {"topic": topic}, **waits), sink, checkpoint)
    try:
        admin.create_partitioned_topic(topic, 2)
        peer.produce(f"{topic}-partition-1", records("2"))
        wait_until(lambda: sink.values == ["2"] or not query.isActive)
    finally:
        query.stop()
    assert query.exception() is None
    assert sink.values == ["2"]


def test_two_queries_on_one_subscription(pulsar_in_spark, peer, topic, checkpoint):
    peer.produce(topic, records("1"))
    named = {"predefinedSubscription": "the-only-one"}
    sink = Collector()
    query = start(pulsar_in_spark.stream(topic, **named), sink, checkpoint)
    try:
        await_rows(query, lambda: sink.values == ["1"])
        second = pulsar_in_spark.stream(topic, **named, **IMPATIENT)
        with pytest.raises(StreamingQueryException, match=r"\[PULSAR_BUSY\]") as caught:
            drain(second, Collector(), checkpoint.with_name("second"))
        assert "the-only-one" in str(caught.value)
        assert topic in str(caught.value)
        peer.produce(topic, records("2"))
        await_rows(query, lambda: sink.values == ["1", "2"])
    finally:
        query.stop()
    assert query.exception() is None


def test_the_durable_position_is_the_checkpoints(pulsar_in_spark, peer, admin, topic, checkpoint):
    named = {"predefinedSubscription": "mine"}
    sink = Collector()
    first = peer.produce(topic, records("1", "2", "3"))
    # A batch that does not finish acknowledges nothing.
    sink.fail_at = {0}
    with pytest.raises(StreamingQueryException, match="InjectedError"):
        drain(pulsar_in_spark.stream(topic, **named), sink, checkpoint)
    assert admin.backlog(topic, "mine") == 3
    sink.fail_at = set()
    drain(pulsar_in_spark.stream(topic, **named), sink, checkpoint)
    assert mark_delete(admin, topic, "mine") == place(first[-1])
    # Another start means nothing to a query that has a checkpoint.
    second = peer.produce(topic, records("4", "5"))
    sink.fail_at = {1}
    for starting in ("earliest", "latest"):
        rows = pulsar_in_spark.stream(topic, **named, startingOffsets=starting)
        with pytest.raises(StreamingQueryException, match="InjectedError"):
            drain(rows, sink, checkpoint)
        assert mark_delete(admin, topic, "mine") == place(first[-1])
    sink.fail_at = set()
    drain(pulsar_in_spark.stream(topic, **named, startingOffsets="latest"), sink, checkpoint)
    assert mark_delete(admin, topic, "mine") == place(second[-1])
    assert sink.values == ["1", "2", "3", "4", "5"]
    assert admin.durable_subscriptions(topic) == ["mine"]
    # A batch reads from there, moves nothing and leaves nothing.
    peer.produce(topic, records("6"))
    found = pulsar_in_spark.read(topic, **named, startingOffsets="subscription").collect()
    assert [bytes(row.value) for row in found] == [b"6"]
    assert mark_delete(admin, topic, "mine") == place(second[-1])
    assert admin.durable_subscriptions(topic) == ["mine"]


def test_a_subscription_that_is_not_retained(pulsar_in_spark, peer, admin, topic, checkpoint):
    sink = Collector()
    for number in range(3):
        peer.produce(topic, records(str(number)))
        drain(pulsar_in_spark.stream(topic, retainSubscription="false"), sink, checkpoint)
        wait_until(lambda: admin.subscriptions(topic) == [])
    assert sink.values == ["0", "1", "2"]


def test_a_topic_is_taken_out_and_put_back(pulsar_in_spark, peer, admin, topic, checkpoint):
    other = f"{topic}-other"
    both = {"topics": f"{topic},{other}"}
    sink = Collector()

    def run(values, naming):
        for each, value in zip((topic, other), values, strict=True):
            peer.produce(each, records(value))
        drain(several(pulsar_in_spark, naming), sink, checkpoint)

    run("ab", both)
    run("cd", {"topics": topic})
    assert sorted(sink.values) == ["a", "b", "c"]
    run("ef", both)
    assert sorted(sink.values) == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize("is_read", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_terminated_topic_is_read_to_its_end_and_reported(
    pulsar_in_spark, cluster, topic, checkpoint, is_read
):
    cluster.admin.create_topic(topic)
    with Peer(cluster.service_url) as peer:
        peer.produce(topic, [Record(b"%d" % number) for number in range(3)])
    cluster.admin.terminate(topic)
    assert len(pulsar_in_spark.read(topic).collect()) == 3
    sink = Collector()
    if is_read:
        drain(pulsar_in_spark.stream(topic), sink, checkpoint)
        assert sink.values == ["0", "1", "2"]
    query = start(pulsar_in_spark.stream(topic), sink, checkpoint)

    def is_reported():
        progress = query.lastProgress
        shown = progress and json.loads(progress["sources"][0]["latestOffset"])
        return bool(shown) and shown["endedPartitions"] == 1

    try:
        await_rows(query, is_reported)
    finally:
        query.stop()
    assert sink.values == ["0", "1", "2"]
