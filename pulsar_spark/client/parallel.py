"""Work in short-lived threads: parallel blocking calls, and prefetching of items."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Generic, TypeVar

from pulsar_spark.errors import PulsarError

T = TypeVar("T")

# Default maximum of parallel calls: enough to keep both the client and a broker busy all the time.
IN_PARALLEL = 32


def run_all(calls: Sequence[Callable[[], T]], limit: int = IN_PARALLEL) -> list[T | PulsarError]:
    """Runs calls in parallel, ``limit`` at a time, one thread being the caller's; returns results in order.

    A PulsarError is the result of its call. After any other exception no further call begins; it is raised
    once the running calls have ended.
    """
    results: list[T | PulsarError | None] = [None] * len(calls)
    failures: list[BaseException] = []
    left = iter(enumerate(calls))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number, call = next(left, (-1, None))
            if call is None or failures:
                return
            try:
                results[number] = call()
            except PulsarError as error:
                results[number] = error
            except BaseException as error:  # noqa: BLE001 - raised below
                failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(limit, len(calls)) - 1)]
    for thread in threads:
        thread.start()
    try:
        work()
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return results  # type: ignore[return-value]  # each call has set its result


def raise_error_of(results: Sequence[object]) -> None:
    """Raises the first PulsarError among results of :func:`run_all`; errors not ``retriable`` come first."""
    errors = [each for each in results if isinstance(each, PulsarError)]
    if errors:
        raise min(errors, key=lambda error: error.retriable)


def prefetch(items: Iterator[T]) -> Generator[T, None, None]:
    """Yields ``items``; a thread makes the next item while the caller uses the current one.

    No item may be None. The current and the next item are in memory. If the caller closes the generator
    early, ``close`` waits until the next item is made. An error of ``items`` is raised instead of an item.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="pulsar prefetch") as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item


def prefetch_each(
    streams: Sequence[Callable[[], Generator[T, None, None]]],
    size: Callable[[T], int],
    *,
    max_streams: int,
    max_size: int,
) -> Generator[Generator[T, None, None], None, None]:
    """Yields the items of each stream in turn, while threads prefetch the items of the next streams.

    An error of a stream is raised instead of its next item; the next streams can still be used. When the next
    stream is requested, unread items of the previous stream are dropped. A single stream has no thread.

    Args:
        streams: functions that make streams; the thread that makes a stream's items also closes it.
        max_streams: maximum streams that make items at the same time, including the one in use.
        max_size: total size of waiting items at which a stream makes no further item.
    """
    if len(streams) == 1:
        with closing(streams[0]()) as only:
            yield only
        return
    prefetched = [_Prefetched(make, size, max_size) for make in streams]
    with ThreadPoolExecutor(max_streams, thread_name_prefix="pulsar prefetch") as pool:
        try:
            for each in prefetched:
                pool.submit(each.run)
            for each in prefetched:
                yield each.items()
                each.stop()
        finally:
            for each in prefetched:
                each.stop()


class _Prefetched(Generic[T]):
    def __init__(
        self, make: Callable[[], Generator[T, None, None]], size: Callable[[T], int], max_size: int
    ) -> None:
        self._make = make
        self._size = size
        self._max_size = max_size
        self._changed = threading.Condition()
        self._items: deque[T] = deque()
        self._held = 0
        self._error: BaseException | None = None
        self._is_stopped = False
        self._is_over = False

    def run(self) -> None:
        """Iterates over ``make()`` in the calling thread, and keeps the items for :meth:`items`."""
        try:
            if not self._is_stopped:
                with closing(self._make()) as items:
                    for item in items:
                        if not self._hold(item):
                            break
        except BaseException as error:  # noqa: BLE001 - raised by items()
            self._error = error
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def items(self) -> Generator[T, None, None]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_over)
                if not self._items:
                    break
                item = self._items.popleft()
                self._held -= self._size(item)
                self._changed.notify_all()
            yield item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Drops the waiting items, and lets ``run`` end."""
        with self._changed:
            self._is_stopped = True
            self._items.clear()
            self._changed.notify_all()

    def _hold(self, item: T) -> bool:
        """Adds an item and waits until the items' size is below the limit; returns False after ``stop``."""
        with self._changed:
            self._items.append(item)
            self._held += self._size(item)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._held < self._max_size or self._is_stopped)
            return not self._is_stopped
