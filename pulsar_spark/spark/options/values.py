"""The options of the source for payloads: their table, and the fields of ValueOptions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Mode, Option, Parser, Table, Values
from pulsar_spark.spark.options.schemas import (
    KEY_SCHEMA,
    SCHEMA_TYPE,
    SCHEMAS,
    VALUE_FORMAT,
    VALUE_SCHEMA,
    GivenType,
)
from pulsar_spark.spark.rows.read import BadRows
from pulsar_spark.spark.rows.schema import ValueFormat

VALUES = Table()


class EvolutionMode(Enum):
    """Treatment of messages of a newer schema version while a query runs."""

    NONE = "none"
    RESTART = "restart"


VALUES.extend(SCHEMAS)
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
# Options that have no effect if payloads are not decoded, and options that need the user's schema.
_GIVEN_ONLY: tuple[Option[Any], ...] = (SCHEMA_TYPE, _MESSAGE_NAME)
_TYPED_ONLY = (VALUE_SCHEMA, KEY_SCHEMA, *_GIVEN_ONLY, _SCHEMA_VERSION, _SCHEMA_EVOLUTION_MODE, _MODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """Options of payloads.

    Attributes:
        format: format of the payloads and their columns.
        schema: the user's schema: Avro's JSON, the name of a primitive, or the path of a file; or None.
        key_schema: the user's schema of the keys of KEY_VALUE, or None.
        type: type of values that have no schema at the broker; None: such values cannot be read.
        message: full name of the payloads' message, if the schema is a descriptor set.
        version: version of the topic's schema; None: the latest.
        evolution: treatment of messages of newer versions.
        bad_rows: treatment of messages that cannot be read.
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
    """Returns the options of payloads from parsed values, and checks their combinations.

    Raises:
        OptionError: options cannot be used together.
    """
    is_raw = values[VALUE_FORMAT] is ValueFormat.RAW
    for option in _TYPED_ONLY:
        if is_raw and option in values.given:
            raise OptionError(
                f"option {option.name} has no effect with valueFormat=raw",
                advice="Set valueFormat to columns, or leave it out",
            )
    for option in _GIVEN_ONLY:
        if values[VALUE_SCHEMA] is None and option in values.given:
            raise OptionError(
                f"option {option.name} has no effect without valueSchema, a schema of your own",
                advice="Set valueSchema, or leave it out to read by the topic's schema",
            )
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
