"""All ways that the commit of one micro-batch can go, with faults at any step: a model of the plan's world.

The world is what outlives a driver: transactions and the log. Each step of the plan is applied to it, with
each possible fault, until a later run has noted the micro-batch. Everything is explored, nothing is random.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pulsar_spark.errors import NotReadyError, PulsarError, TransactionError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink import commit_plan, commit_records
from pulsar_spark.spark.sink.commit_plan import CommitAction, CommitPlan, CommitStage, plan_commit
from pulsar_spark.spark.sink.commit_records import (
    CommitRecord,
    CommittedRecord,
    Intent,
    LogState,
    OpenedRecord,
)

S, A = CommitStage, CommitAction
TOPIC = TopicName.parse("spark-transactions-query")
BATCH = 7
BEFORE = (Intent(BATCH - 1, (TxnId(9, 9),)), CommittedRecord(TxnId(9, 9)))
ENDED, UNREACHABLE = TransactionError("had ended"), NotReadyError("no broker")

# In each run two tasks succeed, and a killed attempt leaves a transaction open.
WRITTEN, IN_A_RUN = 2, 3
MAX_RUNS = 4
FAULTS = 2

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class BrokenPromiseError(Exception):
    """Rows are missing, there twice or hidden, and nobody has told the user; or the query never gets on."""


def promise(is_kept: bool, broken: str) -> None:
    if not is_kept:
        raise BrokenPromiseError(broken)


@dataclass(frozen=True)
class World:
    """What outlives a driver.

    Attributes:
        states: of the transactions, in the order in which they were opened.
        log: its records. A marker is visible when its transaction is committed, and hides what follows it
            while its transaction is open.
        drivers: how many have begun to write to the log.
        faults: how many may still come.
        in_flight: a transaction whose commit a dead driver has sent, and the broker has not taken yet.
        is_deleted: whether the log was deleted.
        is_warned: whether a driver has warned of lost records.
        is_late: whether transactions have timed out.
        is_cut_off: whether the broker could not be reached.
    """

    states: tuple[str, ...] = ()
    log: tuple[CommitRecord, ...] = BEFORE
    drivers: int = 1
    faults: int = FAULTS
    in_flight: TxnId | None = None
    is_deleted: bool = False
    is_warned: bool = False
    is_late: bool = False
    is_cut_off: bool = False

    def state_of(self, transaction: TxnId) -> str:
        return COMMITTED if transaction in BEFORE[0].transactions else self.states[transaction.least_bits]

    def ended(self, transaction: TxnId, state: str) -> World:
        states = list(self.states)
        states[transaction.least_bits] = state
        return replace(self, states=tuple(states))

    def appended(self, *records: CommitRecord) -> World:
        return replace(self, log=(*self.log, *records))

    def with_fault(self, **more: Any) -> World:
        return replace(self, faults=self.faults - 1, **more)

    def visible(self) -> LogState:
        """What a driver reads."""
        records = []
        for record in self.log:
            if isinstance(record, CommittedRecord):
                state = self.state_of(record.transaction)
                if state == OPEN:
                    break
                if state == ABORTED:
                    continue
            records.append(record)
        return LogState().after(records)

    def begin_run(self) -> tuple[World, tuple[TxnId, ...]]:
        """Let tasks announce their transactions and write; returns the transactions that have succeeded."""
        begun = [TxnId(0, len(self.states) + number) for number in range(IN_A_RUN)]
        world = replace(self, states=self.states + (OPEN,) * IN_A_RUN).appended(*map(OpenedRecord, begun))
        return world, tuple(begun[:WRITTEN])

    def runs(self) -> list[list[str]]:
        """The states of the transactions of each run whose tasks succeeded."""
        return [list(self.states[at : at + WRITTEN]) for at in range(0, len(self.states), IN_A_RUN)]

    def check(self) -> None:
        """What must be true at any time."""
        killed = self.states[WRITTEN::IN_A_RUN]
        promise(COMMITTED not in killed, "rows of a killed attempt are in the topic")
        if sum(COMMITTED in run for run in self.runs()) > 1:
            promise(self.is_deleted, "rows are there twice")
            promise(self.is_warned, "rows are there twice, without a warning")

    def timed_out(self) -> Iterator[World]:
        """The time of one open transaction is over, or that of all of them."""
        still_open = [number for number, state in enumerate(self.states) if state == OPEN]
        for over in [*([number] for number in still_open), still_open]:
            states = [ABORTED if number in over else state for number, state in enumerate(self.states)]
            yield replace(self.with_fault(is_late=True), states=tuple(states))

    def landed(self) -> Iterator[World]:
        """The broker takes the commit that is in flight, or it is lost."""
        if self.in_flight is not None:
            lost = replace(self, in_flight=None)
            yield lost
            yield do_one(lost, A.COMMIT, self.in_flight)[0]


# ---- the steps


def do_one(world: World, action: CommitAction, transaction: TxnId) -> tuple[World, PulsarError | None]:
    """Do what a step does with one transaction; the broker's answer."""
    if world.state_of(transaction) != OPEN:
        return world, ENDED
    if action is A.MARK:
        return world.appended(CommittedRecord(transaction)), None
    if action is A.COMMIT:
        return world.ended(transaction, COMMITTED), None
    if action in (A.ABORT, A.TRY_ABORT):
        return world.ended(transaction, ABORTED), None
    assert action is A.ADD_LOG
    return world, None


