"""Encodes columns as JSON by Arrow's kernels, one field of all rows at a time, as ``avro_write`` does.

Like Java's client, this module leaves null fields out, because readers read a missing field as null, whatever
its default. So a field without a column is written with its default. Nulls in arrays and maps are written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.arrow.join import EncodedField, shared_field
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroUnion,
    is_null,
)
from pulsar_spark.values.avro.defaults import WAY_OUT, Defaults
from pulsar_spark.values.encode import column_values, pieces
from pulsar_spark.values.encode.field_fit import ColumnFit, fit
from pulsar_spark.values.encode.pieces import Piece, Write
from pulsar_spark.values.interfaces import ValueEncoder
from pulsar_spark.values.json import json_text
from pulsar_spark.values.json.json_text import form_text
from pulsar_spark.values.json_types import is_pairs, parse

# A part of the JSON of n rows: a Piece with own bytes for each row, or bytes that are equal in all rows.
_Part: TypeAlias = "Piece | bytes"

_QUOTE: Final = b'"'


def encoder(schema: Schema, source: pa.DataType) -> ValueEncoder:
    """Returns the encoder of rows; see ``avro_write.encoder``."""
    write = _whole(_writer(fit(parse(schema), source)))
    return column_values.row_encoder(partial(pieces.values_of, write))


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the values of one field.

    Attributes:
        write: function that writes values without quotes; must not get nulls, unless ``is_scalar``.
        is_scalar: True if values are neither objects nor arrays.
    """

    path: str
    is_nullable: bool
    write: Write
    quote: bytes = b""
    is_scalar: bool = False

    def has(self, column: pa.Array) -> Flags | None:
        """Returns flags of the rows that are not null; None: no row is null.

        Raises Misfit if a row is null, but the field is not nullable.
        """
        found = column_values.validity(column)
        if found is not None and not self.is_nullable:
            column_values.require(found, self.path, "null, but the topic's field is not nullable")
        return found

    def some(self, column: pa.Array, has: Flags) -> list[Piece]:
        """Writes values without quotes, only in the rows whose flag in ``has`` is set."""
        if self.is_scalar:
            return [pieces.masked(piece, has) for piece in self.write(column)]
        return [pieces.of_some(self.write, column, has)]


def _whole(writer: _Writer) -> Write:
    return lambda column: _values(writer, column, b"")


def _writer(found: ColumnFit) -> _Writer:
    avro, is_nullable = found.avro, found.null is not None or is_null(found.avro)
    if isinstance(avro, AvroUnion):
        return _Writer(found.path, is_nullable, _members(found))
    if isinstance(avro, AvroRecord):
        return _Writer(found.path, is_nullable, _record(found, avro))
    if isinstance(avro, AvroArray):
        return _Writer(found.path, is_nullable, (_pairs if _is_object(found, avro) else _array)(found))
    if isinstance(avro, AvroMap):
        return _Writer(found.path, is_nullable, _map(found))
    write, quote = _scalar(found)
    return _Writer(found.path, is_nullable, write, quote, is_scalar=True)


def _scalar(found: ColumnFit) -> tuple[Write, bytes]:
    """Returns the function that writes a scalar field without quotes, and the quote; empty: no quotes."""
    avro, path = found.avro, found.path
    if isinstance(avro, AvroEnum):
        return lambda column: _symbols(column, avro, path), _QUOTE
    assert isinstance(avro, AvroPrimitive | AvroFixed)
    if is_null(avro):
        return lambda column: [], b""
    if avro.logical == "decimal":
        return lambda column: json_text.plain_text(
            column_values.decimal_column(column, avro.precision, avro.scale)
        ), b""
    if isinstance(avro, AvroFixed):
        return lambda column: json_text.base64_text(
            column_values.sized_column(column, avro.size, path)
        ), _QUOTE
    if isinstance(avro, AvroPrimitive) and avro.form == "number":
        return lambda column: json_text.number_text(column, avro.logical, path), b""
    if avro.logical == "date" or "timestamp" in avro.logical:
        make = json_text.date_text if avro.logical == "date" else json_text.timestamp_text
        return lambda column: make(column, path), _QUOTE
    if avro.logical:
        return form_text(avro.logical, path)
    if avro.kind in ("float", "double"):
        number = np.float32 if avro.kind == "float" else np.float64
        return lambda column: json_text.float_text(column, number, path), b""
    if avro.kind == "bytes":
        return lambda column: json_text.base64_text(column_values.binary_column(column)), _QUOTE
    if avro.kind == "string":
        return lambda column: json_text.string_text(column_values.string_column(column, path)), _QUOTE
    return json_text.plain_text, b""


def _symbols(column: pa.Array, enum: AvroEnum, path: str) -> list[Piece]:
    column_values.symbol_numbers(column, enum, path)
    return json_text.string_text(column_values.string_column(column, path))


class _Field(NamedTuple):
    """A field of a record; its values are the column at index ``number``, or ``text`` in all rows."""

    key: bytes
    writer: _Writer | None
    number: int
    text: bytes = b""


