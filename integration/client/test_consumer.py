"""Consumers and readers against the real broker: where they begin, positions, permits, seeking."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.broker.waiting import HANG, wait_until
from integration.chaos.messages import BEGINNING, last_message, numbered
from integration.helpers.clients import (
    DURABLE,
    WINDOW,
    entries_of,
    id_of,
    numbers,
    reader,
    subscription,
    take,
)
from integration.helpers.raw import RawConnection, RawProducer
from pulsar_spark.client import (
    Consumer,
    Deadline,
    EntryField,
    PlanningClient,
    RangeEntries,
    SubscriptionOptions,
    decode_entries,
    retry_count,
)
from pulsar_spark.errors import DeadlineError, UnsupportedError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.ranges import read_range

pytestmark = pytest.mark.usefixtures("leaves_nothing")


# ---- where reading begins


@pytest.mark.parametrize("batch_size", [0, 5])
def test_a_reader_begins_at_a_message_id(client, peer, topic, batch_size):
    peer.produce(topic, numbered(50), batch_size=batch_size)
    entries = entries_of(client, topic)
    with Consumer(client, TopicName.parse(topic), reader(id_of(entries[3])), Permits(WINDOW)) as consumer:
        assert take(consumer, len(entries) - 3) == entries[3:]


def test_a_durable_subscription_waits_until_a_reader_of_its_name_is_gone(client, admin, topic):
    """As after a look whether it exists: brokers remove a non-durable one some time after it is closed."""
    name = TopicName.parse(topic)
    admin.create_topic(topic)
    before = retry_count()
    with ThreadPoolExecutor(1) as pool:
        with Consumer(client, name, SubscriptionOptions(name="same", durable=False)):
            durable = SubscriptionOptions(name="same", durable=True, create=False)
            opening = pool.submit(Consumer, client, name, durable)
            wait_until(lambda: retry_count() > before)
            assert not opening.done()
        opening.result(HANG).close()
    assert PlanningClient(client).has_subscription(name, "same")


def test_a_reader_without_an_id_begins_at_the_end(client, peer, topic):
    peer.produce(topic, numbered(5))
    with Consumer(client, TopicName.parse(topic), reader(), Permits(WINDOW)) as consumer:
        with pytest.raises(DeadlineError, match="no message was received within"):
            consumer.receive(Deadline(0.2))
        peer.produce(topic, numbered(3, first=5))
        assert numbers(take(consumer, 3)) == [5, 6, 7]


# ---- the last message


def test_last_message_in_a_batch(client, peer, topic):
    ids = peer.produce(topic, numbered(6), batch_size=6)
    last = last_message(client, TopicName.parse(topic))
    assert last == MessageId(ids[-1].ledger_id(), ids[-1].entry_id(), 5)


def test_the_mark_tells_where_a_reader_begins(client, peer, topic):
    peer.produce(topic, numbered(10))
    entries = entries_of(client, topic)
    with Consumer(client, TopicName.parse(topic), reader(id_of(entries[4]))) as consumer:
        assert consumer.last_message_id() == (id_of(entries[9]), id_of(entries[3]))


# ---- permits


def test_a_planning_consumer_takes_no_messages(client, peer, admin, topic):
    peer.produce(topic, numbered(10))
    with Consumer(client, TopicName.parse(topic), DURABLE) as consumer:
        for _ in range(3):
            last = consumer.last_message_id().last
        consumer.ack_cumulative(last)
        assert consumer.last_message_id().mark_delete == last
        state = subscription(admin, topic)
        assert state["msgBacklog"] == 0
        assert state["consumers"][0]["availablePermits"] == 0
        assert state["msgOutCounter"] == 0


@pytest.mark.parametrize(("batch_size", "messages"), [(0, 20), (5, 100)])
def test_no_more_is_asked_for_than_the_range_holds(client, peer, admin, topic, batch_size, messages):
    ids = peer.produce(topic, numbered(200), batch_size=batch_size)
    ledger = ids[0].ledger_id()
    before = admin.stats(topic)["msgOutCounter"]

    def sent():
        return int(admin.stats(topic)["msgOutCounter"]) - before

    groups = read_range(
        client, TopicName.parse(topic), MessageId(ledger, 4), MessageId(ledger, 24), poll_timeout=HANG
    )
    assert sum(len(group) for group in groups) == 20
    wait_until(lambda: sent() >= messages)  # the broker counts messages after it has sent them
    assert sent() == messages


def test_permits_return_when_a_durable_consumer_is_sent_the_same_again(client, peer, admin, topic):
    """After an unload the broker repeats what is not acknowledged: none of it is given out, all costs."""
    peer.produce(topic, numbered(30))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(window_bytes=1)) as consumer:
        assert numbers(take(consumer, 30)) == list(range(30))
        admin.unload(topic)
        peer.produce(topic, numbered(5, first=30))
        assert numbers(take(consumer, 5)) == [30, 31, 32, 33, 34]


# ---- seeking


def test_a_durable_subscription_seeks_to_an_id(client, peer, topic):
    peer.produce(topic, numbered(10))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        entries = take(consumer, 10)
        consumer.ack_cumulative(id_of(entries[9]))
        consumer.seek(id_of(entries[6]))
        assert take(consumer, 4) == entries[6:]
        consumer.seek(id_of(entries[1]))
        assert take(consumer, 9) == entries[1:]


def test_a_reader_seeks_to_an_id(client, peer, topic):
    peer.produce(topic, numbered(10))
    with Consumer(client, TopicName.parse(topic), reader(BEGINNING), Permits(WINDOW)) as consumer:
        entries = take(consumer, 10)
        consumer.seek(id_of(entries[7]))
        assert take(consumer, 3) == entries[7:]
        with pytest.raises(UnsupportedError):
            consumer.seek(0)


# ---- what producers may write


@pytest.mark.parametrize("count", [2, 40])  # few entries are parsed one by one, many by column
def test_texts_of_producers_may_be_any_bytes(cluster, client, topic, count):
    with RawConnection(cluster.service_url) as connection:
        producer = RawProducer(connection, topic)
        for _ in range(count):
            pair = pb.KeyValue(key=b"\xff1", value=b"2\xc3")
            producer.send(b"v", producer_name=b"\xfe", partition_key=b"\xed\xa0\x80", properties=[pair])
    name = TopicName.parse(topic)
    groups = read_range(client, name, BEGINNING, last_message(client, name), poll_timeout=HANG)
    (found,) = decode_entries([RangeEntries(name, groups)], max_rows=1000, max_bytes=1 << 20)
    assert found.key.to_pylist() == [b"\xed\xa0\x80"] * count
    assert found.properties.to_pylist() == [[("\ufffd1", "2\ufffd")]] * count
    assert found.entry_field(EntryField.PRODUCER_NAME).to_pylist() == ["\ufffd"] * count
