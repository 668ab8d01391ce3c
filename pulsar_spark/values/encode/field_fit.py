"""Finds the field of each column of rows in a schema of Avro's JSON, and whether the column fits.

A column fits a field of the same type, or of a type that holds all its values: int -> long -> float ->
double, string <-> bytes, wider decimals. A double column fits a float field. Values that would lose digits,
such as a large long in a double, are found when rows are written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple

import pyarrow as pa

from pulsar_spark.errors import SchemaError
from pulsar_spark.values.avro.avro_types import (
    LOCAL_TIMESTAMPS,
    TIMESTAMPS,
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    arrow_type,
    branch_name,
    field_path,
    is_member_struct,
    is_null,
    shown_name,
)
from pulsar_spark.values.interfaces import is_variant, type_name
from pulsar_spark.values.time_units import time_kind

_MAX_LISTED = 50  # maximum columns in an error

_TIMES: Final = {
    "date": "date",
    **dict.fromkeys(TIMESTAMPS, "timestamp"),
    **dict.fromkeys(LOCAL_TIMESTAMPS, "timestamp_ntz"),
}
# Spark's names of the types that fit a field, by its logical type or its kind.
_TEXTS: Final = frozenset(("string", "binary"))
_INTS: Final = frozenset(("tinyint", "smallint", "int"))
_LONGS: Final = _INTS | {"bigint"}
_FORMS: Final = {
    "time-millis": _INTS,
    "time-micros": _LONGS,
    **dict.fromkeys(("json", "char", "chars", "number"), _TEXTS),
}
_FIT: Final = {
    "null": frozenset(("void",)),
    "boolean": frozenset(("boolean",)),
    "int": _INTS,
    "long": _LONGS,
    "float": _LONGS | {"float", "double"},
    "double": _LONGS | {"float", "double"},
    "bytes": _TEXTS,
    "string": _TEXTS,
}


@dataclass(frozen=True, slots=True)
class ColumnFit:
    """The schema's field for a column, with the fields for its nested columns in ``parts``.

    Attributes:
        path: path of the field: names joined by dots, ``[]`` for items, ``{}`` for values of a map; empty for
            the root.
        avro: type of the written values; a union only if the column is a struct of the union's members.
        branch: index of ``avro`` in the field's union; None: ``avro`` is the whole type of the field.
        null: index of null in the field's union; None: the field is not a union with null.
        parts: ColumnFit of each nested column: of a record's fields (None: the field has no column), of a
            union's members, of an array's items, or of a map's values.
        columns: indexes in the struct column, one for each part that is not None.
    """

    path: str
    avro: AvroType
    branch: int | None = None
    null: int | None = None
    parts: tuple[ColumnFit | None, ...] = ()
    columns: tuple[int, ...] = ()


class NewField(NamedTuple):
    """A column without a field in the schema; ``record``: full name of the record that lacks the field."""

    record: str
    path: str
    column: pa.Field


class _Report(NamedTuple):
    """``problems``: error texts. ``new``: columns without a field; None: such columns are errors, too."""

    problems: list[str]
    new: list[NewField] | None = None


def fit(avro: AvroType, kind: pa.DataType) -> ColumnFit:
    """Finds the field of each column.

    Raises SchemaError with all columns that do not fit, and all fields with neither a column nor a default.
    """
    report = _Report([])
    found = _fit(avro, kind, "", report)
    if found is None:
        raise _misfits(report.problems)
    return found


def new_fields(avro: AvroType, kind: pa.DataType) -> list[NewField]:
    """Returns the columns that have no field, at any depth; raises SchemaError for other misfits."""
    new: list[NewField] = []
    report = _Report([], new)
    if _fit(avro, kind, "", report) is None:
        raise _misfits(report.problems)
    return new


def _misfits(problems: list[str]) -> SchemaError:
    listed = problems[:_MAX_LISTED]
    more = [f"and {len(problems) - _MAX_LISTED} more"] if len(problems) > _MAX_LISTED else []
    return SchemaError(
        f"the rows do not fit the topic's schema: {'; '.join(listed + more)}",
        advice="Use select and cast, so that the topic's schema has a field of the same name and type "
        "for each column",
    )


def _fit(avro: AvroType, kind: pa.DataType, path: str, report: _Report) -> ColumnFit | None:
    if isinstance(avro, AvroUnion):
        return _union(avro, kind, path, report)
    if isinstance(avro, AvroRecord) and pa.types.is_struct(kind) and not is_variant(kind):
        return _record(avro, kind, path, report)
    if isinstance(avro, AvroArray) and pa.types.is_list(kind):
        part = _fit(avro.items, kind.value_type, f"{path}[]", report)
        return None if part is None else ColumnFit(path, avro, parts=(part,), columns=(0,))
    if isinstance(avro, AvroMap) and pa.types.is_map(kind) and type_name(kind.key_type) == "string":
        part = _fit(avro.values, kind.item_type, f"{path}{{}}", report)
        return None if part is None else ColumnFit(path, avro, parts=(part,), columns=(0,))
    if _is_scalar_fit(avro, kind):
        return ColumnFit(path, avro)
    report.problems.append(f"{shown_name(path)} is {type_name(kind)}, but the topic has {_avro_name(avro)}")
    return None


def _record(avro: AvroRecord, kind: pa.StructType, path: str, report: _Report) -> ColumnFit | None:
    problems = report.problems
    before = len(problems)
    columns = {field.name: number for number, field in enumerate(kind)}
    known = _field_names(avro)
    numbers: dict[str, int] = {}  # field name -> index of its column in the struct
    lower = {name.lower(): name for name in known}
    for name, count in Counter(field.name for field in kind).items():
        if count > 1:
            problems.append(f"{shown_name(field_path(path, name))} exists {count} times")
        field_name = known.get(name)
        if field_name is not None:
            if numbers.setdefault(field_name, columns[name]) != columns[name]:
                own = shown_name(field_path(path, name))
                problems.append(f"{own} and another column are the topic's {shown_name(field_name)}")
            continue
        similar = lower.get(name.lower())
        if similar is not None:
            own = shown_name(field_path(path, name))
            problems.append(
                f"{own} differs from the topic's {shown_name(similar)} only in upper and lower case"
            )
        elif report.new is None:
            problems.append(f"{shown_name(field_path(path, name))} has no field in the topic's schema")
        else:
            report.new.append(NewField(avro.name, path, kind[columns[name]]))
    parts: list[ColumnFit | None] = []
    for field in avro.fields:
        below = field_path(path, field.name)
        number = numbers.get(field.name)
        if number is not None:
            parts.append(_fit(field.type, kind[number].type, below, report))
        else:
            if not field.has_default:
                problems.append(
                    f"{shown_name(below)} is missing, and the topic's schema has no default for it"
                )
            parts.append(None)
    if len(problems) > before:
        return None
    found = tuple(numbers[field.name] for field in avro.fields if field.name in numbers)
    return ColumnFit(path, avro, parts=tuple(parts), columns=found)


def _field_names(avro: AvroRecord) -> dict[str, str]:
    """Returns column name -> name of its field; a field's columns may have its name or an alias."""
    names = {field.name: field.name for field in avro.fields}
    for field in avro.fields:
        for alias in field.aliases:
            names.setdefault(alias, field.name)
    return names


