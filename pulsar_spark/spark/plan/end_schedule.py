"""EndSchedule: the times when one partition's end is requested; :mod:`ends` says why. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pulsar_spark.ids import MessageId

# Seconds for which an answer is valid.
_KNOWN_FOR = 0.05
# Seconds without a new message after which a partition gets a tail: opening it costs a few requests.
_IDLE_AFTER = 0.25
# Seconds after which the end of a partition with a tail is requested anyway; the minimum for each of many
# partitions; the step of these times: requests due at the same time cost one round.
_ASKED_ANYWAY = 10.0
_ASKED_ANYWAY_EACH = 0.5
_STEP = 5.0


@dataclass(slots=True)
class EndSchedule:
    """The times when one partition's end is requested. Pure; times are seconds of a monotonic clock.

    Attributes:
        last: last message in the last answer.
        known_until: when that answer becomes too old.
        idle_at: when the partition counts as idle, unless a new message comes.
        ask_anyway_at: when the end is requested although the tail shows nothing new.
    """

    last: MessageId
    known_until: float
    idle_at: float
    ask_anyway_at: float = 0.0

    @classmethod
    def of(cls, last: MessageId, now: float) -> EndSchedule:
        """The schedule after a first answer."""
        return cls(last, now + _KNOWN_FOR, now + _IDLE_AFTER)

    def due_at(self, *, has_news: bool) -> float:
        """When to request the end. ``has_news``: whether there is no tail, or it shows new entries."""
        return self.known_until if has_news else max(self.known_until, self.ask_anyway_at)

    def asked(self, now: float) -> None:
        """Note a request, answered or not."""
        self.known_until = now + _KNOWN_FOR

    def answered(self, last: MessageId, now: float) -> None:
        """Note an answer."""
        if self.last != last:
            self.last, self.idle_at = last, now + _IDLE_AFTER

    def is_idle(self, now: float) -> bool:
        """Whether the partition is idle, so that a tail pays off."""
        return now >= self.idle_at

    def followed(self, now: float, partitions: int, number: int) -> None:
        """Note that the tail has reached the end.

        Args:
            now: time in seconds of a monotonic clock.
            partitions: number of partitions.
            number: number of this partition; requests are spread in groups by it.
        """
        interval = max(_ASKED_ANYWAY, _ASKED_ANYWAY_EACH * partitions)
        spread = 1 + number % partitions / partitions
        self.ask_anyway_at = math.ceil((now + interval * spread) / _STEP) * _STEP
