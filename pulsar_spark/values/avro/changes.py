"""What a newer version of an Avro type has and an older one of the same column type cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroMap,
    AvroRecord,
    AvroType,
    AvroUnion,
    arrow_type,
    is_null,
)
from pulsar_spark.values.avro.resolve import Branches, resolve, shown, with_siblings


def new_values(newer: AvroType, older: AvroType, path: str = "", *, has_tags: bool = True) -> Iterator[str]:
    """Say which values of the newer type the older one cannot hold, at any depth.

    These are nulls, symbols, and the branches of a union that no branch of the older one reads.

    Args:
        newer: the type of the values.
        older: what they are to be read as; fields that it lacks are left out.
        path: of the field.
        has_tags: whether a payload names its branch, as in Avro. JSON reads a renamed branch by its shape.

    Yields:
        Words such as ``x as null``, ``e as 'Q'`` and ``u as record 'R'``.
    """
    where = path or "the value"
    if _is_nullable(newer) and not _is_nullable(older):
        yield f"{where} as null"
    wanted = Branches(_branches(older))
    siblings = with_siblings(newer)
    for each in _branches(newer):
        known = next(wanted.candidates(each, has_siblings=type(each) in siblings), None)
        if known is None and not has_tags:
            known = wanted.renamed(each)
        if isinstance(each, AvroRecord) and isinstance(known, AvroRecord):
            yield from _of_record(each, known, path, has_tags=has_tags)
        elif isinstance(each, AvroArray) and isinstance(known, AvroArray):
            yield from new_values(each.items, known.items, f"{path}[]", has_tags=has_tags)
        elif isinstance(each, AvroMap) and isinstance(known, AvroMap):
            yield from new_values(each.values, known.values, f"{path}{{}}", has_tags=has_tags)
        elif isinstance(each, AvroEnum) and isinstance(known, AvroEnum):
            symbols = set(known.symbols)
            yield from (f"{where} as {symbol[:100]!a}" for symbol in each.symbols if symbol not in symbols)
        elif has_tags and not is_null(each) and not _is_read(each, known):
            yield f"{where} as {shown(each)}"


def _is_read(newer: AvroType, older: AvroType | None) -> bool:
    if older is None:
        return False
    try:
        resolve(newer, older, arrow_type(older))
    except SchemaError:
        return False
    except UnsupportedError:  # it has no column
        return True
    return True


def _of_record(newer: AvroRecord, older: AvroRecord, path: str, *, has_tags: bool) -> Iterator[str]:
    by_name = {field.name: field for field in older.fields}
    by_alias = {alias: field for field in older.fields for alias in field.aliases}
    for field in newer.fields:
        known = by_name.get(field.name) or by_alias.get(field.name)
        if known is not None:
            below = f"{path}.{known.name}" if path else known.name
            yield from new_values(field.type, known.type, below, has_tags=has_tags)


def _branches(avro: AvroType) -> tuple[AvroType, ...]:
    return avro.branches if isinstance(avro, AvroUnion) else (avro,)


def _is_nullable(avro: AvroType) -> bool:
    return any(is_null(branch) for branch in _branches(avro))
