"""``delivery=transactional``: each task writes in its own transaction, and the driver commits them all.

A micro-batch is committed at one moment: when its first transaction is committed.

1. The driver writes the intent to commit these transactions (``CommitLog``), and a marker in each of them.
2. It commits the first transaction. Before this, no row is visible, and a restart writes the batch again.
3. It commits the other transactions. From now on a restart writes no rows, but commits the remaining ones.

So a replay may have its rows in another order or in another number of Spark partitions. Rows are lost in one
case: a driver dies during step 3 and restarts after the transactions' timeout. Then every restart raises a
TransactionError, until the user has followed 'Transactions' in docs/operations.md.

``commit_steps`` decides the next step; this module executes it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from pulsar_spark.client import Client, Deadline, Transaction, Transactions, retry, run_all
from pulsar_spark.errors import PulsarError, TransactionError, assert_never
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink.commit_log import CommitLog, LogProtection, QueryLog, announce, was_committed
from pulsar_spark.spark.sink.commit_steps import (
    CommitAction,
    CommitStep,
    Failures,
    Steps,
    commit_steps,
    transactions_to_abort,
)
from pulsar_spark.spark.sink.report import TaskReport

_log = logging.getLogger(__name__)


Batches = Iterator[pa.RecordBatch]


def write_in_transaction(
    client: Client,
    log: QueryLog | None,
    ttl: float,
    batches: Batches,
    write: Callable[[Batches, Transaction | None], TaskReport],
) -> TaskReport:
    """Writes one task's rows in a transaction, which is aborted if the write fails.

    The broker aborts the transaction after ``ttl`` seconds. ``log``: the query's log; None in a batch write.
    ``write`` must close all its producers before it returns or raises. If an earlier run has committed the
    micro-batch, all rows are read but not sent, because Spark's operators save their state at the last row.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    topic = None if log is None else log.topic
    if first is not None and log is not None and log.may_be_replay and was_committed(client, log):
        first = None
        for _ in batches:
            pass
    if first is None:
        return replace(write(iter([]), None), log=topic)
    transactions = Transactions(client)
    transaction = transactions.begin(ttl)
    try:
        if log is not None:
            announce(client, log, transaction)
        report = write(itertools.chain([first], batches), Transaction(transaction, transactions))
    except BaseException:
        _try_abort(transactions, [transaction])
        raise
    return replace(report, log=topic, transaction=transaction)


def commit_batch(
    client: Client, reports: Sequence[TaskReport], batch: int, protection: LogProtection, ttl: float
) -> None:
    """Commits all transactions of a micro-batch; if an earlier run has committed it, finishes that commit.

    Waits for an unreachable broker until the transactions time out, ``ttl`` seconds.

    Raises:
        TransactionError: transactions timed out. The text says whether some are committed, or none; if none
            is, a restart writes the batch again.
        PulsarError: a broker could not be reached; a restart continues the commit.
    """
    topic, written = _written(reports)
    if topic is None:
        if written:
            commit_once(client, reports, ttl)
        return
    deadline, query_log = Deadline(ttl), QueryLog(topic, batch, protection)
    transactions = retry(lambda: Transactions(client), deadline, insists=True)
    with retry(lambda: CommitLog(client, query_log), deadline, insists=True) as log:
        _run(commit_steps(batch, written, log.state, log.topic), log, transactions, deadline)


def abort_batch(client: Client, reports: Sequence[TaskReport], batch: int, protection: LogProtection) -> None:
    """Aborts the transactions of a failed micro-batch, except those in its intent: the next run ends them.

    If no task has succeeded, no report names the query's log. Then the next commit aborts the transactions.
    """
    topic, ids = _written(reports)
    written: Sequence[TxnId] = sorted(set(ids))
    if topic is not None:
        with CommitLog(client, QueryLog(topic, batch, protection)) as log:
            written = transactions_to_abort(log.state, written, batch)
    _try_abort(Transactions(client), written)