def _record(found: ColumnFit, avro: AvroRecord) -> Write:
    columns = iter(found.columns)
    defaults = Defaults(WAY_OUT)
    fields: list[_Field] = []
    for field, part in zip(avro.fields, found.parts, strict=True):
        key = json.dumps(field.name, ensure_ascii=False).encode() + b":"
        if part is not None:
            fields.append(_Field(key, _writer(part), next(columns)))
        elif field.default is not None:
            text = defaults.written(field, found.path, lambda part: _whole(_writer(part)), is_exact=False)
            fields.append(_Field(key, None, -1, text))

    def write(column: pa.StructArray) -> list[Piece]:
        parts: list[_Part] = []
        is_any: Flags | bool = False  # flags of the rows that already have a field
        for key, writer, number, text in fields:
            child = None if writer is None else column.field(number)
            has = None if writer is None else writer.has(child)
            quote = b"" if writer is None else writer.quote
            head = key + quote
            if has is None and isinstance(is_any, bool):
                parts.append((b"," if is_any else b"{") + head)
            else:
                form = np.where(is_any, np.int8(2), np.int8(1))
                parts.append(_choice([b"", b"{" + head, b"," + head], form if has is None else form * has))
            if writer is None:
                parts.append(text)
                is_any = True
            elif has is None:
                parts += [*writer.write(child), quote]
                is_any = True
            else:
                parts += [*writer.some(child, has), *_where(has, quote)]
                is_any = is_any | has
        if isinstance(is_any, bool):
            parts.append(b"}" if is_any else b"{}")
        else:
            parts.append(_choice([b"{}", b"}"], is_any))
        return _pieces(parts)

    return write


def _members(found: ColumnFit) -> Write:
    writers = [_writer(part) for part in found.parts if part is not None]

    def write(column: pa.StructArray) -> list[Piece]:
        members, has, count = pieces.members_of(column, found.path, is_nullable=found.null is not None)
        parts: list[_Part] = _where(count == 0, b"null")
        for writer, member, here in zip(writers, members, has, strict=True):
            quote = _where(here, writer.quote)
            parts += [*quote, *writer.some(member, here), *quote]
        return _pieces(parts)

    return write


def _array(found: ColumnFit) -> Write:
    (item,) = found.parts
    assert item is not None
    write_item = _whole(_writer(item))
    return lambda column: _items(column, b"[]", b"", write_item)


def _is_object(found: ColumnFit, avro: AvroArray) -> bool:
    """Whether an array is written as an object, as Java writes maps with other keys than strings."""
    (item,) = found.parts
    assert item is not None
    key, value = item.parts if is_pairs(avro) else (None, None)
    # A key of logical type json may be an object or array, which cannot be the name of a field.
    is_plain = key is not None and _writer(key).is_scalar and getattr(key.avro, "logical", "") != "json"
    return is_plain and value is not None


def _pairs(found: ColumnFit) -> Write:
    (item,) = found.parts
    assert item is not None
    pair = _writer(item)
    key_writer, value_writer = (_writer(part) for part in item.parts if part is not None)

    def write_entry(entries: pa.StructArray) -> list[Piece]:
        pair.has(entries)
        key, value = (entries.field(number) for number in item.columns)
        has = column_values.validity(key)
        if has is not None:
            column_values.require(has, found.path, "a map with null as a key")
        return [*key_writer.write(key), *_values(value_writer, value, b'":')]

    return lambda column: _items(column, b"{}", _QUOTE, write_entry)


def _map(found: ColumnFit) -> Write:
    (value,) = found.parts
    assert value is not None
    writer = _writer(value)

    def write(column: pa.MapArray) -> list[Piece]:
        _, starts = pieces.items_of(column)

        def write_entry(entries: pa.StructArray) -> list[Piece]:
            keys = column_values.map_keys(entries.field(0), found.path)
            column_values.require_distinct(keys, starts, found.path)
            return [*json_text.string_text(keys), *_values(writer, entries.field(1), b'":')]

        return _items(column, b"{}", _QUOTE, write_entry)

    return write


def _items(
    column: pa.ListArray | pa.MapArray, brackets: bytes, quote: bytes, write_item: Write
) -> list[Piece]:
    """Writes arrays or objects; ``quote``: text before each item, after the bracket or comma."""
    items, starts = pieces.items_of(column)
    heads, is_later = [brackets[:1] + quote, b"," + quote], _is_later(starts)
    found = pieces.of_items(lambda items: [_choice(heads, is_later), *write_item(items)], items, starts)
    return [found, _choice([brackets, brackets[1:]], np.diff(starts) > 0)]


def _values(writer: _Writer, column: pa.Array, before: bytes) -> list[Piece]:
    """Writes in each row the text ``before``, and then the value with its quotes; null becomes ``null``."""
    has = writer.has(column)
    if has is None:
        return _pieces([before + writer.quote, *writer.write(column), writer.quote])
    head = _choice([before + b"null", before + writer.quote], has)
    return _pieces([head, *writer.some(column, has), *_where(has, writer.quote)])


def _is_later(starts: Ints) -> Flags:
    found = np.ones(int(starts[-1]), np.bool_)
    found[starts[:-1][np.diff(starts) > 0]] = False
    return found


def _where(has: Flags, text: bytes) -> list[_Part]:
    return [_choice([b"", text], has)] if text else []


def _choice(table: Sequence[bytes], numbers: npt.NDArray[np.int8] | Flags) -> EncodedField:
    """Writes ``table[number]`` in each row."""
    sizes = np.array([len(text) for text in table], np.int64)
    codes = numbers.astype(np.int8, copy=False)
    return EncodedField(pa.array(table, pa.binary()).take(pa.array(codes)), sizes[codes])


def _pieces(parts: Sequence[_Part]) -> list[Piece]:
    found: list[Piece] = []
    text = b""
    for part in parts:
        if isinstance(part, bytes):
            text += part
            continue
        if text:
            found.append(shared_field(text))
            text = b""
        found.append(part)
    return [*found, shared_field(text)] if text else found
