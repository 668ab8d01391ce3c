"""Values of JSON without parts, one at a time: a parsed value -> the value of its Arrow array.

Accepts every form that ``objects`` lists. Parsed values are those of ``parse``, with lists of numbers as
tuples.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pulsar_spark.values.avro.avro_types import MAX_FLOAT
from pulsar_spark.values.json.tree import JsonKind, JsonLeaf

# Not JSON, but Python's client writes these words.
NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
NUMBER: Final = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_MAX_EXPONENT: Final = 10  # maximum digits of an exponent that is computed
_EPOCH: Final = date(1970, 1, 1)
_DIGITS_OF_INT64: Final = 19
_SHORT: Final = 18  # digits that always fit into int64
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(
    _DATE.pattern
    + r"[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:([Zz])|([+-][0-9]{2}):?([0-9]{2}))?"
)
_CLOCK: Final = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?")


class BadJsonError(Exception):
    """A value is not one of its node; the text is the mistake."""


def _number(value: Any, wanted: str) -> re.Match[str]:
    text = value.decode() if type(value) is bytes else str(value)
    found = None if type(value) is tuple else NUMBER.fullmatch(text)
    if found is None:
        raise BadJsonError(f"expected {wanted}, but found {shown(value)}")
    return found


def shown(value: Any) -> str:
    """Returns the words of an error for a parsed value."""
    if type(value) is bytes:
        return value[:_SHORT].decode()
    if isinstance(value, bool | int | float):
        return str(value).lower()[:_SHORT]
    if type(value) is str:
        return "text"
    return "an object" if type(value) is dict else "an array"


def _boolean(_leaf: JsonLeaf, value: Any) -> bool:
    if value not in (True, False, "true", "false"):
        raise BadJsonError("expected true or false, but found text")
    return value in (True, "true")


def _whole(leaf: JsonLeaf, value: Any) -> int:
    return _integer(_number(value, "a whole number"), leaf.type.bit_width)


def _integer(number: re.Match[str], bits: int) -> int:
    token = number[0]
    if len(token) <= _SHORT and number.lastindex == 2:
        value: int | None = int(token)
    else:
        value = scaled(number, 0, _DIGITS_OF_INT64)
    if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise BadJsonError("a number that is not whole, or out of range")
    return value


def scaled(number: re.Match[str], scale: int, max_digits: int, *, is_cut: bool = False) -> int | None:
    """Returns a number times 10 ** ``scale`` as an integer; None: there is no such integer.

    The cost is proportional to the text, because an exponent alone never makes a large integer.

    Args:
        number: match of ``NUMBER``.
        scale: number of decimal digits to move the point by.
        max_digits: maximum digits of the result.
        is_cut: True rounds down; False: a number with a remainder has no result.
    """
    sign, whole, fraction, exponent = number.groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return 0
    if len(exponent) > _MAX_EXPONENT:
        if not is_cut or "-" not in exponent:
            return None
        exponent = "-" + "9" * _MAX_EXPONENT
    zeros = int(exponent or 0) - len(fraction) + scale
    if len(digits) + zeros > max_digits:
        return None
    rest = ""
    if zeros < 0:
        digits, rest = digits[:zeros], digits[zeros:]
        if rest.strip("0") and not is_cut:
            return None
    result = int(digits + "0" * zeros or "0")
    if not sign:
        return result
    return -result - 1 if rest.strip("0") else -result


def _float(leaf: JsonLeaf, value: Any) -> float:
    name = value.decode() if type(value) is bytes else value
    if name in NOT_FINITE:
        return NOT_FINITE[name]
    limit = MAX_FLOAT if leaf.type == pa.float32() else float("inf")
    number = float(_number(value, "a number")[0])
    if not -limit < number < limit:
        raise BadJsonError("a number out of range")
    return number


def _text(leaf: JsonLeaf, value: Any) -> str:
    if type(value) is not str:
        return _number(value, "text")[0]
    if leaf.symbols is not None:
        if value not in leaf.symbols:
            raise BadJsonError("text that is not a symbol of the enum")
        return leaf.symbols[value]
    utf8(value)
    return value


def utf8(value: str) -> bytes:
    """Returns the UTF-8 of a text; raises BadJsonError for half of a surrogate pair."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise BadJsonError("text with half of a surrogate pair") from None


def _bytes(leaf: JsonLeaf, value: Any) -> bytes:
    return decode_bytes(leaf, utf8(value))


def decode_bytes(leaf: JsonLeaf, value: bytes) -> bytes:
    """Returns the bytes that a text in UTF-8 encodes; raises BadJsonError if there are none."""
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


def _day(_leaf: JsonLeaf, value: Any) -> int:
    if type(value) is tuple:
        return _days(*_integers(value, 3, 3))
    if type(value) is str and (found := _DATE.fullmatch(value)):
        return _days(*map(int, found.groups()))
    return _integer(_number(value, "a date"), 32)