def _union(union: AvroUnion, kind: pa.DataType, path: str, report: _Report) -> ColumnFit | None:
    null = next((number for number, each in enumerate(union.branches) if is_null(each)), None)
    if is_member_struct(union) and _has_member_names(union, kind):
        return _members(union, kind, path, null, report)
    found: ColumnFit | None = None
    new: list[NewField] | None = None
    problems: list[str] = []
    name = type_name(kind)
    if name == "void" and null is not None:
        return ColumnFit(path, union.branches[null], null, null)
    for number, each in enumerate(union.branches):
        if is_null(each):
            continue
        own = _Report(problems, None if report.new is None else [])
        one = _fit(each, kind, path, own)
        if one is None:
            continue
        chosen = ColumnFit(path, one.avro, number, null, one.parts, one.columns)
        if _is_exact(each, name) and not own.new:
            return chosen
        if found is None:
            found, new = chosen, own.new
    if found is None:
        several = f"{shown_name(path)} is {name}, but the topic has a union of other types"
        report.problems.extend(problems if len(union.members) == 1 else [several])
    elif report.new is not None and new is not None:
        report.new.extend(new)
    return found


def _is_exact(avro: AvroType, name: str) -> bool:
    """Whether a union's branch ``avro`` fits a column of type ``name`` best, so no other need be tried."""
    if isinstance(avro, AvroPrimitive) and not avro.logical:
        return name == type_name(arrow_type(avro)) or (avro.kind == "int" and name in _INTS)
    return not isinstance(avro, AvroEnum | AvroFixed)


