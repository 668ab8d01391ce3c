"""Reads and writes through a proxy that cuts, truncates and stalls, and through unloads."""

import itertools
import threading
import time
from concurrent.futures import wait

import pytest

from integration.broker.waiting import FAR_AWAY, HANG, promptly, wait_until
from integration.chaos.messages import (
    BEGINNING,
    assert_complete,
    columns_of,
    last_message,
    number_of,
    numbered,
    read_topic,
    records_of,
)
from integration.fixtures.own_broker import own_proxied
from integration.helpers.background import in_background
from integration.helpers.clients import DURABLE, open_writer
from integration.helpers.faults import (
    TO_BROKER,
    TO_CLIENT,
    cuts,
    fill,
    numbers_read,
    resume_after,
)
from integration.helpers.proxy import Cut, Direction, Ending
from pulsar_spark.client import (
    AccessMode,
    Client,
    ClientOptions,
    Consumer,
    Deadline,
    ProducerOptions,
    SubscriptionOptions,
    TopicWriter,
)
from pulsar_spark.errors import ConnectError, SendError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import Permits
from tests.ranges import read_range
from tests.writes import send_all

pytestmark = pytest.mark.usefixtures("leaves_nothing")


BROKER = {"backlogQuotaCheckIntervalInSeconds": "1"}

cluster = own_proxied


# ---- cuts


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("batch_size", [0, 10])
def test_reads_exactly_through_cuts(client, peer, admin, proxy, topic, direction, batch_size):
    fill(peer, admin, topic, 400, batch_size)
    before = proxy.connections
    planned = cuts(direction)
    proxy.cut_next(*planned)
    read: list[int] = []
    while proxy.connections - before < len(planned):
        read = numbers_read(client, topic, window_bytes=2000)
        assert read == list(range(400))
    assert read


def test_chunked_messages_are_whole_after_cuts(client, peer, proxy, topic):
    """The C++ client gives no message of which a chunk came twice: none may be lost to it."""
    options = ProducerOptions(
        batching=False, chunking=True, chunk_max_message_size=2000, max_pending_messages=7, send_timeout=HANG
    )
    before = proxy.connections
    planned = [
        cut
        for number in range(8)
        for cut in (Cut(9_000 + 3_500 * number, TO_BROKER), Cut(900 + 97 * number, TO_CLIENT))
    ]
    proxy.cut_next(*planned)
    written = 0
    with TopicWriter(client, TopicName.parse(topic), options) as writer:
        while proxy.connections - before <= len(planned):
            send_all(writer, columns_of(numbered(5, first=written, size=19_000)))
            written += 5
    assert_complete(peer.read_all(topic), written)
    assert_complete(read_topic(client, topic), written)


def test_an_exclusive_producer_comes_back_after_cuts(client, peer, proxy, topic):
    """The broker may still know the lost connection's producer when the new one asks."""
    before = proxy.connections
    planned = [Cut(1000 + 500 * number, list(Direction)[number % 2]) for number in range(8)]
    proxy.cut_next(*planned)
    options = ProducerOptions(batching_max_messages=5, access_mode=AccessMode.EXCLUSIVE, send_timeout=HANG)
    written = 0
    with TopicWriter(client, TopicName.parse(topic), options) as writer:
        while proxy.connections - before <= len(planned):
            send_all(writer, columns_of(numbered(25, first=written, size=40)))
            written += 25
    assert_complete(peer.read_all(topic), written)


def test_waits_when_the_broker_closes_it_over_a_full_backlog(client, peer, admin, namespace, own_topic):
    admin.create_topic(own_topic)
    admin.create_subscription(own_topic, "slow")
    with open_writer(client, own_topic, batching_max_messages=5) as writer:
        send_all(writer, columns_of(numbered(50, size=1000)))
        admin.set_backlog_quota(namespace, limit_bytes=1000, policy="producer_request_hold")
        wait_until(lambda: not admin.stats(own_topic)["publishers"])
        writer.send(columns_of(numbered(5, first=50)))
        admin.delete_subscription(own_topic, "slow")
        writer.flush()
    assert_complete(peer.read_all(own_topic), 55)


# ---- stalls


