"""Budgets of waits: what takes longer fails, and a budget that a busy machine breaks is refused."""

import pytest

from integration.broker import waiting
from integration.broker.waiting import promptly


class Clock:
    """Stands in for the module `time`: each look at the clock is `step` seconds after the one before."""

    def __init__(self, step):
        self.now = 0.0
        self.step = step

    def monotonic(self):
        self.now += self.step
        return self.now


@pytest.mark.parametrize(("taken", "passes"), [(0.0, True), (9.9, True), (10.0, False), (60.0, False)])
def test_a_budget(monkeypatch, taken, passes):
    monkeypatch.setattr(waiting, "time", Clock(taken))
    if passes:
        with promptly(10.0):
            pass
    else:
        with pytest.raises(AssertionError, match=r"its budget is 10 s"), promptly(10.0):
            pass


def test_an_error_within_goes_first(monkeypatch):
    monkeypatch.setattr(waiting, "time", Clock(60.0))
    with pytest.raises(KeyError), promptly(10.0):
        raise KeyError


@pytest.mark.parametrize("seconds", [0.0, 4.9])
def test_a_budget_that_is_too_small(seconds):
    with pytest.raises(ValueError, match="give 5 or more"), promptly(seconds):
        pass
