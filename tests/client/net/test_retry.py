"""retry: which errors are tried again, how long it waits, and that it ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark import errors
from pulsar_spark.client.net import deadline as deadline_module
from pulsar_spark.client.net.deadline import Deadline, retry, retry_attempts, retry_count
from pulsar_spark.errors import (
    AuthError,
    BusyError,
    ConnectError,
    DeadlineError,
    NotReadyError,
    QuotaError,
    SendError,
    TransactionError,
)
from pulsar_spark.protocol.writing.pending import SendTimeoutError

FINAL = [
    *(errors.OptionError, errors.CorruptError, errors.DataLossError, errors.UnsupportedError),
    *(errors.DeadlineError, errors.QueueFullError, errors.BrokerError, errors.AuthError),
    *(errors.TopicNotFoundError, errors.SchemaError, errors.SendError),
]
PASSING = [errors.ProtocolError, errors.ConnectError, errors.NotReadyError, errors.BusyError]


class Clock:
    """A clock on which only sleeping takes time."""

    def __init__(self):
        self.now = 1000.0
        self.pauses = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.pauses.append(seconds)
        self.now += seconds


class Action:
    """Fails with each of ``failures`` in turn, then succeeds; for ever with the last if ``endless``."""

    def __init__(self, clock, failures, *, endless=False, takes=0.0):
        self.clock, self.failures, self.endless, self.takes = clock, list(failures), endless, takes
        self.calls = 0

    def __call__(self):
        self.calls += 1
        self.clock.now += self.takes
        if self.calls <= len(self.failures) or self.endless:
            raise self.failures[min(self.calls, len(self.failures)) - 1]
        return "done"


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(deadline_module, "time", clock)
    return clock


def test_success_is_given_back_at_once(clock):
    assert retry(Action(clock, []), Deadline(10)) == "done"
    assert clock.pauses == []


@pytest.mark.parametrize("kind", FINAL)
def test_a_final_error_is_raised_at_once(clock, kind):
    error = kind("no")
    action = Action(clock, [error])
    with pytest.raises(kind) as caught:
        retry(action, Deadline(1000))
    assert caught.value is error
    assert (action.calls, clock.pauses) == (1, [])


@pytest.mark.parametrize("kind", PASSING)
def test_a_passing_error_is_tried_again(clock, kind):
    action = Action(clock, [kind("not now")] * 4)
    assert retry(action, Deadline(1000)) == "done"
    assert action.calls == 5
    assert len(clock.pauses) == 4


def test_the_flags_decide_and_not_the_class(clock):
    class Odd(errors.PulsarError):
        retriable = True

    assert retry(Action(clock, [Odd("once")]), Deadline(10)) == "done"


def test_a_final_error_ends_a_row_of_passing_ones(clock):
    action = Action(clock, [errors.ConnectError("cut"), errors.AuthError("no")])
    with pytest.raises(errors.AuthError):
        retry(action, Deadline(1000))
    assert action.calls == 2


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, OSError])
def test_what_is_no_error_of_ours_passes(clock, kind):
    action = Action(clock, [kind()])
    with pytest.raises(kind):
        retry(action, Deadline(1000))
    assert action.calls == 1


def test_pauses_grow_to_a_bound(clock):
    with pytest.raises(errors.ConnectError):
        retry(Action(clock, [errors.ConnectError("cut")], endless=True), Deadline(120))
    for pause, longest in zip(clock.pauses, [0.05, 0.1, 0.2, 0.4, 0.8, 1.6] + [2.0] * 1000, strict=False):
        assert longest / 2 <= pause <= longest
    assert 60 <= len(clock.pauses) <= 120 / 1.0 + 6


def test_pauses_differ_so_that_clients_do_not_come_together(clock):
    for _ in range(20):
        retry(Action(clock, [errors.ConnectError("cut")]), Deadline(10))
    assert len(set(clock.pauses)) > 10


@given(
    seconds=st.floats(0, 30),
    takes=st.floats(0, 3),
    kinds=st.lists(st.sampled_from(PASSING), min_size=1, max_size=5),
)
def test_it_never_sleeps_past_its_deadline_and_raises_the_last_error_before_it(seconds, takes, kinds):
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadline_module, "time", clock)
        failures = [kind("not now") for kind in kinds]
        action = Action(clock, failures, endless=True, takes=takes)
        deadline = Deadline(seconds)
        with pytest.raises(errors.PulsarError) as caught:
            retry(action, deadline)
    in_time = action.calls if clock.now < deadline.at or action.calls == 1 else action.calls - 1
    assert caught.value is failures[min(in_time, len(failures)) - 1]
    assert clock.now - takes <= deadline.at
    assert action.calls == len(clock.pauses) + 1
    # It did not give up while another try was possible: no pause is longer than 2 s.
    assert clock.now >= deadline.at - 2.0


def test_a_deadline_that_has_passed_leaves_one_try(clock):
    action = Action(clock, [errors.ConnectError("cut")])
    with pytest.raises(errors.ConnectError):
        retry(action, Deadline(0))
    assert (action.calls, clock.pauses) == (1, [])


@pytest.mark.parametrize("kind", [errors.DeadlineError, *PASSING])
def test_an_attempt_that_is_cut_short_does_not_hide_the_reason(clock, kind):
    busy = errors.BusyError("taken")
    action = Action(clock, [busy, kind("no answer")], takes=10)
    with pytest.raises(errors.BusyError) as caught:
        retry(action, Deadline(15))
    assert caught.value is busy
    assert action.calls == 2


def test_a_final_error_is_told_even_after_the_deadline(clock):
    action = Action(clock, [errors.BusyError("taken"), errors.AuthError("no")], takes=10)
    with pytest.raises(errors.AuthError):
        retry(action, Deadline(15))


def test_a_deadline_of_its_own_is_final(clock):
    action = Action(clock, [errors.BusyError("taken"), errors.DeadlineError("no answer")], takes=1)
    with pytest.raises(errors.DeadlineError):
        retry(action, Deadline(1000))


def test_what_is_repeated_is_counted(clock):
    before = deadline_module.retry_count()
    retry(Action(clock, [errors.ConnectError("not now")] * 2), Deadline(60.0))
    assert deadline_module.retry_count() == before + 2


# ---- what has retries of its own


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(deadline_module, "_MAX_PAUSE", 0.001)
    monkeypatch.setattr(deadline_module, "_FIRST_PAUSE", 0.001)


@pytest.mark.parametrize(
    "error", [ConnectError("no"), NotReadyError("no"), DeadlineError("no"), SendTimeoutError("no")]
)
def test_insisting_outlasts_what_may_pass(at_once, error, caplog):
    answers = iter([error, error, 7])
    before = retry_count()
    assert retry(lambda: answer(next(answers)), Deadline(60.0), insists=True) == 7
    assert retry_count() == before + 2
    assert len(caplog.messages) == 2
    assert str(error) in caplog.messages[0]


@pytest.mark.parametrize(
    "error", [TransactionError("no"), AuthError("no"), SendError("no"), BusyError("no"), QuotaError("no")]
)
def test_insisting_ends_with_what_does_not_pass_and_with_another_owner(at_once, error):
    answers = iter([error, 7])
    with pytest.raises(type(error)):
        retry(lambda: answer(next(answers)), Deadline(60.0), insists=True)


def test_insisting_ends_with_the_deadline(at_once):
    with pytest.raises(ConnectError):
        retry(lambda: answer(ConnectError("no")), Deadline(0.05), insists=True)


def answer(what):
    if isinstance(what, Exception):
        raise what
    return what


@pytest.mark.parametrize("answers_at", [1, 2, 5])
def test_an_attempt_without_an_answer_leaves_time_for_others(clock, answers_at):
    given = []

    def attempt(deadline):
        given.append(deadline.left)
        if len(given) < answers_at:
            clock.now += deadline.left
            raise deadline.error("no answer")
        return "done"

    assert retry_attempts(attempt, Deadline(60.0), 10.0) == "done"
    assert given == pytest.approx([10.0] * answers_at)


def test_attempts_without_an_answer_end_with_the_deadline(clock):
    given = []

    def attempt(deadline):
        given.append(deadline.left)
        clock.now += deadline.left
        raise deadline.error("no answer")

    deadline = Deadline(25.0)
    with pytest.raises((DeadlineError, NotReadyError), match="no answer within"):
        retry_attempts(attempt, deadline, 10.0)
    assert deadline.passed
    assert len(given) == 3
    assert given[:2] == pytest.approx([10.0, 10.0])
    assert given[2] < 5.0
