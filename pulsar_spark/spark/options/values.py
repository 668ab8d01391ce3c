"""The options of the source that say how payloads are read: their table, and what a reader needs of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pulsar_spark.client import path_of
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Mode, Option, Table, Values
from pulsar_spark.spark.rows.values import BadRows

VALUES = Table()


class ValueFormat(Enum):
    """How payloads are read, and what columns they are."""

    RAW = "raw"
    COLUMNS = "columns"
    STRUCT = "struct"
    AVRO = "avro"
    JSON = "json"


class EvolutionMode(Enum):
    """What a newer version of the schema means while a query runs."""

    NONE = "none"
    RESTART = "restart"


def _value_schema(text: str) -> str:
    """Avro's JSON, or where it is; gives it as it is."""
    if text.startswith("/") or (text.startswith("file:") and str(path_of(text)).startswith("/")):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("a schema in Avro's JSON, or a file that has it (/path or file:///path)") from None
    return text


_VALUE_FORMAT = VALUES.add(
    "valueFormat",
    parsers.names_of(parsers.by_value(ValueFormat)),
    parsers.one_of(parsers.by_value(ValueFormat)),
    "raw",
    "`raw`: the column `value` has the bytes of payloads. `columns`: payloads are read by the topic's "
    "schema; the fields of a record are columns, key and value of a KEY_VALUE schema are columns `key` "
    "and `value`, anything else is a typed column `value`. `struct`: the same in one column `value`. "
    "`avro`, `json`: as `columns`, by `valueSchema`. See docs/schemas.md.",
)
_VALUE_SCHEMA = VALUES.add(
    "valueSchema",
    "Avro schema, file",
    _value_schema,
    None,
    "With `valueFormat=avro` or `json`: the schema of all payloads, for topics whose producers registered "
    "none. Avro's JSON, or a file on the driver (`/path` or `file:///path`).",
)
_SCHEMA_VERSION = VALUES.add(
    "schemaVersion",
    "number",
    parsers.count(0),
    None,
    "The version of the topic's schema that gives the columns. Default: the latest at load(). Messages of "
    "all versions are read: each by its own, resolved to this one.",
)
_SCHEMA_EVOLUTION_MODE = VALUES.add(
    "schemaEvolutionMode",
    parsers.names_of(parsers.by_value(EvolutionMode)),
    parsers.one_of(parsers.by_value(EvolutionMode)),
    "none",
    "When messages of a newer version come that has more than the columns can hold (fields, wider types, "
    "nulls, symbols): `none`: such fields are left out until load() is called again, and other such values "
    "cannot be read. `restart`: the query fails with `[PULSAR_SCHEMA_CHANGED]` before the "
    "micro-batch is done; started again from load() on, it reads the same messages with the new columns.",
    only=Mode.STREAM,
)
_MODE = VALUES.add(
    "mode",
    parsers.names_of(parsers.by_value(BadRows)),
    parsers.one_of(parsers.by_value(BadRows)),
    "FAILFAST",
    "Messages that cannot be read by the schema: fail with `[PULSAR_SCHEMA]`, give nulls in the columns "
    "of the payload (and the payload in `__corruptValue`, if that is among `metadataColumns`), or leave "
    "them out; the last two with a warning.",
)
_ALLOW_DIFFERENT = VALUES.add(
    "allowDifferentTopicSchemas",
    "boolean",
    parsers.boolean,
    "false",
    "Topics whose schemas have different columns are an error at load(), or, with `true`, are read as "
    "with `valueFormat=raw`.",
)

# What means nothing where payloads are not read.
_TYPED_ONLY: tuple[Option[Any], ...] = (_VALUE_SCHEMA, _SCHEMA_VERSION, _SCHEMA_EVOLUTION_MODE, _MODE)
_GIVEN = (ValueFormat.AVRO, ValueFormat.JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """How payloads are read.

    Attributes:
        format: of the payloads and their columns.
        schema: Avro's JSON, or the path of a file, where the user gives the schema.
        version: of the topic's schema; None: the latest.
        evolution: what newer versions mean.
        bad_rows: what becomes of messages that cannot be read.
        allow_different: whether topics of different schemas are read as they are.
    """

    format: ValueFormat
    schema: str | None
    version: int | None
    evolution: EvolutionMode
    bad_rows: BadRows
    allow_different: bool

    @property
    def is_raw(self) -> bool:
        """Whether payloads are not looked into."""
        return self.format is ValueFormat.RAW

    @property
    def is_flat(self) -> bool:
        """Whether the fields of a record are columns."""
        return self.format is not ValueFormat.STRUCT


def value_options(values: Values) -> ValueOptions:
    """How payloads are read, of options that are right by themselves.

    Raises:
        OptionError: options do not go together.
    """
    chosen = values[_VALUE_FORMAT]
    useless = [option.name for option in _TYPED_ONLY if option in values.given]
    if chosen is ValueFormat.RAW and useless:
        raise OptionError(
            f"option {useless[0]} has no use with valueFormat=raw",
            advice="Set valueFormat to columns, or leave it out",
        )
    if (chosen in _GIVEN) != (values[_VALUE_SCHEMA] is not None):
        relation = "needs" if chosen in _GIVEN else "does not go together with"
        raise OptionError(
            f"valueFormat={chosen.value} {relation} valueSchema",
            advice="Set both to read by a schema of your own, or valueFormat=columns to read by the topic's",
        )
    is_restarted = values[_SCHEMA_EVOLUTION_MODE] is EvolutionMode.RESTART
    if chosen in _GIVEN and (values[_SCHEMA_VERSION] is not None or is_restarted):
        raise OptionError(
            "schemaVersion and schemaEvolutionMode are of the topic's schema, not of valueSchema",
            advice="Leave them out",
        )
    if is_restarted and values[_SCHEMA_VERSION] is not None:
        raise OptionError(
            "schemaVersion keeps the columns that schemaEvolutionMode=restart would renew",
            advice="Leave one of them out",
        )
    return ValueOptions(
        format=chosen,
        schema=values[_VALUE_SCHEMA],
        version=values[_SCHEMA_VERSION],
        evolution=values[_SCHEMA_EVOLUTION_MODE],
        bad_rows=values[_MODE],
        allow_different=values[_ALLOW_DIFFERENT],
    )
