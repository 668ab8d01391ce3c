"""PendingCalls: what is waited for, what is not, how many threads there are, and that nothing is lost."""

import threading
from collections import Counter
from concurrent.futures import Future
from functools import partial

import pytest

from pulsar_spark.client.pending_calls import MappedFuture, PendingCalls
from pulsar_spark.errors import BusyError, ConnectError, DeadlineError
from tests.client.clients import failing, wait_until


def test_calls_that_end_in_time_are_waited_for():
    calls: PendingCalls[int] = PendingCalls(limit=3)
    busy = BusyError("busy")
    found = calls.run({0: failing(busy), **{number: partial(abs, -number) for number in range(1, 20)}}, 60)
    assert found == {0: busy, **{number: number for number in range(1, 20)}}
    assert calls.busy == set()
    assert calls.run({}, 60) == {}


@pytest.mark.parametrize("stuck", [1, 3])
def test_a_call_that_takes_long_holds_nobody_up(stuck):
    """Also where more of them take long than may begin at once."""
    calls, end, made = PendingCalls(limit=2, prompt=0.01), threading.Event(), Counter()

    def wait(key):
        made[key] += 1
        return end.wait(60)

    slow = {number: lambda number=number: wait(number) for number in range(stuck)}
    assert calls.run(slow, 0.01) == {}
    assert calls.busy == set(slow)
    quick = {}
    while not quick:
        quick = calls.run({**slow, "quick": lambda: "here"}, 0.01)
    assert quick == {"quick": "here"}
    assert calls.busy == set(slow)
    end.set()
    found = {}
    while calls.busy or len(found) < stuck:
        found |= calls.run({}, 60)
    assert found == dict.fromkeys(slow, True)
    assert set(made.values()) == {1}, "nobody is asked twice at once"
    assert calls.run(slow, None) == found, "and then again"


def test_a_late_result_is_given_before_the_next_call_begins():
    calls, end = PendingCalls(), threading.Event()
    assert calls.run({"a": lambda: end.wait(60)}, 0.0) == {}
    end.set()
    wait_until(lambda: not calls.busy)
    assert calls.run({"a": lambda: "later", "b": lambda: "new"}, 60) == {"a": True, "b": "new"}
    assert calls.busy == set()
    assert calls.run({"a": lambda: "later"}, 60) == {"a": "later"}


def test_without_patience_all_are_waited_for():
    calls, end = PendingCalls(), threading.Event()
    timer = threading.Timer(0.05, end.set)
    timer.start()
    assert calls.run({"a": lambda: end.wait(60)}, None) == {"a": True}
    timer.join()


def test_without_patience_earlier_ones_are_waited_for_too():
    calls, ends = PendingCalls(), [threading.Event(), threading.Event()]
    for key, end in enumerate(ends):
        assert calls.run({key: partial(end.wait, 60)}, 0.0) == {}
    calls.leave(1, lambda _: None)
    timer = threading.Timer(0.05, ends[0].set)
    timer.start()
    assert calls.run({"b": lambda: 1}, None) == {0: True, "b": 1}
    timer.join()
    ends[1].set()


def test_a_call_that_is_left_is_cleaned_up_when_it_ends():
    calls, end, cleaned = PendingCalls(), threading.Event(), threading.Event()
    assert not calls.leave("a", lambda _: cleaned.set())
    calls.run({"a": lambda: end.wait(60)}, 0.0)
    assert calls.leave("a", lambda _: cleaned.set())
    assert not cleaned.is_set()
    end.set()
    assert cleaned.wait(60)
    assert calls.run({}, 60) == {}, "nobody wants its result"


def test_all_are_left_whether_they_have_ended_or_not():
    calls, end, ended = PendingCalls(), threading.Event(), Future()
    cleaned: list[object] = []
    calls.run({"a": lambda: end.wait(60)}, 0.0, {"b": ended})
    ended.set_result("b")
    assert calls.has_more
    calls.leave("a", lambda result: cleaned.append(("first", result)))
    assert calls.has_more, "b is not taken"
    calls.leave_all(cleaned.append)
    assert cleaned == ["b"]
    assert not calls.has_more
    calls.leave("a", lambda result: cleaned.append(("second", result)))
    end.set()
    wait_until(lambda: len(cleaned) == 3)
    assert cleaned[1:] == [("first", True), ("second", True)], "each cleans up what it left"


@pytest.mark.parametrize("error", [ValueError("defect"), SystemExit(1)])
def test_another_error_of_a_pending_call_is_raised(error):
    with pytest.raises(type(error)) as caught:
        PendingCalls[str]().run({"a": failing(error)}, 60)
    assert caught.value is error


def threads():
    return sum(thread.name == "pulsar planner" for thread in threading.enumerate())


def test_threads_are_few_however_many_calls_are_stuck():
    calls, end = PendingCalls(limit=4, prompt=0.01), threading.Event()
    keys = range(1000)
    for _ in range(20):
        calls.run({key: lambda: end.wait(60) for key in keys}, 0.01)
        assert threads() <= 8
    assert len(calls.busy) == 1000
    end.set()
    found = {}
    while len(found) < 1000:
        found |= calls.run({}, 0.0)
    assert found == dict.fromkeys(keys, True)


