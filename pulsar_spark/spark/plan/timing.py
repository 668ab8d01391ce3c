"""The times of the planner's next requests and work: EndSchedule for a partition, QuietTime for a query.

A tail (``client/reading/probe``) is a reader that waits at a partition's end for entries, so that the planner
need not request the end. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Offsets

# Seconds after an answer in which a partition's end is not requested again.
_KNOWN_FOR = 0.05
# Seconds without a new message before a tail is opened, because opening it costs a few requests.
_IDLE_AFTER = 0.25
# Seconds after which the end is requested although the tail has received nothing.
_ASKED_ANYWAY = 10.0
_ASKED_ANYWAY_EACH = 0.5  # or this number of seconds for each partition of the query, if that is longer
_STEP = 5.0  # seconds; these requests wait for a multiple of it, so that many are sent together
# If two triggers without data are closer than this number of seconds, the next one is expected soon.
_POLLED_WITHIN = 1.0
# Seconds that a trigger waits for new entries; few, because the wait delays a query's other sources.
_MIN_WAIT = 0.05
_WAIT_EACH = 0.00015  # for each partition
_MAX_WAIT = 0.5


@dataclass(slots=True)
class EndSchedule:
    """The times when one partition's end is requested. Pure; times are seconds of a monotonic clock.

    Attributes:
        known_until: time until which the last answer is used without a new request.
        idle_at: time when the partition counts as idle, unless a new message is received.
        ask_anyway_at: time when the end is requested although the tail has received nothing.
    """

    last: MessageId
    known_until: float
    idle_at: float
    ask_anyway_at: float = 0.0

    @classmethod
    def of(cls, last: MessageId, now: float) -> EndSchedule:
        """Returns the schedule after a first answer."""
        return cls(last, now + _KNOWN_FOR, now + _IDLE_AFTER)

    def due_at(self, *, has_news: bool) -> float:
        """Returns the time of the next request. ``has_news``: there is no tail, or it has new entries."""
        return self.known_until if has_news else max(self.known_until, self.ask_anyway_at)

    def asked(self, now: float) -> None:
        """Records a request, with or without an answer."""
        self.known_until = now + _KNOWN_FOR

    def answered(self, last: MessageId, now: float) -> None:
        """Records an answer."""
        if self.last != last:
            self.last, self.idle_at = last, now + _IDLE_AFTER

    def is_idle(self, now: float) -> bool:
        """Whether the partition had no new message for a while, so that a waiting reader saves requests."""
        return now >= self.idle_at

    def followed(self, now: float, partitions: int, number: int) -> None:
        """Sets the time of the next request, because the tail has reached the end.

        ``number``: index of this partition, by which requests are spread over time.
        """
        interval = max(_ASKED_ANYWAY, _ASKED_ANYWAY_EACH * partitions)
        spread = 1 + number % partitions / partitions
        self.ask_anyway_at = math.ceil((now + interval * spread) / _STEP) * _STEP


class QuietTime:
    """Detects triggers without work: nothing has changed since a trigger with nothing to plan. Pure.

    Without new entries, Spark's default trigger calls the planner again and again with the same start. Each
    call costs time, because Spark passes offsets and the report as JSON. So a trigger that directly follows
    another trigger waits a moment, unless entries arrive.

    ``is_polled``: whether triggers follow one another directly.
    """

    def __init__(self) -> None:
        self.is_polled = False
        self._start: Offsets | None = None
        self._limited = True
        self._partitions: Sequence[TopicName] = ()
        self._until = self._triggered_at = -math.inf

    def trigger(self, start: Offsets, now: float) -> None:
        """Records that a trigger begins."""
        if self._start is start:
            self.is_polled = now < self._triggered_at + _POLLED_WITHIN
        self._triggered_at = now

    def begin(self, start: Offsets, partitions: Sequence[TopicName], until: float, *, limited: bool) -> None:
        """Records that there is nothing to plan.

        Args:
            partitions: partitions that are read; the same object as long as they do not change.
            until: time of the next work, if no new entries arrive.
        """
        self._start, self._partitions, self._until, self._limited = start, partitions, until, limited

    def end(self) -> None:
        """Records that there may be something to plan."""
        self._start = None

    def lasts(self, start: Offsets, partitions: Sequence[TopicName], now: float, *, limited: bool) -> bool:
        """Whether there is nothing to plan: the same objects as in :meth:`begin`, before its ``until``."""
        is_same = self._start is start and self._partitions is partitions and self._limited == limited
        return is_same and now < self._until

    def seconds_to_wait(self, now: float) -> float:
        """Returns the seconds that the next trigger waits; 0 after new entries, or if triggers are rare."""
        if self._start is None or not self.is_polled:
            return 0.0
        wait = max(_MIN_WAIT, min(_MAX_WAIT, _WAIT_EACH * len(self._partitions)))
        return max(0.0, min(wait, self._until - now))
