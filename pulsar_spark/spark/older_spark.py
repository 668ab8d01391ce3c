"""The streaming source for Spark 4.0 and 4.1, which do not pass the processed offset to latestOffset.

:class:`CallOrder` derives the processed offset from the calls. A new query, and each run with
Trigger.AvailableNow, begins with latestOffset(), before Spark has passed any offset. The answer then is the
present ends of the topics, with the subscription that the user's options name.

Behaviour of both versions, from their sources and from traces of their calls:

* A restart calls ``partitions(o, o)`` with the last offset of the offset log (``setLatestSeenOffset``).
* Then a batch that did not finish runs again: ``partitions(start, o)``, of batch 0 after ``initialOffset()``.
* Trigger.AvailableNow is Trigger.Once, unless spark.sql.streaming.triggerAvailableNowWrapper.enabled is set.
  Then ``latestOffset()`` is called first; its answer is the end of the run. Spark calls it again before and
  after the batch, and only reports these answers.
* With other triggers Spark next calls ``latestOffset()`` when the previous batch is in the commit log.
* A batch calls no ``partitions`` if the query does not use its rows.
* ``commit(end)`` is called as in later versions, when the next batch is in the offset log.

So there are four orders of the first calls ("wrapped": Trigger.AvailableNow with that setting):

    new query                   latest  initial  [partitions]  latest
    restart                     partitions(o, o)  [partitions(start, o)]  latest
    wrapped, new query          latest  initial  latest  initial  [partitions]  latest
    wrapped, restart            latest  partitions(o, o)  [partitions(start, o)]  latest  partitions  latest

A new query whose batch 0 calls no ``partitions`` looks like a wrapped query until the third call of
``latest``; until then no offset counts as processed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from pyspark import __version__ as spark_version
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pulsar_spark.errors import NotReadyError, OptionError, OtherClusterError, UnsupportedError
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.plan.offsets import Json, Offsets
from pulsar_spark.spark.reader import PulsarStreamReader
from pulsar_spark.spark.row_plan import RowPlan
from pulsar_spark.spark.short_errors import short_errors

_log = logging.getLogger(__name__)


class _Run(Enum):
    """The kind of a run, as far as the order of Spark's calls has shown it."""

    BEGINS = auto()  # no method was called yet
    ASKED = auto()  # the first call was latestOffset(): a new query, or Trigger.AvailableNow
    NEW = auto()  # after ASKED, initialOffset() was called: the query has no checkpoint
    UNSURE = auto()  # after NEW, latestOffset() was called; the next call shows AVAILABLE_NOW or POLLED
    POLLED = auto()  # another trigger: Spark calls latestOffset() after the previous batch
    AVAILABLE_NOW = auto()  # the first result of latestOffset() is the end of the run


class CallOrder:
    """Derives a run's kind and its processed offset from the order of Spark's calls.

    Attributes:
        first_end: result of ``latestOffset()`` as the run's first call; None if another call was first.
        processed: offset that is processed at the next call of ``latestOffset()``; None if unknown.
    """

    def __init__(self) -> None:
        self._run = _Run.BEGINS
        self.first_end: Json | None = None
        self.processed: Json | None = None

    @property
    def run_end(self) -> Json | None:
        """Returns the end of a run with Trigger.AvailableNow; None for other or unknown triggers."""
        return self.first_end if self._run is _Run.AVAILABLE_NOW else None

    @property
    def first_batch_end(self) -> Json | None:
        """Returns the end of batch 0, which Spark received before it calls ``initialOffset()``."""
        return self.first_end if self.processed is None else self.processed

    def initial(self) -> None:
        """Records that Spark has called ``initialOffset()``."""
        if self._run is _Run.ASKED:
            self._run = _Run.NEW
        elif self._run is _Run.UNSURE:
            self._run = _Run.AVAILABLE_NOW

    def partitions(self, end: Json) -> None:
        """Records that Spark has called ``partitions(..., end)``."""
        if self._run in (_Run.ASKED, _Run.UNSURE):
            self._run = _Run.AVAILABLE_NOW
        elif self._run is not _Run.AVAILABLE_NOW:
            self._run = _Run.POLLED
        self.processed = end

    def latest(self) -> Json | None:
        """Records that Spark has called ``latestOffset()``; returns the processed offset, None if unknown."""
        if self._run is _Run.NEW:
            self._run = _Run.UNSURE
        elif self._run is _Run.UNSURE:
            self._run, self.processed = _Run.POLLED, self.first_end
        return self.processed

    def answered(self, end: Json) -> Json:
        """Records ``end``, the computed result of ``latestOffset()``; returns the result for Spark."""
        if self._run is _Run.BEGINS:
            self._run, self.first_end = _Run.ASKED, end
        elif self._run is _Run.POLLED:
            self.processed = end
        elif self.first_end is not None:
            return self.first_end
        return end


