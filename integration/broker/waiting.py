"""Wait for a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, timeout: float = 30.0, interval: float = 0.02) -> None:
    """Return as soon as `condition()` is true; it is asked every `interval` seconds.

    Raises:
        TimeoutError: when it was still false after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"still waiting after {timeout:g} s for {condition}")
        time.sleep(interval)
