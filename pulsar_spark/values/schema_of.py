"""Builds schemas of kind AVRO or JSON for rows of a type: a new schema, or a topic's schema with more fields.

Existing fields and record names are never changed, because the broker checks the compatibility of versions.
New fields follow the existing fields, and have the default null, so that older and newer readers accept both
versions.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro.avro_types import (
    AvroEnum,
    AvroFixed,
    AvroRecord,
    AvroType,
    branch_name,
    field_path,
    full_name,
    parts_of,
    shown_name,
)
from pulsar_spark.values.encode.field_fit import NewField, new_fields
from pulsar_spark.values.interfaces import is_variant, type_name
from pulsar_spark.values.json_types import parse

RECORD: Final = "Row"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # names that Avro allows
_PLAIN: Final[dict[str, object]] = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
    "time(6)": {"type": "long", "logicalType": "time-micros"},
}


def schema_of(kind: SchemaType, rows: pa.StructType) -> Schema:
    """Returns the schema of rows of a type: a record ``Row`` with a field for each column.

    All columns, fields, items and map values are nullable: ``["null", T]``. Fields have the default null.
    Spark's nullability is ignored, because Spark's optimizer may make a nullable column non-nullable. Structs
    become records ``Row_<path>``.

    Raises:
        OptionError: the rows have no columns, a name that Avro does not allow, or a repeated name.
        UnsupportedError: Avro has no type for a column, which the error names.
    """
    if len(rows) == 0:
        raise OptionError("the rows have no columns from which a schema could be created")
    tree = _Maker(set()).record(rows, "", RECORD)
    return Schema(kind, _text(tree))


def merged(existing: Schema, rows: pa.StructType) -> Schema | None:
    """Extends a topic's schema for rows of a type; None: no new field is needed.

    Columns without a field become nullable fields after the existing fields; so do new fields of structs. A
    record that the schema uses several times gets new fields once, for all uses.

    Args:
        existing: schema of kind AVRO or JSON.

    Raises:
        SchemaError: the topic's schema is not a record; columns have other types than their fields, or names
            that differ from a field's only in case; fields have neither a column nor a default. The text
            lists all mistakes.
        OptionError, UnsupportedError: as :func:`schema_of`, for the new columns.
    """
    record = parse(existing)
    if not isinstance(record, AvroRecord):
        raise SchemaError(
            "the topic's schema is not a record, but rows of several columns are a record",
            advice="Write one column of the schema's type, or write to another topic",
        )
    new = new_fields(record, rows)
    if not new:
        return None
    tree = json.loads(existing.data)
    maker = _Maker(_names(record))
    definitions = dict(_records(tree, ""))
    for each in new:
        maker.add(definitions[each.record], each)
    return Schema(existing.type, _text(tree), existing.properties, existing.name)


class _Maker:
    """Builds definitions of Avro types, as parsed JSON; ``taken``: names that other types use."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._added: dict[tuple[str, str], pa.Field] = {}  # (record, field name) -> added field

    def record(self, rows: pa.StructType, path: str, name: str) -> dict[str, Any]:
        """Returns the definition of a record; ``name`` must not be in use."""
        if name:
            self._taken.add(name)
        for field_name, count in Counter(field.name for field in rows).items():
            if not _NAME.fullmatch(field_name):
                raise OptionError(
                    f"column {shown_name(field_path(path, field_name))} has a name that Avro does not allow",
                    advice="Rename it to letters, digits and _, and the first must not be a digit",
                )
            if count > 1:
                raise OptionError(f"column {shown_name(field_path(path, field_name))} exists {count} times")
        return {"type": "record", "name": name, "fields": [self._field(each, path) for each in rows]}

    def add(self, definition: dict[str, Any], new: NewField) -> None:
        """Adds a nullable field to a record, unless another column added the same field."""
        column = new.column.with_nullable(True)
        other = self._added.setdefault((new.record, column.name), column)
        if other is column:
            definition["fields"] += self.record(pa.struct([column]), new.path, "")["fields"]
        elif not other.equals(column):
            raise SchemaError(
                f"columns whose type is record {shown_name(new.record)} of the topic's schema have field "
                f"{shown_name(column.name)} of different types",
                advice="Cast them to one type",
            )

    def _field(self, field: pa.Field, path: str) -> dict[str, Any]:
        below = field_path(path, field.name)
        return {"name": field.name, "type": self._nullable(field.type, below), "default": None}

    def _nullable(self, kind: pa.DataType, path: str) -> object:
        return ["null", self._type(kind, path)]

    def _type(self, kind: pa.DataType, path: str) -> object:
        if pa.types.is_struct(kind) and not is_variant(kind):
            return self.record(kind, path, self._name(path))
        if pa.types.is_list(kind):
            return {"type": "array", "items": self._nullable(kind.value_type, f"{path}[]")}
        if pa.types.is_map(kind) and type_name(kind.key_type) == "string":
            return {"type": "map", "values": self._nullable(kind.item_type, f"{path}{{}}")}
        if pa.types.is_decimal128(kind) and kind.scale >= 0:
            digits = {"precision": kind.precision, "scale": kind.scale}
            return {"type": "bytes", "logicalType": "decimal", **digits}
        plain = _PLAIN.get(type_name(kind))
        if plain is None:
            raise UnsupportedError(
                f"column {shown_name(path)} is {type_name(kind)}, for which Avro has no type",
                advice="Cast it, or leave it out",
            )
        return plain

    def _name(self, path: str) -> str:
        """Returns ``Row_a_b`` for the path ``a[].b``, with a number if ``Row_a_b`` is in use."""
        name = "_".join([RECORD, *re.findall(r"[A-Za-z0-9_]+", path)])
        free, number = name, 1
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        return free


def _names(avro: AvroType) -> set[str]:
    """Returns the names of all named types, without namespaces."""
    is_named = isinstance(avro, AvroRecord | AvroEnum | AvroFixed)
    own = {branch_name(avro).rpartition(".")[2]} if is_named else set[str]()
    return own.union(*map(_names, parts_of(avro)))


def _records(tree: object, space: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the full names and definitions of records in the parsed JSON of a schema."""
    if isinstance(tree, list):
        for branch in tree:
            yield from _records(branch, space)
    if not isinstance(tree, dict):
        return
    kind = tree["type"]
    if kind in ("record", "error"):
        own = tree.get("namespace", space)
        name = full_name(tree["name"], own if isinstance(own, str) else space)
        yield name, tree
        for field in tree["fields"]:
            yield from _records(field["type"], name.rpartition(".")[0])
    elif kind in ("array", "map"):
        yield from _records(tree["items" if kind == "array" else "values"], space)
    elif not isinstance(kind, str):
        yield from _records(kind, space)


def _text(tree: object) -> bytes:
    return json.dumps(tree, separators=(",", ":")).encode()
