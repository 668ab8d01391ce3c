"""Defaults of fields -> the bytes of a value of AVRO, for fields that rows have no column for."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Final

import numpy as np

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.values.avro.avro_types import (
    MAX_BYTES,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
)
from pulsar_spark.values.encode.cells import varints

_BITS: Final = {"int": 32, "long": 64}
_WAY_OUT: Final = "Add the column to the rows"
_MAX_VALUES = 100_000  # in one default, for values without bytes take time, too
_MAX_FLOAT = float(np.finfo(np.float32).max)


def default_bytes(fields: Iterable[AvroField], path: str) -> bytes:
    """The values that a row has of fields without a column, side by side.

    Args:
        fields: they have defaults.
        path: of the record, for errors.

    Raises:
        SchemaError: a default is no value of its field's type.
        UnsupportedError: they have more than 4 MiB or 100,000 values; a short text may say that, by records
            in records.
    """
    maker = _Maker()
    for field in fields:
        below = f"{path}.{field.name}" if path else field.name
        shown = ascii(below if len(below) <= 100 else f"{below[:100]}...")
        try:
            maker.add(field.type, field.default)
        except _NoValueError:
            raise SchemaError(
                f"the default of field {shown} in the topic's schema is not a value of its type",
                advice=_WAY_OUT,
            ) from None
        except _TooLargeError:
            raise UnsupportedError(
                f"the defaults up to field {shown} in the topic's schema are too large", advice=_WAY_OUT
            ) from None
    return bytes(maker.data)


def varint(number: int) -> bytes:
    """Avro's int or long."""
    found = varints(np.array([number], np.int64))
    return found.data.tobytes()[: int(np.sum(found.sizes))]


class _NoValueError(Exception):
    pass


class _TooLargeError(Exception):
    pass


class _Maker:
    """Puts values side by side, within bounds of size and time."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._values = 0
        self._symbols: dict[str, dict[str, int]] = {}  # numbers of symbols, by enum

    def add(self, avro: AvroType, value: object) -> None:
        """Add one value.

        Raises:
            _NoValueError: it is not of that type; what was added of it stays.
            _TooLargeError: it is too much.
        """
        self._values += 1
        if self._values > _MAX_VALUES:
            raise _TooLargeError
        if isinstance(avro, AvroUnion):
            self._union(avro, value)
        elif isinstance(avro, AvroPrimitive):
            self._put(_primitive(avro.kind, value))
        elif isinstance(avro, AvroFixed):
            data = _latin(value)
            if len(data) != avro.size:
                raise _NoValueError
            self._put(data)
        elif isinstance(avro, AvroEnum):
            self._put(varint(self._symbol(avro, value)))
        elif isinstance(avro, AvroArray):
            self._array(avro, value)
        elif isinstance(value, dict):
            self._named(avro, value)
        else:
            raise _NoValueError

    def _symbol(self, avro: AvroEnum, value: object) -> int:
        numbers = self._symbols.get(avro.name)
        if numbers is None:
            numbers = self._symbols[avro.name] = {symbol: place for place, symbol in enumerate(avro.symbols)}
        if not isinstance(value, str) or value not in numbers:
            raise _NoValueError
        return numbers[value]

    def _put(self, data: bytes) -> None:
        if len(self.data) + len(data) > MAX_BYTES:
            raise _TooLargeError
        self.data += data

    def _union(self, avro: AvroUnion, value: object) -> None:
        """Avro's default is of the first branch; clients write those of others, too."""
        before = len(self.data)
        for number, branch in enumerate(avro.branches):
            self._put(varint(number))
            try:
                return self.add(branch, value)
            except _NoValueError:
                del self.data[before:]
        raise _NoValueError

    def _array(self, avro: AvroArray, value: object) -> None:
        if not isinstance(value, list):
            raise _NoValueError
        if value:
            self._put(varint(len(value)))
        for item in value:
            self.add(avro.items, item)
        self._put(b"\x00")

    def _named(self, avro: AvroMap | AvroRecord, value: dict[str, object]) -> None:
        if isinstance(avro, AvroRecord):
            for field in avro.fields:
                if field.name not in value and not field.has_default:
                    raise _NoValueError
                self.add(field.type, value.get(field.name, field.default))
            return
        if value:
            self._put(varint(len(value)))
        for key, item in value.items():
            self._put(_sized(_utf8(key)))
            self.add(avro.values, item)
        self._put(b"\x00")


def _primitive(kind: str, value: object) -> bytes:
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    if kind in _BITS and type(value) is int and -(1 << _BITS[kind] - 1) <= value < 1 << _BITS[kind] - 1:
        return varint(value)
    if kind in ("float", "double") and type(value) in (int, float):
        return _floating(kind, value)
    if kind == "string":
        return _sized(_utf8(value))
    if kind == "bytes":
        return _sized(_latin(value))
    raise _NoValueError


def _floating(kind: str, value: object) -> bytes:
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise _NoValueError from None
    if kind == "double":
        return struct.pack("<d", number)
    if math.isfinite(number) and abs(number) > _MAX_FLOAT:
        raise _NoValueError
    return struct.pack("<f", number)


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def _utf8(value: object) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode("utf-8")
    except UnicodeEncodeError:
        pass
    raise _NoValueError


def _latin(value: object) -> bytes:
    """Bytes as Avro's JSON has them: a character each."""
    try:
        if isinstance(value, str):
            return value.encode("latin-1")
    except UnicodeEncodeError:
        pass
    raise _NoValueError
