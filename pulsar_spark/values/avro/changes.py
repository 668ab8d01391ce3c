"""What a newer version of an Avro type has and an older one of the same column type cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroMap,
    AvroRecord,
    AvroType,
    AvroUnion,
    is_null,
)
from pulsar_spark.values.avro.resolve import Branches, with_siblings


def new_values(newer: AvroType, older: AvroType, path: str = "") -> Iterator[str]:
    """Say which values of the newer type the older one cannot hold: nulls and symbols, at any depth.

    Args:
        newer: the type of the values.
        older: what they are to be read as; fields that it lacks are left out.
        path: of the field.

    Yields:
        Words such as ``x as null`` and ``e as 'Q'``.
    """
    where = path or "the value"
    if _is_nullable(newer) and not _is_nullable(older):
        yield f"{where} as null"
    wanted = Branches(_branches(older))
    siblings = with_siblings(newer)
    for each in _branches(newer):
        known = next(wanted.candidates(each, has_siblings=type(each) in siblings), None)
        if isinstance(each, AvroRecord) and isinstance(known, AvroRecord):
            yield from _of_record(each, known, path)
        elif isinstance(each, AvroArray) and isinstance(known, AvroArray):
            yield from new_values(each.items, known.items, f"{path}[]")
        elif isinstance(each, AvroMap) and isinstance(known, AvroMap):
            yield from new_values(each.values, known.values, f"{path}{{}}")
        elif isinstance(each, AvroEnum) and isinstance(known, AvroEnum):
            symbols = set(known.symbols)
            yield from (f"{where} as {symbol[:100]!a}" for symbol in each.symbols if symbol not in symbols)


def _of_record(newer: AvroRecord, older: AvroRecord, path: str) -> Iterator[str]:
    by_name = {field.name: field for field in older.fields}
    by_alias = {alias: field for field in older.fields for alias in field.aliases}
    for field in newer.fields:
        known = by_name.get(field.name) or by_alias.get(field.name)
        if known is not None:
            yield from new_values(field.type, known.type, f"{path}.{known.name}" if path else known.name)


def _branches(avro: AvroType) -> tuple[AvroType, ...]:
    return avro.branches if isinstance(avro, AvroUnion) else (avro,)


def _is_nullable(avro: AvroType) -> bool:
    return any(is_null(branch) for branch in _branches(avro))
