"""Pauses: when requests that have failed are repeated. Pure; times are seconds of a monotonic clock."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

K = TypeVar("K")

_FIRST = 1.0
_MAX = 30.0


class Pauses(Generic[K]):
    """The pause of each key whose last request failed: 1 s, then twice as long each time, at most 30 s."""

    def __init__(self) -> None:
        self._failed: dict[K, tuple[int, float]] = {}  # failures in a row, and the end of the pause

    def failed(self, key: K, now: float) -> bool:
        """Note a failure; returns whether it is the first since the last success."""
        count, _ = self._failed.get(key, (0, 0.0))
        self._failed[key] = count + 1, now + min(_FIRST * 2.0 ** min(count, 10), _MAX)
        return count == 0

    def succeeded(self, key: K) -> None:
        """Note a success, or that the key is not used any more."""
        self._failed.pop(key, None)

    def is_over(self, key: K, now: float) -> bool:
        """Whether a request may be made."""
        return now >= self._failed.get(key, (0, 0.0))[1]

    def resting(self, now: float) -> set[K]:
        """The keys whose pause is not over."""
        return {key for key, (_, until) in self._failed.items() if now < until}

    def due_at(self, now: float) -> float:
        """When the next pause ends; infinity if there is none."""
        return min((until for _, until in self._failed.values() if until > now), default=math.inf)
