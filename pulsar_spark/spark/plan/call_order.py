"""CallOrder: what Spark 4.0 and 4.1 have processed when they call ``latestOffset()``, which they do not say.

Facts about both versions, from their sources and from traces of their calls:

* ``setLatestSeenOffset``, at a restart, calls ``partitions(o, o)`` with the last offset of the offset log.
* A batch that did not finish runs again then: ``partitions(start, o)``, of batch 0 after ``initialOffset()``.
* With Trigger.AvailableNow ``latestOffset()`` is called before all that; its answer is the end of the run.
* Before the batch, and after it, it is called once more, only to report; those answers are not used.
* With other triggers the next call comes when the batch of the last answer is in the commit log.
* A batch may run without ``partitions``, because the query does not use its rows.
* A batch 0 calls ``initialOffset()``: with AvailableNow also before the call that reports.
* ``commit(end)`` comes as in later versions, when the next batch is in the offset log.

So there are four ways to begin; ``=`` is a call of ``latestOffset()`` without a start:

    new query                   =  initial  [partitions]  latest
    restart                     partitions(o, o)  [partitions(start, o)]  latest
    AvailableNow, new query     =  initial  latest (reports)  initial  [partitions]  latest (reports)
    AvailableNow, restart       =  partitions(o, o)  [partitions(start, o)]  latest (reports)  ...

A new query whose batch 0 calls no ``partitions`` looks like AvailableNow until the third call; until then
nothing counts as processed.

Pure: no Spark, no client.
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
    def is_available_now(self) -> bool:
        """Whether the run is known to have that trigger, and ends at :attr:`first_end`."""
        return self._run is _Run.AVAILABLE_NOW

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
