"""Columns of JSON values that have parts, as they are read: each has columns for those."""

from __future__ import annotations

from array import array
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.values.json.columns import BytesColumn, JsonColumn, NullColumn, NumberColumn
from pulsar_spark.values.json.projection import select
from pulsar_spark.values.json.room import JsonRoom
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

_SHOWN: Final = 100  # characters of a name that an error tells
_FEW_MEMBERS: Final = 2  # of a union, which are read without a look at the value's names


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
        return _Unions(node, room)
    if node.kind is JsonKind.NULL:
        return NullColumn(node.type)
    if node.kind in (JsonKind.TEXT, JsonKind.BYTES, JsonKind.DECIMAL):
        return BytesColumn(node)
    return NumberColumn(node)


class _Nested(JsonColumn):
    """Values of several items each, which are in columns of their own; ``_offsets`` says which are whose."""

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
    """Arrays: their items in a column of their own."""

    def __init__(self, node: JsonArray, room: JsonRoom) -> None:
        self._items = make_column(node.item, room)
        super().__init__(node, room, self._items)

    def read(self, text: str, at: int) -> int:
        if text[at] != "[":
            return self._read_null(text, at, "an array")
        at = skip_space(text, at + 1)
        first = len(self._items)
        if text[at] == "]":
            self._add(1)
            return at + 1
        while True:
            try:
                _take(self._room, self._width)
                self._room.at = at
                at = skip_space(text, self._items.read(text, at))
            except BadJsonError as error:
                error.path.append(f"[{len(self._items) - first}]")
                raise
            if text[at] == "]":
                self._add(1)
                return at + 1
            if text[at] != ",":
                raise unexpected(text, at, "a comma or ]")
            at = skip_space(text, at + 1)

    def finish(self) -> pa.Array:
        return self._of_items(self._items.finish())


class _Maps(_Nested):
    """Maps: their keys and values in columns of their own."""

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

    def finish(self) -> pa.Array:
        is_record = np.frombuffer(self._valid, np.bool_)
        columns = [member.finish(is_record) for member in self._members]
        return pa.Array.from_buffers(self._type, len(self), [self._validity()], children=columns)


