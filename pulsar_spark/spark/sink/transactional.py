"""``delivery=transactional``: each task writes in a transaction of its own, the driver commits them all.

The commit of a micro-batch has one point at which it happens, the end of the batch's first transaction:

1. the driver writes down which transactions it will commit (``CommitLog``), and a marker in each of them;
2. it commits the first one. Until then nothing of the batch is visible, and a restart writes it anew;
3. it commits the others. From then on a restart writes nothing, but commits what is left of them.

So it does not matter whether a replay has the rows in the same order or in as many Spark partitions. What is
left: a driver that dies during 3 and comes back after the transactions' time. Then what was not committed is
gone, which is an error each time, until somebody decides.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from pulsar_spark.client import Client, Transaction, Transactions, run_all
from pulsar_spark.errors import PulsarError, TransactionError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink.commit_log import CommitLog, Intent, announce

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionalTaskReport(WriterCommitMessage):
    """What a task reports to the driver.

    Attributes:
        written: as without a transaction.
        log: topic of the query's log; None in a batch write, which is never replayed.
        transaction: that holds its rows; None where there were none.
    """

    written: WriterCommitMessage
    log: TopicName | None
    transaction: TxnId | None


Batches = Iterator[pa.RecordBatch]


def write_in_transaction(
    client: Client,
    log: TopicName | None,
    ttl: float,
    batches: Batches,
    write: Callable[[Batches, Transaction | None], WriterCommitMessage],
) -> TransactionalTaskReport:
    """Do one task's work in a transaction; it is aborted if that fails.

    Args:
        client: where to connect.
        log: topic of the query's log; None in a batch write.
        ttl: seconds after which the broker aborts the transaction.
        batches: the rows.
        write: writes them in a transaction, and has closed all its producers when it returns or raises.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return TransactionalTaskReport(write(iter([]), None), log, None)
    transactions = Transactions(client)
    transaction = transactions.begin(ttl)
    try:
        if log is not None:
            announce(client, log, transaction)
        written = write(itertools.chain([first], batches), Transaction(transaction, transactions))
    except BaseException:
        _abort(transactions, [transaction])
        raise
    return TransactionalTaskReport(written, log, transaction)


def commit_batch(client: Client, messages: Iterable[WriterCommitMessage | None], batch: int) -> None:
    """Commit a micro-batch of a stream, or find that it is committed: all of it, or nothing and an error.

    Raises:
        TransactionError: transactions ran out. The text says whether nothing of the batch is committed, so
            that a restart writes it again, or a part.
        PulsarError: a broker could not be had; a restart goes on from there.
    """
    reports = _reports(messages)
    log = next((report.log for report in reports if report.log is not None), None)
    written = [report.transaction for report in reports if report.transaction is not None]
    if log is None:
        if written:
            commit_once(client, reports)
        return
    with CommitLog(client, log) as opened:
        _Commit(opened, Transactions(client), batch).run(written)


def abort_batch(client: Client, messages: Iterable[WriterCommitMessage | None], batch: int) -> None:
    """Abort what the tasks of a micro-batch wrote, but for what a commit that has begun will end.

    Where no task has succeeded nobody says which query it is: the next commit aborts what they wrote.
    """
    reports = _reports(messages)
    log = next((report.log for report in reports if report.log is not None), None)
    written = {report.transaction for report in reports if report.transaction is not None}
    if log is not None:
        with CommitLog(client, log) as opened:
            written |= opened.opened
            if opened.intent is not None and opened.intent.batch == batch:
                written -= set(opened.intent.transactions)
    _abort(Transactions(client), sorted(written))


