"""The steps of a commit: which they are, in order, and what each answer changes."""

from __future__ import annotations

import pytest

from pulsar_spark.errors import AuthError, PulsarError, TransactionError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink.commit_records import Intent, LogState
from pulsar_spark.spark.sink.commit_steps import CommitAction as A
from pulsar_spark.spark.sink.commit_steps import commit_steps, transactions_to_abort
from tests.loops import for_each

TOPIC = TopicName.parse("spark-transactions-query")
ONE, TWO, THREE, OLD, OPEN, NEW = (TxnId(0, number) for number in range(6))
ALL, REST, FIRST = (ONE, TWO, THREE), (TWO, THREE), (ONE,)
ENDED, REFUSED = TransactionError("not there"), AuthError("not allowed")
NONE: frozenset[TxnId] = frozenset()

BEFORE = Intent(6, (OLD,))
OWN = Intent(7, ALL)
EMPTY, EARLIER = LogState(), LogState(OWN)


def seen(*committed: TxnId, opened: tuple[TxnId, ...] = ()) -> LogState:
    """The log with the intent of this micro-batch, and visible markers."""
    return LogState(OWN, frozenset(committed), frozenset(opened))


class Answers:
    """What the steps find: the logs that are read, in order, and errors of the first step with an action."""

    def __init__(self, *read: LogState, **failures: dict[TxnId, PulsarError]) -> None:
        self.read = read
        self.failures = {A[name]: errors for name, errors in failures.items()}


def take(log: LogState, answers: Answers, written=ALL) -> list[tuple]:
    """Take all steps; each is an action with its transactions, if any. The last one may be an error."""
    taken: list[tuple] = []
    read, errors = iter(answers.read), dict(answers.failures)
    steps = commit_steps(7, written, log, TOPIC)
    try:
        step = next(steps)
        while True:
            if step.transactions or step.action is not A.TRY_ABORT:
                taken.append((step.action, *([step.transactions] if step.transactions else [])))
            if step.action in (A.READ_LOG, A.AWAIT_MARKERS):
                log = next(read, log)
            step = steps.send((log, errors.pop(step.action, {}) if step.transactions else {}))
    except StopIteration:
        pass
    except PulsarError as error:
        taken.append((type(error), str(error)))
    return taken


COMMIT = [(A.WRITE_INTENT,), (A.MARK, ALL), (A.COMMIT, FIRST), (A.COMMIT, REST), (A.TRIM_LOG,)]

# The log at the beginning, what the steps find, and the steps.
COMMITS = {
    "an empty log": (EMPTY, Answers(), COMMIT),
    "an earlier micro-batch": (LogState(BEFORE), Answers(), COMMIT),
    "open transactions": (
        LogState(BEFORE, NONE, frozenset([ONE, OPEN])),
        Answers(),
        [(A.TRY_ABORT, (OPEN,)), *COMMIT],
    ),
    "one cannot be aborted": (
        LogState(BEFORE, NONE, frozenset([OPEN])),
        Answers(TRY_ABORT={OPEN: ENDED}),
        [(A.TRY_ABORT, (OPEN,)), *COMMIT],
    ),
    "the first had ended, committed": (
        EMPTY,
        Answers(seen(ONE), COMMIT={ONE: ENDED}),
        [*COMMIT[:3], (A.READ_LOG,), *COMMIT[3:]],
    ),
    "it and the second had": (
        EMPTY,
        Answers(seen(ONE, TWO), COMMIT={ONE: ENDED}),
        [*COMMIT[:3], (A.READ_LOG,), (A.COMMIT, (THREE,)), COMMIT[4]],
    ),
}


@pytest.mark.parametrize(("log", "answers", "steps"), COMMITS.values(), ids=COMMITS.keys())
def test_the_steps_of_a_commit(log, answers, steps):
    assert take(log, answers) == steps


def test_the_intent_names_what_the_tasks_wrote_and_the_intent_before():
    steps = commit_steps(7, [TWO, ONE], LogState(BEFORE), TOPIC)
    next(steps)
    assert steps.send((LogState(BEFORE), {})) == (A.WRITE_INTENT, (), Intent(7, (TWO, ONE), OLD))


def test_without_rows_there_is_no_intent():
    assert take(LogState(opened=frozenset([OPEN])), Answers(), written=()) == [(A.TRY_ABORT, (OPEN,))]


# ---- the rest of an earlier run

ABORTED_AND_COMMITTED = [
    (A.ABORT, FIRST),
    (A.ABORT, REST),
    (A.READ_LOG,),
    (A.WRITE_INTENT,),
    (A.MARK, (NEW,)),
    (A.COMMIT, (NEW,)),
    (A.COMMIT,),
    (A.TRIM_LOG,),
]

