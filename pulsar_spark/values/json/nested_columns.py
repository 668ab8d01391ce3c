"""Columns of JSON values that have parts, as they are read: each has columns for those."""

from __future__ import annotations

from array import array
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.values.json.columns import BytesColumn, JsonColumn, JsonRoom, NullColumn, NumberColumn
from pulsar_spark.values.json.scan import (
    END,
    BadJsonError,
    read_name,
    skip_space,
    skip_value,
    unexpected,
)
from pulsar_spark.values.json.tree import (
    JsonArray,
    JsonKind,
    JsonLeaf,
    JsonMap,
    JsonMember,
    JsonNode,
    JsonRecord,
    JsonUnion,
    item_size,
)
from pulsar_spark.values.json.unions import JsonUnions

_SHOWN: Final = 100  # characters of a name that an error tells


def make_column(node: JsonNode, room: JsonRoom) -> JsonColumn:
    """Make the column of a node.

    Args:
        node: how its values are read.
        room: what a value may take; of what is read now.
    """
    if isinstance(node, JsonRecord):
        return _Structs(node, room)
    if isinstance(node, JsonArray):
        return _Lists(node, room)
    if isinstance(node, JsonMap):
        return _Maps(node, room)
    if isinstance(node, JsonUnion):
        return JsonUnions(node, [make_column(member, room) for member in node.members], room)
    if node.kind is JsonKind.NULL:
        return NullColumn(node.type)
    if node.kind in (JsonKind.TEXT, JsonKind.BYTES, JsonKind.DECIMAL, JsonKind.JSON):
        return BytesColumn(node)
    return NumberColumn(node)


class _Nested(JsonColumn):
    """Values of several items each, which are in their own columns; ``_offsets`` says which are whose."""

    def __init__(self, node: JsonArray | JsonMap, room: JsonRoom, *items: JsonColumn) -> None:
        super().__init__(node.type)
        self._columns = items
        self._width = item_size(node)
        self._room = room
        self._offsets = array("i", [0])

    def add_null(self) -> None:
        self._add(0)

    def _add(self, is_valid: int) -> None:
        self._offsets.append(len(self._columns[0]))
        self._valid.append(is_valid)

    def truncate(self, count: int) -> None:
        del self._offsets[count + 1 :], self._valid[count:]
        for column in self._columns:
            column.truncate(self._offsets[count])

    def _of_items(self, items: pa.Array) -> pa.Array:
        buffers = [self._validity(), pa.py_buffer(self._offsets)]
        return pa.Array.from_buffers(self._type, len(self), buffers, children=[items])


class _Lists(_Nested):
    """Arrays: their items in their own column."""

    def __init__(self, node: JsonArray, room: JsonRoom) -> None:
        self._items = items = make_column(node.item, room)
        self._read_pair = items.read_pair if node.is_map and isinstance(items, _Structs) else None
        super().__init__(node, room, items)

    def read(self, text: str, at: int) -> int:
        closer, read = "]", self._items.read
        if text[at] == "{" and self._read_pair is not None:
            closer, read = "}", self._read_pair
        elif text[at] != "[":
            return self._read_null(text, at, "an array")
        at = skip_space(text, at + 1)
        first = len(self._items)
        if text[at] == closer:
            self._add(1)
            return at + 1
        while True:
            try:
                _take(self._room, self._width)
                self._room.at = at
                at = skip_space(text, read(text, at))
            except BadJsonError as error:
                error.path.append(f"[{len(self._items) - first}]")
                raise
            if text[at] == closer:
                self._add(1)
                return at + 1
            if text[at] != ",":
                raise unexpected(text, at, f"a comma or {closer}")
            at = skip_space(text, at + 1)

    def finish(self) -> pa.Array:
        return self._of_items(self._items.finish())


class _Maps(_Nested):
    """Maps: their keys and values in their own columns."""

    def __init__(self, node: JsonMap, room: JsonRoom) -> None:
        self._keys = BytesColumn(JsonLeaf(JsonKind.TEXT, pa.string()))
        self._values = make_column(node.value, room)
        super().__init__(node, room, self._values, self._keys)

    def read(self, text: str, at: int) -> int:
        if text[at] != "{":
            return self._read_null(text, at, "an object")
        at = skip_space(text, at + 1)
        first = len(self._keys)
        if text[at] == "}":
            self._add(1)
            return at + 1
        while True:
            start = at
            at = read_name(text, at)[1]  # the name itself, which may be large, is let go of
            try:
                _take(self._room, self._width)
                self._room.at = at
                self._keys.read(text, start)
                at = skip_space(text, self._values.read(text, at))
            except BadJsonError as error:
                error.path.append("{}")
                raise
            if text[at] == "}":
                names = self._keys.values_from(first)
                if len(names.unique()) < len(names):
                    raise BadJsonError("a duplicate name")
                self._add(1)
                return at + 1
            if text[at] != ",":
                raise unexpected(text, at, "a comma or }")
            at = skip_space(text, at + 1)

    def finish(self) -> pa.Array:
        entries = pa.StructArray.from_arrays(
            [self._keys.finish(), self._values.finish()], fields=[self._type.key_field, self._type.item_field]
        )
        return self._of_items(entries)


