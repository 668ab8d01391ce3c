"""KEY_VALUE: values of two parts (key, value), each with its own schema; column ``struct<key, value>``.

With the encoding INLINE, a payload is ``length, key, length, value``. Lengths are int32, big-endian; -1 means
null. With SEPARATED, the payload is the value alone, and the key is the message's key. The schema's
definition always is ``length, key's definition, length, value's definition``; there -1 means empty. The
schema's properties name the encoding and the kinds of the parts.

A broker accepts producers of both encodings for one topic, and a schema version does not imply the encoding.
So values of the wrong encoding are bad if they can be recognized. With INLINE, the lengths must add up to the
payload's size, and two null parts are accepted only without a message key. With SEPARATED, a payload without
a message key is bad if it is also a valid INLINE payload.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, gather, offsets_of, with_nulls
from pulsar_spark.arrow.join import EncodedField, big_endian, binary_of, join, lengths, to_mask
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.interfaces import DecodedValues, EncodedValues, ValueDecoder, ValueEncoder, type_name
from pulsar_spark.values.value_bounds import ANY_WORK, ValueCost, ValueWork

PartType: TypeAlias = Callable[[Schema], pa.DataType]
PartDecoder: TypeAlias = Callable[[Schema, Schema, pa.DataType], ValueDecoder]
PartEncoder: TypeAlias = Callable[[Schema, pa.DataType], ValueEncoder]

_PARTS = ("key", "value")
_ENCODING = "kv.encoding.type"
_INLINE, _SEPARATED = "INLINE", "SEPARATED"
_LENGTH = struct.Struct(">i")
# The kinds of parts, by the names that the Java and C++ clients write into properties.
_KINDS = {**SchemaType.__members__, "BOOLEAN": SchemaType.BOOL, "BYTES": SchemaType.NONE}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_WAY_OUT = "Use valueFormat=raw, and decode or encode the values in the query"


class KeyValueParts(NamedTuple):
    """The parts of a KEY_VALUE schema; ``is_separated``: keys are the messages' keys, not in the payloads."""

    key: Schema
    value: Schema
    is_separated: bool


def parts_of(schema: Schema) -> KeyValueParts:
    """Splits a schema into its parts.

    Raises:
        SchemaError: the definition or the properties are malformed.
        UnsupportedError: a part is of an unknown kind, or KEY_VALUE.
    """
    encoding = schema.properties.get(_ENCODING, _INLINE)
    if encoding not in (_INLINE, _SEPARATED):
        raise _malformed(f"{_ENCODING} is {encoding[:40]!r}")
    key, value = _split(schema.data)
    return KeyValueParts(
        _part(schema.properties, "key", key),
        _part(schema.properties, "value", value),
        encoding == _SEPARATED,
    )


def schema_of(parts: KeyValueParts) -> Schema:
    """Returns the KEY_VALUE schema that the Java client makes of these parts."""
    properties = {_ENCODING: _SEPARATED if parts.is_separated else _INLINE}
    data = b""
    for name, part in zip(_PARTS, parts[:2], strict=True):
        data += _LENGTH.pack(len(part.data)) + part.data
        properties[f"{name}.schema.name"] = part.name
        properties[f"{name}.schema.type"] = _NAMES[part.type]
        properties[f"{name}.schema.properties"] = json.dumps(
            dict(part.properties), sort_keys=True, separators=(",", ":")
        )
    return Schema(SchemaType.KEY_VALUE, data, properties, "KeyValue")


def _split(data: bytes) -> list[bytes]:
    found, at = [], 0
    for name in _PARTS:
        if len(data) - at < _LENGTH.size:
            raise _malformed(f"its definition ends before that of the {name}")
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        size = 0 if size == -1 else size
        if not 0 <= size <= len(data) - at:
            raise _malformed(f"its definition has fewer than {size} bytes for the {name}")
        found.append(data[at : at + size])
        at += size
    if at != len(data):
        raise _malformed(f"its definition has {len(data) - at} bytes too many")
    return found


def _part(properties: Mapping[str, str], name: str, data: bytes) -> Schema:
    named = properties.get(f"{name}.schema.type", "BYTES")
    kind = _KINDS.get(named)
    if kind is None or kind is SchemaType.KEY_VALUE:
        raise UnsupportedError(f"the {name} of a KEY_VALUE schema is of type {named[:40]!r}", advice=_WAY_OUT)
    text = properties.get(f"{name}.schema.properties") or "{}"
    try:
        own = json.loads(text)
    except (ValueError, RecursionError):
        own = None
    if not isinstance(own, dict):
        raise _malformed(f"{name}.schema.properties is not a JSON object")
    strings = {each: value if isinstance(value, str) else json.dumps(value) for each, value in own.items()}
    return Schema(kind, data, strings, properties.get(f"{name}.schema.name", ""))