def commit_once(client: Client, reports: Sequence[TaskReport], ttl: float) -> None:
    """Commits a batch write, which has no log. The error names the first transaction that was not committed.

    Waits for an unreachable broker as :func:`commit_batch` does.

    Raises PulsarError: the error of that transaction.
    """
    _, written = _written(reports)
    deadline = Deadline(ttl)
    transactions = retry(lambda: Transactions(client), deadline, insists=True)
    for error in _failures(written, lambda each: transactions.commit(each, deadline)).values():
        raise error


def _run(steps: Steps[None], log: CommitLog, transactions: Transactions, deadline: Deadline) -> None:
    """Executes steps in order; repeats each step while its error is temporary."""
    step = next(steps, None)
    while step is not None:
        failures = retry(partial(_take_step, step, log, transactions), deadline, insists=True)
        try:
            step = steps.send((log.state, failures))
        except StopIteration:
            step = None


def _take_step(step: CommitStep, log: CommitLog, transactions: Transactions) -> Failures:
    """Executes a step, and returns its errors by transaction.

    Raises PulsarError: a temporary error, or an error of the log itself.
    """
    action, ids, intent = step
    failures: Failures = {}
    match action:
        case CommitAction.READ_LOG:
            log.refresh()
        case CommitAction.AWAIT_MARKERS:
            log.await_all()
        case CommitAction.WRITE_INTENT:
            assert intent is not None
            log.write(intent)
        case CommitAction.MARK:
            # If the step is repeated, ``add`` fails for transactions that have ended since the last attempt,
            # so no marker is written in them.
            failures = _failures(ids, lambda each: transactions.add(each, [log.topic]))
            if not failures:
                try:
                    log.mark(ids)
                except TransactionError as refused:
                    failures = {ids[0]: refused}
        case CommitAction.COMMIT:
            failures = _failures(ids, transactions.commit)
        case CommitAction.ABORT:
            failures = _abort(transactions, ids)
        case CommitAction.TRY_ABORT:
            _try_abort(transactions, ids)
        case CommitAction.TRIM_LOG:
            log.trim()
        case CommitAction.REPORT_REPLAY:
            assert intent is not None
            _log.warning("micro-batch %d was already committed; nothing is written", intent.batch)
        case _:
            assert_never(action)
    for error in failures.values():
        if error.is_passing:
            raise error
    return failures


def _written(reports: Sequence[TaskReport]) -> tuple[TopicName | None, list[TxnId]]:
    """Returns the log of the query, and the transactions of the tasks that have succeeded."""
    topic = next((report.log for report in reports if report.log is not None), None)
    return topic, [report.transaction for report in reports if report.transaction is not None]


def _failures(ids: Sequence[TxnId], call: Callable[[TxnId], None]) -> dict[TxnId, PulsarError]:
    """Calls ``call`` for each transaction, many in parallel, and returns the errors."""
    answers = zip(ids, run_all([partial(call, each) for each in ids]), strict=True)
    return {transaction: error for transaction, error in answers if error is not None}


def _abort(transactions: Transactions, ids: Sequence[TxnId]) -> Failures:
    failures = _failures(ids, transactions.abort)
    for transaction, error in failures.items():
        if isinstance(error, TransactionError):
            # The broker forgets a transaction once all its topics know the outcome. So if it was committed,
            # its marker is visible now.
            _log.info("transaction %s had already ended: %s", transaction, error)
    return failures


def _try_abort(transactions: Transactions, ids: Sequence[TxnId]) -> None:
    """Aborts transactions. A failure is only logged, because the broker aborts them when they time out."""
    for transaction, error in _failures(ids, transactions.abort).items():
        if isinstance(error, TransactionError):
            _log.debug("transaction %s had already ended: %s", transaction, error)
        else:
            _log.warning("transaction %s stays open until it times out: %s", transaction, error)
