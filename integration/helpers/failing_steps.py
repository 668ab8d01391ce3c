"""Steps of a query that fail; in a file of its own, as Spark's workers import it and all it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
from pyspark import TaskContext

from integration.broker.admin import Admin
from integration.broker.waiting import wait_until

# The last rows come in small batches. What is stored is awaited before each, longer each time: one batch soon
# follows another where that is enough, and is still to come when a busy machine has just begun to write.
_SLOW_ROWS = 1000
_BATCH_ROWS = 20
_FIRST_SECONDS = 0.01
_GROWTH = 1.15  # 72 s for all of them

# Seconds in which all that is wanted must be stored. Spark ends no step that waits, even if the sink failed.
_PATIENCE = 60.0


class StepFailedError(Exception):
    """What a test asked for."""


@dataclass(frozen=True, slots=True)
class FailsAt:
    """A step of a query that fails when its task has passed on some rows, and so many are stored.

    The sink's rows end then, as if there were no more. Spark holds back 64 KiB of rows and those of a batch
    of ``maxRecordsPerBatch``, and the sink those that come fast, until others come. So the last rows come
    slowly.

    Attributes:
        rows: that it passes on at most.
        stored: messages that the topic must have taken by then, since the broker has opened it.
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
        seconds = _FIRST_SECONDS
        for batch in batches:
            if not is_failing:
                yield batch
                continue
            for first in range(0, len(batch), _BATCH_ROWS):
                if self.stored and count >= self.rows - _SLOW_ROWS:
                    with suppress(TimeoutError):
                        self._fail(count, seconds)
                    seconds *= _GROWTH
                some = batch[first : min(first + _BATCH_ROWS, first + self.rows - count)]
                yield some
                count += len(some)
                if count >= self.rows:
                    self._fail(count, _PATIENCE)

    def _fail(self, count: int, timeout: float) -> NoReturn:
        """Fail as soon as enough is stored; raises TimeoutError if that takes too long."""
        if self.stored:
            wait_until(lambda: _stored(self.admin_url, self.topic) >= self.stored, timeout=timeout)
        raise StepFailedError(count)


def _stored(admin_url: str, topic: str) -> int:
    """How many messages a partitioned topic has taken since the broker opened it."""
    return int(Admin(admin_url).partitioned_stats(topic)["msgInCounter"])


@dataclass(frozen=True, slots=True)
class LosesShuffle:
    """A step after a shuffle that deletes the shuffle's files, once, when rows are stored.

    Spark notices that when it goes on to the next block of rows, makes the files anew, and tries the stage a
    second time.

    Attributes:
        local_dir: Spark's folder for such files.
        rows: that it passes on before.
        notes: a file, into which each task writes its number and that of its attempt; the folder exists.
    """

    local_dir: str
    rows: int
    notes: Path
    admin_url: str
    topic: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context, count = TaskContext.get(), 0
        assert context is not None
        with self.notes.open("a") as notes:
            notes.write(f"{context.partitionId()} {context.attemptNumber()}\n")
        for batch in batches:
            yield batch
            count += len(batch)
            if count >= self.rows and self._is_first():
                wait_until(lambda: _stored(self.admin_url, self.topic))
                for file in Path(self.local_dir).rglob("shuffle_*.data"):
                    file.unlink(missing_ok=True)

    def _is_first(self) -> bool:
        try:
            self.notes.with_suffix(".deleted").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
