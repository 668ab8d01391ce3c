"""Values of the primitive schemas, and of topics without a schema: decoder and encoder.

    ==========================  ====================================================  ====================
    schema                      bytes, all numbers big-endian                         column
    ==========================  ====================================================  ====================
    NONE                        any                                                   binary
    STRING                      UTF-8, or by the charset in the schema's properties   string
    BOOL                        1: 0 or 1                                             bool
    INT8, INT16, INT32, INT64   1, 2, 4, 8: two's complement                          int8 ... int64
    FLOAT, DOUBLE               4, 8: IEEE 754                                        float32, float64
    DATE, TIME, TIMESTAMP       8: ms since the epoch                                 timestamp us, UTC
    INSTANT                     12: seconds since the epoch, int32 nanoseconds        timestamp us, UTC
    LOCAL_DATE                  8: days since the epoch                               date32
    LOCAL_TIME                  8: nanoseconds of the day                             int64, or time64 ns
    LOCAL_DATE_TIME             16: days since the epoch, nanoseconds of the day       timestamp us
    ==========================  ====================================================  ====================

Reads truncate to microseconds, towards the past. A value of another length, or a value that its column cannot
hold, is bad. Writes fail for a row that the schema cannot hold exactly. TIME is never written, because its
column is a timestamp, which has a date, but TIME is a time of day.

The charset in the properties is a Java name. Python's codec of that name converts the text. As in Java,
UTF-16 and UTF-32 are big-endian, unless the bytes begin with a little-endian byte order mark.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, bytes_of, with_nulls
from pulsar_spark.arrow.join import fixed_width, lengths, to_mask, too_large
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.encode.column_values import (
    Misfit,
    floats,
    integers,
    is_no_text,
    milliseconds,
    require,
    row_encoder,
    string_column,
    validity,
)
from pulsar_spark.values.interfaces import DecodedValues, ValueDecoder, ValueEncoder, type_name
from pulsar_spark.values.time_units import MICROS_OF_DAY, NANOS_OF_DAY
from pulsar_spark.values.value_bounds import ANY_WORK, ValueCost, ValueWork

# For each codec with a byte order mark: the marks, the codec without a mark, and the mark that Java writes.
_MARKED: Final = {
    "utf-16": ((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE), "utf-16-be", codecs.BOM_UTF16_BE),
    "utf-32": ((codecs.BOM_UTF32_BE, codecs.BOM_UTF32_LE), "utf-32-be", b""),
}
# Python codecs that are refused, because they are no charsets of text; some take quadratic time.
_NO_CHARSETS: Final = frozenset(
    ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
)


@dataclass(frozen=True, slots=True)
class Charset:
    """A charset other than UTF-8; ``codec``: its name in Python."""

    name: str
    codec: str

    def to_utf8(self, value: bytes) -> bytes:
        """Converts bytes to UTF-8; raises UnicodeError for bytes that are not text in the charset."""
        codec = self.codec
        if codec in _MARKED:
            marks, plain, _ = _MARKED[codec]
            codec = codec if value.startswith(marks) else plain
        return value.decode(codec).encode()

    def of_text(self, text: str) -> bytes:
        """Converts text to bytes; raises UnicodeError if the charset lacks a character."""
        if self.codec not in _MARKED:
            return text.encode(self.codec)
        _, plain, mark = _MARKED[self.codec]
        return mark + text.encode(plain) if text else b""


def charset_of(schema: Schema) -> Charset | None:
    """Returns the charset of a STRING schema; None: the charset is UTF-8, or the schema is not STRING.

    Raises UnsupportedError if Python has no such charset.
    """
    name = schema.properties.get("__charset", "UTF-8") if schema.type is SchemaType.STRING else "UTF-8"
    try:
        found = codecs.lookup(name)
        "a".encode(name)  # raises if the codec does not convert text
    except (LookupError, ValueError):
        found = None
    if found is None or found.name in _NO_CHARSETS:
        raise UnsupportedError(
            f"Python has no charset {name[:40]!a}",
            advice="Use valueFormat=raw, and decode or encode the values in the query",
        )
    return None if found.name == "utf-8" else Charset(name[:40], found.name)


Numbers: TypeAlias = "npt.NDArray[Any]"  # stored values or column values

# ``units``: seconds of an INSTANT, days of a LOCAL_DATE_TIME.
_INSTANT = np.dtype([("units", ">i8"), ("nanos", ">i4")])
_DATE_TIME = np.dtype([("units", ">i8"), ("nanos", ">i8")])
_UTC, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
# Number types of columns; Avro promotes each of them to all later ones.
_NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())


# Converted numbers, and flags of the numbers that do not fit the column.
_Values: TypeAlias = "tuple[Numbers, Flags]"


class _Fixed(NamedTuple):
    """A schema whose values all have the same length.

    Attributes:
        stored: numpy's type of a stored value.
        numbers: numpy's type of the column's numbers.
        write: function that converts a column to stored values, arbitrary for null rows; raises Misfit.
        read: function that converts stored values to the column's numbers; None: numpy's cast.
        limits: text of errors about a value of the right length that is out of range.
    """

    column: pa.DataType
    stored: np.dtype[np.generic]
    numbers: npt.DTypeLike
    write: Callable[[pa.Array], Numbers]
    read: Callable[[Numbers], _Values] | None = None
    limits: str = ""


def is_promotable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Avro's promotions convert ``source`` to ``target``; the result may be rounded."""
    if source in _NUMBERS and target in _NUMBERS:
        return _NUMBERS.index(source) <= _NUMBERS.index(target)
    return source == target or {source, target} == {pa.string(), pa.binary()}


