"""Defaults of fields -> the bytes of a value of AVRO, for fields that rows have no column for."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from pulsar_spark.values.avro.avro_types import (
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
from pulsar_spark.values.avro.defaults import Branch, Default, Defaults

WAY_OUT: Final = "Add the column to the rows"


def default_bytes(fields: Iterable[AvroField], path: str) -> bytes:
    """The values that a row has of fields without a column, side by side.

    Args:
        fields: they have defaults.
        path: of the record, for errors.

    Raises:
        SchemaError: a default is no value of its field's type.
        UnsupportedError: they have more than 4 MiB of text or 100,000 values.
    """
    defaults = Defaults(WAY_OUT)
    made = _Maker()
    for field in fields:
        below = f"{path}.{field.name}" if path else field.name
        value = defaults.of(field, below)
        try:
            made.add(field.type, value)
        except _NullError:
            raise defaults.wrong(below) from None
    return bytes(made.data)


def varint(number: int) -> bytes:
    """Avro's int or long: its zigzag number by 7 bits, the lowest first."""
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


class _NullError(Exception):
    """A null of a type that has none."""


class _Maker:
    """Puts checked values side by side."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._symbols: dict[str, dict[str, int]] = {}  # numbers of symbols, by enum

    def add(self, avro: AvroType, value: Default) -> None:
        """Add one value.

        Raises:
            _NullError: it is null, or has a null in it, where the type has none.
        """
        if isinstance(value, Branch):
            assert isinstance(avro, AvroUnion)
            self.data += varint(value.number)
            self.add(avro.branches[value.number], value.value)
        elif isinstance(avro, AvroPrimitive | AvroFixed):
            self.data += _leaf(avro, value)
        elif value is None:
            raise _NullError
        elif isinstance(avro, AvroEnum):
            assert isinstance(value, str)
            self.data += varint(self._symbol(avro, value))
        elif isinstance(avro, AvroArray):
            assert isinstance(value, list)
            self._count(len(value))
            for item in value:
                self.add(avro.items, item)
            self.data += b"\x00"
        else:
            assert isinstance(value, dict)
            self._named(avro, value)

    def _symbol(self, avro: AvroEnum, value: str) -> int:
        numbers = self._symbols.get(avro.name)
        if numbers is None:
            numbers = self._symbols[avro.name] = {symbol: place for place, symbol in enumerate(avro.symbols)}
        return numbers[value]

    def _count(self, items: int) -> None:
        if items:
            self.data += varint(items)

    def _named(self, avro: AvroType, value: dict[str, Default]) -> None:
        if isinstance(avro, AvroRecord):
            for field in avro.fields:
                self.add(field.type, value[field.name])
            return
        assert isinstance(avro, AvroMap)
        self._count(len(value))
        for key, item in value.items():
            self.data += _sized(key.encode())
            self.add(avro.values, item)
        self.data += b"\x00"


def _leaf(avro: AvroPrimitive | AvroFixed, value: Default) -> bytes:
    if value is None:
        if isinstance(avro, AvroPrimitive) and avro.kind == "null":
            return b""
        raise _NullError
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    if isinstance(value, int):
        return varint(value)
    if isinstance(value, float):
        assert isinstance(avro, AvroPrimitive)
        return struct.pack("<f" if avro.kind == "float" else "<d", value)
    if isinstance(value, str):
        return _sized(value.encode())
    assert isinstance(value, bytes)
    return value if isinstance(avro, AvroFixed) else _sized(value)


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data
