"""JSON values without parts: one at a time, from text to what its Arrow array holds."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final, TypeAlias

import pyarrow as pa

from pulsar_spark.values.avro.avro_types import MAX_FLOAT
from pulsar_spark.values.json.scan import (
    NOT_FINITE,
    NUMBER,
    BadJsonError,
    read_string,
    read_utf8,
    scaled,
    skip_space,
    skip_value,
    unexpected,
)
from pulsar_spark.values.json.tree import JsonKind, JsonLeaf

# Takes the text and the position of a value; gives what the array holds, and where the value ends.
Parser: TypeAlias = Callable[[str, int], tuple[Any, int]]

_EPOCH: Final = date(1970, 1, 1)
_BITS: Final = {pa.int32(): 32, pa.int64(): 64}
_DIGITS_OF_INT64: Final = 19
_SHORT: Final = 18  # digits that any int64 has room for
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(
    _DATE.pattern
    + r"[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:([Zz])|([+-][0-9]{2}):?([0-9]{2}))?"
)


_CLOCK: Final = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?")


def make_parser(leaf: JsonLeaf) -> Parser:
    """Make what reads one value, which is not null; it raises BadJsonError for what is none."""
    return _PARSERS[leaf.kind](leaf)


def _number(text: str, at: int, wanted: str) -> tuple[re.Match[str], int]:
    """Match a number, or text that is one."""
    if text[at] == '"':
        value, end = read_string(text, at)
        found = NUMBER.fullmatch(value)
        if found is None:
            raise BadJsonError(f"expected {wanted}, but found text")
        return found, end
    found = NUMBER.match(text, at)
    if found is None:
        raise unexpected(text, at, wanted)
    return found, found.end()


def _null_parser(_leaf: JsonLeaf) -> Parser:
    def parse(text: str, at: int) -> tuple[None, int]:
        raise unexpected(text, at, "null")

    return parse


def _boolean_parser(_leaf: JsonLeaf) -> Parser:
    def parse(text: str, at: int) -> tuple[int, int]:
        if text.startswith("true", at):
            return 1, at + 4
        if text.startswith("false", at):
            return 0, at + 5
        if text[at] == '"':
            value, end = read_string(text, at)
            if value in ("true", "false"):
                return value == "true", end
        raise unexpected(text, at, "true or false")

    return parse


def _integer_parser(leaf: JsonLeaf) -> Parser:
    limit = 1 << _BITS[leaf.type] - 1

    def parse(text: str, at: int) -> tuple[int, int]:
        found, at = _number(text, at, "a whole number")
        return _integer(found, limit), at

    return parse


def _integer(number: re.Match[str], limit: int) -> int:
    token = number[0]
    if len(token) <= _SHORT and number.lastindex == 2:
        value: int | None = int(token)
    else:
        value = scaled(number, 0, _DIGITS_OF_INT64)
    if value is None or not -limit <= value < limit:
        raise BadJsonError("a number that is not whole, or out of range")
    return value


def _float_parser(leaf: JsonLeaf) -> Parser:
    limit = MAX_FLOAT if leaf.type == pa.float32() else float("inf")

    def parse(text: str, at: int) -> tuple[float, int]:
        is_text = text[at] == '"'
        for name, value in NOT_FINITE.items():
            token = f'"{name}"' if is_text else name
            if text.startswith(token, at):
                return value, at + len(token)
        found, at = _number(text, at, "a number")
        value = float(found[0])
        if not -limit < value < limit:
            raise BadJsonError("a number out of range")
        return value, at

    return parse


def _text_parser(leaf: JsonLeaf) -> Parser:
    symbols = leaf.symbols

    def parse(text: str, at: int) -> tuple[bytes, int]:
        if text[at] == '"':
            if symbols is None:
                return read_utf8(text, at)
            name, at = read_string(text, at)
            symbol = symbols.get(name)
            if symbol is None:
                raise BadJsonError("text that is not a symbol of the enum")
            return symbol.encode(), at
        found = NUMBER.match(text, at)
        if found is None:
            raise unexpected(text, at, "text")
        return found[0].encode(), found.end()

    return parse


def _bytes_parser(leaf: JsonLeaf) -> Parser:
    def parse(text: str, at: int) -> tuple[bytes, int]:
        if text[at] != '"':
            raise unexpected(text, at, "text")
        value, at = read_utf8(text, at)
        return decode_bytes(leaf, value), at

    return parse


def decode_bytes(leaf: JsonLeaf, value: bytes) -> bytes:
    """Make the bytes that a string, in UTF-8, stands for.

    Raises:
        BadJsonError: it stands for none.
    """
    data = _decoded(value, leaf.is_base64)
    if leaf.size is not None and len(data) != leaf.size:
        raise BadJsonError(f"{len(data)} bytes instead of {leaf.size}")
    if leaf.type == pa.string():
        try:
            data.decode()
        except UnicodeDecodeError:
            raise BadJsonError("bytes that are not UTF-8") from None
    return data


def _decoded(value: bytes, is_base64: bool) -> bytes:
    try:
        data = base64.b64decode(value, validate=True)
    except binascii.Error:
        if is_base64:
            raise BadJsonError("text that is not base64") from None
        return value
    return data if is_base64 or base64.b64encode(data) == value else value


def _date_parser(_leaf: JsonLeaf) -> Parser:
    def parse(text: str, at: int) -> tuple[int, int]:
        if text[at] == "[":
            parts, at = _integers(text, at, 3, 3)
            return (_day(*parts) - _EPOCH).days, at
        if text[at] == '"':
            value, end = read_string(text, at)
            found = _DATE.fullmatch(value)
            if found is not None:
                return (_day(*map(int, found.groups())) - _EPOCH).days, end
        number, at = _number(text, at, "a date")
        return _integer(number, 1 << 31), at

    return parse


def _integers(text: str, at: int, fewest: int, most: int) -> tuple[list[int], int]:
    """Read an array of whole numbers."""
    parts: list[int] = []
    while len(parts) < most:
        at = skip_space(text, at + 1)
        found = NUMBER.match(text, at)
        if found is None:
            raise unexpected(text, at, "a whole number")
        parts.append(_integer(found, 1 << 31))
        at = skip_space(text, found.end())
        if text[at] == "]" and len(parts) >= fewest:
            return parts, at + 1
        if text[at] != ",":
            break
    raise unexpected(text, at, f"one of {fewest} to {most} numbers")


def _day(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError as error:
        raise BadJsonError(f"not a date: {error}") from None


def _timestamp_parser(leaf: JsonLeaf) -> Parser:
    has_zone = leaf.type.tz is not None

    def parse(text: str, at: int) -> tuple[int, int]:
        if text[at] == "[" and not has_zone:
            parts, at = _integers(text, at, 5, 7)
            *parts, nanos = [*parts, 0, 0][:7]
            if not 0 <= nanos < 1_000_000_000:
                raise BadJsonError("not a timestamp: nanoseconds are out of range")
            return _in_range(_micros(*parts) + nanos // 1000), at
        if text[at] == '"':
            value, end = read_string(text, at)
            found = _TIME.fullmatch(value)
            if found is not None:
                return _in_range(_micros_of(found, has_zone)), end
        number, at = _number(text, at, "a timestamp")
        if number.lastindex == 2:
            return _in_range(leaf.unit.micros(_integer(number, 1 << 63))), at
        micros = scaled(number, 6, _DIGITS_OF_INT64, is_cut=True)
        return _in_range(1 << 63 if micros is None else _as_java_means(number, micros)), at

    return parse


def _as_java_means(seconds: re.Match[str], micros: int) -> int:
    """Microseconds of seconds with a point.

    Java writes the whole second before a time and then what has passed of it, before 1970 too: -2.25 is
    1.75 s before. What it never writes is what it says: numbers with an exponent, and -0.25.
    """
    sign, whole, fraction, exponent = seconds.groups()
    if not sign or whole == "0" or fraction is None or exponent is not None:
        return micros
    return int(fraction[:6].ljust(6, "0")) - int(whole) * 1_000_000


def _micros_of(found: re.Match[str], has_zone: bool) -> int:
    *moment, second, fraction, utc, hours, minutes = found.groups()
    if (utc or hours) and not has_zone:
        raise BadJsonError("a time zone in a timestamp without time zone")
    micros = _micros(*map(int, moment), int(second or 0)) + int((fraction or "").ljust(6, "0")[:6])
    if hours:
        offset = int(hours[1:]) * 60 + int(minutes)
        micros -= (-offset if hours[0] == "-" else offset) * 60_000_000
    return micros


def _micros(*parts: int) -> int:
    """Microseconds of year, month, day, hour, minute and second, since 1970."""
    try:
        moment = datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc, arg-type]
    except (ValueError, OverflowError) as error:
        raise BadJsonError(f"not a timestamp: {error}") from None
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


def _in_range(micros: int) -> int:
    if not -(1 << 63) <= micros < 1 << 63:
        raise BadJsonError("a timestamp out of range")
    return micros


def _time_parser(leaf: JsonLeaf) -> Parser:
    limit = 1 << _BITS[leaf.type] - 1

    def parse(text: str, at: int) -> tuple[int, int]:
        if text[at] == "[":
            parts, at = _integers(text, at, 2, 4)
            hour, minute, second, nanos = (*parts, 0, 0)[:4]
            return _since_midnight(hour, minute, second, nanos) // (leaf.unit.factor * 1000), at
        if text[at] == '"':
            value, end = read_string(text, at)
            found = _CLOCK.fullmatch(value)
            if found is not None:
                *clock, fraction = found.groups(default="0")
                hour, minute, second = map(int, clock)
                nanos = _since_midnight(hour, minute, second, int(fraction.ljust(9, "0")))
                return nanos // (leaf.unit.factor * 1000), end
        number, at = _number(text, at, "a time of day")
        return _integer(number, limit), at

    return parse


def _since_midnight(hour: int, minute: int, second: int, nanos: int) -> int:
    """Nanoseconds."""
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= nanos < 1_000_000_000):
        raise BadJsonError("not a time of day")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nanos


def _json_parser(_leaf: JsonLeaf) -> Parser:
    def parse(text: str, at: int) -> tuple[bytes, int]:
        end = skip_value(text, at)
        return text[at:end].encode(), end

    return parse


def _decimal_parser(leaf: JsonLeaf) -> Parser:
    precision, scale = leaf.type.precision, leaf.type.scale

    def parse(text: str, at: int) -> tuple[bytes, int]:
        number, at = _number(text, at, "a number")
        value = scaled(number, scale, precision)
        if value is None:
            raise BadJsonError(f"a number that needs more digits than decimal({precision},{scale}) has")
        return value.to_bytes(16, "little", signed=True), at

    return parse


_PARSERS: Final[dict[JsonKind, Callable[[JsonLeaf], Parser]]] = {
    JsonKind.NULL: _null_parser,
    JsonKind.BOOLEAN: _boolean_parser,
    JsonKind.INTEGER: _integer_parser,
    JsonKind.FLOAT: _float_parser,
    JsonKind.TEXT: _text_parser,
    JsonKind.BYTES: _bytes_parser,
    JsonKind.DATE: _date_parser,
    JsonKind.TIMESTAMP: _timestamp_parser,
    JsonKind.TIME: _time_parser,
    JsonKind.DECIMAL: _decimal_parser,
    JsonKind.JSON: _json_parser,
}
