"""The options of the source that say how payloads are read: their table, and the fields of ValueOptions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pulsar_spark.client import SchemaType, path_of
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Mode, Option, Table, Values
from pulsar_spark.spark.rows.read import BadRows

VALUES = Table()


class ValueFormat(Enum):
    """Formats by which payloads become columns."""

    RAW = "raw"
    COLUMNS = "columns"
    STRUCT = "struct"
    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"

    @property
    def is_raw(self) -> bool:
        """Whether payloads are not decoded."""
        return self is ValueFormat.RAW

    @property
    def is_flat(self) -> bool:
        """Whether the fields of a record are columns."""
        match self:
            case ValueFormat.STRUCT:
                return False
            case (
                ValueFormat.RAW
                | ValueFormat.COLUMNS
                | ValueFormat.AVRO
                | ValueFormat.JSON
                | ValueFormat.PROTOBUF
            ):
                return True

    @property
    def given_type(self) -> SchemaType | None:
        """The kind of the schema that the user gives; None: it is the topic's, or none."""
        match self:
            case ValueFormat.AVRO:
                return SchemaType.AVRO
            case ValueFormat.JSON:
                return SchemaType.JSON
            case ValueFormat.PROTOBUF:
                return SchemaType.PROTOBUF_NATIVE
            case ValueFormat.RAW | ValueFormat.COLUMNS | ValueFormat.STRUCT:
                return None


class EvolutionMode(Enum):
    """Treatment of messages of a newer schema version while a query runs."""

    NONE = "none"
    RESTART = "restart"


def _value_schema(text: str) -> str | Path:
    """Avro's JSON, as it is, or the path of a file."""
    if text[:1] not in '{["' and not text.isalnum():
        return path_of(text)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"an Avro schema in JSON, or the path of a file with a schema: {error}") from None
    return text


_VALUE_FORMAT = VALUES.add(
    "valueFormat",
    parsers.names_of(parsers.by_value(ValueFormat)),
    parsers.one_of(
        parsers.by_value(ValueFormat), dict.fromkeys(("string", "text"), "raw, and cast(value as string)")
    ),
    "raw",
    "How payloads are decoded. `raw`: the column `value` has the payload's bytes. `columns`: by the topic's "
    "schema, as the fields of a record, `key` and `value` of KEY_VALUE, or a typed `value`. `struct`: the "
    "same in one column `value`. "
    "`avro`, `json`, `protobuf`: like `columns`, but by `valueSchema`. See docs/schemas.md.",
)
_VALUE_SCHEMA = VALUES.add(
    "valueSchema",
    "Avro schema, file",
    _value_schema,
    None,
    "With `valueFormat=avro`, `json` or `protobuf`: the schema of all payloads, whatever the topic has. "
    "Avro's JSON, or a file on the driver; for `protobuf` the file that `protoc "
    "--descriptor_set_out` writes.",
)
_MESSAGE_NAME = VALUES.add(
    "messageName",
    "full name",
    parsers.non_empty,
    None,
    "With `valueFormat=protobuf`: the message of `valueSchema` that payloads are, such as `shop.Order`.",
)
_SCHEMA_VERSION = VALUES.add(
    "schemaVersion",
    "number",
    parsers.count(0),
    None,
    "The version of the topic's schema that defines the columns. Messages of all other versions are "
    "converted to it. Default: the latest version at load().",
)
_SCHEMA_EVOLUTION_MODE = VALUES.add(
    "schemaEvolutionMode",
    parsers.names_of(parsers.by_value(EvolutionMode)),
    parsers.one_of(parsers.by_value(EvolutionMode)),
    "none",
    "What to do if a newer schema version does not fit the columns. `none`: leave new fields out until "
    "load() is called again; `mode` decides about other values that do not fit. `restart`: fail with "
    "`[PULSAR_SCHEMA_CHANGED]` before the micro-batch is finished. See docs/schemas.md.",
    only=Mode.STREAM,
)
_MODE = VALUES.add(
    "mode",
    parsers.names_of(parsers.by_value(BadRows)),
    parsers.one_of(parsers.by_value(BadRows)),
    "FAILFAST",
    "What to do with messages that the schema cannot decode. `FAILFAST`: fail with `[PULSAR_SCHEMA]`. "
    "`PERMISSIVE`: the value's columns are null; the column `__corruptValue`, if chosen, has the bytes. "
    "`DROPMALFORMED`: leave the messages out. The last two log a warning.",
)
_ALLOW_DIFFERENT = VALUES.add(
    "allowDifferentTopicSchemas",
    "boolean",
    parsers.boolean,
    "false",
    "If topics have schemas with different columns: read all topics as with `valueFormat=raw`. `false`: "
    "fail at load().",
)

