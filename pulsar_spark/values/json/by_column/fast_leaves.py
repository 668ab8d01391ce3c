"""JSON values without parts, of many payloads at once: the same as ``leaves``, for common values.

Each function reads a value at each position of a cursor, none of which is null, and moves the cursor over it.
Rows whose value is not as it should be, or not usual, fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.values.avro.avro_types import MAX_FLOAT
from pulsar_spark.values.json.by_column.cursor import MAX_DIGITS, TENS, Cursor, JsonPayloads
from pulsar_spark.values.json.leaves import decode_bytes
from pulsar_spark.values.json.scan import BadJsonError
from pulsar_spark.values.json.tree import JsonKind, JsonLeaf

if TYPE_CHECKING:
    import numpy.typing as npt

_QUOTE, _LIST, _END_OF_LIST, _COMMA, _TRUE, _FALSE = b'"[],tf'
_MINUS, _COLON, _POINT, _T, _SPACE, _ZULU = b"-:.T Z"
_DATE, _TIME = len("yyyy-mm-dd"), len("yyyy-mm-ddThh:mm:ss")
_MICROS: Final = 6  # digits of a second's fraction
_NANOS: Final = 9
_SECONDS: Final = 12  # digits, whose microseconds an int64 has room for
_MILLIS: Final = 15
_DAYS: Final = 9  # digits that an int32 has room for
_YEARS: Final = 4
# A whole number of this many digits is a double, and so is a power of ten: their quotient is rounded once.
_EXACT: Final = 15

TEXT: Final = JsonLeaf(JsonKind.TEXT, pa.string())
_BOOLEAN: Final = JsonLeaf(JsonKind.BOOLEAN, pa.bool_())


def _signed(is_negative: Flags, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.where(is_negative, -values, values)


def _integers(payloads: JsonPayloads, cursor: Cursor, max_digits: int) -> Ints:
    number = payloads.number(cursor)
    cursor.ok &= (number.fractions == 0) & (number.wholes <= max_digits)
    return _signed(number.is_negative, number.whole)


def _array(leaf: JsonLeaf, values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(leaf.type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _nulls(_payloads: JsonPayloads, _leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    cursor.fail()
    return pa.nulls(len(cursor))


def _booleans(payloads: JsonPayloads, _leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    is_true, is_false = payloads.is_at(cursor, b"true"), payloads.is_at(cursor, b"false")
    cursor.ok &= is_true | is_false
    cursor.at += 4 * is_true + 5 * is_false
    return pa.array(is_true)


def _whole_numbers(payloads: JsonPayloads, leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    values = _integers(payloads, cursor, MAX_DIGITS)
    if leaf.type == pa.int64():
        return _array(leaf, values)
    narrow = values.astype(np.int32)
    cursor.ok &= narrow == values
    return _array(leaf, narrow)


def _floats(payloads: JsonPayloads, leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    number = payloads.number(cursor)
    has_exponent = payloads.exponent(cursor)
    digits = number.wholes + number.fractions
    tens = TENS[np.minimum(number.fractions, MAX_DIGITS)]
    values = _signed(number.is_negative, (number.whole * tens + number.fraction) / tens)
    longer = np.flatnonzero((has_exponent | (digits > _EXACT)) & cursor.ok)
    if len(longer):
        part = cursor.take(longer)
        texts = payloads.texts(part, number.start[longer], part.at)
        values[longer] = texts.cast(pa.float64()).to_numpy()
    if leaf.type == pa.float64():
        return _array(leaf, values)
    fits = np.abs(values) < MAX_FLOAT
    cursor.ok &= fits
    return _array(leaf, np.where(fits, values, 0).astype(np.float32))


def read_text(payloads: JsonPayloads, _leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    """Read strings; numbers fail."""
    start, end = payloads.string(cursor)
    return payloads.texts(cursor, start, end)


def _texts(payloads: JsonPayloads, leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    start, end = np.empty(len(cursor), np.int64), np.empty(len(cursor), np.int64)
    is_text = payloads.byte(cursor) == _QUOTE
    for which, read in ((is_text, payloads.string), (~is_text, payloads.number_text)):
        rows = np.flatnonzero(which)
        if len(rows):
            part = cursor.take(rows)
            start[rows], end[rows] = read(part)
            cursor.put(rows, part)
    column = payloads.texts(cursor, start, end)
    if leaf.symbols is not None:
        kept = [text for text, symbol in leaf.symbols.items() if text == symbol]
        is_kept = pc.is_in(column, pa.array(kept, pa.string())).to_numpy(zero_copy_only=False)
        cursor.ok &= is_kept | ~is_text
    return column.cast(leaf.type)


def _bytes(payloads: JsonPayloads, leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    values: list[bytes | None] = []
    for row, text in enumerate(read_text(payloads, leaf, cursor).cast(pa.binary()).to_pylist()):
        try:
            values.append(decode_bytes(leaf, text))
        except BadJsonError:
            values.append(None)
            cursor.ok[row] = False
    return pa.array(values, leaf.type)


def _dates(payloads: JsonPayloads, leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    readers = {_LIST: _listed_days, _QUOTE: _written_days}
    days = _by_first_byte(payloads, cursor, readers, lambda payloads, part: _integers(payloads, part, _DAYS))
    return _array(leaf, days.astype(np.int32))


def _timestamps(payloads: JsonPayloads, leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    has_zone = leaf.type.tz is not None
    readers = {_QUOTE: lambda payloads, part: _written_times(payloads, part, has_zone)}
    return _array(
        leaf, _by_first_byte(payloads, cursor, readers, lambda payloads, part: _seconds(payloads, leaf, part))
    )


def _by_first_byte(
    payloads: JsonPayloads,
    cursor: Cursor,
    readers: Mapping[int, Callable[[JsonPayloads, Cursor], Ints]],
    other: Callable[[JsonPayloads, Cursor], Ints],
) -> Ints:
    """Read numbers, each form of them by its own reader, which the first byte names."""
    first = payloads.byte(cursor)
    values = np.zeros(len(cursor), np.int64)
    is_other = np.ones(len(cursor), np.bool_)
    for byte in readers:
        is_other &= first != byte
    for which, read in (*((first == byte, read) for byte, read in readers.items()), (is_other, other)):
        rows = np.flatnonzero(which)
        if len(rows):
            part = cursor.take(rows)
            values[rows] = read(payloads, part)
            cursor.put(rows, part)
    return values


def _listed_days(payloads: JsonPayloads, cursor: Cursor) -> Ints:
    """Read [year, month, day]."""
    parts = []
    for before in (_LIST, _COMMA, _COMMA):
        payloads.expect(cursor, before)
        payloads.skip_space(cursor)
        parts.append(_integers(payloads, cursor, _YEARS))
        payloads.skip_space(cursor)
    payloads.expect(cursor, _END_OF_LIST)
    return _days(cursor, *parts)


def _written_days(payloads: JsonPayloads, cursor: Cursor) -> Ints:
    """Read "yyyy-mm-dd"."""
    start, end = payloads.string(cursor)
    cursor.ok &= end - start == _DATE
    return _days_at(payloads, cursor, start)


def _written_times(payloads: JsonPayloads, cursor: Cursor, has_zone: bool) -> Ints:
    """Read "yyyy-mm-ddThh:mm:ss", with a fraction or not, and with a Z or not where there is a zone."""
    start, end = payloads.string(cursor)
    cursor.ok &= end - start >= _TIME
    days = _days_at(payloads, cursor, start)
    separator = payloads.bytes_at(start + _DATE)
    cursor.ok &= (separator == _T) | (separator == _SPACE)
    hours, minutes, seconds = (
        payloads.fixed_number(cursor, start + _DATE + offset, 2) for offset in (1, 4, 7)
    )
    cursor.ok &= (hours < 24) & (minutes < 60) & (seconds < 60)
    for offset in (3, 6):
        cursor.ok &= payloads.bytes_at(start + _DATE + offset) == _COLON
    at = start + _TIME
    has_point = (payloads.bytes_at(at) == _POINT) & (at < end)
    # Without a point, no digits may be found.
    fraction, length = payloads.digits(np.where(has_point & cursor.ok, at + 1, len(payloads.body) - 8))
    cursor.ok &= (length > 0) == has_point
    cursor.ok &= length <= _NANOS
    at = at + has_point + length
    if has_zone:
        at = at + ((payloads.bytes_at(at) == _ZULU) & (at < end))
    cursor.ok &= at == end
    micros = (
        fraction * TENS[np.clip(_MICROS - length, 0, _MICROS)] // TENS[np.clip(length - _MICROS, 0, _NANOS)]
    )
    return ((days * 24 + hours) * 60 + minutes) * 60_000_000 + seconds * 1_000_000 + micros


def _days_at(payloads: JsonPayloads, cursor: Cursor, at: Ints) -> Ints:
    """Read yyyy-mm-dd."""
    for offset in (4, 7):
        cursor.ok &= payloads.bytes_at(at + offset) == _MINUS
    fields = ((0, _YEARS), (5, 2), (8, 2))
    return _days(cursor, *(payloads.fixed_number(cursor, at + offset, width) for offset, width in fields))


def _days(cursor: Cursor, year: Ints, month: Ints, day: Ints) -> Ints:
    """Days since 1970."""
    cursor.ok &= (year > 0) & (month > 0) & (month < 13) & (day > 0)
    months = np.where(cursor.ok, (year - 1970) * 12 + month - 1, 0)
    first, following = (
        each.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for each in (months, months + 1)
    )
    cursor.ok &= first + day <= following
    return first + day - 1


def _seconds(payloads: JsonPayloads, leaf: JsonLeaf, cursor: Cursor) -> Ints:
    """Read seconds with a point, and whole numbers of the leaf's unit."""
    number = payloads.number(cursor)
    has_point = number.fractions > 0
    cursor.ok &= ~payloads.exponent(cursor) & (number.fractions <= MAX_DIGITS)
    whole_digits = MAX_DIGITS if leaf.unit.factor == 1 else _MILLIS
    cursor.ok &= number.wholes <= np.where(has_point, _SECONDS, whole_digits)
    missing = TENS[np.clip(_MICROS - number.fractions, 0, _MICROS)]
    too_many = TENS[np.clip(number.fractions - _MICROS, 0, MAX_DIGITS)]
    wholes = number.whole * 1_000_000
    micros = number.fraction * missing // too_many
    is_cut = number.fraction % too_many > 0
    # -2.25 is Java's 1.75 s before 1970, and -0.25 is what it says.
    negative = np.where(number.whole > 0, micros - wholes, -micros - is_cut)
    seconds = np.where(number.is_negative, negative, wholes + micros)
    return np.where(has_point, seconds, leaf.unit.micros(_signed(number.is_negative, number.whole)))