def column_type(schema: Schema) -> pa.DataType:
    """Returns the type of a column; raises UnsupportedError for text in an unknown charset."""
    charset_of(schema)
    return _BYTES.get(schema.type) or _FIXED[schema.type].column


def decoder(writer: Schema, reader: Schema, target: pa.DataType) -> ValueDecoder:
    """Returns the decoder; ``writer`` and ``reader`` are of the same kind. See ``formats.decoder``."""
    charset = charset_of(writer)
    if not (is_promotable(column_type(reader), target) or _is_clock(reader, target)):
        raise SchemaError(
            f"{reader.type.name} values are {type_name(column_type(reader))} and cannot be read as "
            f"{type_name(target)}",
            advice="Leave .schema(...) out, and cast after .load()",
        )
    if writer.type in _BYTES:
        return _BytesDecoder(target, charset)
    return _FixedDecoder(target, writer.type, _FIXED[writer.type])


def _is_clock(schema: Schema, column: pa.DataType) -> bool:
    return schema.type is SchemaType.LOCAL_TIME and pa.types.is_time(column)


def encoder(schema: Schema, source: pa.DataType) -> ValueEncoder:
    """Returns the encoder of a column; timestamps may be of any zone. See ``formats.encoder``."""
    column = column_type(schema)
    if schema.type is SchemaType.TIME:
        raise SchemaError(
            f"rows of type {type_name(source)} cannot be written as TIME, which is a time of day",
            advice="Write them to another topic, such as one with the schema TIMESTAMP",
        )
    is_same_time = pa.types.is_timestamp(source) and column == pa.timestamp(source.unit, source.tz and "UTC")
    may_be_exact = source == pa.float64() and column == pa.float32()
    may_be_exact |= _is_clock(schema, source)
    if not (is_same_time or may_be_exact or is_promotable(source, column)):
        raise SchemaError(
            f"rows of type {type_name(source)} cannot be written as {schema.type.name}, which takes "
            f"{type_name(column)}",
            advice="Cast the column in the query",
        )
    if schema.type in _BYTES:
        return row_encoder(partial(_encode_bytes, column, charset_of(schema)))
    return row_encoder(partial(_encode_fixed, _FIXED[schema.type]))


# ---------------------------------------------------------------------------------------- bytes and texts


def decode_texts(values: pa.BinaryArray) -> DecodedValues:
    """Decodes UTF-8 to strings; other bytes are bad."""
    try:
        return DecodedValues(values.cast(pa.string()))
    except pa.ArrowInvalid:
        is_bad = is_no_text(values)
    return DecodedValues(with_nulls(values, is_bad).cast(pa.string()), is_bad)


def why_no_text(value: bytes | None) -> str | None:
    """Returns the reason why bytes are not UTF-8; None: the bytes are UTF-8."""
    try:
        if value is not None:
            value.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    return None


def _decode_by_charset(values: pa.BinaryArray, charset: Charset) -> DecodedValues:
    found: list[bytes | None] = []
    bad = {None}  # bad values so far; each is decoded once, because a decoding error takes a microsecond
    is_bad = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values.to_pylist()):
        if value not in bad:
            try:
                found.append(charset.to_utf8(value))
                continue
            except UnicodeError:
                bad.add(value)
        is_bad[row] = value is not None
        found.append(None)
    return DecodedValues(pa.array(found, pa.string()), is_bad if is_bad.any() else None)


