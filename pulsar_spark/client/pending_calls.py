"""PendingCalls: requests that may take longer than their caller waits. Calls: a query's requests, by kind.

When a topic was deleted and created again, :meth:`Calls.leave` drops all requests about the old topic. So a
late answer about the old topic is never used for the new one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from pulsar_spark.errors import PulsarError
from pulsar_spark.protocol.pauses import Pauses

K = TypeVar("K")
T = TypeVar("T")

# Default ``limit`` of PendingCalls.
_LIMIT = 16
# Default seconds after which a request counts as late.
PROMPT = 1.0


class PendingCalls(Generic[K]):
    """Requests of one thread, one at a time for each key.

    A request is a connection's future, or a blocking call on one of a few short-lived threads. A future may
    have a call that is made if the future fails. A key is late if its last request took ``prompt`` seconds or
    more. Late keys can be requested again, but :meth:`run` does not wait for their results.

    Args:
        limit: maximum running calls that are not late; with late calls, at most ``2 * limit`` run. A call for
            a late key begins only while fewer than ``limit / 2`` late calls run.

    Attributes:
        pauses: pauses after failed requests; the caller must record failures, and wait for the pauses.
    """

    def __init__(self, limit: int = _LIMIT, prompt: float = PROMPT) -> None:
        self.pauses: Pauses[K] = Pauses()
        self._limit = limit
        self._prompt = prompt
        self._changed = threading.Condition()
        self._waiting: deque[tuple[K, Callable[[], object]]] = deque()
        self._waiting_late: deque[tuple[K, Callable[[], object]]] = deque()
        self._running: dict[K, float] = {}
        self._busy: dict[K, float] = {}
        self._late: set[K] = set()
        self._awaited: set[K] = set()
        self._enough = 0  # the waiting thread is woken when at most this many awaited keys are left
        self._results: dict[K, object] = {}
        self._left: dict[K, list[Callable[[object], object]]] = {}
        self._failure: BaseException | None = None

    @property
    def busy(self) -> set[K]:
        """Returns the keys whose request has not ended."""
        with self._changed:
            return set(self._busy)

    @property
    def has_more(self) -> bool:
        """Whether :meth:`take` would return results now or later."""
        with self._changed:
            return bool(self._results or self._busy.keys() - self._left.keys())

    @property
    def late(self) -> set[K]:
        """Returns the keys whose last request took, or has been running for, ``prompt`` seconds or more."""
        with self._changed:
            self._note_late(time.monotonic())
            return set(self._late)

    def take(self) -> dict[K, Any]:
        """Returns the results since the last call; see :meth:`run`."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            results, self._results = self._results, {}
            return results

    def run(
        self,
        calls: Mapping[K, Callable[[], T]],
        patience: float | None,
        begun: Mapping[K, Future[Any] | MappedFuture[Any]] = MappingProxyType({}),
        *,
        is_steady: bool = False,
    ) -> dict[K, T | PulsarError]:
        """Sends requests, and returns the results of all ended requests, including earlier ones.

        Makes no call for a key whose earlier request is still running, or has a result that is returned
        now. So a key whose requests outlast ``patience`` is not requested without a break. A PulsarError is
        the result of its request; any other exception is raised.

        Args:
            calls: blocking calls, by key; all results of one object have one type.
            patience: seconds to wait for new requests, except those of late keys. None: no limit, and also
                waits for earlier requests.
            begun: futures of requests that were sent already, for keys that are not busy and have no earlier
                result. If a future fails with a temporary error, the key's call, if any, is made instead.
            is_steady: True: ``patience`` begins again whenever a request ends.
        """
        with self._changed:
            now = time.monotonic()
            self._note_late(now)
            new = [key for key in {**begun, **calls} if key not in self._busy and key not in self._results]
            self._busy |= dict.fromkeys(new, now)
            awaited = self._busy.keys() - self._left if patience is None else set(new) - self._late
            for key in new:
                if key in begun:
                    begun[key].add_done_callback(partial(self._end_future, key, calls.get(key)))
                else:
                    self._enqueue(key, calls[key])
            self._start_threads()
            self._awaited = awaited & self._busy.keys()
            self._await(patience, is_steady=is_steady)
        return self.take()

    def leave(self, key: K, then: Callable[[Any], object]) -> bool:
        """Passes the result of ``key`` to ``then``, not to :meth:`take`; False: no request and no result.

        Calls ``then`` now, or when the request ends. If this method is called several times before the
        request ends, each ``then`` receives the result.
        """
        with self._changed:
            self._late.discard(key)
            if key in self._busy:
                self._left.setdefault(key, []).append(then)
                return True
            if key not in self._results:
                return False
            result = self._results.pop(key)
        then(result)
        return True

    def leave_all(self, then: Callable[[Any], object]) -> None:
        """Passes the results of all requests to ``then``, instead of :meth:`take`; see :meth:`leave`."""
        with self._changed:
            keys = (self._busy.keys() - self._left.keys()) | self._results.keys()
        for key in keys:
            self.leave(key, then)

    def _await(self, patience: float | None, *, is_steady: bool) -> None:
        """Waits up to ``patience`` seconds for ``_awaited`` requests; call it with the lock held."""
        while self._awaited and self._failure is None:
            self._enough = len(self._awaited) - 1 if is_steady else 0
            if not self._changed.wait_for(self._has_enough, patience):
                break
        self._awaited = set()

    def _has_enough(self) -> bool:
        return self._failure is not None or len(self._awaited) <= self._enough

    def _note_late(self, now: float) -> None:
        self._late.update(key for key, began in self._busy.items() if now - began >= self._prompt)

    def _enqueue(self, key: K, call: Callable[[], object]) -> None:
        (self._waiting_late if key in self._late else self._waiting).append((key, call))

    def _start_threads(self) -> None:
        while (taken := self._next()) is not None:
            threading.Thread(target=self._work, args=taken, name="pulsar planner", daemon=True).start()

    def _next(self) -> tuple[K, Callable[[], object]] | None:
        """Returns the next call that may run, and counts it as running; call it with the lock held."""
        if len(self._running) >= 2 * self._limit:
            return None
        now = time.monotonic()
        late = sum(key in self._late or now - began >= self._prompt for key, began in self._running.items())
        if self._waiting and len(self._running) - late < self._limit:
            key, call = self._waiting.popleft()
        elif self._waiting_late and late < max(1, self._limit // 2):
            key, call = self._waiting_late.popleft()
        else:
            return None
        self._running[key] = now
        return key, call

    def _work(self, key: K, call: Callable[[], object]) -> None:
        taken: tuple[K, Callable[[], object]] | None = key, call
        while taken is not None:
            key, call = taken
            result = self._result_of(call)
            with self._changed:
                del self._running[key]
            self._end(key, result)
            with self._changed:
                taken = self._next()

    def _end_future(
        self, key: K, call: Callable[[], object] | None, ended: Future[Any] | MappedFuture[Any]
    ) -> None:
        """Processes a future's result, on its thread; after a retriable error makes ``call`` instead."""
        result = self._result_of(ended.result)
        if call is not None and isinstance(result, PulsarError) and result.retriable:
            with self._changed:
                if key not in self._left:
                    self._note_late(time.monotonic())
                    self._enqueue(key, call)
                    self._start_threads()
                    return
        self._end(key, result)

    def _result_of(self, call: Callable[[], object]) -> object:
        """Returns the result of a call, or its PulsarError; None for any other failure."""
        try:
            return call()
        except PulsarError as error:
            return error
        except BaseException as error:  # noqa: BLE001 - raised by run()
            self._failure = error
            return None

    def _end(self, key: K, result: object) -> None:
        with self._changed:
            began = self._busy.pop(key)
            (self._late.add if time.monotonic() - began >= self._prompt else self._late.discard)(key)
            receivers = self._left.pop(key, [])
            if receivers:
                self._late.discard(key)
            else:
                self._results[key] = result
            self._awaited.discard(key)
            if self._has_enough():
                self._changed.notify_all()
        for then in receivers:
            then(result)


class MappedFuture(Generic[T]):
    """A future that makes its result from another future's answer, on the thread that requests the result."""

    __slots__ = ("_future", "_make")

    def __init__(self, future: Future[Any], make: Callable[[Any], T]) -> None:
        self._future = future
        self._make = make

    def result(self, timeout: float | None = None) -> T:
        """Returns the result; raises the error of the request, or of making the result."""
        return self._make(self._future.result(timeout))

    def add_done_callback(self, call: Callable[[MappedFuture[T]], object]) -> None:
        """Calls ``call`` with this object when the request has ended."""
        self._future.add_done_callback(lambda _: call(self))


class Kind(Enum):
    """Kind of a request. Each kind has its own threads, so slow brokers delay no other kind."""

    LAST_MESSAGE = auto()  # the only kind whose requests open a lost consumer of the query again
    ACK = auto()
    BACKLOG = auto()
    CHUNKS = auto()
    TAIL = auto()
    ENTRIES = auto()
    SEARCH = auto()
    FINAL_END = auto()
    WITNESS = auto()


class Calls(Generic[K]):
    """The pending requests about partitions, by kind."""

    def __init__(self, make: Callable[[], PendingCalls[K]] = PendingCalls) -> None:
        self._kinds = {kind: make() for kind in Kind}

    def __getitem__(self, kind: Kind) -> PendingCalls[K]:
        return self._kinds[kind]

    def leave(self, partition: K, then: Mapping[Kind, Callable[[Any], object]]) -> set[Kind]:
        """Drops a partition's requests and pauses; returns the kinds that had a request.

        The functions in ``then`` receive the results of their kinds. Other results are closed if they can be.
        """
        for pending in self._kinds.values():
            pending.pauses.succeeded(partition)
        kinds = self._kinds.items()
        return {kind for kind, pending in kinds if pending.leave(partition, then.get(kind, _close))}


@runtime_checkable
class _Closeable(Protocol):
    def close(self) -> None: ...


def _close(result: object) -> None:
    if isinstance(result, _Closeable):
        result.close()
