"""QueryFigures: the figures of a running query, from its progress and its planners' reports. Pure.

Figures are immutable, and each micro-batch makes new figures. So Spark's reporting thread and the threads
that answer scrapes need no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pulsar_spark.spark.monitoring.driver_files import SinkTotals
from pulsar_spark.spark.monitoring.source_report import PartitionBacklog, SourceReport, sum_or_none

# Maximum points of a query that are kept for the live page.
MAX_POINTS = 400

_NOTHING = SinkTotals()


class BatchPoint(NamedTuple):
    """One micro-batch. ``time_ms``: end of the micro-batch, in ms since 1970."""

    time_ms: int
    rows_per_second: float
    seconds: float


class BacklogPoint(NamedTuple):
    """The backlog at one trigger: the entries that were not processed."""

    time_ms: int
    entries: int
    messages: int | None


class BatchFigures(NamedTuple):
    """The figures of one micro-batch, from Spark's progress report."""

    number: int
    end_ms: int
    seconds: float
    rows: int
    rows_per_second: float
    sources: tuple[SourceReport, ...]
    written: SinkTotals


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """The figures of a running query. Sums cover this run, from the time when the listener was added.

    Attributes:
        name: name of the query; without a name its id. Before the query's first progress report, it may be
            the name of the subscription.
        last: last micro-batch; None before the first has ended.
        progress_ms: last time of progress, in ms since 1970; None before the first micro-batch has ended. A
            query that waits for messages also makes progress.
        batches: last micro-batches, oldest first.
        backlogs: backlogs at the last triggers, oldest first.
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
        """Returns each partition's backlog; the larger one if a query reads a partition twice."""
        found: dict[tuple[str, str], PartitionBacklog] = {}
        for each in (each for source in self.sources for each in source.partitions):
            before = found.setdefault((each.topic, each.partition), each)
            if before.entries < each.entries:
                found[each.topic, each.partition] = each
        return tuple(found.values())

    @property
    def backlog_entries(self) -> int:
        """Returns the number of unprocessed entries."""
        return sum(each.entries for each in self.partitions)

    @property
    def backlog_messages(self) -> int | None:
        """Estimates the unprocessed messages; None unless the number is known for all partitions."""
        return sum_or_none([each.messages for each in self.partitions])

    def lags(self, now_ms: int) -> dict[str, float]:
        """Returns each topic's lag: seconds since its oldest unprocessed message was published, 0 for none.

        A topic is left out if the time is unknown for all its partitions with a backlog.
        """
        waiting: dict[str, list[int | None]] = {}
        for each in self.partitions:
            waiting.setdefault(each.topic, []).extend([each.oldest_ms] if each.entries else [])
        found = {}
        for topic, times in waiting.items():
            known = [each for each in times if each is not None]
            if known or not times:
                found[topic] = max(0.0, (now_ms - min(known, default=now_ms)) / 1000)
        return found

    @property
    def backlog_ms(self) -> int | None:
        """Returns the time of the oldest backlog count, in ms since 1970; None without a Pulsar source."""
        return min((each.time_ms for each in self.sources), default=None)

    @property
    def data_losses(self) -> int:
        """Returns the number of losses in this run that planners have reported as warnings."""
        return sum(each.data_losses for each in self.sources)

    @property
    def ended_partitions(self) -> int:
        """Returns the number of partitions that will get no more messages."""
        return sum(each.ended_partitions for each in self.sources)

    @property
    def planner_retries(self) -> int:
        """Returns the number of requests that planners have repeated in this run."""
        return sum(each.retries for each in self.sources)

    @property
    def planners(self) -> frozenset[str]:
        """Returns the ids of the query's planners; each source has one, which plans its micro-batches."""
        return frozenset(each.planner for each in self.sources)

    def after(self, batch: BatchFigures) -> QueryFigures:
        """Returns the figures after one more micro-batch."""
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
        """Returns the figures after Spark has reported the query idle. ``live``: reports by planner id."""
        new = self.with_live(live.values())
        # A running planner writes a report at each change, so its last report is still valid at ``time_ms``.
        reports = (each if each.planner in live else each.when_idle() for each in new.sources)
        sources = tuple(replace(each, time_ms=max(each.time_ms, time_ms)) for each in reports)
        return replace(new, progress_ms=time_ms, sources=sources)._with_backlog_point()

    def with_live(self, reports: Iterable[SourceReport]) -> QueryFigures:
        """Returns the figures, with a source's report replaced by its planner's report if that is newer."""
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
    """A query that has started and has not reported yet."""

    name: str
    start_ms: int


def not_yet_reported(
    live: Iterable[SourceReport], started: Iterable[StartedQuery]
) -> tuple[QueryFigures, ...]:
    """Returns figures of queries in their first micro-batch, from their planners' reports.

    A planner does not know its query's name. If exactly one query name is possible by the start times, the
    figures have this name. Otherwise they have the name of the subscription.
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