class _Unions(JsonColumn):
    """Unions: a column for each member, without rows that have another one: those take no time."""

    def __init__(self, node: JsonUnion, room: JsonRoom) -> None:
        super().__init__(node.type)
        self._columns = [make_column(member, room) for member in node.members]
        self._room = room
        self._members = node.members
        self._orders: dict[str, list[int]] = {}  # in which members are tried, by the first character
        self._indexes = node.indexes
        self._number = node.number
        self._which = array("i")  # member each row is of; -1: it is null
        self._counts = [0] * len(node.members)  # rows of each
        self._tried: set[int] = set()  # members that may hold something of a value that is not added yet

    def read(self, text: str, at: int) -> int:
        if text[at] == "n":
            return self._read_null(text, at, "a value")
        room = self._room
        key = self._number, at
        if key in room.choices:
            chosen = room.choices[key]
            end = None
            if chosen is not None:
                self._tried.add(chosen)
                end = self._columns[chosen].read(text, at)
        else:
            room.tries += 1
            chosen, end = self._choose(text, at)
            room.tries -= 1
            if room.tries:
                room.choices[key] = chosen
        if chosen is None or end is None:
            raise BadJsonError("a value of none of the union's types")
        return self._add(chosen, end)

    def _choose(self, text: str, at: int) -> tuple[int | None, int | None]:
        """Read the value as the first member that it is, and return which, and where it ends.

        A record without names that are none of its own comes before others: those are tried last. Of many
        records only those with all names of the value are read.
        """
        first = text[at]
        order = self._orders.get(first) or self._order(first)
        others: list[int] = []
        fitting = -1  # a bit for each member that may be what the value is
        second: int | None = None
        end_of_second: int | None = None
        for number in order:
            if not fitting >> number & 1:
                others.append(number)
                continue
            end, is_whole = self._try(number, text, at)
            if end is not None and is_whole:
                if second is not None:
                    self._columns[second].truncate(self._counts[second])
                return number, end
            if end is not None and second is None:
                second, end_of_second = number, end
            elif end is not None:
                self._columns[number].truncate(self._counts[number])
            if fitting == -1 and first == "{" and len(order) > _FEW_MEMBERS:
                fitting = self._with_names(text, at)
        if second is None:
            for number in others:
                end, _ = self._try(number, text, at)
                if end is not None:
                    return number, end
        return second, end_of_second

    def _try(self, number: int, text: str, at: int) -> tuple[int | None, bool]:
        """Read the value as a member; returns where it ends, and whether that has all of its names."""
        room, column = self._room, self._columns[number]
        left, tries = room.left, room.tries
        end: int | None = None
        room.at = at
        self._tried.add(number)
        try:
            end = column.read(text, at)
            is_whole = not (isinstance(column, _Structs) and column.unknown)
        except BadJsonError:
            if room.is_full:
                raise
            is_whole = False
            column.truncate(self._counts[number])
            room.left, room.tries = left, tries
        if not is_whole:
            room.again -= 1 + (room.at if end is None else end) - at
            if room.again < 0:
                raise BadJsonError("its unions have to be read too often to find their types")
        return end, is_whole

    def _with_names(self, text: str, at: int) -> int:
        """Which members may have an object with its names: a bit for each; maps have any."""
        known, maps = self._names
        fitting = -1
        at = skip_space(text, at + 1)
        while text[at] != "}":
            name, at = read_name(text, at)
            fitting &= known.get(name, 0) | maps
            at = skip_space(text, skip_value(text, at))
            if text[at] == ",":
                at = skip_space(text, at + 1)
            elif text[at] != "}":
                raise unexpected(text, at, "a comma or }")
        return fitting

    @cached_property
    def _names(self) -> tuple[dict[str, int], int]:
        """The records that have a name, a bit for each; and the members that are maps."""
        known: dict[str, int] = {}
        maps = 0
        for number, member in enumerate(self._members):
            if isinstance(member, JsonRecord):
                for each in member.members:
                    known[each.key] = known.get(each.key, 0) | 1 << number
            elif isinstance(member, JsonMap):
                maps |= 1 << number
        return known, maps

    def _order(self, first: str) -> list[int]:
        """Those first that look like what begins with a character; other characters are in no JSON."""
        numbers = range(len(self._members))
        alike = [number for number in numbers if _is_alike(self._members[number], first)]
        known = set(alike)
        order = alike if first == "{" else [*alike, *(each for each in numbers if each not in known)]
        if alike:
            self._orders[first] = order
        return order

    def _add(self, number: int, end: int) -> int:
        self._which.append(number)
        self._counts[number] += 1
        self._tried.clear()
        self._valid.append(1)
        return end

    def add_null(self) -> None:
        self._which.append(-1)
        self._valid.append(0)

    def truncate(self, count: int) -> None:
        # Of many members, few have a value.
        for number in self._which[count:]:
            if number >= 0:
                self._counts[number] -= 1
                self._tried.add(number)
        for number in self._tried:
            self._columns[number].truncate(self._counts[number])
        self._tried.clear()
        del self._which[count:], self._valid[count:]

    def finish(self) -> pa.Array:
        which = np.frombuffer(self._which, np.int32)
        columns = [
            self._member(which, index, field.type)
            for index, field in zip(self._indexes, self._type, strict=True)
        ]
        return pa.Array.from_buffers(self._type, len(self), [self._validity()], children=columns)

    def _member(self, which: npt.NDArray[np.int32], number: int, kind: pa.DataType) -> pa.Array:
        """The values of a member, null in the rows of others."""
        count = self._counts[number]
        if not count:
            return pa.nulls(len(which), kind)
        values = select(self._columns[number].finish(), kind)
        if count == len(which):
            return values
        place = np.full(len(which), -1, np.int32)
        place[which == number] = np.arange(count, dtype=np.int32)
        return values.take(pa.array(place, mask=place < 0))


def _is_alike(node: JsonNode, first: str) -> bool:
    """Whether a value that begins with this character looks like one of the node."""
    if isinstance(node, JsonRecord | JsonMap):
        return first == "{"
    if isinstance(node, JsonArray):
        return first == "["
    assert isinstance(node, JsonLeaf)
    if node.kind is JsonKind.BOOLEAN:
        return first in "tf"
    if node.kind in (JsonKind.TEXT, JsonKind.BYTES):
        return first == '"'
    return first in "-0123456789NI"


def _take(room: JsonRoom, size: int) -> None:
    room.left -= size
    if room.left < 0:
        raise BadJsonError(room.why)