def _encode_by_charset(texts: pa.StringArray, charset: Charset) -> pa.BinaryArray:
    found: list[bytes | None] = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            found.append(None if text is None else charset.of_text(text))
        except UnicodeError:
            raise Misfit(row, "", f"text that the topic's charset {charset.name} does not have") from None
    values = pa.array(found, pa.binary())
    if isinstance(values, pa.ChunkedArray):
        raise too_large("rows")
    return values


@dataclass(frozen=True, slots=True)
class _BytesDecoder:
    type: pa.DataType
    charset: Charset | None

    @property
    def cost(self) -> ValueCost:
        # A character of one byte may have three bytes in UTF-8.
        return ValueCost(growth=0.0 if self.charset is None else 2.0)

    @property
    def plan(self) -> Hashable:
        return self

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ANY_WORK
    ) -> DecodedValues:
        if self.charset is not None:
            found = _decode_by_charset(values, self.charset)
            return DecodedValues(found.column.cast(self.type), found.is_bad)
        return decode_texts(values) if self.type == pa.string() else DecodedValues(values)

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        if self.charset is not None:
            return f"not text in the charset {self.charset.name}"
        return (self.type == pa.string() and why_no_text(value)) or "the bytes are a value"


def _encode_bytes(column: pa.DataType, charset: Charset | None, rows: pa.Array) -> pa.BinaryArray:
    checked = string_column(rows, "") if column == pa.string() else rows
    return checked.cast(pa.binary()) if charset is None else _encode_by_charset(checked, charset)


# ---------------------------------------------------------------------------------------- fixed lengths


@dataclass(frozen=True, slots=True)
class _FixedDecoder:
    type: pa.DataType
    kind: SchemaType
    fixed: _Fixed
    cost: ClassVar = ValueCost()

    @property
    def plan(self) -> Hashable:
        return self

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ANY_WORK
    ) -> DecodedValues:
        stored, has, is_bad = _stored_values(values, self.fixed.stored)
        if self.fixed.read is None:
            numbers = stored.astype(self.fixed.numbers)
        else:
            numbers, is_out = self.fixed.read(stored)
            if (is_out := is_out & has if has is not None else is_out).any():
                is_bad = is_out if is_bad is None else is_bad | is_out
                has = ~is_out if has is None else has & ~is_out
        if pa.types.is_time(self.type):
            numbers = numbers // 1000 * 1000  # Spark's time(6) has microseconds
        column = pa.array(numbers, mask=None if has is None else ~has)
        if column.type != self.fixed.column:
            column = column.view(self.fixed.column)
        return DecodedValues(
            column if column.type == self.type else column.cast(self.type, safe=False), is_bad
        )

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        size, width = len(value or b""), self.fixed.stored.itemsize
        if size != width:
            return f"{size} bytes, but {self.kind.name} has {width}"
        return f"not a valid {self.kind.name}: {self.fixed.limits}"


def _stored_values(
    values: pa.BinaryArray, stored: np.dtype[np.generic]
) -> tuple[Numbers, Flags | None, Flags | None]:
    """Returns the n values, flags of the rows that have a value (None: all), and of bad rows (None: none)."""
    has = lengths(values) == stored.itemsize
    fitting = values if has.all() else values.filter(pa.array(has))
    numbers = bytes_of(fitting).view(stored) if len(fitting) else np.zeros(0, stored)
    if len(fitting) == len(values):
        return numbers, None, None
    found = np.zeros(len(values), stored)
    found[has] = numbers
    is_bad = to_mask(values.is_valid()) & ~has
    return found, has, is_bad if is_bad.any() else None


def _encode_fixed(fixed: _Fixed, rows: pa.Array) -> pa.BinaryArray:
    stored = fixed.write(rows).astype(fixed.stored, copy=False)
    values = fixed_width(stored.tobytes(), fixed.stored.itemsize)
    has = validity(rows)
    return values if has is None else with_nulls(values, ~has)


# ---------------------------------------------------------------------------------------- numbers


def to_micros(units: Numbers, per_unit: int, rest: Numbers | int) -> tuple[Numbers, Flags]:
    """Returns units * per_unit + rest, int64[n], and flags of results beyond int64.

    ``rest`` must be less than 4 * per_unit.
    """
    limit = 2**63 // per_unit + 4
    micros = units * per_unit + rest  # may wrap around
    is_near = (units >= -limit) & (units <= limit)
    has_wrapped = (np.abs(units) > 4) & ((micros < 0) != (units < 0))
    return micros, ~is_near | has_wrapped


