"""Reads JSON payloads through Python objects: any schema and any payload; explains bad payloads.

    ===============  ==================================================================================
    column           accepted JSON; null becomes null
    ===============  ==================================================================================
    boolean          ``true``, ``false``, 1, 0, or a text of these, in upper or lower case
    int, bigint      a whole number (5, 5.0, 5e2) in the type's range, or a text of it
    float, double    a number in the type's range, ``NaN``, ``Infinity``, ``-Infinity``, or a text of these
    string           text; or a number, as it is written (an enum of Python's client may be one)
    binary           text: base64, see ``json_read``; a fixed must have its size
    date             ``[y, m, d]``; days since 1970; text ``y-m-d``
    timestamp        a number with a point or an exponent: seconds (``-2.25`` is 1.75 s before 1970, as in
                     Java); a whole number: of the schema's unit; text: ISO 8601 (without a zone: UTC), or a
                     number
    timestamp_ntz    the same, without a zone; ``[y, m, d, h, min]``, also with seconds and nanoseconds
    decimal          a number, or a text of it, without more digits than the type has; from Kafka Connect
                     base64 of the digits, see ``tree.number_of``
    time of day      a number of the schema's unit; ``[h, min]``, also with seconds and nanoseconds; text
                     ``h:min``, also with seconds
    any JSON         any JSON; the column has its text, without spaces
    array, map       array; object. Pairs of keys and values: array or object
    struct           object; a name that the schema does not have is ignored, and a missing name has its
                     default or null
    struct<member0>  a union: the first member that accepts the value; ``unions`` tries likely members first
                     (for an object: maps, and records that have all its names)
    ===============  ==================================================================================

Fractions of a microsecond are cut towards the past. If an object has a name twice, the last value counts.

For each node of the tree, the values of all payloads are one list. The list becomes an Arrow array at once if
all values have their usual form; otherwise values are converted one by one. A value that does not fit its
node makes its payload bad.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable
from itertools import chain
from itertools import count as counting
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints, bytes_and_offsets, offsets_from
from pulsar_spark.values.avro.defaults import Constant
from pulsar_spark.values.interfaces import DecodedValues
from pulsar_spark.values.json.budget import JsonBudget
from pulsar_spark.values.json.leaves import FORMS, BadJsonError, LeftError, made_column, shown, usual_column
from pulsar_spark.values.json.parse import parse, parse_all, refusal, text_of
from pulsar_spark.values.json.tree import (
    JsonArray,
    JsonKind,
    JsonLeaf,
    JsonMap,
    JsonNode,
    JsonRecord,
    JsonUnion,
    growth,
    item_size,
    leaf_kinds,
    misnamed,
    pairs_of,
)
from pulsar_spark.values.json.unions import MemberOrder, UnionMembers, spread, union_column
from pulsar_spark.values.value_bounds import ANY_WORK, ValueWork, largest_unchecked

_SPARSE: Final = 8  # records with fewer names than members / _SPARSE are read name by name
_NAME: Final = JsonLeaf(JsonKind.TEXT, pa.string())  # leaf of the names of a map
_UNITS: Final = 2.0  # units of work of a value that is converted by itself


class TextNeededError(Exception):
    """A number was parsed as a float, but its text is needed."""


class ObjectReader:
    """Reads payloads of one type."""

    def __init__(self, node: JsonNode) -> None:
        self._node = node
        self._growth = growth(node)
        # Numbers are parsed as floats, which is faster, until a payload needs the text of a number.
        self._keeps_text = JsonKind.JSON in leaf_kinds(node)

    def read(self, payloads: pa.BinaryArray, work: ValueWork = ANY_WORK) -> DecodedValues:
        """Reads n payloads; null is a null row, and not bad."""
        # Garbage collection is off: it would visit the parsed objects, which have no cycles, again and again.
        is_collected = gc.isenabled()
        gc.disable()
        try:
            if not self._keeps_text:
                try:
                    return self._read(payloads, work, keeps_text=False)
                except TextNeededError:
                    self._keeps_text = True
            return self._read(payloads, work, keeps_text=True)
        finally:
            if is_collected:
                gc.enable()

    def _read(self, payloads: pa.BinaryArray, work: ValueWork, *, keeps_text: bool) -> DecodedValues:
        sizes = np.diff(bytes_and_offsets(payloads)[1])
        reader = _Columns(JsonBudget(sizes, largest_unchecked(self._growth), work), np.arange(len(payloads)))
        values, bad = parse_all(payloads, keeps_text=keeps_text)
        reader.is_bad[bad] = True
        return reader.finish(self._node, values)


def explain(node: JsonNode, payload: bytes) -> str:
    """Returns the path of the first mistake in a payload, and the mistake; "" for a good payload."""
    try:
        value = parse(payload)
    except ValueError:
        return refusal(payload)
    unchecked = largest_unchecked(growth(node))
    reader = _Columns(JsonBudget(np.array([len(payload)]), unchecked, ANY_WORK), np.zeros(1, np.int64))
    if reader.finish(node, [value]).is_bad is None:
        return ""
    path, reason = reader.why
    return f"field {path!r}: {reason}" if path else reason


class _Columns:
    """Converts the values of n payloads, or n values as one member of a union.

    Args:
        payload_of: index of the payload of each value, int64[n].
        is_tried: True if the values are read as a union's member.
        is_again: True if the values were already read as another member.

    Attributes:
        is_bad: flags of the values that do not fit the node, bool[n].
    """

    def __init__(
        self, budget: JsonBudget, payload_of: Ints, *, is_tried: bool = False, is_again: bool = False
    ) -> None:
        self.is_bad: Flags = np.zeros(len(payload_of), np.bool_)
        self._budget = budget
        self._payload_of = payload_of
        self._is_tried = is_tried
        self._is_again = is_again
        # The first mistake: its path below the node, its reason, and the index of its value.
        self._path = self._reason = ""
        self._index = 0

    @property
    def why(self) -> tuple[str, str]:
        """Returns the path and reason of the first mistake."""
        return ("", self._budget.reason) if self._budget.any_spent else (self._path.lstrip("."), self._reason)

    def finish(self, node: JsonNode, values: list[Any]) -> DecodedValues:
        """Returns the column, with null for bad payloads."""
        column = self.read(node, values, self._payload_of)
        if isinstance(node, JsonRecord):
            bad = misnamed(node, values, column)
            self._fail(self._payload_of, list(bad), bad.__getitem__)
        is_bad = self.is_bad | self._budget.is_spent
        if not is_bad.any():
            return DecodedValues(column)
        if (is_bad & column.is_valid().to_numpy(zero_copy_only=False)).any():
            rows = np.arange(len(values), dtype=np.int32)
            column = column.take(pa.array(rows, mask=is_bad))
        return DecodedValues(column, is_bad)

    def read(self, node: JsonNode, values: list[Any], owner: Ints) -> pa.Array:
        """Returns the array of a node's values.

        Args:
            values: parsed values, [m]; None is null.
            owner: index in ``is_bad`` of the flag to set if the value is bad, for each value, int64[m].
        """
        if self._is_again:
            self._budget.read_again(self._payload_of[owner])
        if isinstance(node, JsonRecord):
            return self._record(node, values, owner)
        if isinstance(node, JsonArray):
            return self._array(node, values, owner)
        if isinstance(node, JsonMap):
            return self._map(node, values, owner)
        if isinstance(node, JsonUnion):
            return self._union(node, values, owner)
        return self._leaf(node, values, owner)

    def _fail(self, owner: Ints, indexes: list[int], reason: Callable[[int], str]) -> None:
        """Sets ``is_bad[owner[i]]`` for each i in ``indexes``; ``reason``: i -> text of the mistake."""
        if indexes:
            self.is_bad[owner[indexes]] = True
            if not self._reason:
                self._path, self._reason, self._index = "", reason(indexes[0]), indexes[0]

    def _below(
        self, node: JsonNode, values: list[Any], owner: Ints, place: Callable[[int], tuple[str, int]]
    ) -> pa.Array:
        """Reads values inside other values, such as items; completes the path of the first mistake.

        ``place``: index in ``values`` -> first part of the path, and index of the enclosing value.
        """
        was_good = not self._reason
        column = self.read(node, values, owner)
        if was_good and self._reason:
            name, self._index = place(self._index)
            self._path = name + self._path
        return column

    def _only(self, kind: type, wanted: str, values: list[Any], owner: Ints) -> tuple[list[Any], bool]:
        """Replaces values of other types by None, and flags them bad; returns all, and if any is None."""
        kinds = set(map(type, values))
        if kinds <= {kind, type(None)}:
            return values, len(kinds) > 1 or kind not in kinds
        return self._of_types(frozenset((kind,)), wanted, values, owner), True

    def _of_types(self, types: frozenset[type], wanted: str, values: list[Any], owner: Ints) -> list[Any]:
        """Replaces values whose type is not in ``types`` by None, and flags them as bad."""
        known = {*types, type(None)}
        bad = [index for index, value in enumerate(values) if type(value) not in known]
        self._fail(owner, bad, lambda index: f"expected {wanted}, but found {shown(values[index])}")
        return [value if type(value) in known else None for value in values] if bad else values

    def _not_bad(self, values: list[Any], owner: Ints) -> list[Any]:
        return _without(values, self.is_bad[owner]) if self.is_bad.any() else values

    def _not_spent(self, values: list[Any], owner: Ints) -> list[Any]:
        budget = self._budget
        return _without(values, budget.is_spent[self._payload_of[owner]]) if budget.any_spent else values

    def _record(self, node: JsonRecord, values: list[Any], owner: Ints) -> pa.Array:
        values, has_null = self._only(dict, "an object", values, owner)
        count, rows = len(values), None
        if has_null:
            rows = [index for index, value in enumerate(values) if value is not None]
            values, owner = [values[index] for index in rows], owner[rows]
        found: dict[str, tuple[list[int], list[Any]]] | None = None
        if len(node.members) > _SPARSE and sum(map(len, values)) * _SPARSE < len(values) * len(node.members):
            found = _by_member(node, values)
        columns = []
        known_bad = int(np.count_nonzero(self.is_bad))
        for member in node.members:
            if (count_bad := int(np.count_nonzero(self.is_bad))) > known_bad:
                known_bad = count_bad
                values = [value or {} for value in self._not_bad(values, owner)]
            # ``some``: indexes of the records that have the member, or None for all. ``part``: their values.
            some, part = (found or {}).get(member.key) or (None, _values(member.key, values))
            mine = owner if some is None else owner[some]

            def place(index: int, key: str = member.key, some: Any = some) -> tuple[str, int]:
                at = index if some is None else some[index]
                return f".{key}", at if rows is None else rows[at]

            column = self._below(member.node, part, mine, place)
            if isinstance(member.default, str):
                self._require(member.key, member.default, values, owner, rows)
            elif member.default is not None:
                column = self._with_default(member.key, member.default, column, values, owner)
            columns.append(column if some is None else spread(column, some, len(values)))
        column = pa.Array.from_buffers(node.type, len(values), [None], children=columns)
        return column if rows is None else spread(column, rows, count)

    def _require(self, key: str, reason: str, values: list[Any], owner: Ints, rows: list[int] | None) -> None:
        """Flags records without the name ``key`` as bad; ``rows``: their indexes, if some are null."""
        was_good = not self._reason
        self._fail(owner, [index for index, value in enumerate(values) if key not in value], lambda _: reason)
        if was_good and self._reason and rows is not None:
            self._index = rows[self._index]

    def _with_default(
        self, key: str, default: Constant, column: pa.Array, values: list[Any], owner: Ints
    ) -> pa.Array:
        """Puts ``default`` into the rows of ``column`` whose record lacks the name ``key``."""
        lacking = np.array([key not in value for value in values], np.bool_)
        if not lacking.any():
            return column
        if self._budget.room is not None:
            payloads = self._payload_of[owner[lacking]]
            self._budget.take_room(payloads, np.full(len(payloads), default.column.nbytes))
            lacking &= ~self._budget.is_spent[self._payload_of[owner]]
        rows = np.where(lacking, len(column), np.arange(len(column)))
        return pa.concat_arrays([column, default.column]).take(pa.array(rows))

    def _array(self, node: JsonArray, values: list[Any], owner: Ints) -> pa.Array:
        if node.is_map:
            values = list(map(pairs_of, values))
        values, has_null = self._only(list, "an array", values, owner)
        some, offsets, validity = self._items(node, values, owner, has_null=has_null)
        # A single array is not copied, because it may be huge: a large payload is read alone.
        items = some[0] if len(some) == 1 else list(chain.from_iterable(some))
        place = _places(offsets, "[{}]".format)
        column = self._below(node.item, items, np.repeat(owner, np.diff(offsets)), place)
        buffers = [validity, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(node.type, len(values), buffers, children=[column])

    def _map(self, node: JsonMap, values: list[Any], owner: Ints) -> pa.Array:
        values, has_null = self._only(dict, "an object", values, owner)
        some, offsets, validity = self._items(node, values, owner, has_null=has_null)
        of_each = np.repeat(owner, np.diff(offsets))
        place = _places(offsets, lambda _: "{}")
        names = list(chain.from_iterable(some))
        try:
            keys = pa.array(names, pa.string())
        except UnicodeEncodeError:
            keys = self._below(_NAME, names, of_each, place).fill_null("")
        items = list(chain.from_iterable(map(dict.values, some)))
        column = self._below(node.value, items, of_each, place)
        entries = pa.StructArray.from_arrays(
            [keys, column], fields=[node.type.key_field, node.type.item_field]
        )
        buffers = [validity, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(node.type, len(values), buffers, children=[entries])

    def _items(
        self, node: JsonArray | JsonMap, values: list[Any], owner: Ints, *, has_null: bool
    ) -> tuple[list[Any], npt.NDArray[np.int32], pa.Buffer | None]:
        """Returns lists or dicts (empty if null or too large), their item offsets, the validity bitmap."""
        empty: list[Any] | dict[str, Any] = [] if isinstance(node, JsonArray) else {}
        some = [value or empty for value in values] if has_null else values
        lengths = np.fromiter(map(len, some), np.int64, len(some))
        if self._budget.room is not None:
            self._budget.take_room(self._payload_of[owner], lengths * item_size(node))
            if self._budget.any_spent:
                some = [value or empty for value in self._not_spent(some, owner)]
                lengths = np.fromiter(map(len, some), np.int64, len(some))
        return some, offsets_from(lengths, np.int32), _validity(values) if has_null else None

    def _union(self, node: JsonUnion, values: list[Any], owner: Ints) -> pa.Array:
        budget, payload_of = self._budget, self._payload_of[owner]
        left = [index for index, value in enumerate(values) if value is not None]
        orders: dict[int, MemberOrder] = {}
        chosen = np.full(len(values), -1)
        parts: dict[int, list[tuple[list[int], pa.Array]]] = {}
        for rank in counting():
            if not left:
                break
            budget.take_work(payload_of[left], 1.0)
            if budget.any_spent:
                left = np.array(left)[~budget.is_spent[payload_of[left]]].tolist()
            if rank == 0:
                orders = self._orders(node, values, left)
            groups: dict[int, list[int]] = defaultdict(list)
            for index in left:
                groups[orders[index].member(rank)].append(index)
            self._fail(owner, groups.pop(-1, []), lambda _: "a value of none of the union's types")
            left = []
            for number, mine in groups.items():
                is_again = rank > 0 or self._is_again
                column, good, rest = self._of_member(node.members[number], values, payload_of, mine, is_again)
                parts.setdefault(number, []).append((good, column))
                chosen[good] = number
                left += rest
        if self._is_tried:
            for index, value in enumerate(values):
                if type(value) in (dict, list):
                    budget.choices[node.number, id(value)] = int(chosen[index])
        return union_column(node, chosen, parts)

    def _orders(self, node: JsonUnion, values: list[Any], indexes: list[int]) -> dict[int, MemberOrder]:
        """Returns for each index the order of members to try; only the chosen member if that is known."""
        members = self._budget.members.get(id(node))
        if members is None:
            members = self._budget.members[id(node)] = UnionMembers(node)
        orders = {index: members.order(values[index]) for index in indexes}
        if self._is_tried:
            for index in indexes:
                choice = self._budget.choices.get((node.number, id(values[index])))
                if choice is not None:
                    orders[index] = MemberOrder([1 << choice] if choice >= 0 else [])
        return orders

    def _of_member(
        self, member: JsonNode, values: list[Any], payload_of: Ints, mine: list[int], is_again: bool
    ) -> tuple[pa.Array, list[int], list[int]]:
        """Reads values at ``mine`` as ``member``; returns those that fit, their indexes, other indexes."""
        budget = self._budget
        before = None if budget.room is None else budget.room.copy()
        reader = _Columns(budget, payload_of[mine], is_tried=True, is_again=is_again)
        column = reader.read(member, [values[index] for index in mine], np.arange(len(mine)))
        if not reader.is_bad.any():
            return column, mine, []
        good = [mine[at] for at in np.flatnonzero(~reader.is_bad).tolist()]
        rest = [mine[at] for at in np.flatnonzero(reader.is_bad).tolist()]
        if before is not None:
            budget.give_room_back(before, payload_of[rest], payload_of[good])
        return column.filter(pa.array(~reader.is_bad)), good, rest

    def _leaf(self, leaf: JsonLeaf, values: list[Any], owner: Ints) -> pa.Array:
        kinds = set(map(type, values))
        kinds.discard(type(None))
        if not kinds:
            return pa.nulls(len(values), leaf.type)
        if leaf.kind is JsonKind.JSON:
            is_some = np.array([value is not None for value in values])
            self._budget.take_work(self._payload_of[owner[is_some]], _UNITS)
            values = self._not_spent(values, owner)
            texts = [None if value is None else text_of(value) for value in values]
            return pa.array(texts, pa.string()).cast(leaf.type)
        try:
            column = usual_column(leaf, kinds, values)
            if column is not None:
                return column
        except (LeftError, pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            pass
        if float in kinds and bytes in FORMS[leaf.kind].types:
            # For integers, only whole floats such as 5.0 need their text; other floats are bad anyway.
            is_integer = leaf.kind is JsonKind.INTEGER
            if not is_integer or any(type(value) is float and value.is_integer() for value in values):
                raise TextNeededError
        return made_column(leaf, self._converted(leaf, values, owner))

    def _converted(self, leaf: JsonLeaf, values: list[Any], owner: Ints) -> list[Any]:
        """Converts parsed values to values for the leaf's array; each distinct value is converted once."""
        types, wanted, convert = FORMS[leaf.kind]
        values = self._not_bad(values, owner)
        if tuple in types:
            values = [tuple(value) if _has_numbers(value) else value for value in values]
        values = self._of_types(types, wanted, values, owner)
        first = _first(values)
        self._budget.take_work(self._payload_of[owner[list(first.values())]], _UNITS)
        if self._budget.any_spent:
            values = self._not_spent(values, owner)
            first = _first(values)
        found: dict[Any, Any] = {None: None}
        bad: dict[Any, str] = {}
        for value in first:
            try:
                found[value] = convert(leaf, value)
            except BadJsonError as error:
                bad[value] = str(error)
        if bad:
            indexes = [index for index, value in enumerate(values) if value in bad]
            self._fail(owner, indexes, lambda index: bad[values[index]])
        return list(map(found.get, values))


