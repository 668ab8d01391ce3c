"""The options for schemas and payloads: SCHEMAS, which source and sink share, and VALUES, the source's own.

The driver reads and checks the user's schemas, from ``valueSchema`` and ``keySchema``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pulsar_spark.client import ReaderSchema, Schema, SchemaType, path_of, protobuf_schema
from pulsar_spark.errors import OptionError, SchemaError
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Mode, Option, Parser, Table, Values
from pulsar_spark.spark.rows.read import BadRows
from pulsar_spark.spark.rows.schema import ValueFormat


class EvolutionMode(Enum):
    """Treatment of messages of a newer schema version while a query runs."""

    NONE = "none"
    RESTART = "restart"


class GivenType(Enum):
    """The type of values that have no schema at the broker."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"
    PRIMITIVE = "primitive"

    @property
    def type(self) -> SchemaType | None:
        """Returns the SchemaType; None for PRIMITIVE, because the schema option names the primitive type."""
        if self is GivenType.PRIMITIVE:
            return None
        return SchemaType.PROTOBUF_NATIVE if self is GivenType.PROTOBUF else SchemaType[self.name]


def _definition(text: str) -> str | Path:
    """Parses a schema option: Avro's JSON or a primitive's name as text, anything else as a file's path."""
    if re.fullmatch("[A-Z][A-Z0-9_]+", text):
        return text
    if text[:1] not in '{["' and not text.isalnum():
        return path_of(text)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            "an Avro schema in JSON, the path of a file with a schema, or a primitive such as INT64, in "
            f"capitals: {error}"
        ) from None
    return text


def refuse_with_raw(values: Values, options: Iterable[Option[Any]]) -> None:
    """Raises OptionError if one of ``options`` is set with ``valueFormat=raw``, which has no schema."""
    if values[VALUE_FORMAT] is ValueFormat.RAW:
        advice = "Set valueFormat to columns, or leave it out"
        values.refuse(options, "with valueFormat=raw, which has no schema", advice)


SCHEMAS = Table()
_OLD = {
    kind.value: f"columns, and schemaType={kind.value} for a topic without a schema" for kind in GivenType
}
_NUMBERS = ("INT32", "INT64", "FLOAT", "DOUBLE")

VALUE_FORMAT = SCHEMAS.add(
    "valueFormat",
    parsers.member_of(
        ValueFormat,
        {**_OLD, **dict.fromkeys(("string", "text"), "raw, and a cast of value to or from string")},
    ),
    "raw",
    "How values and columns belong together. `raw`: the column `value` has the bytes. `columns`: by the "
    "topic's schema, the fields of a record, `key` and `value` of KEY_VALUE, or one typed column. `struct`: "
    "the same in one column `value`. See docs/schemas.md.",
)
VALUE_SCHEMA = SCHEMAS.add_optional(
    "valueSchema",
    Parser("Avro schema, file, primitive", _definition),
    "A schema of your own: Avro's JSON, a file on the driver, or a primitive's name, such as `INT64`. "
    "Source: it gives the columns, and values of the topic's versions are converted to it. Sink: it is "
    "registered if the topic has none; otherwise both must fit.",
)
KEY_SCHEMA = SCHEMAS.add_optional(
    "keySchema",
    Parser("Avro schema, file, primitive", _definition),
    "The same for the keys of KEY_VALUE.",
)
SCHEMA_TYPE = SCHEMAS.add_optional(
    "schemaType",
    parsers.member_of(
        GivenType,
        {name.lower(): f"primitive, and valueSchema={name}" for name in ("STRING", "BOOLEAN", *_NUMBERS)},
    ),
    "The type of values that have no schema at the broker. Source: together with `valueSchema`. Sink: the "
    "type of the schema that is registered, default `avro`; `protobuf` is not written.",
)

