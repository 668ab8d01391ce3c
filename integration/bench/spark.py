"""Spark's side: the session, and what is timed of a query."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from integration.bench.ends import Ends
from integration.bench.transport import Transport
from integration.local_spark import local_spark

_checkpoints = itertools.count()


class MicroBatch(NamedTuple):
    """One micro-batch that had rows.

    Attributes:
        rows: how many.
        seconds: ``triggerExecution``: its whole time, with offsets, log, planning and commit.
        began: when its tasks were started, seconds since 1970.
        ended: when they had ended (``addBatch``).
    """

    rows: int
    seconds: float
    began: float
    ended: float


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """A local Spark on all cores that keeps its files in ``folder``."""
    spark = local_spark(folder, "bench", {"spark.driver.memory": "2g"}, cores="*")
    try:
        spark.dataSource.register(Transport)
        spark.dataSource.register(Ends)
        yield spark
    finally:
        spark.stop()


def read_batches(
    spark: SparkSession, source: str, options: Mapping[str, str], rows: int, folder: Path
) -> list[MicroBatch]:
    """Read ``rows`` rows in a streaming query with AvailableNow to noop.

    Returns:
        Each micro-batch that had rows; the start of the query is in none of them.

    Raises:
        ValueError: the query gave another number of rows.
    """
    stream = spark.readStream.format(source).options(**options).load()
    checkpoint = folder / f"checkpoint-{next(_checkpoints)}"
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    found = sum(progress.numInputRows for progress in batches)
    if found != rows:
        raise ValueError(f"{source} gave {found} rows, not {rows}")
    return [_micro_batch(progress) for progress in batches]


def _micro_batch(progress: StreamingQueryProgress) -> MicroBatch:
    seconds = {name: milliseconds / 1000 for name, milliseconds in progress.durationMs.items()}
    started = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
    ended = started + seconds["triggerExecution"] - seconds["commitOffsets"]
    return MicroBatch(progress.numInputRows, seconds["triggerExecution"], ended - seconds["addBatch"], ended)


def write_seconds(rows: DataFrame, sink: str, options: Mapping[str, str]) -> float:
    """Write all rows in a batch query; returns the wall-clock time of ``save``."""
    start = time.perf_counter()
    rows.write.format(sink).options(**options).mode("append").save()
    return time.perf_counter() - start