def commit_once(client: Client, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Commit a batch write, which has no log: what could not be committed is named in the error.

    Raises:
        PulsarError: of the first that could not.
    """
    written = [report.transaction for report in _reports(messages) if report.transaction is not None]
    transactions = Transactions(client)
    for error in run_all([partial(transactions.commit, each) for each in written]):
        if isinstance(error, PulsarError):
            raise error


class _Commit:
    """The commit of one micro-batch."""

    def __init__(self, log: CommitLog, transactions: Transactions, batch: int) -> None:
        self._log = log
        self._transactions = transactions
        self._batch = batch

    def run(self, written: Sequence[TxnId]) -> None:
        """Commit ``written``, unless the batch is committed already; abort whatever else is open."""
        earlier = self._log.intent
        if earlier is not None and earlier.batch > self._batch:
            raise TransactionError(
                f"micro-batch {self._batch} is to be committed after {earlier.batch} of the same query was",
                topic=str(self._log.topic),
                advice="The checkpoint is older than what was written: start with a new one",
            )
        if earlier is not None and earlier.batch == self._batch:
            if self._is_committed(earlier):
                _log.warning("micro-batch %d had been committed before; nothing is written", self._batch)
                self._commit_rest(earlier)
                self._log.refresh()
                self._abort_others(earlier.transactions)
                return
            self._log.refresh()
        self._abort_others(written)
        if written:
            before = self._log.read_to
            self._commit(Intent(self._batch, tuple(written)))
            self._log.forget(before)

    def _is_committed(self, intent: Intent) -> bool:
        """Whether an earlier run has committed the batch's first transaction; if not, all are aborted."""
        first = intent.transactions[0]
        if first in self._log.committed:
            return True
        try:
            self._transactions.abort(first)
        except TransactionError as error:
            # It was ended, and the broker forgets one when all its topics know: a marker is visible by now.
            _log.info("transaction %s had been ended: %s", first, error)
            self._log.refresh()
            if first in self._log.committed:
                return True
        # None may stay open: it would hide the markers behind its own.
        _ended_before(self._transactions.abort, intent.transactions[1:])
        return False

    def _commit(self, intent: Intent) -> None:
        self._log.write(intent)
        first = intent.transactions[0]
        try:
            self._prepare(intent)
            self._commit_first(first)
        except TransactionError:
            _abort(self._transactions, intent.transactions)
            raise
        self._commit_rest(intent)

    def _prepare(self, intent: Intent) -> None:
        """Mark each transaction; one whose time is over shows here, while nothing is committed."""
        adding = [partial(self._transactions.add, each, [self._log.topic]) for each in intent.transactions]
        for transaction, error in zip(intent.transactions, run_all(adding), strict=True):
            if isinstance(error, TransactionError):
                raise self._ran_out([transaction], "nothing of it is in the topic") from error
            if error is not None:
                raise error
        self._log.mark(intent.transactions)

    def _commit_first(self, first: TxnId) -> None:
        try:
            self._transactions.commit(first)
        except TransactionError as error:
            self._log.refresh()
            if first not in self._log.committed:
                raise self._ran_out([first], "nothing of it is in the topic") from error

    def _commit_rest(self, intent: Intent) -> None:
        """Commit all that are not committed yet; what is gone is an error."""
        left = [each for each in intent.transactions[1:] if each not in self._log.committed]
        unknown = _ended_before(self._transactions.commit, left)
        if unknown:
            self._log.await_markers()
            lost = [each for each in unknown if each not in self._log.committed]
            if lost:
                raise self._ran_out(
                    lost,
                    f"the rows of {len(intent.transactions) - len(lost)} others are in the topic for good",
                )

    def _abort_others(self, known: Sequence[TxnId]) -> None:
        """Abort what tasks that failed or were killed have left open, which holds readers back."""
        _abort(self._transactions, sorted(self._log.opened.difference(known)))

    def _ran_out(self, lost: Sequence[TxnId], rest: str) -> TransactionError:
        names = ", ".join(map(str, lost))
        return TransactionError(
            f"micro-batch {self._batch} is not committed: transactions {names} were aborted before, by their "
            f"time-out or by somebody; {rest}",
            topic=str(self._log.topic),
            advice="See 'Transactions' in docs/operations.md",
        )


def _reports(messages: Iterable[WriterCommitMessage | None]) -> list[TransactionalTaskReport]:
    """The reports of the tasks that have succeeded."""
    return [message for message in messages if isinstance(message, TransactionalTaskReport)]


def _ended_before(end: Callable[[TxnId], None], ids: Sequence[TxnId]) -> list[TxnId]:
    """Commit or abort transactions, and return those that had been ended before, in either way."""
    ended = []
    for transaction, error in zip(ids, run_all([partial(end, each) for each in ids]), strict=True):
        if isinstance(error, TransactionError):
            ended.append(transaction)
        elif error is not None:
            raise error
    return ended


def _abort(transactions: Transactions, ids: Sequence[TxnId]) -> None:
    """Abort what is still open of ``ids``; what cannot be is aborted by the broker when its time is over."""
    for transaction, error in zip(
        ids, run_all([partial(transactions.abort, each) for each in ids]), strict=True
    ):
        if isinstance(error, TransactionError):
            _log.debug("transaction %s had been ended: %s", transaction, error)
        elif error is not None:
            _log.warning("transaction %s stays open until its time is over: %s", transaction, error)
