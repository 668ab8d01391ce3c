"""Encodes columns as bytes: each field becomes pieces, which are joined row by row.

A piece holds a part of the bytes of each row: a few bytes as :class:`Cells`, or a binary array as
``EncodedField``. ``_join_rows`` concatenates the bytes that each row has in all pieces. The items of arrays,
and the other rows of a column with nulls, are joined first; the result is one piece of the outer column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints, offsets_from
from pulsar_spark.arrow.join import (
    MAX_SIZE,
    EncodedField,
    EncodedMessages,
    binary_of,
    join,
    one_field,
    shared_field,
    to_mask,
    too_large,
    varint_bytes,
)
from pulsar_spark.values.encode.column_values import Misfit, require

_Words: TypeAlias = npt.NDArray[np.uint64]

_WORD = np.dtype("<u8")
_MORE = 0x8080808080808080
_MAX_CONSTANT = 16  # maximum bytes of a constant that becomes Cells


@dataclass(frozen=True, slots=True)
class Cells:
    """A few bytes of each of n rows, in a matrix with w bytes for each row.

    Attributes:
        data: uint8[n, w].
        used: flags of the bytes that belong to the row, bool[n, w]; None: all bytes.
        sizes: number of used bytes of each row, int64[n], or one number for all rows.
    """

    data: npt.NDArray[np.uint8]
    used: Flags | None
    sizes: Ints | int


Piece: TypeAlias = "Cells | EncodedField"
# Encodes a column: returns pieces with the bytes of each row. Raises Misfit if a field cannot hold a value.
Write: TypeAlias = Callable[[pa.Array], list[Piece]]


def fixed(values: npt.NDArray[np.generic]) -> Cells:
    """Encodes n numbers, little-endian."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    data = little.view(np.uint8).reshape(len(values), values.dtype.itemsize)
    return Cells(data, None, values.dtype.itemsize)


def constant(value: bytes, count: int) -> Piece:
    """Returns a piece with the bytes ``value`` in each of ``count`` rows."""
    if len(value) > _MAX_CONSTANT:
        return shared_field(value)
    row = np.frombuffer(value, np.uint8)
    return Cells(np.broadcast_to(row, (count, len(value))), None, len(value))


