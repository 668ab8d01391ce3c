"""Spark's side: the session, and what is timed of a query."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from integration.bench.cpu import spark_cpu_seconds
from integration.bench.ends import Ends
from integration.bench.measure import Cost
from integration.bench.transport import Transport
from integration.helpers.local_spark import local_spark

_checkpoints = itertools.count()
_POLL = 0.02  # seconds


class MicroBatch(NamedTuple):
    """One micro-batch that had rows.

    Attributes:
        seconds: ``triggerExecution``: its whole time, with offsets, log, planning and commit.
    """

    rows: int
    seconds: float


class Read(NamedTuple):
    """A query that has read all.

    Attributes:
        batches: each micro-batch that had rows; the start of the query is in none of them.
        cpu: seconds of CPU of Spark's processes, from when the offsets of the first of them were logged.
    """

    batches: list[MicroBatch]
    cpu: float

    @property
    def cost(self) -> Cost:
        """Of all micro-batches."""
        return Cost(sum(batch.seconds for batch in self.batches), self.cpu)


@contextmanager
def session(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A local Spark on all cores that keeps its files in ``folder``; ``settings`` are those of this one."""
    spark = local_spark(folder, "bench", {"spark.driver.memory": "2g", **(settings or {})}, cores="*")
    try:
        spark.dataSource.register(Transport)
        spark.dataSource.register(Ends)
        yield spark
    finally:
        spark.stop()


def read_rows(spark: SparkSession, source: str, options: Mapping[str, str], rows: int, folder: Path) -> Read:
    """Read ``rows`` rows in a streaming query with AvailableNow to noop.

    Raises:
        ValueError: the query gave another number of rows.
    """
    stream = spark.readStream.format(source).options(**options).load()
    checkpoint = folder / f"checkpoint-{next(_checkpoints)}"
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    began: list[float] = []  # CPU up to each micro-batch, empty ones too
    while query.isActive:
        if (checkpoint / "offsets" / str(len(began))).exists():
            began.append(spark_cpu_seconds(spark))
        time.sleep(_POLL)
    query.awaitTermination()
    ended = spark_cpu_seconds(spark)
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    found = sum(progress.numInputRows for progress in batches)
    if found != rows:
        raise ValueError(f"{source} gave {found} rows, not {rows}")
    cpu = ended - began[batches[0].batchId]
    return Read(
        [MicroBatch(each.numInputRows, each.durationMs["triggerExecution"] / 1000) for each in batches], cpu
    )


def begun_at(progress: StreamingQueryProgress) -> float:
    """When the trigger of a micro-batch began, seconds since 1970."""
    return datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()


def write_rows(rows: DataFrame, sink: str, options: Mapping[str, str]) -> Cost:
    """Write all rows in a batch query: what ``save`` takes, CPU of Spark's processes."""
    return timed(rows.sparkSession, rows.write.format(sink).options(**options).mode("append").save)


def timed(spark: SparkSession, run: Callable[[], None]) -> Cost:
    """What ``run`` takes, CPU of Spark's processes."""
    cpu, began = spark_cpu_seconds(spark), time.perf_counter()
    run()
    seconds = time.perf_counter() - began
    return Cost(seconds, spark_cpu_seconds(spark) - cpu)