@pytest.mark.parametrize("directions", [(TO_BROKER,), (TO_CLIENT,), ()])
def test_keep_alive_notices_a_stall(peer, admin, proxy, topic, directions):
    """The stalled connection is given up after two intervals; a new one goes on when it flows again."""
    fill(peer, admin, topic, 50, 0)
    name = TopicName.parse(topic)
    options = ClientOptions(
        service_url=proxy.service_url,
        operation_timeout=HANG,
        connection_timeout=2.0,
        keep_alive_interval=0.25,
    )
    with Client(options) as client:
        groups = read_range(
            client, name, BEGINNING, last_message(client, name), poll_timeout=HANG, window_bytes=100
        )
        read = [number_of(record) for record in records_of(next(groups))]
        connections = proxy.connections
        proxy.stall(*directions)
        with in_background(lambda: resume_after(proxy, connections)):
            read += [number_of(record) for group in groups for record in records_of(group)]
    assert read == list(range(50))
    assert proxy.connections > connections


def test_an_acknowledgement_survives_a_stall_that_the_connection_survives(client, peer, admin, proxy, topic):
    """The consumer is taken for lost after 5 s, but the broker still has it: it must not stand in the way."""
    fill(peer, admin, topic, 10, 0)
    name = TopicName.parse(topic)
    with Consumer(client, name, DURABLE) as consumer:
        last = consumer.last_message_id().last
        proxy.stall(TO_CLIENT)
        timer = threading.Timer(6.0, proxy.resume)
        timer.start()
        consumer.ack_cumulative(last)
        timer.join()
        assert consumer.last_message_id().mark_delete == last


def test_writes_completely_through_a_stall(peer, proxy, topic):
    options = ClientOptions(service_url=proxy.service_url, connection_timeout=2.0, keep_alive_interval=0.25)
    with Client(options) as client, open_writer(client, topic, batching_max_messages=10) as writer:
        send_all(writer, columns_of(numbered(100)))
        connections = proxy.connections
        proxy.stall()
        writer.send(columns_of(numbered(100, first=100)))
        with in_background(lambda: resume_after(proxy, connections)):
            writer.flush()
    assert_complete(peer.read_all(topic), 200)


def test_a_connection_that_nobody_uses_is_closed_and_opened_again(peer, proxy, topic):
    options = ClientOptions(service_url=proxy.service_url, connection_max_idle=0.5)
    with Client(options) as client:
        for first in (0, 100):
            with open_writer(client, topic) as writer:
                send_all(writer, columns_of(numbered(100, first=first)))
                time.sleep(1.0)  # one that is used stays open
                assert proxy.open_connections
                send_all(writer, columns_of(numbered(0)))
            wait_until(lambda: proxy.open_connections == 0)
    assert_complete(peer.read_all(topic), 200)


# ---- the pending window


@pytest.mark.parametrize("limit", [{"max_pending_messages": 50}, {"memory_limit": 50_000}])
def test_no_more_is_sent_than_the_window_holds(client, peer, proxy, topic, limit):
    """Receipts are held back: the broker gets the window's messages, and the sender waits."""
    most, size = (50, 80) if "max_pending_messages" in limit else (50, 980)
    with open_writer(client, topic, batching=False, **limit) as writer:
        writer.send(columns_of(numbered(1)))  # the producer opens with the first row
        writer.flush()
        proxy.stall(TO_CLIENT)
        with in_background(lambda: writer.send(columns_of(numbered(299, first=1, size=size)))) as sender:
            try:
                wait_until(lambda: len(peer.read_all(topic)) >= 1 + most - 5)
                assert not wait([sender], 0.5).done
                assert most - 5 <= len(peer.read_all(topic)) - 1 <= most
            finally:
                proxy.resume()
        writer.flush()
    assert [number_of(record) for record in peer.read_all(topic)] == list(range(300))


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("batching", [True, False])
def test_the_send_timeout_is_an_error(client, proxy, topic, direction, batching):
    """It says how many messages are open, and every later call says so too: nothing is lost in silence."""
    with open_writer(client, topic, batching=batching, send_timeout=3.0) as writer:
        send_all(writer, columns_of(numbered(10)))
        proxy.stall(direction)
        writer.send(columns_of(numbered(7, first=10)))
        began = time.monotonic()
        with pytest.raises(
            SendError,
            match=r"\[PULSAR_SEND\] 7 messages .* within 3 s: no acknowledgement .*; topic .*sendTimeoutMs",
        ):
            writer.flush()
        assert time.monotonic() - began > 1.0
        proxy.resume()
        with pytest.raises(SendError):
            send_all(writer, columns_of(numbered(1)))
        with pytest.raises(SendError):
            send_all(writer, columns_of(numbered(1)))


