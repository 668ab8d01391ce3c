"""The type of a JSON value as a tree, made from the writer's schema, the reader's and the column's type.

Payloads contain the names of fields. The writer's schema is needed for the unit of timestamps that are whole
numbers, for names that the reader has only as aliases, and to know whether bytes are always base64.

A union's value is tried as each member, even as members that the query does not request. So all fields of a
union are read, and then the requested fields are selected.

Only Kafka Connect's converter writes decimals as base64, and maps as arrays of pairs. The schemas of such
values are recognized by a property that Pulsar's adaptor for Kafka Connect writes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, auto
from typing import Any, Final, TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro.avro_types import (
    READ_OFFSET,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    arrow_type,
    branch_name,
    field_path,
    is_member_struct,
)
from pulsar_spark.values.avro.defaults import Constant, Defaults, has_null
from pulsar_spark.values.avro.resolve import MAX_CONSTANTS, check_target, check_times, field_matches
from pulsar_spark.values.json_types import is_of_java, is_pairs, parse
from pulsar_spark.values.time_units import MICROS, TimeUnit, unit_of
from pulsar_spark.values.value_bounds import item_width, max_growth

_MAX_BYTES: Final = 1_000  # maximum bytes of a decimal, because its digits take quadratic time
_MAX_SCALE: Final = 1_000_000  # larger scales are beyond Python's decimals
_SHOWN: Final = 100  # maximum characters of a name in errors


def number_of(text: str, scale: int) -> str | None:
    """Returns a decimal of Kafka Connect as text; ``text``: base64 of the unscaled integer, big-endian.

    Returns None if the text is not base64 of 1 to 1,000 bytes, or the scale is above 1,000,000.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    if not 0 < len(data) <= _MAX_BYTES or scale > _MAX_SCALE:
        return None
    sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
    return str(Decimal((sign, digits, -scale)))


def pairs_of(value: Any) -> Any:
    """Converts a map to a list of key-value records; returns other values unchanged.

    Java writes maps as objects. Connect writes arrays of pairs if the keys are not strings.
    """
    if type(value) is dict:
        return [{"key": key, "value": each} for key, each in value.items()]
    if type(value) is not list:
        return value
    return [
        {"key": each[0], "value": each[1]} if type(each) is list and len(each) == 2 else each
        for each in value
    ]


class JsonKind(Enum):
    """The kinds of leaves, which are nodes without child nodes."""

    NULL = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    FLOAT = auto()
    TEXT = auto()
    BYTES = auto()
    DATE = auto()
    TIMESTAMP = auto()
    TIME = auto()
    DECIMAL = auto()
    NUMBER = auto()
    JSON = auto()


@dataclass(frozen=True, slots=True)
class JsonLeaf:
    """A node without child nodes.

    Attributes:
        unit: unit of times that are whole numbers; the column's unit is 1 us, for times of day 1 ns.
        size: bytes of a value of Avro's type fixed; None: any number.
        is_base64: True: text that is not base64 is bad. False: such text becomes its UTF-8 bytes.
        scale: scale of Kafka Connect's decimal, whose text is base64; None: text is a number.
        symbols: text in the payload -> symbol of an enum; None: any text is accepted. Numbers become text,
            because Python's client writes numbers for enums.
    """

    kind: JsonKind
    type: pa.DataType
    unit: TimeUnit = MICROS
    size: int | None = None
    is_base64: bool = False
    scale: int | None = None
    symbols: Mapping[str, str] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class JsonArray:
    """An array; ``is_map``: its items are the key-value pairs of a map, which may be an object in JSON."""

    type: pa.DataType
    item: JsonNode
    is_map: bool = False


