"""CommitLog: a query's small topic with the state of its commits, which its driver reads after a crash.

For each micro-batch, the log contains in this order: the transactions that the tasks have opened, the
driver's intent to commit some transactions, and a marker in each of these. Readers see a marker if and only
if its transaction was committed (:mod:`~pulsar_spark.spark.sink.commit_records`). The driver acknowledges
records before the last intent, and the broker removes them. Messages that are not the query's records are
ignored with a warning.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from pulsar_spark.client import Client, Closing, Encryptor, RecordTopic, StoredRecord, append_record, path_of
from pulsar_spark.errors import (
    CorruptError,
    OptionError,
    OtherClusterError,
    PulsarError,
    SendError,
    TransactionError,
)
from pulsar_spark.ids import COMMIT_LOG_PREFIX, MessageId, TopicName, TxnId
from pulsar_spark.spark.sink.commit_records import (
    CommitRecord,
    CommittedRecord,
    Intent,
    LogState,
    OpenedRecord,
    RecordFormat,
    TokenRecord,
    is_next,
    lost_history,
)

_log = logging.getLogger(__name__)

# Name of the driver's subscription. All drivers use it, because there is one driver at a time.
_NAME = "transactions"

# Minimum characters of a key, because a shorter key could be guessed.
_MIN_KEY = 16


@dataclass(frozen=True, slots=True)
class LogProtection:
    """Protection of a query's commit log against other writers.

    Attributes:
        key: secret key that signs the records; None: records are not signed.
        encryptor: encryptor of the log's messages, if the namespace requires encryption; otherwise None.
    """

    key: bytes | None = field(default=None, repr=False)
    encryptor: Encryptor | None = None


@dataclass(frozen=True, slots=True)
class QueryLog:
    """A query's commit log for one micro-batch, which may be a replay; the topic has no partitions."""

    topic: TopicName
    batch: int
    protection: LogProtection = LogProtection()
    may_be_replay: bool = False


def log_topic(topic: TopicName | None, query: str) -> TopicName:
    """Returns the commit log's topic, in the namespace of ``topic``; None: in public/default."""
    near = topic or TopicName.parse("persistent://public/default/any")
    return TopicName.parse(f"persistent://{near.tenant}/{near.namespace}/{COMMIT_LOG_PREFIX}{query}")


def read_log_key(place: str) -> bytes:
    """Reads the key that signs the commit log's records from ``env:NAME``, ``file:PATH`` or a path.

    Raises OptionError: the key does not exist, cannot be read or is too short.
    """
    try:
        if place.startswith("env:"):
            text = os.environ[place.removeprefix("env:")]
        else:
            text = path_of(place).read_text()
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(
            f"the key named by option transactionLogKey cannot be read: {type(error).__name__}",
            advice="The file or environment variable must contain text, and exist where the driver and the "
            "tasks run",
        ) from None
    key = text.strip().encode()
    if len(key) < _MIN_KEY:
        raise OptionError(
            f"the key named by option transactionLogKey has fewer than {_MIN_KEY} characters",
            advice="Create one with: openssl rand -hex 32",
        )
    return key


def announce(client: Client, log: QueryLog, transaction: TxnId) -> None:
    """Records a task's transaction before the first write in it, so that the driver can abort it.

    Raises:
        SendError: a backlog quota blocks producers, and the records in the backlog are still needed.
        PulsarError: the broker did not accept the record.
    """
    value = _format(log).encode(OpenedRecord(transaction))
    try:
        append_record(client, log.topic, value, encryptor=log.protection.encryptor)
    except SendError as error:
        with CommitLog(client, log) as opened:
            opened.make_room(error)
            opened.append([OpenedRecord(transaction)])


def was_committed(client: Client, log: QueryLog) -> bool:
    """Whether an earlier run has committed the micro-batch; raises the errors of :class:`CommitLog`."""
    state = LogState()
    for records in RecordTopic.read_ends(client, log.topic):
        state = state.after(_decoded(_format(log), log.topic, None, records, []))
        if state.intent is not None:
            break
    return state.has_committed(log.batch)


