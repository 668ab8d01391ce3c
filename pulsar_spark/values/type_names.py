"""Spark's names of Arrow types, for errors."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.time64("ns"): "time(6)",
}


def type_name(kind: pa.DataType) -> str:
    """Returns Spark's name of an Arrow type for errors, or Arrow's if Spark has none."""
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None:
        return "timestamp"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "variant" if is_variant(kind) else "struct"
    return _NAMES.get(kind) or ("void" if pa.types.is_null(kind) else str(kind))


def is_variant(kind: pa.StructType) -> bool:
    """Whether a struct is Spark's form of a variant, geometry or geography."""
    marks = (b"variant", b"geometry", b"geography")
    return any(mark in (field.metadata or {}) for field in kind for mark in marks)