def _malformed(why: str) -> SchemaError:
    return SchemaError(f"malformed KEY_VALUE schema: {why}", advice=_WAY_OUT)


def column_type(schema: Schema, part: PartType) -> pa.DataType:
    """Returns the type of a column; ``part`` returns the type of a part. See ``formats.column_type``."""
    fields = []
    for name, own in zip(_PARTS, parts_of(schema)[:2], strict=True):
        with _named(name):
            fields.append(pa.field(name, part(own)))
    return pa.struct(fields)


def decoder(writer: Schema, reader: Schema, target: pa.DataType, part: PartDecoder) -> ValueDecoder:
    """Returns the decoder, which decodes only the parts that ``target`` has; see ``formats.decoder``."""
    written, wanted = parts_of(writer), parts_of(reader)
    decoders = {}
    for name, kind in _fields(target, "cannot be read as").items():
        with _named(name):
            decoders[name] = part(getattr(written, name), getattr(wanted, name), kind)
    return _KeyValueDecoder(target, decoders, written.is_separated)


def encoder(schema: Schema, source: pa.DataType, part: PartEncoder) -> ValueEncoder:
    """Returns the encoder of rows of ``struct<key, value>``; see ``formats.encoder``."""
    parts = parts_of(schema)
    fields = _fields(source, "cannot be written from")
    encoders = []
    for name, own in zip(_PARTS, parts[:2], strict=True):
        if name not in fields:
            raise SchemaError(f"rows of type {source} have no {name}, which a KEY_VALUE schema requires")
        with _named(name):
            encoders.append(part(own, fields[name]))
    key, value = encoders
    return partial(_encode, key, value, parts.is_separated)


def _fields(kind: pa.DataType, what: str) -> dict[str, pa.DataType]:
    names = [field.name for field in kind] if pa.types.is_struct(kind) else [""]
    if not set(names) <= set(_PARTS) or len(set(names)) < len(names):
        raise SchemaError(
            f"KEY_VALUE values {what} {type_name(kind)}",
            advice="Use a struct, or columns, named key and value",
        )
    return {field.name: field.type for field in kind}


@contextmanager
def _named(part: str) -> Iterator[None]:
    try:
        yield
    except (SchemaError, UnsupportedError) as error:
        raise type(error)(f"the {part} of a KEY_VALUE schema: {error.what}", advice=error.advice) from error


# ---------------------------------------------------------------------------------------- reading


class _Halves(NamedTuple):
    """Keys and values of n payloads, binary[n]; flags of payloads that cannot be split, bool[n]."""

    key: pa.BinaryArray
    value: pa.BinaryArray
    is_bad: Flags


@dataclass(frozen=True, slots=True)
class _KeyValueDecoder:
    type: pa.DataType
    parts: Mapping[str, ValueDecoder]  # decoders of the requested parts
    is_separated: bool

    @property
    def cost(self) -> ValueCost:
        costs = [part.cost for part in self.parts.values()]
        return ValueCost(sum(each.row for each in costs), max((each.growth for each in costs), default=0.0))

    @property
    def plan(self) -> Hashable:
        return self.type, self.is_separated, *((name, part.plan) for name, part in self.parts.items())

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ANY_WORK
    ) -> DecodedValues:
        is_null = to_mask(values.is_null())
        if self.is_separated:
            halves = _Halves(keys, values, np.zeros(len(values), np.bool_))
            is_null = is_null & to_mask(keys.is_null())
        else:
            halves = _split_inline(values, keys)
        columns, is_bad = self._columns(halves, work)
        if self.is_separated:  # checks only rows that are good so far
            is_bad |= self._are_inline(values, keys, ~is_bad, work)
        is_null = is_null | is_bad
        validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
        column = pa.Array.from_buffers(self.type, len(values), [validity], children=columns)
        return DecodedValues(column, is_bad if is_bad.any() else None)

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        values, keys = pa.array([value], pa.binary()), pa.array([key], pa.binary())
        if self.is_separated:
            are_inline = self._are_inline(values, keys, np.ones(1, np.bool_), ANY_WORK)
            halves = _Halves(keys, values, are_inline)
        else:
            halves = _split_inline(values, keys)
        if halves.is_bad.any():
            return _MIXED_UP if self.is_separated else _why_not_inline(value or b"", key)
        for name, own in self.parts.items():
            (half,) = getattr(halves, name).to_pylist()
            if own.decode(getattr(halves, name), keys).is_bad is not None:
                return f"{name}: {own.explain(half, None)}"
        return "both parts are values"

    def _columns(self, halves: _Halves, work: ValueWork) -> tuple[list[pa.Array], Flags]:
        """Decodes the requested parts; returns their columns, and flags of the rows with a bad part."""
        columns, is_bad = [], halves.is_bad.copy()
        for name, own in self.parts.items():
            found = own.decode(getattr(halves, name), halves.key, work)
            columns.append(found.column)
            if found.is_bad is not None:
                is_bad |= found.is_bad
        return columns, is_bad | work.refused if work.is_limited else is_bad

    def _are_inline(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, among: Flags, work: ValueWork
    ) -> Flags:
        """Flags rows of ``among`` with a null key and an INLINE payload, and all rows refused by ``work``."""
        are_inline = among & to_mask(keys.is_null()) & to_mask(values.is_valid())
        rows = np.flatnonzero(are_inline)
        if len(rows):
            halves = _split_inline(values.take(pa.array(rows)), keys.take(pa.array(rows)))
            _, is_bad = self._columns(halves, work.part(rows))
            has_part = to_mask(halves.key.is_valid()) | to_mask(halves.value.is_valid())
            are_inline[rows] = has_part & ~is_bad
        return are_inline | work.refused if work.is_limited else are_inline


