"""Parses a schema in Avro's JSON to a tree of types, and returns the Arrow type of each.

Anyone may have written the JSON, so its size, depth and names are bounded. Errors have the path of the field:
names joined by dots, ``[]`` for items of an array, ``{}`` for values of a map. Like Pulsar's broker,
this module accepts any text as a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import WAY_OUT, Schema, parse_json, too_large

# Schema property: size in bytes of the header that Kafka and Debezium adaptors write before each value.
READ_OFFSET: Final = "__AVRO_READ_OFFSET__"
PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))

MAX_NODES = 10_000  # maximum types in the tree; a named type counts at each use
MAX_DEPTH = 48  # maximum depth of types
MAX_NAME = 1_000  # maximum characters of a name or symbol
FLOAT_OVERFLOW: Final = float(2**128 - 2**103)  # the smallest number that becomes infinite as a float

_MAX_NUMBER_BRANCHES = 3  # branches of a union that becomes one number column: two number types and null
_MAX_PRECISION = 38  # precision of Spark's and Arrow's decimal
TIMESTAMPS: Final = ("timestamp-millis", "timestamp-micros", "timestamp-nanos")
LOCAL_TIMESTAMPS: Final = tuple(f"local-{each}" for each in TIMESTAMPS)
_LOGICAL: Final = {"date": "int"} | dict.fromkeys(TIMESTAMPS + LOCAL_TIMESTAMPS, "long")
_TIMES_OF_DAY: Final = {"time-millis": "int", "time-micros": "long"}


@dataclass(frozen=True, slots=True)
class AvroPrimitive:
    """A primitive type; ``kind``: one of ``PRIMITIVES``.

    Attributes:
        logical: logical type that sets the column's type: date, decimal, timestamp-* or local-timestamp-*;
            empty: the column has the primitive's type. ``json_types`` adds logical types for JSON.
        form: char, decimal (of over 38 digits), time-millis or time-micros, which do not change an AVRO
            column; empty: none. In types from ``json_types``, ``number``: JSON has the time as a number.
    """

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    form: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class AvroFixed:
    """A fixed of ``size`` bytes; a number if ``logical`` is decimal. ``form``: see :class:`AvroPrimitive`."""

    name: str
    size: int
    aliases: tuple[str, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0
    form: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class AvroEnum:
    """An enum. The reader's ``default`` replaces the writer's symbols that the reader does not have."""

    name: str
    symbols: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class AvroArray:
    """An array: items of one type. ``is_chars``: Java's ``char[]``, which is text in JSON."""

    items: AvroType
    is_chars: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class AvroMap:
    """A map from strings to values of one type."""

    values: AvroType


@dataclass(frozen=True, slots=True)
class AvroUnion:
    """A union: a value of one of the branches, none of which is a union."""

    branches: tuple[AvroType, ...]

    @property
    def members(self) -> tuple[AvroType, ...]:
        """Returns the branches without null."""
        return tuple(branch for branch in self.branches if not is_null(branch))


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record; ``default``: value in the schema's JSON, which may not be a value of the type."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: object = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class AvroRecord:
    """A record: fields with different names."""

    name: str
    fields: tuple[AvroField, ...]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AvroRecursive:
    """A use of a record within the record's own definition; it has no column.

    ``definition``: a list that contains the record as soon as the record is parsed.
    """

    name: str
    path: str = field(compare=False)
    definition: list[AvroRecord] = field(compare=False, repr=False)

    @property
    def error(self) -> UnsupportedError:
        """Returns the error of a column of this type."""
        return UnsupportedError(
            f"field {shown_name(self.path)} of the topic's schema is recursive: it contains "
            f"{shown_name(self.name)}, of which it is a part",
            advice="Choose other columns with .schema(...), or read the topic with valueFormat=raw",
        )


# The names of types include the namespace.
AvroType: TypeAlias = (
    "AvroPrimitive | AvroFixed | AvroEnum | AvroArray | AvroMap | AvroUnion | AvroRecord | AvroRecursive"
)


