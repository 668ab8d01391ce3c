"""PulsarProgressListener: how far queries lag, as log lines and for Prometheus.

It reads what the source reports to Spark of each micro-batch (``sources[i].latestOffset`` of the progress):

    {"topics": {"persistent://public/default/t": {"0": {"end": "12:99", "backlogEntries": 10,
                                                        "backlogMessages": 1000}}},
     "backlogEntries": 10, "backlogMessages": 1000, "dataLosses": 0}

``backlogMessages`` is there where the broker numbers messages. Sources of other formats are ignored. Of the
sink it tells how many messages may be there twice (``sink/duplicate_counts``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pulsar_spark.spark.sink.duplicate_counts import read_duplicates

_log = logging.getLogger("pulsar_spark.progress")

# The maximum number of partitions whose ends are in a batch's line.
_MAX_ENDS = 20


class Backlog(NamedTuple):
    """The messages of a topic partition that are not yet in a micro-batch.

    Attributes:
        topic: full name, without the partition.
        partition: its number, ``-1`` for a topic without partitions.
        end: id of its last message.
        entries: their broker entries.
        messages: their number, or None where the broker does not know.
    """

    topic: str
    partition: str
    end: str
    entries: int
    messages: int | None


class _Query(NamedTuple):
    """The figures of a running query; rows and duplicates are of its run since the listener was added."""

    run: str
    name: str
    rows: int
    batch: int
    rows_per_second: float
    milliseconds: int
    losses: int
    backlogs: tuple[Backlog, ...]
    duplicates: int


class PulsarProgressListener(StreamingQueryListener):
    """Logs the progress of all queries that read from Pulsar, and gives it to Prometheus.

    Of queries that only write to Pulsar it tells where messages may be there twice.

        listener = PulsarProgressListener()
        spark.streams.addListener(listener)

    The logger is ``pulsar_spark.progress``: one line a micro-batch at INFO, one a partition at DEBUG.
    Thread-safe: Spark calls it on one thread, and other threads see figures that never change. It never
    raises into Spark: progress that it cannot read is logged once for each run of a query.
    """

    def __init__(self) -> None:
        self._queries: Mapping[str, _Query] = {}  # by name: that of a running query is its own
        self._complained: set[str] = set()
        self._duplicates: dict[str, int] = {}  # by query id, all that were there at its last progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Take what may be there twice of runs before this one."""
        self._duplicates[str(event.id)] = _duplicates_of(str(event.id))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing has changed."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Take the figures of a micro-batch."""
        run = str(event.progress.runId)
        try:
            self._take(run, event.progress)
        except Exception:  # noqa: BLE001 - a figure that is missing must not disturb the queries
            if run not in self._complained:
                self._complained.add(run)
                _log.warning("the progress of query %s cannot be read", run, exc_info=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the query."""
        run = str(event.runId)
        self._queries = {name: query for name, query in self._queries.items() if query.run != run}
        self._complained.discard(run)

    def prometheus_text(self) -> str:
        """The figures of all running queries in Prometheus' text format, to be served as ``text/plain``."""
        queries = self._queries
        return "".join(_exposition([queries[name] for name in sorted(queries)]))

    def _take(self, run: str, progress: StreamingQueryProgress) -> None:
        shown = [found for source in progress.sources if (found := _reported(source.latestOffset))]
        name = progress.name or str(progress.id)
        before = self._queries.get(name)
        new = self._new_duplicates(str(progress.id))
        if new:
            _log.warning(
                "query %s, batch %d: up to %d messages may be there twice, see the sink's log",
                *(name, progress.batchId, new),
            )
        if not shown and not new and before is None:
            return
        backlogs = _of_partitions(backlog for report in shown for backlog in _backlogs(report))
        same = before if before is not None and before.run == run else None
        query = _Query(
            run=run,
            name=name,
            rows=progress.numInputRows + (same.rows if same else 0),
            batch=progress.batchId,
            rows_per_second=progress.processedRowsPerSecond,
            milliseconds=progress.batchDuration,
            losses=sum(int(report.get("dataLosses", 0)) for report in shown),
            backlogs=backlogs,
            duplicates=new + (same.duplicates if same else 0),
        )
        self._queries = {**self._queries, name: query}
        _log_batch(name, progress, backlogs)

    def _new_duplicates(self, query: str) -> int:
        """How many messages may be there twice that were not known of at the query's last progress."""
        found = _duplicates_of(query)
        new, self._duplicates[query] = found - self._duplicates.get(query, 0), found
        return new


def _duplicates_of(query: str) -> int:
    try:
        return read_duplicates(query)
    except (OSError, RuntimeError):
        return 0  # not beside Spark's driver, so nothing can be known


def _reported(text: str | None) -> dict[str, Any] | None:
    """The source's report; None where another source made it, or nothing is known yet."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("topics"), dict) else None


def _backlogs(report: Mapping[str, Any]) -> Iterator[Backlog]:
    for topic, partitions in report["topics"].items():
        for number, found in partitions.items():
            messages = found.get("backlogMessages")
            known = None if messages is None else int(messages)
            yield Backlog(topic, number, str(found["end"]), int(found["backlogEntries"]), known)


def _of_partitions(backlogs: Iterable[Backlog]) -> tuple[Backlog, ...]:
    """One for each partition: the larger one, where a query reads a partition twice."""
    found: dict[tuple[str, str], Backlog] = {}
    for each in backlogs:
        before = found.setdefault((each.topic, each.partition), each)
        if before.entries < each.entries:
            found[each.topic, each.partition] = each
    return tuple(found.values())


def _sum(backlogs: Iterable[Backlog]) -> tuple[int, int | None]:
    """The entries and messages of all backlogs; messages only where all partitions know them."""
    entries, messages = 0, 0
    unknown = False
    for each in backlogs:
        entries += each.entries
        messages += each.messages or 0
        unknown = unknown or each.messages is None
    return entries, None if unknown else messages


def _log_batch(name: str, progress: StreamingQueryProgress, backlogs: tuple[Backlog, ...]) -> None:
    entries, messages = _sum(backlogs)
    _log.info(
        "query %s, batch %d: %d rows in %d ms, %.1f rows/s; backlog %d entries%s; ends %s",
        *(name, progress.batchId, progress.numInputRows, progress.batchDuration),
        *(progress.processedRowsPerSecond, entries, _messages(messages), _ends(backlogs)),
    )
    for each in backlogs:
        _log.debug(
            "query %s, batch %d: %s partition %s: end %s, backlog %d entries%s",
            *(name, progress.batchId, each.topic, each.partition, each.end, each.entries),
            _messages(each.messages),
        )


def _messages(count: int | None) -> str:
    return "" if count is None else f", {count} messages"


def _ends(backlogs: tuple[Backlog, ...]) -> str:
    """``topic 0=12:99 1=13:4, other -1=14:3``: topics with their partitions' ends, the first of many."""
    topics: dict[str, list[str]] = {}
    for each in backlogs[:_MAX_ENDS]:
        topics.setdefault(each.topic, []).append(f"{each.partition}={each.end}")
    text = ", ".join(" ".join([topic, *ends]) for topic, ends in topics.items())
    more = len(backlogs) - _MAX_ENDS
    return text if more <= 0 else f"{text}, and {more} more partitions"


def _exposition(queries: Sequence[_Query]) -> Iterator[str]:
    yield from _metric("rows_total", "counter", "Rows read.", [(_of(each), each.rows) for each in queries])
    yield from _metric(
        "possible_duplicates_total",
        "counter",
        "Messages that may be there twice.",
        [(_of(each), each.duplicates) for each in queries],
    )
    yield from _metric("batch_id", "gauge", "Last batch.", [(_of(each), each.batch) for each in queries])
    yield from _metric(
        "batch_duration_ms",
        "gauge",
        "Milliseconds that the last batch took.",
        [(_of(each), each.milliseconds) for each in queries],
    )
    yield from _metric(
        "processed_rows_per_second",
        "gauge",
        "Rows a second in the last batch.",
        [(_of(each), each.rows_per_second) for each in queries],
    )
    yield from _metric(
        "data_losses",
        "gauge",
        "Losses of this run that the planner warned of.",
        [(_of(each), each.losses) for each in queries],
    )
    partitions = [(query, each) for query in queries for each in query.backlogs]
    yield from _metric(
        "backlog_entries",
        "gauge",
        "Broker entries that are in no batch yet.",
        [(_of(query, each), each.entries) for query, each in partitions],
    )
    yield from _metric(
        "backlog_messages",
        "gauge",
        "Messages that are in no batch yet, where known.",
        [(_of(query, each), each.messages) for query, each in partitions if each.messages is not None],
    )


def _metric(name: str, kind: str, text: str, samples: list[tuple[str, float]]) -> Iterator[str]:
    if samples:
        yield f"# HELP pulsar_spark_{name} {text}\n# TYPE pulsar_spark_{name} {kind}\n"
    for labels, value in samples:
        yield f"pulsar_spark_{name}{{{labels}}} {value}\n"


def _of(query: _Query, backlog: Backlog | None = None) -> str:
    labels = {"query": query.name}
    if backlog is not None:
        labels |= {"topic": backlog.topic, "partition": backlog.partition}
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
