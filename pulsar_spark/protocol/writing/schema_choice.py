"""Chooses the schema of written rows: the topic's own schema, or a new one, which is registered.

    ====================  ============  ============  ====================================================
    schema of the topic   rows fit it   may register  choice
    ====================  ============  ============  ====================================================
    none                  -             yes           the user's, or one made from the columns; registered
    none                  -             no            error
    of another type       -             any           error
    KEY_VALUE, encoding   -             any           error: a payload does not show where its key is
    (INLINE, SEPARATED)
    unlike the rows'
    of the rows' type     yes           any           the topic's
    of the rows' type     no            yes           the user's, or the topic's with new fields for missing
                                                      columns, which is registered; error if rows misfit in
                                                      another way
    of the rows' type     no            no            error, which lists the columns
    ====================  ============  ============  ====================================================

The user's schema must read the values of the topic's schema, whatever the choice is. Rows fit if each column
has a field that accepts its type, and each field without a column has a default. Both parts of a KEY_VALUE
schema are chosen in this way. The choice depends on nothing else, so all tasks make the same choice. A schema
is registered only after a sample row was written and read with it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats, json_types, key_value, primitives
from pulsar_spark.values.encode.field_fit import fit, sample_of
from pulsar_spark.values.key_value import KeyValueParts
from pulsar_spark.values.schema_of import merged, schema_of


class PartKind(Enum):
    """The encoding of rows' values or keys."""

    AVRO = "avro"
    JSON = "json"
    PRIMITIVE = "primitive"


class KeyValueEncoding(Enum):
    """Location of a KEY_VALUE schema's keys: the payload, or the messages' keys."""

    INLINE = "INLINE"
    SEPARATED = "SEPARATED"


@dataclass(frozen=True, slots=True)
class PartType:
    """Type of the values, or of the keys, of rows.

    Attributes:
        kind: encoding if a new schema is made. An existing schema of records may be AVRO or JSON.
        arrow: type of the column; a struct for AVRO and JSON.
        given: schema that the user wants to register; None: a schema is made from the column.
    """

    kind: PartKind
    arrow: pa.DataType
    given: Schema | None = None


@dataclass(frozen=True, slots=True)
class RowType:
    """Type of the rows to write with a schema.

    Attributes:
        key: type of the keys, for a KEY_VALUE schema; None for any other schema.
        encoding: location of the keys; None: as in the topic's schema.
    """

    value: PartType
    key: PartType | None = None
    encoding: KeyValueEncoding | None = None

    @property
    def arrow(self) -> pa.DataType:
        """Returns the type of an encoder's rows: values, or a struct of ``key`` and ``value``."""
        if self.key is None:
            return self.value.arrow
        return pa.struct([pa.field("key", self.key.arrow), pa.field("value", self.value.arrow)])


class SchemaChoice(NamedTuple):
    """The schema of written rows; if it ``is_new`` to the topic, it must be registered."""

    schema: Schema
    is_new: bool


def choose_schema(existing: Schema | None, rows: RowType, *, may_register: bool) -> SchemaChoice:
    """Chooses the schema of rows by the module's table; ``existing``: the topic's latest schema.

    Raises:
        SchemaError: no schema fits; the text has the reason, and the columns that do not fit.
        UnsupportedError: the topic's schema is not supported for writing, no schema has a column's type, or
            values of a new schema could not be read.
    """
    choice = _choice(existing, rows, may_register=may_register)
    if choice.is_new:
        _prove(choice.schema, rows)
    return choice


def kind_of_values(schema: Schema) -> PartKind:
    """Returns the encoding of a schema's values; for KEY_VALUE, of its value part.

    Raises:
        SchemaError: the definition is malformed.
        UnsupportedError: the schema is not supported for writing.
    """
    value = key_value.parts_of(schema).value if schema.type is SchemaType.KEY_VALUE else schema
    for kind, record in _RECORDS.items():
        if value.type is record:
            return kind
    if value.type not in primitives.KINDS:
        raise UnsupportedError(
            f"values of a {value.type.name} schema are not written",
            advice="Write bytes with valueFormat=raw, or to another topic",
        )
    return PartKind.PRIMITIVE


def _prove(schema: Schema, rows: RowType) -> None:
    """Writes and reads a row by a schema before its registration, because brokers keep schemas for ever."""
    try:
        encode = formats.encoder(schema, rows.arrow)
        encoded = encode(pa.array([_sample(schema, rows.arrow)], rows.arrow))
        decoder = formats.decoder(schema, schema, formats.column_type(schema))
        keys = pa.nulls(1, pa.binary()) if encoded.keys is None else encoded.keys
        is_bad = decoder.decode(encoded.values, keys).is_bad is not None
        why = decoder.explain(encoded.values[0].as_py(), keys[0].as_py()) if is_bad else ""
    except (SchemaError, UnsupportedError) as error:
        why = error.what
    if why:
        raise UnsupportedError(
            f"the rows' schema is not registered, because its values could not be read: {why}",
            advice="Write fewer columns, or structs that are nested less deeply, or shorter names",
        )


def _sample(schema: Schema, kind: pa.DataType) -> object:
    if schema.type is SchemaType.KEY_VALUE:
        parts = zip(kind, key_value.parts_of(schema)[:2], strict=True)
        return {field.name: _sample(part, field.type) for field, part in parts}
    if schema.type not in _RECORDS.values():
        return sample_of(kind)
    if formats.is_root(schema, kind):
        return {kind[0].name: sample_of(kind[0].type, fit(json_types.parse(schema), kind[0].type))}
    return sample_of(kind, fit(json_types.parse(schema), kind))


