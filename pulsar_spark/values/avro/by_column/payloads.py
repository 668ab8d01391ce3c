"""The bytes of some rows, where each row's end, and which rows are bad.

Readers move from position to position. A position is an index into ``bytes``, never after the end of its row:
if a value would end after that, the row is bad, and the position is the row's end. So nothing outside a row
is ever taken for a value of it. Bytes outside are read (a varint is read 8 bytes at once, and ends are found
some fields at a time), but they are in the buffer.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints, offsets_of
from pulsar_spark.values.avro.walk import AvroValue
from pulsar_spark.values.value_work import ValueWork

# Indexes of rows, one for each position, ascending; None: all rows, one position each.
Rows: TypeAlias = "Ints | None"

_AT_ONCE = 1 << 18  # bytes that are searched at once, which bounds the memory on the way
_PAD = 16  # bytes before the first row and after the last, which reading a decimal or a varint may touch
_WAVES = 256  # looks at items of rows after which they are counted as work
SLACK = 4096  # and after those: how far after its row a position may be until ``limit`` is called


class VarintEnds:
    """Finds ends by their number, and the other way round. It takes four times as much memory as the bytes.

    Args:
        whole: the bytes, of which at least one is an end.
    """

    def __init__(self, whole: npt.NDArray[np.uint8]) -> None:
        self._behind = len(whole) + 1
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
        """How many ends lie before each position; int64[n]."""
        return np.searchsorted(self._places, position.astype(np.int32))  # of one type, so nothing is copied

    def places(self, number: Ints) -> Ints:
        """The positions of ends, each below ``len``; int64[n]."""
        return self._places[number].astype(np.int64)

    def before_one(self, position: int) -> int:
        """How many ends lie before a position."""
        return bisect_left(self._places.data, position)

    def after_one(self, number: int, count: int) -> int:
        """The position after ``count`` varints, before which there are ``number`` ends.

        Where there are fewer, one that is after all bytes.
        """
        last = number + count - 1
        return int(self._places[last]) + 1 if last < len(self._places) else self._behind


class AvroPayloads:
    """Some rows that are read together.

    Attributes:
        work: what the rows may take.
        bytes: all rows, one after the other.
        words, doubles, floats: the number that begins at each byte, little-endian.
        buffer: the same bytes for Arrow.
        start: int64[n], each row's first byte.
        end: int64[n], and the one after its last.
        bad: bool[n], which rows are no values.
    """

    def __init__(self, values: pa.BinaryArray, work: ValueWork) -> None:
        self.work = work
        self._waves = 0
        count = len(values)
        offsets = offsets_of(values).astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        end = _PAD + last - first
        # Arrow's memory: it reuses what is freed, where numpy's would be mapped page by page each time.
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
        """All bytes that may be the last of a varint."""
        if self._varint_ends is None:
            self._varint_ends = VarintEnds(self.bytes)
        return self._varint_ends

    def ends(self, rows: Rows) -> Ints:
        """Where the rows end."""
        return self.end if rows is None else self.end[rows]

    def is_bad(self, rows: Rows) -> Flags:
        """Which rows are bad by now."""
        return self.bad if rows is None else self.bad[rows]

    def fail(self, rows: Rows, wrong: Flags) -> None:
        """Make rows bad where ``wrong`` is set."""
        if rows is None:
            self.bad |= wrong
        else:
            self.bad[rows[wrong]] = True

    def limit(self, position: Ints, rows: Rows) -> Ints:
        """The positions, none after its row's end; rows in which one was are bad."""
        end = self.ends(rows)
        over = position > end
        if over.any():
            self.fail(rows, over)
            return np.minimum(position, end)
        return position

    @property
    def credit(self) -> Ints:
        """How many bytes each row may still count for items that are larger than the bytes they have.

        A row has as many as its own; one that has spent more is bad. So a few bytes never make a long array
        of items without bytes, or of long defaults.
        """
        if self._credit is None:
            self._credit = self.end - self.start
        return self._credit

    def value_of(self, row: int, credit: int) -> AvroValue:
        """A row that is to be gone over by itself."""
        return AvroValue(self.bytes.data, int(self.end[row]), credit, None, self.work.left(row))

    def take_work(self, row: int, value: AvroValue) -> None:
        """Say that a row was gone over; one that has taken too much is bad."""
        self.bad[row] |= not self.work.take(row, self.work.left(row) - value.work)

    def count_wave(self, rows: Ints, units: float) -> None:
        """Count a look at one item of each of some rows, which share what it costs."""
        self._waves += 1
        if self._waves % _WAVES == 0 and self.work.is_limited:
            some = np.unique(rows)
            self.bad[some] |= ~self.work.part(some).take_each(np.full(len(some), _WAVES * units / len(some)))

    def charge(self, rows: Rows, costs: Ints) -> None:
        """Take costs from the rows' credit, none above 2 ** 44; rows without any left are bad."""
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