VALUES = Table(SCHEMAS)
_MESSAGE_NAME = VALUES.add_optional(
    "messageName",
    Parser("full name", parsers.non_empty),
    "With Protobuf: the message of `valueSchema` that payloads are, such as `shop.Order`.",
)
_SCHEMA_VERSION = VALUES.add_optional(
    "schemaVersion",
    parsers.count(0),
    "The version of the topic's schema that defines the columns. Messages of all other versions are "
    "converted to it. Default: the latest version at load().",
)
_SCHEMA_EVOLUTION_MODE = VALUES.add(
    "schemaEvolutionMode",
    parsers.member_of(EvolutionMode),
    "none",
    "What to do if a newer schema version does not fit the columns. `none`: leave new fields out until "
    "load() is called again; `mode` decides about other values that do not fit. `restart`: fail with "
    "`[PULSAR_SCHEMA_CHANGED]` before the micro-batch is finished. See docs/schemas.md.",
    only=Mode.STREAM,
)
_MODE = VALUES.add(
    "mode",
    parsers.member_of(BadRows),
    "FAILFAST",
    "What to do with messages that the schema cannot decode. `FAILFAST`: fail with `[PULSAR_SCHEMA]`. "
    "`PERMISSIVE`: the value's columns are null; the column `__corruptValue`, if chosen, has the bytes. "
    "`DROPMALFORMED`: leave the messages out. The last two log a warning.",
)
_GIVEN_ONLY: tuple[Option[Any], ...] = (SCHEMA_TYPE, _MESSAGE_NAME)  # options that require valueSchema
# Options that have no effect if payloads are not decoded.
_TYPED_ONLY = (VALUE_SCHEMA, KEY_SCHEMA, *_GIVEN_ONLY, _SCHEMA_VERSION, _SCHEMA_EVOLUTION_MODE, _MODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """Options of payloads.

    Attributes:
        schema: the user's schema: Avro's JSON, the name of a primitive, or the path of a file; or None.
        type: type of values that have no schema at the broker; None: such values cannot be read.
        version: version of the topic's schema; None: the latest.
    """

    format: ValueFormat
    schema: str | Path | None
    key_schema: str | Path | None
    type: GivenType | None
    message: str | None
    version: int | None
    evolution: EvolutionMode
    bad_rows: BadRows


def value_options(values: Values) -> ValueOptions:
    """Returns the options of payloads from parsed values, and checks their combinations."""
    refuse_with_raw(values, _TYPED_ONLY)
    if values[VALUE_SCHEMA] is None:
        advice = "Set valueSchema, or leave it out to read by the topic's schema"
        values.refuse(_GIVEN_ONLY, "without valueSchema, a schema of your own", advice)
    is_given = values[VALUE_SCHEMA] is not None or values[KEY_SCHEMA] is not None
    is_restarted = values[_SCHEMA_EVOLUTION_MODE] is EvolutionMode.RESTART
    if is_given and (values[_SCHEMA_VERSION] is not None or is_restarted):
        raise OptionError(
            "schemaVersion and schemaEvolutionMode take the columns from the topic's schema, and valueSchema "
            "and keySchema from yours",
            advice="Leave either of them out",
        )
    if is_restarted and values[_SCHEMA_VERSION] is not None:
        raise OptionError(
            "schemaVersion and schemaEvolutionMode=restart cannot be used together: one keeps the columns, "
            "the other renews them",
            advice="Leave one of them out",
        )
    return ValueOptions(
        format=values[VALUE_FORMAT],
        schema=values[VALUE_SCHEMA],
        key_schema=values[KEY_SCHEMA],
        type=values[SCHEMA_TYPE],
        message=values[_MESSAGE_NAME],
        version=values[_SCHEMA_VERSION],
        evolution=values[_SCHEMA_EVOLUTION_MODE],
        bad_rows=values[_MODE],
    )


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
    """Returns the schema that the user has set in an option.

    Args:
        kind: type that the schema must have; None: the primitive that ``definition`` names.

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
        # The error names only a file's path, because its contents may be a secret.
        shown = str(definition) if isinstance(definition, Path) else definition[:40]
        raise SchemaError(f"{shown!r} is not {'a primitive' if kind is None else kind.name}")
    return Schema(named)


def _advice(data: bytes, kind: SchemaType | None) -> str:
    """Returns advice for a bad schema option: the accepted forms, and the form of ``data`` if it is known."""
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
