"""Encodes columns as bytes, and joins the bytes of several columns row by row.

An :class:`EncodedField` is a column with the bytes of one field in each row; a row without the field has no
bytes. :func:`join` concatenates all fields of each row in one call, so no Python object is made per row.
:func:`encode_distinct` encodes each distinct number only once, because lengths often repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Buffer, Bytes, Flags, Ints, every, offsets_from, offsets_of
from pulsar_spark.errors import OptionError

MAX_SIZE = 2**31 - 1  # maximum bytes; Arrow's binary offsets are int32
_BLOCK = 1 << 18  # bytes of rows joined at a time


class EncodedField(NamedTuple):
    """The bytes of one field, or of a part of a field, in each of n rows.

    Attributes:
        data: binary[n], in which a null row has no bytes; or a scalar for a shared field, which has the same
            bytes in all rows.
        size: bytes in each row, int64[n], or one number for all rows.
    """

    data: pa.BinaryArray | pa.BinaryScalar
    size: Ints | int


@dataclass(frozen=True, slots=True)
class EncodedMessages:
    """n encoded items, one after another.

    Attributes:
        buffer: bytes of all items.
        offsets: bounds of the items, int64[n + 1]; items i up to j are ``buffer[offsets[i]:offsets[j]]``.
    """

    buffer: memoryview
    offsets: Ints


def bytes_field(tag: bytes, data: pa.BinaryArray | None) -> list[EncodedField]:
    """Encodes a column as a length-delimited Protobuf field; nulls get no bytes. [] if all rows are null."""
    if data is None or data.null_count == len(data):
        return []
    sizes = lengths(data)
    classes = sizes if data.null_count == 0 else np.where(to_mask(data.is_valid()), sizes, -1)
    return [
        encode_distinct(classes, lambda different: varints(tag, different, different >= 0)),
        EncodedField(data, sizes),
    ]


def shared_field(data: bytes) -> EncodedField:
    """Returns a field with the same bytes in all rows."""
    return EncodedField(pa.scalar(data, pa.binary()), len(data))


def big_endian(sizes: Ints) -> EncodedField:
    """Encodes each number as an unsigned 4-byte big-endian integer."""
    return encode_distinct(sizes, lambda different: fixed_width(different.astype(">u4").tobytes(), 4))


def encode_distinct(numbers: Ints, make: Callable[[Ints], pa.BinaryArray]) -> EncodedField:
    """Encodes n numbers as n rows; ``make`` gets the distinct numbers, and returns one row for each."""
    if len(numbers) and every(numbers == numbers[0]):  # a tenth of the time of dictionary_encode
        (shared,) = make(numbers[:1])
        return EncodedField(shared, len(shared.as_py()))
    coded = pa.array(numbers).dictionary_encode()
    return one_field(make(coded.dictionary.to_numpy()).take(coded.indices))


def lengths(data: pa.BinaryArray) -> Ints:
    """Returns the number of bytes in each row, int64[n]; 0 for null."""
    found = pc.binary_length(data)
    sizes: Ints = (found.fill_null(0) if found.null_count else found).to_numpy().astype(np.int64)
    return sizes


def total_sizes(pieces: Sequence[EncodedField], count: int) -> Ints:
    """Returns the number of bytes of all fields in each row, int64[count]."""
    total = np.zeros(count, np.int64)
    for piece in pieces:
        total += piece.size
    return total


def join(pieces: Sequence[EncodedField], count: int) -> EncodedMessages:
    """Concatenates the bytes of all fields in each of ``count`` rows.

    Raises:
        OptionError: the rows have more than 2 GiB in total.
    """
    alike = _join_alike(pieces, count, None)
    if alike is not None:
        return alike
    _check_size(int(total_sizes(pieces, count).sum()))
    if count == 0 or all(isinstance(piece.data, pa.Scalar) for piece in pieces):
        return EncodedMessages(memoryview(b""), np.zeros(count + 1, np.int64))
    columns = (piece.data for piece in pieces)
    joined = pc.binary_join_element_wise(*columns, b"", null_handling="replace", null_replacement=b"")
    offsets = offsets_of(joined).astype(np.int64)
    return EncodedMessages(_data(joined)[: offsets[-1]], offsets)


def join_in_order(pieces: Sequence[EncodedField], order: Ints) -> EncodedMessages:
    """Joins fields as :func:`join`, and reorders rows: row i of the result is row ``order[i]``, int64[m].

    This is faster than sorting the columns first. The last field's data must not be a scalar.
    """
    *before, (last, _) = pieces
    count = len(last)
    alike = _join_alike(pieces, count, order)
    if alike is not None:
        return alike
    heads = join(before, count)
    if not count:
        return heads
    # The check includes the bytes of null rows, which ``concat_arrays`` copies, too.
    bounds = offsets_of(last)
    _check_size(int(heads.offsets[-1]) + int(bounds[-1]) - int(bounds[0]))
    head = binary_of(heads.buffer, heads.offsets)
    index = np.empty((len(order), 2), np.int64)
    index[:, 0], index[:, 1] = order, order + count
    taken = pa.concat_arrays([head, last]).take(pa.array(index.reshape(-1)))
    offsets = offsets_of(taken)[::2].astype(np.int64)
    return EncodedMessages(_data(taken)[: offsets[-1]], offsets)


def _join_alike(pieces: Sequence[EncodedField], count: int, order: Ints | None) -> EncodedMessages | None:
    """Joins fields in a third of the time if each has equal sizes in all rows; otherwise returns None.

    Rows are written in blocks that fit into the processor's cache.
    """
    found = (_one_size(piece.size) for piece in pieces)
    sizes = [size for size in found if size is not None]
    width = sum(sizes)
    if len(sizes) < len(pieces) or not width or not all(data.type == pa.binary() for data, _ in pieces):
        return None
    given = count if order is None else len(order)
    _check_size(width * given)
    parts = _parts(pieces, sizes)
    rows = np.ndarray((given,), np.dtype((np.void, width)), pa.allocate_buffer(width * given))
    block = max(1, _BLOCK // width)
    for first in range(0, given, block):
        target, chosen = rows[first : first + block], slice(first, first + block)
        for place, items in parts:
            part = np.ndarray(target.shape, items.dtype, target, place, target.strides)
            if len(items) == 1:
                part[...] = items
            else:
                part[...] = items[chosen] if order is None else items.take(order[chosen])
    return EncodedMessages(rows.view(np.uint8).data, np.arange(0, (given + 1) * width, width, dtype=np.int64))


def _parts(pieces: Sequence[EncodedField], sizes: Sequence[int]) -> list[tuple[int, npt.NDArray[np.void]]]:
    """Returns each field's byte offset in a row, and its data as items: one for each row, or one for all."""
    parts: list[tuple[int, npt.NDArray[np.void]]] = []
    at = 0
    for (data, _), size in zip(pieces, sizes, strict=True):
        if size:
            is_shared = isinstance(data, pa.Scalar)
            item = np.dtype((np.void, size))
            parts.append((at, np.frombuffer(data.as_py(), item) if is_shared else _items(data, item)))
        at += size
    return parts


