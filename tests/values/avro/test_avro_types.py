"""Avro's JSON -> types and Arrow types, whatever others have written."""

import json

import pyarrow as pa
import pytest

from pulsar_spark import schema as definitions
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.avro import avro_types
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroUnion,
    parse,
)
from pulsar_spark.values.json_types import column_type
from tests.loops import for_each

INT, STRING, NULL = AvroPrimitive("int"), AvroPrimitive("string"), AvroPrimitive("null")


def avro(tree):
    return Schema(SchemaType.AVRO, json.dumps(tree).encode())


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields], **more}


def test_a_record_with_all_that_it_can_hold():
    tree = {
        "type": "record",
        "name": "R",
        "namespace": "a.b",
        "aliases": ["Old", "c.Older"],
        "fields": [
            {"name": "id", "type": "int", "aliases": ["key"], "default": 7, "doc": "a number"},
            {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"], "default": "Y"}},
            {"name": "again", "type": "E"},
            {"name": "full", "type": {"type": "a.b.E"}},
            {"name": "hash", "type": {"type": "fixed", "name": "x.F", "size": 2}},
            {"name": "list", "type": {"type": "array", "items": "string"}},
            {"name": "map", "type": {"type": "map", "values": ["null", "x.F"]}, "default": {}},
        ],
    }
    enum = AvroEnum("a.b.E", ("X", "Y"), (), "Y")
    fixed = AvroFixed("x.F", 2)
    assert parse(avro(tree)) == AvroRecord(
        "a.b.R",
        (
            AvroField("id", INT, ("key",), True, 7),
            AvroField("kind", enum),
            AvroField("again", enum),
            AvroField("full", enum),
            AvroField("hash", fixed),
            AvroField("list", AvroArray(STRING)),
            AvroField("map", AvroMap(AvroUnion((NULL, fixed))), (), True, {}),
        ),
        ("a.b.Old", "c.Older"),
    )
    hash(parse(avro(tree)))


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        (record(name="R", namespace="n.s"), "n.s.R"),
        (record(name="full.R", namespace="n.s"), "full.R"),
        (record(name="R", namespace="com.foo.Outer$"), "com.foo.Outer$.R"),
        (record(name="R-1", namespace=""), "R-1"),
        (record(name="Ré "), "Ré "),
        (record(name="R", namespace=None), "R"),
    ],
)
def test_full_names(tree, name):
    assert parse(avro(tree)).name == name


def test_namespaces_are_those_of_what_is_around():
    inner = record(("x", {"type": "enum", "name": "E", "symbols": []}), name="other.Inner")
    outer = parse(avro(record(("in", inner), ("e", "other.E"), ("out", record(name="Out")), namespace="n")))
    assert [outer.fields[0].type.name, outer.fields[0].type.fields[0].type.name] == ["other.Inner", "other.E"]
    assert outer.fields[2].type.name == "n.Out"


def test_a_name_that_its_namespace_does_not_have_is_one_without():
    tree = record(("a", record(name="Plain", namespace="")), ("b", "Plain"), name="R", namespace="n")
    fields = parse(avro(tree)).fields
    assert fields[1].type is fields[0].type


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def fixed(size, **more):
    return {"type": "fixed", "name": "F", "size": size, **more}


