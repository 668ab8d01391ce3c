"""Streaming reads: nothing lost and nothing twice over restarts, and the broker told how far they are."""

import json
import time

import pytest
from pyspark.errors import StreamingQueryException

from integration.broker import Admin
from integration.broker.waiting import wait_until
from integration.fixtures.spark import Collector, PulsarInSpark, drain, finish, start
from integration.helpers.peer import Peer, Record


def records(first, count):
    return [Record(b"%d" % number, key=f"k{number % 7}") for number in range(first, first + count)]


def texts(first, count):
    return [str(number) for number in range(first, first + count)]


def last_offset(checkpoint):
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return json.loads(newest.read_text().splitlines()[-1])


def test_restarts_between_batches_are_exact(pulsar_in_spark, peer, admin, topic, checkpoint):
    sink = Collector()
    for first in range(0, 300, 100):
        peer.produce(topic, records(first, 100), batch_size=30)
        drain(pulsar_in_spark.stream(topic), sink, checkpoint)
        assert sink.values == texts(0, first + 100)
    (subscription,) = admin.durable_subscriptions(topic)
    assert subscription == last_offset(checkpoint)["subscription"]
    assert subscription.startswith("spark-pulsar-")
    assert admin.backlog(topic, subscription) == 0


def test_an_unfinished_batch_is_read_again_just_as_it_was(pulsar_in_spark, peer, admin, topic, checkpoint):
    sink = Collector(fail_at={0})
    peer.produce(topic, records(0, 100), batch_size=30)
    with pytest.raises(StreamingQueryException, match="InjectedError"):
        drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    (subscription,) = admin.durable_subscriptions(topic)
    assert admin.backlog(topic, subscription) > 0
    peer.produce(topic, records(100, 50))
    sink.fail_at.clear()
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    first, again = sink.batches[0]
    assert first == again
    assert sink.values == texts(0, 150)
    assert admin.durable_subscriptions(topic) == [subscription]
    assert admin.backlog(topic, subscription) == 0


def test_a_checkpoint_of_the_first_version_goes_on(pulsar_in_spark, peer, admin, topic, checkpoint):
    """Its offsets have no witness; the last micro-batch is unfinished when the new version starts."""
    sink = Collector(fail_at={1})
    peer.produce(topic, records(0, 100), batch_size=30)
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    peer.produce(topic, records(100, 50), batch_size=30)
    with pytest.raises(StreamingQueryException, match="InjectedError"):
        drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        *lines, text = file.read_text().splitlines()
        offset = json.loads(text)
        del offset["witness"]
        file.write_text("\n".join([*lines, json.dumps(offset)]))
        # Hadoop's file system would refuse the changed file.
        file.with_name(f".{file.name}.crc").unlink()
    peer.produce(topic, records(150, 50))
    sink.fail_at.clear()
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    first, again = sink.batches[1]
    assert first == again
    assert sink.values == texts(0, 200)
    assert "witness" in last_offset(checkpoint)
    (subscription,) = admin.durable_subscriptions(topic)
    assert admin.backlog(topic, subscription) == 0


def test_a_latest_start_is_kept_though_no_batch_with_rows_ever_finished(
    pulsar_in_spark, peer, topic, checkpoint
):
    sink = Collector(fail_at=set(range(1, 100)))
    peer.produce(topic, records(0, 10))
    query = start(pulsar_in_spark.stream(topic, startingOffsets="latest"), sink, checkpoint)
    wait_until(lambda: 0 in sink.batches)
    peer.produce(topic, records(10, 10))
    with pytest.raises(StreamingQueryException, match="InjectedError"):
        finish(query)
    peer.produce(topic, records(20, 10))
    sink.fail_at.clear()
    drain(pulsar_in_spark.stream(topic, startingOffsets="latest"), sink, checkpoint)
    assert sink.values == texts(10, 20)


@pytest.mark.parametrize(
    ("starting", "again", "expected"),
    [
        ("earliest", "earliest", texts(0, 20)),
        ("earliest", "latest", texts(0, 20)),
        ("latest", "latest", texts(10, 10)),
    ],
)
def test_an_unfinished_batch_0_goes_on_with_its_own_subscription(
    pulsar_in_spark, peer, admin, topic, checkpoint, starting, again, expected
):
    sink = Collector(fail_at={0})
    peer.produce(topic, records(0, 10))
    with pytest.raises(StreamingQueryException, match="InjectedError"):
        drain(pulsar_in_spark.stream(topic, startingOffsets=starting), sink, checkpoint)
    (subscription,) = admin.durable_subscriptions(topic)
    peer.produce(topic, records(10, 10))
    sink.fail_at.clear()
    drain(pulsar_in_spark.stream(topic, startingOffsets=again), sink, checkpoint)
    first, second = sink.batches[0]
    assert first == second
    assert sink.values == expected
    assert admin.durable_subscriptions(topic) == [subscription]
    assert admin.backlog(topic, subscription) == 0


