"""Wait for a condition instead of sleeping, and tell what hangs from what is slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Seconds that no machine is too slow for: what takes longer hangs.
HANG = 120.0

# A time-out that a test sets for what must not be waited for: `promptly` tells the two apart.
FAR_AWAY = 300.0


def wait_until(condition: Callable[[], object], *, timeout: float = HANG, interval: float = 0.02) -> None:
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
def promptly() -> Iterator[None]:
    """Check that what is done within did not wait for a time-out of FAR_AWAY seconds.

    On a busy machine anything may take many seconds, so only what is as slow as a hang fails.
    """
    began = time.monotonic()
    yield
    taken = time.monotonic() - began
    assert taken < HANG, f"it took {taken:.0f} s"