UTC = pa.timestamp("us", "UTC")
TYPES = [
    ("null", pa.null()),
    ("boolean", pa.bool_()),
    ("int", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("bytes", pa.binary()),
    ("string", pa.string()),
    ({"type": {"type": "int"}}, pa.int32()),
    (fixed(3), pa.binary()),
    (fixed(0), pa.binary()),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
    (logical("int", "date"), pa.date32()),
    (logical("long", "timestamp-millis"), UTC),
    (logical("long", "timestamp-micros"), UTC),
    (logical("long", "local-timestamp-millis"), pa.timestamp("us")),
    (logical("long", "local-timestamp-micros"), pa.timestamp("us")),
    (logical("long", "timestamp-nanos"), UTC),
    (logical("long", "local-timestamp-nanos"), pa.timestamp("us")),
    (logical("bytes", "decimal", precision=38, scale=38), pa.decimal128(38, 38)),
    (logical("bytes", "decimal", precision=5), pa.decimal128(5, 0)),
    (fixed(16, logicalType="decimal", precision=38, scale=2), pa.decimal128(38, 2)),
    (fixed(2, logicalType="decimal", precision=4), pa.decimal128(4, 0)),
    # What Spark and Arrow do not have, and what Avro says to ignore: the type below.
    (logical("bytes", "decimal", precision=39), pa.binary()),
    (logical("bytes", "decimal", precision=0), pa.binary()),
    (logical("bytes", "decimal", precision=2, scale=3), pa.binary()),
    (logical("bytes", "decimal", precision=2, scale=-1), pa.binary()),
    (logical("bytes", "decimal", precision="2"), pa.binary()),
    (logical("bytes", "decimal", precision=True), pa.binary()),
    (logical("bytes", "decimal"), pa.binary()),
    (fixed(2, logicalType="decimal", precision=5), pa.binary()),
    (fixed(0, logicalType="decimal", precision=1), pa.binary()),
    (logical("int", "time-millis"), pa.int32()),
    (logical("long", "time-micros"), pa.int64()),
    (logical("string", "uuid"), pa.string()),
    (logical("long", "date"), pa.int64()),
    (logical("string", "decimal", precision=3), pa.string()),
    (logical("int", ["date"]), pa.int32()),
    (["null", "int"], pa.int32()),
    (["int", "null"], pa.int32()),
    (["int"], pa.int32()),
    (["null"], pa.null()),
    (["null", "int", "long"], pa.int64()),
    (["long", "int"], pa.int64()),
    (["float", "null", "double"], pa.float64()),
    (["int", logical("long", "timestamp-micros")], pa.struct([("member0", pa.int32()), ("member1", UTC)])),
    (["int", "float"], pa.struct([("member0", pa.int32()), ("member1", pa.float32())])),
    (
        ["string", "null", "int", "long"],
        pa.struct([("member0", pa.string()), ("member1", pa.int32()), ("member2", pa.int64())]),
    ),
    ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.field("element", pa.int32()))),
    ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32())),
    (record(("a", "int"), ("b$-.", "string")), pa.struct([("a", pa.int32()), ("b$-.", pa.string())])),
    ({**record(("a", "int")), "type": "error"}, pa.struct([("a", pa.int32())])),
    (record(), pa.struct([])),
]


@for_each(("tree", "type_"), TYPES)
def test_types_of_columns(tree, type_):
    assert column_type(avro(tree)).equals(type_)


def test_all_is_nullable_whatever_the_schema_says():
    tree = record(
        ("a", {"type": "array", "items": record(("m", {"type": "map", "values": "int"}), name="I")})
    )
    outer = column_type(avro(tree)).field("a")
    items = outer.type.value_field
    inner = items.type.field("m")
    assert all(each.nullable for each in (outer, items, inner, inner.type.item_field))
    assert items.name == "element"


RECURSIVE = [
    (record(("next", ["null", "R"])), "'next'"),
    (
        record(("a", {"type": "array", "items": record(("b", {"type": "map", "values": "R"}), name="I")})),
        "'a[].b{}'",
    ),
    ({"type": "array", "items": record(("r", "R"))}, "'[].r'"),
]


@pytest.mark.parametrize(("tree", "path"), RECURSIVE)
def test_recursive_types_name_the_field_and_the_way_out(tree, path):
    with pytest.raises(UnsupportedError, match=r"\.schema\(\.\.\.\), or .*valueFormat=raw") as caught:
        formats.check_columns(avro(tree))
    assert f"field {path} " in str(caught.value)


