"""Chooses the column type, the decoder and the encoder for each kind of schema."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import with_nulls
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import json_types, key_value, primitives
from pulsar_spark.values.avro import avro_types
from pulsar_spark.values.interfaces import DecodedValues, EncodedValues, ValueDecoder, ValueEncoder
from pulsar_spark.values.value_bounds import ANY_WORK, ValueCost, ValueWork

_WAY_OUT = "Use valueFormat=raw, and decode or encode the values in the query"
# A PROTOBUF schema lacks the field numbers of nested messages, so users must give the message type.
_ADVICE = {
    SchemaType.PROTOBUF: "To read such a topic, set schemaType=protobuf, valueSchema and messageName. "
}


class _Format(NamedTuple):
    """The functions for one kind of schema. ``encoder`` None: values of the kind cannot be written."""

    column_type: key_value.PartType
    decoder: key_value.PartDecoder
    encoder: key_value.PartEncoder | None


def column_type(schema: Schema) -> pa.DataType:
    """Returns the Arrow type of a column of the schema's values.

    Raises:
        UnsupportedError: the schema, or the field that the error names, has no type in Spark.
        SchemaError: the definition is malformed.
    """
    return _format(schema).column_type(schema)


def decoder(writer: Schema, reader: Schema, target: pa.DataType) -> ValueDecoder:
    """Returns the decoder of values that were written with the schema version ``writer``.

    Args:
        reader: schema version that the values are read as; may be older or newer than ``writer``.
        target: ``column_type(reader)``, a projection of it, or a type that it promotes to; decimals may be
            wider.

    Raises:
        UnsupportedError: as :func:`column_type`.
        SchemaError: values of ``writer`` cannot be read as ``reader``, or ``reader`` as ``target``.
    """
    if writer.type != reader.type:
        raise SchemaError(
            f"values of schema type {writer.type.name} cannot be read as {reader.type.name}",
            advice="Read the topic with valueFormat=raw, or write only one type of values to a topic",
        )
    decoded = target if reader.type is SchemaType.KEY_VALUE else _decoded(column_type(reader), target)
    made = _format(reader).decoder(writer, reader, decoded)
    return made if decoded == target else _CastDecoder(made, target)


def check_columns(schema: Schema) -> None:
    """Raises UnsupportedError for a field that :func:`column_type` leaves out, because Spark has no type."""
    if schema.type == SchemaType.KEY_VALUE:
        for part in key_value.parts_of(schema)[:2]:
            check_columns(part)
    elif schema.type is SchemaType.PROTOBUF_NATIVE:
        from pulsar_spark.values.protobuf import protobuf_native  # noqa: PLC0415 - as in _format

        protobuf_native.check_columns(schema)
    elif schema.type in (SchemaType.AVRO, SchemaType.JSON):
        for each in avro_types.recursive_types(json_types.parse(schema)):
            raise each.error


def new_values(newer: Schema, older: Schema, path: str = "") -> Iterator[str]:
    """Yields descriptions of the values of a newer version that an older version cannot hold.

    Raises:
        UnsupportedError, SchemaError: as :func:`column_type`.
    """
    if newer.type == older.type == SchemaType.KEY_VALUE:
        new, old = key_value.parts_of(newer), key_value.parts_of(older)
        yield from new_values(new.key, old.key, "key")
        yield from new_values(new.value, old.value, "value")
    elif newer.type == older.type and newer.type in (SchemaType.AVRO, SchemaType.JSON):
        from pulsar_spark.values.avro import resolve  # noqa: PLC0415 - as in _format

        new_type, old_type = json_types.parse(newer), json_types.parse(older)
        has_tags = newer.type == SchemaType.AVRO
        yield from resolve.new_values(new_type, old_type, path, has_tags=has_tags)


def encoder(schema: Schema, source: pa.DataType) -> ValueEncoder:
    """Returns the encoder of rows of the type ``source`` as values of the schema; null rows are tombstones.

    Raises:
        UnsupportedError: values of such a schema are not written.
        SchemaError: rows of that type do not fit the schema.
    """
    make = _format(schema).encoder
    if make is None:
        raise UnsupportedError(
            f"values of schema type {schema.type.name} cannot be written",
            advice="Encode them in the query and write with valueFormat=raw",
        )
    if is_root(schema, source):
        encode_value = with_tombstones(make(schema, source[0].type))
        return lambda rows: encode_value(rows.field(0))
    made = make(schema, source)
    is_record = isinstance(source, pa.StructType) and schema.type is not SchemaType.KEY_VALUE
    return with_tombstones(made) if is_record else made


def with_tombstones(encode: ValueEncoder) -> ValueEncoder:
    """Returns an encoder that makes tombstones of null rows, and calls ``encode`` for other rows."""

    def encode_all(rows: pa.Array) -> EncodedValues:
        if not rows.null_count:
            return encode(rows)
        if rows.null_count == len(rows):
            return EncodedValues(pa.nulls(len(rows), pa.binary()))
        # ``encode`` gets a copy of a valid row instead of each null row, because it refuses nulls. The bytes
        # of the copies are dropped. So all rows keep their indexes, which errors contain.
        numbers = np.arange(len(rows))
        has = rows.is_valid().to_numpy(zero_copy_only=False)
        filled = np.where(has, numbers, has.argmax())
        encoded = encode(rows.take(pa.array(filled)))
        return EncodedValues(with_nulls(encoded.values, ~has), encoded.keys)

    return encode_all


def _decoded(whole: pa.DataType, target: pa.DataType) -> pa.DataType:
    """Returns ``target``, but with the type of ``whole`` for each decimal that is wider than in ``whole``."""
    if pa.types.is_decimal128(whole) and pa.types.is_decimal128(target):
        digits = target.precision - target.scale, whole.precision - whole.scale
        return whole if digits[0] >= digits[1] and target.scale >= whole.scale else target
    if pa.types.is_struct(whole) and pa.types.is_struct(target):
        own = {field.name: field.type for field in whole}
        return pa.struct(
            [each.with_type(_decoded(own.get(each.name, each.type), each.type)) for each in target]
        )
    if pa.types.is_list(whole) and pa.types.is_list(target):
        item = target.value_field
        return pa.list_(item.with_type(_decoded(whole.value_type, item.type)))
    if pa.types.is_map(whole) and pa.types.is_map(target):
        item = target.item_field
        return pa.map_(target.key_field, item.with_type(_decoded(whole.item_type, item.type)))
    return target


def is_root(schema: Schema, source: pa.DataType) -> bool:
    """Whether the only column of ``source`` is ``value``, and the schema's values are not structs."""
    if schema.type not in (SchemaType.AVRO, SchemaType.JSON) or not pa.types.is_struct(source):
        return False
    return [field.name for field in source] == ["value"] and not pa.types.is_struct(column_type(schema))


