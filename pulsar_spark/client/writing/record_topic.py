"""RecordTopic: a small topic of records that one owner appends to, holds, reads and trims.

A record is an unbatched, uncompressed message; what its bytes mean is the owner's business. Others may append
too (``append_record``). The owner's durable subscription makes the broker keep what is not acknowledged.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.client.client import Client
from pulsar_spark.client.reading.consumer import Consumer, SubscriptionOptions
from pulsar_spark.client.reading.message_range import read_range
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.protocol.permits import Permits
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entries import Entries
from pulsar_spark.wire.message_columns import MessageColumns
from pulsar_spark.wire.singles import encode_singles

# Before the first record.
_START = MessageId(-1, -1)

# Bytes in flight from the broker while a value is waited for.
_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as the broker has it.

    Attributes:
        position: of its entry.
        value: its bytes.
    """

    position: MessageId
    value: bytes


class UnreadRecords(NamedTuple):
    """What ``RecordTopic.read`` gives.

    Attributes:
        records: in order.
        is_released: whether all records were found acknowledged, though the owner keeps the last ones: a
            message TTL or somebody else did it, and the broker may have removed some.
    """

    records: list[StoredRecord]
    is_released: bool


class ReadStart(NamedTuple):
    """Where a read starts.

    Attributes:
        position: the record before the first one to read.
        is_released: as in :class:`UnreadRecords`.
    """

    position: MessageId
    is_released: bool


def read_start(read_to: MessageId, last: MessageId, mark_delete: MessageId) -> ReadStart | None:
    """Where to read from; None where nothing new is visible.

    Args:
        read_to: the last record that was read; (-1, -1) for none.
        last: the last visible record; entry -1 for none.
        mark_delete: all records up to this one are acknowledged.
    """
    last = last.whole_entry
    if last.entry < 0 or last <= read_to:
        return None
    if mark_delete >= last:
        return ReadStart(_START, is_released=True)
    return ReadStart(max(mark_delete, read_to), is_released=False)


def append_record(client: Client, topic: TopicName, value: bytes) -> None:
    """Append one record to a topic that somebody else owns; returns with the broker's receipt.

    Args:
        client: where to connect.
        topic: of the records, created if it does not exist.
        value: the record's bytes.

    Raises:
        PulsarError: the broker did not take it.
    """
    producer = Producer(client, _first_partition(client, topic), ProducerOptions(), 1)
    try:
        _send(producer, value)
        producer.flush()
    finally:
        producer.close()


class RecordTopic:
    """A topic of records, for its one owner.

    Args:
        client: where to connect.
        topic: created if it does not exist; its first partition where the brokers create topics with
            partitions.
        name: of the owner's producer and durable subscription; the broker lets one owner in at a time, when
            it has finished with all that the one before sent.

    Attributes:
        topic: the topic partition that holds the records.
        read_to: the position of the last record that was read; (-1, -1) where none was.

    Raises:
        BusyError: another owner has it.
        BrokerError: it cannot be had within the operation timeout.
    """

    def __init__(self, client: Client, topic: TopicName, name: str) -> None:
        self.topic = _first_partition(client, topic)
        self.read_to = _START
        self._client = client
        self._name = name
        # Open transactions hide records from a comparison; the owner reads what it has appended anyway.
        self._producer = Producer(client, self.topic, ProducerOptions(name=name), 1, is_compared=False)
        options = SubscriptionOptions(name=name, durable=True, initial=InitialPosition.EARLIEST, create=True)
        try:
            self._holder = Consumer(client, self.topic, options)
        except BaseException:
            self._producer.close()
            raise

    def close(self) -> None:
        """Let the next owner in; nothing may be pending, ``flush`` first."""
        self._producer.close()
        self._holder.close()

    def append(self, value: bytes, *, transaction: TxnId | None = None) -> None:
        """Send a record, in a transaction that has this topic as a part, or outside of any."""
        self._producer.transaction = transaction
        _send(self._producer, value)

    def flush(self) -> None:
        """Wait for the broker's receipts of all records that were appended."""
        self._producer.flush()

    def read(self) -> UnreadRecords:
        """Read the visible records after ``read_to`` that are not acknowledged.

        Where all are acknowledged it reads all that the broker still has, from the first one.
        """
        last, mark_delete = self._holder.last_message_id()
        start = read_start(self.read_to, last, mark_delete)
        if start is None:
            return UnreadRecords([], is_released=False)
        timeout = self._client.options.operation_timeout
        batches = read_range(
            self._client, self.topic, start.position, last, poll_timeout=timeout, visible=False
        )
        return UnreadRecords(self._take(batches), start.is_released)

    def read_through(self, value: bytes) -> list[StoredRecord]:
        """Append ``value``, wait until it is visible and read all records after ``read_to``.

        A record is visible when each transaction that has a record before it has ended.

        Args:
            value: of which there is no other such record.

        Raises:
            DeadlineError: it did not become visible within the operation timeout.
        """
        self.append(value)
        self.flush()
        options = SubscriptionOptions(
            name=f"{self._name}-{uuid.uuid4().hex}", durable=False, start=self.read_to.next_entry
        )
        deadline = self._client.operation()
        records: list[StoredRecord] = []
        with Consumer(self._client, self.topic, options, Permits(_WINDOW_BYTES)) as consumer:
            while all(record.value != value for record in records):
                records += self._take([consumer.receive(deadline)])
        return records

    def release(self, position: MessageId) -> None:
        """Let the broker remove all records up to ``position``; returns with its receipt."""
        if position != _START:
            self._holder.ack_cumulative(position)

    def _take(self, batches: Iterable[Entries]) -> list[StoredRecord]:
        records = [
            StoredRecord(MessageId(entry.ledger, entry.entry), bytes(entry.payload))
            for entries in batches
            for entry in entries
        ]
        if records:
            self.read_to = records[-1].position
        return records


def _first_partition(client: Client, topic: TopicName) -> TopicName:
    """The topic, or its first partition where the brokers make topics with partitions."""
    return client.partitions(topic, create=True)[0]


def _send(producer: Producer, value: bytes) -> None:
    columns = MessageColumns(value=pa.array([value], pa.binary()), key=pa.nulls(1, pa.binary()))
    producer.send_singles(encode_singles(columns))
