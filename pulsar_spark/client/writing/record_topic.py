"""RecordTopic: a small topic of records that one owner appends to, reads and trims.

A record is a property of a message without a value, so that it can be read without a private key if the
namespace requires encryption. RecordTopic does not interpret the bytes. Other programs may append, too
(``append_record``). The owner's durable subscription makes the broker keep unacknowledged records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from pulsar_spark.client.client import Client
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.consuming.consumer_link import SubscriptionOptions
from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.session import Purpose, Session
from pulsar_spark.client.reading.entry_range import RangeOptions, positions_before, read_entries
from pulsar_spark.client.reading.probe import reader_options
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import AccessMode, ProducerOptions
from pulsar_spark.errors import PulsarError, QuotaError, SendError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.protocol.reading.copies import source_of
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire.columns.entry_messages import encode_singles
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entry.entries import Entry

# The position before the first record.
_START = MessageId(-1, -1)

# Name of the property that holds the record.
_PROPERTY = b"record"

_END_ENTRIES = 512  # entries of the first step back from a topic's end
_STEP_GROWTH = 16  # each further step back has this many times as many entries

# Maximum bytes in flight from the broker.
_WINDOW_BYTES = 1 << 20

_PAUSE = 0.005  # seconds between two requests while waiting for a record, or for a backlog of 0
_STEPPING = 2.0  # maximum seconds to wait for a backlog of 0
_STORED_WITHIN = 3.0  # seconds within which a broker stores an acknowledgement
_BETWEEN_ATTEMPTS = 0.1  # seconds between two attempts to open the topic for writing


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One stored message of the topic.

    Attributes:
        value: bytes of the record; None: the message is no record.
        transaction: committed transaction of the message, or None.
        cluster: name of the cluster from which the message was copied, or None.
    """

    position: MessageId
    value: bytes | None
    transaction: TxnId | None = None
    cluster: str | None = None


