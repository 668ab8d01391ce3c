"""Converts message ids, counts, schemas, schema versions and varints to and from their wire form.

Ids are unsigned on the wire: negative ones such as -1 (earliest) are written as their two's complement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pulsar_spark.ids import MessageId
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb

_VERSION_SIZE = 8
_U64 = (1 << 64) - 1


def to_wire_schema(schema: Schema) -> pb.Schema:
    """Converts a Schema to protobuf."""
    wire = pb.Schema(name=schema.name, schema_data=schema.data, type=pb.Schema.Type.Name(schema.type))
    for key, value in schema.properties.items():
        wire.properties.add(key=key.encode(), value=value.encode())
    return wire


def from_wire_schema(schema: pb.Schema) -> Schema:
    """Converts a schema from protobuf. A repeated property gets its last value; non-UTF-8 is replaced."""
    pairs: Iterable[Any] = schema.properties  # the generated stub has another type
    properties = {_text(pair.key): _text(pair.value) for pair in pairs}
    return Schema(SchemaType(schema.type), schema.schema_data, properties, schema.name)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def to_wire_version(version: int) -> bytes:
    """Encodes a version number, from 0 to 2**63 - 1."""
    return version.to_bytes(_VERSION_SIZE, "big")


def from_wire_version(data: bytes) -> int | None:
    """Decodes a version number; None unless ``data`` is one, because producers may write any bytes."""
    version = int.from_bytes(data, "big")
    return version if len(data) == _VERSION_SIZE and version < 1 << 63 else None


def to_wire_id(message_id: MessageId) -> pb.MessageIdData:
    """Converts an id to protobuf; negative parts become their two's complement."""
    data = pb.MessageIdData(ledgerId=message_id.ledger & _U64, entryId=message_id.entry & _U64)
    if message_id.batch_index >= 0:
        data.batch_index = message_id.batch_index
    return data


def from_wire_id(data: pb.MessageIdData) -> MessageId:
    """Converts an id from protobuf; numbers of 2**63 or more become negative, such as 2**64 - 1 to -1."""
    return MessageId(_signed(data.ledgerId), _signed(data.entryId), data.batch_index)


def from_wire_count(value: int) -> int:
    """Reads a count; 0 for a negative number, which a broker may send as its two's complement."""
    return max(0, _signed(value))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def varint(value: int) -> bytes:
    """Encodes an unsigned integer as protobuf does: base 128, least significant group first."""
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    low = bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80))
    return low + varint(value >> 21)