# ---- unloads


@pytest.mark.parametrize("what", ["topic", "namespace"])
def test_goes_on_through_unloads(client, peer, admin, topic, what):
    """While both reading and writing are under way."""
    admin.create_held_topic(topic)
    unloads = 5
    name = TopicName.parse(topic)
    enough = threading.Event()

    def write():
        with open_writer(client, topic, batching_max_messages=10) as writer:
            for count in itertools.count(20, 20):
                send_all(writer, columns_of(numbered(20, first=count - 20)))
                if enough.is_set():
                    break
        return count

    options = SubscriptionOptions(name="reader", durable=False, start=BEGINNING)
    entries = []
    with Consumer(client, name, options, Permits(1000)) as consumer:
        with in_background(write) as writing:
            try:
                for _ in range(unloads):
                    entries += consumer.receive(Deadline(HANG))
                    seen = entries[-1].ledger
                    if what == "topic":
                        admin.unload(topic)
                    else:
                        admin.unload_namespace("public/default")
                    while entries[-1].ledger == seen:
                        entries += consumer.receive(Deadline(HANG))
            finally:
                enough.set()
        end = consumer.last_message_id().last.whole_entry
        while MessageId(entries[-1].ledger, entries[-1].entry) < end:
            entries += consumer.receive(Deadline(HANG))
    assert_complete(records_of(entries), writing.result())
    places = [(entry.ledger, entry.entry) for entry in entries]
    assert places == sorted(set(places))
    assert len({ledger for ledger, _ in places}) > unloads
    assert records_of(entries) == peer.read_all(topic)


def test_a_cut_during_each_operation_is_mended(client, peer, admin, proxy, topic):
    fill(peer, admin, topic, 10, 0)
    name = TopicName.parse(topic)
    with Consumer(client, name, DURABLE, Permits(1 << 20)) as consumer:
        entries = list(consumer.receive(Deadline(HANG)))
        while len(entries) < 10:
            entries += consumer.receive(Deadline(HANG))
        ids = [MessageId(entry.ledger, entry.entry) for entry in entries]
        for ending in Ending:
            proxy.cut_all(ending)
            assert consumer.last_message_id().last == ids[-1]
            proxy.cut_all(ending)
            consumer.ack_cumulative(ids[2])
            assert consumer.last_message_id().mark_delete == ids[2]
            proxy.cut_all(ending)
            consumer.seek(ids[0])
            proxy.cut_all(ending)
            assert client.partitions(name) == [name]
            again = list(consumer.receive(Deadline(HANG)))
            while len(again) < 10:
                again += consumer.receive(Deadline(HANG))
            assert again == entries
        proxy.cut_all()
        consumer.unsubscribe()
    assert admin.subscriptions(topic) == ["hold"]


def test_a_reader_is_closed_within_its_time_when_nothing_answers(peer, admin, proxy, topic):
    fill(peer, admin, topic, 10, 0)
    options = ClientOptions(
        service_url=proxy.service_url,
        operation_timeout=4.0,
        connection_timeout=1.0,
        keep_alive_interval=FAR_AWAY,
    )
    with Client(options) as client:
        consumer = Consumer(
            client, TopicName.parse(topic), SubscriptionOptions(name="reader", durable=False, start=BEGINNING)
        )
        proxy.stall()
        with promptly(20.0):  # it usually takes 5 s: the time-outs above
            consumer.close()
        proxy.cut_all()
        with pytest.raises(ConnectError):
            client.partitions(TopicName.parse(topic))
        proxy.resume()
    wait_until(lambda: admin.subscriptions(topic) == ["hold"])
    assert [number_of(record) for record in peer.read_all(topic)] == list(range(10))
