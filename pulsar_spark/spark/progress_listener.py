"""PulsarProgressListener: shows the lag of queries, in log lines, for Prometheus and on a live page.

It reads the sources' reports to Spark for each micro-batch (``monitoring/source_report``), their planners'
reports at each trigger, before the micro-batch runs, and the totals of sinks (both in
``monitoring/driver_files``). Sources of other formats are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pulsar_spark.client import HttpAnswer, PageServer, epoch_ms
from pulsar_spark.spark.monitoring.driver_files import (
    SinkTotals,
    planners_path,
    read_planners,
    read_sink_totals,
)
from pulsar_spark.spark.monitoring.query_figures import (
    BatchFigures,
    QueryFigures,
    StartedQuery,
    not_yet_reported,
)
from pulsar_spark.spark.monitoring.site import Snapshot, answer, prometheus_text
from pulsar_spark.spark.monitoring.source_report import PartitionBacklog, SourceReport

_log = logging.getLogger("pulsar_spark.progress")

# Maximum number of partitions whose last positions (ends) a batch's log line lists.
_MAX_ENDS = 20
# Maximum number of queries whose failures are counted; the last failed queries are kept.
_MAX_FAILED = 1000


class PulsarProgressListener(StreamingQueryListener):
    """Logs the progress of all queries that read from Pulsar, and serves it to Prometheus and on a live page.

    For queries that only write to Pulsar, it shows the messages that were written and may be duplicated.

        listener = PulsarProgressListener()
        spark.streams.addListener(listener)
        print(listener.serve(port=4050))

    The logger is ``pulsar_spark.progress``: one line a micro-batch at INFO, one a partition at DEBUG.
    Thread-safe: Spark calls it on one thread; other threads see immutable figures. It raises no errors into
    Spark: unreadable progress is logged once for each run of a query.
    """

    def __init__(self) -> None:
        self._queries: Mapping[str, QueryFigures] = {}  # by query name, which is unique
        self._started: Mapping[str, StartedQuery] = {}  # by run id, until the first report
        self._names: dict[str, str] = {}  # query name by run id
        self._failed_runs: Mapping[str, int] = {}
        self._ended: frozenset[str] = frozenset()  # planners of ended queries, which may still report
        self._complained: set[str] = set()
        self._written: dict[str, SinkTotals] = {}  # by query id: totals at the last progress
        self._path: Path | None = None  # folder of planners' reports; requested only on Spark's thread
        self._server: PageServer | None = None

    # ---- called by Spark

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Records the query's name, the start of this run, and the totals of earlier runs."""
        run, name = str(event.runId), event.name or str(event.id)
        self._path = planners_path()
        self._written[str(event.id)] = read_sink_totals(str(event.id))
        self._names[run] = name
        self._started = {**self._started, run: StartedQuery(name, _ms(event.timestamp))}

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Records that the query has no new messages, and that its last micro-batch has ended."""
        for name, query in self._queries.items():
            if query.run == str(event.runId):
                idle = query.when_idle(_ms(event.timestamp), read_planners(self._path))
                self._queries = {**self._queries, name: idle}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Adds the figures of a micro-batch."""
        run = str(event.progress.runId)
        try:
            self._take(run, event.progress)
        except Exception:  # noqa: BLE001 - a figure that is missing must not disturb the queries
            if run not in self._complained:
                self._complained.add(run)
                _log.warning("the progress of query %s cannot be read", run, exc_info=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Removes the query, and counts its failure."""
        run = str(event.runId)
        ended = [query for query in self._queries.values() if query.run == run]
        self._ended = frozenset(each for query in ended for each in query.planners)
        self._queries = {name: query for name, query in self._queries.items() if query.run != run}
        self._started = {each: found for each, found in self._started.items() if each != run}
        self._complained.discard(run)
        name = self._names.pop(run, str(event.id))
        if event.exception is not None:
            others = {each: count for each, count in self._failed_runs.items() if each != name}
            failed = [*others.items(), (name, self._failed_runs.get(name, 0) + 1)]
            self._failed_runs = dict(failed[-_MAX_FAILED:])

    # ---- called by users

    def prometheus_text(self) -> str:
        """Returns the figures of all running queries in Prometheus' text format, ``text/plain``."""
        return prometheus_text(self._snapshot())

    def serve(self, port: int = 0, host: str = "127.0.0.1", allowed_hosts: Collection[str] = ()) -> str:
        """Serves the live page at ``/``, the figures for Prometheus at ``/metrics``; returns the page's URL.

        There is no login: everybody who can connect can read the figures, and the names of queries and
        topics, but nothing else.

        Args:
            port: port to listen on; 0 = any free port.
            host: address to listen on. With the default, only processes on this host can connect.
            allowed_hosts: further host names that URLs of this server may have. ``localhost`` is always
                allowed, and with another ``host`` than the default: IP addresses, ``host`` and this host's
                own name. Requests to other names are refused, because a web page could make a browser send
                them.

        Raises:
            OSError: the address or port cannot be used.
            RuntimeError: the listener is already served.
        """
        if self._server is not None:
            raise RuntimeError(f"the listener is already served at {self._server.url}: call close() first")
        try:
            self._server = PageServer(self._answer, host, port, allowed_hosts)
        except OSError as error:
            text = (
                f"the page cannot listen on {host} port {port}: {error.strerror}. Choose another, or port 0"
            )
            raise OSError(error.errno, text) from None
        return self._server.url

    def close(self) -> None:
        """Stops serving, in less than two seconds. The listener itself continues."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _answer(self, path: str) -> HttpAnswer | None:
        return answer(path, self._snapshot())

    def _snapshot(self) -> Snapshot:
        """Returns the figures, including later reports of planners."""
        queries, live = self._queries, read_planners(self._path)
        shown = [query.with_live(live.values()) for query in queries.values()]
        claimed = {planner for query in shown for planner in query.planners} | self._ended
        unclaimed = [report for planner, report in live.items() if planner not in claimed]
        shown += not_yet_reported(unclaimed, self._started.values())
        # A query's new run may exist beside the previous one, whose end Spark has not reported yet.
        by_name = {each.name: each for each in shown}
        return Snapshot(epoch_ms(), tuple(by_name[name] for name in sorted(by_name)), self._failed_runs)

    def _take(self, run: str, progress: StreamingQueryProgress) -> None:
        found = [SourceReport.parse(source.latestOffset) for source in progress.sources]
        sources = tuple(each for each in found if each is not None)
        name = progress.name or str(progress.id)
        if run not in self._names:  # the query started before the listener was added
            self._names[run] = name
            self._path = planners_path()
        self._started = {each: query for each, query in self._started.items() if each != run}
        written = self._new_in_sink(str(progress.id))
        if written.possible_duplicates:
            _log.warning(
                "query %s, batch %d: up to %d messages may be duplicated, see the sink's log",
                *(name, progress.batchId, written.possible_duplicates),
            )
        before = self._queries.get(name)
        if not sources and not any(written) and before is None:
            return
        same = before if before is not None and before.run == run else QueryFigures(name, run)
        new = same.after(
            BatchFigures(
                number=progress.batchId,
                end_ms=_ms(progress.timestamp) + progress.batchDuration,
                seconds=progress.batchDuration / 1000,
                rows=progress.numInputRows,
                rows_per_second=progress.processedRowsPerSecond,
                sources=sources,
                written=written,
            )
        )
        self._queries = {**self._queries, name: new}
        _log_batch(new, progress.numInputRows)

    def _new_in_sink(self, query: str) -> SinkTotals:
        """Returns the totals that the query's sink has added since the query's last progress."""
        found = read_sink_totals(query)
        new, self._written[query] = found.minus(self._written.get(query, SinkTotals())), found
        return new


def _ms(timestamp: str) -> int:
    """Converts a time from Spark (``2026-11-21T11:00:00.000Z``) to ms since 1970."""
    return round(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1000)


def _log_batch(query: QueryFigures, rows: int) -> None:
    last = query.last
    assert last is not None
    partitions = query.partitions
    _log.info(
        "query %s, batch %d: %d rows in %d ms, %.1f rows/s; backlog at its start: %d entries%s; ends %s",
        *(query.name, last.number, rows, round(last.seconds * 1000), last.rows_per_second),
        *(query.backlog_entries, _messages(query.backlog_messages), _ends(partitions)),
    )
    for each in partitions:
        _log.debug(
            "query %s, batch %d: %s partition %s: end %s, backlog at its start: %d entries%s",
            *(query.name, last.number, each.topic, each.partition, each.end, each.entries),
            _messages(each.messages),
        )


def _messages(count: int | None) -> str:
    return "" if count is None else f", about {count} messages"


def _ends(partitions: Iterable[PartitionBacklog]) -> str:
    """Returns a text with the ends of at most _MAX_ENDS partitions, by topic.

    Example: ``topic 0=12:99 1=13:4, other -1=14:3``.
    """
    listed = list(partitions)
    topics: dict[str, list[str]] = {}
    for each in listed[:_MAX_ENDS]:
        topics.setdefault(each.topic, []).append(f"{each.partition}={each.end}")
    text = ", ".join(" ".join([topic, *ends]) for topic, ends in topics.items())
    more = len(listed) - _MAX_ENDS
    return text if more <= 0 else f"{text}, and {more} more partitions"