def _decimals(payloads: JsonPayloads, leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    number = payloads.number(cursor)
    precision, scale = leaf.type.precision, leaf.type.scale
    # Zero has a digit before the point even where the type has none.
    wholes = number.wholes - ((number.whole == 0) & (number.wholes == 1))
    cursor.ok &= (wholes <= precision - scale) & (number.fractions <= scale)
    digits = number.whole * TENS[min(scale, MAX_DIGITS)]
    digits += number.fraction * TENS[np.clip(scale - number.fractions, 0, MAX_DIGITS)]
    value = _signed(number.is_negative, digits)
    words = np.stack([value, value >> 63], axis=1)
    longer = np.flatnonzero((wholes + scale > MAX_DIGITS) & cursor.ok)
    if len(longer):
        part = cursor.take(longer)
        texts = payloads.texts(part, number.start[longer], part.at)
        exact = np.frombuffer(texts.cast(leaf.type).buffers()[1], np.int64)
        words[longer] = exact[: 2 * len(longer)].reshape(-1, 2)
    return _array(leaf, words)


def _json(payloads: JsonPayloads, leaf: JsonLeaf, cursor: Cursor) -> pa.Array:
    """Take values without parts as they are; the others fail."""
    start = cursor.at.copy()
    skip_scalar(payloads, cursor)
    return payloads.own_texts(cursor, start, cursor.at).cast(leaf.type)


def skip_scalar(payloads: JsonPayloads, cursor: Cursor) -> None:
    """Go over strings, numbers, true and false."""
    first = payloads.byte(cursor)
    is_word = (first == _TRUE) | (first == _FALSE)
    for which, leaf in ((~is_word, TEXT), (is_word, _BOOLEAN)):
        rows = np.flatnonzero(which)
        if len(rows):
            part = cursor.take(rows)
            LEAVES[leaf.kind](payloads, leaf, part)
            cursor.put(rows, part)


LEAVES: Final[dict[JsonKind, Callable[[JsonPayloads, JsonLeaf, Cursor], pa.Array]]] = {
    JsonKind.NULL: _nulls,
    JsonKind.BOOLEAN: _booleans,
    JsonKind.INTEGER: _whole_numbers,
    JsonKind.FLOAT: _floats,
    JsonKind.TEXT: _texts,
    JsonKind.BYTES: _bytes,
    JsonKind.DATE: _dates,
    JsonKind.TIMESTAMP: _timestamps,
    JsonKind.TIME: _whole_numbers,
    JsonKind.DECIMAL: _decimals,
    JsonKind.JSON: _json,
}
