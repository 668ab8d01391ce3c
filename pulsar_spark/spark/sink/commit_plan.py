"""CommitPlan: the next step in the commit of a micro-batch, from the log and the broker's answers. Pure.

A micro-batch is committed at one moment: when the first transaction of its intent ends. Before it, a restart
writes the micro-batch again; after it, a restart commits the rest. The driver may die between any two steps,
so before the first commit the intent is durable and each transaction has its marker.

"Earlier" is the intent of the same micro-batch that a previous run has left in the log. A transaction "had
ended" if the broker refuses to add to it, commit it or abort it. The broker gives the same answer for a
committed and an aborted transaction, so its marker in the log decides.

    stage                step                              answer -> next stage
    -------------------  --------------------------------  ---------------------------------------------------
    (start)                                                no earlier intent -> ABORT_OPEN
                                                           its first marker is visible -> REPORT_REPLAY
                                                           else -> ABORT_EARLIER
                                                           intent of a later micro-batch -> FAIL
    ABORT_EARLIER        abort the earlier first           aborted -> ABORT_EARLIER_REST
                                                           had ended -> FIND_EARLIER
    FIND_EARLIER         read the log                      its marker is visible -> REPORT_REPLAY
                                                           else -> ABORT_EARLIER_REST
    ABORT_EARLIER_REST   abort the other earlier ones      -> READ_LOG
    REPORT_REPLAY        log that nothing is written       -> COMMIT_REST
    READ_LOG             read the log                      -> ABORT_OPEN
    ABORT_OPEN           try to abort what tasks opened    something to commit -> WRITE_INTENT
                         and nobody will commit            nothing, or it is a replay -> END
    WRITE_INTENT         write the intent, until it is     -> ADD_LOG
                         visible as the last one
    ADD_LOG              make the log a part of each       all -> MARK
                                                           one had ended -> GIVE_UP
    MARK                 write a marker in each            -> COMMIT_FIRST
                                                           one had ended -> GIVE_UP
    COMMIT_FIRST         commit the first                  committed -> COMMIT_REST
                                                           had ended -> FIND_FIRST
    FIND_FIRST           read the log                      its marker is visible -> COMMIT_REST
                                                           else -> GIVE_UP
    GIVE_UP              try to abort all of the intent    -> FAIL
    COMMIT_REST          commit the others that have no    all -> TRIM_LOG, in a replay READ_LOG
                         visible marker                    one had ended -> FIND_REST
    FIND_REST            wait until all markers are        all are visible -> TRIM_LOG, in a replay READ_LOG
                         visible that ever will be         else -> FAIL
    TRIM_LOG             release what is before the intent -> END

After an error that may pass, the step is taken again while the transactions may live. ADD_LOG precedes MARK
then, because a marker must not be sent in a transaction that has ended. Any other error of a step leads to
FAIL and is raised as it is, except in ABORT_OPEN and GIVE_UP. The next run continues from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from pulsar_spark.errors import PulsarError, TransactionError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink.commit_records import Intent, LogState


class CommitAction(Enum):
    """An action of the driver; see the table above."""

    READ_LOG = auto()
    AWAIT_MARKERS = auto()
    WRITE_INTENT = auto()
    ADD_LOG = auto()
    MARK = auto()
    COMMIT = auto()
    ABORT = auto()
    TRY_ABORT = auto()
    TRIM_LOG = auto()
    REPORT_REPLAY = auto()
    FAIL = auto()
    END = auto()


class CommitStage(Enum):
    """Where a commit stands, named after the step to take now; see the table above."""

    ABORT_EARLIER = auto()
    FIND_EARLIER = auto()
    ABORT_EARLIER_REST = auto()
    REPORT_REPLAY = auto()
    READ_LOG = auto()
    ABORT_OPEN = auto()
    WRITE_INTENT = auto()
    ADD_LOG = auto()
    MARK = auto()
    COMMIT_FIRST = auto()
    FIND_FIRST = auto()
    GIVE_UP = auto()
    COMMIT_REST = auto()
    FIND_REST = auto()
    TRIM_LOG = auto()
    FAIL = auto()
    END = auto()


class CommitStep(NamedTuple):
    """The step to take now, with the transactions to add to, mark, commit or abort, in order; maybe none."""

    action: CommitAction
    transactions: tuple[TxnId, ...]


# The errors of a step by transaction, in the order of the step. MARK has at most one, of any transaction.
Failures = Mapping[TxnId, PulsarError]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """Where the commit of one micro-batch stands; made by :func:`plan_commit`.

    Attributes:
        batch: id of the micro-batch.
        written: the transactions of the tasks that have succeeded.
        topic: topic of the log, for errors.
        stage: the step to take now.
        log: the state of the log.
        intent: the intent to commit or abort: the earlier one, or from WRITE_INTENT on this run's.
        is_replay: whether an earlier run has already committed the micro-batch.
        unknown: transactions that had ended, committed or aborted, before this run committed them.
        error: why the commit has failed, or the error to raise if the first transaction's marker is not
            found.
    """

    batch: int
    written: tuple[TxnId, ...]
    topic: TopicName
    stage: CommitStage
    log: LogState
    intent: Intent | None = None
    is_replay: bool = False
    unknown: tuple[TxnId, ...] = ()
    error: PulsarError | None = None

    @property
    def step(self) -> CommitStep:
        """The step to take now."""
        row = _TABLE[self.stage]
        return CommitStep(row.action, row.transactions(self))

    @property
    def first(self) -> TxnId:
        """The transaction whose commit commits the whole intent."""
        assert self.intent is not None
        return self.intent.first

    @property
    def transactions(self) -> tuple[TxnId, ...]:
        """The transactions of the intent."""
        assert self.intent is not None
        return self.intent.transactions

    def after(self, log: LogState, failures: Failures) -> CommitPlan:
        """The plan after the step was taken; ``log`` is the state now, ``failures`` are the step's errors."""
        row = _TABLE[self.stage]
        plan = replace(self, log=log)
        if row.action not in (CommitAction.TRY_ABORT, CommitAction.ADD_LOG):
            for error in failures.values():
                if not isinstance(error, TransactionError):
                    return plan._failed(error)
        return row.after(plan, failures)

    def again(self) -> CommitPlan:
        """The plan after an error that may pass, of which it is not known whether the step was taken."""
        return self._at(CommitStage.ADD_LOG) if self.stage is CommitStage.MARK else self

    def _at(self, stage: CommitStage) -> CommitPlan:
        return replace(self, stage=stage)

    def _failed(self, error: PulsarError) -> CommitPlan:
        return replace(self, stage=CommitStage.FAIL, error=error)

    def _ran_out(
        self, lost: Iterable[TxnId], rest: str, cause: PulsarError | None = None
    ) -> TransactionError:
        """The error of a micro-batch whose transactions ``lost`` were aborted by somebody else."""
        names = ", ".join(map(str, lost))
        error = TransactionError(
            f"micro-batch {self.batch} is not committed: transactions {names} were aborted by their "
            f"timeout or by somebody; {rest}",
            topic=str(self.topic),
            advice="See 'Transactions' in docs/operations.md",
        )
        error.__cause__ = cause
        return error


