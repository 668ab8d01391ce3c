"""Deadline, on a clock that the test moves."""

import pytest

from pulsar_spark.client.net import deadline as deadline_module
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.errors import DeadlineError


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(deadline_module, "time", clock)
    return clock


def test_time_runs_out(clock):
    deadline = Deadline(8)
    assert (deadline.at, deadline.left, deadline.passed) == (1008, 8, False)
    clock.now += 7.5
    assert (deadline.left, deadline.passed) == (0.5, False)
    clock.now += 0.5
    assert (deadline.left, deadline.passed) == (0, True)
    clock.now += 100
    assert (deadline.left, deadline.passed) == (0, True)


@pytest.mark.parametrize("seconds", [0, -1])
def test_no_time_at_all(clock, seconds):
    deadline = Deadline(seconds)
    assert (deadline.left, deadline.passed) == (0, True)


@pytest.mark.parametrize(("seconds", "left"), [(0, 0), (3, 3), (6, 6), (7, 6), (1e9, 6)])
def test_the_earlier_of_two(clock, seconds, left):
    deadline = Deadline(8)
    clock.now += 2
    assert deadline.at_most(seconds).left == left
    assert deadline.left == 6


def test_at_most_of_one_that_has_passed(clock):
    deadline = Deadline(8)
    clock.now += 9
    assert deadline.at_most(5).passed


def test_the_error_tells_how_long_was_waited(clock):
    deadline = Deadline(2.5)
    clock.now += 60
    error = deadline.error("nothing came", topic="t", advice="Wait longer")
    assert type(error) is DeadlineError
    assert str(error) == "[PULSAR_TIMEOUT] nothing came within 2.5 s; topic t. Wait longer"
