"""Clients of a fake broker in tests: their options, what they write, and what they read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    Deadline,
    MessageColumns,
    ProducerOptions,
    SubscriptionOptions,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entry.entries import Entry
from pulsar_spark.wire.wire_values import from_wire_id
from tests.fake_broker import HANG, FakeBroker
from tests.fake_clients import Type
from tests.fake_topics import batch_section, section_of, values_of

TOPIC = TopicName.parse("persistent://public/default/topic")
START = MessageId(-1, -1)
WINDOW = 1 << 20


def client_of(broker: FakeBroker, **options: object) -> Client:
    """A client whose operations fail after HANG seconds unless `options` say otherwise."""
    given = {"operation_timeout": HANG, "connection_timeout": HANG, **options}
    return Client(ClientOptions(service_url=broker.url, **given))  # type: ignore[arg-type]


def open_consumer(
    client: Client, options: SubscriptionOptions | None = None, window: int = WINDOW
) -> Consumer:
    """A consumer of the topic, with permits for so many bytes."""
    return Consumer(client, TOPIC, options or reader(), Permits(window))


def starts(broker: FakeBroker) -> list[MessageId]:
    """Where each SUBSCRIBE that the broker has seen began."""
    return [from_wire_id(one.start_message_id) for one in broker.seen(Type.SUBSCRIBE)]


def reader(start: MessageId | None = START) -> SubscriptionOptions:
    """A subscription that leaves nothing behind, from `start` on."""
    return SubscriptionOptions(name="reader", durable=False, start=start)


def hurry(client: Client, seconds: float) -> None:
    """Let the next operations of a client fail after so many seconds; what it has opened stays open."""
    client.check()
    client.options = replace(client.options, operation_timeout=seconds)


DURABLE = SubscriptionOptions(name="held", durable=True, initial=InitialPosition.EARLIEST)


def producing(**options: object) -> ProducerOptions:
    """Options of a producer whose sends time out after HANG seconds unless `options` say otherwise."""
    return ProducerOptions(**{"send_timeout": HANG, **options})  # type: ignore[arg-type]


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values that say their numbers."""
    return [b"%d" % number for number in range(first, first + count)]


def singles(values: Iterable[bytes], **metadata: object) -> list[bytes]:
    """Payload sections, one for each value."""
    return [section_of(value, **metadata) for value in values]  # type: ignore[arg-type]


def batches(values: Sequence[bytes], size: int) -> list[bytes]:
    """Payload sections of batches of `size` values."""
    return [batch_section(values[first : first + size]) for first in range(0, len(values), size)]


def columns(values: Sequence[bytes | None], **more: object) -> MessageColumns:
    """Rows without keys, unless `more` has them."""
    key = more.pop("key", pa.nulls(len(values), pa.binary()))
    return MessageColumns(value=pa.array(values, pa.binary()), key=key, **more)


def values_in(entries: Iterable[Entry]) -> list[bytes]:
    """The values of what a client has received."""
    return [value for entry in entries for value in values_of(entry.metadata, entry.payload)]


def ids_of(entries: Iterable[Entry]) -> list[MessageId]:
    """The positions of what a client has received."""
    return [MessageId(entry.ledger, entry.entry) for entry in entries]


def take(consumer: Consumer, count: int) -> list[Entry]:
    """Receive until there are `count` entries."""
    taken: list[Entry] = []
    deadline = Deadline(HANG)
    while len(taken) < count:
        taken += consumer.receive(deadline, count - len(taken))
    assert len(taken) == count
    return taken


def flat(groups: Iterable[Iterable[Entry]]) -> Iterator[Entry]:
    """The entries of ranges, one by one."""
    return (entry for group in groups for entry in group)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for something that only asking shows."""
    deadline = Deadline(HANG)
    while not condition():
        assert not deadline.passed
        time.sleep(0.001)


def failing(error):
    def call():
        raise error

    return call
