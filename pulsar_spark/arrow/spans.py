"""Spans of a buffer, from one position to another: copied into one array, with one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Buffer, Flags, Ints, every
from pulsar_spark.arrow.grid import Grid, copy_spans, items_at


def joined_buffer(parts: Sequence[Buffer]) -> pa.Buffer:
    """Join bytes; a single part is not copied.

    The memory is Arrow's, which reuses freed memory; Python's would be mapped page by page each time.
    """
    if len(parts) == 1:
        return pa.py_buffer(parts[0])
    whole = pa.allocate_buffer(sum(len(part) for part in parts))
    view = memoryview(whole).cast("B")
    at = 0
    for part in parts:
        view[at : at + len(part)] = part
        at += len(part)
    return whole


def gather(
    body: pa.Buffer,
    at: Ints,
    end: Ints,
    has: Flags | None,
    held: Ints | None = None,
    grid: Grid | None = None,
) -> pa.BinaryArray:
    """Copy the spans [at, end) of the body into one array; ``at`` must ascend and spans not overlap.

    Spans of one size are copied as items. Otherwise the body is viewed as a binary array whose even elements
    are the spans, and whose odd elements are the bytes between them. One ``take`` of the even elements then
    copies all spans, in twice the time.

    Args:
        body: bytes that contain the spans.
        at: where they begin.
        end: where they end.
        has: whether there is one, else it is null; None: all are there.
        held: indexes of the selected spans, ascending; None: all.
        grid: that of ``at``, if it is known.
    """
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    if has is None or every(has):
        size = int(end[0] - at[0])
        if size and every(end - at == size):
            return _of_one_size(body, at if held is None else at[held], size, grid if held is None else None)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = at
    offsets[1::2] = end
    spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), body])
    even = np.arange(0, 2 * count, 2, dtype=np.int32) if held is None else (2 * held).astype(np.int32)
    absent = None if has is None or every(has) else ~(has if held is None else has[held])
    return spans.take(pa.array(even, mask=absent))


def _of_one_size(body: pa.Buffer, at: Ints, size: int, grid: Grid | None) -> pa.BinaryArray:
    """Copy spans that all have ``size`` bytes, at least one."""
    if grid is not None:
        return copy_spans(body, grid, [(0, size)])
    items = items_at(body, at, np.dtype((np.void, size)))
    offsets = np.arange(len(at) + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(pa.binary(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(items)])
