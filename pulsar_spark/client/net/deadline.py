"""Deadline: made once at the start of a call, and passed to all functions that wait."""

from __future__ import annotations

import time

from pulsar_spark.errors import DeadlineError


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
