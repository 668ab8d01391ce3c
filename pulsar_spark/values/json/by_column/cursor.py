"""Positions in many JSON payloads at once, and the tokens there: the lowest part of reading JSON by column.

A batch of payloads is one buffer. A cursor has a position for each of some rows, which only grows, and a flag
for each row: whether everything was as expected so far. Rows that fail are left to ``general``. So a step
here need not handle every case, but it must read what it accepts exactly as ``general`` would. The contents
of a row cannot move the position of another: a row is accepted only if its own last token ends where its
payload ends.

Strings are found by their quotes: ``Cursor.quote`` is the index of the first quote at or after the position,
among those that no backslash escapes. Each string and each name takes two of them, other tokens have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Flags, Ints, offsets_of
from pulsar_spark.values.json.by_column.unescape import escaped_after, unescaped

Places: TypeAlias = npt.NDArray[np.int32]
Words: TypeAlias = npt.NDArray[np.uint64]

MAX_DIGITS: Final = 18  # that an int64 has room for, whichever they are
TENS: Final = 10 ** np.arange(MAX_DIGITS + 1, dtype=np.int64)

_QUOTE, _BACKSLASH, _MINUS, _PLUS, _POINT, _ZERO, _EXPONENT, _SPACE = b'"\\-+.0e '
_PADDING: Final = 16  # zero bytes after the payloads; they belong to no token
_MAX_SPACE: Final = 64  # characters between two tokens
_MAX_WORDS: Final = 3  # of 8 digits, in one number
_IS_SPACE: Final = np.isin(np.arange(256), list(b" \t\n\r"))
_MAX_EXPONENT: Final = 2  # digits, which keep a double finite
_CHUNK: Final = 1 << 16  # bytes
_ONES: Final = 0x0101010101010101


@dataclass(slots=True)
class Cursor:
    """A position in each of n payloads, whose order is that of the buffer.

    Attributes:
        at: int64[n], positions in the buffer.
        quote: int64[n], see the module.
        limit: int64[n], where the payloads end.
        ok: bool[n], whether all before the position was read.
    """

    at: Ints
    quote: Ints
    limit: Ints
    ok: Flags

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Ints) -> Cursor:
        """A cursor of some of the rows."""
        return Cursor(self.at[rows], self.quote[rows], self.limit[rows], self.ok[rows])

    def put(self, rows: Ints, part: Cursor) -> None:
        """Continue where a cursor of some of the rows has arrived."""
        self.at[rows] = part.at
        self.quote[rows] = part.quote
        self.ok[rows] = part.ok

    def fail(self) -> None:
        """Leave all rows to others."""
        self.ok[:] = False


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers of JSON, as far as their digits fit; n of each.

    Attributes:
        start: where their text begins.
        end: where it ends.
        is_negative: whether there is a minus.
        whole: digits before the point; wrong where there are more than ``MAX_DIGITS``.
        wholes: how many these are.
        fraction: the same of the digits after it.
        fractions: how many these are; 0 without a point.
    """

    start: Ints
    end: Ints
    is_negative: Flags
    whole: Ints
    wholes: Ints
    fraction: Ints
    fractions: Ints


