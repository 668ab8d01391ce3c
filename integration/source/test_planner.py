"""The planner's subscriptions and the sink's writers against the real broker, without a Spark."""

import json
import logging
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from integration.broker.waiting import wait_until
from integration.fixtures.spark import Collector, drain
from integration.helpers.background import in_background
from integration.helpers.peer import Record
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.transactions import Coordinator
from pulsar_spark.client import (
    Calls,
    Client,
    ClientOptions,
    Consumer,
    PlanningClient,
    ProducerOptions,
    SubscriptionOptions,
    TopicWriter,
)
from pulsar_spark.errors import BusyError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.plan import start
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.stream import QueryPlanner
from pulsar_spark.spark.plan.subscription import Subscription
from pulsar_spark.spark.plan.topics import find_partitions
from pulsar_spark.spark.sink.topic_writers import TopicWriters
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.commands import InitialPosition
from tests.spark.plan.subscriptions import ask

EARLIEST = InitialPosition.EARLIEST
# A field of number 0 at the end of the metadata: brokers skip it, and protobuf refuses it.
_UNPARSABLE = b"\0\0"


@pytest.fixture
def impatient(cluster):
    """Options of a client that gives an operation up after a few seconds."""
    return ClientOptions(service_url=cluster.service_url, operation_timeout=8.0)


@pytest.fixture
def client(impatient):
    with Client(impatient) as opened:
        yield opened


@pytest.fixture
def partitions(admin, topic):
    """The partitions of a topic that has three."""
    admin.create_partitioned_topic(topic, 3)
    return [TopicName.parse(topic).of_partition(number) for number in range(3)]


def held(client, topic, name):
    """A consumer that keeps all others from the subscription `name` of `topic`."""
    return Consumer(client, topic, SubscriptionOptions(name=name, durable=True))


def source(client, topic):
    given = {"service.url": client.service_url, "topic": topic, "startingOffsets": "earliest"}
    return replace(parse_source(given, Mode.STREAM), client=client)


def test_a_fresh_subscription_that_cannot_be_had_everywhere_is_removed(
    client, impatient, admin, topic, partitions, monkeypatch
):
    monkeypatch.setattr(start, "uuid4", lambda: "fixed")
    with held(client, partitions[2], "spark-pulsar-fixed"):
        with pytest.raises(BusyError):
            QueryPlanner(source(impatient, topic)).initial()
        assert [admin.subscriptions(str(each)) for each in partitions] == [[], [], ["spark-pulsar-fixed"]]


def test_a_subscription_that_cannot_be_had_everywhere_is_let_go_everywhere(client, admin, partitions):
    everywhere = dict.fromkeys(partitions, EARLIEST)
    first = Subscription(PlanningClient(client), Calls(), "query")
    first.open(everywhere)
    first.close()
    with held(client, partitions[2], "query"):
        second = Subscription(PlanningClient(client), Calls(), "query")
        with pytest.raises(BusyError):
            second.open(everywhere)
        second.close()
    third = Subscription(PlanningClient(client), Calls(), "query")
    third.open(everywhere)
    third.close()
    assert [admin.subscriptions(str(topic)) for topic in partitions] == [["query"]] * 3


def test_a_restart_that_fails_adds_no_subscription(client, impatient, admin, topic, partitions, caplog):
    old = Subscription(PlanningClient(client), Calls(), "old")
    old.open(dict.fromkeys(partitions, EARLIEST))
    old.close()
    end = Offsets("old", {each: MessageId(10**6, 0) for each in partitions})
    with held(client, partitions[1], "old"), caplog.at_level(logging.INFO):
        planner = QueryPlanner(source(impatient, topic))
        fresh = planner.initial()
        assert sorted(admin.subscriptions(str(partitions[0]))) == ["old", fresh.subscription]
        with pytest.raises(BusyError):
            planner.ranges(fresh, end)
        planner.close()
    assert [admin.subscriptions(str(each)) for each in partitions] == [["old"]] * 3
    assert caplog.text.count(f"the subscription of the new query is {fresh.subscription}") == 1


def test_a_fresh_subscription_stays_once_an_offset_may_be_written(impatient, admin, topic, partitions):
    planner = QueryPlanner(source(impatient, topic))
    planner.initial()
    planner.close()
    assert admin.subscriptions(str(partitions[0])) == []
    planner = QueryPlanner(source(impatient, topic))
    planner.latest(planner.initial())
    planner.close()
    (kept,) = admin.subscriptions(str(partitions[0]))
    assert kept.startswith("spark-pulsar-")


