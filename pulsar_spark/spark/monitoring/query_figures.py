"""QueryFigures: what is known of a running query, from its progress and its planners' reports. Pure.

Figures never change: a micro-batch makes new ones. So the thread on which Spark reports and those that answer
a scrape need no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pulsar_spark.spark.monitoring.sink_totals import SinkTotals
from pulsar_spark.spark.monitoring.source_report import PartitionBacklog, SourceReport, sum_or_none

# Points of a query that are kept for the live page.
MAX_POINTS = 400

_NOTHING = SinkTotals()


class BatchPoint(NamedTuple):
    """One micro-batch.

    Attributes:
        time_ms: when it ended, in ms since 1970.
        rows_per_second: rows it has read for each second it took.
        seconds: how long it took.
    """

    time_ms: int
    rows_per_second: float
    seconds: float


class BacklogPoint(NamedTuple):
    """A backlog as one trigger found it.

    Attributes:
        time_ms: when the trigger ran, in ms since 1970.
        entries: broker entries that were not processed.
        messages: estimate of their messages; None where nothing is known.
    """

    time_ms: int
    entries: int
    messages: int | None


class BatchFigures(NamedTuple):
    """What one progress says.

    Attributes:
        number: of the micro-batch.
        end_ms: when it ended, in ms since 1970.
        seconds: how long it took.
        rows: that were read.
        rows_per_second: Spark's processedRowsPerSecond.
        sources: the reports of its Pulsar sources.
        written: by its Pulsar sink.
    """

    number: int
    end_ms: int
    seconds: float
    rows: int
    rows_per_second: float
    sources: tuple[SourceReport, ...]
    written: SinkTotals


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """A query that runs; sums are of its run, from when the listener was added.

    Attributes:
        name: its name, or its id without one; before its first progress perhaps its subscription's name.
        run: id of the run; empty before the first progress.
        last: the last micro-batch; None before the first has ended.
        rows: that were read.
        read_bytes: estimate of the stored bytes that were read.
        written: by a Pulsar sink.
        progress_ms: when it was last seen to make progress, in ms since 1970; None before the first
            micro-batch has ended. A query that waits for messages also makes progress.
        sources: the last reports of its Pulsar sources.
        batches: the last micro-batches, oldest first.
        backlogs: the backlogs at the last triggers, oldest first.
    """

    name: str
    run: str = ""
    last: BatchFigures | None = None
    rows: int = 0
    read_bytes: int = 0
    written: SinkTotals = _NOTHING
    progress_ms: int | None = None
    sources: tuple[SourceReport, ...] = ()
    batches: tuple[BatchPoint, ...] = ()
    backlogs: tuple[BacklogPoint, ...] = ()

    @property
    def partitions(self) -> tuple[PartitionBacklog, ...]:
        """One for each topic partition: the larger one, where a query reads a partition twice."""
        found: dict[tuple[str, str], PartitionBacklog] = {}
        for each in (each for source in self.sources for each in source.partitions):
            before = found.setdefault((each.topic, each.partition), each)
            if before.entries < each.entries:
                found[each.topic, each.partition] = each
        return tuple(found.values())

    @property
    def backlog_entries(self) -> int:
        """Entries that are not processed."""
        return sum(each.entries for each in self.partitions)

    @property
    def backlog_messages(self) -> int | None:
        """Estimate of the messages that are not processed; None where it is not known for all partitions."""
        return sum_or_none([each.messages for each in self.partitions])

    @property
    def backlog_ms(self) -> int | None:
        """When the oldest of the backlogs was counted, in ms since 1970; None without a Pulsar source."""
        return min((each.time_ms for each in self.sources), default=None)

    @property
    def data_losses(self) -> int:
        """Losses of this run that planners warned of."""
        return sum(each.data_losses for each in self.sources)

    @property
    def planner_retries(self) -> int:
        """Requests that planners have repeated in this run."""
        return sum(each.retries for each in self.sources)

    @property
    def planners(self) -> frozenset[str]:
        """The ids of its planners."""
        return frozenset(each.planner for each in self.sources)

    def after(self, batch: BatchFigures) -> QueryFigures:
        """The figures when one more micro-batch has ended."""
        point = BatchPoint(batch.end_ms, batch.rows_per_second, batch.seconds)
        return replace(
            self,
            last=batch,
            rows=self.rows + batch.rows,
            read_bytes=self.read_bytes + sum(each.batch_bytes or 0 for each in batch.sources),
            written=self.written.plus(batch.written),
            progress_ms=batch.end_ms,
            sources=batch.sources,
            batches=(*self.batches, point)[-MAX_POINTS:],
        )._with_backlog_point()

    def when_idle(self, time_ms: int, live: Mapping[str, SourceReport]) -> QueryFigures:
        """The figures when Spark says that the query waits for messages."""
        new = self.with_live(live.values())
        # A planner leaves a report for each change, so what it has left last still holds.
        reports = (each if each.planner in live else each.when_idle() for each in new.sources)
        sources = tuple(replace(each, time_ms=max(each.time_ms, time_ms)) for each in reports)
        return replace(new, progress_ms=time_ms, sources=sources)._with_backlog_point()

    def with_live(self, reports: Iterable[SourceReport]) -> QueryFigures:
        """The figures with later reports of its planners in the place of earlier ones."""
        later = {each.planner: each for each in reports}
        sources = tuple(
            found if (found := later.get(each.planner)) and found.time_ms > each.time_ms else each
            for each in self.sources
        )
        return replace(self, sources=sources)._with_backlog_point()

    def _with_backlog_point(self) -> QueryFigures:
        time_ms = max((each.time_ms for each in self.sources), default=0)
        if not time_ms or (self.backlogs and time_ms <= self.backlogs[-1].time_ms):
            return self
        point = BacklogPoint(time_ms, self.backlog_entries, self.backlog_messages)
        return replace(self, backlogs=(*self.backlogs, point)[-MAX_POINTS:])


class StartedQuery(NamedTuple):
    """A query that has started and has not yet reported anything.

    Attributes:
        name: as of :class:`QueryFigures`.
        start_ms: when it started, in ms since 1970.
    """

    name: str
    start_ms: int


def not_yet_reported(
    live: Iterable[SourceReport], started: Iterable[StartedQuery]
) -> tuple[QueryFigures, ...]:
    """Figures of queries that are known from their planners only: their first micro-batch still runs.

    A planner does not know its query's name. Where only one query can have started it, the figures have that
    name, else that of the subscription.
    """
    waiting = list(started)
    sources: dict[str, list[SourceReport]] = {}
    for report in live:
        names = {each.name for each in waiting if each.start_ms <= report.start_time_ms}
        name = names.pop() if len(names) == 1 else report.subscription
        sources.setdefault(name, []).append(report)
    return tuple(
        QueryFigures(name, sources=tuple(reports))._with_backlog_point() for name, reports in sources.items()
    )