def _has_member_names(union: AvroUnion, kind: pa.DataType) -> bool:
    names = {f"member{number}" for number in range(len(union.members))}
    return pa.types.is_struct(kind) and len(kind) > 0 and {field.name for field in kind} <= names


def _members(
    union: AvroUnion, kind: pa.StructType, path: str, null: int | None, report: _Report
) -> ColumnFit | None:
    numbers = [number for number, each in enumerate(union.branches) if not is_null(each)]
    parts = []
    for field in kind:
        number = numbers[int(field.name.removeprefix("member"))]
        part = _fit(union.branches[number], field.type, field_path(path, field.name), report)
        if part is not None:
            parts.append(ColumnFit(part.path, part.avro, number, None, part.parts, part.columns))
    if len(parts) < len(kind):
        return None
    return ColumnFit(path, union, None, null, tuple(parts), tuple(range(len(kind))))


def _is_scalar_fit(avro: AvroType, kind: pa.DataType) -> bool:
    name = type_name(kind)
    if pa.types.is_time(kind):
        return time_kind(avro).startswith("time-")
    if isinstance(avro, AvroEnum):
        return name == "string"
    if isinstance(avro, AvroPrimitive | AvroFixed) and avro.logical == "decimal":
        if not pa.types.is_decimal128(kind):
            return False
        digits: int = kind.precision - kind.scale
        return bool(0 <= kind.scale <= avro.scale) and digits <= avro.precision - avro.scale
    if isinstance(avro, AvroFixed):
        return name == "binary"
    if isinstance(avro, AvroPrimitive):
        fitting = _FORMS.get(avro.logical) or _FIT[avro.kind]
        return name == _TIMES[avro.logical] if avro.logical in _TIMES else name in fitting
    return False


def _avro_name(avro: AvroType) -> str:
    if isinstance(avro, AvroPrimitive | AvroFixed) and avro.logical:
        precise = f"({avro.precision},{avro.scale})" if avro.logical == "decimal" else ""
        return avro.logical + precise
    if isinstance(avro, AvroRecord | AvroEnum | AvroFixed):
        return f"{type(avro).__name__.removeprefix('Avro').lower()} {shown_name(avro.name)}"
    return branch_name(avro)


_MAX_FIXED = 1 << 16  # maximum bytes of a fixed in a sample; encoding the sample of a larger fixed fails


def sample_of(kind: pa.DataType, found: ColumnFit | None = None) -> object:
    """Returns a value that a field accepts, to test whether a schema can be written.

    Lists and maps have one item. pyarrow can convert the value to ``kind``. ``found``: None for schemas of
    primitive kinds.
    """
    avro = None if found is None else found.avro
    if found is None or isinstance(avro, AvroEnum | AvroFixed):
        return _plain(kind, avro)
    parts = [part for part in found.parts if part is not None]
    if isinstance(avro, AvroUnion):
        return {kind[0].name: sample_of(kind[0].type, parts[0])}  # a row has exactly one member
    if isinstance(avro, AvroRecord):
        columns = zip(found.columns, parts, strict=True)
        return {kind[number].name: sample_of(kind[number].type, part) for number, part in columns}
    if isinstance(avro, AvroArray):
        return [sample_of(kind.value_type, parts[0])]
    if isinstance(avro, AvroMap):
        return [("", sample_of(kind.item_type, parts[0]))]
    return _plain(kind, avro)


def _plain(kind: pa.DataType, avro: object) -> object:
    if pa.types.is_decimal(kind):
        return Decimal(0)
    if isinstance(avro, AvroEnum):
        return next(iter(avro.symbols), "")
    if isinstance(avro, AvroFixed):
        return bytes(min(avro.size, _MAX_FIXED))
    if pa.types.is_null(kind):
        return None
    if pa.types.is_boolean(kind):
        return False
    is_number = pa.types.is_primitive(kind)  # including dates and times
    return 0 if is_number else "0"  # "0" fits every field of text, also of JSON, a number or a character
