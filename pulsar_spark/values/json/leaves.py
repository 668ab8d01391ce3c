"""Converts leaves (numbers, texts, times and so on) to columns: single values, or many in one call of Arrow.

``FORMS`` converts single parsed values, in every form that ``objects`` lists; arrays of numbers are tuples.
``usual_column`` converts many parsed values at once, ``column_of`` an array that PyArrow has read. Both raise
LeftError or ``pa.ArrowInvalid`` if Arrow would convert a value otherwise than ``FORMS``, or not at all.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.values.avro.avro_types import FLOAT_OVERFLOW
from pulsar_spark.values.json.tree import JsonKind, JsonLeaf, number_of
from pulsar_spark.values.time_units import MAX_LONG, MICROS_OF_DAY

# Python's client writes these words, which are not JSON.
NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
NUMBER: Final = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_MAX_EXPONENT: Final = 10  # maximum digits of an exponent; longer exponents are not computed
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
    """A value does not fit its node; the error's text describes the mistake."""


def _number(value: Any, wanted: str) -> re.Match[str]:
    text = value.decode() if type(value) is bytes else str(value)
    found = None if type(value) is tuple else NUMBER.fullmatch(text)
    if found is None:
        raise BadJsonError(f"expected {wanted}, but found {shown(value)}")
    return found


def shown(value: Any) -> str:
    """Returns the text of a parsed value for errors."""
    if type(value) is bytes:
        return value[:_SHORT].decode()
    if isinstance(value, bool | int | float):
        return str(value).lower()[:_SHORT]
    if type(value) is str:
        return "text"
    return "an object" if type(value) is dict else "an array"


def _boolean(_leaf: JsonLeaf, value: Any) -> bool:
    found = _BOOLEANS.get(str(value).lower())
    if found is None:
        raise BadJsonError(f"expected true or false, but found {shown(value)}")
    return found


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
    """Returns a number times 10 ** ``scale`` as int; None: no integer, or more than ``max_digits`` digits.

    The cost is proportional to the text, because an exponent alone never makes a large integer.

    Args:
        scale: number of decimal digits to move the point by.
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
    limit = FLOAT_OVERFLOW if leaf.type == pa.float32() else float("inf")
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
    _utf8(value)
    return value


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise BadJsonError("text with half of a surrogate pair") from None


def _bytes(leaf: JsonLeaf, value: Any) -> bytes:
    return _decode_bytes(leaf, _utf8(value))


def _decode_bytes(leaf: JsonLeaf, value: bytes) -> bytes:
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
        return _in_range(leaf.unit.to_column(_integer(number, 64)))
    micros = scaled(number, 6, _DIGITS_OF_INT64, is_cut=True)
    return _in_range(1 << 63 if micros is None else _as_java_means(number, micros))


def _as_java_means(seconds: re.Match[str], micros: int) -> int:
    """Returns the microseconds that Java means by a number of seconds; ``micros``: the usual value.

    Before 1970, Java writes the whole second and a fraction to add to it: -2.25 is -2 + 0.25 = -1.75 s. Java
    writes neither -0.25 nor exponents, so such numbers have their usual value.
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
    is_number = not pa.types.is_time(leaf.type)
    if type(value) is tuple:
        clock = (*_integers(value, 2, 4), 0, 0)[:4]
    elif type(value) is str and (found := _CLOCK.fullmatch(value)):
        *parts, fraction = found.groups(default="0")
        clock = (*map(int, parts), int(fraction.ljust(9, "0")))
    else:
        number = _integer(_number(value, "a time of day"), leaf.type.bit_width)
        if not is_number and not 0 <= number <= leaf.unit.bounds(leaf.type)[1]:
            raise BadJsonError("not a time of day")
        return number if is_number else leaf.unit.to_column(number)
    number = _nanos_of_day(*clock) // leaf.unit.factor
    return number if is_number else leaf.unit.to_column(number)


def _nanos_of_day(hour: int, minute: int, second: int, nanos: int) -> int:
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= nanos < 1_000_000_000):
        raise BadJsonError("not a time of day")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nanos


def _digits(leaf: JsonLeaf, value: Any) -> re.Match[str]:
    if leaf.scale is not None and type(value) is str:
        return _number(number_of(value, leaf.scale) or "", "base64 of a decimal")
    return _number(value, "a number")


def _decimal(leaf: JsonLeaf, value: Any) -> bytes:
    precision, scale = leaf.type.precision, leaf.type.scale
    whole = scaled(_digits(leaf, value), scale, precision)
    if whole is None:
        raise BadJsonError(f"a number that needs more digits than decimal({precision},{scale}) has")
    return whole.to_bytes(16, "little", signed=True)


class LeafForm(NamedTuple):
    """Reads the values of a kind of leaf.

    Attributes:
        types: Python types of its parsed values; values of other types are bad.
        wanted: expected value, for errors.
        convert: function that returns the value for the leaf's Arrow array; raises BadJsonError.
    """

    types: frozenset[type]
    wanted: str
    convert: Callable[[JsonLeaf, Any], Any]


