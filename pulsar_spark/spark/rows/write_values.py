"""The value columns of written rows: bytes, or values that a schema encodes.

This module owns the form of rows for each ``valueFormat``. It does not use a topic's schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pulsar_spark.client import KeyValueEncoding, PartKind, PartType, RowType, Schema
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.rows.schema import ValueFormat
from pulsar_spark.spark.spark_api import TimeType, arrow_type


@dataclass(frozen=True, slots=True)
class SinkValues:
    """The user's options for values, and the properties that the topic's schema adds.

    Attributes:
        format: COLUMNS: columns are the fields of the value. RAW or STRUCT: one column is the value.
        kind: encoding of the values; RAW values have none.
        key_columns: names of the key's columns for a KEY_VALUE schema; empty for any other schema, and if
            ``is_pair``.
        is_pair: True if the one column is a struct of the ``key`` and ``value`` of a KEY_VALUE schema.
        key_value_encoding: encoding of KEY_VALUE; None: the encoding of the topic's schema.
        may_register: True if a new schema version may be registered for rows that do not fit the topic's.
        value_schema: schema to register for values; None: a schema of the columns' types.
        key_schema: schema to register for keys; None: a schema of the columns' types.
    """

    format: ValueFormat = ValueFormat.RAW
    kind: PartKind = PartKind.AVRO
    key_columns: tuple[str, ...] = ()
    is_pair: bool = False
    key_value_encoding: KeyValueEncoding | None = None
    may_register: bool = True
    value_schema: Schema | None = None
    key_schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class PartColumns:
    """The columns of a value or of its key.

    ``is_record``: True if the columns are the fields of a record. False: the one column is the value.
    """

    names: tuple[str, ...]
    is_record: bool
    type: PartType

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the values of a batch of n rows, as an array of n values of ``type``."""
        if not self.is_record:
            return _cast(batch.column(self.names[0]), self.type.arrow)
        arrays = [_cast(batch.column(field.name), field.type) for field in self.type.arrow]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type.arrow))


@dataclass(frozen=True, slots=True)
class ValueColumns:
    """The columns of rows that a schema encodes; made by :func:`value_columns`.

    ``pair``: name of the struct column with the fields ``key`` and ``value``; None: key and value have
    separate columns.
    """

    value: PartColumns
    key: PartColumns | None = None
    encoding: KeyValueEncoding | None = None
    pair: str | None = None

    @property
    def type(self) -> RowType:
        """Returns the type of the rows."""
        return RowType(self.value.type, None if self.key is None else self.key.type, self.encoding)

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns rows in an encoder's form: values, or a struct of ``key`` and ``value``."""
        if self.pair is not None:
            names = [field.name for field in batch.column(self.pair).type]
            batch = pa.RecordBatch.from_arrays(batch.column(self.pair).flatten(), names)
        values = self.value.values(batch)
        if self.key is None:
            return values
        return pa.StructArray.from_arrays([self.key.values(batch), values], fields=list(self.type.arrow))


def value_columns(fields: Sequence[StructField], options: SinkValues) -> ValueColumns:
    """Determines the columns that a schema encodes as value and key.

    Args:
        fields: columns of the payload, without reserved columns; their names differ.

    Raises:
        OptionError: rows have no value column or more than the format allows, a column has a type that no
            schema has, or a key column is missing.
    """
    for field in fields:
        _check_type(field.name, field.dataType)
    pair = None
    if options.is_pair:
        pair = _only(fields, "the value is one column with valueFormat=struct")
        kind = pair.dataType
        if not isinstance(kind, StructType) or sorted(kind.names) != ["key", "value"]:
            raise OptionError(
                f"column {pair.name} is {kind.simpleString()}, but the topic's schema is KEY_VALUE",
                advice="Make it a struct of key and value, or set valueFormat=columns",
            )
        fields = kind.fields
        options = replace(options, key_columns=("key",))
    by_name = {field.name: field for field in fields}
    missing = [name for name in options.key_columns if name not in by_name]
    if missing:
        raise OptionError(
            f"the rows have no column {', '.join(missing)} for the key of KEY_VALUE: their columns are "
            f"{', '.join(by_name) or 'none'}",
            advice="Set keyColumns to columns that they have and whose names do not begin with __",
        )
    values = [field for field in fields if field.name not in options.key_columns]
    if not values:
        raise OptionError("the rows have no value column", advice="Add a column that is not part of the key")
    key = [by_name[name] for name in options.key_columns]
    return ValueColumns(
        _value_part(values, options),
        _key_part(key, options) if key else None,
        options.key_value_encoding,
        None if pair is None else pair.name,
    )


