"""A step of a query that fails; in a file of its own, as Spark's workers import it and all it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from integration.broker.admin import Admin
from integration.broker.waiting import wait_until


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
                wait_until(lambda: Admin(self.admin_url).partitioned_stats(self.topic)["msgInCounter"])
                self.flag.touch()
                raise FailedOnceError(size)