def parse(schema: Schema) -> AvroType:
    """Parses a schema of kind AVRO or JSON.

    A named type that is used twice is one object at two nodes of the tree.

    Raises:
        SchemaError: the data is not valid Avro.
        UnsupportedError: the schema is larger than this version reads.
    """
    return _Parser().parse(parse_json(schema.data), "", "", 0)


def parts_of(avro: AvroType) -> Sequence[AvroType]:
    """Returns the types directly within a type."""
    if isinstance(avro, AvroRecord):
        return [each.type for each in avro.fields]
    if isinstance(avro, AvroArray | AvroMap):
        return (avro.items if isinstance(avro, AvroArray) else avro.values,)
    return avro.branches if isinstance(avro, AvroUnion) else ()


def recursive_types(avro: AvroType) -> Iterator[AvroRecursive]:
    """Yields the recursive records in a type, which have no column."""
    if isinstance(avro, AvroRecursive):
        yield avro
    for each in parts_of(avro):
        yield from recursive_types(each)


def arrow_type(avro: AvroType) -> pa.DataType:
    """Returns the Arrow type of a column, nullable at any depth.

    A field that contains its own record is left out.

    Raises:
        UnsupportedError: ``avro`` is recursive itself, or its items are, so that no field can be left out.
    """
    if isinstance(avro, AvroRecursive):
        raise avro.error
    if isinstance(avro, AvroRecord):
        columns = []
        for each in avro.fields:
            try:
                columns.append(pa.field(each.name, arrow_type(each.type)))
            except UnsupportedError:
                continue
        return pa.struct(columns)
    if isinstance(avro, AvroArray):
        return pa.list_(pa.field("element", arrow_type(avro.items)))
    if isinstance(avro, AvroMap):
        return pa.map_(pa.string(), pa.field("value", arrow_type(avro.values)))
    if isinstance(avro, AvroUnion):
        return _union_type(avro)
    if isinstance(avro, AvroEnum):
        return pa.string()
    if avro.logical == "decimal":
        return pa.decimal128(avro.precision, avro.scale)
    if isinstance(avro, AvroFixed):
        return pa.binary()
    return _PLAIN[avro.logical or avro.kind]


def is_null(avro: AvroType) -> bool:
    """Whether a type is Avro's null."""
    return isinstance(avro, AvroPrimitive) and avro.kind == "null"


def is_member_struct(union: AvroUnion) -> bool:
    """Whether a union's column is a struct with a field for each member: member0, member1 and so on."""
    if len(union.branches) > _MAX_NUMBER_BRANCHES:
        return True
    members = union.members
    return len(members) > 1 and _common_number(members) is None


_PLAIN: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "date": pa.date32(),
    **dict.fromkeys(TIMESTAMPS, pa.timestamp("us", "UTC")),
    **dict.fromkeys(LOCAL_TIMESTAMPS, pa.timestamp("us")),
    "time-millis": pa.int32(),
    "time-micros": pa.int64(),
    **dict.fromkeys(("json", "char", "chars", "number"), pa.string()),
}


def _union_type(union: AvroUnion) -> pa.DataType:
    members = union.members
    if not members:
        return pa.null()
    if len(members) == 1:
        return arrow_type(members[0])
    number = _common_number(members)
    if number is not None:
        return number
    return pa.struct([pa.field(f"member{i}", arrow_type(member)) for i, member in enumerate(members)])


