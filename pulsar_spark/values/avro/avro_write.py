"""Columns -> values of AVRO schemas: raw datums without a header, all rows of a field at a time.

The fields of a record are pieces that are joined side by side. If some rows are null, values other than
scalars are encoded for the rows that are not null, and then spread over all rows. The items of arrays are
encoded as their own rows; their bytes follow one another, as they must in the array. An array or map is
one block with a count, without a size in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.arrow.join import EncodedField, lengths
from pulsar_spark.errors import UnsupportedError
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroUnion,
    parse,
)
from pulsar_spark.values.avro.defaults import default_bytes, varint
from pulsar_spark.values.encode import column_values, pieces
from pulsar_spark.values.encode.field_fit import ColumnFit, fit
from pulsar_spark.values.encode.pieces import Cells, Piece, PieceWriter
from pulsar_spark.values.interfaces import ValueEncoder

_READ_OFFSET = "__AVRO_READ_OFFSET__"


def encoder(schema: Schema, source: pa.DataType) -> ValueEncoder:
    """Makes the encoder of rows of the type ``source`` as values of a schema of kind AVRO.

    A field without a column gets its default. A timestamp fits a field of milliseconds if it is a whole
    number of them, an integer fits a floating point number that represents it exactly.

    Raises:
        SchemaError: the schema is not valid Avro, or columns do not fit it; the text lists all such columns.
        UnsupportedError: the schema is recursive or too large, or its values begin with other bytes.
    """
    offset = schema.properties.get(_READ_OFFSET, "0")
    if offset != "0":
        raise UnsupportedError(
            f"values of the topic begin with {offset[:20]!a} bytes of another system ({_READ_OFFSET})",
            advice="Write to the topic with that system, or write to another topic",
        )
    return pieces.RowEncoder(_writer(fit(parse(schema), source)))


def _writer(found: ColumnFit) -> PieceWriter:
    """Makes the writer of a field, which writes the index of the branch if the field is a union."""
    if isinstance(found.avro, AvroUnion):
        return _Members(found)
    inner = _plain_writer(found)
    if found.branch is None:
        return _Required(inner, found.path)
    if found.null is None:
        return _Branch(_Required(inner, found.path), found.branch)
    return _Nullable(inner, found.branch, found.null)


def _plain_writer(found: ColumnFit) -> PieceWriter:
    avro = found.avro
    if isinstance(avro, AvroRecord):
        return _Record(found, avro)
    if isinstance(avro, AvroArray):
        return _Array(found)
    if isinstance(avro, AvroMap):
        return _Map(found)
    return _Scalar(_scalar(found))


class _Scalar:
    """Writes values without parts; only this writer accepts columns with nulls."""

    def __init__(self, make: Callable[[pa.Array], list[Piece]]) -> None:
        self._make = make

    def pieces(self, column: pa.Array) -> list[Piece]:
        return self._make(column)


def _scalar(found: ColumnFit) -> Callable[[pa.Array], list[Piece]]:
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
        return lambda column: [pieces.texts(column_values.sized_column(column, avro.size, path))]
    assert isinstance(avro, AvroPrimitive)
    if avro.logical == "decimal":
        return lambda column: [
            pieces.decimals(column_values.decimal_column(column, avro.precision, avro.scale))
        ]
    if avro.logical.endswith("-millis"):
        return lambda column: [pieces.varints(column_values.milliseconds(column, path))]
    if avro.logical.endswith("-nanos"):
        return lambda column: [pieces.varints(column_values.nanoseconds(column, path))]
    if avro.form.startswith("time-"):
        return lambda column: [pieces.varints(column_values.times_of_day(column, avro.form, path))]
    if avro.kind in ("int", "long"):
        return lambda column: [pieces.varints(column_values.integers(column))]
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


class _Required:
    """Writes a field that is not nullable."""

    def __init__(self, inner: PieceWriter, path: str) -> None:
        self._inner = inner
        self._path = path

    def pieces(self, column: pa.Array) -> list[Piece]:
        has = column_values.validity(column)
        if has is not None:
            column_values.require(has, self._path, "null, but the topic's field is not nullable")
        return self._inner.pieces(column)


class _Branch:
    """Writes a union whose rows all use one branch."""

    def __init__(self, inner: PieceWriter, branch: int) -> None:
        self._inner = inner
        self._branch = varint(branch)

    def pieces(self, column: pa.Array) -> list[Piece]:
        return [pieces.constant(self._branch, len(column)), *self._inner.pieces(column)]


class _Nullable:
    """Writes a union of null and one branch."""

    def __init__(self, inner: PieceWriter, branch: int, null: int) -> None:
        self._inner = inner
        self._branch = branch
        self._null = null

    def pieces(self, column: pa.Array) -> list[Piece]:
        has = column_values.validity(column)
        if has is None:
            return [
                pieces.constant(varint(self._branch), len(column)),
                *self._inner.pieces(column),
            ]
        head = pieces.varints(np.where(has, self._branch, self._null))
        if isinstance(self._inner, _Scalar):
            return [head, *(pieces.masked(piece, has) for piece in self._inner.pieces(column))]
        return [head, pieces.of_some(self._inner, column, has)]


class _Members:
    """Writes a union that has a column for each member; each row has one of them."""

    def __init__(self, found: ColumnFit) -> None:
        self._path = found.path
        self._null = found.null
        parts = [part for part in found.parts if part is not None]
        self._branches = np.array([part.branch for part in parts], np.int64)
        self._writers = [_plain_writer(part) for part in parts]

    def pieces(self, column: pa.StructArray) -> list[Piece]:
        members, has, count = pieces.members_of(column, self._path, is_nullable=self._null is not None)
        branches = self._branches[np.argmax(has, axis=0)]
        if self._null is not None:
            branches[count == 0] = self._null
        found = zip(self._writers, members, has, strict=True)
        return [pieces.varints(branches), *(pieces.of_some(*each) for each in found)]


class _Record:
    def __init__(self, found: ColumnFit, avro: AvroRecord) -> None:
        columns = iter(found.columns)
        self._steps: list[tuple[PieceWriter, int] | bytes] = []
        pairs = zip(avro.fields, found.parts, strict=True)
        for is_default, run in groupby(pairs, lambda pair: pair[1] is None):
            if is_default:
                self._steps.append(default_bytes([field for field, _ in run], found.path))
            else:
                self._steps.extend((_writer(part), next(columns)) for _, part in run if part is not None)

    def pieces(self, column: pa.StructArray) -> list[Piece]:
        found: list[Piece] = []
        for step in self._steps:
            if isinstance(step, bytes):
                found.append(pieces.constant(step, len(column)))
            else:
                writer, number = step
                found.extend(writer.pieces(column.field(number)))
        return found


class _Array:
    def __init__(self, found: ColumnFit) -> None:
        (item,) = found.parts
        assert item is not None
        self._item = _writer(item)

    def pieces(self, column: pa.ListArray) -> list[Piece]:
        items, starts = pieces.items_of(column)
        return _blocks(np.diff(starts), pieces.of_items(self._item.pieces, items, starts))


class _Map:
    def __init__(self, found: ColumnFit) -> None:
        (value,) = found.parts
        assert value is not None
        self._path = found.path
        self._value = _writer(value)

    def pieces(self, column: pa.MapArray) -> list[Piece]:
        entries, starts = pieces.items_of(column)
        return _blocks(np.diff(starts), pieces.of_items(self._entry, entries, starts))

    def _entry(self, entries: pa.StructArray) -> list[Piece]:
        keys = column_values.map_keys(entries.field(0), self._path)
        return [*_sized(keys.cast(pa.binary())), *self._value.pieces(entries.field(1))]


def _blocks(counts: Ints, items: Piece) -> list[Piece]:
    """Returns the pieces of an array or map in each row: count, items, and an end if there are items."""
    end = pieces.masked(Cells(np.zeros((len(counts), 1), np.uint8), None, 1), counts > 0)
    return [pieces.varints(counts), items, end]
