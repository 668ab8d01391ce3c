"""The broker is stopped or killed with -9 and started again under a reader and a writer; readers sit idle."""

import threading
import time

import pytest

from integration.broker import StandaloneBroker
from integration.broker.waiting import HANG, wait_until
from integration.chaos.messages import (
    BEGINNING,
    assert_complete,
    columns_of,
    numbered,
    read_topic,
    records_of,
)
from integration.helpers.background import in_background
from integration.helpers.peer import Peer
from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    Deadline,
    ProducerOptions,
    SubscriptionOptions,
    TopicWriter,
)
from pulsar_spark.errors import DeadlineError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import Permits

COUNT = 3000
STEP = 50


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.long), "kill"])
def test_a_restart_under_a_reader_and_a_writer(broker_factory, topic, how):
    """What was acknowledged is there, the reader gives each entry once and in order."""
    broker: StandaloneBroker = broker_factory()
    broker.admin.create_held_topic(topic)
    name = TopicName.parse(topic)
    options = ClientOptions(service_url=broker.service_url, operation_timeout=HANG)
    reader = SubscriptionOptions(name="reader", durable=False, start=BEGINNING)
    half, restarted = threading.Event(), threading.Event()
    with Client(options) as client, Consumer(client, name, reader, Permits(1 << 16)) as consumer:

        def write():
            """The second half is under way while the broker restarts."""
            options = ProducerOptions(batching_max_messages=10, send_timeout=HANG)
            with TopicWriter(client, name, options) as writer:
                for first in range(0, COUNT - STEP, STEP):
                    writer.send(columns_of(numbered(STEP, first=first)))
                    if first == COUNT // 2:
                        writer.flush()
                        half.set()
                restarted.wait(HANG)
                writer.send(columns_of(numbered(STEP, first=COUNT - STEP)))
                writer.flush()

        with in_background(write):
            assert half.wait(HANG)
            entries = list(consumer.receive(Deadline(HANG)))
            broker.stop() if how == "stop" else broker.kill()
            broker.start()
            restarted.set()
        end = consumer.last_message_id().last.whole_entry
        while MessageId(entries[-1].ledger, entries[-1].entry) < end:
            entries += consumer.receive(Deadline(HANG))
    assert_complete(records_of(entries), COUNT)
    places = [(entry.ledger, entry.entry) for entry in entries]
    assert places == sorted(set(places))
    with Peer(broker.service_url) as peer:
        assert records_of(entries) == peer.read_all(topic)


@pytest.mark.long
def test_a_kill_between_the_chunks_of_a_message(broker_factory, topic):
    """Each chunk waits until the one before is stored, so a part of a message is there when it dies."""
    broker: StandaloneBroker = broker_factory()
    broker.admin.create_held_topic(topic)
    name, chunks = TopicName.parse(topic), 1000
    producer = ProducerOptions(
        batching=False, chunking=True, chunk_max_message_size=2000, max_pending_messages=1, send_timeout=HANG
    )
    messages = numbered(2, size=2000 * chunks)
    options = ClientOptions(service_url=broker.service_url, operation_timeout=HANG)
    with Client(options) as client, TopicWriter(client, name, producer) as writer:

        def write():
            writer.send(columns_of(messages))
            writer.flush()

        def stored():
            return int(broker.admin.stats(topic)["msgInCounter"])

        with in_background(write) as writing:
            wait_until(lambda: stored() > chunks // 4)
            broker.kill()
            assert not writing.done()
            broker.start()
        with Peer(broker.service_url) as peer:
            assert_complete(peer.read_all(topic), len(messages))
        assert_complete(read_topic(client, topic), len(messages))


@pytest.mark.long
def test_an_idle_reader_keeps_its_connection(broker_factory, topic):
    """Its caller does nothing for longer than both sides' patience, as Spark may; then messages come."""
    broker: StandaloneBroker = broker_factory({"keepAliveIntervalSeconds": "3"})
    broker.admin.create_topic(topic)
    options = ClientOptions(service_url=broker.service_url, keep_alive_interval=3.0)
    reader = SubscriptionOptions(name="reader", durable=False, start=BEGINNING)
    with Client(options) as client, Peer(broker.service_url) as peer:
        name = TopicName.parse(topic)
        with Consumer(client, name, reader, Permits(1 << 16)) as consumer:
            with pytest.raises(DeadlineError):
                consumer.receive(Deadline(0.1))
            (before,) = broker.admin.stats(topic)["subscriptions"]["reader"]["consumers"]
            time.sleep(7.5)  # more than twice both sides' keep-alive: the time itself is what is tested
            (after,) = broker.admin.stats(topic)["subscriptions"]["reader"]["consumers"]
            assert after["connectedSince"] == before["connectedSince"]
            assert after["address"] == before["address"]
            peer.produce(topic, numbered(10))
            entries = list(consumer.receive(Deadline(HANG)))
            while len(entries) < 10:
                entries += consumer.receive(Deadline(HANG))
            assert records_of(entries) == peer.read_all(topic)
