"""JSON payloads -> a column, by their tokens: any layout, all values of a node at a time.

What is taken here is what ``general`` gives; all else is left to it: bad payloads, values that need its
lenience, and names with escapes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.values.json.by_column.cursor import Cursor, JsonPayloads
from pulsar_spark.values.json.by_column.fast_leaves import LEAVES, TEXT, read_text, skip_scalar
from pulsar_spark.values.json.by_column.names import Names
from pulsar_spark.values.json.by_column.tape import JsonParts, JsonValues, Tape, fail_owners
from pulsar_spark.values.json.by_column.union_members import candidates, of_members, spread
from pulsar_spark.values.json.tree import (
    JsonArray,
    JsonLeaf,
    JsonMap,
    JsonNode,
    JsonRecord,
    JsonUnion,
)
from pulsar_spark.values.json.unions import names_of

_N, _OPEN, _LIST = b"n{["
_CASE: Final = 0x20
_MAX_MEMBERS: Final = 63  # of a union, of which there is a bit for each


class TapeReader:
    """Reads payloads of one tree.

    Args:
        tree: how values are read.
    """

    def __init__(self, tree: JsonNode) -> None:
        self._names: dict[int, Names] = {}
        self._root = tree if isinstance(tree, JsonRecord | JsonArray | JsonMap) else None
        self.can_read = self._root is not None and self._prepare(tree)

    def _prepare(self, node: JsonNode) -> bool:
        """Make what finds names; tells whether payloads of the node can be read here."""
        if isinstance(node, JsonRecord):
            names = self._names[id(node)] = Names(member.key for member in node.members)
            return names.can_find and all(self._prepare(member.node) for member in node.members)
        if isinstance(node, JsonArray):
            return self._prepare(node.item)
        if isinstance(node, JsonMap):
            return self._prepare(node.value)
        if isinstance(node, JsonUnion):
            return len(node.members) <= _MAX_MEMBERS and all(self._prepare(each) for each in node.members)
        return True

    def read(self, payloads: JsonPayloads) -> tuple[pa.Array, Ints]:
        """Read payloads; returns a column of those that were read, and which they are."""
        assert self._root is not None
        tape = Tape(payloads)
        rows, values = tape.roots()
        column, ok = _Read(tape, self._names).container(self._root, values)
        good = np.flatnonzero(ok)
        if len(good) == len(rows):
            return column, rows
        return column.take(pa.array(good)), rows[good]


class _Read:
    """Reads values of nodes: each method gives a column, and which of the values are right."""

    def __init__(self, tape: Tape, names: dict[int, Names]) -> None:
        self._tape = tape
        self._payloads = tape.payloads
        self._names = names

    def values(self, node: JsonNode, values: JsonValues) -> tuple[pa.Array, Flags]:
        """Read values, nulls too."""
        ends, ok = self._tape.ends(values)
        first = self._payloads.body[values.start]
        is_null = first == _N
        if not is_null.any():
            column, good = self._others(node, values, ends)
            return column, ok & good
        nulls, others = np.flatnonzero(is_null), np.flatnonzero(~is_null)
        ok[nulls] &= self._are_null(values.start[nulls], ends[nulls])
        column, good = self._others(node, values.some(others), ends[others])
        ok[others] &= good
        return spread(column, others, len(ok)), ok

    def _are_null(self, start: Ints, ends: Ints) -> Flags:
        cursor = Cursor(start, start, ends, np.ones(len(start), np.bool_))
        found = self._payloads.is_at(cursor, b"null")
        at = np.minimum(start + 4 * found, ends)
        are_null: Flags = found & (self._payloads.after_space(at) == ends)
        return are_null

    def _others(self, node: JsonNode, values: JsonValues, ends: Ints) -> tuple[pa.Array, Flags]:
        if isinstance(node, JsonUnion):
            return self._union(node, values, ends)
        if isinstance(node, JsonLeaf):
            return self._leaf(node, values, ends)
        column, ok = self.container(node, values)
        return column, ok & self._are_closed(values, ends)

    def _are_closed(self, values: JsonValues, ends: Ints) -> Flags:
        """Whether only white space lies between the closing brackets of values and their ends."""
        are_closed: Flags = self._payloads.after_space(self._tape.closing(values) + 1) == ends
        return are_closed

    def container(self, node: JsonRecord | JsonArray | JsonMap, values: JsonValues) -> tuple[pa.Array, Flags]:
        """Read objects and arrays, without a look at what comes after them."""
        if isinstance(node, JsonRecord):
            return self._record(node, self._tape.objects(values), len(values.start))
        if isinstance(node, JsonArray):
            return self._array(node, self._tape.arrays(values))
        return self._map(node, self._tape.objects(values))

    def _leaf(self, node: JsonLeaf, values: JsonValues, ends: Ints) -> tuple[pa.Array, Flags]:
        cursor = self._cursor(values, ends)
        column = LEAVES[node.kind](self._payloads, node, cursor)
        return column, self._arrived(cursor, ends)

    def _cursor(self, values: JsonValues, ends: Ints) -> Cursor:
        return Cursor(values.start.copy(), self._tape.quotes(values), ends, np.ones(len(ends), np.bool_))

    def _arrived(self, cursor: Cursor, ends: Ints) -> Flags:
        at = np.minimum(cursor.at, ends)
        arrived: Flags = cursor.ok & (self._payloads.after_space(at) == ends)
        return arrived

    def _array(self, node: JsonArray, parts: JsonParts) -> tuple[pa.Array, Flags]:
        items, good = self.values(node.item, parts.values)
        fail_owners(parts.ok, parts.owner, good)
        return _nested(node.type, parts.counts, items), parts.ok

    def _map(self, node: JsonMap, parts: JsonParts) -> tuple[pa.Array, Flags]:
        payloads = self._payloads
        start = self._tape.at[parts.names].astype(np.int64)
        quotes = self._tape.quotes(JsonValues(start, parts.names))
        cursor = Cursor(
            start, quotes, payloads.quotes[quotes + 1].astype(np.int64) + 1, np.ones(len(start), np.bool_)
        )
        names = read_text(payloads, TEXT, cursor)
        items, good = self.values(node.value, parts.values)
        codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        pairs = np.sort(parts.owner * (len(names) + 1) + codes)
        twice = pairs[1:][pairs[1:] == pairs[:-1]]
        parts.ok[twice // (len(names) + 1)] = False
        fail_owners(parts.ok, parts.owner, good & cursor.ok)
        entries = pa.StructArray.from_arrays(
            [names, items], fields=[node.type.key_field, node.type.item_field]
        )
        return _nested(node.type, parts.counts, entries), parts.ok

    def _record(self, node: JsonRecord, parts: JsonParts, count: int) -> tuple[pa.Array, Flags]:
        which = self._found(self._names[id(node)], parts)
        # Numbers of two bytes are sorted in a third of the time.
        small = which.astype(np.int16) if len(node.members) < 1 << 15 else which
        order = np.argsort(small, kind="stable")
        bounds = np.searchsorted(which[order], np.arange(len(node.members) + 1))
        self._check_unasked(parts, order[: bounds[0]])
        columns = []
        for number, member in enumerate(node.members):
            mine = order[bounds[number] : bounds[number + 1]]
            owner = parts.owner[mine]
            parts.ok[owner[1:][owner[1:] == owner[:-1]]] = False  # a name twice
            column, good = self.values(member.node, parts.values.some(mine))
            fail_owners(parts.ok, owner, good)
            columns.append(spread(column, owner, count, member))
        return pa.Array.from_buffers(node.type, count, [None], children=columns), parts.ok

    def _found(self, names: Names, parts: JsonParts) -> Ints:
        """Which member each name is, -1 for others; objects with an escape in a name fail."""
        payloads = self._payloads
        start = self._tape.at[parts.names].astype(np.int64) + 1
        quotes = self._tape.quotes(JsonValues(start, parts.names))
        end = payloads.quotes[quotes + 1].astype(np.int64)
        is_escaped = payloads.has_escapes(start, end)
        if is_escaped is not None:
            fail_owners(parts.ok, parts.owner, ~is_escaped)
        return names.find(payloads, start, end)

    def _check_unasked(self, parts: JsonParts, which: Ints) -> None:
        """Check values that nobody asked for, which must be JSON."""
        if len(which):
            fail_owners(parts.ok, parts.owner[which], self._are_json(parts.values.some(which)))

    def _are_json(self, values: JsonValues) -> Flags:
        ends, ok = self._tape.ends(values)
        first = self._payloads.body[values.start]
        is_null = first == _N
        is_container = (first | _CASE) == _OPEN
        nulls = np.flatnonzero(is_null)
        ok[nulls] &= self._are_null(values.start[nulls], ends[nulls])
        scalars = np.flatnonzero(~is_null & ~is_container)
        if len(scalars):
            cursor = self._cursor(values.some(scalars), ends[scalars])
            skip_scalar(self._payloads, cursor)
            ok[scalars] &= self._arrived(cursor, ends[scalars])
        for is_kind, parts_of in ((first == _OPEN, self._tape.objects), (first == _LIST, self._tape.arrays)):
            mine = np.flatnonzero(is_kind)
            if len(mine):
                own = values.some(mine)
                parts = parts_of(own)
                if parts_of == self._tape.objects:
                    self._found(Names(()), parts)
                self._check_unasked(parts, np.arange(len(parts.owner)))
                ok[mine] &= parts.ok & self._are_closed(own, ends[mine])
        return ok

    # ---- unions

    def _union(self, node: JsonUnion, values: JsonValues, ends: Ints) -> tuple[pa.Array, Flags]:
        """Read each value as the first member that it is; see ``unions.JsonUnions``."""
        count = len(ends)
        first = self._payloads.body[values.start]
        chosen = np.full(count, -1, np.int64)
        for byte in np.flatnonzero(np.bincount(first, minlength=256)).tolist():
            mine = np.flatnonzero(first == byte)
            order = candidates(node, chr(byte))
            if order:
                chosen[mine] = order[0]
            if byte == _OPEN and len(order) > 1:
                fitting = self._fitting(node, values.some(mine))
                for number in reversed(order):
                    chosen[mine[(fitting >> np.uint64(number) & np.uint64(1)) == 1]] = number
        ok = np.zeros(count, np.bool_)
        found: dict[int, tuple[Ints, pa.Array]] = {}
        for number in np.unique(chosen[chosen >= 0]).tolist():
            mine = np.flatnonzero(chosen == number)
            column, ok[mine] = self._others(node.members[number], values.some(mine), ends[mine])
            found[number] = mine, column
        return of_members(node, count, found), ok

    def _fitting(self, node: JsonUnion, values: JsonValues) -> npt.NDArray[np.uint64]:
        """Which members have all names of an object: a bit for each; maps have any."""
        known, maps = names_of(node.members)
        parts = self._tape.objects(values)
        names = self._union_names(node, known)
        bits = np.array([*known.values(), 0], np.uint64) | np.uint64(maps)
        of_name = bits[self._found(names, parts)]
        fitting = np.full(len(parts.ok), np.uint64((1 << len(node.members)) - 1))
        has = np.flatnonzero(parts.counts)
        if len(has):
            begin = np.cumsum(parts.counts) - parts.counts
            fitting[has] = np.bitwise_and.reduceat(of_name, begin[has])
        return fitting

    def _union_names(self, node: JsonUnion, known: dict[str, int]) -> Names:
        names = self._names.get(id(node))
        if names is None:
            names = self._names[id(node)] = Names(known)
        return names


def _nested(arrow: pa.DataType, counts: Ints, items: pa.Array) -> pa.Array:
    """Make an array of lists or maps."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.Array.from_buffers(arrow, len(counts), [None, pa.py_buffer(offsets)], children=[items])
