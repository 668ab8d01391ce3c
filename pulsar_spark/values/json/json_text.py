"""Encodes columns of numbers, texts, times and bytes as JSON text without quotes; a null row is empty.

Java's client reads each text as the same value, whichever Java type the field has. So times of Java's
classes are ISO-8601 text, because Java reads a number as seconds or milliseconds depending on the class, and
seconds before 1970 wrongly. Other times are numbers of the schema's unit, which all clients read. Decimals
are numbers with all digits, binary is base64.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Ints, offsets_of
from pulsar_spark.arrow.join import (
    MAX_SIZE,
    EncodedField,
    binary_of,
    join,
    lengths,
    one_field,
    to_mask,
    too_large,
)
from pulsar_spark.values.encode.column_values import (
    floats,
    integers,
    require,
    string_column,
    times_of_day,
    validity,
    whole_numbers,
)
from pulsar_spark.values.encode.pieces import Cells, Piece, Write
from pulsar_spark.values.time_units import MICROS_OF_DAY

_FIRST_DAY: Final = -719_162  # 0001-01-01
_LAST_DAY: Final = 2_932_896  # 9999-12-31

# Escapes of JSON's strings; the backslash is replaced first.
_ESCAPES: Final = {
    "\\": "\\\\",
    '"': '\\"',
    **{chr(code): f"\\u{code:04x}" for code in range(0x20)},
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_IS_ESCAPED: Final = np.array([chr(code) in _ESCAPES for code in range(256)])


def _escaped(strings: pa.StringArray) -> pa.BinaryArray:
    offsets = offsets_of(strings)
    data = strings.buffers()[2]
    if data is not None:
        found = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        codes, counts = np.unique(found[_IS_ESCAPED[found]], return_counts=True)
        more = sum(
            int(count) * (len(_ESCAPES[chr(code)]) - 1) for code, count in zip(codes, counts, strict=True)
        )
        if len(found) + more > MAX_SIZE:
            raise too_large("rows")
        for letter, escape in _ESCAPES.items():
            if ord(letter) in codes:
                strings = pc.replace_substring(strings, letter, escape)
    return strings.cast(pa.binary())


def string_text(strings: pa.StringArray) -> list[Piece]:
    """Writes strings with JSON's escapes; raises OptionError beyond 2 GiB."""
    return [one_field(_escaped(strings))]


def plain_text(column: pa.Array) -> list[Piece]:
    """Writes booleans, integers and decimals."""
    return [one_field(column.cast(pa.string()).cast(pa.binary()))]


def number_text(column: pa.Array, logical: str, path: str) -> list[Piece]:
    """Writes times as whole numbers; arguments and errors as for ``whole_numbers``."""
    has = validity(column)
    numbers = whole_numbers(column, logical, path)
    return plain_text(pa.array(numbers, mask=None if has is None else ~has))


def _time_text(column: pa.Array, logical: str, path: str) -> list[Piece]:
    """Writes times of day as ``10:11:12.013``; arguments and errors as for ``times_of_day``."""
    numbers = times_of_day(column, logical, path)
    if logical == "time-millis":
        millis = pa.array(numbers.astype(np.int32)).view(pa.time32("ms"))
        return [_matrix(millis.cast(pa.string()), b"00:00:00.000")]
    micros = pa.array(numbers).view(pa.time64("us"))
    return [_matrix(micros.cast(pa.string()), b"00:00:00.000000")]


def float_text(column: pa.Array, kind: type[np.floating], path: str) -> list[Piece]:
    """Writes numbers as float or double, always with a point or an exponent.

    Raises Misfit for NaN and infinity, which JSON does not support, and for an integer that loses digits.
    """
    numbers = floats(column, kind, path)
    has = validity(column)
    require(np.isfinite(numbers), path, "NaN or infinity, which JSON does not support")
    strings = pa.array(numbers, mask=None if has is None else ~has).cast(pa.string())
    pieces: list[Piece] = [one_field(strings.cast(pa.binary()))]
    is_whole = numbers == np.floor(numbers)
    if is_whole.any():
        lacks = is_whole & ~to_mask(pc.match_substring(strings, "e").fill_null(True))
        tail = np.broadcast_to(np.frombuffer(b".0", np.uint8), (len(strings), 2))
        pieces.append(Cells(tail, np.broadcast_to(lacks[:, None], tail.shape), np.where(lacks, 2, 0)))
    return pieces


