"""Streams and batch reads of topics of transactions, of chunked messages, and of compacted topics."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.broker.waiting import wait_until
from integration.fixtures.spark import Collector, await_rows, drain, start
from integration.fixtures.transactions import transactional_cluster
from integration.helpers.peer import Peer, Record
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.transactions import Coordinator

cluster = transactional_cluster


@pytest.fixture
def connection(cluster):
    with RawConnection(cluster.service_url) as opened:
        yield opened


# ---- transactions


def test_only_what_is_committed(pulsar_in_spark, client, connection, admin, topic, checkpoint):
    admin.create_topic(topic)
    coordinator, producer = Coordinator(client), RawProducer(connection, topic)
    sink = Collector()
    query = start(pulsar_in_spark.stream(topic), sink, checkpoint)
    try:
        await_rows(query, lambda: admin.durable_subscriptions(topic))
        committed = []
        for number in range(6):
            txn = coordinator.begin([topic])
            value = str(number)
            producer.send(value.encode(), txn=txn)
            if number % 2:
                coordinator.abort(txn)
            else:
                coordinator.commit(txn)
                committed.append(value)
        ended = time.monotonic()
        await_rows(query, lambda: sink.values == committed)
        print(f"the last rows came {time.monotonic() - ended:.1f} s after the last transaction ended")
        txn = coordinator.begin([topic])
        producer.send(b"open", txn=txn)
        producer.send(b"after")
        assert sink.values == committed
        coordinator.commit(txn)
        await_rows(query, lambda: sink.values == [*committed, "open", "after"])
        txn = coordinator.begin([topic])
        producer.send(b"aborted", txn=txn)
        coordinator.abort(txn)
    finally:
        query.stop()
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    producer.send(b"last")
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    assert sink.values == [*committed, "open", "after", "last"]
    (subscription,) = admin.durable_subscriptions(topic)
    wait_until(lambda: admin.backlog(topic, subscription) == 0)


# ---- chunked messages


def value(name, size):
    return name.encode() + b" " + random.Random(name).randbytes(size)


def cut_off(connection, topic, uuid):
    """Leave half a chunked message."""
    producer = RawProducer(connection, topic)
    for number in range(2):
        producer.send(
            b"x" * 8000, uuid=uuid, chunk_id=number, num_chunks_from_msg=4, total_chunk_msg_size=32_000
        )


def test_chunked_messages_of_several_producers(pulsar_in_spark, cluster, admin, topic, checkpoint):
    """Batches of a few entries end anywhere, while what is acknowledged is trimmed."""
    admin.create_topic(topic)
    wanted = [[value(f"{producer}-{number}", 30_000) for number in range(4)] for producer in range(3)]

    def write(number):
        with RawConnection(cluster.service_url) as connection, Peer(cluster.service_url) as peer:
            for each in wanted[number]:
                cut_off(connection, topic, f"{number}-{each[:3]!r}")
                peer.produce(topic, [Record(each), Record(each[:3])], chunking_enabled=True)

    sink = Collector()
    rows = pulsar_in_spark.stream(topic, maxMessagesPerTrigger="3")
    query = start(rows, sink, checkpoint)
    try:
        await_rows(query, lambda: admin.durable_subscriptions(topic))
        with ThreadPoolExecutor() as threads:
            list(threads.map(write, range(3)))
        await_rows(query, lambda: len(sink.rows) >= 24)
    finally:
        query.stop()
    assert query.exception() is None
    everything = sorted(each for some in wanted for whole in some for each in (whole, whole[:3]))
    assert sorted(bytes(row.value) for row in sink.rows) == everything


@pytest.mark.parametrize("chunks_before", [2, pytest.param(5, marks=pytest.mark.long)])
def test_a_batch_that_ends_inside_a_chunked_message(
    pulsar_in_spark, connection, admin, topic, checkpoint, chunks_before
):
    """The chunks before stay at the broker, also over restarts, though nothing else would hold them."""
    admin.create_topic(topic)
    producer, sink = RawProducer(connection, topic), Collector()

    def send(numbers):
        for number in numbers:
            producer.send(
                b"%d" % number, uuid="u", chunk_id=number, num_chunks_from_msg=8, total_chunk_msg_size=8
            )
            producer.send(b"plain")

    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    send(range(chunks_before))
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    for _ in range(8):
        producer.send(b"plain")
    admin.trim(topic)
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    admin.trim(topic)
    send(range(chunks_before, 8))
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    assert sink.values == ["plain"] * (chunks_before + 8 + 7 - chunks_before) + ["01234567", "plain"]


# ---- compaction


def test_a_compacted_topic(pulsar_in_spark, peer, admin, topic, checkpoint):
    """Superseded values are gone, the end among them, and keys whose last value is none."""
    admin.create_held_topic(topic)
    records = [Record(b"%d" % number, key=f"k{number % 4}") for number in range(12)]
    peer.produce(
        topic, [*records, Record(None, key="k3"), Record(b"end", key="gone"), Record(None, key="gone")]
    )
    admin.compact(topic)
    wait_until(lambda: admin.compaction_status(topic) == "SUCCESS")
    rows = pulsar_in_spark.read(topic, readCompacted="true").collect()
    assert sorted(bytes(row.value).decode() for row in rows) == ["10", "8", "9"]
    sink = Collector()
    drain(pulsar_in_spark.stream(topic, readCompacted="true"), sink, checkpoint)
    assert sorted(sink.values) == ["10", "8", "9"]
    peer.produce(topic, [Record(b"new", key="k1"), Record(b"other", key="k5")])
    drain(pulsar_in_spark.stream(topic, readCompacted="true"), sink, checkpoint)
    assert sorted(sink.values) == ["10", "8", "9", "new", "other"]