def _without(values: list[Any], flags: Flags) -> list[Any]:
    return [None if flag else value for value, flag in zip(values, flags.tolist(), strict=True)]


def _values(key: str, values: list[Any]) -> list[Any]:
    try:
        return list(map(itemgetter(key), values))
    except KeyError:
        return [value.get(key) for value in values]


def _by_member(node: JsonRecord, values: list[Any]) -> dict[str, tuple[list[int], list[Any]]]:
    """For members without default: returns key -> (indexes of the records that have the key, its values)."""
    found: dict[str, tuple[list[int], list[Any]]] = {
        member.key: ([], []) for member in node.members if member.default is None
    }
    for index, value in enumerate(values):
        for key, each in value.items():
            if key in found:
                rows, some = found[key]
                rows.append(index)
                some.append(each)
    return found


def _places(offsets: Any, name: Callable[[int], str]) -> Callable[[int], tuple[str, int]]:
    """Returns ``place`` for ``_below``; ``name``: index in an array or map -> first part of the path."""

    def place(index: int) -> tuple[str, int]:
        at = int(np.searchsorted(offsets, index, side="right")) - 1
        return name(index - int(offsets[at])), at

    return place


def _has_numbers(value: Any) -> bool:
    if type(value) is not list:
        return False
    kinds = set(map(type, value))
    if float in kinds:
        raise TextNeededError
    return kinds <= {int, bytes}


def _first(values: list[Any]) -> dict[Any, int]:
    """Returns the first index of each distinct value other than None."""
    first = dict(zip(reversed(values), range(len(values) - 1, -1, -1), strict=True))
    first.pop(None, None)
    return first


def _validity(values: list[Any]) -> pa.Buffer:
    is_valid = np.array([value is not None for value in values], np.bool_)
    return pa.py_buffer(np.packbits(is_valid, bitorder="little"))
