"""Reading one range of a topic partition: what a Spark task does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from pulsar_spark.client.client import Client
from pulsar_spark.client.consumer import Consumer, SubscriptionOptions
from pulsar_spark.client.deadline import Deadline
from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.permits import Permits
from pulsar_spark.wire.entries import Entry

WINDOW_BYTES = 16 * 1024 * 1024


def read_range(
    client: Client,
    topic: TopicName,
    start: MessageId,
    end: MessageId,
    *,
    poll_timeout: float,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[list[Entry]]:
    """Give all entries behind ``start`` up to and with ``end``, whole, in order, each once.

    It reads through a non-durable subscription of its own, so nothing stays behind at the broker.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions.
        start: the last entry taken before; ``MessageId(-1, -1)`` for the beginning.
        end: an entry that exists.
        poll_timeout: seconds to wait for each next entry.
        window_bytes: how much may be on its way from the broker.

    Raises:
        DataLossError: the broker passed over ``end``: it has been deleted.
        DeadlineError: nothing came for ``poll_timeout``.
    """
    if start >= end:
        return
    first = start if start.ledger < 0 else MessageId(start.ledger, start.entry + 1)
    options = SubscriptionOptions(name=f"spark-pulsar-reader-{uuid.uuid4()}", durable=False, start=first)
    with Consumer(client, topic, options, Permits(window_bytes)) as consumer:
        # The broker moves a start that it no longer has to the next entry it has, and says nothing.
        begins = consumer.last_message_id().mark_delete
        if begins >= end.whole_entry:
            raise _gone(topic, start, end, f"what it has begins behind {begins}")
        position = start
        while position < end:
            entries = consumer.receive(Deadline(poll_timeout), _entries_left(position, end))
            inside = [entry for entry in entries if (entry.ledger, entry.entry) <= (end.ledger, end.entry)]
            if inside:
                position = MessageId(inside[-1].ledger, inside[-1].entry)
                yield inside
            if len(inside) < len(entries) and position < end.whole_entry:
                found = entries[len(inside)]
                raise _gone(topic, position, end, f"behind {position} it sent {found.ledger}:{found.entry}")


def _entries_left(position: MessageId, end: MessageId) -> int | None:
    """How many entries are left, where that is known: within one ledger they are numbered without gaps."""
    return end.entry - position.entry if position.ledger == end.ledger else None


def _gone(topic: TopicName, position: MessageId, end: MessageId, why: str) -> DataLossError:
    return DataLossError(
        f"the broker has no message {end} any more: {why}",
        topic=str(topic),
        message_id=f"({position}, {end}]",
        advice="Look at the topic's retention, and whether its subscription was removed",
    )
