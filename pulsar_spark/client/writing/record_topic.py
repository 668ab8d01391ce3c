"""RecordTopic: a small topic of records that one owner appends to, holds, reads and trims.

A record is a property of a message without a value, so that it can be read without a private key where the
namespace takes encrypted messages only; what its bytes mean is the owner's business. Others may append too
(``append_record``). The owner's durable subscription makes the broker keep what is not acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from pulsar_spark.client.client import Client
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.consuming.subscription_options import SubscriptionOptions
from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.pool import Purpose
from pulsar_spark.client.net.session import Session
from pulsar_spark.client.reading.chunk_search import positions_before
from pulsar_spark.client.reading.entry_range import RangeOptions, read_entries
from pulsar_spark.client.reading.probe import reader_options
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import AccessMode, ProducerOptions
from pulsar_spark.errors import PulsarError, QuotaError, SendError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.protocol.writing.outgoing import Outgoing
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.columns.unbatched import encode_singles
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entry.entries import Entry

# Before the first record.
_START = MessageId(-1, -1)

# The message's property that is the record.
_PROPERTY = b"record"

# Entries of the shortest end of a topic that is read, and the factor to the next one.
_END_ENTRIES, _LONGER = 512, 16

# Bytes in flight from the broker.
_WINDOW_BYTES = 1 << 20

# Seconds between two looks whether a record is visible, or a backlog is gone, and the longest for the second.
_PAUSE = 0.005
_STEPPING = 2.0
# Seconds within which a broker has stored an acknowledgement, and between attempts to open the topic then.
_STORED_WITHIN = 3.0
_BETWEEN_ATTEMPTS = 0.1


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One message of the topic as the broker has it.

    Attributes:
        position: of its entry.
        value: the record's bytes; None: the message is no record.
        transaction: that it is visible by, or None.
    """

    position: MessageId
    value: bytes | None
    transaction: TxnId | None = None


class _RecordProducer(Producer):
    """A producer that immediately raises if a backlog quota keeps it out.

    Waiting would not help: the backlog is that of the owner, who keeps the last records. A connection that
    goes silent is closed, although entries are pending: a duplicated record has the effect of one.
    """

    awaits_receipts = False

    def _open(self, deadline: Deadline) -> None:
        try:
            super()._open(deadline)
        except QuotaError as error:
            raise SendError(error.what, topic=error.topic, advice=error.advice) from error
        except PulsarError:
            self._client.forget_session(self.topic, Purpose.WRITE)
            raise

    def _locate(self, deadline: Deadline) -> Session:
        # The producer is opened for each micro-batch, and nearly always at the same broker.
        return self._client.kept_session(self.topic, Purpose.WRITE, deadline)


def append_record(
    client: Client, topic: TopicName, value: bytes, *, encryptor: Encryptor | None = None
) -> None:
    """Append one record to a topic that somebody else owns; returns with the broker's receipt.

    The topic is created if it does not exist. The value is UTF-8. The encryptor is for namespaces that take
    encrypted messages only; the record itself is a property, which is not encrypted.

    Raises:
        SendError: a backlog quota keeps producers out.
        PulsarError: the broker did not take it.
    """
    with _first_partition(client, topic) as partition:
        producer = _RecordProducer(client, partition, ProducerOptions(), 1, encryptor=encryptor)
        try:
            _send(producer, value)
            producer.flush()
        finally:
            producer.close()


