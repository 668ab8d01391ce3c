"""CommitLog: the small topic of a query by which its driver knows, after a crash, what it had committed.

Per micro-batch it holds, in this order: which transactions the tasks have opened, which of them the driver is
about to commit, and in each of these one marker, which readers see if and only if it was committed
(:mod:`~pulsar_spark.spark.sink.commit_records`). What is older than the last intent is released, and the
broker removes it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

from pulsar_spark.client import Client, RecordTopic, StoredRecord, append_record
from pulsar_spark.errors import CorruptError
from pulsar_spark.ids import COMMIT_LOG_PREFIX, MessageId, TopicName, TxnId
from pulsar_spark.spark.sink.commit_records import (
    CommitRecord,
    CommittedRecord,
    Intent,
    LogState,
    OpenedRecord,
    TokenRecord,
    decode_record,
    encode_record,
)

_log = logging.getLogger(__name__)

# Of the driver's subscription and producer: there is one driver at a time.
_NAME = "spark-transactions"


def log_topic(topic: TopicName | None, query: str) -> TopicName:
    """A query's log: in the namespace of the topic it writes to, or public/default where rows name theirs."""
    near = topic or TopicName.parse("persistent://public/default/any")
    return TopicName.parse(f"persistent://{near.tenant}/{near.namespace}/{COMMIT_LOG_PREFIX}{query}")


def announce(client: Client, topic: TopicName, transaction: TxnId) -> None:
    """Record a task's transaction before anything is written in it, so that the driver can abort it."""
    append_record(client, topic, encode_record(OpenedRecord(transaction)))


class CommitLog:
    """The log as the driver has it, alone; a context manager.

    Args:
        client: where to connect.
        topic: of the log, created if it does not exist.

    Attributes:
        state: what the records add up to that were read or written here.

    Raises:
        BusyError: another driver of this query has it.
        BrokerError: it cannot be had within the operation timeout.
        CorruptError: somebody else writes to the topic.
    """

    def __init__(self, client: Client, topic: TopicName) -> None:
        self.state = LogState()
        self._records = RecordTopic(client, topic, _NAME)
        self._before_intent: MessageId | None = None
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> CommitLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def topic(self) -> TopicName:
        """The topic partition that holds the log."""
        return self._records.topic

    def close(self) -> None:
        """Let the next driver have it."""
        self._records.close()

    def refresh(self) -> None:
        """Read what has become visible."""
        records, is_released = self._records.read()
        if is_released:  # the last intent is never released here
            _log.warning(
                "%s: records of the query's commits were acknowledged, by a message TTL or by somebody; "
                "without them a restart may write a micro-batch twice",
                self.topic,
            )
        self._take(records)

    def write(self, intent: Intent) -> None:
        """Write down what is about to be committed; returns with the broker's receipt."""
        self._before_intent = self._records.read_to
        self._records.append(encode_record(intent))
        self._records.flush()
        self.state = self.state.after([intent])

    def mark(self, transactions: Sequence[TxnId]) -> None:
        """Write a marker in each, in order; this topic must be a part of each. Returns with the receipts."""
        for transaction in transactions:
            self._records.append(encode_record(CommittedRecord(transaction)), transaction=transaction)
        self._records.flush()

    def await_markers(self) -> None:
        """Wait until all markers are visible that ever will be, and read them.

        All transactions that have one must have been ended.
        """
        self._take(self._records.read_through(encode_record(TokenRecord(uuid.uuid4().hex))))

    def trim(self) -> None:
        """Let the broker remove what was read before the intent was written here."""
        if self._before_intent is not None:
            self._records.release(self._before_intent)

    def _take(self, records: Iterable[StoredRecord]) -> None:
        self.state = self.state.after(self._decoded(records))

    def _decoded(self, records: Iterable[StoredRecord]) -> Iterator[CommitRecord | None]:
        for record in records:
            try:
                yield decode_record(record.value)
            except CorruptError as error:
                raise error.located(str(self.topic), str(record.position)) from error