@dataclass(frozen=True, slots=True)
class JsonMap:
    """A map from strings to values of one type."""

    type: pa.DataType
    value: JsonNode


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A field of a record; ``key``: its name in payloads.

    ``default``: value if a payload lacks the field; None: null; a str: the payload is bad, with this error.
    """

    key: str
    node: JsonNode
    default: Constant | str | None = None


@dataclass(frozen=True, slots=True)
class JsonRecord:
    """A JSON object; ``members`` are in the order of the column's fields, other names are ignored.

    ``names``: at the root, names in payloads of all fields of the writer's and reader's schema; else empty.
    """

    type: pa.DataType
    members: tuple[JsonMember, ...]
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JsonUnion:
    """A union, whose column is a struct with a field for each member; at most one field is not null.

    Attributes:
        type: type of the column, which has only the requested members and fields.
        members: all members of the schema with all fields, so that the chosen member does not depend on the
            requested fields.
        indexes: index in ``members`` of each field of the column.
        number: number that equal unions of a tree share.
    """

    type: pa.DataType
    members: tuple[JsonNode, ...]
    indexes: tuple[int, ...]
    number: int = -1


# Bytes of memory of a value while it is read, without its text; 1 is for validity, 4 for a text's offset.
_WIDTHS: Final = {
    JsonKind.NULL: 1,
    JsonKind.BOOLEAN: 2,
    JsonKind.TEXT: 5,
    JsonKind.BYTES: 5,
    JsonKind.DECIMAL: 21,
    JsonKind.NUMBER: 5,
    JsonKind.JSON: 5,
}
JsonNode: TypeAlias = "JsonLeaf | JsonArray | JsonMap | JsonRecord | JsonUnion"


def item_size(node: JsonArray | JsonMap) -> int:
    """Returns the bytes of an item in the column, or half of its bytes while it is read if that is more."""
    width = _row_width(node.item) if isinstance(node, JsonArray) else 5 + _row_width(node.value)
    return max(item_width(node.type), width // 2)


def _row_width(node: JsonNode) -> int:
    """Returns the bytes of memory of a value while it is read, without its text and its items."""
    if isinstance(node, JsonRecord | JsonUnion):
        return 1 + sum(map(_row_width, parts_of(node)))
    if isinstance(node, JsonLeaf):
        return _WIDTHS.get(node.kind) or 1 + node.type.bit_width // 8
    return 5


def parts_of(node: JsonNode) -> Sequence[JsonNode]:
    """Returns the nodes directly within a node."""
    if isinstance(node, JsonArray | JsonMap):
        return (node.item if isinstance(node, JsonArray) else node.value,)
    if isinstance(node, JsonRecord):
        return [member.node for member in node.members]
    return node.members if isinstance(node, JsonUnion) else ()


def growth(node: JsonNode) -> float:
    """Returns the maximum column bytes for each payload byte, not counting text of the payload."""
    return max_growth(_lists(node))


def _lists(node: JsonNode) -> Iterator[tuple[int, int]]:
    if isinstance(node, JsonArray):
        # The second number is the minimum bytes of an item with its comma: ``1,`` (a leaf), or ``{},``.
        yield item_size(node) + added_text(node.item), 2 if isinstance(node.item, JsonLeaf) else 3
    elif isinstance(node, JsonMap):
        yield item_size(node) + added_text(node.value), 5  # bytes of two quotes, a colon, a value and a comma
    for part in parts_of(node):
        yield from _lists(part)


def leaf_kinds(node: JsonNode) -> set[JsonKind]:
    """Returns the kinds of all leaves of a tree."""
    return {node.kind} if isinstance(node, JsonLeaf) else set().union(*map(leaf_kinds, parts_of(node)))


def added_text(node: JsonNode) -> int:
    """Returns the maximum bytes that the schema adds to a value: defaults of members and enums."""
    if isinstance(node, JsonUnion):
        return max(map(added_text, node.members))
    if isinstance(node, JsonLeaf):
        changed = (symbol for text, symbol in (node.symbols or {}).items() if len(symbol) > len(text))
        return max((len(symbol.encode()) for symbol in changed), default=0)
    if not isinstance(node, JsonRecord):
        return 0
    total = 0
    for member in node.members:
        total += added_text(member.node)
        total += member.default.column.nbytes if isinstance(member.default, Constant) else 0
    return total


def filled_type(whole: pa.DataType, part: pa.DataType) -> pa.DataType:
    """Returns ``whole``, but with the type in ``part`` for each field that ``part`` has."""
    if pa.types.is_struct(whole):
        fields = []
        for field in whole:
            index = part.get_field_index(field.name)
            below = field.type if index < 0 else filled_type(field.type, part[index].type)
            fields.append(pa.field(field.name, below))
        return pa.struct(fields)
    if pa.types.is_list(whole):
        return pa.list_(pa.field("element", filled_type(whole.value_type, part.value_type)))
    if pa.types.is_map(whole):
        return pa.map_(pa.string(), pa.field("value", filled_type(whole.item_type, part.item_type)))
    return part


def select(column: pa.Array, part: pa.DataType) -> pa.Array:
    """Returns the column as type ``part``, with only the fields of ``part``, in the order of ``part``.

    ``column`` must have no offset. Its type must be ``filled_type(whole, part)`` for some ``whole``.
    """
    if column.type.equals(part):
        return column
    if pa.types.is_struct(part):
        fields = [select(column.field(field.name), field.type) for field in part]
        return pa.Array.from_buffers(part, len(column), column.buffers()[:1], children=fields)
    if pa.types.is_list(part):
        items = select(column.values, part.value_type)
    else:
        items = pa.StructArray.from_arrays(
            [column.keys, select(column.items, part.item_type)], fields=[part.key_field, part.item_field]
        )
    return pa.Array.from_buffers(part, len(column), column.buffers()[:2], children=[items])


_WAY_OUT: Final = "Correct the schema, or read the topic with valueFormat=raw"


def make_tree(writer: Schema, reader: Schema, target: pa.DataType) -> JsonNode:
    """Returns the tree of a column; arguments and errors as for ``formats.decoder``."""
    is_connect = READ_OFFSET in writer.properties
    is_base64 = is_connect or is_of_java(writer)  # Java's bytes are always base64
    written = parse(writer) if writer != reader else None
    read = parse(reader)
    check_target(arrow_type(read), target)
    tree = _Maker(is_base64=is_base64, is_connect=is_connect).node(written or read, read, target, "")
    if added_text(tree) > MAX_CONSTANTS:
        raise UnsupportedError("the defaults in the topic's schema are too large", advice=_WAY_OUT)
    return tree


def _plain(avro: AvroType | None) -> AvroType | None:
    """Returns T for a union of null and one type T; returns other types unchanged."""
    if isinstance(avro, AvroUnion) and len(avro.members) == 1:
        return avro.members[0]
    return avro


class _Maker:
    def __init__(self, *, is_base64: bool, is_connect: bool) -> None:
        self._is_base64 = is_base64
        self._is_connect = is_connect
        self._defaults = Defaults(_WAY_OUT)
        self._unions: dict[tuple[JsonNode, ...], int] = {}  # members of a union -> its ``number``

    def node(self, writer: AvroType | None, reader: AvroType, target: pa.DataType, path: str) -> JsonNode:
        """Returns the node of a type; ``writer`` is None if the writer has no such type."""
        writer, plain = _plain(writer), _plain(reader)
        assert plain is not None
        if isinstance(plain, AvroRecord):
            return self._record(writer, plain, target, path)
        if isinstance(plain, AvroArray):
            items = writer.items if isinstance(writer, AvroArray) else None
            node = self.node(items, plain.items, target.value_type, f"{path}[]")
            return JsonArray(target, node, is_pairs(plain, is_connect=self._is_connect))
        if isinstance(plain, AvroMap):
            values = writer.values if isinstance(writer, AvroMap) else None
            return JsonMap(target, self.node(values, plain.values, target.item_type, f"{path}{{}}"))
        if isinstance(plain, AvroUnion) and is_member_struct(plain):
            return self._union(writer, plain, target, path)
        return self._leaf(writer, plain, target, path)

    def _record(
        self, writer: AvroType | None, reader: AvroRecord, target: pa.DataType, path: str
    ) -> JsonRecord:
        theirs: dict[str, AvroType] = {}
        keys: dict[str, str] = {}
        if isinstance(writer, AvroRecord):
            theirs = {each.name: each.type for each in writer.fields}
            keys = {each.name: key for key, each in field_matches(writer, reader).items()}
        ours = {each.name: each for each in reader.fields}
        members = []
        for column in target:
            below = field_path(path, column.name)
            field = ours[column.name]
            key = keys.get(field.name, field.name)
            written = theirs.get(key)
            node = self.node(written, field.type, column.type, below)
            # Writers leave nulls out, so a missing field is null if the writer's version allows null.
            is_null = field.default is None or (written is not None and has_null(written))
            default = None if is_null else self._default(field, column.type, below)
            members.append(JsonMember(key, node, default))
        names = () if path else (*theirs, *(keys.get(name, name) for name in ours))
        return JsonRecord(target, tuple(members), frozenset(names))

    def _default(self, field: AvroField, target: pa.DataType, path: str) -> Constant | str:
        try:
            return self._defaults.constant(field, target, path)
        except SchemaError as error:
            return error.what

    def _union(self, writer: AvroType | None, reader: AvroUnion, target: pa.DataType, path: str) -> JsonUnion:
        theirs = writer.members if isinstance(writer, AvroUnion) else ()
        if list(map(_shape, theirs)) != list(map(_shape, reader.members)):
            by_name = {branch_name(each): each for each in theirs}
            theirs = tuple(by_name.get(branch_name(each), each) for each in reader.members)
        whole = arrow_type(reader)
        members = tuple(
            self.node(written, member, column.type, path)
            for written, member, column in zip(
                theirs, reader.members, filled_type(whole, target), strict=True
            )
        )
        indexes = tuple(whole.get_field_index(column.name) for column in target)
        return JsonUnion(target, members, indexes, self._unions.setdefault(members, len(self._unions)))

    def _leaf(self, writer: AvroType | None, reader: AvroType, target: pa.DataType, path: str) -> JsonLeaf:
        source = arrow_type(reader)
        check_times(writer, reader, target, path)
        if pa.types.is_timestamp(target):
            is_theirs = "timestamp" in getattr(writer, "logical", "")
            return JsonLeaf(JsonKind.TIMESTAMP, target, unit=unit_of(writer if is_theirs else reader))
        logical = getattr(reader, "logical", "")
        if logical == "json":
            return JsonLeaf(JsonKind.JSON, target)
        if logical.startswith("time-") and not pa.types.is_floating(target):
            return JsonLeaf(JsonKind.TIME, target, unit=unit_of(reader, pa.time64("ns")))
        if _is_text(writer) and _is_text(reader):
            source = arrow_type(writer)  # because text may be base64 only if the writer's type is bytes
        scale = getattr(writer or reader, "scale", 0) if self._is_connect else None
        if logical == "number" and scale is not None:
            return JsonLeaf(JsonKind.NUMBER, target, scale=scale)
        if source == pa.binary():
            size = reader.size if isinstance(reader, AvroFixed) else None
            return JsonLeaf(JsonKind.BYTES, target, size=size, is_base64=self._is_base64)
        symbols = _symbols(writer, reader) if isinstance(reader, AvroEnum) else None
        kind = _kind(source, target)
        return JsonLeaf(kind, target, scale=scale if kind is JsonKind.DECIMAL else None, symbols=symbols)


def _shape(avro: AvroType) -> object:
    """Returns a key to compare members of two unions: the kind of a primitive, else the Avro class."""
    return avro.kind if isinstance(avro, AvroPrimitive) else type(avro)


def _is_text(avro: AvroType | None) -> TypeGuard[AvroPrimitive]:
    """Whether a type is plain string or bytes, which Avro promotes to each other."""
    return isinstance(avro, AvroPrimitive) and not avro.logical and avro.kind in ("string", "bytes")


def _symbols(writer: AvroType | None, reader: AvroEnum) -> dict[str, str]:
    """Returns text -> symbol for all symbols of the reader; the writer's other symbols become the default."""
    symbols = {symbol: symbol for symbol in reader.symbols}
    if isinstance(writer, AvroEnum) and reader.default is not None:
        symbols = dict.fromkeys(writer.symbols, reader.default) | symbols
    return symbols


