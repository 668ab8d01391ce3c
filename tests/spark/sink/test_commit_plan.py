"""The table of a commit: at each stage, what is done, and where each answer leads."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from pulsar_spark.errors import NotReadyError, PulsarError, TransactionError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink.commit_plan import (
    CommitAction,
    CommitPlan,
    CommitStage,
    plan_commit,
    transactions_to_abort,
)
from pulsar_spark.spark.sink.commit_records import Intent, LogState
from tests.loops import for_each

S, A = CommitStage, CommitAction
TOPIC = TopicName.parse("spark-transactions-query")
ONE, TWO, THREE, OLD, OPEN = (TxnId(0, number) for number in range(5))
ENDED, UNREACHABLE = TransactionError("not there"), NotReadyError("no broker")
NONE: frozenset[TxnId] = frozenset()


def plan_at(stage: CommitStage, *, is_replay: bool = False, committed=NONE, **more) -> CommitPlan:
    return CommitPlan(
        batch=7,
        written=(ONE, TWO, THREE),
        topic=TOPIC,
        stage=stage,
        log=LogState(committed=frozenset(committed), opened=frozenset([ONE, OPEN])),
        intent=Intent(7, (ONE, TWO, THREE)),
        is_replay=is_replay,
        **more,
    )


# ---- where a commit begins

STARTS = {
    "an empty log": (LogState(), S.ABORT_OPEN),
    "an intent of the batch before": (LogState(Intent(6, (OLD,))), S.ABORT_OPEN),
    "an intent of this batch": (LogState(Intent(7, (OLD,))), S.ABORT_EARLIER),
    "its first marker is visible": (
        LogState(Intent(7, (OLD, ONE)), frozenset([OLD])),
        S.REPORT_REPLAY,
    ),
    "another marker is visible": (LogState(Intent(7, (OLD, ONE)), frozenset([ONE])), S.ABORT_EARLIER),
    "an intent of the batch after": (LogState(Intent(8, (OLD,))), S.FAIL),
}


@pytest.mark.parametrize(("log", "stage"), STARTS.values(), ids=STARTS.keys())
def test_the_log_says_where_a_commit_begins(log, stage):
    assert plan_commit(7, [ONE, TWO], log, TOPIC).stage is stage


def test_an_older_checkpoint_is_an_error_that_says_so():
    error = plan_commit(7, [ONE], LogState(Intent(8, (OLD,))), TOPIC).error
    assert isinstance(error, TransactionError)
    assert error.topic == str(TOPIC)
    assert "the same query has already committed micro-batch 8" in str(error)


# ---- what is done at each stage

ALL, REST, FIRST = (ONE, TWO, THREE), (TWO, THREE), (ONE,)

STEPS = {
    S.ABORT_EARLIER: (A.ABORT, FIRST),
    S.FIND_EARLIER: (A.READ_LOG, ()),
    S.ABORT_EARLIER_REST: (A.ABORT, REST),
    S.REPORT_REPLAY: (A.REPORT_REPLAY, ()),
    S.READ_LOG: (A.READ_LOG, ()),
    S.ABORT_OPEN: (A.TRY_ABORT, (OPEN,)),
    S.WRITE_INTENT: (A.WRITE_INTENT, ALL),
    S.ADD_LOG: (A.ADD_LOG, ALL),
    S.MARK: (A.MARK, ALL),
    S.COMMIT_FIRST: (A.COMMIT, FIRST),
    S.FIND_FIRST: (A.READ_LOG, ()),
    S.GIVE_UP: (A.TRY_ABORT, ALL),
    S.COMMIT_REST: (A.COMMIT, REST),
    S.FIND_REST: (A.AWAIT_MARKERS, ()),
    S.TRIM_LOG: (A.TRIM_LOG, ()),
    S.FAIL: (A.FAIL, ()),
    S.END: (A.END, ()),
}


@for_each("stage", S)
def test_each_stage_has_its_step(stage):
    assert plan_at(stage).step == STEPS[stage]


def test_what_is_known_to_be_committed_is_not_committed_again():
    assert plan_at(S.COMMIT_REST, committed=[ONE, TWO]).step == (A.COMMIT, (THREE,))


def test_a_replay_aborts_all_that_its_own_tasks_have_opened():
    replay = plan_at(S.ABORT_OPEN, is_replay=True)
    assert replay.step.transactions == (OPEN,)
    assert plan_commit(7, [OPEN], replay.log, TOPIC).step.transactions == (ONE,)


# ---- where each answer leads: committed markers in the log, failures, the next stage

Answer = tuple[Collection[TxnId], dict[TxnId, PulsarError], CommitStage]

NEXT: dict[CommitStage, list[Answer]] = {
    S.ABORT_EARLIER: [(NONE, {}, S.ABORT_EARLIER_REST), (NONE, {ONE: ENDED}, S.FIND_EARLIER)],
    S.FIND_EARLIER: [({ONE}, {}, S.REPORT_REPLAY), ({TWO}, {}, S.ABORT_EARLIER_REST)],
    S.ABORT_EARLIER_REST: [(NONE, {}, S.READ_LOG), (NONE, {TWO: ENDED, THREE: ENDED}, S.READ_LOG)],
    S.REPORT_REPLAY: [({ONE}, {}, S.COMMIT_REST)],
    S.READ_LOG: [(NONE, {}, S.ABORT_OPEN)],
    S.ABORT_OPEN: [(NONE, {}, S.WRITE_INTENT), (NONE, {OPEN: ENDED}, S.WRITE_INTENT)],
    S.WRITE_INTENT: [(NONE, {}, S.ADD_LOG)],
    S.ADD_LOG: [(NONE, {}, S.MARK), (NONE, {TWO: ENDED}, S.GIVE_UP)],
    S.MARK: [(NONE, {}, S.COMMIT_FIRST), (NONE, {ONE: ENDED}, S.GIVE_UP)],
    S.COMMIT_FIRST: [(NONE, {}, S.COMMIT_REST), (NONE, {ONE: ENDED}, S.FIND_FIRST)],
    S.FIND_FIRST: [({ONE}, {}, S.COMMIT_REST), ({TWO}, {}, S.GIVE_UP)],
    S.GIVE_UP: [(NONE, {}, S.FAIL), (NONE, {ONE: ENDED}, S.FAIL)],
    S.COMMIT_REST: [(NONE, {}, S.TRIM_LOG), (NONE, {TWO: ENDED}, S.FIND_REST)],
    S.FIND_REST: [({TWO, THREE}, {}, S.TRIM_LOG), ({TWO}, {}, S.FAIL)],
    S.TRIM_LOG: [(NONE, {}, S.END)],
    S.FAIL: [(NONE, {}, S.FAIL)],
    S.END: [(NONE, {}, S.END)],
}


@for_each("stage", S)
def test_each_answer_has_its_next_stage(stage):
    for committed, failures, after in NEXT[stage]:
        plan = plan_at(stage, unknown=(TWO, THREE), error=ENDED)
        assert plan.after(LogState(committed=frozenset(committed)), failures).stage is after


@pytest.mark.parametrize("stage", [S.COMMIT_REST, S.FIND_REST])
def test_a_replay_reads_the_log_again_and_trims_nothing(stage):
    plan = plan_at(stage, is_replay=True, unknown=(TWO,))
    plan = plan.after(LogState(committed=frozenset([TWO])), {})
    assert plan.stage is S.READ_LOG
    assert plan.after(plan.log, {}).after(plan.log, {}).stage is S.END


def test_without_rows_there_is_no_intent():
    plan = plan_commit(7, [], LogState(opened=frozenset([OPEN])), TOPIC)
    assert plan.step == (A.TRY_ABORT, (OPEN,))
    assert plan.after(plan.log, {}).stage is S.END


def test_the_intent_is_of_what_the_tasks_wrote():
    plan = plan_commit(7, [TWO, ONE], LogState(Intent(6, (OLD,))), TOPIC)
    assert plan.after(plan.log, {}).intent == Intent(7, (TWO, ONE), OLD)


@pytest.mark.parametrize("stage", [stage for stage in S if STEPS[stage][0] in (A.ABORT, A.COMMIT)])
@pytest.mark.parametrize("others", [{}, {ONE: ENDED}])
def test_any_other_error_is_raised_as_it_is(stage, others):
    plan = plan_at(stage).after(LogState(), {**others, TWO: UNREACHABLE})
    assert plan.stage is S.FAIL
    assert plan.error is UNREACHABLE


@pytest.mark.parametrize(
    ("failures", "after"),
    [
        ({ONE: ENDED, TWO: UNREACHABLE}, S.GIVE_UP),
        ({ONE: UNREACHABLE, TWO: ENDED}, S.FAIL),
        ({TWO: UNREACHABLE}, S.FAIL),
    ],
)
def test_a_transaction_that_ended_before_its_marker_has_all_of_them_aborted_at_once(failures, after):
    plan = plan_at(S.ADD_LOG).after(LogState(), failures)
    assert plan.stage is after
    assert (plan.error is UNREACHABLE) == (after is S.FAIL)


@pytest.mark.parametrize("stage", [S.ABORT_OPEN, S.GIVE_UP])
def test_what_cannot_be_aborted_is_left_to_its_time(stage):
    plan = plan_at(stage, error=ENDED).after(LogState(), {ONE: UNREACHABLE})
    assert plan.error is ENDED
    assert plan.stage is (S.FAIL if stage is S.GIVE_UP else S.WRITE_INTENT)


# ---- errors


def test_nothing_is_in_the_topic_until_the_first_is_committed():
    for stage, lost in [(S.ADD_LOG, TWO), (S.COMMIT_FIRST, ONE)]:
        error = plan_at(stage).after(LogState(), {lost: ENDED}).error
        assert f"transactions {lost} were aborted by" in str(error)
        assert "none of its rows is in the topic" in str(error)
        assert error is not None
        assert error.__cause__ is ENDED


def test_a_marker_that_is_refused_is_the_error_itself():
    assert plan_at(S.MARK).after(LogState(), {ONE: ENDED}).error is ENDED


def test_what_is_in_the_topic_for_good_is_counted():
    plan = plan_at(S.COMMIT_REST).after(LogState(), {TWO: ENDED, THREE: ENDED})
    error = plan.after(LogState(committed=frozenset([ONE, TWO])), {}).error
    assert f"transactions {THREE} were aborted" in str(error)
    assert "the rows of 2 other transactions are in the topic and stay there" in str(error)
    assert str(TOPIC) in str(error)


# ---- what a failed micro-batch aborts

ABORTED = {
    "no intent": (LogState(opened=frozenset([OPEN])), [ONE, TWO, OPEN]),
    "an intent of another batch": (LogState(Intent(6, (ONE,)), NONE, frozenset([OPEN])), [ONE, TWO, OPEN]),
    "an intent of this batch": (LogState(Intent(7, (ONE,)), NONE, frozenset([OPEN])), [TWO, OPEN]),
}


@pytest.mark.parametrize(("log", "expected"), ABORTED.values(), ids=ABORTED.keys())
def test_what_a_commit_has_begun_is_not_aborted(log, expected):
    assert transactions_to_abort(log, [TWO, ONE], 7) == expected


@for_each("stage", S)
def test_a_step_is_taken_again_and_no_marker_is_sent_in_a_transaction_that_has_ended(stage):
    """Whether it has ended meanwhile is found where the log is added to it."""
    assert plan_at(stage).again().stage is (S.ADD_LOG if stage is S.MARK else stage)
