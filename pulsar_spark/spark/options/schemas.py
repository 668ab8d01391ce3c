"""The options of source and sink for the types of values: one table, with one meaning for both."""

from __future__ import annotations

import json
import re
from enum import Enum
from pathlib import Path

from pulsar_spark.client import SchemaType, path_of
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Parser, Table
from pulsar_spark.spark.rows.schema import ValueFormat


class GivenType(Enum):
    """The type of values that have no schema at the broker."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"
    PRIMITIVE = "primitive"

    @property
    def type(self) -> SchemaType | None:
        """Returns the type of a schema with a definition; None: the option names a primitive."""
        if self is GivenType.PRIMITIVE:
            return None
        return SchemaType.PROTOBUF_NATIVE if self is GivenType.PROTOBUF else SchemaType[self.name]


def _definition(text: str) -> str | Path:
    """Returns Avro's JSON or the name of a primitive unchanged, or the path of a file."""
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