def plan_commit(batch: int, written: Sequence[TxnId], log: LogState, topic: TopicName) -> CommitPlan:
    """Start the plan of a commit; the arguments are attributes of :class:`CommitPlan`."""
    plan = CommitPlan(batch=batch, written=tuple(written), topic=topic, stage=CommitStage.ABORT_OPEN, log=log)
    earlier = log.intent
    if earlier is None or earlier.batch < batch:
        return plan
    if earlier.batch > batch:
        return plan._failed(
            TransactionError(
                f"micro-batch {batch} cannot be committed: the same query has already committed micro-batch "
                f"{earlier.batch}",
                topic=str(topic),
                advice="The checkpoint is older than the rows that were written. Start with a new checkpoint",
            )
        )
    return _if_first_is_visible(
        replace(plan, intent=earlier), CommitStage.REPORT_REPLAY, CommitStage.ABORT_EARLIER
    )


def transactions_to_abort(log: LogState, written: Iterable[TxnId], batch: int) -> list[TxnId]:
    """The transactions of a failed micro-batch to abort: all open ones except those of its intent.

    Once an intent is written, the next run ends its transactions: it sees how far this run came.
    """
    begun = log.intent.transactions if log.intent is not None and log.intent.batch == batch else ()
    return sorted(log.opened.union(written).difference(begun))


# ---- the transitions


def _if_first_is_visible(plan: CommitPlan, then: CommitStage, otherwise: CommitStage) -> CommitPlan:
    return plan._at(then if plan.first in plan.log.committed else otherwise)


def _found(then: CommitStage, otherwise: CommitStage) -> Callable[[CommitPlan, Failures], CommitPlan]:
    return lambda plan, _: _if_first_is_visible(plan, then, otherwise)


def _first_aborted(plan: CommitPlan, failures: Failures) -> CommitPlan:
    return plan._at(CommitStage.FIND_EARLIER if failures else CommitStage.ABORT_EARLIER_REST)


def _replay_reported(plan: CommitPlan, _: Failures) -> CommitPlan:
    return replace(plan, stage=CommitStage.COMMIT_REST, is_replay=True)


def _open_aborted(plan: CommitPlan, _: Failures) -> CommitPlan:
    if plan.is_replay or not plan.written:
        return plan._at(CommitStage.END)
    last = plan.log.intent
    intent = Intent(plan.batch, plan.written, None if last is None else last.first)
    return replace(plan, stage=CommitStage.WRITE_INTENT, intent=intent)


