"""The listener's site: the live page, the data that it requests, and the metrics for Prometheus. Pure.

Names of queries and topics are untrusted, so the page receives them as JSON and shows them as text. Its
Content-Security-Policy allows only the site's own script, and no requests to other hosts.

Names of metrics end in a unit, and in ``_total`` if they only grow. ``METRICS`` is the complete list: a test
compares it with the table in the documentation.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from importlib import resources
from typing import Any, NamedTuple

from pulsar_spark.client import HttpAnswer
from pulsar_spark.spark.monitoring.query_figures import BatchFigures, QueryFigures

PREFIX = "pulsar_spark_"


class Snapshot(NamedTuple):
    """Data of the page and the metrics at one time.

    ``failed_runs``: number of runs that have ended with an error, by name of the query.
    """

    time_ms: int
    queries: tuple[QueryFigures, ...]
    failed_runs: Mapping[str, int]


Labels = dict[str, str]
Samples = Iterable[tuple[Labels, float]]


class Metric(NamedTuple):
    """One metric for Prometheus. ``name`` has no prefix; ``text`` is its description."""

    name: str
    text: str
    samples: Callable[[Snapshot], Samples]

    @property
    def kind(self) -> str:
        """Returns ``counter`` for a number that only grows, else ``gauge``."""
        return "counter" if self.name.endswith("_total") else "gauge"


def _each(value: Callable[[QueryFigures], float | None]) -> Callable[[Snapshot], Samples]:
    """Returns a function that yields a sample for each query; none for a query whose ``value`` is None."""

    def samples(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
        for query in snapshot.queries:
            found = value(query)
            if found is not None:
                yield {"query": query.name}, found

    return samples


def _batch(value: Callable[[BatchFigures], float]) -> Callable[[Snapshot], Samples]:
    return _each(lambda query: None if query.last is None else value(query.last))


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _failed_runs(snapshot: Snapshot) -> Samples:
    # Running queries are included from the start with 0, because Prometheus sees no increase when a series
    # first appears with 1.
    counts = dict.fromkeys((each.name for each in snapshot.queries), 0) | dict(snapshot.failed_runs)
    return [({"query": name}, count) for name, count in counts.items()]


def _retries(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    for query in snapshot.queries:
        yield {"query": query.name, "part": "planner"}, query.planner_retries
        yield {"query": query.name, "part": "sink"}, query.written.retries


def _backlog_entries(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    for query in snapshot.queries:
        for each in query.partitions:
            yield {"query": query.name, "topic": each.topic, "partition": each.partition}, each.entries


def _backlog_messages(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    for query in snapshot.queries:
        for each in query.partitions:
            if each.messages is not None:
                yield {"query": query.name, "topic": each.topic, "partition": each.partition}, each.messages


def _lags(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    for query in snapshot.queries:
        for topic, lag in query.lags(snapshot.time_ms).items():
            yield {"query": query.name, "topic": topic}, lag


def bytes_per_second(batch: BatchFigures) -> float:
    """Estimates the stored bytes that a micro-batch has read per second."""
    return sum(each.batch_bytes or 0 for each in batch.sources) / max(batch.seconds, 0.001)


METRICS = (
    Metric(
        "backlog_entries",
        "Broker entries that were not processed when the last trigger ran.",
        _backlog_entries,
    ),
    Metric(
        "backlog_messages_estimate",
        "Messages in these entries, estimated from some entries.",
        _backlog_messages,
    ),
    Metric(
        "lag_seconds",
        "Age of the oldest message that is not processed, since it was published; 0 if there is none.",
        _lags,
    ),
    Metric(
        "backlog_timestamp_seconds",
        "Unix time of the trigger that counted the backlog.",
        _each(lambda query: _seconds(query.backlog_ms)),
    ),
    Metric(
        "last_progress_timestamp_seconds",
        "Unix time when a micro-batch last ended, or when the query last waited for messages.",
        _each(lambda query: _seconds(query.progress_ms)),
    ),
    Metric("batch_id", "Number of the last micro-batch.", _batch(lambda last: last.number)),
    Metric(
        "batch_duration_seconds",
        "Duration of the last micro-batch in seconds.",
        _batch(lambda last: last.seconds),
    ),
    Metric("read_rows_total", "Rows that the query has read.", _each(lambda query: query.rows)),
    Metric(
        "read_rows_per_second",
        "Rows per second that the last micro-batch read.",
        _batch(lambda last: last.rows_per_second),
    ),
    Metric(
        "read_bytes_estimate_total",
        "Stored bytes that the query has read, estimated from some entries.",
        _each(lambda query: query.read_bytes),
    ),
    Metric(
        "read_bytes_estimate_per_second",
        "Stored bytes per second that the last micro-batch read, estimated.",
        _batch(bytes_per_second),
    ),
    Metric(
        "written_messages_total",
        "Messages that a Pulsar sink has written.",
        _each(lambda query: query.written.messages),
    ),
    Metric(
        "written_bytes_total",
        "Bytes of the entries that a Pulsar sink has written, as stored at the broker.",
        _each(lambda query: query.written.bytes),
    ),
    Metric(
        "possible_duplicates_total",
        "Maximum number of messages that a Pulsar sink may have duplicated.",
        _each(lambda query: query.written.possible_duplicates),
    ),
    Metric(
        "data_losses_total",
        "Losses of unprocessed messages that the planner logged as a warning.",
        _each(lambda query: query.data_losses),
    ),
    Metric(
        "possible_loss_partitions",
        "Topic partitions of which messages may have been deleted before the query read them.",
        _each(lambda query: sum(bool(each.possible_loss) for each in query.partitions)),
    ),
    Metric(
        "ended_partitions",
        "Topic partitions that were terminated or migrated to another cluster, and are read to their end.",
        _each(lambda query: query.ended_partitions),
    ),
    Metric(
        "retries_total",
        "Requests to brokers that the planner or tasks of the sink retried.",
        _retries,
    ),
    Metric(
        "failed_runs_total",
        "Runs of a query that ended with an error. The metric remains after the query has ended.",
        _failed_runs,
    ),
)


def prometheus_text(snapshot: Snapshot) -> str:
    """Returns the snapshot in Prometheus' text format, version 0.0.4."""
    return "".join(line for metric in METRICS for line in _lines(metric, snapshot))


