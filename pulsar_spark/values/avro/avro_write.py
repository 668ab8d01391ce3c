"""Encodes columns as values of AVRO schemas: raw datums without a header, one field of all rows at a time.

The bytes of a record's fields are joined row by row. If some rows of a record, array or map are null, only
the other rows are encoded. The items of all arrays are encoded as one column, and then joined for each array.
An array or map is one block with an item count, without a size in bytes.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.join import EncodedField, lengths, one_field
from pulsar_spark.errors import UnsupportedError
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro.avro_types import (
    READ_OFFSET,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroUnion,
    arrow_type,
    field_path,
    is_null,
    parse,
)
from pulsar_spark.values.avro.defaults import WAY_OUT, Defaults, has_null
from pulsar_spark.values.encode import column_values, pieces
from pulsar_spark.values.encode.field_fit import ColumnFit, fit
from pulsar_spark.values.encode.pieces import Cells, Piece, Write
from pulsar_spark.values.interfaces import ValueEncoder


def encoder(schema: Schema, source: pa.DataType) -> ValueEncoder:
    """Returns the encoder of rows; see ``formats.encoder``. A SchemaError lists all columns that do not fit.

    A field without a column has its default. A timestamp fits a field of milliseconds if it is a whole number
    of milliseconds. An integer fits a floating point field if the integer loses no digits.
    """
    offset = schema.properties.get(READ_OFFSET, "0")
    if offset != "0":
        raise UnsupportedError(
            f"values of the topic begin with {offset[:20]!a} bytes of another system ({READ_OFFSET})",
            advice="Write to the topic with that system, or write to another topic",
        )
    return column_values.row_encoder(partial(pieces.values_of, _writer(fit(parse(schema), source))))


def _writer(found: ColumnFit) -> Write:
    """Returns the function that encodes a field; if the field is a union, with the index of the branch."""
    if isinstance(found.avro, AvroUnion):
        return _members(found)
    write = _plain_writer(found)
    if is_null(found.avro) and found.branch is None:
        return write
    if found.branch is None:
        return _required(write, found.path)
    if found.null is None:
        return _branch(_required(write, found.path), found.branch)
    return _nullable(write, found.branch, found.null, is_scalar=not found.parts)


def _plain_writer(found: ColumnFit) -> Write:
    avro = found.avro
    if isinstance(avro, AvroRecord):
        return _record(found, avro)
    if isinstance(avro, AvroArray):
        return _array(found)
    return _map(found) if isinstance(avro, AvroMap) else _scalar(found)


def _scalar(found: ColumnFit) -> Write:
    avro, path = found.avro, found.path
    if isinstance(avro, AvroEnum):
        return lambda column: [pieces.varints(column_values.symbol_numbers(column, avro, path))]
    if isinstance(avro, AvroFixed):
        if avro.logical == "decimal":
            return lambda column: [
                pieces.fixed_decimals(
                    column_values.decimal_column(column, avro.precision, avro.scale), avro.size
                )
            ]
        return lambda column: [one_field(column_values.sized_column(column, avro.size, path))]
    assert isinstance(avro, AvroPrimitive)
    if is_null(avro):
        return lambda column: []
    if avro.logical == "decimal":
        return lambda column: [
            pieces.decimals(column_values.decimal_column(column, avro.precision, avro.scale))
        ]
    if avro.kind in ("int", "long"):
        logical = avro.logical or avro.form
        return lambda column: [pieces.varints(column_values.whole_numbers(column, logical, path))]
    if avro.kind == "boolean":
        return lambda column: [pieces.fixed(column_values.integers(column.cast(pa.int8())).astype(np.uint8))]
    if avro.kind in ("float", "double"):
        number = np.float32 if avro.kind == "float" else np.float64
        return lambda column: [pieces.fixed(column_values.floats(column, number, path))]
    if avro.kind == "string":
        return lambda column: _sized(column_values.binary_column(column_values.string_column(column, path)))
    return lambda column: _sized(column_values.binary_column(column))


def _sized(values: pa.BinaryArray) -> list[Piece]:
    sizes = lengths(values)
    return [pieces.varints(sizes), EncodedField(values, sizes)]


def _required(write: Write, path: str) -> Write:
    def write_all(column: pa.Array) -> list[Piece]:
        has = column_values.validity(column)
        if has is not None:
            column_values.require(has, path, "null, but the topic's field is not nullable")
        return write(column)

    return write_all


def _branch(write: Write, branch: int) -> Write:
    head = varint(branch)
    return lambda column: [pieces.constant(head, len(column)), *write(column)]


def _nullable(write: Write, branch: int, null: int, *, is_scalar: bool) -> Write:
    """Encodes a union of null and a branch; ``is_scalar``: encodes nulls, too, and removes their bytes."""
    write_all = _branch(write, branch)

    def write_some(column: pa.Array) -> list[Piece]:
        has = column_values.validity(column)
        if has is None:
            return write_all(column)
        head = pieces.varints(np.where(has, branch, null))
        if is_scalar:
            return [head, *(pieces.masked(piece, has) for piece in write(column))]
        return [head, pieces.of_some(write, column, has)]

    return write_some


def _members(found: ColumnFit) -> Write:
    parts = [part for part in found.parts if part is not None]
    branches = np.array([part.branch for part in parts], np.int64)
    writers = [_plain_writer(part) for part in parts]

    def write(column: pa.StructArray) -> list[Piece]:
        members, has, count = pieces.members_of(column, found.path, is_nullable=found.null is not None)
        chosen = branches[np.argmax(has, axis=0)]
        if found.null is not None:
            chosen[count == 0] = found.null
        each = zip(writers, members, has, strict=True)
        return [pieces.varints(chosen), *(pieces.of_some(*one) for one in each)]

    return write


def _record(found: ColumnFit, avro: AvroRecord) -> Write:
    columns = iter(found.columns)
    defaults = Defaults(WAY_OUT)
    steps: list[tuple[Write, int] | bytes] = []
    for is_default, run in groupby(zip(avro.fields, found.parts, strict=True), lambda pair: pair[1] is None):
        if is_default:
            steps.append(b"".join(default_bytes(field, found.path, defaults) for field, _ in run))
        else:
            steps.extend((_writer(part), next(columns)) for _, part in run if part is not None)

    def write(column: pa.StructArray) -> list[Piece]:
        made: list[Piece] = []
        for step in steps:
            if isinstance(step, bytes):
                made.append(pieces.constant(step, len(column)))
            else:
                write_field, number = step
                made.extend(write_field(column.field(number)))
        return made

    return write


def default_bytes(field: AvroField, path: str, defaults: Defaults) -> bytes:
    """Encodes a field's default; recursive types are allowed if the default is null, ``[]`` or ``{}``."""
    avro = field.type
    if field.default is None and has_null(avro):
        branches = map(is_null, avro.branches) if isinstance(avro, AvroUnion) else ()
        return b"".join(varint(number) for number, is_mine in enumerate(branches) if is_mine)
    if (isinstance(avro, AvroArray) and field.default == []) or (
        isinstance(avro, AvroMap) and field.default == {}
    ):
        return b"\x00"
    if isinstance(avro, AvroPrimitive) and avro.kind in ("int", "long") and isinstance(field.default, int):
        defaults.constant(field, arrow_type(avro), field_path(path, field.name))
        return varint(field.default)
    return defaults.written(field, path, _writer, is_exact=True)


def varint(number: int) -> bytes:
    """Encodes a number as Avro's int or long."""
    return bytes(pieces.joined(lambda column: [pieces.varints(column.to_numpy())], pa.array([number])).buffer)


def _array(found: ColumnFit) -> Write:
    (item,) = found.parts
    assert item is not None
    write_item = _writer(item)
    return lambda column: _blocks(column, write_item)


def _map(found: ColumnFit) -> Write:
    (value,) = found.parts
    assert value is not None
    write_value = _writer(value)

    def write_entry(entries: pa.StructArray) -> list[Piece]:
        keys = column_values.map_keys(entries.field(0), found.path)
        return [*_sized(keys.cast(pa.binary())), *write_value(entries.field(1))]

    return lambda column: _blocks(column, write_entry)


def _blocks(column: pa.ListArray | pa.MapArray, write_item: Write) -> list[Piece]:
    """Encodes arrays or maps: the item count, the items, and a 0 byte at the end if there are items."""
    items, starts = pieces.items_of(column)
    counts = np.diff(starts)
    end = pieces.masked(Cells(np.zeros((len(counts), 1), np.uint8), None, 1), counts > 0)
    return [pieces.varints(counts), pieces.of_items(write_item, items, starts), end]