# Options that have no effect if payloads are not decoded.
_TYPED_ONLY: tuple[Option[Any], ...] = (_SCHEMA_VERSION, _SCHEMA_EVOLUTION_MODE, _MODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """How payloads are read.

    Attributes:
        format: format of the payloads and their columns.
        schema: Avro's JSON, or the path of a file, where the user gives the schema.
        message: the full name of the payloads' message, where the schema is a descriptor set.
        version: version of the topic's schema; None: the latest.
        evolution: treatment of messages of newer versions.
        bad_rows: treatment of messages that cannot be read.
        allow_different: whether topics of different schemas are read as they are.
    """

    format: ValueFormat
    schema: str | Path | None
    message: str | None
    version: int | None
    evolution: EvolutionMode
    bad_rows: BadRows
    allow_different: bool


def value_options(values: Values) -> ValueOptions:
    """How payloads are read, of options that are right by themselves.

    Raises:
        OptionError: options cannot be used together.
    """
    chosen = values[_VALUE_FORMAT]
    is_given = chosen.given_type is not None
    if values[_VALUE_SCHEMA] is not None and not is_given:
        raise OptionError(
            f"valueFormat={chosen.value} cannot be used with valueSchema",
            advice="Set valueFormat to avro, json or protobuf, the form of the payloads, or leave "
            "valueSchema out",
        )
    useless = [option.name for option in _TYPED_ONLY if option in values.given]
    if chosen.is_raw and useless:
        raise OptionError(
            f"option {useless[0]} has no effect with valueFormat=raw",
            advice="Set valueFormat to columns, or leave it out",
        )
    if is_given and values[_VALUE_SCHEMA] is None:
        raise OptionError(
            f"valueFormat={chosen.value} requires valueSchema, a schema of your own",
            advice="Set it, or set valueFormat=columns to read by the topic's schema",
        )
    _check_protobuf(values)
    is_restarted = values[_SCHEMA_EVOLUTION_MODE] is EvolutionMode.RESTART
    if is_given and (values[_SCHEMA_VERSION] is not None or is_restarted):
        raise OptionError(
            "schemaVersion and schemaEvolutionMode concern the topic's schema and cannot be used with "
            "valueSchema",
            advice="Leave them out",
        )
    if is_restarted and values[_SCHEMA_VERSION] is not None:
        raise OptionError(
            "schemaVersion and schemaEvolutionMode=restart cannot be used together: one keeps the columns, "
            "the other renews them",
            advice="Leave one of them out",
        )
    return ValueOptions(
        format=chosen,
        schema=values[_VALUE_SCHEMA],
        message=values[_MESSAGE_NAME],
        version=values[_SCHEMA_VERSION],
        evolution=values[_SCHEMA_EVOLUTION_MODE],
        bad_rows=values[_MODE],
        allow_different=values[_ALLOW_DIFFERENT],
    )


def _check_protobuf(values: Values) -> None:
    is_protobuf = values[_VALUE_FORMAT] is ValueFormat.PROTOBUF
    if values[_MESSAGE_NAME] is not None and not is_protobuf:
        raise OptionError(
            f"valueFormat={values[_VALUE_FORMAT].value} cannot be used with messageName",
            advice="Set valueFormat to protobuf, or leave messageName out",
        )
    if is_protobuf and values[_MESSAGE_NAME] is None:
        raise OptionError(
            "valueFormat=protobuf requires messageName, the message that payloads are",
            advice="Set it to the full name, such as shop.Order",
        )
    if is_protobuf and not isinstance(values[_VALUE_SCHEMA], Path):
        raise OptionError(
            "with valueFormat=protobuf valueSchema must be the path of a file",
            advice="Name a file that protoc --include_imports --descriptor_set_out=FILE has written",
        )
