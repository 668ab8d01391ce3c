"""together: order, errors, how many run at once, and that nothing runs on."""

import threading
from collections import Counter
from functools import partial

import pytest

from pulsar_spark.client.parallel import PendingCalls, run_all
from pulsar_spark.errors import BusyError, OptionError
from tests.client.clients import wait_until


def failing(error):
    def call():
        raise error

    return call


def test_nothing_to_do():
    assert run_all([]) == []


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_results_are_in_the_order_of_the_calls(limit):
    calls = [lambda number=number: number * number for number in range(50)]
    assert run_all(calls, limit) == [number * number for number in range(50)]


def test_a_pulsar_error_is_the_result_of_its_call():
    busy, option = BusyError("busy"), OptionError("no")
    assert run_all([failing(busy), lambda: 1, failing(option)]) == [busy, 1, option]


def test_calls_that_end_in_time_are_waited_for():
    calls: PendingCalls[int] = PendingCalls(limit=3)
    busy = BusyError("busy")
    found = calls.run({0: failing(busy), **{number: partial(abs, -number) for number in range(1, 20)}}, 60)
    assert found == {0: busy, **{number: number for number in range(1, 20)}}
    assert calls.busy == set()
    assert calls.run({}, 60) == {}


@pytest.mark.parametrize("stuck", [1, 5])
def test_a_call_that_takes_long_holds_nobody_up(stuck):
    """Also where more of them take long than may begin at once."""
    calls, end, made = PendingCalls(limit=2), threading.Event(), Counter()

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
    assert calls.run(slow, 60) == found, "and then again"


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


def test_a_call_that_is_left_is_cleaned_up_when_it_ends():
    calls, end, cleaned = PendingCalls(), threading.Event(), threading.Event()
    assert not calls.leave("a", cleaned.set)
    calls.run({"a": lambda: end.wait(60)}, 0.0)
    assert calls.leave("a", cleaned.set)
    assert not cleaned.is_set()
    end.set()
    assert cleaned.wait(60)
    assert calls.run({}, 60) == {}, "nobody wants its result"


@pytest.mark.parametrize("error", [ValueError("defect"), SystemExit(1)])
def test_another_error_of_a_pending_call_is_raised(error):
    with pytest.raises(type(error)) as caught:
        PendingCalls[str]().run({"a": failing(error)}, 60)
    assert caught.value is error


def test_as_many_run_at_once_as_may():
    barrier = threading.Barrier(8)
    assert Counter(run_all([lambda: barrier.wait(30)] * 16, limit=8)) == Counter([*range(8)] * 2)


def test_no_more_run_at_once_than_may():
    running, most, lock = 0, 0, threading.Lock()

    def call():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1

    run_all([call] * 500, limit=3)
    assert 1 <= most <= 3


@pytest.mark.parametrize("error", [ValueError("defect"), SystemExit(1), KeyboardInterrupt()])
def test_another_error_ends_the_whole(error):
    called = []
    calls = [lambda: called.append(1), failing(error), *[lambda: called.append(2)] * 1000]
    with pytest.raises(type(error)) as caught:
        run_all(calls, limit=1)
    assert caught.value is error
    assert called == [1]


def test_running_calls_are_waited_for():
    begun, failed, ended = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        failed.wait(30)
        ended.append(1)

    def fail():
        begun.wait(30)
        failed.set()
        raise ValueError("defect")

    with pytest.raises(ValueError, match="defect"):
        run_all([slow, fail])
    assert ended == [1]
