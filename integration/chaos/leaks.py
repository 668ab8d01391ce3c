"""What a client must not leave behind in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.broker.waiting import wait_until


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that all threads and file descriptors (sockets) that are new since the beginning go away."""
    threads, descriptors = set(threading.enumerate()), _descriptors()
    yield
    try:
        wait_until(lambda: set(threading.enumerate()) <= threads and _descriptors() <= descriptors)
    except TimeoutError:
        new_threads = [thread.name for thread in set(threading.enumerate()) - threads]
        raise AssertionError(
            f"left: threads {new_threads}, {_descriptors() - descriptors} file descriptors"
        ) from None


def _descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))
