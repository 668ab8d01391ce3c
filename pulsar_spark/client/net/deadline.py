"""Deadline: made once at the start of a call, and passed to all functions that wait or retry.

``retry`` repeats a failed call, with growing pauses, if its error is retriable. A broker may process a
request twice, because its first answer may be lost. So only requests that are safe to repeat are retried.
Reads, ACK and SEEK reach the same state again. SUBSCRIBE and PRODUCER fail with a retriable error until the
broker has closed the lost connection. A lost result of NEW_TXN has no effect.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pulsar_spark.errors import BusyError, DeadlineError, NotReadyError, PulsarError
from pulsar_spark.protocol.pauses import Reopening

_FIRST_PAUSE = 0.05
_MAX_PAUSE = 2.0

_log = logging.getLogger(__name__)

T = TypeVar("T")


def now() -> float:
    """Returns seconds of a clock that never goes back."""
    return time.monotonic()


def epoch_ms() -> int:
    """Returns the time of day, in ms since the epoch."""
    return time.time_ns() // 1_000_000


class Deadline:
    """A point in monotonic time until which a call may wait."""

    __slots__ = ("at", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Returns seconds left, never below 0."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the deadline is over."""
        return time.monotonic() >= self.at

    def at_most(self, seconds: float) -> Deadline:
        """Returns the earlier of this deadline and ``seconds`` from now."""
        return Deadline(min(seconds, self.left))

    def error(self, what: str, *, topic: str | None = None, advice: str | None = None) -> DeadlineError:
        """Returns an error with the text "``what`` within N s"."""
        return DeadlineError(f"{what} within {self.seconds:g} s", topic=topic, advice=advice)


class _Count:
    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add_one(self) -> None:
        with self._lock:
            self.value += 1


_repeated = _Count()


def retry_count() -> int:
    """Returns how often this process has repeated a request, or opened a lost producer or consumer again."""
    return _repeated.value


def wait_to_reopen(reopening: Reopening, deadline: Deadline, what: str) -> None:
    """Pauses before a lost consumer or producer is opened again, and adds the loss to the retry count."""
    if reopening.take_loss():
        _repeated.add_one()
    pause = reopening.pause(time.monotonic(), random.random())
    if pause:
        time.sleep(min(pause, deadline.left))
        if deadline.passed:
            raise deadline.error(f"the broker repeatedly accepted {what} and closed it again")


def retry(action: Callable[[], T], deadline: Deadline, *, insists: bool = False) -> T:
    """Runs ``action`` until it succeeds or its error is final.

    By default, errors without the flag ``retriable`` are final. Set ``insists`` for an action that retries by
    itself. Then a DeadlineError is not final, but a BusyError is, because another client has the name.

    Raises:
        PulsarError: the first error that is final, or the last error before the deadline. After the deadline,
            a retriable error or a timeout does not replace the error before it.
    """
    pause = _FIRST_PAUSE
    last: PulsarError | None = None
    while True:
        try:
            return action()
        except PulsarError as error:
            if last is not None and deadline.passed and error.is_passing:
                raise last from error
            last = error
            wait = pause * random.uniform(0.5, 1.0)
            may_pass = error.is_passing and not isinstance(error, BusyError) if insists else error.retriable
            if not may_pass or deadline.left <= wait:
                raise
            _log.log(logging.WARNING if insists else logging.DEBUG, "retrying in %.2f s: %s", wait, error)
        _repeated.add_one()
        time.sleep(wait)
        pause = min(2 * pause, _MAX_PAUSE)


def retry_attempts(attempt: Callable[[Deadline], T], deadline: Deadline, seconds: float) -> T:
    """Like ``retry``, but each attempt gets an earlier deadline, so that an unanswered request is repeated.

    ``seconds``: maximum duration of an attempt; its DeadlineError is final only after ``deadline``.
    """

    def bounded() -> T:
        try:
            return attempt(deadline.at_most(seconds))
        except DeadlineError as error:
            if deadline.passed:
                raise
            raise NotReadyError(error.what, topic=error.topic) from error

    return retry(bounded, deadline)
