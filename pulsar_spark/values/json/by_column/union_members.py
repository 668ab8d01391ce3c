"""Unions by column: which member a value is read as, and a column of all members."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.json.general import read_rows
from pulsar_spark.values.json.tree import (
    JsonArray,
    JsonKind,
    JsonLeaf,
    JsonMember,
    JsonNode,
    JsonUnion,
    select,
)
from pulsar_spark.values.json.unions import is_alike

# What text of a leaf may begin with, beside what ``is_alike`` says.
_MAY_BEGIN: Final = {
    JsonKind.TEXT: "-0123456789",
    JsonKind.INTEGER: '"',
    JsonKind.FLOAT: '"',
    JsonKind.DECIMAL: '"',
    JsonKind.DATE: '"[',
    JsonKind.TIMESTAMP: '"[',
}


def candidates(node: JsonUnion, first: str) -> list[int]:
    """The members that a value which begins with a character may be, in the order in which they are tried.

    That a member is not read here does not mean that it is none of the value: so only the first is tried.
    Empty if a member has many forms of JSON.
    """
    if any(map(_has_many_forms, node.members)):
        return []
    alike = [number for number, each in enumerate(node.members) if is_alike(each, first)]
    if first == "{":
        return alike
    others = [
        number
        for number, each in enumerate(node.members)
        if number not in alike and isinstance(each, JsonLeaf) and first in _MAY_BEGIN.get(each.kind, "")
    ]
    return alike + others


def _has_many_forms(node: JsonNode) -> bool:
    """Whether JSON of several kinds may be a value, so that its first character tells little."""
    if isinstance(node, JsonArray):
        return node.is_map
    return isinstance(node, JsonLeaf) and node.kind in (JsonKind.TIME, JsonKind.JSON)


def of_members(node: JsonUnion, count: int, found: dict[int, tuple[Ints, pa.Array]]) -> pa.Array:
    """The struct of a union's members."""
    columns = []
    is_valid = np.zeros(count, np.bool_)
    for rows, _ in found.values():
        is_valid[rows] = True
    for number, field in zip(node.indexes, node.type, strict=True):
        if number in found:
            rows, column = found[number]
            columns.append(spread(select(column, field.type), rows, count))
        else:
            columns.append(pa.nulls(count, field.type))
    validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(node.type, count, [validity], children=columns)


def spread(column: pa.Array, rows: Ints, count: int, member: JsonMember | None = None) -> pa.Array:
    """Put values into their rows of ``count``; the others are null, or have the member's default."""
    if len(rows) == count and bool((rows == np.arange(count)).all()):
        return column
    place = np.full(count, len(column), np.int32)
    place[rows] = np.arange(len(column), dtype=np.int32)
    if member is None or member.default == "null":
        return column.take(pa.array(place, mask=place == len(column)))
    default = read_rows(member.node, [member.default.encode()]).column
    return pa.concat_arrays([column, default]).take(pa.array(place))