_MIXED_UP = (
    "the message has no key, and its value contains a key and a value: its form is "
    f"{_ENCODING}={_INLINE}, but its schema says {_SEPARATED}"
)


def _split_inline(values: pa.BinaryArray, keys: pa.BinaryArray) -> _Halves:
    """Splits INLINE payloads into keys and values; a null payload has null parts."""
    has = to_mask(values.is_valid())
    body = values.buffers()[2]
    if body is None or body.size < 2 * _LENGTH.size:
        return _Halves(pa.nulls(len(values), pa.binary()), pa.nulls(len(values), pa.binary()), has)
    bounds = offsets_of(values).astype(np.int64)
    at, end = bounds[:-1], bounds[1:]
    numbers: npt.NDArray[np.int32] = np.ndarray((body.size - 3,), ">i4", body, strides=(1,))
    good = has & (end - at >= 2 * _LENGTH.size)
    key_size = numbers[np.where(good, at, 0)].astype(np.int64)
    key_end = at + 4 + np.maximum(key_size, 0)
    good &= (key_size >= -1) & (key_end + 4 <= end)
    value_size = numbers[np.where(good, key_end, 0)].astype(np.int64)
    good &= (value_size >= -1) & (key_end + 4 + np.maximum(value_size, 0) == end)
    good &= (key_size >= 0) | (value_size >= 0) | to_mask(keys.is_null())
    key = gather(body, np.where(good, at + 4, at), np.where(good, key_end, at), good & (key_size >= 0))
    value = gather(body, np.where(good, key_end + 4, at), np.where(good, end, at), good & (value_size >= 0))
    return _Halves(key, value, has & ~good)


def _why_not_inline(value: bytes, key: bytes | None) -> str:
    at = 0
    for name in _PARTS:
        if len(value) - at < _LENGTH.size:
            return f"{len(value)} bytes end before the length of the {name}"
        (size,) = _LENGTH.unpack_from(value, at)
        at += _LENGTH.size
        if not -1 <= size <= len(value) - at:
            return f"{name}: a length of {size}, but {len(value) - at} bytes follow"
        at += max(size, 0)
    if at < len(value):
        return f"{len(value) - at} bytes remain after the value"
    return f"it has no parts, and the message has a key: its producer may use {_ENCODING}={_SEPARATED}"


# ---------------------------------------------------------------------------------------- writing


def _encode(
    encode_key: ValueEncoder, encode_value: ValueEncoder, is_separated: bool, rows: pa.Array
) -> EncodedValues:
    columns = {field.name: column for field, column in zip(rows.type, rows.flatten(), strict=True)}
    with _named("key"):
        key = encode_key(columns["key"]).values
    with _named("value"):
        value = encode_value(columns["value"]).values
    if is_separated:
        return EncodedValues(value, key)
    joined = join([*_with_length(key), *_with_length(value)], len(rows))
    values = binary_of(joined.buffer, joined.offsets)
    if rows.null_count:
        values = with_nulls(values, to_mask(rows.is_null()))
    return EncodedValues(values)


def _with_length(half: pa.BinaryArray) -> list[EncodedField]:
    sizes = lengths(half)
    own = np.where(to_mask(half.is_valid()), sizes, -1) if half.null_count else sizes
    return [big_endian(own), EncodedField(half, sizes)]