WRONG = [
    (b"", "not JSON"),
    (b"\xff", "not JSON"),
    (b'{"type": ', "not JSON"),
    (b"1" * 5000, "not JSON"),
    (b"3", "a type is a name"),
    (b"null", "a type is a name"),
    (b"{}", "without 'type'"),
    (b'"Missing"', "no type is named 'Missing'"),
    (b'{"type": "int32"}', "no type is named 'int32'"),
    (b"[]", "without types"),
    (b'["int", ["string"]]', "union in a union"),
    (b'["int", {"type": "int", "logicalType": "date"}]', "'int' twice"),
    (b'[{"type":"array","items":"int"},{"type":"array","items":"long"}]', "'array' twice"),
    (b'{"type": "array"}', r"field '\[\]'"),
    (b'{"type": "map", "values": 1}', r"field '{}'"),
    (b'{"type": "record", "fields": []}', "name is missing"),
    (b'{"type": "record", "name": "R"}', "without fields"),
    (b'{"type": "record", "name": "R", "fields": [1]}', "field is an object"),
    (b'{"type": "record", "name": "R", "fields": [{"type": "int"}]}', "name is missing"),
    (b'{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "field 'a'"),
    (b'{"type": "record", "name": "R", "aliases": "x", "fields": []}', "aliases are missing"),
    (
        b'{"type": "record", "name": "R", "fields": [{"name": "\\ud800", "type": "int"}]}',
        "half a surrogate pair",
    ),
    (b'{"type": "enum", "name": "E"}', "symbols are missing"),
    (b'{"type": "enum", "name": "E", "symbols": [1]}', "symbols is missing"),
    (b'{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "symbol twice"),
    (b'{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "not one of its symbols"),
    (b'{"type": "enum", "name": "E", "symbols": ["A"], "default": ["A"]}', "not one of its symbols"),
    (b'{"type": "fixed", "name": "F"}', "without a size"),
    (b'{"type": "fixed", "name": "F", "size": -1}', "without a size"),
    (b'{"type": "fixed", "name": "F", "size": true}', "without a size"),
    (json.dumps(record(("a", "int"), ("a", "int"))).encode(), "two fields are named 'a'"),
    (json.dumps(record(("a", record(name="X")), ("b", record(name="X")))).encode(), "field 'b' .*twice"),
    (json.dumps(record(("a", record(name="R")))).encode(), "'R' is defined twice"),
]


@for_each(("data", "why"), WRONG)
def test_what_is_no_schema(data, why):
    with pytest.raises(SchemaError, match=why):
        parse(Schema(SchemaType.AVRO, data))


def doubled(levels):
    """Each record holds the one below twice: 2 ** levels types."""
    tree = record(name="R0")
    for level in range(levels):
        tree = record(("a", tree), ("b", f"R{level}"), name=f"R{level + 1}")
    return avro(tree)


def nested(depth):
    return json.loads('{"type":"array","items":' * depth + '"int"' + "}" * depth)


DEEP = record(("x", nested(avro_types.MAX_DEPTH - 2)), name="A")
LARGE = [
    Schema(SchemaType.AVRO, b'{"type":"array","items":' * 100_000 + b'"int"' + b"}" * 100_000),
    Schema(SchemaType.AVRO, b" " * (definitions.MAX_BYTES + 1)),
    avro(nested(avro_types.MAX_DEPTH + 1)),
    avro(record(("a", DEEP), ("b", {"type": "array", "items": "A"}))),
    avro([record(name=str(i)) for i in range(avro_types.MAX_NODES)]),
    avro(record(name="x" * (avro_types.MAX_NAME + 1))),
    doubled(30),
]


IDS = ["json", "bytes", "depth", "depth by name", "nodes", "name", "doubled"]


@pytest.mark.parametrize("schema", LARGE, ids=IDS)
def test_sizes_are_bounded(schema):
    with pytest.raises(UnsupportedError, match="valueFormat=raw") as caught:
        parse(schema)
    assert len(str(caught.value)) < 1000


def test_sizes_up_to_the_bound_are_read():
    column_type(avro(nested(avro_types.MAX_DEPTH)))
    column_type(doubled(10))
