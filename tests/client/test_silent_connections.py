"""Connections that fall silent and stay open, as behind a router that forgets them: no request waits long."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from pulsar_spark.client import ProducerOptions, ScalableTopicWatch, SegmentWatch, TopicWatch, Transactions
from pulsar_spark.client.writing import producer_link, record_topic
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.row_schema import register_schema
from pulsar_spark.errors import DeadlineError, TransactionError
from pulsar_spark.ids import TopicPattern
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire.wire_values import to_wire_schema
from tests.client.clients import DURABLE, TOPIC, client_of, hurry, numbered, open_consumer, singles
from tests.client.test_segment_watch import TOPIC as SCALABLE
from tests.client.test_segment_watch import WHOLE
from tests.client.writing.producers import open_producer, send
from tests.fake_broker import HANG, FakeBroker
from tests.fake_clients import Type
from tests.loops import for_each

# Seconds of the connection timeout; a silent connection is closed just before they are over.
TIMEOUT = 0.6

A = Schema(SchemaType.STRING, b"", {}, "topic")


@contextmanager
def prepared():
    with FakeBroker(has_transactions=True, has_segments=True) as broker:
        broker.layouts[str(SCALABLE)] = WHOLE
        broker.publish(TOPIC, *singles(numbered(3)))
        broker.schemas.register(str(TOPIC), to_wire_schema(A))
        yield broker


@pytest.fixture
def broker():
    with prepared() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with client_of(broker, connection_timeout=TIMEOUT) as client:
        yield client


def subscribed(call):
    def ask(client):
        with open_consumer(client, DURABLE) as consumer:
            return call(consumer)

    return ask


def acknowledge(consumer):
    last = consumer.last_message_id().last
    consumer.ack_cumulative(last)
    return consumer.last_message_id().mark_delete == last


def end(client):
    transactions = Transactions(client)
    transaction = transactions.begin(60.0)
    transactions.add(transaction, [TOPIC])
    return transactions.commit(transaction)


def commit(client):
    """Commit a transaction; whether that was done is unknown if the broker has lost only the answer."""
    try:
        return end(client)
    except TransactionError as error:
        return "unknown whether" in error.what


# What makes a request of each kind, directly or on its way.
ASK = {
    Type.PARTITIONED_METADATA: lambda client: client.partitions(TOPIC) == [TOPIC],
    Type.LOOKUP: lambda client: open_consumer(client).close(),
    Type.GET_TOPICS_OF_NAMESPACE: lambda client: client.topics_of_namespace("public", "default") == [TOPIC],
    Type.WATCH_TOPIC_LIST: lambda client: TopicWatch(client, TopicPattern.parse("a.*")).close(),
    Type.SCALABLE_TOPIC_LOOKUP: lambda client: SegmentWatch(client, SCALABLE).close(),
    Type.WATCH_SCALABLE_TOPICS: lambda client: ScalableTopicWatch(
        client, TopicPattern.parse("topic://public/default/a.*")
    ).close(),
    Type.GET_SCHEMA: lambda client: client.schemas.latest(TOPIC) == (0, A),
    Type.GET_OR_CREATE_SCHEMA: lambda client: register_schema(client, TOPIC, A) == 0,
    Type.SUBSCRIBE: lambda client: open_consumer(client).close(),
    Type.GET_LAST_MESSAGE_ID: subscribed(lambda consumer: consumer.last_message_id().last.entry == 2),
    Type.CONSUMER_STATS: subscribed(lambda consumer: consumer.backlog() == 3),
    Type.ACK: subscribed(acknowledge),
    Type.SEEK: subscribed(lambda consumer: consumer.seek(consumer.last_message_id().last)),
    Type.UNSUBSCRIBE: subscribed(lambda consumer: consumer.unsubscribe()),
    Type.PRODUCER: lambda client: Producer(client, TOPIC, ProducerOptions(name="p"), 1).close(),
    Type.TC_CLIENT_CONNECT_REQUEST: end,
    Type.NEW_TXN: end,
    Type.ADD_PARTITION_TO_TXN: end,
    Type.END_TXN: commit,
}
# What is answered by nobody, or by whom nobody waits for long.
OTHERS = {
    *(Type.CONNECT, Type.AUTH_RESPONSE, Type.PING, Type.PONG, Type.FLOW),
    *(Type.CLOSE_CONSUMER, Type.CLOSE_PRODUCER, Type.WATCH_TOPIC_LIST_CLOSE, Type.SCALABLE_TOPIC_CLOSE),
    Type.WATCH_SCALABLE_TOPICS_CLOSE,
}


def test_there_is_a_case_for_each_kind_of_request(broker, client):
    client.check()
    (connection,) = broker.open_connections
    assert connection._handlers.keys() - OTHERS == ASK.keys()


@pytest.mark.parametrize("is_done", [False, True], ids=["lost", "answer lost"])
def test_each_kind_of_request_is_asked_again_on_a_new_connection(is_done):
    """Several kinds at a time, each with a broker of its own, because all that takes time is to wait."""

    def ask_again(kind):
        kind = Type.Type.Value(kind)

        with prepared() as broker, client_of(broker, connection_timeout=TIMEOUT) as client:

            def fall_silent(connection, frame):
                if is_done:
                    connection.is_mute = True
                    connection.handle(frame)
                broker.fall_silent()

            broker.script(kind, [fall_silent])
            began = time.monotonic()
            assert ASK[kind](client) in (True, None)
            assert time.monotonic() - began < HANG / 2, "it was found silent, and not waited for"
            assert len(broker.seen(kind)) >= 2
            assert len(broker.open_connections) >= 2

    with ThreadPoolExecutor(7) as pool:
        list(pool.map(lambda kind: for_each("kind", [Type.Type.Name(kind)])(ask_again)(), ASK))


def test_what_silences_one_connection_may_have_silenced_others(broker, client):
    """The second one is known to be silent as soon as the first one is."""
    client.check()
    open_producer(client).close()
    broker.fall_silent()
    began = time.monotonic()
    assert client.partitions(TOPIC) == [TOPIC]
    open_producer(client).close()
    assert time.monotonic() - began < 1.6 * TIMEOUT, "one silence after the other takes longer"


def test_a_consumer_and_a_producer_are_closed_soon(broker, client):
    consumer, producer = open_consumer(client), open_producer(client)
    broker.fall_silent()
    began = time.monotonic()
    consumer.close()
    producer.close()
    assert time.monotonic() - began < 4 * TIMEOUT


def test_silence_with_entries_pending_is_borne(broker, client, monkeypatch):
    """A broker that throttles publishing reads nothing for a while, and has lost nothing."""
    monkeypatch.setattr(producer_link, "CLOSE_TIMEOUT", 0.1)
    producer = open_producer(client)
    send(producer, numbered(1))
    producer.flush()
    with broker.changed:
        (registered,) = broker.open_producers
        registered.connection.is_deaf = True
    send(producer, numbered(1))
    hurry(client, 4 * TIMEOUT)
    with pytest.raises(DeadlineError, match="did not answer PRODUCER"):
        open_producer(client)
    assert len(broker.seen(Type.SEND)) == 1, "it was not sent again on another connection"
    producer.close()


def test_the_owner_of_records_does_not_bear_silence(broker, client):
    """Its records may be repeated, and a commit waits for them."""
    broker.script(Type.SEND, [lambda connection, frame: broker.fall_silent()])
    producer = record_topic._RecordProducer(client, TOPIC, ProducerOptions(), 1, may_repeat=True)
    record_topic._send(producer, b"a")
    began = time.monotonic()
    producer.flush()
    assert time.monotonic() - began < HANG / 2
    assert len(broker.topics[str(TOPIC)].values) == 4
    producer.close()