_NUMBERS: Final = frozenset((str, int, bytes))
FORMS: Final = {
    JsonKind.NULL: LeafForm(frozenset(), "null", lambda _, value: value),
    JsonKind.BOOLEAN: LeafForm(frozenset((bool, str, int)), "true or false", _boolean),
    JsonKind.INTEGER: LeafForm(_NUMBERS, "a whole number", _whole),
    JsonKind.FLOAT: LeafForm(_NUMBERS, "a number", _float),
    JsonKind.TEXT: LeafForm(_NUMBERS, "text", _text),
    JsonKind.BYTES: LeafForm(frozenset((str,)), "text", _bytes),
    JsonKind.DATE: LeafForm(_NUMBERS | {tuple}, "a date", _day),
    JsonKind.TIMESTAMP: LeafForm(_NUMBERS | {tuple}, "a timestamp", _timestamp),
    JsonKind.TIME: LeafForm(_NUMBERS | {tuple}, "a time of day", _time),
    JsonKind.DECIMAL: LeafForm(_NUMBERS, "a number", _decimal),
    JsonKind.NUMBER: LeafForm(_NUMBERS, "a number", lambda leaf, value: _digits(leaf, value)[0]),
}


_Number = TypeVar("_Number", np.float64, np.int64)

TIMES: Final = {JsonKind.TIMESTAMP: pa.int64(), JsonKind.DATE: pa.int32()}  # kind -> type of integers
_MAX_PRECISION: Final = 38
_NANOS: Final = pa.decimal128(28, 9)  # seconds with nine digits of fraction
_SHORTEST_TIME: Final = len("yyyy-mm-ddThh:mm:ss")
_FIRST_DAY: Final = (date(1, 1, 1) - date(1970, 1, 1)).days


class LeftError(Exception):
    """Arrow cannot convert some values, so ``objects`` must convert them one by one."""


def plain_type(leaf: JsonLeaf, times_are_text: bool) -> pa.DataType | None:
    """Returns the type as which PyArrow reads a leaf's values; None: PyArrow must not read them."""
    if leaf.kind in (JsonKind.TEXT, JsonKind.BYTES) or (leaf.kind in TIMES and times_are_text):
        return pa.string()
    if leaf.kind is JsonKind.FLOAT:
        return pa.float64()
    if leaf.kind in TIMES:
        return TIMES[leaf.kind]
    if pa.types.is_time(leaf.type):
        return pa.int64()
    # PyArrow must not read decimals, because it accepts texts that are not numbers in JSON.
    return leaf.type if leaf.kind in (JsonKind.BOOLEAN, JsonKind.INTEGER, JsonKind.TIME) else None


