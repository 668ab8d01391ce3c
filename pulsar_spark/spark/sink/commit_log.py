"""CommitLog: the small topic of a query by which its driver knows, after a crash, what it had committed.

Per micro-batch it holds, in this order: which transactions the tasks have opened, which of them the driver is
about to commit (``Intent``), and in each of these one marker, which readers see if and only if it was
committed. What is older than the last intent is acknowledged, and the broker removes it.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa

from pulsar_spark.client import Client, Consumer, Producer, ProducerOptions, SubscriptionOptions, read_range
from pulsar_spark.errors import CorruptError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.protocol.permits import Permits
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entries import Entries, Entry
from pulsar_spark.wire.message_columns import MessageColumns
from pulsar_spark.wire.singles import encode_singles

_log = logging.getLogger(__name__)

# Of the subscription that holds the log, and of the driver's producer: there is one driver at a time, and the
# broker lets the next one in when it has done with all that the last one sent.
_NAME = "spark-transactions"
_BEGINNING = MessageId(-1, -1)
_WINDOW = 1 << 20


@dataclass(frozen=True, slots=True)
class Intent:
    """What a driver was about to commit.

    Attributes:
        batch: id of the micro-batch.
        transactions: all that make it up; the batch is committed when, and only when, the first of them is.
    """

    batch: int
    transactions: tuple[TxnId, ...]


def log_topic(topic: TopicName | None, query: str) -> TopicName:
    """A query's log: in the namespace of the topic it writes to, or public/default where rows name theirs."""
    near = topic or TopicName.parse("persistent://public/default/any")
    return TopicName.parse(f"persistent://{near.tenant}/{near.namespace}/spark-transactions-{query}")


def announce(client: Client, topic: TopicName, transaction: TxnId) -> None:
    """Tell the driver of a transaction before anything is written in it, so that it can be aborted."""
    producer = Producer(client, _partition(client, topic), ProducerOptions(), 1)
    try:
        _send(producer, {"opened": transaction})
        producer.flush()
    finally:
        producer.close()


class CommitLog:
    """The log as the driver has it, alone; a context manager.

    Args:
        client: where to connect.
        topic: of the log, made if it is not there.

    Attributes:
        intent: the last one, or None.
        committed: transactions whose markers are visible.
        opened: transactions that tasks have told of, and that no intent names.

    Raises:
        BusyError: another driver of this query has it.
        BrokerError: it cannot be had within the operation timeout.
    """

    def __init__(self, client: Client, topic: TopicName) -> None:
        self.intent: Intent | None = None
        self.committed: set[TxnId] = set()
        self.opened: set[TxnId] = set()
        self._client = client
        self.topic = _partition(client, topic)
        self._read_to = _BEGINNING
        self._producer = Producer(client, self.topic, ProducerOptions(name=_NAME), 1)
        options = SubscriptionOptions(name=_NAME, durable=True, initial=InitialPosition.EARLIEST, create=True)
        self._holder: Consumer | None = None
        try:
            self._holder = Consumer(client, self.topic, options)
            self._read(self._holder)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> CommitLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the next driver have it."""
        self._producer.close()
        if self._holder is not None:
            self._holder.close()

    def refresh(self) -> None:
        """Read what has become visible."""
        assert self._holder is not None
        self._read(self._holder)

    def write(self, intent: Intent) -> None:
        """Write down what is about to be committed; returns with the broker's receipt."""
        _send(self._producer, {"batch": intent.batch, "transactions": intent.transactions})
        self._producer.flush()
        self.intent = intent

    def mark(self, transactions: Sequence[TxnId]) -> None:
        """Write a marker in each, in order; this topic must be a part of each. Returns with the receipts."""
        for transaction in transactions:
            self._producer.transaction = transaction
            _send(self._producer, {"committed": transaction})
        self._producer.transaction = None
        self._producer.flush()

    def await_markers(self) -> None:
        """Wait until all markers are visible that ever will be, and read them.

        All transactions that have one must have been ended.
        """
        token = uuid.uuid4().hex
        _send(self._producer, {"read to": token})
        self._producer.flush()
        options = SubscriptionOptions(name=f"{_NAME}-{token}", durable=False, start=self._read_to.next_entry)
        deadline = self._client.operation()
        with Consumer(self._client, self.topic, options, Permits(_WINDOW)) as consumer:
            while not self._take(consumer.receive(deadline), token):
                pass

    def forget(self, before: MessageId) -> None:
        """Let the broker remove what lies in front of the last intent: all that was read up to ``before``."""
        assert self._holder is not None
        if before != _BEGINNING:
            self._holder.ack_cumulative(before)

    @property
    def read_to(self) -> MessageId:
        """The last record that was read."""
        return self._read_to

    def _read(self, holder: Consumer) -> None:
        last, mark = holder.last_message_id()
        if last.entry < 0 or last.whole_entry <= self._read_to:
            return
        start = max(mark, self._read_to)
        if mark >= last.whole_entry:  # the last intent is never acknowledged
            _log.warning(
                "%s: records of the query's commits were acknowledged, by a message TTL or by somebody; "
                "without them a restart may write a micro-batch twice",
                self.topic,
            )
            start = _BEGINNING
        timeout = self._client.options.operation_timeout
        for entries in read_range(self._client, self.topic, start, last, poll_timeout=timeout, visible=False):
            self._take(entries)

    def _take(self, entries: Entries, token: str | None = None) -> bool:
        """Read records; whether one of them is ``token``."""
        found = False
        for entry in entries:
            record = self._record(entry)
            if "batch" in record:
                self.intent = Intent(record["batch"], tuple(TxnId(*each) for each in record["transactions"]))
                self.opened -= set(self.intent.transactions)
            elif "committed" in record:
                self.committed.add(TxnId(*record["committed"]))
            elif "opened" in record:
                self.opened.add(TxnId(*record["opened"]))
            found = found or (token is not None and record.get("read to") == token)
            self._read_to = MessageId(entry.ledger, entry.entry)
        return found

    def _record(self, entry: Entry) -> dict[str, Any]:
        try:
            record = json.loads(bytes(entry.payload))
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise CorruptError(
                "this is no record of a query's commits: somebody else writes to this topic",
                topic=str(self.topic),
                message_id=f"{entry.ledger}:{entry.entry}",
            )
        return record


def _partition(client: Client, topic: TopicName) -> TopicName:
    """The topic, or its first partition where the brokers make topics with partitions."""
    return client.partitions(topic, create=True)[0]


def _send(producer: Producer, record: dict[str, object]) -> None:
    value = pa.array([json.dumps(record).encode()], pa.binary())
    producer.send_singles(encode_singles(MessageColumns(value=value, key=pa.nulls(1, pa.binary()))))
