"""The metrics, and their text in Prometheus' format. Pure.

Names end in a unit, and in ``_total`` if they only grow. ``METRICS`` is the complete list: a test compares it
with the table in the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

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
    """One metric."""

    name: str
    text: str
    samples: Callable[[Snapshot], Samples]

    @property
    def kind(self) -> str:
        """Returns ``counter`` for a number that only grows, else ``gauge``."""
        return "counter" if self.name.endswith("_total") else "gauge"


def _each(value: Callable[[QueryFigures], float | None]) -> Callable[[Snapshot], Samples]:
    """Returns a function that yields one sample for each query with a value."""

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
