"""Pauses before the planner repeats a failed request, and before a lost producer or consumer is reopened.

Pure; times are seconds of a monotonic clock. Reopening has pauses, because otherwise a broker that accepts a
producer or consumer and closes it at once would get a thousand requests a second:

    =========================================  ======================================================
    since the last opening                      pause before the next one
    =========================================  ======================================================
    a message or a receipt was received        none for 20 openings; then at most 4 openings a second
    nothing, but it was open for 10 s          as after a message or a receipt
    nothing, and it was open for less          0.05 s, doubled each time, at most 2 s; a random
                                               part of this, at least half
    =========================================  ======================================================

A producer or consumer is lost if it ended after a successful opening, for example because the connection was
lost. Failed openings, such as a refused SUBSCRIBE, are not counted: ``client.net.deadline`` repeats them.
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

K = TypeVar("K")

_FIRST = 1.0
_MAX = 30.0


class Pauses(Generic[K]):
    """The pause of each key whose last request failed: 1 s, doubled each time, at most 30 s."""

    def __init__(self) -> None:
        self._failed: dict[K, tuple[int, float]] = {}  # failures in a row, and monotonic end of the pause

    def failed(self, key: K, now: float) -> bool:
        """Records a failure; returns whether it is the first since the last success."""
        count, _ = self._failed.get(key, (0, 0.0))
        self._failed[key] = count + 1, now + min(_FIRST * 2.0 ** min(count, 10), _MAX)
        return count == 0

    def succeeded(self, key: K) -> None:
        """Records a success, or that the key is not used any more."""
        self._failed.pop(key, None)

    def is_over(self, key: K, now: float) -> bool:
        """Whether a request for the key may be made."""
        return now >= self._failed.get(key, (0, 0.0))[1]

    def resting(self, now: float) -> set[K]:
        """Returns the keys whose pause is not over."""
        return {key for key, (_, until) in self._failed.items() if now < until}

    def due_at(self, now: float) -> float:
        """Returns the end of the next pause; infinity if there is none."""
        return min((until for _, until in self._failed.values() if until > now), default=math.inf)


_FIRST_PAUSE = 0.05
_MAX_PAUSE = 2.0
_LASTING = 10.0
_IN_A_ROW = 20  # openings in a row without a pause
_PER_SECOND = 4.0  # openings per second after _IN_A_ROW


class Reopening:
    """Pauses between the openings of one producer or consumer; see the module's table."""

    def __init__(self) -> None:
        self._fruitless = 0
        self._recent = 0.0  # openings counted at ``_opened_at``; the count falls by _PER_SECOND each second
        self._opened_at = 0.0
        self._has_opened = False

    def opened(self, now: float) -> None:
        """Records a successful opening; ``now``: monotonic seconds."""
        self._fruitless += 1
        self._recent = self._recent_at(now) + 1
        self._opened_at = now
        self._has_opened = True

    def yielded(self) -> None:
        """Records a received message or receipt."""
        self._fruitless = 0

    def reset(self) -> None:
        """Forgets all openings, because the caller itself closed the producer or consumer to reopen it."""
        self._fruitless = 0
        self._recent = 0.0
        self._has_opened = False

    def take_loss(self) -> bool:
        """Whether the next opening replaces a lost producer or consumer; True once for each loss."""
        was_lost, self._has_opened = self._has_opened, False
        return was_lost

    def pause(self, now: float, chance: float) -> float:
        """Returns the seconds to wait before the next opening; ``chance``: random number from 0 to 1."""
        if self._fruitless and now >= self._opened_at + _LASTING:
            self._fruitless = 0
        crowded = max(0.0, self._recent_at(now) + 1 - _IN_A_ROW) / _PER_SECOND
        if not self._fruitless:
            return crowded
        longest = min(_FIRST_PAUSE * 2.0 ** min(self._fruitless - 1, 10), _MAX_PAUSE)
        return max(crowded, longest * (1 + chance) / 2)

    def _recent_at(self, now: float) -> float:
        return max(0.0, self._recent - (now - self._opened_at) * _PER_SECOND)