class RecordTopic:
    """A topic of records, for its one owner.

    Topic and encryptor are as for :func:`append_record`. The name is that of the owner's durable
    subscription, after the client's prefix; the broker lets one owner in at a time.

    Attributes:
        topic: the topic partition that holds the records: the first one, if there are several.
        read_to: the position of the last message that was read; (-1, -1) where none was.
        owners_before: how many owners have opened the topic for writing before this one. Brokers count them,
            as long as the topic is there. 0 before ``open_for_writing``.

    Raises:
        BusyError: another owner has it.
        BrokerError: it cannot be reached within the operation timeout.
    """

    def __init__(
        self, client: Client, topic: TopicName, name: str, *, encryptor: Encryptor | None = None
    ) -> None:
        self.read_to = _START
        self.owners_before = 0
        self._client = client
        self._encryptor = encryptor
        self._producer: Producer | None = None
        self._openings = 0
        self._receipt: MessageId | None = None  # the last one
        options = SubscriptionOptions(
            name=f"{client.options.subscription_prefix}-{name}",
            durable=True,
            initial=InitialPosition.EARLIEST,
            create=True,
        )
        with _first_partition(client, topic) as partition:
            self.topic = partition
            self._holder = Consumer(client, partition, options, Permits(_WINDOW_BYTES))

    @staticmethod
    def read_ends(client: Client, topic: TopicName) -> Iterator[list[StoredRecord]]:
        """Read ever longer ends of a topic that somebody else owns; the last one is the whole topic.

        A topic that does not exist has no end. Records that an open transaction hides are left out.
        """
        try:
            with (
                _first_partition(client, topic) as partition,
                Consumer(client, partition, reader_options(client, "reader", _START)) as consumer,
            ):
                end = consumer.last_message_id().last.whole_entry
        except TopicNotFoundError:
            return
        if end.is_message:
            for start in positions_before(client, partition, end.next_entry, _END_ENTRIES, _LONGER):
                yield _read_between(client, partition, start, end)

    def close(self) -> None:
        """Let the next owner in; nothing may be pending, ``flush`` first."""
        if self._producer is not None:
            self._producer.close()
        self._holder.close()

    def open_for_writing(self) -> None:
        """Open the producer, which shuts all others out until ``close``; does nothing where it is open.

        So no message of somebody else comes between those that are appended here.

        Raises:
            SendError: a backlog quota keeps producers out.
        """
        if self._producer is None:
            # Without a name: others could use up the sequence ids of one that they know.
            options = ProducerOptions(access_mode=AccessMode.EXCLUSIVE_WITH_FENCING)
            # Open transactions hide records from a comparison.
            self._producer = _RecordProducer(
                *(self._client, self.topic, options, 1),
                encryptor=self._encryptor,
                may_repeat=True,
                on_receipt=self._on_receipt,
            )
            self.owners_before = (self._producer.topic_epoch or 0) - self._openings
            self._openings += 1

    def open_after_release(self) -> None:
        """Open the topic for writing after ``release_all``, if a backlog quota kept producers out before.

        Brokers store acknowledgements once a second. Until then the quota counts what was released.

        Raises:
            SendError: the quota still keeps producers out after some seconds.
        """
        until = time.monotonic() + _STORED_WITHIN
        while True:
            try:
                return self.open_for_writing()
            except SendError:
                if time.monotonic() >= until:
                    raise
            time.sleep(_BETWEEN_ATTEMPTS)

    def append(self, value: bytes, *, transaction: TxnId | None = None) -> None:
        """Send a record, UTF-8, in a transaction that has this topic as a part, or outside of any."""
        self.open_for_writing()
        assert self._producer is not None
        self._receipt = None
        self._producer.packer.transaction = transaction
        _send(self._producer, value)

    def _on_receipt(self, _: Outgoing, position: MessageId | None) -> None:
        self._receipt = position

    def flush(self) -> None:
        """Wait for the broker's receipts of all records that were appended.

        After an error they may or may not be stored, and what is appended next has another producer.
        """
        if self._producer is not None:
            try:
                self._producer.flush()
            except PulsarError:
                self._producer.close()
                self._producer = None
                raise

    def read(self) -> list[StoredRecord]:
        """Read the visible messages after ``read_to`` that are not acknowledged."""
        return self._read_visible(None)

    def read_all(self) -> list[StoredRecord]:
        """Read all that the broker still has from the first message on, acknowledged and read ones, too."""
        return self._read(_START, self._holder.last_message_id().last)

    def read_through(self, value: bytes) -> list[StoredRecord]:
        """Append ``value``, wait until it is visible and read all messages after ``read_to``.

        A message is visible when each transaction that has one before it has ended. After an error nothing
        counts as read, so a caller may try again. There must be no other such record.

        Raises:
            DeadlineError: it did not become visible within the operation timeout.
        """
        self.append(value)
        self.flush()
        deadline, begin = self._client.operation(), self.read_to
        appended = None if self._receipt is None else StoredRecord(self._receipt, value)
        try:
            records = self._read_visible(appended)
            while all(record.value != value for record in records):
                if deadline.passed:
                    raise deadline.error(
                        "an open transaction holds back readers: a stored record did not become visible",
                        topic=str(self.topic),
                    )
                time.sleep(_PAUSE)
                records += self._read_visible(appended)
        except PulsarError:
            self.read_to = begin
            raise
        return records

    def release(self, position: MessageId) -> None:
        """Let the broker remove all records up to ``position``; returns with its receipt."""
        if position != _START:
            self._holder.ack_cumulative(position)

    def release_all(self) -> None:
        """Let the broker remove all that was read; where nothing else came, the backlog is 0 then."""
        self.release(self.read_to)
        # Transaction markers, which brokers do not deliver, count until brokers have read past them.
        self._holder.ask_for(1)
        until = self._client.operation().at_most(_STEPPING)
        while self._holder.backlog() > 0 and not self._holder.holds_entries and not until.passed:
            time.sleep(_PAUSE)

    def _read_visible(self, appended: StoredRecord | None) -> list[StoredRecord]:
        """Read as :meth:`read`. A record that was appended outside of transactions is known already."""
        last, mark_delete = self._holder.last_message_id()
        start, end = max(mark_delete, self.read_to), last.whole_entry
        if appended is None or not appended.position == end == start.next_entry:
            return self._read(start, last)
        self.read_to = end
        return [appended]

    def _read(self, start: MessageId, last: MessageId) -> list[StoredRecord]:
        end = last.whole_entry
        if end.entry < 0 or end <= start:
            return []
        records = _read_between(self._client, self.topic, start, end)
        self.read_to = max(self.read_to, end)
        return records


