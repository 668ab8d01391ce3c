"""Schemas and their versions as commands and entries carry them <-> Schema, and a number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb

_VERSION_SIZE = 8


def to_wire_schema(schema: Schema) -> pb.Schema:
    """Make a pb.Schema."""
    wire = pb.Schema(name=schema.name, schema_data=schema.data, type=pb.Schema.Type.Name(schema.type))
    for key, value in schema.properties.items():
        wire.properties.add(key=key.encode(), value=value.encode())
    return wire


def from_wire_schema(schema: pb.Schema) -> Schema:
    """Read a pb.Schema; of properties with one name the last counts, and what is no UTF-8 is replaced."""
    pairs: Iterable[Any] = schema.properties  # the generated stub takes them for the type of that name
    properties = {_text(pair.key): _text(pair.value) for pair in pairs}
    return Schema(SchemaType(schema.type), schema.schema_data, properties, schema.name)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def to_wire_version(version: int) -> bytes:
    """Write the number of a version, from 0 to 2**63 - 1."""
    return version.to_bytes(_VERSION_SIZE, "big")


def from_wire_version(data: bytes) -> int | None:
    """Read the number of a version; None where the bytes are no version: producers may write any."""
    version = int.from_bytes(data, "big")
    return version if len(data) == _VERSION_SIZE and version < 1 << 63 else None