SETTLED = {
    "its first is committed": (
        seen(ONE, TWO),
        Answers(),
        [(A.REPORT_REPLAY,), (A.COMMIT, (THREE,)), (A.READ_LOG,)],
    ),
    "its first had ended, committed": (
        EARLIER,
        Answers(seen(ONE), ABORT={ONE: ENDED}),
        [(A.ABORT, FIRST), (A.READ_LOG,), (A.REPORT_REPLAY,), (A.COMMIT, REST), (A.READ_LOG,)],
    ),
    "others had ended, committed": (
        seen(ONE),
        Answers(seen(*ALL), COMMIT={TWO: ENDED, THREE: ENDED}),
        [(A.REPORT_REPLAY,), (A.COMMIT, REST), (A.AWAIT_MARKERS,), (A.READ_LOG,)],
    ),
    "its first is open": (EARLIER, Answers(), ABORTED_AND_COMMITTED),
    "another one is committed": (seen(TWO), Answers(), ABORTED_AND_COMMITTED),
    "its first had ended, aborted": (
        EARLIER,
        Answers(seen(TWO), ABORT={ONE: ENDED}),
        [(A.ABORT, FIRST), (A.READ_LOG,), *ABORTED_AND_COMMITTED[1:]],
    ),
}


@pytest.mark.parametrize(("log", "answers", "steps"), SETTLED.values(), ids=SETTLED.keys())
def test_an_earlier_run_is_committed_or_aborted_first(log, answers, steps):
    assert take(log, answers, written=(NEW,)) == steps


def test_a_replay_aborts_all_that_its_own_tasks_have_opened():
    log = seen(ONE, TWO, THREE)
    again = seen(ONE, TWO, THREE, opened=(OPEN, NEW))
    assert take(log, Answers(again), written=(NEW,))[-2:] == [(A.READ_LOG,), (A.TRY_ABORT, (OPEN, NEW))]


def test_transactions_that_become_visible_by_the_abort_are_aborted_too():
    again = LogState(OWN, NONE, frozenset([OPEN, NEW]))
    steps = take(EARLIER, Answers(again), written=(NEW,))
    assert steps[:4] == [*ABORTED_AND_COMMITTED[:3], (A.TRY_ABORT, (OPEN,))]


# ---- errors

NOTHING = "none of its rows is in the topic"

FAILURES = {
    "one had ended before its marker": (Answers(MARK={TWO: ENDED}), (A.MARK, ALL), f"{TWO} were aborted by"),
    "two had": (Answers(MARK={ONE: ENDED, TWO: ENDED}), (A.MARK, ALL), f"{ONE}, {TWO} were aborted by"),
    "the first was aborted": (Answers(EARLIER, COMMIT={ONE: ENDED}), (A.READ_LOG,), f"{ONE} were aborted by"),
    "it was, and another one committed": (
        Answers(seen(TWO), COMMIT={ONE: ENDED}),
        (A.READ_LOG,),
        f"{ONE} were",
    ),
}


@pytest.mark.parametrize(("answers", "last", "text"), FAILURES.values(), ids=FAILURES.keys())
def test_all_are_aborted_if_one_is_lost_before_the_first_commit(answers, last, text):
    *steps, (error, found) = take(EMPTY, answers)
    assert steps[-2:] == [last, (A.TRY_ABORT, ALL)]
    assert (error, text in found, NOTHING in found) == (TransactionError, True, True)


def test_the_error_of_the_broker_is_the_cause():
    steps = commit_steps(7, FIRST, EMPTY, TOPIC)
    next(steps)
    while steps.send((EMPTY, {})).action is not A.MARK:
        pass
    steps.send((EMPTY, {ONE: ENDED}))
    with pytest.raises(TransactionError) as raised:
        steps.send((EMPTY, {}))
    assert (raised.value.__cause__, raised.value.topic) == (ENDED, str(TOPIC))


def test_what_is_in_the_topic_for_good_is_counted():
    answers = Answers(seen(ONE, TWO), COMMIT={TWO: ENDED, THREE: ENDED})
    *steps, (error, text) = take(seen(ONE), answers)
    assert (steps[-1], error) == ((A.AWAIT_MARKERS,), TransactionError)
    assert f"transactions {THREE} were aborted" in text
    assert "the rows of 2 other transactions are in the topic and stay there" in text
    assert str(TOPIC) in text


def test_an_older_checkpoint_is_an_error_that_says_so():
    ((error, text),) = take(LogState(Intent(8, (OLD,))), Answers())
    assert error is TransactionError
    assert "the same query has already committed micro-batch 8" in text
    assert str(TOPIC) in text


@for_each("action", [A.ABORT, A.MARK, A.COMMIT])
@for_each("others", [{}, {ONE: ENDED}])
def test_any_other_error_is_raised_as_it_is(action, others):
    log = EARLIER if action is A.ABORT else EMPTY
    steps = take(log, Answers(**{action.name: {**others, TWO: REFUSED}}))
    assert (steps[-2][0], steps[-1]) == (action, (AuthError, str(REFUSED)))


# ---- what a failed micro-batch aborts

ABORTED = {
    "no intent": (LogState(opened=frozenset([OPEN])), [ONE, TWO, OPEN]),
    "an intent of another batch": (LogState(Intent(6, (ONE,)), NONE, frozenset([OPEN])), [ONE, TWO, OPEN]),
    "an intent of this batch": (LogState(Intent(7, (ONE,)), NONE, frozenset([OPEN])), [TWO, OPEN]),
}


@pytest.mark.parametrize(("log", "expected"), ABORTED.values(), ids=ABORTED.keys())
def test_what_a_commit_has_begun_is_not_aborted(log, expected):
    assert transactions_to_abort(log, [TWO, ONE], 7) == expected