def column_of(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    """Converts an array of ``plain_type`` without an offset to the leaf's column; not for JsonKind.JSON.

    Raises:
        LeftError, pa.ArrowInvalid: some values must be left to ``objects``.
    """
    if leaf.kind is JsonKind.FLOAT:
        leave_unless(np.isfinite(_numbers_of(column, np.float64)).all())
        return _float_column(leaf, column)
    if leaf.kind in TIMES and column.type == pa.string():
        return _written_time_column(leaf, column)
    if leaf.kind is JsonKind.TIMESTAMP or pa.types.is_time(leaf.type):
        return _time_column(leaf, column)
    if leaf.kind is JsonKind.BYTES:
        return _bytes_column(leaf, column)
    if leaf.symbols is not None:
        kept = [text for text, symbol in leaf.symbols.items() if text == symbol]
        is_kept = pc.is_in(column, pa.array([*kept, None], pa.string()))
        leave_unless(is_kept.false_count == 0)
    return column if column.type == leaf.type else column.cast(leaf.type)


def _float_column(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    """Converts float64 to the leaf's type; LeftError for finite numbers beyond the range of float32."""
    if leaf.type == pa.float64():
        return column
    values = _numbers_of(column, np.float64)
    leave_unless(((np.abs(values) < FLOAT_OVERFLOW) | ~np.isfinite(values)).all())
    return _with_validity(leaf, column, values.astype(np.float32))


def _time_column(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    values = _numbers_of(column, np.int64)
    least, most = leaf.unit.bounds(leaf.type)
    leave_unless(most == MAX_LONG or ((least <= values) & (values <= most)).all())
    return _with_validity(leaf, column, leaf.unit.to_column(values))


def _written_time_column(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    """Converts ISO 8601 texts; LeftError for times without seconds, or without Z if the type has a zone."""
    first = _FIRST_DAY
    if leaf.kind is JsonKind.TIMESTAMP:
        has_zone = leaf.type.tz is not None
        is_other = pc.less(pc.binary_length(column), _SHORTEST_TIME + has_zone)
        if has_zone:
            is_other = pc.or_(is_other, pc.invert(pc.ends_with(column, "Z")))
        leave_unless(not pc.any(is_other).as_py())
        first *= MICROS_OF_DAY
    times = column.cast(leaf.type)
    least = pc.min(times).value
    leave_unless(least is None or least >= first)
    return times


def _bytes_column(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    """Decodes each distinct text once, because many rows may have the same text."""
    encoded = column.dictionary_encode()
    try:
        values = [_decode_bytes(leaf, text) for text in encoded.dictionary.cast(pa.binary()).to_pylist()]
    except BadJsonError:
        raise LeftError from None
    return pa.array(values, leaf.type).take(encoded.indices)


def decimal_column(kind: pa.Decimal128Type, texts: pa.StringArray) -> pa.Array:
    """Converts texts of JSON's numbers, at least one, to decimals; raises as ``column_of``.

    Exponents, and too many digits for a decimal, raise LeftError, because Arrow does not check them.
    """
    data = texts.buffers()[2].to_pybytes()
    leave_unless(b"e" not in data and b"E" not in data)
    point = pc.find_substring(texts, ".")
    wholes = pc.if_else(pc.less(point, 0), pc.binary_length(texts), point)
    leave_unless(pc.max(wholes).as_py() + kind.scale <= _MAX_PRECISION)
    return texts.cast(kind)


def _instant_column(leaf: JsonLeaf, texts: pa.StringArray) -> pa.Array:
    """Converts texts of seconds since 1970, such as 1.5; LeftError if one is negative, see _as_java_means."""
    nanos = decimal_column(_NANOS, texts)
    words = np.frombuffer(nanos.buffers()[1], np.int64).reshape(-1, 2)  # low and high 64 bits
    if nanos.null_count:
        words = np.where(nanos.is_valid().to_numpy(zero_copy_only=False)[:, np.newaxis], words, 0)
    leave_unless((words[:, 0] >= 0).all() and not words[:, 1].any())
    return _with_validity(leaf, nanos, words[:, 0] // 1000)


def usual_column(leaf: JsonLeaf, kinds: set[type], values: list[Any]) -> pa.Array | None:
    """Converts parsed values to the leaf's column, if Arrow converts all of them as ``FORMS`` would.

    Args:
        leaf: leaf of any kind but JsonKind.JSON.
        kinds: types of the values, without the type of None.

    Returns:
        The column; None: Arrow does not convert values of these types.

    Raises:
        LeftError, pa.ArrowInvalid, OverflowError, UnicodeEncodeError: Arrow does not convert a value.
    """
    if leaf.kind is JsonKind.FLOAT:
        return _parsed_float_column(leaf, kinds, values) if kinds <= {int, float, bytes} else None
    if leaf.kind is JsonKind.DECIMAL:
        if not kinds <= {int, bytes}:  # a str may be base64, which only ``_decimal`` reads
            return None
        texts = values
        if int in kinds:
            texts = [b"%d" % value if type(value) is int else value for value in values]
        return decimal_column(leaf.type, pa.array(texts, pa.string()))
    if leaf.kind is JsonKind.TIMESTAMP and kinds == {bytes}:
        return _instant_column(leaf, pa.array(values, pa.string()))
    plain = plain_type(leaf, times_are_text=str in kinds)
    if plain is None or kinds != _PLAIN[plain.id]:
        return None
    return column_of(leaf, pa.array(values, plain))


def _parsed_float_column(leaf: JsonLeaf, kinds: set[type], values: list[Any]) -> pa.Array:
    numbers = values
    if bytes in kinds:
        numbers = [None if value is None else float(value) for value in values]
    column = pa.array(numbers, pa.float64())
    for row in np.flatnonzero(~np.isfinite(_numbers_of(column, np.float64))).tolist():
        # A text that becomes infinite, but is not in NOT_FINITE, is a number beyond the range of double.
        leave_unless(type(values[row]) is float or values[row].decode() in NOT_FINITE)
    return _float_column(leaf, column)


_PLAIN: Final = {pa.string().id: {str}, pa.bool_().id: {bool}, pa.int32().id: {int}, pa.int64().id: {int}}


def made_column(leaf: JsonLeaf, values: list[Any]) -> pa.Array:
    """Returns the leaf's array from results of ``LeafForm.convert``."""
    if leaf.kind is JsonKind.DECIMAL:
        column = pa.array(values, pa.binary(16))
        return pa.Array.from_buffers(leaf.type, len(column), column.buffers())
    if leaf.kind in TIMES:
        return pa.array(values, TIMES[leaf.kind]).view(leaf.type)
    return pa.array(values, leaf.type)


def _numbers_of(column: pa.Array, kind: type[_Number]) -> npt.NDArray[_Number]:
    """Returns a view of a column's numbers; null rows have any number. The column has no offset."""
    return np.frombuffer(column.buffers()[1], kind, len(column))


def _with_validity(leaf: JsonLeaf, column: pa.Array, values: npt.NDArray[Any]) -> pa.Array:
    buffers = [column.buffers()[0], pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(leaf.type, len(column), buffers)


def leave_unless(holds: bool | np.bool_) -> None:
    """Raises LeftError unless ``holds`` is true."""
    if not holds:
        raise LeftError