@pytest.mark.parametrize(
    "trigger", [{}, {"processingTime": "500 milliseconds"}], ids=["default", "processing-time"]
)
def test_rows_come_soon_and_the_backlog_is_nothing_soon_after(
    pulsar_in_spark, peer, admin, topic, checkpoint, trigger, listener
):
    admin.create_topic(topic)
    sink = Collector()
    query = start(pulsar_in_spark.stream(topic), sink, checkpoint, **trigger)
    try:
        for first in range(0, 30, 10):
            peer.produce(topic, records(first, 10), batch_size=10)
            wait_until(lambda first=first: sink.values == texts(0, first + 10))
            (subscription,) = admin.durable_subscriptions(topic)
            wait_until(lambda name=subscription: admin.backlog(topic, name) == 0)
        shown = json.loads(query.lastProgress["sources"][0]["latestOffset"])
        assert list(shown["topics"]) == [topic]
        labels = f'query="{query.id}",topic="{topic}",partition="-1"'
        for line in (
            f'pulsar_spark_read_rows_total{{query="{query.id}"}} 30\n',
            f"pulsar_spark_backlog_entries{{{labels}}} 0\n",
            f"pulsar_spark_backlog_messages_estimate{{{labels}}} 0\n",
        ):
            wait_until(lambda line=line: line in listener.prometheus_text())
    finally:
        query.stop()
    assert query.exception() is None
    wait_until(lambda: listener.prometheus_text() == "")
    wait_until(lambda: not admin.stats(topic)["subscriptions"][subscription]["consumers"])


def test_partitions_and_several_topics(pulsar_in_spark, peer, admin, topic, checkpoint):
    admin.create_partitioned_topic(topic, 3)
    other = f"{topic}-other"
    peer.produce(topic, records(0, 200), batch_size=20)
    peer.produce(other, records(200, 10))
    sink = Collector()
    source = pulsar_in_spark.spark.readStream.format("pulsar").option(
        "service.url", pulsar_in_spark.service_url
    )
    both = source.option("topics", f"{topic}, {other}").option("startingOffsets", "earliest")
    drain(both.load(), sink, checkpoint)
    assert sorted(map(int, sink.values)) == list(range(210))
    assert list(last_offset(checkpoint)["topics"]) == [topic, other]
    assert list(last_offset(checkpoint)["topics"][topic]) == ["0", "1", "2"]
    for number in range(3):
        partition = f"{topic}-partition-{number}"
        (subscription,) = admin.durable_subscriptions(partition)
        assert admin.backlog(partition, subscription) == 0


def test_partitions_that_are_new_at_a_restart_begin_at_earliest(
    pulsar_in_spark, peer, admin, topic, checkpoint
):
    admin.create_partitioned_topic(topic, 1)
    sink = Collector()
    peer.produce(topic, records(0, 20))
    drain(pulsar_in_spark.stream(topic, startingOffsets="latest"), sink, checkpoint)
    admin.grow_partitioned_topic(topic, 3)
    peer.produce(topic, records(20, 50))
    sink.fail_at = {1}
    with pytest.raises(StreamingQueryException):
        drain(pulsar_in_spark.stream(topic, startingOffsets="latest"), sink, checkpoint)
    sink.fail_at = set()
    peer.produce(topic, records(70, 50))
    drain(pulsar_in_spark.stream(topic, startingOffsets="latest"), sink, checkpoint)
    assert sorted(map(int, sink.values)) == list(range(20, 120))
    first, again = sink.batches[1]
    assert sorted(first) == sorted(again)


def test_available_now_ends_though_messages_keep_coming(pulsar_in_spark, peer, topic, checkpoint):
    peer.produce(topic, records(0, 10))
    sink = Collector()

    def and_more(batch, number):
        sink(batch, number)
        peer.produce(topic, records(1000, 10))

    drain(pulsar_in_spark.stream(topic), and_more, checkpoint)
    assert sink.values == texts(0, 10)


def test_an_empty_topic(pulsar_in_spark, peer, admin, topic, checkpoint):
    admin.create_topic(topic)
    sink = Collector()
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    peer.produce(topic, records(0, 3))
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    assert sink.values == texts(0, 3)


def test_a_stopped_query_keeps_its_data_at_the_broker_without_retention(
    spark, broker_factory, topic, checkpoint
):
    broker = broker_factory(
        {"managedLedgerMaxEntriesPerLedger": "5", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
    )
    admin, pulsar_in_spark = Admin(broker.admin_url), PulsarInSpark(spark, broker.service_url)
    sink = Collector()
    with Peer(broker.service_url) as peer:
        peer.produce(topic, records(0, 20))
        drain(pulsar_in_spark.stream(topic, startingOffsets="latest"), sink, checkpoint)
        peer.produce(topic, records(20, 100))
        admin.trim(topic)
        drain(pulsar_in_spark.stream(topic), sink, checkpoint)
        assert sink.values == texts(20, 100)
        # What is processed is not held: the ledgers go.
        peer.produce(topic, records(120, 6))
        wait_until(lambda: trimmed(admin, topic) < 10)


def trimmed(admin, topic):
    admin.trim(topic)
    time.sleep(0.2)
    return len(admin.internal_stats(topic)["ledgers"])


def test_a_query_outlives_its_broker(spark, broker_factory, topic, checkpoint):
    broker = broker_factory()
    sink = Collector()
    with Peer(broker.service_url) as peer:
        peer.produce(topic, records(0, 100), batch_size=10)
    query = start(PulsarInSpark(spark, broker.service_url).stream(topic), sink, checkpoint)
    try:
        for first in (100, 200):
            wait_until(lambda count=first: sink.values == texts(0, count))
            broker.kill()
            time.sleep(2)
            broker.start()
            with Peer(broker.service_url) as peer:
                peer.produce(topic, records(first, 100), batch_size=10)
        wait_until(lambda: sink.values == texts(0, 300))
        (subscription,) = broker.admin.durable_subscriptions(topic)
        wait_until(lambda: broker.admin.backlog(topic, subscription) == 0)
        broker.admin.unload(topic)
        with Peer(broker.service_url) as peer:
            peer.produce(topic, records(300, 100), batch_size=10)
        wait_until(lambda: sink.values == texts(0, 400))
    finally:
        query.stop()
    assert query.exception() is None