def _common_number(members: tuple[AvroType, ...]) -> pa.DataType | None:
    kinds = {each.kind for each in members if isinstance(each, AvroPrimitive) and not each.logical}
    if len(kinds) == len(members) == 2:
        if kinds == {"int", "long"}:
            return pa.int64()
        if kinds == {"float", "double"}:
            return pa.float64()
    return None


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, tuple[AvroType, int, int]] = {}  # full name -> type, number of nodes, height
        self._open: dict[str, list[AvroRecord]] = {}  # records being parsed, by name; see ``AvroRecursive``
        self._nodes = 0
        self._deepest = 0

    def parse(self, tree: object, space: str, path: str, depth: int) -> AvroType:
        """Parses a type; ``space``: namespace of names without one, ``depth``: number of types around it."""
        self._count(1, depth, path)
        if isinstance(tree, str):
            return self._by_name(tree, space, path, depth)
        if isinstance(tree, list):
            return self._union(tree, space, path, depth)
        if not isinstance(tree, dict):
            raise _wrong(path, "a type is a name, a list or an object")
        kind = tree.get("type")
        if not isinstance(kind, str):
            if kind is None:
                raise _wrong(path, "a type without 'type'")
            return self.parse(kind, space, path, depth + 1)
        if kind in PRIMITIVES:
            return AvroPrimitive(kind, *_logical(tree, kind, None))
        if kind == "array":
            items = self.parse(tree.get("items"), space, f"{path}[]", depth + 1)
            is_text = tree.get("java-class") == "[C" and getattr(items, "form", "") == "char"
            return AvroArray(items, is_text)
        if kind == "map":
            return AvroMap(self.parse(tree.get("values"), space, f"{path}{{}}", depth + 1))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, tree, space, path, depth)
        return self._by_name(kind, space, path, depth)

    def _by_name(self, name: str, space: str, path: str, depth: int) -> AvroType:
        if name in PRIMITIVES:
            return AvroPrimitive(name)
        for full in (full_name(name, space), name):
            if full in self._open:
                return AvroRecursive(full, path, self._open[full])
            if full in self._named:
                avro, nodes, height = self._named[full]
                self._count(nodes - 1, depth + height, path)
                return avro
        raise _wrong(path, f"no type is named {shown_name(name)}")

    def _union(self, tree: list[object], space: str, path: str, depth: int) -> AvroUnion:
        branches = tuple(self.parse(each, space, path, depth + 1) for each in tree)
        if not branches:
            raise _wrong(path, "a union without types")
        seen = set()
        for branch in branches:
            if isinstance(branch, AvroUnion):
                raise _wrong(path, "a union in a union")
            kind = branch_name(branch)
            if kind in seen:
                raise _wrong(path, f"a union with {shown_name(kind)} twice")
            seen.add(kind)
        return AvroUnion(branches)

    def _define(self, kind: str, tree: dict[str, object], space: str, path: str, depth: int) -> AvroType:
        own = tree.get("namespace", space)
        name = full_name(_text(tree.get("name"), "name", path), own if isinstance(own, str) else space)
        if name in self._named or name in self._open:
            raise _wrong(path, f"type {shown_name(name)} is defined twice")
        space = name.rpartition(".")[0]
        aliases = tuple(full_name(alias, space) for alias in _texts(tree.get("aliases", []), "aliases", path))
        nodes, deepest = self._nodes, self._deepest
        self._deepest = depth
        avro: AvroType
        if kind == "enum":
            avro = _enum(tree, name, aliases, path)
        elif kind == "fixed":
            avro = _fixed(tree, name, aliases, path)
        else:
            definition = self._open[name] = []
            avro = AvroRecord(name, self._fields(tree, space, path, depth), aliases)
            definition.append(avro)
            del self._open[name]
        self._named[name] = avro, self._nodes - nodes + 1, self._deepest - depth
        self._deepest = max(self._deepest, deepest)
        return avro

    def _fields(self, tree: dict[str, object], space: str, path: str, depth: int) -> tuple[AvroField, ...]:
        fields: dict[str, AvroField] = {}
        parts = tree.get("fields")
        if not isinstance(parts, list):
            raise _wrong(path, "a record without fields")
        for part in parts:
            if not isinstance(part, dict):
                raise _wrong(path, "a field is an object")
            name = _text(part.get("name"), "name", path)
            if name in fields:
                raise _wrong(path, f"two fields are named {shown_name(name)}")
            below = field_path(path, name)
            fields[name] = AvroField(
                name,
                self.parse(part.get("type"), space, below, depth + 1),
                _texts(part.get("aliases", []), "aliases", below),
                "default" in part,
                part.get("default"),
            )
        return tuple(fields.values())

    def _count(self, nodes: int, depth: int, path: str) -> None:
        self._nodes += nodes
        self._deepest = max(self._deepest, depth)
        if self._nodes > MAX_NODES:
            raise too_large(f"the schema has more than {MAX_NODES} types")
        if depth > MAX_DEPTH:
            raise too_large(f"field {shown_name(path)} of the topic's schema is nested too deeply")


