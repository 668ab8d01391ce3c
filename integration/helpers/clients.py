"""Consumers and writers of our client in tests, and what the broker says of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from integration.broker import Admin
from integration.broker.waiting import FAR_AWAY, HANG
from integration.chaos.messages import number_of, read_partition, records_of
from pulsar_spark.client import (
    NO_USER_CODE,
    Client,
    Consumer,
    Deadline,
    ProducerOptions,
    SubscriptionOptions,
    TopicWriter,
    UserCode,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entry.entries import Entry

WINDOW = 1 << 20
DURABLE = SubscriptionOptions(name="held", durable=True, initial=InitialPosition.EARLIEST)


def reader(start: MessageId | None = None) -> SubscriptionOptions:
    return SubscriptionOptions(name="reader", durable=False, start=start)


def take(consumer: Consumer, count: int, seconds: float = HANG) -> list[Entry]:
    """Receive until there are `count` entries."""
    entries: list[Entry] = []
    deadline = Deadline(seconds)
    while len(entries) < count:
        entries += consumer.receive(deadline)
    assert len(entries) == count
    return entries


def id_of(entry: Entry) -> MessageId:
    return MessageId(entry.ledger, entry.entry)


def numbers(entries: Iterable[Entry]) -> list[int]:
    return [number_of(record) for record in records_of(entries)]


def subscription(admin: Admin, topic: str, name: str = "held") -> dict[str, Any]:
    found: dict[str, Any] = admin.stats(topic)["subscriptions"][name]
    return found


def entries_of(client: Client, topic: str) -> list[Entry]:
    return list(read_partition(client, TopicName.parse(topic)))


def open_writer(client: Client, topic: str, code: UserCode = NO_USER_CODE, **options: Any) -> TopicWriter:
    """A writer whose send timeout is far away unless ``options`` say otherwise."""
    options = {"send_timeout": FAR_AWAY, **options}
    producer = ProducerOptions(**options)
    return TopicWriter(client, TopicName.parse(topic), producer, code=code)
