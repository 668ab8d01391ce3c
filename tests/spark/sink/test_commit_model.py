"""All ways that the commit of one micro-batch can go, with faults at any step: a model of its world.

The world is what outlives a driver: transactions and the log. Each step is applied to it, with each possible
fault, until a later run has noted the micro-batch. Everything is explored, nothing is random.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pulsar_spark.errors import NotReadyError, PulsarError, TransactionError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink import commit_records, commit_steps
from pulsar_spark.spark.sink.commit_records import (
    CommitRecord,
    CommittedRecord,
    Intent,
    LogState,
    OpenedRecord,
)
from pulsar_spark.spark.sink.commit_steps import CommitAction as A
from pulsar_spark.spark.sink.commit_steps import CommitStep, Failures, Steps

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


def do_one(world: World, action: A, transaction: TxnId) -> tuple[World, PulsarError | None]:
    """Do what a step does with one transaction; the broker's answer."""
    if world.state_of(transaction) != OPEN:
        return world, ENDED
    if action is A.MARK:
        return world.appended(CommittedRecord(transaction)), None
    return world.ended(transaction, COMMITTED if action is A.COMMIT else ABORTED), None


def do(world: World, step: CommitStep) -> tuple[World, dict[TxnId, PulsarError]]:
    """Take a step without a fault."""
    action, transactions, intent = step
    failures: dict[TxnId, PulsarError] = {}
    if action is A.WRITE_INTENT:
        assert intent is not None
        warning = commit_records.lost_history(
            world.visible(), BATCH, drivers_before=world.drivers, is_found_again=False
        )
        world = replace(world, drivers=world.drivers + 1, is_warned=world.is_warned or warning is not None)
        return world.appended(intent), failures
    if action is A.TRIM_LOG:
        before = list(itertools.takewhile(lambda record: not is_current(record), world.log))
        return replace(world, log=world.log[len(before) :]), failures
    if action is A.COMMIT and transactions:
        check_commit(world, transactions)
    if action is A.MARK and any(world.state_of(each) != OPEN for each in transactions):
        # No marker is sent where the log cannot be added to each of them.
        return world, {each: ENDED for each in transactions if world.state_of(each) != OPEN}
    for transaction in transactions:
        world, error = do_one(world, action, transaction)
        if error is not None:
            failures[transaction] = error
    return world, failures


def is_current(record: CommitRecord) -> bool:
    return isinstance(record, Intent) and record.batch == BATCH


def check_commit(world: World, transactions: tuple[TxnId, ...]) -> None:
    """A restart must find what has to be committed together."""
    intent = world.visible().intent
    is_found = intent is not None and set(transactions) <= set(intent.transactions)
    promise(is_found, "a commit is begun that a restart cannot find")
    assert intent is not None
    if COMMITTED not in map(world.state_of, intent.transactions):
        promise(transactions == intent.transactions[:1], "a commit is begun that a restart cannot find")
        marked = all(CommittedRecord(each) in world.log for each in intent.transactions)
        promise(marked, "a commit is begun that a restart cannot find")


# What a fault leaves: the world, and the failures that the driver sees; None: it has died.
Outcome = tuple[World, dict[TxnId, PulsarError] | None]


def faults(world: World, step: CommitStep) -> Iterator[Outcome]:
    """Each way that a step can go wrong."""
    action, transactions, _ = step
    yield world.with_fault(), None
    yield do(world.with_fault(), step)[0], None
    yield from (do(late, step) for late in world.timed_out())
    if action in (A.WRITE_INTENT, A.TRIM_LOG):
        return
    for each in transactions:
        others = [other for other in transactions if other != each]
        # The driver dies when one is done, or sent; or one is not reached, or its answer is lost.
        yield do_one(world.with_fault(), action, each)[0], None
        if action is A.COMMIT:
            yield world.with_fault(in_flight=each), None
        for has_effect, error in itertools.product((False, True), (UNREACHABLE, ENDED)):
            if error is ENDED and (not has_effect or action is A.MARK):
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

Answer = tuple[LogState, Failures]


class Commit:
    """One run's commit, which goes on from its answers: a generator cannot be copied.

    Attributes:
        written: the transactions of the tasks that have succeeded.
        answers: those to the steps so far, in order.
        step: the next one; None where there is none.
        error: what the commit has raised, or None.
    """

    def __init__(self, begun: LogState, written: tuple[TxnId, ...], answers: tuple[Answer, ...] = ()) -> None:
        self.begun, self.written, self.answers = begun, written, answers
        self.step: CommitStep | None = None
        self.error: PulsarError | None = None
        steps = commit_steps.commit_steps(BATCH, written, begun, TOPIC)
        try:
            self.step = next(steps)
            for answer in answers:
                self.step = steps.send(answer)
        except StopIteration:
            self.step = None
        except PulsarError as error:
            self.step, self.error = None, error

    def after(self, world: World, failures: Failures) -> Commit:
        """The commit after a step, with the log as the driver knows it."""
        assert self.step is not None
        log = self.answers[-1][0] if self.answers else self.begun
        if self.step.action in (A.READ_LOG, A.AWAIT_MARKERS, A.WRITE_INTENT):
            log = world.visible()
        return Commit(self.begun, self.written, (*self.answers, (log, failures)))

    def key(self) -> Any:
        answers = tuple((log, tuple(failures.items())) for log, failures in self.answers)
        return self.begun, self.written, answers