def _read_between(client: Client, topic: TopicName, start: MessageId, end: MessageId) -> list[StoredRecord]:
    # An entry that cannot be parsed is not a record; it is left out with a warning.
    options = RangeOptions(
        poll_timeout=client.options.operation_timeout,
        visible=False,
        fail_on_data_loss=False,
        window_bytes=_WINDOW_BYTES,
    )
    batches = read_entries(client, topic, start, end, options)
    return [_stored(entry) for entries in batches for entry in entries]


@contextmanager
def _first_partition(client: Client, topic: TopicName) -> Iterator[TopicName]:
    """The topic, or its first partition where the brokers make topics with partitions.

    After an error it is requested again, because the topic may have been deleted.
    """
    try:
        yield client.first_partition(topic)
    except PulsarError:
        client.forget_first_partition(topic)
        raise


def _send(producer: Producer, value: bytes) -> None:
    name = _PROPERTY.decode()
    properties = pa.array([[(name, value.decode())]], pa.map_(pa.string(), pa.string()))
    columns = MessageColumns(
        value=pa.array([b""], pa.binary()), key=pa.nulls(1, pa.binary()), properties=properties
    )
    producer.send_singles(encode_singles(columns))


def _stored(entry: Entry) -> StoredRecord:
    metadata = entry.metadata
    transaction = None
    if metadata.HasField("txnid_most_bits"):
        transaction = TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)
    value = _record(metadata)
    return StoredRecord(MessageId(entry.ledger, entry.entry), value, transaction)


def _record(metadata: pb.MessageMetadata) -> bytes | None:
    """The record in a message's properties; None where it has none, or several."""
    values = [each.value for each in metadata.properties if each.key == _PROPERTY]
    return values[0] if len(values) == 1 else None
