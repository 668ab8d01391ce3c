"""What a client must not leave behind in this process, nor take in it."""

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


@contextmanager
def little_memory(mib: float) -> Iterator[None]:
    """Check that this process never took ``mib`` MiB more than at the beginning (Linux: VmHWM)."""
    Path("/proc/self/clear_refs").write_text("5")  # the highest size so far is forgotten
    before = _kib("VmRSS")
    yield
    grown = (_kib("VmHWM") - before) / 1024
    assert grown < mib, f"it took {grown:.0f} MiB"


def _kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(size)


def _descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))
