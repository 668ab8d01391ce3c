"""Copies spans (start and end offsets) of a buffer into one array, with one call.

A Grid has positions at equal distances. Numpy can view the items at these positions as an array, and copies
the view in about half of the time of an indexed copy. Messages of one size are in a grid, and so are
consecutive batches of equal numbers of such messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Buffer, Bytes, Flags, Ints, every


def joined_buffer(parts: Sequence[Buffer]) -> pa.Buffer:
    """Joins bytes; a single part is not copied.

    Arrow allocates the result, because it reuses freed memory; Python maps new pages each time.
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
    selected: Ints | None = None,
    grid: Grid | None = None,
) -> pa.BinaryArray:
    """Copies the spans [at, end) of the body into one array; ``at`` must ascend and spans not overlap.

    Spans of one size are copied as numpy items. Other spans take twice the time: the body is viewed as a
    binary array in which spans alternate with the bytes between them, and ``take`` copies the spans.

    Args:
        has: False for a span that becomes null; None: no nulls.
        selected: indexes of the selected spans, ascending; None: all.
        grid: the positions ``at`` as a :class:`Grid`, which saves time; None: unknown, or no grid.
    """
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    if has is None or every(has):
        size = int(end[0] - at[0])
        if size and every(end - at == size):
            if selected is not None:
                at, grid = at[selected], None
            return _of_one_size(body, at, size, grid)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = at
    offsets[1::2] = end
    spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), body])
    even = np.arange(0, 2 * count, 2, dtype=np.int32) if selected is None else (2 * selected).astype(np.int32)
    absent = None if has is None or every(has) else ~(has if selected is None else has[selected])
    return spans.take(pa.array(even, mask=absent))


def _of_one_size(body: pa.Buffer, at: Ints, size: int, grid: Grid | None) -> pa.BinaryArray:
    if grid is not None:
        return copy_spans(body, grid, [(0, size)])
    items = items_at(body, at, np.dtype((np.void, size)))
    offsets = np.arange(len(at) + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(pa.binary(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(items)])


Items: TypeAlias = npt.NDArray[Any]
Span: TypeAlias = tuple[int, int]

# A grid of several rows needs this many positions in each row; with fewer, an indexed copy is faster.
_SHORT = 16


class Grid(NamedTuple):
    """Positions in a buffer, arranged in rows: at a constant distance in a row, and from row to row.

    Attributes:
        first: first position.
        shape: number of rows, and of positions in each row.
        steps: bytes from row to row, and from position to position.
    """

    first: int
    shape: tuple[int, int]
    steps: tuple[int, int]

    def items(self, body: Bytes | pa.Buffer, kind: np.dtype[Any], place: int = 0) -> Items:
        """Returns a view of the items that lie ``place`` bytes after each position: [rows, positions]."""
        items: Items = np.ndarray(self.shape, kind, body, self.first + place, self.steps)
        return items

    def moved(self, first: int) -> Grid:
        """Returns a grid of the same shape and steps that begins at ``first``."""
        return self._replace(first=first)


def grid_of(at: npt.NDArray[np.int64]) -> Grid | None:
    """Returns the grid of one or more positions; None if they form no grid, or one with short rows."""
    steps = at[1:] - at[:-1]
    step = int(steps[0]) if len(steps) else 0
    is_other = steps != step
    others = int(np.count_nonzero(is_other))
    across = int(is_other.argmax()) + 1 if others else len(at)
    if across * (others + 1) != len(at) or (others and across < _SHORT):
        return None
    # If the steps between rows are equal, they are all the ``others``, so each step within a row is ``step``.
    between = steps[across - 1 :: across]
    if others and (between != between[0]).any():
        return None
    down = int(at[across] - at[0]) if others else 0
    return Grid(int(at[0]), (others + 1, across), (down, step))


def grid_of_rows(count: int, width: int) -> Grid:
    """Returns the grid of consecutive rows of ``width`` bytes."""
    return Grid(0, (1, count), (0, width))


def items_at(body: Bytes | pa.Buffer, at: npt.NDArray[np.int64], kind: np.dtype[Any]) -> Items:
    """Copies the items at n positions; no position may be negative.

    Raises:
        IndexError, ValueError: an item ends after the body.
    """
    overlapping: Items = np.ndarray((body.size - kind.itemsize + 1,), kind, body, 0, (1,))
    return overlapping[at]


def copy_spans(body: Bytes | pa.Buffer, grid: Grid, spans: Sequence[Span]) -> pa.BinaryArray:
    """Copies the spans of each position: all spans of the first position, then of the next one.

    Args:
        spans: start and end of each span, relative to the position.
    """
    count, each = grid.shape[0] * grid.shape[1], len(spans)
    if not count:  # numpy refuses a view of an empty buffer
        return pa.array([], pa.binary())
    ends = np.cumsum([end - at for at, end in spans], dtype=np.int32)
    size = int(ends[-1])
    data = pa.allocate_buffer(count * size)
    copied = Grid(0, grid.shape, (grid.shape[1] * size, size))
    for (at, end), last in zip(spans, ends.tolist(), strict=True):
        if at < end:
            item = np.dtype((np.void, end - at))
            copied.items(data, item, last - (end - at))[...] = grid.items(body, item, at)
    offsets: npt.NDArray[np.int32] = np.zeros(count * each + 1, np.int32)
    before = np.arange(count, dtype=np.int32) * np.int32(size)
    np.add(before[:, None], ends, out=offsets[1:].reshape(count, each))
    return pa.Array.from_buffers(pa.binary(), count * each, [None, pa.py_buffer(offsets), data])