def explore(*starts: World) -> int:
    """Explore all that can happen from the first run on; returns how many different situations there are.

    Raises:
        BrokenPromiseError: a promise is broken.
    """
    seen: set[Any] = set()
    left: list[tuple[World, Commit | None]] = [(start, None) for start in starts]
    while left:
        world, commit = left.pop()
        world.check()
        key = (world, commit and commit.key())
        if key in seen:
            continue
        seen.add(key)
        left += ((after, commit) for after in world.landed())
        if commit is None:
            left += ((begun, Commit(begun.visible(), written)) for begun, written in begins(world))
        elif commit.error is not None:
            check_failure(world, commit)
            left += ((after, None) for after in after_failure(world, commit.written))
        elif commit.step is None:
            check_end(world)
        else:
            outcomes: list[Outcome] = [do(world, commit.step)]
            if world.faults:
                outcomes += faults(world, commit.step)
            for after, failures in outcomes:
                if failures is None or is_hidden(after, commit.step):
                    left.append((after, None))
                else:
                    left.append((after, commit.after(after, failures)))
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


def is_hidden(world: World, step: CommitStep) -> bool:
    """Whether the intent that was written now does not become visible; this is an error of the log."""
    return step.action is A.WRITE_INTENT and world.visible().intent != step.intent


def after_failure(world: World, written: tuple[TxnId, ...]) -> Iterator[World]:
    """What Spark's call of abort leaves; the driver may die before."""
    after = world
    for transaction in commit_steps.transactions_to_abort(world.visible(), written, BATCH):
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


def check_failure(world: World, commit: Commit) -> None:
    """What must be true of the error that the user sees."""
    if commit.error is UNREACHABLE:
        return
    text = str(commit.error)
    states = [world.state_of(each) for each in commit.written]
    if "stay there" in text:
        promise(is_for_good(world), f"this is not true: {text}")
    else:
        promise(COMMITTED not in states, f"this is not true: {text}")
        promise(world.is_cut_off or OPEN not in states, "an open transaction holds back readers")


STARTS = [World(), World(log=(), drivers=0)]  # after another micro-batch, and with a new log


def test_whatever_happens_each_row_is_there_once_or_the_user_is_told():
    assert explore(*STARTS) > 5000


# ---- planted faults, each of which the exploration must find


def skips(action: A) -> Callable[..., Steps[None]]:
    """A driver that leaves out the steps of an action."""

    def faulty(batch: int, written: tuple[TxnId, ...], log: LogState, topic: TopicName) -> Steps[None]:
        steps = REAL_STEPS(batch, written, log, topic)
        step = next(steps, None)
        while step is not None:
            answer: Answer = (log, {}) if step.action is action else (yield step)
            log = answer[0]
            try:
                step = steps.send(answer)
            except StopIteration:
                step = None

    return faulty


def ignores(action: A) -> Callable[..., Steps[None]]:
    """A driver that takes each transaction of an action for one that had not ended."""

    def faulty(batch: int, written: tuple[TxnId, ...], log: LogState, topic: TopicName) -> Steps[None]:
        steps = REAL_STEPS(batch, written, log, topic)
        step = next(steps, None)
        while step is not None:
            log, failures = yield step
            try:
                step = steps.send((log, {} if step.action is action else failures))
            except StopIteration:
                step = None

    return faulty


REAL_STEPS, lost_history = commit_steps.commit_steps, commit_records.lost_history

PLANTED = {
    "the intent is not written": (commit_steps, "commit_steps", skips(A.WRITE_INTENT)),
    "no markers": (commit_steps, "commit_steps", skips(A.MARK)),
    "nothing is committed": (commit_steps, "commit_steps", skips(A.COMMIT)),
    "an earlier run's transactions stay open": (commit_steps, "commit_steps", skips(A.ABORT)),
    "the transactions of killed tasks stay open": (commit_steps, "commit_steps", skips(A.TRY_ABORT)),
    "the log is not read again": (commit_steps, "commit_steps", skips(A.READ_LOG)),
    "the last markers are not read": (commit_steps, "commit_steps", skips(A.AWAIT_MARKERS)),
    "a refused marker is ignored": (commit_steps, "commit_steps", ignores(A.MARK)),
    "a refused commit is ignored": (commit_steps, "commit_steps", ignores(A.COMMIT)),
    "a refused abort is ignored": (commit_steps, "commit_steps", ignores(A.ABORT)),
    "a failure aborts a commit that has begun": (
        commit_steps,
        "transactions_to_abort",
        lambda log, written, batch: sorted(log.opened.union(written)),
    ),
    "a deleted log is not warned of": (
        commit_records,
        "lost_history",
        lambda state, batch, **more: lost_history(state, 0, **more),
    ),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_fault_breaks_a_promise(monkeypatch, planted):
    monkeypatch.setattr(*planted)
    with pytest.raises(BrokenPromiseError):
        explore(*STARTS)