def _integers(value: tuple[Any, ...], fewest: int, most: int) -> list[int]:
    if not fewest <= len(value) <= most:
        raise BadJsonError(f"expected one of {fewest} to {most} numbers")
    return [_integer(_number(each, "a whole number"), 32) for each in value]


def _days(year: int, month: int, day: int) -> int:
    """Returns the days since 1970."""
    try:
        return (date(year, month, day) - _EPOCH).days
    except (ValueError, OverflowError) as error:
        raise BadJsonError(f"not a date: {error}") from None


def _timestamp(leaf: JsonLeaf, value: Any) -> int:
    has_zone = leaf.type.tz is not None
    if type(value) is tuple and not has_zone:
        *parts, nanos = [*_integers(value, 5, 7), 0, 0][:7]
        if not 0 <= nanos < 1_000_000_000:
            raise BadJsonError("not a timestamp: nanoseconds are out of range")
        return _in_range(_micros(*parts) + nanos // 1000)
    if type(value) is str and (found := _TIME.fullmatch(value)):
        return _in_range(_micros_of(found, has_zone))
    number = _number(value, "a timestamp")
    if number.lastindex == 2:
        return _in_range(leaf.unit.micros(_integer(number, 64)))
    micros = scaled(number, 6, _DIGITS_OF_INT64, is_cut=True)
    return _in_range(1 << 63 if micros is None else _as_java_means(number, micros))


def _as_java_means(seconds: re.Match[str], micros: int) -> int:
    """Returns the microseconds of seconds with a point.

    Before 1970 Java writes the second, and adds the fraction that has passed of it: -2.25 is 1.75 s before
    1970. Java never writes -0.25, nor an exponent, so these have their usual value.
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
    """Returns the microseconds since 1970 of year, month, day, hour, minute and second."""
    try:
        moment = datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc, arg-type]
    except (ValueError, OverflowError) as error:
        raise BadJsonError(f"not a timestamp: {error}") from None
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


def _in_range(micros: int) -> int:
    if not -(1 << 63) <= micros < 1 << 63:
        raise BadJsonError("a timestamp out of range")
    return micros


def _time(leaf: JsonLeaf, value: Any) -> int:
    if type(value) is tuple:
        hour, minute, second, nanos = (*_integers(value, 2, 4), 0, 0)[:4]
        return _since_midnight(hour, minute, second, nanos) // (leaf.unit.factor * 1000)
    if type(value) is str and (found := _CLOCK.fullmatch(value)):
        *clock, fraction = found.groups(default="0")
        hour, minute, second = map(int, clock)
        nanos = _since_midnight(hour, minute, second, int(fraction.ljust(9, "0")))
        return nanos // (leaf.unit.factor * 1000)
    return _integer(_number(value, "a time of day"), leaf.type.bit_width)


def _since_midnight(hour: int, minute: int, second: int, nanos: int) -> int:
    """Returns the nanoseconds since midnight."""
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= nanos < 1_000_000_000):
        raise BadJsonError("not a time of day")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nanos


def _decimal(leaf: JsonLeaf, value: Any) -> bytes:
    precision, scale = leaf.type.precision, leaf.type.scale
    whole = scaled(_number(value, "a number"), scale, precision)
    if whole is None:
        raise BadJsonError(f"a number that needs more digits than decimal({precision},{scale}) has")
    return whole.to_bytes(16, "little", signed=True)


class LeafForm(NamedTuple):
    """The forms of a kind of leaf.

    Attributes:
        types: Python types of its parsed values; values of other types are bad.
        wanted: words of errors for a value of the kind.
        convert: returns the value for the leaf's Arrow array; raises BadJsonError.
    """

    types: frozenset[type]
    wanted: str
    convert: Callable[[JsonLeaf, Any], Any]


_NUMBERS: Final = frozenset((str, int, bytes))
FORMS: Final = {
    JsonKind.NULL: LeafForm(frozenset(), "null", lambda _, value: value),
    JsonKind.BOOLEAN: LeafForm(frozenset((bool, str)), "true or false", _boolean),
    JsonKind.INTEGER: LeafForm(_NUMBERS, "a whole number", _whole),
    JsonKind.FLOAT: LeafForm(_NUMBERS, "a number", _float),
    JsonKind.TEXT: LeafForm(_NUMBERS, "text", _text),
    JsonKind.BYTES: LeafForm(frozenset((str,)), "text", _bytes),
    JsonKind.DATE: LeafForm(_NUMBERS | {tuple}, "a date", _day),
    JsonKind.TIMESTAMP: LeafForm(_NUMBERS | {tuple}, "a timestamp", _timestamp),
    JsonKind.TIME: LeafForm(_NUMBERS | {tuple}, "a time of day", _time),
    JsonKind.DECIMAL: LeafForm(_NUMBERS, "a number", _decimal),
}
