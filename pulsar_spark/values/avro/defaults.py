"""Defaults of fields, as JSON of the schema -> values of columns."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from pulsar_spark.errors import SchemaError
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    arrow_type,
    is_member_struct,
    is_null,
)


def default_array(field: AvroField, target: pa.DataType, path: str) -> pa.Array:
    """What a field has where the writer knows nothing of it: an array of one item.

    A field without a default is null there, and so is one whose default is null, whatever its type.

    Raises:
        SchemaError: the default is no value of the field's type.
    """
    if not field.has_default or field.default is None:
        return pa.nulls(1, target)
    try:
        return pa.array([_value(field.type, field.default, target)], target)
    except (_NoValueError, pa.ArrowException, OverflowError, UnicodeError):
        raise SchemaError(
            f"the default of field {path[:100]!a} of the topic's schema is not a value of its type",
            advice="Read the topic with valueFormat=raw",
        ) from None


class _NoValueError(Exception):
    pass


def _value(avro: AvroType, json: object, target: pa.DataType) -> object:
    """What pyarrow makes an item of the target's type of."""
    if isinstance(avro, AvroUnion):
        return _union(avro, json, target)
    if isinstance(avro, AvroRecord):
        return _record(avro, json, target)
    if isinstance(avro, AvroArray):
        if not isinstance(json, list):
            raise _NoValueError
        return [_value(avro.items, each, target.value_type) for each in json]
    if isinstance(avro, AvroMap):
        if not isinstance(json, dict):
            raise _NoValueError
        return [(key, _value(avro.values, each, target.item_type)) for key, each in json.items()]
    if isinstance(avro, AvroEnum):
        if json not in avro.symbols:
            raise _NoValueError
        return json
    if isinstance(avro, AvroFixed) or avro.kind == "bytes":
        return _bytes(avro, json, target)
    return _primitive(avro, json, target)


def _union(avro: AvroUnion, json: object, target: pa.DataType) -> object:
    if json is None:
        if any(is_null(branch) for branch in avro.branches):
            return None
        raise _NoValueError
    for position, member in enumerate(avro.members):
        try:
            if not is_member_struct(avro):
                return _value(member, json, target)
            index = target.get_field_index(f"member{position}")
            # A member that is not wanted is tried, too: else the default would be of a later one.
            value = _value(member, json, target[index].type if index >= 0 else arrow_type(member))
        except _NoValueError:
            continue
        return {f"member{position}": value} if index >= 0 else {}
    raise _NoValueError


def _record(avro: AvroRecord, json: object, target: pa.DataType) -> object:
    if not isinstance(json, dict):
        raise _NoValueError
    values = {}
    for field in avro.fields:
        index = target.get_field_index(field.name) if pa.types.is_struct(target) else -1
        if index >= 0:
            value = json.get(field.name, field.default)
            values[field.name] = None if value is None else _value(field.type, value, target[index].type)
    return values


def _bytes(avro: AvroPrimitive | AvroFixed, json: object, target: pa.DataType) -> object:
    if not isinstance(json, str):
        raise _NoValueError
    try:
        value = json.encode("latin-1")
    except UnicodeEncodeError:
        raise _NoValueError from None
    if isinstance(avro, AvroFixed) and len(value) != avro.size:
        raise _NoValueError
    if avro.logical != "decimal":
        return value
    number = int.from_bytes(value, "big", signed=True)
    if not value or abs(number) >= 10**avro.precision:
        raise _NoValueError
    digits = tuple(int(digit) for digit in str(abs(number)))
    return Decimal((int(number < 0), digits, -avro.scale))


def _primitive(avro: AvroPrimitive, json: object, target: pa.DataType) -> object:
    kind = avro.kind
    if kind == "null":
        if json is not None:
            raise _NoValueError
    elif kind == "boolean":
        if not isinstance(json, bool):
            raise _NoValueError
    elif kind == "string":
        if not isinstance(json, str):
            raise _NoValueError
        json.encode()
    elif kind in ("int", "long"):
        bits = 32 if kind == "int" else 64
        if type(json) is not int or not -(1 << bits - 1) <= json < 1 << bits - 1:
            raise _NoValueError
        if avro.logical.endswith("-millis"):
            return json * 1000
        return float(json) if pa.types.is_floating(target) else json
    elif isinstance(json, bool) or not isinstance(json, int | float):
        raise _NoValueError
    else:
        return float(json)
    return json