class _RecordProducer(Producer):
    """A producer that raises an error immediately if a backlog quota blocks it.

    Waiting would not help, because only this process acknowledges the topic's records. A silent connection is
    closed even if entries are pending, which are then sent again: a duplicated record does no harm.
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
        # Makes no lookup, because the producer is opened for each micro-batch, nearly always at the same
        # broker.
        return self._client.kept_session(self.topic, Purpose.WRITE, deadline)


def append_record(
    client: Client, topic: TopicName, value: bytes, *, encryptor: Encryptor | None = None
) -> None:
    """Appends one record, UTF-8, to a topic of another owner; returns after the broker's receipt.

    The topic is created if it does not exist. The encryptor is for namespaces that require encryption; the
    record itself is a property, which is not encrypted.

    Raises:
        SendError: a backlog quota blocks producers.
        PulsarError: the broker did not accept the record.
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

    Topic and encryptor are as for :func:`append_record`. The owner's durable subscription is named by the
    client's prefix and ``name``; the broker admits one owner at a time.

    Attributes:
        topic: topic partition of the records: the first one, if there are several.
        read_to: position of the last read message; (-1, -1) if there is none.
        owners_before: number of owners that have opened the topic for writing before this one. Brokers count
            them while the topic exists. 0 before ``open_for_writing``.

    Raises:
        BusyError: another owner has the topic.
        BrokerError: the topic cannot be reached within the operation timeout.
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
        """Yields ever longer lists of the newest records of another owner's topic; the last list has all.

        Yields nothing for a missing topic. Records that an open transaction hides are left out.
        """
        try:
            with (
                _first_partition(client, topic) as partition,
                Consumer(client, partition, reader_options(client, "reader", _START)) as consumer,
            ):
                end = consumer.last_message_id().last.whole_entry
        except TopicNotFoundError:
            return
        if end.is_entry:
            for start in positions_before(client, partition, end.next_entry, _END_ENTRIES, _STEP_GROWTH):
                yield _read_between(client, partition, start, end)

    def close(self) -> None:
        """Closes producer and consumer, so the next owner can open the topic; call ``flush`` first."""
        if self._producer is not None:
            self._producer.close()
        self._holder.close()

    def open_for_writing(self) -> None:
        """Opens the producer, unless it is open; it excludes all other producers until ``close``.

        So no other program's message lies between the appended records. Raises SendError if a backlog quota
        blocks producers.
        """
        if self._producer is None:
            # The producer has no fixed name, because other programs could use up the name's sequence ids.
            options = ProducerOptions(access_mode=AccessMode.EXCLUSIVE_WITH_FENCING)
            # ``may_repeat`` is True, because a search cannot find records that an open transaction hides.
            self._producer = _RecordProducer(
                *(self._client, self.topic, options, 1),
                encryptor=self._encryptor,
                may_repeat=True,
            )
            self.owners_before = (self._producer.topic_epoch or 0) - self._openings
            self._openings += 1

    def open_after_release(self) -> None:
        """Opens the topic for writing after ``release_all``, if a backlog quota blocked producers before.

        Brokers store acknowledgements once a second. Until then the quota counts the released records. Raises
        SendError if the quota still blocks producers after some seconds.
        """
        until = Deadline(_STORED_WITHIN)
        while True:
            try:
                return self.open_for_writing()
            except SendError:
                if until.passed:
                    raise
            time.sleep(_BETWEEN_ATTEMPTS)

    def append(self, value: bytes, *, transaction: TxnId | None = None) -> None:
        """Sends a record, UTF-8, in a transaction to which this topic was added, or without a transaction."""
        self.open_for_writing()
        assert self._producer is not None
        self._producer.packer.transaction = transaction
        _send(self._producer, value)

    def flush(self) -> None:
        """Waits for the broker's receipts of all appended records.

        After an error the records may or may not be stored, and the next record has another producer.
        """
        if self._producer is not None:
            try:
                self._producer.flush()
            except PulsarError:
                self._producer.close()
                self._producer = None
                raise

    def read(self) -> list[StoredRecord]:
        """Reads the visible messages after ``read_to`` that are not acknowledged."""
        return self._read_visible(None)

    def read_all(self) -> list[StoredRecord]:
        """Reads all messages that the broker still has, even if acknowledged or read before."""
        return self._read(_START, self._holder.last_message_id().last)

    def read_through(self, value: bytes) -> list[StoredRecord]:
        """Appends ``value``, waits until it is visible and reads all messages after ``read_to``.

        A message is visible when each transaction with an earlier message has ended. After an error no
        message counts as read, so a caller may try again. No other record may have this value.

        Raises:
            DeadlineError: the record did not become visible within the operation timeout.
        """
        self.open_for_writing()
        assert self._producer is not None
        before = self._producer.sent.last_id
        self.append(value)
        self.flush()
        deadline, begin, position = self._client.operation(), self.read_to, self._producer.sent.last_id
        # The receipt has no position if the record was stored before a lost connection: then search for it.
        appended = None if position is None or position == before else StoredRecord(position, value)
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
        """Lets the broker remove all records up to ``position``; returns after its receipt."""
        if position != _START:
            self._holder.ack_cumulative(position)

    def release_all(self) -> None:
        """Lets the broker remove all read records; without newer records the backlog is then 0."""
        self.release(self.read_to)
        # One permit makes the broker read past transaction markers, which count in the backlog until then.
        self._holder.ask_for(1)
        until = self._client.operation().at_most(_STEPPING)
        while self._holder.backlog() > 0 and not self._holder.holds_entries and not until.passed:
            time.sleep(_PAUSE)

    def _read_visible(self, appended: StoredRecord | None) -> list[StoredRecord]:
        """Returns the messages of :meth:`read`; reads no entries if ``appended`` is the only new message."""
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
    # An entry that cannot be parsed is not a record; it is skipped with a warning.
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
    """Yields the topic, or its first partition if brokers create topics with partitions.

    After an error the client forgets the partition, because the topic may have been deleted.
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
    values = [each.value for each in metadata.properties if each.key == _PROPERTY]
    value = values[0] if len(values) == 1 else None
    source = source_of(metadata)
    cluster = None if source is None else source.cluster
    return StoredRecord(MessageId(entry.ledger, entry.entry), value, transaction, cluster)