class JsonPayloads:
    """JsonPayloads in one buffer, with the positions of their quotes.

    Args:
        payloads: ``binary`` of any offset, at least one.

    Attributes:
        body: the buffer, and some zero bytes.
        has_space: whether white space between tokens is gone over; to look for it takes time.
    """

    def __init__(self, payloads: pa.BinaryArray) -> None:
        ends = offsets_of(payloads).astype(np.int64)
        first, size = int(ends[0]), int(ends[-1] - ends[0])
        self.body = body = np.zeros(size + _PADDING, np.uint8)
        if size:
            body[:size] = np.frombuffer(payloads.buffers()[2], np.uint8, size, first)
        ends -= first
        self.has_space = True
        self._starts, self._ends = ends[:-1], ends[1:]
        self._words: Words = np.ndarray((len(body) - 7,), "<u8", body.data, 0, (1,))
        self._backslashes = _positions(body == _BACKSLASH)
        is_quote = body == _QUOTE
        if len(self._backslashes):
            is_quote[self._escaped()] = False
        # Two more, past the end: there is always a quote to compare a position with, and a byte after it.
        self._quotes = _positions(is_quote, 2, len(body) - 2)
        self._first_quotes = _first_at(self._quotes, self._starts)
        self._is_usable = self._usable(payloads)

    def _escaped(self) -> Places:
        """Positions after backslashes that are not escaped themselves."""
        slashes = self._backslashes
        escaped: Places = slashes[escaped_after(slashes)] + np.int32(1)
        return escaped

    def _usable(self, payloads: pa.BinaryArray) -> Flags:
        """Which are not null, UTF-8, and whose strings end, and have no control characters."""
        usable = np.diff(self._first_quotes, append=len(self._quotes) - 2) % 2 == 0
        if payloads.null_count:
            usable &= payloads.is_valid().to_numpy(zero_copy_only=False)
        controls = _positions(self.body[:-_PADDING] < _SPACE)
        if len(controls):
            rows = np.searchsorted(self._starts, controls, "right") - 1
            inside = (_first_at(self._quotes, controls) - self._first_quotes[rows]) % 2 == 1
            usable[rows[inside]] = False
        try:
            payloads.cast(pa.string())
        except pa.ArrowInvalid:
            for row, payload in enumerate(payloads):
                usable[row] &= _is_utf8(payload.as_py() or b"")
        is_usable: Flags = usable
        return is_usable

    @property
    def spans(self) -> tuple[Ints, Ints]:
        """Where payloads begin and end."""
        return self._starts, self._ends

    @property
    def quotes(self) -> Places:
        """Positions of all quotes that no backslash escapes, and two more after them."""
        return self._quotes

    @property
    def is_usable(self) -> Flags:
        """Which payloads can be read here at all."""
        return self._is_usable

    def words_at(self, at: Ints) -> Words:
        """The eight bytes from each position on, which may be after the payloads: there are any."""
        return self._words[np.minimum(at, len(self._words) - 1)]

    def has_escapes(self, start: Ints, end: Ints) -> Flags | None:
        """Which spans have a backslash in them; None: no payload has any."""
        if not len(self._backslashes):
            return None
        found: Flags = _first_at(self._backslashes, start) < _first_at(self._backslashes, end)
        return found

    def after_space(self, at: Ints) -> Ints:
        """The first position from each on that is not white space."""
        if not np.count_nonzero(self.body[at] <= _SPACE):
            return at
        is_space = _IS_SPACE[self.body[at]]
        for _ in range(_MAX_SPACE):
            if not is_space.any():
                break
            at = at + is_space
            is_space = _IS_SPACE[self.body[at]]
        return at

    def cursor(self, rows: Ints) -> Cursor:
        """A cursor at the beginning of some payloads."""
        ends = self._ends[rows]
        return Cursor(self._starts[rows], self._first_quotes[rows], ends, self._is_usable[rows])

    def skip_space(self, cursor: Cursor) -> None:
        """Go to the next character that is not white space."""
        if not self.has_space:
            return
        for _ in range(_MAX_SPACE):
            is_space = _IS_SPACE[self.body[cursor.at]]
            if not is_space.any():
                return
            cursor.at += is_space

    def is_at(self, cursor: Cursor, text: bytes) -> Flags:
        """Where the text is what comes next."""
        last = len(self._words) - 1
        flags: Flags | None = None
        for begin in range(0, len(text), 8):
            part = text[begin : begin + 8]
            words = self._words[np.minimum(cursor.at + begin, last)]
            if len(part) < 8:
                words &= np.uint64((1 << 8 * len(part)) - 1)
            equal = words == np.uint64(int.from_bytes(part, "little"))
            flags = equal if flags is None else flags & equal
        assert flags is not None
        return flags

    def byte(self, cursor: Cursor) -> npt.NDArray[np.uint8]:
        """The bytes that come next."""
        return self.body[cursor.at]

    def bytes_at(self, at: Ints) -> npt.NDArray[np.uint8]:
        """The bytes at positions, which may be beyond the buffer: there it is the last one."""
        return self.body[np.minimum(at, len(self.body) - 1)]

    def fixed_number(self, cursor: Cursor, at: Ints, width: int) -> Ints:
        """The numbers of a count of digits at positions of the cursor's rows; others fail."""
        value = np.zeros(len(at), np.int64)
        for offset in range(width):
            digit = self.bytes_at(at + offset) ^ _ZERO
            cursor.ok &= digit < 10
            value = value * 10 + digit
        return value

    def expect(self, cursor: Cursor, byte: int) -> None:
        """Go over a byte that must be there."""
        found = self.body[cursor.at] == byte
        cursor.ok &= found
        cursor.at += found

    def digits(self, at: Ints, words: int = _MAX_WORDS) -> tuple[Ints, Ints]:
        """Read digits; returns their number, wrong beyond ``MAX_DIGITS`` of them, and how many there are."""
        text = self._words[at] ^ np.uint64(0x30 * _ONES)
        others = ((text + np.uint64(0x76 * _ONES)) | text) & np.uint64(0x80 * _ONES)
        lowest = (others & (~others + np.uint64(1))) >> np.uint64(7)
        # Bytes before the first that is not a digit: each leaves a 1 when 1 is taken from the bit of that.
        count = (((lowest - np.uint64(1)) & np.uint64(_ONES)) * np.uint64(_ONES)) >> np.uint64(56)
        number = text << (np.uint64(64) - (count << np.uint64(3)))
        number = (number * np.uint64(10) + (number >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
        number = (number * np.uint64(100) + (number >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
        number = (number * np.uint64(10_000) + (number >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
        value, length = number.view(np.int64), count.view(np.int64)
        longer = np.flatnonzero(length == 8)
        if len(longer) and words > 1:
            rest, more = self.digits(at[longer] + 8, words - 1)
            value[longer] = value[longer] * TENS[np.minimum(more, MAX_DIGITS)] + rest
            length[longer] += more
        return value, length

    def number(self, cursor: Cursor) -> Number:
        """Go over numbers without an exponent."""
        start = cursor.at.copy()
        is_negative = self.body[start] == _MINUS
        first = start + is_negative
        whole, wholes = self.digits(first)
        cursor.ok &= (wholes > 0) & ((self.body[first] != _ZERO) | (wholes == 1))
        end = first + wholes
        fraction, fractions = np.zeros(len(start), np.int64), np.zeros(len(start), np.int64)
        pointed = np.flatnonzero(self.body[end] == _POINT)
        if len(pointed):
            value, length = self.digits(end[pointed] + 1)
            fraction[pointed], fractions[pointed] = value, length
            cursor.ok[pointed] &= length > 0
            end[pointed] += length + 1
        cursor.ok &= end <= cursor.limit
        cursor.at = end
        return Number(start, end.copy(), is_negative, whole, wholes, fraction, fractions)

    def exponent(self, cursor: Cursor) -> Flags:
        """Go over exponents of one or two digits, where there are any; returns where."""
        found: Flags = (self.body[cursor.at] | 0x20) == _EXPONENT
        rows = np.flatnonzero(found)
        if len(rows):
            at = cursor.at[rows] + 1
            sign = self.body[at]
            at += (sign == _MINUS) | (sign == _PLUS)
            _, length = self.digits(at)
            cursor.ok[rows] &= (length > 0) & (length <= _MAX_EXPONENT)
            cursor.at[rows] = at + length
            cursor.ok &= cursor.at <= cursor.limit
        return found

    def number_text(self, cursor: Cursor) -> tuple[Ints, Ints]:
        """Go over numbers; returns where they begin and end."""
        start = self.number(cursor).start
        self.exponent(cursor)
        return start, cursor.at.copy()

    def string(self, cursor: Cursor) -> tuple[Ints, Ints]:
        """Go over strings; returns where their contents begin and end."""
        quote = np.minimum(cursor.quote, len(self._quotes) - 2)
        closing = self._quotes[quote + 1]
        found = (self._quotes[quote] == cursor.at) & (closing < cursor.limit)
        cursor.ok &= found
        start = cursor.at + found
        end = np.where(found, closing, start)
        cursor.at = end + found
        cursor.quote += 2 * found
        return start, end

    def texts(self, cursor: Cursor, start: Ints, end: Ints) -> pa.StringArray:
        """Make strings of [start, end); those with a malformed escape fail."""
        texts = self.own_texts(cursor, start, end)
        start, end = np.minimum(start, cursor.limit), np.minimum(end, cursor.limit)
        is_escaped = self.has_escapes(start, end)
        if is_escaped is None or not is_escaped.any():
            return texts
        rows = np.flatnonzero(is_escaped)
        plain, is_good = unescaped(texts.take(pa.array(rows)))
        cursor.ok[rows] &= is_good
        return pc.replace_with_mask(texts, pa.array(is_escaped), plain)

    def own_texts(self, cursor: Cursor, start: Ints, end: Ints) -> pa.StringArray:
        """The payloads' own text of [start, end)."""
        # Arrow trusts offsets to ascend: a row that has failed may have come beyond its payload.
        start, end = np.minimum(start, cursor.limit), np.minimum(end, cursor.limit)
        offsets = np.empty(2 * len(start) + 1, np.int32)
        offsets[:-1:2], offsets[1::2], offsets[-1] = start, end, len(self.body)
        spans = pa.StringArray.from_buffers(2 * len(start), pa.py_buffer(offsets), pa.py_buffer(self.body))
        return spans.take(pa.array(np.arange(0, 2 * len(start), 2, dtype=np.int32)))


def _positions(flags: Flags, more: int = 0, filler: int = 0) -> Places:
    """Where flags are set, and ``more`` times the filler; numpy's own positions take twice the memory."""
    positions = np.full(np.count_nonzero(flags) + more, filler, np.int32)
    done = 0
    for start in range(0, len(flags), _CHUNK):
        found = np.flatnonzero(flags[start : start + _CHUNK])
        positions[done : done + len(found)] = found + start
        done += len(found)
    return positions


def _first_at(places: Places, at: Ints | Places) -> Ints:
    """The index of the first entry at or after each position, which has the type that no copy is made for."""
    return np.searchsorted(places, at.astype(np.int32, copy=False))


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