def _lines(metric: Metric, snapshot: Snapshot) -> Iterator[str]:
    name = PREFIX + metric.name
    lines = [f"{name}{{{_text_of(labels)}}} {value}\n" for labels, value in metric.samples(snapshot)]
    if lines:
        yield f"# HELP {name} {metric.text}\n# TYPE {name} {metric.kind}\n"
    yield from lines


def _text_of(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    # A lone surrogate, which JSON may contain, cannot be encoded as UTF-8.
    value = value.encode(errors="backslashreplace").decode()
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


PAGE_PATH, METRICS_PATH, JSON_PATH = "/", "/metrics", "/queries.json"

# Maximum topic partitions of a query on the page; the longest backlogs are shown.
MAX_PARTITIONS = 20


def _file(name: str) -> str:
    """Reads a file beside this module, which may be in an archive."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


# The page contains the words STYLE and SCRIPT where both files are inserted.
PAGE, STYLE, SCRIPT = _file("page.html"), _file("page.css"), _file("page.js")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


_POLICY = "; ".join(
    [
        "default-src 'none'",
        f"script-src {_digest(SCRIPT)}",
        f"style-src {_digest(STYLE)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_HTML = PAGE.replace("STYLE", STYLE).replace("SCRIPT", SCRIPT).encode()


def answer(path: str, snapshot: Snapshot) -> HttpAnswer | None:
    """Returns the site's answer for a path; None if the path does not exist."""
    if path == PAGE_PATH:
        return HttpAnswer("text/html; charset=utf-8", _HTML, {"Content-Security-Policy": _POLICY})
    if path == METRICS_PATH:
        return HttpAnswer("text/plain; version=0.0.4; charset=utf-8", prometheus_text(snapshot).encode())
    if path == JSON_PATH:
        return HttpAnswer("application/json", json.dumps(page_data(snapshot), allow_nan=False).encode())
    return None


def page_data(snapshot: Snapshot) -> dict[str, Any]:
    """Returns the page's data. Times are in ms since 1970; null means unknown."""
    return {
        "timeMs": snapshot.time_ms,
        "queries": [_query(each, snapshot.time_ms) for each in snapshot.queries],
        "failedRuns": dict(snapshot.failed_runs),
    }


def _query(query: QueryFigures, now_ms: int) -> dict[str, Any]:
    last, partitions = query.last, query.partitions
    longest = sorted(partitions, key=lambda each: -each.entries)[:MAX_PARTITIONS]
    return {
        "name": query.name,
        "batch": None if last is None else last.number,
        "batchSeconds": None if last is None else last.seconds,
        "rowsPerSecond": None if last is None else _finite(last.rows_per_second),
        "bytesPerSecond": None if last is None else bytes_per_second(last),
        "rows": query.rows,
        "progressMs": query.progress_ms,
        "reads": bool(query.sources),
        "backlogEntries": query.backlog_entries,
        "backlogMessages": query.backlog_messages,
        "backlogMs": query.backlog_ms,
        "lagSeconds": max(query.lags(now_ms).values(), default=None),
        "endedPartitions": query.ended_partitions,
        "dataLosses": query.data_losses,
        "retries": query.planner_retries + query.written.retries,
        "writtenMessages": query.written.messages,
        "writtenBytes": query.written.bytes,
        "possibleDuplicates": query.written.possible_duplicates,
        "partitionCount": len(partitions),
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "entries": each.entries,
                "messages": each.messages,
                "end": each.end,
            }
            for each in longest
        ],
        "batches": [[each.time_ms, _finite(each.rows_per_second), each.seconds] for each in query.batches],
        "backlogs": [[each.time_ms, each.entries, each.messages] for each in query.backlogs],
    }


def _finite(number: float) -> float | None:
    """Returns the number; None if it is infinite.

    JSON has no infinity, which is Spark's rate of an empty micro-batch.
    """
    return number if math.isfinite(number) else None
