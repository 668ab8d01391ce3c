"""Steps of a query that fail; in a file of its own, as Spark's workers import it and all it needs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from integration.broker.admin import Admin
from integration.broker.waiting import wait_until
from pulsar_spark.spark.sink.joined_batches import MAX_SECONDS


class FailedOnceError(Exception):
    """What a test asked for."""


@dataclass(frozen=True, slots=True)
class FailsOnce:
    """A step of a query that fails, the first time, when a part of the rows is stored already.

    Attributes:
        flag: a file that says that it has failed.
        admin_url: of the broker.
        topic: where the rows go.
        after: bytes that it passes on before. What buffers on the way hold back is the smaller part of them.
    """

    flag: Path
    admin_url: str
    topic: str
    after: int = 300_000

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        size = 0
        for batch in batches:
            yield batch
            size += batch.nbytes
            if size > self.after and not self.flag.exists():
                wait_until(lambda: _stored(self.admin_url, self.topic))
                self.flag.touch()
                raise FailedOnceError(size)


_SLOW_ROWS = 1000


class StepFailedError(Exception):
    """What a test asked for."""


@dataclass(frozen=True, slots=True)
class FailsAt:
    """A step of a query that fails when its task has passed on so many rows, and so many are stored.

    The sink's rows end then, as if there were no more. Spark holds back 64 KiB of rows and those of a batch
    of ``maxRecordsPerBatch``. The sink holds back rows that come fast, so the last ones come slowly.

    Attributes:
        rows: that it passes on before.
        stored: messages that the topic must have taken by then, since the broker has opened it.
        admin_url: of the broker.
        topic: where the rows go.
        task: number of the Spark task that fails.
    """

    rows: int
    stored: int
    admin_url: str
    topic: str
    task: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context, count = TaskContext.get(), 0
        is_failing = context is not None and context.partitionId() == self.task
        for batch in batches:
            if is_failing and self.stored and count >= self.rows - _SLOW_ROWS:
                time.sleep(MAX_SECONDS)
            yield batch[: self.rows - count] if is_failing else batch
            count += len(batch)
            if is_failing and count >= self.rows:
                wait_until(lambda: _stored(self.admin_url, self.topic) >= self.stored)
                raise StepFailedError(count)


def _stored(admin_url: str, topic: str) -> int:
    """How many messages a partitioned topic has taken since the broker opened it."""
    return int(Admin(admin_url).partitioned_stats(topic)["msgInCounter"])
