"""Spark for tests: fixtures `spark`, `listener`, `pulsar_in_spark`, and what runs a query to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from integration.broker.waiting import HANG, wait_until
from integration.cluster import Cluster
from integration.local_spark import SHORT_RUN, local_spark
from pulsar_spark import PulsarProgressListener

# Spark's own, and of no concern to a user of this package.
_SPARKS_WARNINGS = (
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:.*is deprecated:DeprecationWarning:pyspark",
    "ignore:unclosed:ResourceWarning:py4j",
)
# Spark's error where the Python of a source took longer than 10 s to begin.
_NO_PYTHON = "Python worker failed to connect back"


def pytest_configure(config: pytest.Config) -> None:
    for line in _SPARKS_WARNINGS:
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small Spark with two cores; it finds the checkout's package by itself, installed or not."""
    home = tmp_path_factory.mktemp("spark")
    session = local_spark(home, "tests", {"spark.log.level": "OFF"}, java=SHORT_RUN)
    yield session
    session.stop()


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[PulsarProgressListener]:
    """Called for all queries of the test."""
    added = PulsarProgressListener()
    spark.streams.addListener(added)
    yield added
    spark.streams.removeListener(added)
    added.close()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@dataclass(frozen=True, slots=True)
class PulsarInSpark:
    """Spark and a Pulsar, and short ways to read and to write."""

    spark: SparkSession
    service_url: str

    def read(self, topic: str, **options: str) -> DataFrame:
        """A batch read."""
        return self._with_options(self.spark.read, topic, options).load()

    def stream(self, topic: str | None = None, **options: str) -> DataFrame:
        """A streaming read; of everything, if nothing else is asked for."""
        return self._with_options(
            self.spark.readStream, topic, {"startingOffsets": "earliest", **options}
        ).load()

    def write(self, rows: DataFrame, topic: str | None = None, **options: str) -> None:
        """A batch write."""
        self._with_options(rows.write, topic, options).mode("append").save()

    def write_stream(
        self, rows: DataFrame, checkpoint: Path, topic: str | None = None, **options: str
    ) -> Any:
        """A writer of a stream, to be started."""
        sink = self._with_options(rows.writeStream, topic, options)
        return sink.option("checkpointLocation", str(checkpoint))

    def ticks(self, rows: int, tasks: int) -> DataFrame:
        """A stream of numbers that is the same each time, and has no Python in it; ``rows`` a micro-batch."""
        source = self.spark.readStream.format("rate-micro-batch")
        return source.options(rowsPerBatch=rows, numPartitions=tasks, startTimestamp=0).load()

    def rows(self, rows: list[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
        """Rows in one Spark partition, so that they are written in order."""
        return self.spark.createDataFrame(rows, schema).coalesce(1)

    def _with_options(self, given: Any, topic: str | None, options: dict[str, str]) -> Any:
        """A reader or a writer of Spark's, with our format and options; rows or a pattern may name topics."""
        named = {} if topic is None else {"topic": topic}
        return given.format("pulsar").options(**{"service.url": self.service_url, **named, **options})


@pytest.fixture
def pulsar_in_spark(spark: SparkSession, cluster: Cluster) -> PulsarInSpark:
    """The shared Spark and the shared Pulsar."""
    return PulsarInSpark(spark, cluster.service_url)


@dataclass(slots=True)
class Collector:
    """A sink for foreachBatch that keeps the rows of each micro-batch, and fails where a test asks for it.

    Attributes:
        fail_at: numbers of batches that fail, each after its rows were taken.
        batches: rows by number of the micro-batch, one list for each attempt.
    """

    fail_at: set[int] = field(default_factory=set)
    batches: dict[int, list[list[Row]]] = field(default_factory=dict)

    def __call__(self, batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        self.batches[number] = [*self.batches.get(number, []), rows]  # at once: others look meanwhile
        if number in self.fail_at:
            raise InjectedError(number)

    @property
    def rows(self) -> list[Row]:
        """The rows of all batches, each of its last attempt: what an idempotent sink holds."""
        return [row for number in sorted(self.batches) for row in self.batches[number][-1]]

    @property
    def values(self) -> list[str]:
        """Their values as text."""
        return [bytes(row.value).decode() for row in self.rows]


class InjectedError(Exception):
    """A failure that a test asked for."""


def start(
    rows: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path, **trigger: Any
) -> StreamingQuery:
    """Start a query into a foreachBatch sink; ``trigger`` as DataStreamWriter.trigger takes it."""
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return begun(writer.trigger(**trigger) if trigger else writer)


def begun(writer: Any) -> StreamingQuery:
    """Start a query that reads from Pulsar, and wait until it has its source.

    Spark waits only 10 s for the Python of a source, which is too little where all cores are taken. Nothing
    has been read or committed by then, so the query is started again, up to three times in all.
    """
    for _ in range(3):
        query: StreamingQuery = writer.start()
        wait_until(lambda query=query: not query.isActive or "Initializing" not in query.status["message"])
        if _NO_PYTHON not in str(query.exception()):
            return query
    return query


def drain(rows: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    """Run a query over all there is (Trigger.AvailableNow) and wait for its end."""
    query = start(rows, sink, checkpoint, availableNow=True)
    finish(query)
    return query


def finish(query: StreamingQuery, timeout: float = HANG) -> None:
    """Wait for the end of a query that ends by itself; raises its error."""
    try:
        is_over = query.awaitTermination(timeout)  # type: ignore[arg-type]  # it takes floats, too
        assert is_over, f"the query still runs: {query.status}"
    finally:
        query.stop()


def await_rows(query: StreamingQuery, condition: Callable[..., object]) -> None:
    """Wait until a running query has done what is expected; raises its error as soon as it fails."""

    def is_done() -> bool:
        if (error := query.exception()) is not None:
            raise error
        return bool(condition())

    wait_until(is_done)
