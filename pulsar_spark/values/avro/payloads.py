"""AvroPayloads: the bytes of many rows, with the start and end of each row, and flags of bad rows.

A position is an index into ``AvroPayloads.bytes``. If a value would end after its row, the row is bad, and
the position becomes the row's end. So no value has bytes outside its row. Readers may load bytes outside the
row, but never outside the buffer: they load varints 8 bytes at once, and check ends after several fields.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints, offsets_of
from pulsar_spark.values.avro.check_value import AvroValue
from pulsar_spark.values.value_bounds import ValueWork

# Indexes of rows, one for each position, ascending; None: all rows, one position each.
Rows: TypeAlias = "Ints | None"

_AT_ONCE = 1 << 18  # bytes that VarintEnds searches in one numpy call, which bounds temporary memory
_PAD = 16  # bytes before the first row and after the last, because decimals and varints are loaded as words
_WAVES = 256  # ``count_wave`` counts work only in each 256th call, for all 256, because counting takes time
SLACK = 4096  # bytes after the last row, because positions may exceed a row's end until ``limit`` is called


class VarintEnds:
    """The positions of all bytes below 0x80, called ends, because a varint may end there; numbered from 0.

    Uses four bytes of memory for each end. ``whole``: bytes to search; at least one is below 0x80.
    """

    def __init__(self, whole: npt.NDArray[np.uint8]) -> None:
        self._after_all = len(whole) + 1
        is_end = whole < 0x80
        self._places = np.empty(np.count_nonzero(is_end), np.int32)
        count = 0
        for at in range(0, len(is_end), _AT_ONCE):
            found = np.flatnonzero(is_end[at : at + _AT_ONCE])
            self._places[count : count + len(found)] = found + at
            count += len(found)

    def __len__(self) -> int:
        return len(self._places)

    def before(self, position: Ints) -> Ints:
        """Returns the number of ends before each position, int64[n]."""
        return np.searchsorted(self._places, position.astype(np.int32))  # int32, so numpy copies nothing

    def places(self, number: Ints) -> Ints:
        """Returns the positions of the ends with these numbers, each below ``len``; int64[n]."""
        return self._places[number].astype(np.int64)

    def before_one(self, position: int) -> int:
        """Returns the number of ends before one position."""
        return bisect_left(self._places.data, position)

    def after_one(self, number: int, count: int) -> int:
        """Returns the position after ``count`` adjacent varints; ``number``: index of the first varint's end.

        If fewer varints follow, returns a position after all bytes.
        """
        last = number + count - 1
        return int(self._places[last]) + 1 if last < len(self._places) else self._after_all


class AvroPayloads:
    """Rows that are decoded together.

    Attributes:
        bytes: payloads of all rows, one after the other.
        words, doubles, floats: views of ``bytes`` with the little-endian number that begins at each byte.
        start: int64[n], position of each row's first byte.
        end: int64[n], position after each row's last byte.
        bad: bool[n], flags of the rows that cannot be decoded.
    """

    def __init__(self, values: pa.BinaryArray, work: ValueWork) -> None:
        self.work = work
        self._waves = 0
        count = len(values)
        offsets = offsets_of(values).astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        end = _PAD + last - first
        # Allocated by Arrow, which reuses freed memory; numpy would map new pages each time.
        self.buffer = pa.allocate_buffer(end + SLACK + _PAD)
        whole = np.frombuffer(self.buffer, np.uint8)
        whole[:_PAD] = whole[end:] = 0
        if last > first:
            whole[_PAD:end] = np.frombuffer(values.buffers()[2], np.uint8, last - first, first)
        self.bytes = whole
        self.words: npt.NDArray[np.uint64] = _unaligned(whole, "<u8")
        self.doubles: npt.NDArray[np.float64] = _unaligned(whole, "<f8")
        self.floats: npt.NDArray[np.float32] = _unaligned(whole, "<f4")
        self.start = offsets[:-1] + (_PAD - first)
        self.end = offsets[1:] + (_PAD - first)
        self.bad: Flags = np.zeros(count, np.bool_)
        self._varint_ends: VarintEnds | None = None
        self._credit: Ints | None = None

    @property
    def varint_ends(self) -> VarintEnds:
        """Returns the positions of bytes that may end a varint; the first call finds them."""
        if self._varint_ends is None:
            self._varint_ends = VarintEnds(self.bytes)
        return self._varint_ends

    def ends(self, rows: Rows) -> Ints:
        """Returns the position after the last byte of each row."""
        return self.end if rows is None else self.end[rows]

    def is_bad(self, rows: Rows) -> Flags:
        """Returns flags of the rows found bad so far."""
        return self.bad if rows is None else self.bad[rows]

    def fail(self, rows: Rows, wrong: Flags) -> None:
        """Marks a row bad if its flag in ``wrong`` is set; ``wrong`` has a flag for each of ``rows``."""
        if rows is None:
            self.bad |= wrong
        else:
            self.bad[rows[wrong]] = True

    def limit(self, position: Ints, rows: Rows) -> Ints:
        """Returns the positions, at most the row's end; marks rows bad whose position was after their end."""
        end = self.ends(rows)
        over = position > end
        if over.any():
            self.fail(rows, over)
            return np.minimum(position, end)
        return position

    @property
    def credit(self) -> Ints:
        """Returns each row's credit, an allowance in bytes for items that have no bytes or long defaults.

        A row's credit starts at its size in bytes; a row that uses more is bad. So a short payload never
        becomes a long array of such items.
        """
        if self._credit is None:
            self._credit = self.end - self.start
        return self._credit

    def value_of(self, row: int, credit: int) -> AvroValue:
        """Returns a row for the functions of ``check_value``, which read single values."""
        return AvroValue(self.bytes.data, int(self.end[row]), credit, None, self.work.left(row))

    def take_work(self, row: int, value: AvroValue) -> None:
        """Subtracts the work that ``value`` used from the row's work; marks the row bad if none is left."""
        self.bad[row] |= not self.work.take(row, self.work.left(row) - value.work)

    def count_wave(self, rows: Ints, units: float) -> None:
        """Counts a call that finds an item or block of each row: ``units`` of work, divided among them."""
        self._waves += 1
        if self._waves % _WAVES == 0 and self.work.is_limited:
            some = np.unique(rows)
            self.bad[some] |= ~self.work.part(some).take_each(np.full(len(some), _WAVES * units / len(some)))

    def charge(self, rows: Rows, costs: Ints) -> None:
        """Subtracts costs, each up to 2 ** 44, from the credit; marks rows with a credit below 0 bad."""
        credit = self.credit
        if rows is None:
            credit -= costs
        else:
            np.subtract.at(credit, rows, costs)
        np.maximum(credit, -1, out=credit)
        self.bad |= credit < 0


def _unaligned(whole: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[Any]:
    size = np.dtype(kind).itemsize
    numbers: npt.NDArray[Any] = np.ndarray((len(whole) - size + 1,), kind, whole.data, strides=(1,))
    return numbers


_U = np.uint64
_STOP = _U(0x8080808080808080)
_ONES = _U(0x0101010101010101)
_BITS = _U(0x7F7F7F7F7F7F7F7F)
# (mask, n): moves the masked bits down by n bits, which joins groups of 7 bits to groups of 14, 28 and 56.
_SQUEEZE = (
    (_U(0x7F007F007F007F00), _U(1)),
    (_U(0x3FFF00003FFF0000), _U(2)),
    (_U(0x0FFFFFFF00000000), _U(4)),
)
_SHORT = 2  # maximum bytes of a varint for which the first pair in _SQUEEZE is enough
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
    """Reads varints as :func:`read_varints`, but returns int8 values if every varint has one byte."""
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
    """Returns for each word: flags of bytes below 0x80; mask of its first varint; size of that varint."""
    stops = ~word & _STOP
    upto = stops ^ (stops - _U(1))  # all bits if ``stops`` is 0: no varint ends in the word
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