def _one_size(sizes: Ints | int) -> int | None:
    """Returns the size of all rows; None if sizes differ, or there are no rows."""
    if isinstance(sizes, int):
        return sizes
    return int(sizes[0]) if len(sizes) and every(sizes == sizes[0]) else None


def _items(data: pa.BinaryArray, item: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Views a column without nulls, whose rows have equal sizes above 0, as one numpy item for each row."""
    begin = int(offsets_of(data)[0])
    items: npt.NDArray[np.void] = np.ndarray((len(data),), item, data.buffers()[2], begin)
    return items


def binary_of(data: Buffer | pa.Buffer, offsets: npt.NDArray[np.integer]) -> pa.BinaryArray:
    """Returns the items ``data[offsets[i]:offsets[i + 1]]``, not copied; offsets must be below 2 GiB."""
    bounds = pa.py_buffer(offsets.astype(np.int32, copy=False))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, bounds, pa.py_buffer(data)])


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise too_large("messages")


def too_large(what: str) -> OptionError:
    """Returns the error for messages, rows or keys that have more than ``MAX_SIZE`` bytes."""
    return OptionError(
        f"the {what} of one Arrow batch have more than 2 GiB",
        advice="Lower spark.sql.execution.arrow.maxRecordsPerBatch",
    )


def _data(array: pa.BinaryArray) -> memoryview:
    return memoryview(array.buffers()[2] or b"").cast("B")  # Arrow declares its bytes as signed


def one_field(data: pa.BinaryArray) -> EncodedField:
    """Returns a field with the bytes of a column."""
    return EncodedField(data, lengths(data))


def to_mask(array: pa.BooleanArray) -> Flags:
    """Returns a column without nulls as bool[n]."""
    found: Flags = array.to_numpy(zero_copy_only=False)
    return found


def fixed_width(data: bytes, width: int) -> pa.BinaryArray:
    """Cuts ``data`` into items of ``width`` bytes."""
    return binary_of(data, np.arange(0, len(data) + 1, width, dtype=np.int32))


def varint_bytes(numbers: npt.NDArray[np.uint64]) -> tuple[Bytes, Ints]:
    """Returns n varints as rows of uint8[n, w], and their sizes in bytes; bytes after a varint are unused."""
    width = max(1, -(-int(numbers.max(initial=0)).bit_length() // 7))
    matrix = np.empty((len(numbers), width), np.uint8)
    sizes = np.ones(len(numbers), np.int64)
    for place in range(width):
        byte = numbers.astype(np.uint8) & np.uint8(0x7F)
        numbers = numbers >> np.uint64(7)
        more = numbers > 0
        sizes += more
        matrix[:, place] = byte | (more.astype(np.uint8) << 7)
    return matrix, sizes


def varints(tag: bytes, numbers: Ints, has: Flags | None) -> pa.BinaryArray:
    """Encodes ``tag`` and a varint for each number; rows whose ``has`` is false are empty."""
    rest, sizes = varint_bytes(numbers.astype(np.uint64))
    head = np.broadcast_to(np.frombuffer(tag, np.uint8), (len(rest), len(tag)))
    matrix = np.hstack([head, rest])
    sizes += len(tag)
    if has is not None:
        sizes[~has] = 0
    elif (sizes == matrix.shape[1]).all():
        return fixed_width(matrix.tobytes(), matrix.shape[1])
    offsets = offsets_from(sizes, np.int32)
    return binary_of(matrix[np.arange(matrix.shape[1]) < sizes[:, None]].data, offsets)
