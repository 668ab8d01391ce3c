"""Unions in JSON: the order in which members are tried for a value, and the column of a union."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.json.tree import (
    JsonArray,
    JsonKind,
    JsonLeaf,
    JsonMap,
    JsonNode,
    JsonRecord,
    JsonUnion,
    select,
)

_FEW: Final = 2


class UnionMembers:
    """Determines the order in which the members of a union are tried for a value."""

    def __init__(self, node: JsonUnion) -> None:
        # Sets of members: integers with a bit for each member.
        self._known: dict[str, int] = {}  # name of a field -> set of the records that have the field
        self._maps = self._any = self._leaves = 0
        self._usual: dict[type, int] = dict.fromkeys((dict, list, str, bool, int, float, bytes), 0)
        self._orders: dict[tuple[type, Hashable], MemberOrder] = {}
        for number, member in enumerate(node.members):
            bit = 1 << number
            if isinstance(member, JsonRecord):
                for each in member.members:
                    self._known[each.key] = self._known.get(each.key, 0) | bit
            elif isinstance(member, JsonMap):
                self._maps |= bit
            elif isinstance(member, JsonLeaf) and member.kind is JsonKind.JSON:
                self._any |= bit
                continue
            elif isinstance(member, JsonLeaf):
                self._leaves |= bit
            for kind in _usual_types(member):
                self._usual[kind] |= bit
        # If few members accept objects, kind JSON is tried before the records that lack a name of the value.
        self._is_any_soon = (self._usual[dict] | self._any).bit_count() <= _FEW

    def order(self, value: Any) -> MemberOrder:
        """Returns the order of members for a value, by its Python type, and by the names if it is a dict."""
        names: Hashable = tuple(value) if type(value) is dict else None
        known = type(value), names
        order = self._orders.get(known)
        if order is None:
            order = self._orders[known] = MemberOrder(self._groups(value))
        return order

    def _groups(self, value: Any) -> list[int]:
        kind = type(value)
        usual = self._usual.get(kind, 0)
        others = self._leaves & ~usual
        if kind is list:
            return [usual, self._any, others]
        if kind is not dict:
            return [usual, others, self._any]
        fitting = usual
        for name in value:
            fitting &= self._known.get(name, 0) | self._maps
            if not fitting:
                break
        others = usual & ~fitting
        return [fitting, self._any, others] if self._is_any_soon else [fitting, others, self._any]


def _usual_types(node: JsonNode) -> tuple[type, ...]:
    """Returns the Python types of the parsed values that usually fit a member."""
    if isinstance(node, JsonRecord | JsonMap):
        return (dict,)
    if isinstance(node, JsonArray):
        return (list,)
    assert isinstance(node, JsonLeaf)
    if node.kind in (JsonKind.TEXT, JsonKind.BYTES):
        return (str,)
    return (bool,) if node.kind is JsonKind.BOOLEAN else (int, float, bytes)


class MemberOrder:
    """The order in which members of a union are tried; found lazily, because most members are never tried.

    ``groups``: sets of members, in the order of tries; within a set, the order of the union.
    """

    def __init__(self, groups: list[int]) -> None:
        self._left = _members(groups)
        self._found: list[int] = []

    def member(self, rank: int) -> int:
        """Returns the member to try after ``rank`` other members; -1: all members were tried."""
        while len(self._found) <= rank:
            self._found.append(next(self._left, -1))
        return self._found[rank]


def _members(groups: list[int]) -> Iterator[int]:
    for members in groups:
        while members:
            bit = members & -members
            members -= bit
            yield bit.bit_length() - 1


def union_column(
    node: JsonUnion, chosen: Ints, parts: dict[int, list[tuple[list[int], pa.Array]]]
) -> pa.Array:
    """Returns the column of a union: a struct with a field for each requested member.

    Args:
        chosen: index of the member of each row, int64[n]; -1: null.
        parts: index of a member -> its rows, and their values.
    """
    columns = []
    for number, field in zip(node.indexes, node.type, strict=True):
        found = parts.get(number)
        if found is None:
            columns.append(pa.nulls(len(chosen), field.type))
            continue
        rows = [index for mine, _ in found for index in mine]
        column = found[0][1] if len(found) == 1 else pa.concat_arrays([part for _, part in found])
        columns.append(spread(select(column, field.type), rows, len(chosen)))
    validity = pa.py_buffer(np.packbits(chosen >= 0, bitorder="little"))
    return pa.Array.from_buffers(node.type, len(chosen), [validity], children=columns)


def spread(column: pa.Array, rows: list[int], count: int) -> pa.Array:
    """Returns ``count`` rows: value i of the column is at row ``rows[i]``, other rows are null."""
    place = np.full(count, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    return column.take(pa.array(place, mask=place < 0))