def test_late_calls_leave_half_of_the_threads_to_others():
    calls, end, late = PendingCalls(limit=4, prompt=0.01), threading.Event(), range(8)
    calls.run({key: lambda: end.wait(60) for key in late}, 0.02)
    end.set()
    wait_until(lambda: not calls.busy)
    assert calls.take() == dict.fromkeys(late, True)
    assert calls.late == set(late)
    end.clear()
    calls.run({key: lambda: end.wait(60) for key in late}, 0.0)
    assert threads() == 2
    quick = {name: (lambda name=name: name) for name in "abcdef"}
    assert calls.run(quick, 60) == {name: name for name in "abcdef"}
    end.set()
    wait_until(lambda: not calls.busy)


def test_a_key_that_was_late_is_waited_for_again_when_it_was_prompt(monkeypatch):
    calls, end, awaited = PendingCalls(prompt=0.01), threading.Event(), []
    real = calls._await

    def note(patience, *, is_steady):
        awaited.append(set(calls._awaited))
        real(patience, is_steady=is_steady)

    monkeypatch.setattr(calls, "_await", note)
    calls.run({"a": lambda: end.wait(60)}, 0.0)
    wait_until(lambda: calls.late == {"a"})
    end.set()
    wait_until(lambda: not calls.busy)
    assert calls.take() == {"a": True}
    held = Future()
    assert calls.run({}, 0.0, {"a": held, "b": Future()}) == {}
    assert awaited == [{"a"}, {"b"}], "it was late"
    held.set_result(1)
    while calls.late & {"a"}:  # the machine may be slow
        calls.take()
        held = Future()
        calls.run({}, 0.0, {"a": held})
        held.set_result(1)
    calls.take()
    assert calls.run({}, 0.0, {"a": Future()}) == {}
    assert awaited[-1] == {"a"}


def test_a_request_that_is_sent_takes_no_thread():
    calls: PendingCalls[int] = PendingCalls()
    begun: dict[int, Future[object]] = {number: Future() for number in range(500)}
    begun[0].set_result(0)
    found: dict[int, object] = calls.run({}, 0.0, begun)
    assert found == {0: 0}
    assert threads() == 0
    assert calls.busy == set(range(1, 500))
    begun[1].set_result("one")
    begun[2].set_exception(DeadlineError("late"))
    found = calls.take()
    assert found[1] == "one"
    assert isinstance(found[2], DeadlineError)
    assert calls.take() == {}
    for number in range(3, 500):
        begun[number].set_result(None)
    assert calls.run({}, None).keys() == set(range(3, 500))


@pytest.mark.parametrize(("error", "made"), [(ConnectError("cut"), 1), (DeadlineError("late"), 0)])
def test_the_call_is_made_where_the_request_that_was_sent_may_be_repeated(error, made):
    calls, begun, tried = PendingCalls[str](), Future[str](), []
    begun.set_exception(error)
    found = calls.run({"a": lambda: tried.append(1) or "called"}, 60, {"a": begun})
    assert found == {"a": "called" if made else error}
    assert len(tried) == made


def test_what_is_left_makes_no_call_any_more():
    calls, begun, left, tried = PendingCalls[str](), Future[str](), [], []
    calls.run({"a": lambda: tried.append(1)}, 0.0, {"a": begun})
    assert calls.leave("a", left.append)
    error = ConnectError("cut")
    begun.set_exception(error)
    assert left == [error]
    assert tried == []
    end = threading.Event()
    assert calls.run({"b": lambda: end.wait(60)}, 0.0) == {}
    end.set()
    wait_until(lambda: not calls.busy)
    assert calls.leave("b", left.append), "a result that nobody took"
    assert left == [error, True]
    assert not calls.leave("b", left.append)


def test_patience_may_begin_again_with_each_that_ends():
    """Each call ends when the one before has ended, which takes longer than the patience for all of them."""
    calls, steps = PendingCalls(limit=20), [threading.Event() for _ in range(20)]

    def step(number):
        if number:
            assert steps[number - 1].wait(60)
        threading.Event().wait(0.05)
        steps[number].set()
        return number

    found = calls.run({number: partial(step, number) for number in range(20)}, 0.5, is_steady=True)
    stuck = threading.Event()
    assert found == {number: number for number in range(20)}
    assert calls.run({"quick": lambda: 1, "stuck": stuck.wait}, 0.01, is_steady=True) == {"quick": 1}
    stuck.set()
    wait_until(lambda: not calls.busy)


def test_an_answer_is_mapped_and_so_is_an_error():
    answer = Future()
    found = MappedFuture(answer, lambda each: each + 1)
    answer.set_result(1)
    assert found.result() == 2
    failed = Future()
    failed.set_exception(BusyError("busy"))
    with pytest.raises(BusyError):
        MappedFuture(failed, lambda each: each).result(60)
    broken = Future()
    broken.set_result(0)
    with pytest.raises(ZeroDivisionError):
        PendingCalls[str]().run({}, 60, {"a": MappedFuture(broken, lambda each: 1 // each)})


def test_a_key_has_one_error_of_the_request_that_is_refused():
    def refuse(_):
        raise BusyError("busy")

    answer = Future()
    answer.set_result(0)
    (found,) = PendingCalls[str]().run({}, 60, {"a": MappedFuture(answer, refuse)}).values()
    assert isinstance(found, BusyError)
