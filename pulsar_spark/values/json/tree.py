"""How each part of a JSON value is read: a tree, of the writer's schema, the reader's and the column's type.

The writer's schema says little: JSON names its fields itself. It gives the unit of timestamps that are whole
numbers, names that the reader has as aliases only, and whether bytes are base64 for certain.

All members of a union are tried, even unwanted ones: so parts of a column are read whole, and then selected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

import pyarrow as pa

from pulsar_spark.values.avro.defaults import Constant
from pulsar_spark.values.time_units import MICROS, TimeUnit
from pulsar_spark.values.value_size import item_width, most_growth


class JsonKind(Enum):
    """What a value without parts is read as."""

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
    JSON = auto()


@dataclass(frozen=True, slots=True)
class JsonLeaf:
    """A value without parts.

    Attributes:
        kind: what it is read as.
        type: of its column.
        unit: of a timestamp that is a whole number; of a time of day.
        size: bytes of a fixed; None: any.
        is_base64: text that is not base64 is no value of bytes; else it stands for its UTF-8.
        symbols: of an enum, what each text is read as; None: any text. Numbers are texts that are not looked
            up: enums of Python's client may be some.
    """

    kind: JsonKind
    type: pa.DataType
    unit: TimeUnit = MICROS
    size: int | None = None
    is_base64: bool = False
    symbols: Mapping[str, str] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class JsonArray:
    """Items of one kind; ``is_map``: also those that an object's names and values are."""

    type: pa.DataType
    item: JsonNode
    is_map: bool = False


@dataclass(frozen=True, slots=True)
class JsonMap:
    """Values of one kind by string keys."""

    type: pa.DataType
    value: JsonNode


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A field of a record.

    Attributes:
        key: its name in payloads.
        node: how its value is read.
        default: the value of a missing member; None: null.
    """

    key: str
    node: JsonNode
    default: Constant | None = None


@dataclass(frozen=True, slots=True)
class JsonRecord:
    """Some members, in the order of the column's fields; others in the payload are not looked at."""

    type: pa.DataType
    members: tuple[JsonMember, ...]


@dataclass(frozen=True, slots=True)
class JsonUnion:
    """One of some nodes, as a struct of which one field is not null.

    Attributes:
        type: of its column, which may have some of the members, and parts of them.
        members: all of the schema's, with all of their parts: which of them a value is does not depend on
            what is asked for.
        indexes: which member each field of the column is.
        number: number of the union, which equal unions of a tree share.
    """

    type: pa.DataType
    members: tuple[JsonNode, ...]
    indexes: tuple[int, ...]
    number: int = -1


# Bytes of a value while it is read: one says whether it is null, and four where its text ends.
_WIDTHS: Final = {
    JsonKind.NULL: 1,
    JsonKind.BOOLEAN: 2,
    JsonKind.TEXT: 5,
    JsonKind.BYTES: 5,
    JsonKind.DECIMAL: 21,
    JsonKind.JSON: 5,
}
JsonNode: TypeAlias = "JsonLeaf | JsonArray | JsonMap | JsonRecord | JsonUnion"


def item_size(node: JsonArray | JsonMap) -> int:
    """Bytes that an item counts: what its column takes, or half of what it takes while it is read."""
    width = _row_width(node.item) if isinstance(node, JsonArray) else 5 + _row_width(node.value)
    return max(item_width(node.type), width // 2)


def _row_width(node: JsonNode) -> int:
    """Bytes that a value takes while it is read, be it null; without its text and its items."""
    if isinstance(node, JsonRecord):
        return 1 + sum(_row_width(member.node) for member in node.members)
    if isinstance(node, JsonUnion):
        return 1 + sum(map(_row_width, node.members))
    if isinstance(node, JsonLeaf):
        return _WIDTHS.get(node.kind) or 1 + node.type.bit_width // 8
    return 5


def parts_of(node: JsonNode) -> Sequence[JsonNode]:
    """Returns the nodes that a node consists of."""
    if isinstance(node, JsonArray | JsonMap):
        return (node.item if isinstance(node, JsonArray) else node.value,)
    if isinstance(node, JsonRecord):
        return [member.node for member in node.members]
    return node.members if isinstance(node, JsonUnion) else ()


def growth(node: JsonNode) -> float:
    """Returns the maximum column bytes for each payload byte, beside the payload's text."""
    return most_growth(_lists(node))


def _lists(node: JsonNode) -> Iterator[tuple[int, int]]:
    if isinstance(node, JsonArray):
        # An item and a comma; a record is ``{}`` at least.
        yield item_size(node) + added_text(node.item), 2 if isinstance(node.item, JsonLeaf) else 3
    elif isinstance(node, JsonMap):
        yield item_size(node) + added_text(node.value), 5  # two quotes, a colon, a value and a comma
    for part in parts_of(node):
        yield from _lists(part)


def leaf_kinds(node: JsonNode) -> set[JsonKind]:
    """Returns the kinds of all leaves of a tree."""
    return {node.kind} if isinstance(node, JsonLeaf) else set().union(*map(leaf_kinds, parts_of(node)))


def added_text(node: JsonNode) -> int:
    """Bytes, at most, that a value gets from the schema: defaults, also those of enums."""
    if isinstance(node, JsonUnion):
        return max(map(added_text, node.members))
    if isinstance(node, JsonLeaf):
        changed = (symbol for text, symbol in (node.symbols or {}).items() if len(symbol) > len(text))
        return max((len(symbol.encode()) for symbol in changed), default=0)
    if not isinstance(node, JsonRecord):
        return 0
    total = 0
    for member in node.members:
        total += added_text(member.node) + (0 if member.default is None else member.default.column.nbytes)
    return total


def filled_type(whole: pa.DataType, part: pa.DataType) -> pa.DataType:
    """The type of all fields of ``whole``, each as ``part`` has it where that has it."""
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
    """The fields of a column that ``part`` has, in its order.

    Args:
        column: of a type that ``filled_type`` made of ``part``; without an offset.
        part: the type of the result.
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