def test_a_partitioned_topic_is_deleted_and_made_again_at_once(impatient, admin, peer, topic, caplog):
    def write(value):
        peer.produce(topic, [Record(b"%s %d" % (value.encode(), key), key=str(key)) for key in range(20)])

    def process(end, entries):
        """Plan batches until they have so many entries."""
        while entries > 0:
            planned = planner.latest(end)
            ranges = planner.ranges(end, planned)
            taken = [each.end.entries_since(each.start) for each in ranges]
            entries -= sum(
                each.end.entry + 1 if n is None else n for each, n in zip(ranges, taken, strict=True)
            )
            end = planned
        assert entries == 0
        return end

    admin.create_partitioned_topic(topic, 2)
    write("old")
    planner = QueryPlanner(source(impatient, topic))
    end = process(planner.initial(), 20)
    assert planner.latest(end) == end
    admin.delete_partitioned_topic(topic)
    admin.create_partitioned_topic(topic, 2)
    write("new")
    end = process(end, 20)
    said = (
        "was deleted and created again; all messages of the old topic that the query had seen are processed"
    )
    assert caplog.text.count(said) == 2
    write("more")
    process(end, 20)
    planner.close()


def test_corrupt_entries_do_not_stop_the_planning(cluster, client, impatient, admin, topic):
    """With limits, for which entries are probed, and at an idle partition, whose next entry is waited for."""
    admin.create_topic(topic)
    given = {"service.url": impatient.service_url, "topic": topic, "startingOffsets": "earliest"}
    given |= {"maxMessagesPerTrigger": "3", "maxMessagesPerPartition": "2"}
    planner = QueryPlanner(replace(parse_source(given, Mode.STREAM), client=impatient))
    name, end = TopicName.parse(topic), planner.initial()
    with RawConnection(cluster.service_url) as connection:
        producer = RawProducer(connection, topic)
        for _ in range(3):
            producer.send(b"good")
            producer.send(b"bad", after=_UNPARSABLE)
        last = producer.send(b"bad", after=_UNPARSABLE)
        while end.positions[name] < last:
            planned = planner.latest(end)
            planner.ranges(end, planned)
            end = planned
        wait_until(lambda: planner.latest(end) == end and planner._partitions[name].tail is not None)
        last = producer.send(b"bad", after=_UNPARSABLE)
        wait_until(lambda: planner.latest(end).positions[name] == last)
    planner.close()


@pytest.mark.long
def test_a_query_may_begin_at_a_marker_in_a_later_ledger_than_the_last_message(
    transactional_broker, topic, caplog
):
    url, admin, name = transactional_broker.service_url, transactional_broker.admin, TopicName.parse(topic)
    admin.create_held_topic(topic)
    client = ClientOptions(service_url=url, operation_timeout=30.0)
    options = replace(parse_source({"service.url": url, "topic": topic}, Mode.STREAM), client=client)
    with Client(client) as opened, RawConnection(url) as first, RawConnection(url) as second:
        coordinator, producer = Coordinator(opened), RawProducer(first, topic)
        txn = coordinator.begin([topic])
        last = [producer.send(b"fills the ledger", txn=txn) for _ in range(5)][-1]
        coordinator.commit(txn)
        planner = QueryPlanner(options)
        start = planner.latest(planner.initial())
        assert start.positions[name].ledger > last.ledger

        def check():
            """The planner judges the topic again and finds nothing new."""
            assert planner.latest(start) == start
            state = planner._partitions[name]
            asked = state.asked_at
            wait_until(lambda: planner.latest(start) == start and state.asked_at > asked)
            assert state.last == last

        check()
        # A new query that begins where this one stands is not warned that this is after the last message.
        shown = {"service.url": url, "topic": topic, "startingOffsets": json.dumps(start.to_json())}
        other = QueryPlanner(replace(parse_source(shown, Mode.STREAM), client=client))
        assert other.initial().positions == start.positions
        other.close()
        admin.unload(topic)
        check()
        planner.close()
        planner = QueryPlanner(options)
        check()
        written = RawProducer(second, topic).send(b"new")
        wait_until(lambda: planner.latest(start).positions[name] == written)
        planner.close()
    assert "before the position that this query has processed" not in caplog.text
    assert "is after the end" not in caplog.text


def test_topics_of_a_pattern_come_and_go_at_once(client, impatient, admin, peer, topic):
    """Many are made and deleted again while a query takes them in, and one stays."""
    given = {"service.url": impatient.service_url, "topicsPattern": f"{TopicName.parse(topic).local}.*"}
    given |= {"startingOffsets": "earliest", "maxMessagesPerTrigger": "10"}
    planner = QueryPlanner(replace(parse_source(given, Mode.STREAM), client=impatient))
    end = begin = planner.latest(planner.initial())

    def churn():
        for number in range(30):
            admin.create_topic(f"{topic}-{number}")
            admin.delete_topic(f"{topic}-{number}")
        peer.produce(topic, [Record(b"v") for _ in range(3)])

    with closing(planner):
        with in_background(churn) as churning:
            while not churning.done():
                end = planner.latest(end)
        # The loop may have planned the topic's messages already.
        wait_until(lambda: planner.ranges(begin, planner.latest(end)))
        planned = planner.latest(end)
        assert [each.topic.local for each in planner.ranges(begin, planned)] == [TopicName.parse(topic).local]


