"""QuietTime: how long the triggers of a query have nothing to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pulsar_spark.ids import TopicName
from pulsar_spark.spark.plan.offsets import Offsets

# Maximum seconds between two triggers without data after which more triggers are expected soon.
_POLLED_WITHIN = 1.0
# Seconds that a trigger waits: minimum, per partition, maximum. New entries end the wait, but a query's other
# sources are delayed by it.
_MIN_WAIT = 0.05
_WAIT_EACH = 0.00015
_MAX_WAIT = 0.5


class QuietTime:
    """How long triggers have nothing to do: calls with a start for which there is nothing to plan. Pure.

    While nothing comes, Spark's default trigger calls with the same start again. The answer then costs
    nothing, but each time Spark writes and reads the start, the answer and the report as JSON. So a trigger
    that directly follows another one waits a moment, unless entries come.

    Attributes:
        is_polled: whether triggers follow one another directly.
    """

    def __init__(self) -> None:
        self.is_polled = False
        self._start: Offsets | None = None
        self._limited = True
        self._partitions: Sequence[TopicName] = ()
        self._until = self._triggered_at = -math.inf

    def trigger(self, start: Offsets, now: float) -> None:
        """Note that a trigger begins."""
        if self._start is start:
            self.is_polled = now < self._triggered_at + _POLLED_WITHIN
        self._triggered_at = now

    def begin(self, start: Offsets, partitions: Sequence[TopicName], until: float, *, limited: bool) -> None:
        """Note that there is nothing to plan.

        Args:
            start: end of the previous batch.
            partitions: the partitions that are read, as one object.
            until: when there is work even if nothing comes.
            limited: whether the user's limits apply.
        """
        self._start, self._partitions, self._until, self._limited = start, partitions, until, limited

    def end(self) -> None:
        """Note that there may be something to plan."""
        self._start = None

    def lasts(self, start: Offsets, partitions: Sequence[TopicName], now: float, *, limited: bool) -> bool:
        """Whether a trigger has nothing to do: it has the same objects as the last :meth:`begin`."""
        is_same = self._start is start and self._partitions is partitions and self._limited == limited
        return is_same and now < self._until

    def seconds_to_wait(self, now: float) -> float:
        """How long the next trigger should wait for entries; 0 if the last found some, or it comes late."""
        if self._start is None or not self.is_polled:
            return 0.0
        wait = max(_MIN_WAIT, min(_MAX_WAIT, _WAIT_EACH * len(self._partitions)))
        return max(0.0, min(wait, self._until - now))
