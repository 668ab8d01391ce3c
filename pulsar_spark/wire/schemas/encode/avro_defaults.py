"""Defaults of fields -> the bytes of a value of AVRO, for fields that rows have no column for."""

from __future__ import annotations

import math
import struct
from typing import Final

import numpy as np

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.wire.schemas.avro_types import (
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
from pulsar_spark.wire.schemas.encode.cells import varints

_BITS: Final = {"int": 32, "long": 64}
_MAX_FLOAT = float(np.finfo(np.float32).max)


def default_bytes(field: AvroField, path: str) -> bytes:
    """The value that a row has of a field without a column.

    Args:
        field: it has a default.
        path: of the record, for errors.

    Raises:
        SchemaError: the default is no value of the field's type.
        UnsupportedError: it has more than 4 MiB; a short text may say that, by records in records.
    """
    below = f"{path}.{field.name}" if path else field.name
    shown = ascii(below if len(below) <= 100 else f"{below[:100]}...")
    try:
        return _value(field.type, field.default)
    except _NoValueError:
        raise SchemaError(
            f"the default of field {shown} in the topic's schema is no value of its type",
            advice="Add the column to the rows",
        ) from None
    except _TooLargeError:
        raise UnsupportedError(
            f"the default of field {shown} in the topic's schema has more than {MAX_BYTES} bytes",
            advice="Add the column to the rows",
        ) from None


def varint(number: int) -> bytes:
    """Avro's int or long."""
    found = varints(np.array([number], np.int64))
    return found.data.tobytes()[: int(np.sum(found.sizes))]


class _NoValueError(Exception):
    pass


class _TooLargeError(Exception):
    pass


def _value(avro: AvroType, value: object) -> bytes:
    if isinstance(avro, AvroUnion):
        return _union(avro, value)
    if isinstance(avro, AvroPrimitive):
        return _primitive(avro.kind, value)
    if isinstance(avro, AvroFixed):
        data = _latin(value)
        if len(data) != avro.size:
            raise _NoValueError
        return data
    if isinstance(avro, AvroEnum):
        if not isinstance(value, str) or value not in avro.symbols:
            raise _NoValueError
        return varint(avro.symbols.index(value))
    if isinstance(avro, AvroArray):
        if not isinstance(value, list):
            raise _NoValueError
        return _block([_value(avro.items, item) for item in value])
    if not isinstance(value, dict):
        raise _NoValueError
    if isinstance(avro, AvroMap):
        return _block([_sized(_utf8(key)) + _value(avro.values, item) for key, item in value.items()])
    return _record(avro, value)


def _record(avro: AvroRecord, value: dict[str, object]) -> bytes:
    size, parts = 0, []
    for field in avro.fields:
        if field.name not in value and not field.has_default:
            raise _NoValueError
        parts.append(_value(field.type, value.get(field.name, field.default)))
        size += len(parts[-1])
        if size > MAX_BYTES:
            raise _TooLargeError
    return b"".join(parts)


def _union(avro: AvroUnion, value: object) -> bytes:
    """Avro's default is of the first branch; clients write those of others, too."""
    for number, branch in enumerate(avro.branches):
        try:
            return varint(number) + _value(branch, value)
        except _NoValueError:
            continue
    raise _NoValueError


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


def _block(items: list[bytes]) -> bytes:
    if sum(map(len, items)) > MAX_BYTES:
        raise _TooLargeError
    return varint(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


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