def _choice(existing: Schema | None, rows: RowType, *, may_register: bool) -> SchemaChoice:
    if existing is None:
        if not may_register:
            raise SchemaError(
                "the topic has no schema, but schemaRegistration is existing",
                advice="Register one first, or set schemaRegistration=auto",
            )
        return SchemaChoice(_own_schema(rows), is_new=True)
    if rows.key is None:
        return _choose_part(existing, rows.value, "the topic's schema", may_register=may_register)
    _require_type(existing, [SchemaType.KEY_VALUE], "the topic's schema", "keyColumns is set")
    key, value, is_separated = key_value.parts_of(existing)
    if rows.encoding is not None and is_separated != (rows.encoding is KeyValueEncoding.SEPARATED):
        own = KeyValueEncoding.SEPARATED if is_separated else KeyValueEncoding.INLINE
        raise SchemaError(
            f"the topic's KEY_VALUE schema is {own.value}, but keyValueEncoding is {rows.encoding.value}",
            advice="Leave keyValueEncoding out",
        )
    new_key = _choose_part(key, rows.key, "the key of the topic's schema", may_register=may_register)
    new_value = _choose_part(value, rows.value, "the value of the topic's schema", may_register=may_register)
    if not (new_key.is_new or new_value.is_new):
        return SchemaChoice(existing, is_new=False)
    parts = KeyValueParts(new_key.schema, new_value.schema, is_separated)
    return SchemaChoice(key_value.schema_of(parts), is_new=True)


_RECORDS = {PartKind.AVRO: SchemaType.AVRO, PartKind.JSON: SchemaType.JSON}
# Type of a column -> type of the schema to register if the topic has none; values are written unchanged.
_PRIMITIVES = {
    pa.bool_(): SchemaType.BOOL,
    pa.int8(): SchemaType.INT8,
    pa.int16(): SchemaType.INT16,
    pa.int32(): SchemaType.INT32,
    pa.int64(): SchemaType.INT64,
    pa.float32(): SchemaType.FLOAT,
    pa.float64(): SchemaType.DOUBLE,
    pa.string(): SchemaType.STRING,
    pa.binary(): SchemaType.NONE,
    pa.date32(): SchemaType.LOCAL_DATE,
    pa.timestamp("us", "UTC"): SchemaType.INSTANT,
    pa.timestamp("us"): SchemaType.LOCAL_DATE_TIME,
    pa.time64("ns"): SchemaType.LOCAL_TIME,
}


def _own_schema(rows: RowType) -> Schema:
    value = _own_part(rows.value)
    if rows.key is None:
        return value
    is_separated = rows.encoding is not KeyValueEncoding.INLINE
    return key_value.schema_of(KeyValueParts(_own_part(rows.key), value, is_separated))


def _own_part(part: PartType) -> Schema:
    if part.given is not None:
        return _fitting(part, part.given)
    match part.kind:
        case PartKind.PRIMITIVE:
            return Schema(_PRIMITIVES[part.arrow])
        case PartKind.AVRO | PartKind.JSON:
            return schema_of(_RECORDS[part.kind], part.arrow)


def _fitting(part: PartType, given: Schema) -> Schema:
    """Returns the user's schema; raises SchemaError if rows do not fit it."""
    try:
        formats.encoder(given, part.arrow)
    except SchemaError as misfit:
        what = misfit.what.replace("the topic's schema", "valueSchema or keySchema")
        raise SchemaError(
            what.replace("the topic has", "the given schema has"),
            advice="Change the rows, or give a schema that has their columns",
        ) from misfit
    return given


def _choose_part(existing: Schema, part: PartType, what: str, *, may_register: bool) -> SchemaChoice:
    is_primitive = part.kind is PartKind.PRIMITIVE
    # Primitive values may also have an AVRO or JSON schema, whose root then is a primitive, not a record.
    wanted = [*_RECORDS.values(), *(primitives.KINDS if is_primitive else ())]
    _require_type(existing, wanted, what, f"rows are {'primitive values' if is_primitive else 'records'}")
    given = part.given
    if given is not None and not is_primitive:
        # Keeps the properties of the topic's schema, by which readers recognize the client's form of JSON.
        given = replace(existing, data=given.data)
    if given is not None:
        _check_resolves(existing, _fitting(part, given), what)
    try:
        formats.encoder(existing, part.arrow)
    except SchemaError as misfit:
        if is_primitive:
            raise
        if not may_register:
            raise SchemaError(
                f"{misfit.what}; with schemaRegistration=existing no new version is registered",
                advice="Change the rows, or set schemaRegistration=auto",
            ) from misfit
        more = merged(existing, part.arrow) if given is None else given
        if more is None:
            raise
        return SchemaChoice(more, is_new=True)
    return SchemaChoice(existing, is_new=False)


def _check_resolves(existing: Schema, given: Schema, what: str) -> None:
    """Raises SchemaError if the user's schema cannot read values of the topic's schema."""
    try:
        formats.decoder(existing, given, formats.column_type(given))
    except SchemaError as error:
        raise SchemaError(
            f"{what} does not resolve to valueSchema or keySchema: {error.what}",
            advice="Give a schema that reads the topic's values, or none",
        ) from error


def _require_type(existing: Schema, wanted: Container[SchemaType], what: str, why: str) -> None:
    if existing.type not in wanted:
        raise SchemaError(
            f"{what} is {existing.type.name}, but {why}",
            advice="Set schemaType and keyColumns so that rows are of that type, or write to another topic",
        )
