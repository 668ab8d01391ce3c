"""CallOrder: what Spark 4.0 and 4.1 have processed when they call ``latestOffset()``, which they do not say.

Facts about both versions, from their sources and from traces of their calls:

* A restart calls ``partitions(o, o)`` with the last offset of the offset log (``setLatestSeenOffset``).
* A batch that did not finish runs again then: ``partitions(start, o)``, of batch 0 after ``initialOffset()``.
* Trigger.AvailableNow is Trigger.Once, unless spark.sql.streaming.triggerAvailableNowWrapper.enabled is set.
  Then ``latestOffset()`` is called before all that; its answer is the end of the run. It is called again
  before and after the batch, only to report: those answers are not used.
* With other triggers the next call comes when the batch of the last answer is in the commit log.
* A batch calls no ``partitions`` if the query does not use its rows.
* ``commit(end)`` comes as in later versions, when the next batch is in the offset log.

So there are four ways to begin:

    new query                   latest  initial  [partitions]  latest
    restart                     partitions(o, o)  [partitions(start, o)]  latest
    wrapped, new query          latest  initial  latest  initial  [partitions]  latest
    wrapped, restart            latest  partitions(o, o)  [partitions(start, o)]  latest  partitions  latest

A new query whose batch 0 calls no ``partitions`` looks like a wrapped one until the third call of ``latest``;
until then nothing counts as processed. Pure: no Spark, no client.
"""

from __future__ import annotations

from enum import Enum, auto

from pulsar_spark.spark.plan.offsets import Json


class _Run(Enum):
    """What is known of a run."""

    BEGINS = auto()  # nothing was called yet
    ASKED = auto()  # latestOffset() was the first call
    NEW = auto()  # then came initialOffset(): the query has no checkpoint
    UNSURE = auto()  # then latestOffset() again: to report, or after a batch 0 without partitions()
    POLLED = auto()  # each latestOffset() comes when the last answer is processed
    AVAILABLE_NOW = auto()  # the first answer is the end of the run


class CallOrder:
    """Follows the calls of one run of a query.

    Attributes:
        first_end: the end that was answered before a start was known; None if there is none.
        processed: end of what is processed when Spark next calls ``latestOffset()``; None if that is unknown.
    """

    def __init__(self) -> None:
        self._run = _Run.BEGINS
        self.first_end: Json | None = None
        self.processed: Json | None = None

    @property
    def run_end(self) -> Json | None:
        """The end of a run with Trigger.AvailableNow; None for other runs, and until that is known."""
        return self.first_end if self._run is _Run.AVAILABLE_NOW else None

    @property
    def first_batch_end(self) -> Json | None:
        """The end of batch 0, which Spark has already when it calls ``initialOffset()``."""
        return self.first_end if self.processed is None else self.processed

    def initial(self) -> None:
        """Note ``initialOffset()``."""
        if self._run is _Run.ASKED:
            self._run = _Run.NEW
        elif self._run is _Run.UNSURE:
            self._run = _Run.AVAILABLE_NOW

    def partitions(self, end: Json) -> None:
        """Note ``partitions(..., end)``."""
        if self._run in (_Run.ASKED, _Run.UNSURE):
            self._run = _Run.AVAILABLE_NOW
        elif self._run is not _Run.AVAILABLE_NOW:
            self._run = _Run.POLLED
        self.processed = end

    def latest(self) -> Json | None:
        """Note ``latestOffset()``; returns what is processed, None if that is unknown."""
        if self._run is _Run.NEW:
            self._run = _Run.UNSURE
        elif self._run is _Run.UNSURE:
            self._run, self.processed = _Run.POLLED, self.first_end
        return self.processed

    def answered(self, end: Json) -> Json:
        """Note what was found for ``latestOffset()``; returns the answer."""
        if self._run is _Run.BEGINS:
            self._run, self.first_end = _Run.ASKED, end
        elif self._run is _Run.POLLED:
            self.processed = end
        elif self.first_end is not None:
            return self.first_end
        return end
