"""What runs beside the code of a test or of a run with faults, until that is over; no error of it is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def in_background(action: Callable[[], T]) -> Iterator[Future[T]]:
    """Run an action once; the block's end waits for its end, and raises its error."""
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(action)
        yield running
    running.result()


@contextmanager
def again_and_again(action: Callable[[], object], pause: float) -> Iterator[Future[None]]:
    """Run an action after each pause of some seconds, until it fails or the block ends, as above."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(pause):
            action()

    with in_background(run) as running:
        try:
            yield running
        finally:
            ended.set()