def do(world: World, plan: CommitPlan) -> tuple[World, dict[TxnId, PulsarError]]:
    """Take a step without a fault."""
    action, transactions = plan.step
    failures = {}
    if plan.stage is S.COMMIT_FIRST:
        marked = all(CommittedRecord(each) in world.log for each in plan.transactions)
        promise(marked and plan.intent in world.log, "a commit is begun that a restart cannot find")
    if action is A.WRITE_INTENT:
        assert plan.intent is not None
        warning = commit_records.lost_history(
            world.visible(), BATCH, drivers_before=world.drivers, is_found_again=False
        )
        world = replace(world, drivers=world.drivers + 1, is_warned=world.is_warned or warning is not None)
        return world.appended(plan.intent), failures
    if action is A.TRIM_LOG:
        before = list(itertools.takewhile(lambda record: record != plan.intent, world.log))
        return replace(world, log=world.log[len(before) :]), failures
    for transaction in transactions:
        world, error = do_one(world, action, transaction)
        if error is not None:
            failures[transaction] = error
    return world, failures


# What a fault leaves: the world, and the failures that the driver sees; None: it has died.
Outcome = tuple[World, dict[TxnId, PulsarError] | None]


def faults(world: World, plan: CommitPlan) -> Iterator[Outcome]:
    """Each way that a step can go wrong."""
    action, transactions = plan.step
    yield world.with_fault(), None
    yield do(world.with_fault(), plan)[0], None
    yield from (do(late, plan) for late in world.timed_out())
    if action in (A.WRITE_INTENT, A.TRIM_LOG):
        return
    for each in transactions:
        others = [other for other in transactions if other != each]
        # The driver dies when one is done, or sent; or one is not reached, or its answer is lost.
        yield do_one(world.with_fault(), action, each)[0], None
        if action is A.COMMIT:
            yield world.with_fault(in_flight=each), None
        for has_effect, error in itertools.product((False, True), (UNREACHABLE, ENDED)):
            if error is ENDED and (not has_effect or action not in (A.COMMIT, A.ABORT, A.TRY_ABORT)):
                continue
            after = world.with_fault(is_cut_off=True)
            failures: dict[TxnId, PulsarError] = {each: error}
            for done in [each, *others] if has_effect else others:
                after, answer = do_one(after, action, done)
                if answer is not None:
                    failures.setdefault(done, answer)
            in_order = {done: failures[done] for done in transactions if done in failures}
            yield after, in_order


# ---- the exploration


def explore(*starts: World) -> int:
    """Explore all that can happen from the first run on; returns how many different situations there are.

    Raises:
        BrokenPromiseError: a promise is broken.
    """
    seen: set[Any] = set()
    left: list[tuple[World, CommitPlan | None, tuple[TxnId, ...]]] = [(start, None, ()) for start in starts]
    while left:
        world, plan, written = left.pop()
        world.check()
        key = (
            world,
            plan and (plan.stage, plan.log, plan.intent, plan.is_replay, plan.unknown, str(plan.error)),
        )
        if key in seen:
            continue
        seen.add(key)
        left += ((after, plan, written) for after in world.landed())
        if plan is None:
            left += (
                (begun, plan_commit(BATCH, written, begun.visible(), TOPIC), written)
                for begun, written in begins(world)
            )
        elif plan.step.action is A.END:
            check_end(world)
        elif plan.step.action is A.FAIL:
            check_failure(world, plan)
            left += ((after, None, ()) for after in after_failure(world, written))
        else:
            outcomes: list[Outcome] = [do(world, plan)]
            if world.faults:
                outcomes += faults(world, plan)
            for after, failures in outcomes:
                if failures is None or is_hidden(after, plan):
                    left.append((after, None, ()))
                else:
                    left.append((after, plan.after(after.visible(), failures), written))
    return len(seen)


def begins(world: World) -> Iterator[tuple[World, tuple[TxnId, ...]]]:
    """Each way that the next run can begin."""
    if len(world.runs()) == MAX_RUNS:
        promise(is_for_good(world), "the query never gets on")
        return
    yield world.begin_run()
    if world.faults:
        yield from (late.begin_run() for late in world.timed_out())
        yield world.with_fault(log=(), drivers=0, is_deleted=True).begin_run()


def is_hidden(world: World, plan: CommitPlan) -> bool:
    """Whether the intent that was written now does not become visible; this is an error of the log."""
    return plan.step.action is A.WRITE_INTENT and world.visible().intent != plan.intent


def after_failure(world: World, written: tuple[TxnId, ...]) -> Iterator[World]:
    """What Spark's call of abort leaves; the driver may die before."""
    after = world
    for transaction in commit_plan.transactions_to_abort(world.visible(), written, BATCH):
        after = do_one(after, A.TRY_ABORT, transaction)[0]
    yield after
    if world.faults:
        yield world.with_fault()