def _read_moments(per_unit: int, stored: Numbers) -> _Values:
    return to_micros(stored["units"].astype(np.int64), per_unit, stored["nanos"].astype(np.int64) // 1000)


def _write_moments(kind: np.dtype[np.void], per_unit: int, column: pa.Array) -> Numbers:
    micros = integers(column)
    stored = np.empty(len(micros), kind)
    stored["units"], rest = np.divmod(micros, per_unit)
    stored["nanos"] = rest * 1000
    return stored


def _read_days(stored: Numbers) -> _Values:
    days = stored.astype(np.int64)
    return days.astype(np.int32), days != days.astype(np.int32)


def _read_nanos_of_day(stored: Numbers) -> _Values:
    nanos = stored.astype(np.int64)
    return nanos, _is_no_nano_of_day(nanos)


def _write_nanos_of_day(column: pa.Array) -> Numbers:
    nanos = integers(column)
    require(~_is_no_nano_of_day(nanos), "", f"not a valid LOCAL_TIME: {_DAY_LIMITS}")
    return nanos


def _is_no_nano_of_day(nanos: Numbers) -> Flags:
    return (nanos < 0) | (nanos >= NANOS_OF_DAY)


def _read_date_time(stored: Numbers) -> _Values:
    micros, is_out = _read_moments(MICROS_OF_DAY, stored)
    return micros, is_out | _is_no_nano_of_day(stored["nanos"])


_BYTES = {SchemaType.NONE: pa.binary(), SchemaType.STRING: pa.string()}
_TIME_LIMITS = "a time that does not fit into 64 bits of microseconds"
_DAY_LIMITS = f"nanoseconds of a day are 0 to {NANOS_OF_DAY - 1}"
_DATE_LIMITS = "a day that does not fit into 32 bits"
_MILLIS = _Fixed(
    *(_UTC, np.dtype(">i8"), np.int64, partial(milliseconds, path="")),
    lambda stored: to_micros(stored.astype(np.int64), 1000, 0),
    _TIME_LIMITS,
)
_FIXED = {
    SchemaType.BOOL: _Fixed(
        *(pa.bool_(), np.dtype("u1"), np.uint8, lambda column: integers(column.cast(pa.int8()))),
        lambda stored: (stored == 1, stored > 1),
        "it is 0 or 1",
    ),
    SchemaType.INT8: _Fixed(pa.int8(), np.dtype("i1"), np.int8, integers),
    SchemaType.INT16: _Fixed(pa.int16(), np.dtype(">i2"), np.int16, integers),
    SchemaType.INT32: _Fixed(pa.int32(), np.dtype(">i4"), np.int32, integers),
    SchemaType.INT64: _Fixed(pa.int64(), np.dtype(">i8"), np.int64, integers),
    SchemaType.FLOAT: _Fixed(
        pa.float32(), np.dtype(">f4"), np.float32, partial(floats, kind=np.float32, path="")
    ),
    SchemaType.DOUBLE: _Fixed(
        pa.float64(), np.dtype(">f8"), np.float64, partial(floats, kind=np.float64, path="")
    ),
    SchemaType.DATE: _MILLIS,
    SchemaType.TIME: _MILLIS,
    SchemaType.TIMESTAMP: _MILLIS,
    # As in Java, nanoseconds of an INSTANT outside of 0 to 999,999,999 are accepted.
    SchemaType.INSTANT: _Fixed(
        *(_UTC, _INSTANT, np.int64, partial(_write_moments, _INSTANT, 1_000_000)),
        partial(_read_moments, 1_000_000),
        _TIME_LIMITS,
    ),
    SchemaType.LOCAL_DATE: _Fixed(pa.date32(), np.dtype(">i8"), np.int32, integers, _read_days, _DATE_LIMITS),
    SchemaType.LOCAL_TIME: _Fixed(
        pa.int64(), np.dtype(">i8"), np.int64, _write_nanos_of_day, _read_nanos_of_day, _DAY_LIMITS
    ),
    SchemaType.LOCAL_DATE_TIME: _Fixed(
        *(_LOCAL, _DATE_TIME, np.int64, partial(_write_moments, _DATE_TIME, MICROS_OF_DAY)),
        _read_date_time,
        f"{_TIME_LIMITS}, or {_DAY_LIMITS}",
    ),
}
KINDS = (*_BYTES, *_FIXED)