def branch_name(avro: AvroType) -> str:
    """Returns the name that tells the branches of a union apart: a named type's name, else the kind."""
    if isinstance(avro, AvroRecord | AvroEnum | AvroFixed | AvroRecursive):
        return avro.name
    if isinstance(avro, AvroPrimitive):
        return avro.kind
    return "array" if isinstance(avro, AvroArray) else "map" if isinstance(avro, AvroMap) else "union"


def _enum(tree: dict[str, object], name: str, aliases: tuple[str, ...], path: str) -> AvroEnum:
    symbols = _texts(tree.get("symbols"), "symbols", path)
    if len(set(symbols)) < len(symbols):
        raise _wrong(path, f"enum {shown_name(name)} has a symbol twice")
    default = tree.get("default")
    if default is None:
        return AvroEnum(name, symbols, aliases)
    if default not in symbols:
        raise _wrong(path, f"the default of enum {shown_name(name)} is not one of its symbols")
    return AvroEnum(name, symbols, aliases, str(default))


def _fixed(tree: dict[str, object], name: str, aliases: tuple[str, ...], path: str) -> AvroFixed:
    size = tree.get("size")
    if type(size) is not int or not 0 <= size < 1 << 31:
        raise _wrong(path, f"fixed {shown_name(name)} without a size")
    return AvroFixed(name, size, aliases, *_logical(tree, "fixed", size))


def _logical(tree: dict[str, object], kind: str, size: int | None) -> tuple[str, int, int, str]:
    """Returns ``logical``, ``precision``, ``scale`` and ``form`` of a type; see :class:`AvroPrimitive`."""
    logical = tree.get("logicalType")
    if kind == "int" and tree.get("java-class") == "java.lang.Character":
        return "", 0, 0, "char"
    if not isinstance(logical, str):
        return "", 0, 0, ""
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = tree.get("precision"), tree.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 <= scale <= precision:
            if precision > _MAX_PRECISION:
                return "", precision, scale, "decimal"
            fits = size is None or size > 16 or 10**precision - 1 < 1 << max(8 * size - 1, 0)
            if precision and fits:
                return "decimal", precision, scale, ""
    if _TIMES_OF_DAY.get(logical) == kind:
        return "", 0, 0, logical
    return (logical, 0, 0, "") if _LOGICAL.get(logical) == kind else ("", 0, 0, "")


def full_name(name: str, space: str) -> str:
    """Returns a name with its namespace; ``space``: namespace of names without one."""
    return name if "." in name or not space else f"{space}.{name}"


def _text(value: object, what: str, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, f"{what} is missing, or is not text")
    if len(value) > MAX_NAME:
        raise too_large(
            f"{what} {shown_name(value)} in the topic's schema has more than {MAX_NAME} characters"
        )
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _wrong(path, f"{what} contains half a surrogate pair")
    return value


def _texts(values: object, what: str, path: str) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise _wrong(path, f"{what} are missing, or are not a list")
    return tuple(_text(value, what, path) for value in values)


def shown_name(name: str) -> str:
    """Returns a name or path as text for errors: quoted, in ASCII, and cut after 100 characters."""
    return ascii(name if len(name) <= 100 else f"{name[:100]}...") if name else "(the root)"


def field_path(path: str, name: str) -> str:
    """Returns the path of a record's field; ``path``: path of the record."""
    return f"{path}.{name}" if path else name


def _wrong(path: str, why: str) -> SchemaError:
    place = f"field {shown_name(path)} of the topic's schema" if path else "the topic's schema"
    return SchemaError(f"{place} is not valid Avro: {why}", advice=WAY_OUT)