class OlderStreamReader(PulsarStreamReader):
    """As :class:`PulsarStreamReader`, for Spark 4.0 and 4.1."""

    def __init__(self, options: Mapping[str, str], schema: StructType, rows: RowPlan | None = None) -> None:
        super().__init__(options, schema, rows)
        self._calls = CallOrder()

    @short_errors
    def initialOffset(self) -> Json:  # noqa: N802
        """Returns the start of batch 0, whose end Spark already has; also if batch 0 runs again."""
        end = self._calls.first_batch_end
        self._calls.initial()
        offsets = None if end is None else self._offsets.from_json(end)
        if offsets is not None:
            self._require_name(offsets.subscription)
        return self._offsets.to_json(self._planner().initial(offsets))

    @short_errors
    def latestOffset(self) -> Json:  # type: ignore[override]  # noqa: N802
        """Returns the end of the next micro-batch."""
        processed = self._calls.latest()
        if processed is None:
            return self._calls.answered(self._calls.first_end or self._current_ends())
        run_end = self._calls.run_end
        if run_end is not None:
            self._planner().freeze(Offsets.from_json(run_end).positions)
        found = self._next_end(processed, limited=run_end is None)
        self.reportLatestOffset()
        if run_end is not None:
            _require_progress(*(Offsets.from_json(each) for each in (processed, found, run_end)))
        return self._calls.answered(found)

    @short_errors
    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Returns the tasks of a batch; none for the call ``partitions(o, o)`` of a restart."""
        self._calls.partitions(end)
        name = self._offsets.from_json(end).subscription
        if self._calls.run_end is not None:
            self._require_name(name)
        return [] if start == end else super().partitions(start, end)

    def _require_name(self, name: str) -> None:
        """Raises OptionError if the user names a subscription other than ``name``, the checkpoint's."""
        if parse_source(self._options, Mode.STREAM).subscription not in (None, name):
            raise OptionError(
                f"the checkpoint's subscription is {name}, which Spark {spark_version} cannot change here",
                advice=f"Set predefinedSubscription={name}, or give a new checkpointLocation",
            )

    def _current_ends(self) -> Json:
        options = parse_source(self._options, Mode.STREAM)
        if options.subscription is None:
            raise OptionError(
                f"Spark {spark_version} asks a stream for its end before it tells the checkpoint's start and "
                "subscription, so the query must name its subscription",
                advice="Set predefinedSubscription to a name of its own, and keep it; or use Spark 4.2",
            )
        ends = self._planner().first_ends(options.subscription)
        segment = next((topic for topic in ends if topic.is_segment), None)
        if segment is not None:
            raise UnsupportedError(
                f"Spark {spark_version} asks for the end before the start, so the order of a scalable "
                "topic's segments cannot be kept",
                topic=str(segment.base),
                advice="Use Spark 4.2, or read it in batches",
            )
        if options.limits.is_capped or options.limits.min_messages is not None:
            _log.warning(
                "Spark %s cannot limit the first micro-batch of a new query, and has one micro-batch for "
                "Trigger.AvailableNow: maxMessagesPerTrigger and the other limits do not apply to this one",
                spark_version,
            )
        return self._offsets.to_json(Offsets(options.subscription, ends))


def _require_progress(processed: Offsets, found: Offsets, run_end: Offsets) -> None:
    """Raises an error if the run's end, fixed by Spark, is before the checkpoint or in another cluster."""
    if found.left != processed.left:
        raise OtherClusterError(
            f"the checkpoint is of another cluster, and Spark {spark_version} ends the run where topics end",
            advice="Run the query once with another trigger, by which it moves to this cluster",
        )
    for topic, position in processed.positions.items():
        is_set_back = found.positions.get(topic) != position
        if not is_set_back and run_end.positions.get(topic, position) < position:
            raise NotReadyError(
                f"the broker named {run_end.positions[topic]} as the end, but the query has read up to "
                f"{position}",
                topic=str(topic),
                advice="Start the query again",
            )