def base64_text(values: pa.BinaryArray) -> list[Piece]:
    """Writes base64 with padding. One call encodes all rows, each padded to whole groups of three bytes.

    Raises OptionError beyond 2 GiB.
    """
    sizes = lengths(values)
    padding = -sizes % 3
    zeros = pa.array([b"", b"\0", b"\0\0"], pa.binary()).take(pa.array(padding))
    if int((sizes + padding).sum()) // 3 * 4 > MAX_SIZE:
        raise too_large("rows")
    padded = join([EncodedField(values, sizes), EncodedField(zeros, padding)], len(values))
    encoded = np.frombuffer(bytearray(binascii.b2a_base64(padded.buffer, newline=False)), np.uint8)
    offsets = padded.offsets // 3 * 4
    for place in (1, 2):
        encoded[offsets[1:][padding >= place] - place] = ord("=")
    return [EncodedField(binary_of(encoded.data, offsets), np.diff(offsets))]


def date_text(column: pa.Date32Array, path: str) -> list[Piece]:
    """Writes dates as ``2023-11-14``; raises Misfit for a year before 1 or after 9999."""
    days = integers(column)
    _require_years(days, path)
    return [_matrix(pa.array(days.astype(np.int32)).view(pa.date32()).cast(pa.string()), b"0000-00-00")]


def timestamp_text(column: pa.TimestampArray, path: str) -> list[Piece]:
    """Writes microseconds as ``2023-11-14T22:13:20.123456``, with a Z if the type has a zone.

    Raises Misfit for a year before 1 or after 9999.
    """
    micros = integers(column)
    _require_years(micros // MICROS_OF_DAY, path)
    strings = pa.array(micros).view(pa.timestamp("us")).cast(pa.string())
    end = b"" if column.type.tz is None else b"Z"
    return [_matrix(strings, b"0000-00-00T00:00:00.000000" + end)]


def _require_years(days: Ints, path: str) -> None:
    is_good = (days >= _FIRST_DAY) & (days <= _LAST_DAY)
    require(is_good, path, "a time outside the years 1 to 9999, which has no standard form in JSON")


def _matrix(strings: pa.StringArray, form: bytes) -> Cells:
    """Returns strings of equal length as cells, with T and Z where the example ``form`` has these letters."""
    count = len(strings)
    row = np.frombuffer(form, np.uint8)
    data = np.empty((count, len(form)), np.uint8)
    width = len(form.rstrip(b"Z"))
    data[:, :width] = np.frombuffer(strings.buffers()[2], np.uint8, count * width).reshape(count, width)
    is_letter = (row == ord("T")) | (row == ord("Z"))
    data[:, is_letter] = row[is_letter]
    return Cells(data, None, len(form))


_QUOTE: Final = b'"'
_NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def form_text(logical: str, path: str) -> tuple[Write, bytes]:
    """Returns the writer of a logical type that only JSON has, and the quote around each value.

    Args:
        logical: json, number, char, chars, time-millis or time-micros, see ``json_types``.
        path: path of the field; the writer raises Misfit for values of another form.
    """
    if logical.startswith("time-"):
        return lambda column: _time_text(column, logical, path), _QUOTE
    quote = _QUOTE if logical in ("char", "chars") else b""
    make = string_text if quote else plain_text
    check = _CHECKS.get(logical)

    def pieces(column: pa.Array) -> list[Piece]:
        strings = string_column(column, path)
        if check is not None:
            check(strings, path)
        return make(strings)

    return pieces, quote


def _require_json(strings: pa.StringArray, path: str) -> None:
    is_good = np.array([_is_json(each) for each in strings.to_pylist()], np.bool_)
    require(is_good, path, "text that is not JSON")


def _is_json(text: str | None) -> bool:
    try:
        json.loads("null" if text is None else text, parse_int=str, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return False
    return True


def _no_json(name: str) -> object:
    raise ValueError(name)  # Python accepts NaN, Infinity and -Infinity, but most libraries do not


def _require_number(strings: pa.StringArray, path: str) -> None:
    is_good = pc.match_substring_regex(strings, _NUMBER).fill_null(True)
    require(to_mask(is_good), path, "text that is not a number")


def _require_char(strings: pa.StringArray, path: str) -> None:
    # A character of four bytes in UTF-8 is two characters in Java.
    is_good = pc.and_(pc.equal(pc.utf8_length(strings), 1), pc.less(pc.binary_length(strings), 4))
    require(to_mask(is_good.fill_null(True)), path, "text that is not one character of Java")


_CHECKS: Final[dict[str, Callable[[pa.StringArray, str], None]]] = {
    "json": _require_json,
    "number": _require_number,
    "char": _require_char,
}
