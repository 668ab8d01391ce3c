"""Checks the defaults of fields in a schema's JSON, and converts them to columns.

Avro requires that the default of a union is a value of its first branch, but clients also write values of
other branches, so these are accepted. Readers read a missing field as null if it has no default, or a null
default, whatever its type. Such a null cannot be written if the type does not allow null.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from json import dumps
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import MAX_BYTES
from pulsar_spark.values.avro.avro_types import (
    FLOAT_OVERFLOW,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroRecursive,
    AvroType,
    AvroUnion,
    arrow_type,
    field_path,
    is_member_struct,
    is_null,
    shown_name,
)
from pulsar_spark.values.encode import pieces
from pulsar_spark.values.encode.column_values import Misfit
from pulsar_spark.values.encode.field_fit import ColumnFit, fit
from pulsar_spark.values.encode.pieces import Write
from pulsar_spark.values.time_units import NANOS_OF_DAY, unit_of

MAX_VALUES: Final = 100_000  # maximum values in a schema's defaults, because each takes time
_MAX_TEXT: Final = MAX_BYTES  # maximum characters of text in defaults; a nested default counts each time
_MAX_NUMBER: Final = 1_000  # maximum bytes of a decimal
_FLOAT: Final = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)")

_T = TypeVar("_T")
_Text = TypeVar("_Text", str, bytes)


@dataclass(frozen=True, slots=True)
class Constant:
    """A default as a column. Constants are compared by their text, because -0.0 equals 0.0 for Arrow."""

    column: pa.Array = field(compare=False)
    text: str

    def repeated(self, count: int) -> pa.Array:
        """Returns a column of ``count`` rows with this default."""
        return self.column.take(pa.array(np.zeros(count, np.int32)))


class Defaults:
    """Reads the defaults of one schema."""

    def __init__(self, advice: str) -> None:
        self._advice = advice
        self._is_exact = False
        self._left = MAX_VALUES
        self._text_left = _MAX_TEXT
        self._symbols: dict[str, frozenset[str]] = {}  # name of an enum -> its symbols

    def constant(self, field: AvroField, target: pa.DataType, path: str) -> Constant:
        """Returns a field's default as a column of one row, of type ``target``; null: no default, or null.

        Raises:
            SchemaError: the default is not a value of the field's type.
            UnsupportedError: the defaults so far have more than ``MAX_VALUES`` values, or 4 MiB of text.
        """
        try:
            column = pa.array([self._of_field(field, field.default, target)], target)
        except (pa.ArrowInvalid, _NoValueError):  # ArrowInvalid: bytes that are not UTF-8
            raise self._wrong(path) from None
        except _TooManyError:
            raise UnsupportedError(
                f"the defaults up to field {shown_name(path)} in the topic's schema are too large",
                advice=self._advice,
            ) from None
        return Constant(column, repr(column[0]))

    def _wrong(self, path: str) -> SchemaError:
        return SchemaError(
            f"the default of field {shown_name(path)} in the topic's schema is not a value of its type",
            advice=self._advice,
        )

    def written(
        self, field: AvroField, path: str, writer: Callable[[ColumnFit], Write], *, is_exact: bool
    ) -> bytes:
        """Returns a field's default, encoded by ``writer``; raises as :meth:`constant`.

        ``is_exact``: nanoseconds in a default are an error, because columns have only microseconds.
        """
        below = field_path(path, field.name)
        self._is_exact = is_exact
        column = self.constant(field, arrow_type(field.type), below).column
        self._is_exact = False
        try:
            return bytes(pieces.joined(writer(fit(field.type, column.type)), column).buffer)
        except Misfit:
            raise self._wrong(below) from None

    def _of_field(self, field: AvroField, json: object, target: pa.DataType | None) -> object:
        if json is None and not has_null(field.type):
            self._count()
            return None
        if isinstance(json, str) and getattr(field.type, "kind", "") in ("float", "double"):
            # Avro's parser accepts numbers as text, but not within a union.
            json = float(_checked(json, _FLOAT.fullmatch(json) is not None))
        return self._value(field.type, json, target)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooManyError

    def _counted(self, text: _Text) -> _Text:
        self._text_left -= len(text)
        if self._text_left < 0:
            raise _TooManyError
        return text

    def _value(self, avro: AvroType, json: object, target: pa.DataType | None) -> object:
        """Checks a value, and returns an object that pyarrow can convert to ``target``.

        ``target``: None for a field that the column lacks; pyarrow ignores the returned object.
        """
        self._count()
        if isinstance(avro, AvroUnion):
            return self._member(avro, json, target)
        if isinstance(avro, AvroRecursive):
            raise _NoValueError
        if isinstance(avro, AvroRecord):
            values = _of(dict, json)
            given = ((each, values.get(each.name, each.default)) for each in avro.fields)
            return {each.name: self._of_field(each, value, _part(target, each.name)) for each, value in given}
        if isinstance(avro, AvroArray):
            kind = None if target is None else target.value_type
            return [self._value(avro.items, each, kind) for each in _of(list, json)]
        if isinstance(avro, AvroMap):
            kind = None if target is None else target.item_type
            items = _of(dict, json).items()
            return [(self._counted(_text(key)), self._value(avro.values, each, kind)) for key, each in items]
        if isinstance(avro, AvroEnum):
            return self._symbol(avro, _of(str, json))
        form = _FORMS.get(avro.logical)
        if form is not None:
            assert isinstance(avro, AvroPrimitive)
            return self._counted(_text(form(avro, json)))
        if isinstance(avro, AvroFixed) or avro.kind == "bytes":
            data = self._counted(_bytes(avro, json))
            return _decimal_of(avro, data) if target is not None and pa.types.is_decimal(target) else data
        value = _primitive(avro, json)
        if isinstance(value, str):
            return self._counted(value)
        if not isinstance(value, int):
            return value
        if self._is_exact:
            _checked(value, value % unit_of(avro).divisor == 0)
        return value if target is None else _number_of(avro, value, target)

    def _member(self, avro: AvroUnion, json: object, target: pa.DataType | None) -> object:
        """Converts a default to a value of the first branch that accepts it."""
        members = 0
        for branch in avro.branches:
            name = ""
            if is_member_struct(avro) and not is_null(branch):
                name = f"member{members}"
                members += 1
            try:
                value = self._value(branch, json, _part(target, name) if name else target)
            except _NoValueError:
                continue
            return {name: value} if name else value
        raise _NoValueError

    def _symbol(self, avro: AvroEnum, name: str) -> str:
        symbols = self._symbols.get(avro.name)
        if symbols is None:
            symbols = self._symbols[avro.name] = frozenset(avro.symbols)
        return self._counted(_checked(name, name in symbols))


class _NoValueError(Exception):
    pass


class _TooManyError(Exception):
    pass


def _checked(value: _T, is_good: bool) -> _T:
    if not is_good:
        raise _NoValueError
    return value


def _of(kind: type[_T], json: object) -> _T:
    if not isinstance(json, kind):
        raise _NoValueError
    return json


def _text(json: object) -> str:
    text = _of(str, json)
    return _checked(text, text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text))


def _bytes(avro: AvroPrimitive | AvroFixed, json: object) -> bytes:
    """Decodes bytes in Avro's JSON: a text in which each character, U+0000 to U+00FF, is a byte."""
    try:
        value = _of(str, json).encode("latin-1")
    except UnicodeEncodeError:
        raise _NoValueError from None
    if isinstance(avro, AvroFixed):
        _checked(value, len(value) == avro.size)
    if avro.logical == "decimal":
        _checked(value, bool(value) and abs(_unscaled(value)) < 10**avro.precision)
    return value


