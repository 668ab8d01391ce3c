"""Acknowledgements against the real broker, and what closing leaves behind."""

from typing import Any

import pytest

from integration.broker.waiting import HANG, wait_until
from integration.chaos.messages import BEGINNING, last_message, numbered, read_partition
from integration.helpers.clients import DURABLE, WINDOW, id_of, reader, subscription, take
from pulsar_spark.client import Consumer
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import Permits
from tests.ranges import read_range

pytestmark = pytest.mark.usefixtures("leaves_nothing")


# ---- acknowledgements


def test_a_cumulative_acknowledgement_is_at_the_broker(client, peer, admin, topic):
    peer.produce(topic, numbered(10))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        entries = take(consumer, 10)
        consumer.ack_cumulative(id_of(entries[6]))
        assert consumer.last_message_id().mark_delete == id_of(entries[6])
        assert subscription(admin, topic)["msgBacklog"] == 3
        consumer.ack_cumulative(id_of(entries[2]))  # Never back.
        assert consumer.last_message_id().mark_delete == id_of(entries[6])


# ---- closing


def test_closing_a_reader_leaves_no_subscription(client, peer, admin, topic):
    peer.produce(topic, numbered(100))
    name = TopicName.parse(topic)
    with Consumer(client, name, reader(BEGINNING), Permits(WINDOW)):
        assert admin.subscriptions(topic) == ["reader"]
    assert admin.subscriptions(topic) == []
    groups: Any = read_range(client, name, BEGINNING, last_message(client, name), poll_timeout=HANG)
    next(groups)
    assert len(admin.subscriptions(topic)) == 1
    groups.close()
    wait_until(lambda: not admin.subscriptions(topic))
    list(read_partition(client, name))
    wait_until(lambda: not admin.subscriptions(topic))


def test_unsubscribing_removes_the_subscription(client, peer, admin, topic):
    peer.produce(topic, numbered(1))
    with Consumer(client, TopicName.parse(topic), DURABLE) as consumer:
        assert admin.subscriptions(topic) == ["held"]
        consumer.unsubscribe()
        assert admin.subscriptions(topic) == []


# ---- what the broker forgot


def test_an_acknowledgement_is_made_good_when_the_broker_went_back(client, admin, peer, topic):
    """As after a crash, which loses the last position of a cursor."""
    admin.create_topic(topic)
    name = TopicName.parse(topic)
    with Consumer(client, name, DURABLE) as consumer:
        peer.produce(topic, numbered(10))
        last = consumer.last_message_id().last
        consumer.ack_cumulative(last)
        wait_until(lambda: admin.backlog(topic, "held") == 0)
        first = MessageId(last.ledger, 0)

        def is_back():
            # A broker that still stores the acknowledgement may let it win over the seek.
            consumer.seek(first)
            return consumer.last_message_id().mark_delete < first

        wait_until(is_back)
    with Consumer(client, name, DURABLE) as consumer:
        consumer.ack_cumulative(last)
        assert consumer.last_message_id().mark_delete == last
        consumer.ack_cumulative(last)
