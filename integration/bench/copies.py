"""A reader that decodes nothing: it decompresses entries and copies their bytes once.

Every reader must do that much: a column's bytes lie together in memory, and those of an entry do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.spans import joined_buffer
from pulsar_spark.wire.entry.codecs import decompress_together
from pulsar_spark.wire.entry.entries import Entries


def copied(groups: Iterable[Entries], batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Give as many rows as the entries have messages.

    Args:
        groups: entries, all compressed with LZ4 or none.
        batch: as many rows as a record batch may have; its first column is the values.
        size: bytes of a value.

    Yields:
        Rows of ``batch``, with the bytes of the entries in the place of the values.
    """
    offsets = pa.py_buffer(np.arange(0, (batch.num_rows + 1) * size, size, dtype=np.int32))
    for parts in _parts(groups, batch.num_rows):
        rows = sum(int(part.messages.sum()) for part in parts)
        value = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, _bytes(parts)])
        others = batch.slice(0, rows).columns[1:]
        yield pa.RecordBatch.from_arrays([value, *others], schema=batch.schema)


def _parts(groups: Iterable[Entries], max_rows: int) -> Iterator[list[Entries]]:
    """As many entries together as have at most ``max_rows`` messages."""
    held: list[Entries] = []
    left = max_rows
    for group in groups:
        ends = np.cumsum(group.messages)
        first = done = 0
        while first < len(group):
            last = int(np.searchsorted(ends, done + left, side="right"))
            if last == first:
                assert held, "an entry has more messages than a record batch has rows"
                yield held
                held, left = [], max_rows
                continue
            held.append(group[first:last])
            left -= int(ends[last - 1]) - done
            done = int(ends[last - 1])
            first = last
    if held:
        yield held


def _bytes(parts: Sequence[Entries]) -> pa.Buffer:
    payloads = [payload for part in parts for payload in part.payloads]
    if not parts[0].compression[0]:
        return joined_buffer(payloads)
    plain = decompress_together(payloads, np.concatenate([part.uncompressed_size for part in parts]).tolist())
    assert plain is not None, "an entry is not what the benchmark has written"
    copy = pa.allocate_buffer(plain.size)
    np.copyto(np.frombuffer(copy, np.uint8), np.frombuffer(plain, np.uint8))
    return copy