def _char(_avro: AvroPrimitive, json: object) -> str:
    code = _of(int, json)
    return chr(_checked(code, 0 <= code < 1 << 16))


def _number(avro: AvroPrimitive, json: object) -> str:
    value = _bytes(replace(avro, logical=""), json)
    return str(_decimal_of(avro, _checked(value, 0 < len(value) <= _MAX_NUMBER)))


# For logical types of schemas of type JSON: converts a schema's default to the column's text.
_FORMS: Final[dict[str, Callable[[AvroPrimitive, object], str]]] = {
    "json": lambda _avro, json: dumps(json, separators=(",", ":")),
    "char": _char,
    "chars": lambda avro, json: "".join(_char(avro, each) for each in _of(list, json)),
    "number": _number,
}


def _unscaled(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _primitive(avro: AvroPrimitive, json: object) -> bool | float | str | None:
    if avro.kind == "null":
        return _checked(None, json is None)
    if avro.kind == "boolean":
        return _of(bool, json)
    if avro.kind == "string":
        return _text(json)
    if isinstance(json, bool):
        raise _NoValueError
    if avro.kind in ("int", "long"):
        limit = 1 << (31 if avro.kind == "int" else 63)
        number = _of(int, json)
        return _checked(
            number, all(-limit <= each < limit for each in (number, unit_of(avro).to_column(number)))
        )
    try:
        floating = float(_checked(json, isinstance(json, int | float)))  # type: ignore[arg-type]
    except OverflowError:
        raise _NoValueError from None
    return _checked(floating, avro.kind == "double" or not FLOAT_OVERFLOW <= abs(floating) < math.inf)


def _number_of(avro: AvroType, value: int, target: pa.DataType) -> float:
    if pa.types.is_floating(target):
        return float(value)
    if not pa.types.is_temporal(target):
        return value
    number = unit_of(avro, target).to_column(value)
    return _checked(number, not pa.types.is_time(target) or 0 <= number < NANOS_OF_DAY)


def _part(target: pa.DataType | None, name: str) -> pa.DataType | None:
    if target is None or target.get_field_index(name) < 0:
        return None
    return target.field(name).type


def has_null(avro: AvroType) -> bool:
    """Whether null is a value of the type."""
    return any(map(is_null, avro.branches)) if isinstance(avro, AvroUnion) else is_null(avro)


def _decimal_of(avro: AvroType, value: bytes) -> Decimal:
    assert isinstance(avro, AvroPrimitive | AvroFixed)
    number = _unscaled(value)
    digits = tuple(int(digit) for digit in str(abs(number)))
    return Decimal((int(number < 0), digits, -avro.scale))


WAY_OUT: Final = "Add the column to the rows"
