"""The user's schema, from ``valueSchema`` or ``keySchema``, which the driver reads and checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pulsar_spark.client import ReaderSchema, Schema, SchemaType, protobuf_schema
from pulsar_spark.errors import OptionError, SchemaError

_MAX_FILE = 4 << 20  # maximum bytes of a file with a schema; schemas of topics have the same limit
_DEFINED = {
    *(SchemaType.AVRO, SchemaType.JSON, SchemaType.KEY_VALUE, SchemaType.PROTOBUF),
    *(SchemaType.PROTOBUF_NATIVE, SchemaType.AUTO_CONSUME, SchemaType.EXTERNAL),
}
_OWN = 'Write Avro\'s JSON: {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}'
_PRIMITIVES = {
    **{name: kind for name, kind in SchemaType.__members__.items() if kind not in _DEFINED},
    "BOOLEAN": SchemaType.BOOL,
    "BYTES": SchemaType.NONE,
}


def given_schema(
    option: str, definition: str | Path, kind: SchemaType | None, message: str | None = None
) -> Schema:
    """Returns the schema of the given type in an option.

    Args:
        definition: Avro's JSON, the name of a primitive, or the path of a file.
        kind: type of the schema; None: the type that ``definition`` names.
        message: full name of the values' message, for Protobuf.

    Raises:
        OptionError: the option has no schema of that type.
        UnsupportedError: values of the schema cannot be columns.
    """
    data = _contents(option, definition) if isinstance(definition, Path) else definition.encode()
    if kind is SchemaType.PROTOBUF_NATIVE:
        if message is None:
            raise OptionError(
                f"a Protobuf schema in {option} requires messageName, the message that payloads are",
                advice="Set it to the full name, such as shop.Order",
            )
        if not isinstance(definition, Path):
            raise OptionError(
                f"{option} of a Protobuf schema must be the path of a file",
                advice="Name a file that protoc --include_imports --descriptor_set_out=FILE has written",
            )
    elif message is not None:
        raise OptionError("option messageName is for Protobuf, but the values are not", advice="Leave it out")
    try:
        if kind is SchemaType.PROTOBUF_NATIVE and message is not None:
            return protobuf_schema(data, message)
        schema = (
            Schema(kind, data)
            if kind in (SchemaType.AVRO, SchemaType.JSON)
            else _primitive(definition, data, kind)
        )
        _ = ReaderSchema(schema).type
    except SchemaError as error:
        what = error.what.replace("the topic's schema", "it")
        raise OptionError(f"option {option} is no schema: {what}", advice=_advice(data, kind)) from None
    return schema


def _primitive(definition: str | Path, data: bytes, kind: SchemaType | None) -> Schema:
    """Returns the schema of a named primitive; raises SchemaError if its type is not ``kind``."""
    named = _PRIMITIVES.get(data.decode(errors="replace"))
    if named is None or kind not in (None, named):
        # The contents of a file may be a secret.
        shown = str(definition) if isinstance(definition, Path) else definition[:40]
        raise SchemaError(f"{shown!r} is not {'a primitive' if kind is None else kind.name}")
    return Schema(named)


def _advice(data: bytes, kind: SchemaType | None) -> str:
    """Returns the accepted forms of a schema, and the form that was found."""
    if kind not in (SchemaType.AVRO, SchemaType.JSON):
        return "Write the name of a primitive, such as INT64 or STRING, or the file that protoc writes"
    if data.decode(errors="replace") in _PRIMITIVES:
        return f"The name of a primitive requires schemaType=primitive. {_OWN}"
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return _OWN
    if isinstance(tree, dict) and tree.get("type") == "struct":
        return f"This is Spark's own JSON of a schema. {_OWN}"
    if isinstance(tree, dict) and ("properties" in tree or "$schema" in tree):
        return f"This is JSON Schema. {_OWN}"
    return _OWN


def _contents(option: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        is_ddl = re.match("[^/.]*[ <(]", str(path)) is not None
        raise OptionError(
            f"{option} cannot be read: {error}",
            advice=f"This looks like Spark's DDL. {_OWN}"
            if is_ddl
            else "Write Avro's JSON, or a file that the driver can read",
        ) from error
    if len(data) > _MAX_FILE:
        raise OptionError(
            f"{option} names a file of more than {_MAX_FILE >> 20} MiB: {path}",
            advice="Name a file with the schema of this topic's values alone",
        )
    return data