def varints(numbers: Ints) -> Cells:
    """Encodes numbers as Avro's int and long: zigzag varints of 1 to 10 bytes.

    If no varint needs more than 8 bytes, the 7-bit groups of each number are spread over the bytes of a
    64-bit word. The top bit of a byte, which means that more bytes follow, is set if a higher byte is not 0.
    """
    zigzag = (numbers.view(np.uint64) << np.uint64(1)) ^ (numbers >> 63).view(np.uint64)
    largest = int(zigzag.max(initial=0))
    width = max(1, -(-largest.bit_length() // 7))
    if width == 1:
        return Cells(zigzag.astype(np.uint8)[:, None], None, 1)
    if width > 8:
        data, sizes = varint_bytes(zigzag)
        return Cells(data, np.arange(width) < sizes[:, None], sizes)
    groups = _spread(zigzag)
    filled = groups | (groups >> np.uint64(8))
    filled |= filled >> np.uint64(16)
    filled |= filled >> np.uint64(32)
    flags = (filled + np.uint64(0x7F7F7F7F7F7F7F7F)) & np.uint64(_MORE)
    groups |= flags >> np.uint64(8)
    used = (flags >> np.uint64(7)) | np.uint64(1)
    sizes = ((used * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.int64)
    return Cells(_bytes(groups)[:, :width], _bytes(used).view(np.bool_)[:, :width], sizes)


def decimals(column: pa.Decimal128Array) -> Cells:
    """Encodes decimals as Avro's bytes: a length, and the shortest two's complement, big-endian.

    A null row has any bytes.
    """
    data = _big_endian(column)
    high, low = (data[:, part].copy().view(">u8")[:, 0].astype(np.uint64) for part in np.s_[:8, 8:])
    sign = np.where(high >> np.uint64(63), np.uint64(2**64 - 1), np.uint64(0))
    high, low = high ^ sign, low ^ sign
    sizes = np.where(high > 0, 9 + _further_bytes(high), 1 + _further_bytes(low))
    width = int(sizes.max(initial=1))
    head = (2 * sizes).astype(np.uint8)[:, None]
    used = np.arange(-1, width) >= (width - sizes)[:, None]
    used[:, 0] = True
    return Cells(np.hstack([head, data[:, 16 - width :]]), used, sizes + 1)


def fixed_decimals(column: pa.Decimal128Array, size: int) -> Cells:
    """Encodes decimals as Avro's fixed: two's complement, big-endian, of ``size`` bytes.

    Raises OptionError beyond 2 GiB.
    """
    if len(column) * size > MAX_SIZE:
        raise too_large("rows")
    data = _big_endian(column)
    if size <= 16:
        return Cells(data[:, 16 - size :], None, size)
    sign = np.where(data[:, :1] >> 7, np.uint8(0xFF), np.uint8(0))
    return Cells(np.hstack([np.repeat(sign, size - 16, axis=1), data]), None, size)


def masked(piece: Piece, has: Flags) -> Piece:
    """Removes the bytes of rows not flagged in ``has``; an EncodedField must have none in these rows."""
    if isinstance(piece, EncodedField):
        return piece
    used = (
        np.broadcast_to(has[:, None], piece.data.shape) if piece.used is None else piece.used & has[:, None]
    )
    return Cells(piece.data, used, np.where(has, piece.sizes, 0))


def _join_rows(pieces: Sequence[Piece], count: int) -> EncodedMessages:
    """Joins the pieces of each of ``count`` rows; raises OptionError beyond 2 GiB."""
    fields: list[EncodedField] = []
    run: list[Cells] = []
    for piece in pieces:
        if isinstance(piece, Cells):
            run.append(piece)
        else:
            fields.extend(_merged(run, count))
            fields.append(piece)
            run = []
    fields.extend(_merged(run, count))
    return join(fields, count)


def _spread_rows(rows: EncodedMessages, has: Flags) -> EncodedField:
    """Returns a piece in which the flagged rows are ``rows``, in order, and all other rows are empty."""
    sizes = np.zeros(len(has), np.int64)
    sizes[has] = np.diff(rows.offsets)
    return EncodedField(binary_of(rows.buffer, offsets_from(sizes)), sizes)


def _spread(words: _Words) -> _Words:
    """Puts 7 bits of a number below 2^56 into the low bits of each byte of a word; the top bits are 0."""
    for bits, shift in (
        (0x000000000FFFFFFF, 4),
        (0x00003FFF00003FFF, 2),
        (0x007F007F007F007F, 1),
    ):
        low = words & np.uint64(bits)
        words = low | ((words ^ low) << np.uint64(shift))
    return words


def _bytes(words: _Words) -> npt.NDArray[np.uint8]:
    found: npt.NDArray[np.uint8] = words.astype(_WORD, copy=False).view(np.uint8).reshape(len(words), 8)
    return found


def _further_bytes(words: _Words) -> Ints:
    """Returns the size of each number as a signed integer, in bytes minus 1: 0 below 2^7, 1 below 2^15."""
    largest = int(words.max(initial=0))
    sizes = np.zeros(len(words), np.int64)
    for size in range(1, largest.bit_length() // 8 + 1):
        sizes += words >= np.uint64(1 << (8 * size - 1))
    return sizes


def _big_endian(column: pa.Decimal128Array) -> npt.NDArray[np.uint8]:
    """Returns the two's complement of each decimal, uint8[n, 16]."""
    data = np.frombuffer(column.buffers()[1], np.uint8)[
        16 * column.offset : 16 * (column.offset + len(column))
    ]
    return data.reshape(len(column), 16)[:, ::-1]


def _merged(run: Sequence[Cells], count: int) -> list[EncodedField]:
    if not run:
        return []
    widths = [each.data.shape[1] for each in run]
    data = run[0].data if len(run) == 1 else _side_by_side([each.data for each in run], widths, count)
    sizes: Ints | int = sum(each.sizes for each in run)
    if isinstance(sizes, int):
        starts = np.arange(count + 1, dtype=np.int64) * sizes
        flat = np.ascontiguousarray(data).reshape(-1)
    else:
        starts = offsets_from(sizes)
        used = _side_by_side([each.used for each in run], widths, count).view(np.bool_)
        flat = np.ascontiguousarray(data)[used]
    if starts[-1] > MAX_SIZE:
        raise too_large("rows")
    return [EncodedField(binary_of(flat.data, starts), sizes)]


def _side_by_side(
    parts: Sequence[npt.NDArray[np.uint8] | Flags | None], widths: Sequence[int], count: int
) -> npt.NDArray[np.uint8]:
    """Joins matrices of ``count`` rows side by side; a part that is None becomes a matrix of ones.

    Copies each row of a matrix as one item if possible, because that is three times as fast as np.hstack.
    """
    whole = np.ones((count, sum(widths)), np.uint8)
    at = 0
    for part, width in zip(parts, widths, strict=True):
        if part is not None and width:
            there = whole[:, at : at + width]
            if part.strides[1] == 1:
                row = np.dtype((np.void, width))
                there.view(row)[:] = part.view(row)
            else:
                there[:] = part
        at += width
    return whole


def values_of(write: Write, rows: pa.Array) -> pa.BinaryArray:
    """Encodes rows by ``write``; returns binary[n]. Raises OptionError beyond 2 GiB."""
    found = joined(write, rows)
    return binary_of(found.buffer, found.offsets)


def joined(write: Write, column: pa.Array) -> EncodedMessages:
    """Encodes a column by ``write``; returns the bytes of each row."""
    if len(column) == 0:
        return EncodedMessages(memoryview(b""), np.zeros(1, np.int64))
    return _join_rows(write(column), len(column))


def of_some(write: Write, column: pa.Array, has: Flags) -> Piece:
    """Encodes the flagged rows of a column; all other rows of the returned piece are empty."""
    try:
        found = joined(write, column.filter(pa.array(has)))
    except Misfit as misfit:
        raise misfit.at(int(np.flatnonzero(has)[misfit.row])) from None
    return _spread_rows(found, has)


def of_items(write: Write, items: pa.Array, starts: Ints) -> Piece:
    """Encodes the items of all rows; returns a piece with the items of each row, one after the other."""
    try:
        found = joined(write, items)
    except Misfit as misfit:
        raise misfit.at(int(np.searchsorted(starts, misfit.row, "right")) - 1) from None
    return one_field(binary_of(found.buffer, found.offsets[starts]))


def members_of(
    column: pa.StructArray, path: str, *, is_nullable: bool
) -> tuple[list[pa.Array], list[Flags], Ints]:
    """Splits the struct column of a union, which has a field for each member.

    Returns the column of each member, the flags of its rows, and the number of members of each row: 0 or 1.
    Raises Misfit for a row with several members, or with none although the field is not nullable.
    """
    members = column.flatten()
    has = [to_mask(member.is_valid()) for member in members]
    count: Ints = np.sum(has, axis=0)
    require(count <= 1, path, "several members of a union, which can have only one value")
    if not is_nullable:
        require(count == 1, path, "null, but the topic's field is not nullable")
    return members, has, count


def items_of(column: pa.ListArray | pa.MapArray) -> tuple[pa.Array, Ints]:
    """Returns the items of lists or maps without nulls, and the start of each row's items, int64[n + 1].

    The items of maps are structs.
    """
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if not pa.types.is_map(column.type):
        return column.values.slice(first, count), offsets - first
    parts = [column.keys.slice(first, count), column.items.slice(first, count)]
    return pa.StructArray.from_arrays(parts, ["key", "value"]), offsets - first
