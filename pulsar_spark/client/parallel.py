"""Work in short-lived threads: many blocking calls at once, and the next item made while one is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pulsar_spark.errors import PulsarError

T = TypeVar("T")

# Calls in flight: so many requests a connection that neither side waits for the other.
_LIMIT = 32


def run_all(calls: Sequence[Callable[[], T]], limit: int = _LIMIT) -> list[T | PulsarError]:
    """Run ``calls`` on short-lived threads, the caller's among them, and return their results in order.

    A PulsarError is the result of its call. Any other exception ends the whole: no further call begins, those
    that run are waited for, and it is raised.

    Args:
        calls: what to do, in the order in which it begins.
        limit: maximum number that run at once.
    """
    results: list[T | PulsarError | None] = [None] * len(calls)
    failures: list[BaseException] = []
    left = iter(enumerate(calls))
    lock = threading.Lock()
    threads = [
        threading.Thread(target=_work, args=(left, lock, results, failures), daemon=True)
        for _ in range(min(limit, len(calls)) - 1)
    ]
    for thread in threads:
        thread.start()
    try:
        _work(left, lock, results, failures)
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return results  # type: ignore[return-value]  # each call has left its result


def _work(
    left: Iterator[tuple[int, Callable[[], T]]],
    lock: threading.Lock,
    results: list[T | PulsarError | None],
    failures: list[BaseException],
) -> None:
    """Take one call after the other until none is left."""
    while True:
        with lock:
            number, call = next(left, (-1, None))
        if call is None or failures:
            return
        try:
            results[number] = call()
        except PulsarError as error:
            results[number] = error
        except BaseException as error:  # noqa: BLE001 - raised by run_all()
            failures.append(error)


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Give the same items, each made in a thread while the one before is used; errors come in their place.

    No item is None. One more is in memory. To close this early waits for the item in the making, however long
    that takes.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="pulsar prefetch") as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item
