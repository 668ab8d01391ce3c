"""Helpers for Arrow arrays: their offsets and bytes, splitting and joining them, and setting nulls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Buffer: TypeAlias = "bytes | bytearray | memoryview"


def every(flags: Flags) -> bool:
    """Like ``flags.all()``, in a fifth of the time for a thousand flags."""
    return int(np.count_nonzero(flags)) == len(flags)


def with_nulls(values: pa.Array, is_null: Flags) -> pa.Array:
    """Returns ``values``, of a flat type, with nulls where ``is_null``, bool[n], is true.

    ``if_else`` takes ten times as long, and in PyArrow 18 makes wrong offsets for slices of binary or string.
    """
    return pc.replace_with_mask(values, pa.array(is_null), pa.scalar(None, values.type))


def offsets_of(values: pa.Array) -> npt.NDArray[np.int32]:
    """Returns the offsets of n rows in their data or items, int32[n + 1]: each row's start, and the last end.

    The result is a view. ``values``: at least one row of binary, string, list or map; may be a slice.
    """
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)


def bytes_of(values: pa.Array) -> Bytes:
    """Returns a view of the bytes from the first row to the last, uint8; nulls may have bytes, too.

    ``values``: at least one row of binary or string; may be a slice.
    """
    bounds = offsets_of(values)
    return np.frombuffer(values.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]


def bytes_and_offsets(values: pa.Array) -> tuple[Bytes, Ints]:
    """Returns :func:`bytes_of`, and the offsets of n rows in these bytes, int64[n + 1]."""
    offsets = offsets_of(values).astype(np.int64)
    return bytes_of(values), offsets - offsets[0]


def count_bytes(values: pa.Array, counted: Flags) -> Ints:
    """Returns the number of bytes in each row whose flag in ``counted``, bool[256], is set; int64[n]."""
    data, offsets = bytes_and_offsets(values)
    has = np.flatnonzero(np.diff(offsets))
    found = np.zeros(len(values), np.int64)
    if len(has):
        found[has] = np.add.reduceat(counted[data], offsets[has], dtype=np.int64)
    return found


def parts_by_size(
    offsets: npt.NDArray[np.integer], max_size: int, max_rows: int | None = None
) -> Iterator[tuple[int, int]]:
    """Cuts n rows into parts of at most ``max_size`` bytes and ``max_rows`` rows; a larger row is a part.

    Args:
        offsets: start of each row, and end of the last, ascending, int[n + 1].
        max_size: maximum bytes.
        max_rows: maximum rows, at least 1; None: any number.

    Yields:
        Index of the first row of a part, and index after its last row.
    """
    count, whole = len(offsets) - 1, int(offsets[-1])
    first = 0
    while first < count:
        limit = offsets.dtype.type(min(int(offsets[first]) + max_size, whole))
        stop = max(first + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
        stop = min(stop, count if max_rows is None else min(first + max_rows, count))
        yield first, stop
        first = stop


def joined(parts: list[pa.Array], rows: Sequence[Ints] | None = None) -> pa.Array:
    """Joins columns, each of which has some of the rows, to one column in the order of the rows.

    The fields of structs are joined one by one, and the parts of a joined field are freed. So only one
    field's values are in memory twice, unless the caller keeps a part.

    Args:
        parts: columns of one type, at least one; the list is empty afterwards.
        rows: numbers of the rows that each part has; None: the parts are in the order of the rows.
    """
    if rows is None:
        return _joined(parts, None)
    numbers = np.concatenate(rows)
    is_ordered = every(np.diff(numbers) > 0)
    return _joined(parts, None if is_ordered else pa.array(np.argsort(numbers)))


def _joined(parts: list[pa.Array], order: pa.Array | None) -> pa.Array:
    if len(parts) == 1 and order is None:
        return parts.pop()
    kind = parts[0].type
    if not pa.types.is_struct(kind) or not kind.num_fields:
        column = pa.concat_arrays(parts)
        parts.clear()
        return column if order is None else column.take(order)
    # Without nulls there is no mask: old releases of PyArrow end the process if the items of a map have one.
    has_nulls = any(part.null_count for part in parts)
    is_null = pc.invert(_joined([part.is_valid() for part in parts], order)) if has_nulls else None
    fields = [[part.field(number) for part in parts] for number in range(kind.num_fields)]
    parts.clear()
    children = [_joined(each, order) for each in fields]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=is_null)
