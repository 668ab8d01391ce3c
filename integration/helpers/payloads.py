"""Payloads as a test wants them, in topics whose schemas are registered through the admin service."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro

from integration.broker import Admin
from integration.helpers.raw import RawConnection, RawProducer


def register(
    admin: Admin, topic: str, kind: str, definition: object, properties: Mapping[str, str] | None = None
) -> int:
    """Make a topic and register a schema; returns its version.

    Args:
        definition: what its JSON says; of primitives an empty text.
    """
    path = topic.removeprefix("persistent://")
    text = definition if isinstance(definition, str) and not definition else json.dumps(definition)
    body = {"type": kind, "schema": text, "properties": dict(properties or {})}
    return int(admin.request("POST", f"schemas/{path}/schema", body)["version"]["version"])


def register_pair(
    admin: Admin,
    topic: str,
    kind: str,
    key: object,
    value: object,
    properties: Mapping[str, str],
    encoding: str,
) -> int:
    """The same for KEY_VALUE; both parts are of one kind and have the same properties."""
    parts = {
        f"{part}.schema.{name}": text
        for part in ("key", "value")
        for name, text in (("name", part), ("type", kind), ("properties", json.dumps(dict(properties))))
    }
    return register(
        admin, topic, "KEY_VALUE", {"key": key, "value": value}, parts | {"kv.encoding.type": encoding}
    )


def definition_of(admin: Admin, topic: str) -> Any:
    """The latest schema's definition, as JSON."""
    path = topic.removeprefix("persistent://")
    return json.loads(admin.request("GET", f"schemas/{path}/schema")["data"])


def write_payloads(
    service_url: str, topic: str, version: int | None, messages: Iterable[tuple[bytes | None, bytes | None]]
) -> None:
    """Write payloads and keys, each as an entry of its own that names a version; None: no value, no key."""
    fields: dict[str, Any] = {} if version is None else {"schema_version": struct.pack(">q", version)}
    with RawConnection(service_url) as connection:
        producer = RawProducer(connection, topic)
        for payload, key in messages:
            more: dict[str, Any] = {} if payload is not None else {"null_value": True}
            if key is not None:
                more |= {"partition_key": base64.b64encode(key), "partition_key_b64_encoded": True}
            producer.send(payload or b"", **fields, **more)


def avro(definition: Any, value: object) -> bytes:
    """A value as fastavro writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _parsed(definition), value)
    return stream.getvalue()


def avro_value(definition: Any, payload: bytes) -> Any:
    """A value as fastavro reads it; nothing may be left of the payload."""
    stream = io.BytesIO(payload)
    value = fastavro.schemaless_reader(stream, _parsed(definition), None)
    assert stream.read() == b""
    return value


def _parsed(definition: Any) -> Any:
    return fastavro.parse_schema(json.loads(json.dumps(definition)))  # It writes into what it parses.
