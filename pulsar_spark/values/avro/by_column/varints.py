"""Decodes zigzag varints at many positions at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.avro.by_column.payloads import AvroPayloads, Rows

_U = np.uint64
_STOP = _U(0x8080808080808080)
_ONES = _U(0x0101010101010101)
_BITS = _U(0x7F7F7F7F7F7F7F7F)
# Masks of the bits that move down, and by how many bits: groups of 7 become groups of 14, 28, 56.
_SQUEEZE = (
    (_U(0x7F007F007F007F00), _U(1)),
    (_U(0x3FFF00003FFF0000), _U(2)),
    (_U(0x0FFFFFFF00000000), _U(4)),
)
_SHORT = 2  # bytes of a varint that the first step of _SQUEEZE suffices for
_MAX_BYTES = 10


def read_varints(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[Ints, Ints]:
    """Reads one varint at each position.

    Returns:
        The values and the positions after them, cut to the row's end. A row becomes bad if a varint does not
        end, has more than 64 bits, or reaches over the row's end.
    """
    value, after = read_short_varints(payloads, position, rows)
    return value.astype(np.int64, copy=False), after


def read_short_varints(
    payloads: AvroPayloads, position: Ints, rows: Rows
) -> tuple[Ints | npt.NDArray[np.int8], Ints]:
    """As :func:`read_varints`, but returns int8 values if every varint has one byte."""
    first = payloads.bytes[position]
    if first.max(initial=0) < 0x80:
        short = first.view(np.int8)
        return (short >> 1) ^ -(short & 1), payloads.limit(position + 1, rows)
    word = payloads.words[position]
    stops, upto, size = _sizes(word)
    upto &= _BITS
    word &= upto
    for move, by in _SQUEEZE if size.max() > _SHORT else _SQUEEZE[:1]:
        moved = word & move
        word ^= moved
        moved >>= by
        word |= moved
    if not stops.all():
        _add_last_bytes(payloads, position, rows, np.flatnonzero(stops == 0), word, size)
    value = (word >> _U(1)).view(np.int64) ^ -(word & _U(1)).view(np.int64)
    return value, payloads.limit(position + size, rows)


def varint_ends_at(payloads: AvroPayloads, position: Ints, rows: Rows) -> Ints:
    """Returns the positions after the varints, as :func:`read_varints`, but not cut to the row's end."""
    after: Ints = position + 1
    if not np.count_nonzero(payloads.bytes[position] & 0x80):
        return after
    stops, _, size = _sizes(payloads.words[position])
    after = position + size
    long = np.flatnonzero(stops == 0)
    if len(long):
        _, after[long] = read_varints(payloads, position[long], long if rows is None else rows[long])
    return after


def read_spans(payloads: AvroPayloads, position: Ints, rows: Rows) -> tuple[Ints, Ints]:
    """Returns the start and end positions of length-prefixed bytes; marks rows of wrong lengths bad."""
    size, start = read_varints(payloads, position, rows)
    end = payloads.ends(rows)
    wrong = (size < 0) | (size > end - start)
    if wrong.any():
        payloads.fail(rows, wrong)
        size = np.where(wrong, 0, size)
    return start, start + size


def _sizes(word: np.ndarray) -> tuple[np.ndarray, np.ndarray, Ints]:
    """Returns for each word: its stop bits, the mask up to the end of its first varint, the varint's size."""
    stops = ~word & _STOP
    upto = stops ^ (stops - _U(1))  # all bits if the varint has no end in the word
    return stops, upto, (((upto & _ONES) * _ONES) >> _U(56)).view(np.int64)


def _add_last_bytes(
    payloads: AvroPayloads, position: Ints, rows: Rows, long: Ints, word: np.ndarray, size: Ints
) -> None:
    """Adds the ninth and tenth byte to the varints of more than 8 bytes, at the indexes ``long``."""
    ninth = payloads.bytes[position[long] + 8].astype(_U)
    tenth = payloads.bytes[position[long] + 9].astype(_U)
    has_tenth = ninth >= _U(0x80)
    word[long] |= ((ninth & _U(0x7F)) << _U(56)) | np.where(has_tenth, tenth << _U(63), _U(0))
    size[long] = np.where(has_tenth, _MAX_BYTES, _MAX_BYTES - 1)
    wrong = has_tenth & (tenth > _U(1))
    if wrong.any():
        flags = np.zeros(len(position), np.bool_)
        flags[long[wrong]] = True
        payloads.fail(rows, flags)