class CommitLog(Closing):
    """A query's log, opened exclusively by its driver; a context manager. Its topic is created if necessary.

    Raises:
        BusyError: another driver of this query has opened the log.
        BrokerError: the log cannot be opened within the operation timeout.
        CorruptError: this version cannot read a record. If the query has a key, only signed records count.
        OtherClusterError: a record was copied from another cluster.
    """

    def __init__(self, client: Client, log: QueryLog) -> None:
        self.state = LogState()
        self._batch = log.batch
        self._format = _format(log)
        self._records = RecordTopic(client, log.topic, _NAME, encryptor=log.protection.encryptor)
        self._before_intent: MessageId | None = None
        self._is_found_again = False
        try:
            records = self._records.read()
            self._take(records)
            if self.state.intent is None:
                read = {each.position for each in records}
                self._take(each for each in self._records.read_all() if each.position not in read)
                self._is_found_again = self.state.intent is not None
        except BaseException:
            self.close()
            raise

    @property
    def topic(self) -> TopicName:
        """Returns the log's topic partition."""
        return self._records.topic

    def close(self) -> None:
        """Closes the log, so that the next driver can open it."""
        self._records.close()

    def refresh(self) -> None:
        """Reads the records that have become visible."""
        self._take(self._records.read())

    def write(self, intent: Intent) -> None:
        """Writes the intent to commit, and returns once it is visible.

        Afterwards nobody else can write to the topic until ``close``. The call may be repeated after an
        error.

        Raises:
            DeadlineError: another program's open transaction keeps the intent invisible.
            TransactionError: another driver of the query has written an intent meanwhile.
        """
        try:
            self._records.open_for_writing()
        except SendError as error:
            self.make_room(error)
        owners, is_again = self._records.owners_before, self._is_found_again
        warning = lost_history(self.state, intent.batch, drivers_before=owners, is_found_again=is_again)
        if warning is not None:
            _log.warning("%s, micro-batch %d: %s", self.topic, intent.batch, warning)
        value, begin, known = self._format.encode(intent), self._records.read_to, self.state
        # Once the intent is visible, all records before it are visible, too.
        records = self._records.read_through(value)
        self._take(records)
        if self.state.intent != intent:
            raise TransactionError(
                f"micro-batch {intent.batch} is not committed, and none of its rows is in the topic: "
                "another driver of the query has written to its log at the same time",
                topic=str(self.topic),
                advice="Run only one query with this checkpoint, and start it again",
            )
        # Another program may have written a copy of an older intent before this driver opened the topic
        # exclusively. The next driver would read the copy first, and ignore this intent because it does not
        # follow the copy. So ``trim`` acknowledges all records before this intent.
        earlier = takewhile(lambda each: each.value != value, records)
        before = max((each.position for each in earlier), default=begin)
        try:
            self.append(map(OpenedRecord, sorted(self.state.opened - known.opened)))
        except PulsarError:
            self._records.read_to, self.state = begin, known
            raise
        self._before_intent = before

    def mark(self, transactions: Sequence[TxnId]) -> None:
        """Writes a marker in each transaction, in order, and waits for the receipts.

        The log's topic must have been added to each transaction.
        """
        for transaction in transactions:
            record = CommittedRecord(transaction)
            self._records.append(self._format.encode(record), transaction=transaction)
        self._records.flush()

    def await_all(self) -> None:
        """Reads all records that were written so far; waits while open transactions hide some.

        If all transactions with a marker have ended, each marker is then visible or was aborted.
        """
        self._take(self._records.read_through(self._format.encode(TokenRecord(uuid.uuid4().hex))))

    def trim(self) -> None:
        """Acknowledges all records before the intent that ``write`` stored, so the broker removes them."""
        if self._before_intent is not None:
            self._records.release(self._before_intent)

    def make_room(self, error: SendError) -> None:
        """Acknowledges all records, because a backlog quota blocks producers; writes needed records again.

        Raises SendError, caused by ``error``, if the last intent is for this micro-batch, because all its
        records are needed. The transactions of an older intent have ended, so their markers are not needed.
        If the driver dies in this method, the transactions of running tasks time out.
        """
        intent = self.state.intent
        if intent is not None and intent.batch >= self._batch:
            raise SendError(
                f"{error.what}; the query still needs the records in the backlog, to finish micro-batch "
                f"{intent.batch}",
                topic=str(self.topic),
                advice="Raise the namespace's backlog quota until the query has finished a micro-batch",
            ) from error
        _log.info(
            "%s: a backlog quota blocks producers; records of finished micro-batches are released", self.topic
        )
        self._records.release_all()
        self._records.open_after_release()
        # Another program may have written a copy of an older intent meanwhile. The next driver must not read
        # it before the last intent, so it is acknowledged, too, before the last intent is written again.
        self.await_all()
        self._records.release(self._records.read_to)
        intent = self.state.intent
        kept: list[CommitRecord] = [] if intent is None else [intent]
        self.append([*kept, *map(OpenedRecord, sorted(self.state.opened))])

    def append(self, records: Iterable[CommitRecord]) -> None:
        """Writes records outside of any transaction, and waits for the broker's receipts."""
        for record in records:
            self._records.append(self._format.encode(record))
        self._records.flush()

    def _take(self, records: Iterable[StoredRecord]) -> None:
        left_out: list[tuple[StoredRecord, str]] = []
        own = _decoded(self._format, self.topic, self.state.intent, records, left_out)
        self.state = self.state.after(own)
        if left_out:
            (first, why) = left_out[0]
            _log.warning(
                "%s: %d messages that are not records of the query's commits are ignored; somebody else "
                "writes to the query's log. The first is %s: %s",
                *(self.topic, len(left_out), first.position, why),
            )


def _decoded(
    form: RecordFormat,
    topic: TopicName,
    last: Intent | None,
    records: Iterable[StoredRecord],
    left_out: list[tuple[StoredRecord, str]],
) -> Iterator[CommitRecord]:
    """Yields valid records after the intent ``last``; adds other messages, with reasons, to ``left_out``."""
    for stored in records:
        try:
            record = None if stored.value is None else form.decode(stored.value)
        except CorruptError as error:
            raise error.located(str(topic), str(stored.position)) from error
        if record is None:
            left_out.append((stored, "it is not a record, or is not signed with the query's key"))
        elif stored.cluster is not None:
            raise OtherClusterError(
                f"this is a copy of the log that the query has in cluster {stored.cluster!r}",
                topic=str(topic),
                message_id=str(stored.position),
                advice="Finish the micro-batch in that cluster. Then delete this topic here, and start again",
            )
        elif stored.transaction != (record.transaction if isinstance(record, CommittedRecord) else None):
            left_out.append((stored, "it names another transaction than the one it was written in"))
        elif isinstance(record, Intent) and record != last and not is_next(last, record):
            left_out.append((stored, "it is an intent that does not follow the last one"))
        else:
            last = record if isinstance(record, Intent) else last
            yield record


def _format(log: QueryLog) -> RecordFormat:
    return RecordFormat(str(log.topic), log.protection.key)