def _kind(source: pa.DataType, target: pa.DataType) -> JsonKind:
    if source == pa.string():
        return JsonKind.TEXT
    for is_kind, kind in (
        (pa.types.is_null, JsonKind.NULL),
        (pa.types.is_boolean, JsonKind.BOOLEAN),
        (pa.types.is_integer, JsonKind.INTEGER),
        (pa.types.is_floating, JsonKind.FLOAT),
        (pa.types.is_date, JsonKind.DATE),
    ):
        if is_kind(target):
            return kind
    return JsonKind.DECIMAL


def misnamed(node: JsonRecord, values: list[Any], column: pa.StructArray) -> dict[int, str]:
    """Returns row -> reason for each record that is bad because a name is written in another case.

    All fields of such a record are null, none of its names is in the schema, and a name differs from a name
    in the schema only in case. ``values``: parsed values of ``column``.
    """
    rows = rows_without_values(column)
    if not len(rows):
        return {}
    similar = {key.lower(): key for key in sorted(node.names)}
    found = {}
    for row in rows.tolist():
        if type(values[row]) is dict and node.names.isdisjoint(values[row]):
            for name in values[row]:
                key = similar.get(name.lower())
                if key is not None:
                    found[row] = f"the schema has {key[:_SHOWN]!a}, but not {name[:_SHOWN]!a}"
                    break
    return found


def rows_without_values(column: pa.StructArray) -> Ints:
    """Returns the ascending indexes of the structs whose fields are all null."""
    found = column.is_valid().to_numpy(zero_copy_only=False)
    for number in range(column.type.num_fields):
        child = column.field(number)
        if not child.null_count:
            return np.zeros(0, np.int64)
        found = found & child.is_null().to_numpy(zero_copy_only=False)
    return np.flatnonzero(found)