def _format(schema: Schema) -> _Format:
    """Returns the functions for a kind of schema; imports the code of a kind only when it is needed."""
    match schema.type:
        case SchemaType.AVRO:
            from pulsar_spark.values.avro import avro_read, avro_write  # noqa: PLC0415

            return _Format(json_types.column_type, avro_read.decoder, avro_write.encoder)
        case SchemaType.JSON:
            from pulsar_spark.values.json import json_read, json_write  # noqa: PLC0415

            return _Format(json_types.column_type, json_read.decoder, json_write.encoder)
        case SchemaType.PROTOBUF_NATIVE:
            from pulsar_spark.values.protobuf import protobuf_native  # noqa: PLC0415

            return _Format(protobuf_native.column_type, protobuf_native.decoder, None)
        case SchemaType.KEY_VALUE:
            return _KEY_VALUE
        case kind if kind in primitives.KINDS:
            return _PRIMITIVE
    raise UnsupportedError(
        f"values of schema type {schema.type.name} have no columns",
        advice=_ADVICE.get(schema.type, "") + _WAY_OUT,
    )


_PRIMITIVE = _Format(primitives.column_type, primitives.decoder, primitives.encoder)
_KEY_VALUE = _Format(
    partial(key_value.column_type, part=column_type),
    partial(key_value.decoder, part=decoder),
    partial(key_value.encoder, part=encoder),
)


@dataclass(frozen=True, slots=True)
class _CastDecoder:
    """Decodes values with ``values``, and casts their column to a type that holds all values."""

    values: ValueDecoder
    type: pa.DataType

    @property
    def cost(self) -> ValueCost:
        return self.values.cost

    @property
    def plan(self) -> Hashable:
        return self.values.plan, self.type

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ANY_WORK
    ) -> DecodedValues:
        found = self.values.decode(values, keys, work)
        return replace(found, column=found.column.cast(self.type))

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        return self.values.explain(value, key)
