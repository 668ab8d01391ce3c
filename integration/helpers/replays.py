"""A query that writes the same micro-batches again and again, from one checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from integration.fixtures.spark import PulsarInSpark, await_rows
from integration.helpers.failing_steps import FailsAt
from integration.helpers.peer import Peer
from integration.helpers.users_code import notes_of

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# A query that fails rather than that it writes a row twice.
STRICT = {"delivery": "effectively-once", "failOnDuplicates": "true"}


@dataclass(frozen=True, slots=True)
class Replays:
    """A query whose micro-batches have ``rows`` numbers each, to be run again and again.

    Attributes:
        size: bytes of a value, without those that ``change`` makes larger.
        keys: how many keys there are; 0: rows have no keys.
        batches: micro-batches that have rows.
    """

    here: PulsarInSpark
    admin_url: str
    topic: str
    folder: Path
    rows: int
    tasks: int = 1
    size: int = 100
    keys: int = 0
    batches: int = 1

    def run(
        self,
        step: Step | None = None,
        change: Callable[[DataFrame], DataFrame] | None = None,
        /,
        **options: str,
    ) -> None:
        """Run until all rows are written; raises the query's error.

        Args:
            step: between the source and the sink.
            change: of the rows, before the step.
        """
        rows = self._rows()
        if change is not None:
            rows = change(rows)
        if step is not None:
            rows = rows.mapInArrow(step, rows.schema)
        query = self.here.write_stream(rows, self.folder / "checkpoint", self.topic, **options).start()
        try:
            await_rows(query, lambda: (query.lastProgress or {}).get("batchId", -1) >= self.batches - 1)
        finally:
            query.stop()

    def fails(
        self,
        error: str,
        step: Step | None = None,
        change: Callable[[DataFrame], DataFrame] | None = None,
        /,
        **options: str,
    ) -> None:
        """Run, as ``run`` does, until the query fails with an error."""
        with pytest.raises(StreamingQueryException, match=error):
            self.run(step, change, **options)

    def at(self, rows: int, stored: int = 0, task: int = 0) -> FailsAt:
        """A step that fails when a task has passed on so many rows, and so many are stored."""
        return FailsAt(rows, stored, self.admin_url, self.topic, task)

    def _rows(self) -> DataFrame:
        number = f.col("value")
        columns = [f.rpad(number.cast("string"), self.size, ".").alias("value")]
        if self.keys:
            columns.append(f.concat(f.lit("key-"), (number % self.keys).cast("string")).alias("__key"))
        ticks = self.here.ticks(self.rows, self.tasks)
        return ticks.where(number < self.rows * self.batches).select(*columns)


def number_in(value: bytes | None) -> int:
    """The number of a row of ``Replays``."""
    assert value is not None
    return int(value[:20].split(b".", 1)[0])


def written(peer: Peer, topic: str) -> list[int]:
    """The numbers that the C++ client reads, partition by partition."""
    return [number_in(record.value) for record in peer.read_all(topic)]


@contextmanager
def no_duplicates_told(topic: str) -> Iterator[dict[str, str]]:
    """Give an option for the runs in the block; in the end none of them must have told of duplicates."""
    notes = notes_of(topic)
    try:
        yield {"onBatchWritten": "integration.helpers.users_code.note_duplicates"}
        counts = notes.read_text().split()
        assert set(counts) == {"0"}, counts
    finally:
        notes.unlink(missing_ok=True)
