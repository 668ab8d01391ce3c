"""OlderStreamReader: the streaming source for Spark 4.0 and 4.1, which do not pass the start to latestOffset.

:mod:`plan.call_order` follows from the calls what is processed. The first call of a new query, and of each
run with Trigger.AvailableNow, comes when even the subscription is unknown. Then the answer is where topics
end now, under the name of the user's subscription.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pyspark import __version__ as spark_version
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pulsar_spark.errors import NotReadyError, OptionError, UnsupportedError
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.plan.call_order import CallOrder
from pulsar_spark.spark.plan.offsets import Json, Offsets
from pulsar_spark.spark.reader import PulsarStreamReader
from pulsar_spark.spark.row_plan import RowPlan
from pulsar_spark.spark.short_errors import short_errors

_log = logging.getLogger(__name__)


class OlderStreamReader(PulsarStreamReader):
    """As :class:`PulsarStreamReader`, for Spark 4.0 and 4.1."""

    def __init__(self, options: Mapping[str, str], schema: StructType, rows: RowPlan | None = None) -> None:
        super().__init__(options, schema, rows)
        self._calls = CallOrder()

    @short_errors
    def initialOffset(self) -> Json:  # noqa: N802
        """The start of a new query, or of a batch 0 that did not finish; Spark has the end already."""
        end = self._calls.first_batch_end
        self._calls.initial()
        offsets = None if end is None else self._offsets.from_json(end)
        if offsets is not None:
            self._require_name(offsets.subscription)
        return self._offsets.to_json(self._planner().initial(offsets))

    @short_errors
    def latestOffset(self) -> Json:  # type: ignore[override]  # noqa: N802
        """The next end."""
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
        """The tasks of a batch. At a restart Spark calls this first with the checkpoint's last offset."""
        self._calls.partitions(end)
        name = self._offsets.from_json(end).subscription
        if self._calls.run_end is not None:
            self._require_name(name)
        return [] if start == end else super().partitions(start, end)

    def _require_name(self, name: str) -> None:
        """Refuse another name than the checkpoint's, of a run's end or of a batch 0 that did not finish."""
        if parse_source(self._options, Mode.STREAM).subscription not in (None, name):
            raise OptionError(
                f"the checkpoint's subscription is {name}, which Spark {spark_version} cannot change here",
                advice=f"Set predefinedSubscription={name}, or give a new checkpointLocation",
            )

    def _current_ends(self) -> Json:
        """Where topics end now, before Spark has told the start."""
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
    """Refuse a run that Spark ends before the checkpoint, because rows would be duplicated."""
    for topic, position in processed.positions.items():
        is_set_back = found.positions.get(topic) != position
        if not is_set_back and run_end.positions.get(topic, position) < position:
            raise NotReadyError(
                f"the broker named {run_end.positions[topic]} as the end, but the query has read up to "
                f"{position}",
                topic=str(topic),
                advice="Start the query again",
            )