def raw_value(fields: Sequence[StructField]) -> str:
    """Returns the name of the column with the bytes of the value; raises OptionError for none or several."""
    if not fields:
        raise OptionError(
            "the rows have no value column", advice="Add one binary or string column, such as value"
        )
    if len(fields) > 1:
        names = ", ".join(field.name for field in fields)
        raise OptionError(
            f"the value must be one column, but the rows have {len(fields)}: {names}",
            advice="Set valueFormat=columns, or combine them into one column: "
            f"to_json(struct({names})) as value",
        )
    kind = fields[0].dataType
    if not isinstance(kind, _RAW_TYPES):
        raise OptionError(
            f"the value column {fields[0].name} is {kind.simpleString()}",
            advice="Set valueFormat, cast it to binary or string, or use to_json(struct(...))",
        )
    return fields[0].name


def to_binary(array: pa.Array) -> pa.BinaryArray:
    """Casts to ``binary``, also the large types that spark.sql.execution.arrow.useLargeVarTypes causes."""
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.large_binary())
    return array.cast(pa.binary())


# With key columns, the only other column may be a struct of this name: its fields are the value's fields, and
# null is a tombstone, as in rows that the source reads from a KEY_VALUE topic.
_WHOLE = "value"
_RAW_TYPES = (StringType, BinaryType, NullType)
_TYPES = (
    *(BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType),
    *(StringType, BinaryType, DateType, TimeType, TimestampType, TimestampNTZType, NullType),
)


def _value_part(fields: Sequence[StructField], options: SinkValues) -> PartColumns:
    given = options.value_schema
    if options.kind is PartKind.PRIMITIVE:
        one = _only(fields, "a primitive is one column")
        is_bytes = isinstance(one.dataType, BinaryType) or (given is not None and not given.type)
        if is_bytes and not options.key_columns:
            what = f"column {one.name} is written as binary, for which there is no schema"
            raise OptionError(what, advice="Set valueFormat=raw")
        return _primitive_part(one, given)
    is_struct = options.format is ValueFormat.STRUCT
    field = _only(fields, "the value is one column with valueFormat=struct") if is_struct else fields[0]
    is_whole = isinstance(field.dataType, StructType) and (
        is_struct or (bool(options.key_columns) and [each.name for each in fields] == [_WHOLE])
    )
    if is_struct and not is_whole:
        raise OptionError(
            f"column {field.name} is {field.dataType.simpleString()}, but the value is a record",
            advice="Make it a struct, or set valueFormat=columns, or schemaType=primitive for a new topic",
        )
    return _record_part(fields, options.kind, given, is_whole=is_whole)


def _key_part(fields: Sequence[StructField], options: SinkValues) -> PartColumns:
    is_whole = len(fields) == 1
    if is_whole and not isinstance(fields[0].dataType, StructType):
        return _primitive_part(fields[0], options.key_schema)
    kind = PartKind.AVRO if options.kind is PartKind.PRIMITIVE else options.kind
    return _record_part(fields, kind, options.key_schema, is_whole=is_whole)


def _only(fields: Sequence[StructField], what: str) -> StructField:
    if len(fields) != 1:
        names = ", ".join(field.name for field in fields)
        raise OptionError(
            f"{what}, but the rows have {len(fields)}: {names}",
            advice="Drop columns, name those of the key by keyColumns, or write a record: "
            "valueFormat=columns, and for a new topic schemaType=avro",
        )
    return fields[0]


def _record_part(
    fields: Sequence[StructField], kind: PartKind, given: Schema | None, *, is_whole: bool
) -> PartColumns:
    record = fields[0].dataType if is_whole else StructType(list(fields))
    names = tuple(field.name for field in fields)
    return PartColumns(names, is_record=not is_whole, type=PartType(kind, arrow_type(record), given))


def _primitive_part(field: StructField, given: Schema | None) -> PartColumns:
    kind = field.dataType
    if not isinstance(kind, _TYPES) or isinstance(kind, (DecimalType, NullType)):
        raise OptionError(
            f"column {field.name} is {kind.simpleString()}, for which there is no primitive schema",
            advice="Cast it, or set schemaType to avro or json for a new topic",
        )
    part = PartType(PartKind.PRIMITIVE, arrow_type(kind), given)
    return PartColumns((field.name,), is_record=False, type=part)


def _check_type(path: str, kind: DataType) -> None:
    if isinstance(kind, ArrayType):
        _check_type(f"{path}[]", kind.elementType)
    elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        _check_type(f"{path}{{}}", kind.valueType)
    elif isinstance(kind, StructType):
        names = kind.names
        if not names:
            raise OptionError(f"column {path} is a struct without fields", advice="Leave it out")
        if len(set(names)) < len(names):
            raise OptionError(
                f"column {path} has two fields with the same name: {', '.join(names)}",
                advice="Rename one of them",
            )
        for field in kind.fields:
            _check_type(f"{path}.{field.name}", field.dataType)
    elif not isinstance(kind, _TYPES):
        is_map = isinstance(kind, MapType)
        what = "keys of maps must be strings" if is_map else "there is no schema for this type"
        raise OptionError(
            f"column {path} is {kind.simpleString()}, and {what}", advice="Cast it, or leave it out"
        )


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Casts large types and timestamps of the session's time zone to the Arrow type that encoders expect."""
    return array if array.type == kind else array.cast(kind)
