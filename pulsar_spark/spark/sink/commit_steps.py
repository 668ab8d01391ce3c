"""The steps in which a driver commits a micro-batch, in order. Pure: the driver executes them.

A micro-batch is committed at one moment: when the first transaction of its intent is committed. Before, a
restart writes the micro-batch again; afterwards a restart commits the other transactions. The driver may die
between any two steps, so before the first commit the intent is durable and the log has all markers.

A transaction "had ended" if the broker refuses to commit or abort it, or to add the log to it. The broker
gives the same answer for a committed and an aborted transaction, so its marker in the log decides.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias, TypeVar

from pulsar_spark.errors import PulsarError, TransactionError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink.commit_records import Intent, LogState

T = TypeVar("T")


class CommitAction(Enum):
    """An action of the driver.

    ABORT and TRY_ABORT differ in their errors: only an error of ABORT ends the commit.
    """

    READ_LOG = auto()
    AWAIT_MARKERS = auto()  # reads the log until each marker is visible, or its transaction was aborted
    WRITE_INTENT = auto()  # returns once the intent is visible
    MARK = auto()  # adds the log's topic to each transaction, then writes a marker in each
    COMMIT = auto()
    ABORT = auto()
    TRY_ABORT = auto()
    TRIM_LOG = auto()  # acknowledges the records before the intent
    REPORT_REPLAY = auto()  # logs that an earlier run has committed the micro-batch


class CommitStep(NamedTuple):
    """An action on transactions, in this order; WRITE_INTENT and REPORT_REPLAY have an intent instead."""

    action: CommitAction
    transactions: tuple[TxnId, ...] = ()
    intent: Intent | None = None


# The errors of a step by transaction, in the order of the step.
Failures = Mapping[TxnId, PulsarError]

# Yields a step; receives the state of the log after the step, and the step's failures.
Steps: TypeAlias = Generator[CommitStep, tuple[LogState, Failures], T]


def commit_steps(batch: int, written: Sequence[TxnId], log: LogState, topic: TopicName) -> Steps[None]:
    """Yields the steps that commit a micro-batch, or finish the commit that an earlier run has begun.

    Raises:
        TransactionError: another program aborted transactions, or the log has a later micro-batch.
        PulsarError: a step failed for another reason. The next run continues from the log.
    """
    last = log.intent
    if last is not None and last.batch > batch:
        raise TransactionError(
            f"micro-batch {batch} cannot be committed: the same query has already committed micro-batch "
            f"{last.batch}",
            topic=str(topic),
            advice="The checkpoint is older than the rows that were written. Start with a new checkpoint",
        )
    if last is not None and last.batch == batch:
        is_committed = yield from _finish_earlier(last, log, topic)
        log, _ = yield from _take(CommitAction.READ_LOG)
        if is_committed:
            yield from _take(CommitAction.TRY_ABORT, sorted(log.opened))
            return
    # Open transactions of failed or killed tasks would block the readers of the rows.
    yield from _take(CommitAction.TRY_ABORT, sorted(log.opened.difference(written)))
    if written:
        intent = Intent(batch, tuple(written), None if log.intent is None else log.intent.first)
        yield from _commit(intent, topic)


def transactions_to_abort(log: LogState, written: Iterable[TxnId], batch: int) -> list[TxnId]:
    """Returns the transactions to abort after a failed micro-batch: open ones that its intent does not name.

    The next run ends the transactions in the intent, because the log shows which are committed.
    """
    begun = log.intent.transactions if log.intent is not None and log.intent.batch == batch else ()
    return sorted(log.opened.union(written).difference(begun))


def _finish_earlier(earlier: Intent, log: LogState, topic: TopicName) -> Steps[bool]:
    """Commits or aborts the remaining transactions of an earlier intent; returns whether it is committed."""
    is_committed = earlier.first in log.committed
    if not is_committed:
        _, failures = yield from _take(CommitAction.ABORT, [earlier.first])
        if failures:  # the transaction had ended; its marker shows whether it was committed
            log, _ = yield from _take(CommitAction.READ_LOG)
            is_committed = earlier.first in log.committed
    if is_committed:
        yield CommitStep(CommitAction.REPORT_REPLAY, intent=earlier)
        yield from _commit_rest(earlier, log, topic)
    else:
        # The other transactions must end, too, because an open one hides later markers in the log.
        yield from _take(CommitAction.ABORT, earlier.transactions[1:])
    return is_committed


def _commit(intent: Intent, topic: TopicName) -> Steps[None]:
    yield CommitStep(CommitAction.WRITE_INTENT, intent=intent)
    # Before the first commit, this step finds transactions that another program aborted.
    log, failures = yield from _take(CommitAction.MARK, intent.transactions)
    if not failures:
        log, failures = yield from _take(CommitAction.COMMIT, [intent.first])
        if failures:  # the transaction had ended; its marker shows whether it was committed
            log, _ = yield from _take(CommitAction.READ_LOG)
            if intent.first in log.committed:
                failures = {}
    if failures:
        yield from _take(CommitAction.TRY_ABORT, intent.transactions)
        cause = next(iter(failures.values()))
        raise _aborted_error(intent, topic, failures, "none of its rows is in the topic") from cause
    yield from _commit_rest(intent, log, topic)
    yield from _take(CommitAction.TRIM_LOG)


def _commit_rest(intent: Intent, log: LogState, topic: TopicName) -> Steps[None]:
    """Commits the transactions after the first, except those with a visible marker."""
    rest = [each for each in intent.transactions[1:] if each not in log.committed]
    _, failures = yield from _take(CommitAction.COMMIT, rest)
    if failures:  # the transactions had ended; their markers show which were committed
        log, _ = yield from _take(CommitAction.AWAIT_MARKERS)
        aborted = [each for each in failures if each not in log.committed]
        if aborted:
            others = len(intent.transactions) - len(aborted)
            outcome = f"the rows of {others} other transactions are in the topic and stay there"
            raise _aborted_error(intent, topic, aborted, outcome)


def _take(action: CommitAction, transactions: Sequence[TxnId] = ()) -> Steps[tuple[LogState, Failures]]:
    """Yields a step. Raises its first error, unless the error means that a transaction had ended."""
    log, failures = yield CommitStep(action, tuple(transactions))
    for error in failures.values():
        if not isinstance(error, TransactionError):
            raise error
    return log, failures


def _aborted_error(
    intent: Intent, topic: TopicName, aborted: Collection[TxnId], outcome: str
) -> TransactionError:
    return TransactionError(
        f"micro-batch {intent.batch} is not committed: transactions {', '.join(map(str, aborted))} were "
        f"aborted by their timeout or by somebody; {outcome}",
        topic=str(topic),
        advice="See 'Transactions' in docs/operations.md",
    )