def _added(plan: CommitPlan, failures: Failures) -> CommitPlan:
    # The first error decides. If a transaction had ended, the others are aborted immediately.
    for transaction, error in failures.items():
        if not isinstance(error, TransactionError):
            return plan._failed(error)
        lost = plan._ran_out([transaction], "none of its rows is in the topic", error)
        return replace(plan, stage=CommitStage.GIVE_UP, error=lost)
    return plan._at(CommitStage.MARK)


def _marked(plan: CommitPlan, failures: Failures) -> CommitPlan:
    for error in failures.values():
        return replace(plan, stage=CommitStage.GIVE_UP, error=error)
    return plan._at(CommitStage.COMMIT_FIRST)


def _first_committed(plan: CommitPlan, failures: Failures) -> CommitPlan:
    for error in failures.values():
        lost = plan._ran_out([plan.first], "none of its rows is in the topic", error)
        return replace(plan, stage=CommitStage.FIND_FIRST, error=lost)
    return plan._at(CommitStage.COMMIT_REST)


def _rest_committed(plan: CommitPlan, failures: Failures) -> CommitPlan:
    if failures:
        return replace(plan, stage=CommitStage.FIND_REST, unknown=tuple(failures))
    return _all_committed(plan)


def _rest_found(plan: CommitPlan, _: Failures) -> CommitPlan:
    lost = [each for each in plan.unknown if each not in plan.log.committed]
    if lost:
        others = len(plan.transactions) - len(lost)
        return plan._failed(
            plan._ran_out(lost, f"the rows of {others} other transactions are in the topic and stay there")
        )
    return _all_committed(plan)


def _all_committed(plan: CommitPlan) -> CommitPlan:
    return plan._at(CommitStage.READ_LOG if plan.is_replay else CommitStage.TRIM_LOG)


# ---- the table


class _Row(NamedTuple):
    action: CommitAction
    after: Callable[[CommitPlan, Failures], CommitPlan]
    transactions: Callable[[CommitPlan], tuple[TxnId, ...]] = lambda _: ()


def _all(plan: CommitPlan) -> tuple[TxnId, ...]:
    return plan.transactions


def _unmarked(plan: CommitPlan) -> tuple[TxnId, ...]:
    """The transactions of the intent, except the first, that are not known to be committed."""
    return tuple(each for each in plan.transactions[1:] if each not in plan.log.committed)


def _abandoned(plan: CommitPlan) -> tuple[TxnId, ...]:
    """The transactions that failed or killed tasks have left open; open ones hold readers back."""
    return tuple(sorted(plan.log.opened.difference(plan.transactions if plan.is_replay else plan.written)))


def _to(stage: CommitStage) -> Callable[[CommitPlan, Failures], CommitPlan]:
    return lambda plan, _: plan._at(stage)


_TABLE = {
    CommitStage.ABORT_EARLIER: _Row(CommitAction.ABORT, _first_aborted, lambda plan: plan.transactions[:1]),
    CommitStage.FIND_EARLIER: _Row(
        CommitAction.READ_LOG, _found(CommitStage.REPORT_REPLAY, CommitStage.ABORT_EARLIER_REST)
    ),
    # None of them may stay open: it would hide the markers that come after its own.
    CommitStage.ABORT_EARLIER_REST: _Row(
        CommitAction.ABORT, _to(CommitStage.READ_LOG), lambda plan: plan.transactions[1:]
    ),
    CommitStage.REPORT_REPLAY: _Row(CommitAction.REPORT_REPLAY, _replay_reported),
    CommitStage.READ_LOG: _Row(CommitAction.READ_LOG, _to(CommitStage.ABORT_OPEN)),
    CommitStage.ABORT_OPEN: _Row(CommitAction.TRY_ABORT, _open_aborted, _abandoned),
    CommitStage.WRITE_INTENT: _Row(CommitAction.WRITE_INTENT, _to(CommitStage.ADD_LOG), _all),
    # A transaction that timed out is found here, while nothing is committed.
    CommitStage.ADD_LOG: _Row(CommitAction.ADD_LOG, _added, _all),
    CommitStage.MARK: _Row(CommitAction.MARK, _marked, _all),
    CommitStage.COMMIT_FIRST: _Row(CommitAction.COMMIT, _first_committed, lambda plan: plan.transactions[:1]),
    CommitStage.FIND_FIRST: _Row(CommitAction.READ_LOG, _found(CommitStage.COMMIT_REST, CommitStage.GIVE_UP)),
    CommitStage.GIVE_UP: _Row(CommitAction.TRY_ABORT, _to(CommitStage.FAIL), _all),
    CommitStage.COMMIT_REST: _Row(CommitAction.COMMIT, _rest_committed, _unmarked),
    CommitStage.FIND_REST: _Row(CommitAction.AWAIT_MARKERS, _rest_found),
    CommitStage.TRIM_LOG: _Row(CommitAction.TRIM_LOG, _to(CommitStage.END)),
    CommitStage.FAIL: _Row(CommitAction.FAIL, _to(CommitStage.FAIL)),
    CommitStage.END: _Row(CommitAction.END, _to(CommitStage.END)),
}
