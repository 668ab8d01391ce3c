"""Making the next record batch while Spark takes the one before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa


def ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the same batches, each made in a thread while the one before is used; errors come in their place.

    Spark's JVM takes a batch only when it is done with the last, and a worker that waited for it would then
    be waited for. One batch more is in memory. To close this early waits for the batch in the making.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="pulsar ahead") as pool:
        following = pool.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = pool.submit(next, batches, None)
            yield batch
