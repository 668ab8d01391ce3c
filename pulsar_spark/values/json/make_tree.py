"""The trees that payloads are read by: made of the writer's schema, the reader's and the column's type."""

from __future__ import annotations

from typing import Final, TypeGuard

import pyarrow as pa

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    arrow_type,
    branch_name,
    is_member_struct,
)
from pulsar_spark.values.avro.defaults import Defaults, has_null
from pulsar_spark.values.avro.resolve import MAX_CONSTANTS, check_target, check_times, field_matches
from pulsar_spark.values.json.tree import (
    JsonArray,
    JsonKind,
    JsonLeaf,
    JsonMap,
    JsonMember,
    JsonNode,
    JsonRecord,
    JsonUnion,
    added_text,
    filled_type,
)
from pulsar_spark.values.json_types import is_pairs, parse
from pulsar_spark.values.time_units import MICROS, MILLIS, unit_of

# Java's client writes them beside each schema that it makes; its bytes are always base64.
_JAVA_PROPERTIES = ("__alwaysAllowNull", "__jsr310ConversionEnabled")
_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
_WAY_OUT: Final = "Correct the schema, or read the topic with valueFormat=raw"


def make_tree(writer: Schema, reader: Schema, target: pa.DataType) -> JsonNode:
    """Make the tree of a column.

    Args:
        writer: the version that payloads are of.
        reader: the version that they are read as.
        target: the reader's Arrow type, or a projection of it.

    Raises:
        SchemaError: the target is no projection, a default is no value of its type, or the writer's time is
            of another kind than the reader's.
        UnsupportedError: as ``avro_types.parse``; or defaults that are too large.
    """
    is_base64 = any(name in writer.properties for name in _JAVA_PROPERTIES)
    written = parse(writer) if writer != reader else None
    read = parse(reader)
    tree = _Maker(is_base64).node(written or read, read, target, "")
    if added_text(tree) > MAX_CONSTANTS:
        raise UnsupportedError("the defaults in the topic's schema are too large", advice=_WAY_OUT)
    return tree


def _plain(avro: AvroType | None) -> AvroType | None:
    """The one type that a union with null stands for."""
    if isinstance(avro, AvroUnion) and len(avro.members) == 1:
        return avro.members[0]
    return avro


class _Maker:
    def __init__(self, is_base64: bool) -> None:
        self._is_base64 = is_base64
        self._defaults = Defaults(_WAY_OUT)
        self._unions: dict[tuple[JsonNode, ...], int] = {}  # numbers, by the members

    def node(self, writer: AvroType | None, reader: AvroType, target: pa.DataType, path: str) -> JsonNode:
        """Make one node; the writer's type is None where that has none here."""
        writer, plain = _plain(writer), _plain(reader)
        assert plain is not None
        if isinstance(plain, AvroRecord) and pa.types.is_struct(target):
            return self._record(writer, plain, target, path)
        if isinstance(plain, AvroArray) and pa.types.is_list(target):
            items = writer.items if isinstance(writer, AvroArray) else None
            node = self.node(items, plain.items, target.value_type, f"{path}[]")
            return JsonArray(target, node, is_pairs(plain))
        if isinstance(plain, AvroMap) and pa.types.is_map(target) and target.key_type == pa.string():
            values = writer.values if isinstance(writer, AvroMap) else None
            return JsonMap(target, self.node(values, plain.values, target.item_type, f"{path}{{}}"))
        if isinstance(plain, AvroUnion) and is_member_struct(plain) and pa.types.is_struct(target):
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
            below = f"{path}.{column.name}" if path else column.name
            if column.name not in ours:
                raise SchemaError(f"the topic's schema has no field {below!r}", advice="Leave the column out")
            field = ours[column.name]
            key = keys.get(field.name, field.name)
            written = theirs.get(key)
            node = self.node(written, field.type, column.type, below)
            # Writers leave nulls out: what is missing is one, if their version has the field.
            is_null = field.default is None or (written is not None and has_null(written))
            default = None if is_null else self._defaults.constant(field, column.type, below)
            members.append(JsonMember(key, node, default))
        return JsonRecord(target, tuple(members))

    def _union(self, writer: AvroType | None, reader: AvroUnion, target: pa.DataType, path: str) -> JsonUnion:
        theirs = writer.members if isinstance(writer, AvroUnion) else ()
        if list(map(_shape, theirs)) != list(map(_shape, reader.members)):
            by_name = {branch_name(each): each for each in theirs}
            theirs = tuple(by_name.get(branch_name(each), each) for each in reader.members)
        whole = arrow_type(reader)
        check_target(whole, target, path)
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
        text = (pa.string(), pa.binary())
        numbers = source in _NUMBERS and target in _NUMBERS[_NUMBERS.index(source) :]
        if not (source == target or numbers or (source in text and target in text)):
            raise SchemaError(
                f"field {path or '(the root)'!r} of the topic's schema has type {source}, not {target}",
                advice="Give the column the type of the schema, or a wider one",
            )
        check_times(writer, reader, path)
        if pa.types.is_timestamp(target):
            is_theirs = "timestamp" in getattr(writer, "logical", "")
            return JsonLeaf(JsonKind.TIMESTAMP, target, unit=unit_of(writer if is_theirs else reader))
        logical = getattr(reader, "logical", "")
        if logical == "json":
            return JsonLeaf(JsonKind.JSON, target)
        if logical.startswith("time-") and pa.types.is_integer(target):
            return JsonLeaf(JsonKind.TIME, target, unit=MILLIS if logical == "time-millis" else MICROS)
        if _is_text(writer) and _is_text(reader):
            source = arrow_type(writer)  # only bytes are base64
        if source == pa.binary():
            size = reader.size if isinstance(reader, AvroFixed) else None
            return JsonLeaf(JsonKind.BYTES, target, size=size, is_base64=self._is_base64)
        symbols = _symbols(writer, reader) if isinstance(reader, AvroEnum) else None
        return JsonLeaf(_kind(source, target), target, symbols=symbols)


def _shape(avro: AvroType) -> object:
    """What tells the members of a union apart."""
    return avro.kind if isinstance(avro, AvroPrimitive) else type(avro)


def _is_text(avro: AvroType | None) -> TypeGuard[AvroPrimitive]:
    """Whether a type is one of two that Avro reads as each other."""
    return isinstance(avro, AvroPrimitive) and not avro.logical and avro.kind in ("string", "bytes")


def _symbols(writer: AvroType | None, reader: AvroEnum) -> dict[str, str]:
    """What texts are read as: the reader's symbols as they are, others of the writer as the default."""
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
