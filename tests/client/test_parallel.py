"""run_all: order, errors, how many run at once, and that nothing runs on."""

import threading
from collections import Counter

import pytest

from pulsar_spark.client.parallel import run_all
from pulsar_spark.errors import BusyError, OptionError
from tests.client.clients import failing


def test_nothing_to_do():
    assert run_all([]) == []


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_results_are_in_the_order_of_the_calls(limit):
    calls = [lambda number=number: number * number for number in range(50)]
    assert run_all(calls, limit) == [number * number for number in range(50)]


def test_a_pulsar_error_is_the_result_of_its_call():
    busy, option = BusyError("busy"), OptionError("no")
    assert run_all([failing(busy), lambda: 1, failing(option)]) == [busy, 1, option]


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