@pytest.mark.parametrize(
    ("count", "is_stopped"), [(20, True), (20, False), pytest.param(500, True, marks=pytest.mark.long)]
)
def test_topics_of_a_pattern_that_are_deleted_without_a_loss_are_one_line(
    client, impatient, admin, topic, caplog, count, is_stopped
):
    """Half of them are processed, the others were never used."""
    names = [f"{topic}-{number}" for number in range(count)]
    for name in [topic, *names]:
        admin.create_topic(name)
    with TopicWriters(partial(TopicWriter, client), ProducerOptions()) as writers:
        send_to_all(writers, [TopicName.parse(name) for name in [topic, *names[::2]]])
        writers.finish()
    given = {"service.url": impatient.service_url, "topicsPattern": f"{TopicName.parse(topic).local}.*"}
    options = replace(parse_source({"startingOffsets": "earliest", **given}, Mode.STREAM), client=impatient)
    planner = QueryPlanner(options)
    begin = planner.initial()
    wait_until(lambda: len(planner.ranges(begin, planner.latest(begin))) == 1 + len(names[::2]))
    end = planner.latest(planner.latest(begin))  # all is processed
    caplog.clear()
    if is_stopped:
        planner.close()
    for name in names:
        admin.delete_topic(name)
    if is_stopped:
        planner = QueryPlanner(options)
    try:
        wait_until(lambda: len(planner.latest(end).positions) == 1)
        shown = json.dumps(planner.report())
    finally:
        planner.close()
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert ("may be lost" in line.getMessage()) is is_stopped
    assert all(name in shown for name in names)


def test_one_silence_does_not_hide_the_others(client, peer, partitions, caplog):
    subscription = Subscription(PlanningClient(client), Calls(), "query")
    subscription.open(dict.fromkeys(partitions, EARLIEST))
    silent, *others = partitions
    subscription.partitions[silent].consumer.close()
    with held(client, silent, "query"):
        for topic in partitions:
            peer.produce(str(topic), [Record(b"v")])
        answers = ask(subscription, partitions, 1.0)
        assert answers.keys() == set(others), "it is not waited for"
        assert subscription.silent == {silent}
        wait_until(lambda: answers.update(ask(subscription, [])) or silent in answers)
        assert isinstance(answers[silent], BusyError)
        lasts = {topic: answers[topic].last.whole_entry for topic in others}
        assert [last.entry for last in lasts.values()] == [0, 0]
        subscription.acknowledge(lasts)
    answers = ask(subscription, partitions)
    assert [answers[topic].last.entry for topic in partitions] == [0, 0, 0]
    assert [answers[topic].mark_delete.entry for topic in others] == [0, 0]
    subscription.close()


def test_what_nobody_made_is_not_found(client, impatient, partitions, topic):
    for name in (f"{topic}-partition-99", f"{topic}x-partition-0", f"{topic}x"):
        with pytest.raises(TopicNotFoundError):
            find_partitions(PlanningClient(client), source(impatient, name))


def test_partitions_that_the_broker_removed_are_made_again(
    pulsar_in_spark, peer, admin, topic, partitions, tmp_path
):
    peer.produce(topic, [Record(b"%d" % number, key=f"k{number}") for number in range(50)])
    left = [TopicName.parse(topic).of_partition(number) for number in (0, 2)]
    expected = sorted(record.value for each in left for record in peer.read_all(str(each)))
    admin.delete_topic(str(partitions[1]))
    assert str(partitions[1]) not in admin.topics()
    rows = pulsar_in_spark.read(topic).collect()
    assert sorted(bytes(row.value) for row in rows) == expected
    admin.delete_topic(str(partitions[1]))
    sink = Collector()
    drain(pulsar_in_spark.stream(topic), sink, tmp_path / "checkpoint")
    assert sorted(bytes(row.value) for row in sink.rows) == expected
    peer.produce(str(partitions[1]), [Record(b"new")])
    drain(pulsar_in_spark.stream(topic), sink, tmp_path / "checkpoint")
    assert sink.values[-1] == "new"
    assert len(sink.values) == len(expected) + 1


def columns(value):
    return MessageColumns(value=pa.array([value]), key=pa.nulls(1, pa.binary()))


def send_to_all(writers, names):
    for name in names:
        writers.of(name).send(columns(b"v"))


def test_a_task_has_few_topics_open(client, peer, topic):
    names = [TopicName.parse(f"{topic}-{number}") for number in range(5)]
    with TopicWriters(partial(TopicWriter, client), ProducerOptions(name="fixed"), max_open=2) as writers:
        for turn in range(3):
            for name in names:
                writers.of(name).send(columns(b"%d" % turn))
                assert len([each for each in threading.enumerate() if topic in each.name]) <= 2
        assert writers.of(names[3]) is writers.of(names[3])
        writers.finish()
    for name in names:
        assert [record.value for record in peer.read_all(str(name))] == [b"0", b"1", b"2"]


def test_a_topic_that_cannot_be_flushed_fails_the_task(client, admin, topic):
    names = [TopicName.parse(f"{topic}-{number}") for number in range(2)]
    with TopicWriters(partial(TopicWriter, client), ProducerOptions(), max_open=1) as writers:
        send_to_all(writers, names[:1])  # a topic is made with its first row
        admin.terminate(str(names[0]))
        with pytest.raises(PulsarError):
            send_to_all(writers, names)
