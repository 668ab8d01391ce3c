"""JSON payloads -> a column, one member of all payloads at a time: what producers usually write.

What is taken here is what ``general`` gives; all else is left to it: bad payloads, values that need its
lenience, names in another order than the layout has them, and unions of which names decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.values.json.by_column.cursor import Cursor, JsonPayloads
from pulsar_spark.values.json.by_column.fast_leaves import LEAVES, TEXT, read_text, skip_scalar
from pulsar_spark.values.json.by_column.shape import JsonLayout, Shape
from pulsar_spark.values.json.by_column.union_members import candidates, of_members
from pulsar_spark.values.json.general import read_rows
from pulsar_spark.values.json.tree import (
    JsonArray,
    JsonLeaf,
    JsonMap,
    JsonMember,
    JsonNode,
    JsonRecord,
    JsonUnion,
)

_COMMA, _COLON, _OPEN, _CLOSE, _LIST, _END_OF_LIST, _N = b",:{}[]n"
_MAX_ITEMS: Final = 64  # of an array or map; the longer ones are read one by one
_FEWEST_ROWS: Final = 16  # that have an item more; fewer take longer here than one by one
_EMPTY: Final = Shape()
_NOTHING: Final = JsonRecord(pa.struct([]), ())


def read_columns(
    node: JsonNode, payloads: JsonPayloads, rows: Ints, layout: JsonLayout
) -> tuple[pa.Array, Flags]:
    """Read some payloads.

    Args:
        node: what they are read as.
        payloads: what they are of.
        rows: which, ascending.
        layout: how they are laid out.

    Returns:
        A column of them, and which of its values are right; the others have no meaning.
    """
    cursor = payloads.cursor(rows)
    payloads.has_space = layout.has_space
    payloads.skip_space(cursor)
    column = _Walk(payloads).read(node, layout.shape, cursor)
    payloads.skip_space(cursor)
    return column, cursor.ok & (cursor.at == cursor.limit)


class _Walk:
    """Reads nodes at a cursor, which it moves over them."""

    def __init__(self, payloads: JsonPayloads) -> None:
        self._payloads = payloads

    def read(self, node: JsonNode | None, shape: Shape, cursor: Cursor) -> pa.Array:
        """Read a value of each row, nulls too; of no node: go over one that looks like the shape."""
        is_null = self._payloads.byte(cursor) == _N
        if not is_null.any():
            return self._value(node, shape, cursor)
        nulls, others = np.flatnonzero(is_null), np.flatnonzero(~is_null)
        part = cursor.take(others)
        column = self._value(node, shape, part)
        cursor.put(others, part)
        self._go_over(cursor, nulls, b"null")
        return _spread(column, others, len(cursor))

    def _go_over(self, cursor: Cursor, rows: Ints, text: bytes) -> None:
        part = cursor.take(rows)
        found = self._payloads.is_at(part, text)
        part.ok &= found
        part.at += len(text) * found
        cursor.put(rows, part)

    def _value(self, node: JsonNode | None, shape: Shape, cursor: Cursor) -> pa.Array:
        if node is None:
            return self._unasked(shape, cursor)
        if isinstance(node, JsonRecord):
            return self._record(node, shape, cursor)
        if isinstance(node, JsonArray):
            return self._array(node, shape, cursor)
        if isinstance(node, JsonMap):
            return self._map(node, shape, cursor)
        if isinstance(node, JsonUnion):
            return self._union(node, shape, cursor)
        assert isinstance(node, JsonLeaf)
        return LEAVES[node.kind](self._payloads, node, cursor)

    def _record(self, node: JsonRecord, shape: Shape, cursor: Cursor) -> pa.Array:
        members = {member.key: member for member in node.members}
        order = [*shape.keys, *(key for key in members if key not in shape.keys)]
        columns: dict[str, pa.Array] = {}
        payloads = self._payloads
        payloads.expect(cursor, _OPEN)
        self._payloads.skip_space(cursor)
        must_follow = payloads.byte(cursor) != _CLOSE
        for key in order:
            name = json.dumps(key, ensure_ascii=False).encode("utf-8", "replace")
            found = must_follow & cursor.ok & payloads.is_at(cursor, name)
            rows = np.flatnonzero(found)
            if not len(rows):
                continue
            part = cursor if len(rows) == len(cursor) else cursor.take(rows)
            part.at += len(name)
            part.quote += 2
            member = members.get(key)
            column = self._member(member.node if member else None, shape.keys.get(key, _EMPTY), part)
            if member is not None:
                columns[key] = _spread(column, rows, len(cursor), member)
            must_follow[rows] = self._comma(part)
            if part is not cursor:
                cursor.put(rows, part)
        cursor.ok &= ~must_follow
        payloads.expect(cursor, _CLOSE)
        none = np.zeros(0, np.int64)
        arrays = [
            columns[member.key]
            if member.key in columns
            else _spread(_no_values(member.node), none, len(cursor), member)
            for member in node.members
        ]
        return pa.Array.from_buffers(node.type, len(cursor), [None], children=arrays)

    def _member(self, node: JsonNode | None, shape: Shape, cursor: Cursor) -> pa.Array:
        """Read colon and value."""
        self._payloads.skip_space(cursor)
        self._payloads.expect(cursor, _COLON)
        self._payloads.skip_space(cursor)
        return self.read(node, shape, cursor)

    def _comma(self, cursor: Cursor) -> Flags:
        """Go over a comma, where there is one; returns where."""
        self._payloads.skip_space(cursor)
        found: Flags = self._payloads.byte(cursor) == _COMMA
        cursor.at += found
        self._payloads.skip_space(cursor)
        return found

    def _array(self, node: JsonArray, shape: Shape, cursor: Cursor) -> pa.Array:
        item = shape.item or _EMPTY
        parts, offsets = self._items(
            cursor, _LIST, _END_OF_LIST, lambda part: [self.read(node.item, item, part)]
        )
        items = parts[0] if parts else _no_values(node.item)
        return _nested(node.type, len(cursor), offsets, items)

    def _map(self, node: JsonMap, shape: Shape, cursor: Cursor) -> pa.Array:
        value = next(iter(shape.keys.values()), _EMPTY)

        def read(part: Cursor) -> list[pa.Array]:
            names = read_text(self._payloads, TEXT, part)
            column = self._member(node.value, value, part)
            return [names, column]

        parts, offsets = self._items(cursor, _OPEN, _CLOSE, read)
        names, values = parts or [_no_values(TEXT), _no_values(node.value)]
        lengths = np.diff(offsets)
        rows = np.repeat(np.arange(len(cursor)), lengths)
        codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        pairs, counts = np.unique(rows * (len(names) + 1) + codes, return_counts=True)
        cursor.ok[pairs[counts > 1] // (len(names) + 1)] = False
        entries = pa.StructArray.from_arrays(
            [names, values], fields=[node.type.key_field, node.type.item_field]
        )
        return _nested(node.type, len(cursor), offsets, entries)

    def _union(self, node: JsonUnion, shape: Shape, cursor: Cursor) -> pa.Array:
        """Read each value as the first member that it may be; where names decide, it is left."""
        first = self._payloads.byte(cursor)
        chosen = np.full(len(cursor), -1, np.int64)
        for byte in np.flatnonzero(np.bincount(first, minlength=256)).tolist():
            order = candidates(node, chr(byte))
            if len(order) == 1 or (order and byte != _OPEN):
                chosen[first == byte] = order[0]
        cursor.ok &= chosen >= 0
        found: dict[int, tuple[Ints, pa.Array]] = {}
        for number in np.unique(chosen[chosen >= 0]).tolist():
            rows = np.flatnonzero(chosen == number)
            part = cursor.take(rows)
            found[number] = rows, self._value(node.members[number], shape, part)
            cursor.put(rows, part)
        return of_members(node, len(cursor), found)

    def _unasked(self, shape: Shape, cursor: Cursor) -> pa.Array:
        """Go over values that nobody asked for, but which must be JSON."""
        if shape.is_object:
            return self._record(_NOTHING, shape, cursor)
        if shape.is_array:
            item = shape.item or _EMPTY
            self._items(cursor, _LIST, _END_OF_LIST, lambda part: [self.read(None, item, part)])
        else:
            skip_scalar(self._payloads, cursor)
        return pa.nulls(len(cursor))

    def _items(
        self, cursor: Cursor, opening: int, closing: int, read: Callable[[Cursor], list[pa.Array]]
    ) -> tuple[list[pa.Array], Ints]:
        """Read the first item of all rows, then the second of those that have one, and so on.

        Returns:
            What ``read`` gives, for the items of all rows in the rows' order, or nothing where there are
            none; and int64[n + 1], where the items of each row begin.
        """
        self._payloads.expect(cursor, opening)
        self._payloads.skip_space(cursor)
        rows = np.flatnonzero(cursor.ok & (self._payloads.byte(cursor) != closing))
        rounds: list[list[pa.Array]] = []
        owners: list[Ints] = []
        while len(rows) >= _FEWEST_ROWS and len(rounds) < _MAX_ITEMS:
            part = cursor.take(rows)
            rounds.append(read(part))
            owners.append(rows)
            more = self._comma(part) & part.ok
            cursor.put(rows, part)
            rows = rows[more]
        cursor.ok[rows] = False
        self._payloads.expect(cursor, closing)
        offsets = np.zeros(len(cursor) + 1, np.int64)
        if not rounds:
            return [], offsets
        owner = np.concatenate(owners)
        np.cumsum(np.bincount(owner, minlength=len(cursor)), out=offsets[1:])
        order = pa.array(np.argsort(owner, kind="stable"))
        return [pa.concat_arrays(parts).take(order) for parts in zip(*rounds, strict=True)], offsets


def _no_values(node: JsonNode) -> pa.Array:
    return pa.array([], node.type)


def _spread(column: pa.Array, rows: Ints, count: int, member: JsonMember | None = None) -> pa.Array:
    """Put values into their rows of ``count``; the others are null, or have the member's default."""
    if len(rows) == count:
        return column
    place = np.full(count, len(rows), np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    if member is None or member.default == "null":
        return column.take(pa.array(place, mask=place == len(rows)))
    default = read_rows(member.node, [member.default.encode()]).column
    return pa.concat_arrays([column, default]).take(pa.array(place))


def _nested(arrow: pa.DataType, count: int, offsets: Ints, items: pa.Array) -> pa.Array:
    """Make an array of lists or maps."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(arrow, count, buffers, children=[items])
