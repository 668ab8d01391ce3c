"""Unions of JSON values, as they are read: which member a value is, and a column for each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.values.json.columns import JsonColumn, JsonRoom
from pulsar_spark.values.json.scan import BadJsonError, read_name, skip_space, skip_value, unexpected
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

_FEW_MEMBERS: Final = 2  # of a union, which are read without a look at the value's names


class JsonUnions(JsonColumn):
    """Unions: a column for each member, without rows that have another one: those take no time."""

    def __init__(self, node: JsonUnion, columns: Sequence[JsonColumn], room: JsonRoom) -> None:
        super().__init__(node.type)
        self._columns = columns
        self._room = room
        self._members = node.members
        self._orders: dict[str, list[int]] = {}  # in which members are tried, by the first character
        self._indexes = node.indexes
        self._number = node.number
        self._which = array("i")  # member each row is of; -1: it is null
        self._counts = [0] * len(node.members)  # rows of each
        self._tried: set[int] = set()  # members that may hold something of a value that is not added yet

    def read(self, text: str, at: int) -> int:
        """Add the value that begins at ``at``; return where it ends."""
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

        A record that has all names of the value comes before others: those are tried last. Of many
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
            is_whole = not column.unknown
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
        return names_of(self._members)

    def _order(self, first: str) -> list[int]:
        """Those first that look like what begins with a character; other characters are in no JSON."""
        # What takes any JSON is the last.
        numbers = sorted(range(len(self._members)), key=lambda number: _takes_all(self._members[number]))
        alike = [number for number in numbers if is_alike(self._members[number], first)]
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
        """Add a null."""
        self._which.append(-1)
        self._valid.append(0)

    def truncate(self, count: int) -> None:
        """Forget all after the first ``count`` values, and what was added of one that is bad."""
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
        """Make an Arrow array of all values."""
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


def names_of(members: Sequence[JsonNode]) -> tuple[dict[str, int], int]:
    """The records among a union's members that have a name, a bit for each; and the members that are maps."""
    known: dict[str, int] = {}
    maps = 0
    for number, member in enumerate(members):
        if isinstance(member, JsonRecord):
            for each in member.members:
                known[each.key] = known.get(each.key, 0) | 1 << number
        elif isinstance(member, JsonMap):
            maps |= 1 << number
    return known, maps


def is_alike(node: JsonNode, first: str) -> bool:
    """Whether a value that begins with this character looks like one of the node."""
    if isinstance(node, JsonRecord | JsonMap):
        return first == "{"
    if isinstance(node, JsonArray):
        return first == "["
    assert isinstance(node, JsonLeaf)
    if node.kind is JsonKind.JSON:
        return first in "{["
    if node.kind is JsonKind.BOOLEAN:
        return first in "tf"
    if node.kind in (JsonKind.TEXT, JsonKind.BYTES):
        return first == '"'
    return first in "-0123456789NI"


def _takes_all(node: JsonNode) -> bool:
    return isinstance(node, JsonLeaf) and node.kind is JsonKind.JSON