class _Member:
    """The values of one member of records, without rows that lack it: those take no time."""

    def __init__(self, member: JsonMember, room: JsonRoom) -> None:
        self._node = member.node
        self._text = member.default
        self._values = make_column(member.node, room)
        self._rows = array("i")  # that have a value

    @cached_property
    def _default(self) -> tuple[pa.Array, int]:
        """The default as an array of one value, and the room that it takes."""
        room = JsonRoom()
        column = make_column(self._node, room)
        column.read(self._text + END, 0)
        return column.finish(), room.accepted - room.left + len(self._text)

    @property
    def has_default(self) -> bool:
        return self._text != "null"

    @property
    def cost(self) -> int:
        """Bytes that count for a value that is missing, beside those of its column."""
        return self._default[1] if self.has_default else 0

    def read(self, text: str, at: int, row: int) -> int:
        if self._rows and self._rows[-1] == row:
            raise BadJsonError("a duplicate name")
        at = self._values.read(text, at)
        self._rows.append(row)
        return at

    def has_any_after(self, count: int) -> bool:
        """Whether a row after the first ``count`` has a value."""
        return bool(self._rows) and self._rows[-1] >= count

    def truncate(self, count: int) -> None:
        rows = self._rows
        while rows and rows[-1] >= count:
            rows.pop()
        self._values.truncate(len(rows))

    def finish(self, is_record: npt.NDArray[np.bool_]) -> pa.Array:
        """Make an array of all rows; bool[n], which of them are no nulls."""
        values = self._values.finish()
        if len(values) == len(is_record):
            return values
        place = np.full(len(is_record), -1, np.int32)
        if self.has_default:
            place[is_record] = len(values)
            values = pa.concat_arrays([values, self._default[0]])
        place[np.frombuffer(self._rows, np.int32)] = np.arange(len(self._rows), dtype=np.int32)
        return values.take(pa.array(place, mask=place < 0))


class _Structs(JsonColumn):
    """Records: the values of each member."""

    def __init__(self, node: JsonRecord, room: JsonRoom) -> None:
        super().__init__(node.type)
        self._members = [_Member(member, room) for member in node.members]
        self._room = room
        self._by_key = {member.key: own for member, own in zip(node.members, self._members, strict=True)}
        self._has_defaults = any(member.has_default for member in self._members)
        self._found: list[_Member] = []  # in the last value that was read
        self._is_bad = False  # that value
        self.unknown = 0  # names in the last value that are no members

    @cached_property
    def _cost(self) -> int:
        """Of all members."""
        return sum(member.cost for member in self._members)

    def read(self, text: str, at: int) -> int:
        if text[at] != "{":
            return self._read_null(text, at, "an object")
        row = len(self)
        unknown = 0
        self._found = found = []
        self._is_bad = True
        at = skip_space(text, at + 1)
        while text[at] != "}":
            name, at = read_name(text, at)
            self._room.at = at
            member = self._by_key.get(name)
            try:
                if member is None:
                    unknown += 1
                    at = skip_value(text, at)
                else:
                    found.append(member)
                    at = member.read(text, at, row)
            except BadJsonError as error:
                error.path.append(f".{name[:_SHOWN]}")
                raise
            at = skip_space(text, at)
            if text[at] == ",":
                at = skip_space(text, at + 1)
                if text[at] == "}":
                    raise unexpected(text, at, "a name")
            elif text[at] != "}":
                raise unexpected(text, at, "a comma or }")
        if self._has_defaults and len(found) < len(self._members):
            _take(self._room, self._cost - sum(member.cost for member in found))
        self.unknown = unknown
        self._is_bad = False
        self._valid.append(1)
        return at + 1

    def read_pair(self, text: str, at: int) -> int:
        """Add the name at ``at`` as the member ``key``, and its value as the member ``value``."""
        row = len(self)
        self._found = found = []
        self._is_bad = True
        _, end = read_name(text, at)
        for name, start in (("key", at), ("value", end)):
            member = self._by_key.get(name)
            self._room.at = start
            try:
                if member is not None:
                    found.append(member)
                    at = member.read(text, start, row)
                elif name == "value":
                    at = skip_value(text, start)
            except BadJsonError as error:
                error.path.append(f".{name}")
                raise
        self.unknown = 0
        self._is_bad = False
        self._valid.append(1)
        return at

    def add_null(self) -> None:
        self.unknown = 0
        self._valid.append(0)

    def truncate(self, count: int) -> None:
        # Of many members, few have a value: a bad row takes no longer than a good one.
        forgotten = len(self._valid) - count
        del self._valid[count:]
        for member in self._found:
            member.truncate(count)
        if forgotten > (0 if self._is_bad else 1):  # others than the last one
            for member in self._members:
                if member.has_any_after(count):
                    member.truncate(count)
        self._found, self._is_bad = [], True  # of the values that are left nothing is known

    def finish(self) -> pa.Array:
        is_record = np.frombuffer(self._valid, np.bool_)
        columns = [member.finish(is_record) for member in self._members]
        return pa.Array.from_buffers(self._type, len(self), [self._validity()], children=columns)


def _take(room: JsonRoom, size: int) -> None:
    room.left -= size
    if room.left < 0:
        raise BadJsonError(room.why)