def is_for_good(world: World) -> bool:
    """Whether a part of a run is in the topic and the rest is aborted: the one case for the user."""
    return world.is_late and any(COMMITTED in run and ABORTED in run for run in world.runs())


def check_end(world: World) -> None:
    """What must be true when Spark notes the micro-batch."""
    runs = [run for run in world.runs() if OPEN not in run]
    promise([COMMITTED] * WRITTEN in runs, "rows are missing")
    if world.is_deleted:
        return
    promise(all(len(set(run)) == 1 for run in runs), "rows are missing")
    if not world.is_cut_off:
        promise(OPEN not in world.states, "an open transaction holds back readers")


def check_failure(world: World, plan: CommitPlan) -> None:
    """What must be true of the error that the user sees."""
    promise(plan.error is not None, "the query fails without an error")
    if plan.intent is None or plan.error is UNREACHABLE:
        return
    text, states = str(plan.error), [world.state_of(each) for each in plan.intent.transactions]
    if "stay there" in text:
        promise(is_for_good(world), f"this is not true: {text}")
    else:
        promise(COMMITTED not in states, f"this is not true: {text}")
        promise(world.is_cut_off or OPEN not in states, "an open transaction holds back readers")


STARTS = [World(), World(log=(), drivers=0)]  # after another micro-batch, and with a new log


def test_whatever_happens_each_row_is_there_once_or_the_user_is_told():
    assert explore(*STARTS) > 5000


# ---- planted faults, each of which the exploration must find


def row(stage: CommitStage, **changed: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """Plant another action, other transactions or another next stage in a row of the plan's table."""
    return lambda patch: patch.setitem(
        commit_plan._TABLE, stage, commit_plan._TABLE[stage]._replace(**changed)
    )


def function(module: Any, name: str, planted: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(module, name, planted)


def to(stage: CommitStage) -> Callable[..., CommitPlan]:
    return commit_plan._to(stage)


def nothing(_: CommitPlan) -> tuple[TxnId, ...]:
    return ()


lost_history = commit_records.lost_history

PLANTED = {
    "the intent is not written": row(S.WRITE_INTENT, action=A.READ_LOG, transactions=nothing),
    "no markers": row(S.ADD_LOG, after=to(S.COMMIT_FIRST)),
    "a marker in the first transaction only": row(S.MARK, transactions=lambda plan: plan.transactions[:1]),
    "a refused marker is ignored": row(S.MARK, after=to(S.COMMIT_FIRST)),
    "the others are committed first": row(S.COMMIT_FIRST, transactions=lambda plan: plan.transactions[1:]),
    "the others are not committed": row(S.COMMIT_FIRST, after=to(S.TRIM_LOG)),
    "the first commit is not looked for": row(S.COMMIT_FIRST, after=to(S.COMMIT_REST)),
    "the first commit counts as lost": row(S.FIND_FIRST, after=to(S.GIVE_UP)),
    "nothing is aborted in the end": row(S.GIVE_UP, transactions=nothing),
    "the other commits are not looked for": row(S.COMMIT_REST, after=to(S.TRIM_LOG)),
    "lost commits are accepted": row(S.FIND_REST, after=to(S.TRIM_LOG)),
    "an earlier commit is not looked for": row(S.FIND_EARLIER, after=to(S.ABORT_EARLIER_REST)),
    "an earlier commit counts as aborted": row(S.ABORT_EARLIER, after=to(S.ABORT_EARLIER_REST)),
    "the earlier first one stays open": row(S.ABORT_EARLIER, transactions=nothing),
    "the earlier others stay open": row(S.ABORT_EARLIER_REST, transactions=nothing),
    "a replay does not commit the others": row(S.REPORT_REPLAY, after=to(S.READ_LOG)),
    "a replay writes again": row(S.REPORT_REPLAY, after=to(S.ABORT_OPEN)),
    "what the tasks wrote is aborted": row(S.ABORT_OPEN, transactions=lambda plan: tuple(plan.log.opened)),
    "what killed attempts opened stays open": row(S.ABORT_OPEN, transactions=nothing),
    "a replay leaves its own open": row(
        S.ABORT_OPEN, transactions=lambda plan: tuple(plan.log.opened.difference(plan.written))
    ),
    "the earlier intent is not looked at": function(
        commit_plan, "_if_first_is_visible", lambda plan, then, otherwise: plan._at(otherwise)
    ),
    "any marker counts as the first": function(
        commit_plan,
        "_if_first_is_visible",
        lambda plan, then, otherwise: plan._at(then if plan.log.committed else otherwise),
    ),
    "a failure aborts a commit that has begun": function(
        commit_plan, "transactions_to_abort", lambda log, written, batch: sorted(log.opened.union(written))
    ),
    "a deleted log is not warned of": function(
        commit_records, "lost_history", lambda state, batch, **more: lost_history(state, 0, **more)
    ),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_fault_breaks_a_promise(monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(BrokenPromiseError):
        explore(*STARTS)
