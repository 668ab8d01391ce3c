"""Wait for a condition instead of sleeping, and check that what should be quick is quick."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Seconds that no machine is too slow for: what takes longer hangs.
HANG = 300.0

# A time-out that a test sets for what must not be waited for: longer than any budget of `promptly`.
FAR_AWAY = 900.0

# The smallest budget: shared machines stand still for seconds.
_SMALLEST = 5.0


def wait_until(condition: Callable[..., object], *, timeout: float = HANG, interval: float = 0.02) -> None:
    """Return as soon as `condition()` is true; it is asked every `interval` seconds.

    Raises:
        TimeoutError: when it was still false after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"still waiting after {timeout:g} s for {condition}")
        time.sleep(interval)


@contextmanager
def promptly(seconds: float) -> Iterator[None]:
    """Check that the block takes no longer than its budget.

    Args:
        seconds: the budget: about ten times what the block usually takes, so that a tenfold slowdown is
            noticed; at least 5, which a busy machine may take for anything.

    Raises:
        AssertionError: the block took longer. An error that the block raises goes first.
        ValueError: the budget is too small to be reliable.
    """
    if seconds < _SMALLEST:
        raise ValueError(f"a budget of {seconds:g} s is too small: give {_SMALLEST:g} or more")
    began = time.monotonic()
    yield
    taken = time.monotonic() - began
    assert taken < seconds, f"it took {taken:.1f} s, and its budget is {seconds:g} s"
