"""Defaults: the readers and writers of AVRO and JSON agree on what is one, and on its value."""

import io
import json
import math
import random

import fastavro
import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.avro.avro_types import AvroField, parse
from pulsar_spark.values.avro.avro_write import default_bytes, varint
from pulsar_spark.values.avro.defaults import WAY_OUT, Defaults
from tests.loops import for_each
from tests.values.random_avro import schema_of_tree

FIXED = {"type": "fixed", "name": "F", "size": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
INTS = {"type": "array", "items": "int"}
MAP = {"type": "map", "values": "int"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
SHORT_DECIMAL = {**FIXED, "logicalType": "decimal", "precision": 4, "scale": 4}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
DATE = {"type": "int", "logicalType": "date"}
RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "x", "type": "int", "default": 3}, {"name": "y", "type": "string"}],
}

GOOD = [
    ("boolean", True),
    ("int", -(2**31)),
    ("long", 2**63 - 1),
    ("float", 1),
    ("float", 3.4028234e38),
    ("float", math.inf),
    ("float", "-1.5e3"),
    ("double", "-Infinity"),
    ("double", 1e300),
    ("double", 5),
    ("string", "é"),
    ("bytes", "\xff\x00"),
    (FIXED, "\xff\x00"),
    (ENUM, "B"),
    (INTS, []),
    (INTS, [1, 300]),
    (MAP, {}),
    (MAP, {"é": 1}),
    (DECIMAL, "\x80"),
    (DECIMAL, "\xd8\xf1"),
    (SHORT_DECIMAL, "\x00\x01"),
    (MILLIS, -1500),
    (MICROS, 2**62),
    (NANOS, 2**63 - 1),
    (NANOS, -1),
    (DATE, 1),
    (["null", "int"], None),
    (["int", "null"], 7),
    (["null", "int"], 7),
    (["string", "boolean", "null"], "a"),
    (["string", "boolean", "null"], True),
    (["null", "string", RECORD], {"y": "a"}),
    (["float", "double"], 1e300),
    ({"type": "array", "items": ["null", "int"]}, [1, None]),
    (RECORD, {"y": "a"}),
    (RECORD, {"x": 4, "y": "a", "z": 1}),
]
BAD = [
    ("null", 1),
    ("boolean", 1),
    ("int", "5"),
    ("int", True),
    ("int", 2**31),
    ("int", 1.0),
    ("long", -(2**63) - 1),
    ("float", 1e300),
    ("float", -3.5e38),
    ("float", ""),
    ("double", "1_0"),
    (["double", "null"], "NaN"),
    ("double", 10**400),
    ("double", True),
    ("string", 1),
    ("string", [[]]),
    ("string", "\ud800"),
    ("bytes", "Ā"),
    ("bytes", []),
    (FIXED, "a"),
    (ENUM, "C"),
    (ENUM, []),
    (INTS, {}),
    (INTS, [None]),
    (MAP, []),
    (MAP, {"a": None}),
    (MAP, {"\ud800": 1}),
    (DECIMAL, ""),
    (DECIMAL, "\x27\x10"),
    (SHORT_DECIMAL, "\x7f\xff"),
    (MILLIS, 2**62),
    (NANOS, 2**63),
    (["int", "null"], "a"),
    (["string", "boolean"], 0.5),
    ([RECORD, "null"], 5),
    (["null"], 5),
    (RECORD, []),
]
EMPTY = {"type": "record", "name": "Top", "fields": [{"name": "k", "type": "int"}]}


def schemas(avro, default, type_=SchemaType.AVRO):
    """The schema without a field, and the one with it and its default."""
    whole = {**EMPTY, "fields": [*EMPTY["fields"], {"name": "d", "type": avro, "default": default}]}
    return schema_of_tree(EMPTY, type_), schema_of_tree(whole, type_)


def read_by_avro(avro, default):
    older, newer = schemas(avro, default)
    return decoded(older, newer, b"\x02")


def read_by_json(avro, default):
    older, newer = schemas(avro, default, SchemaType.JSON)
    return decoded(older, newer, b'{"k":1}')


def written_by_avro(avro, default):
    return written(avro, default, SchemaType.AVRO)


def written_by_json(avro, default):
    return written(avro, default, SchemaType.JSON)


def written(avro, default, type_):
    """What a reader of the newest schema makes of a row that was written without the column."""
    _, newer = schemas(avro, default, type_)
    rows = pa.array([{"k": 1}], pa.struct([("k", pa.int32())]))
    (payload,) = formats.encoder(newer, rows.type)(rows).values.to_pylist()
    return decoded(newer, newer, payload)


def read(writer, reader, payloads):
    decoder = formats.decoder(writer, reader, formats.column_type(reader))
    return decoder.decode(pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.binary()))


def decoded(writer, reader, payload):
    found = read(writer, reader, [payload])
    assert found.is_bad is None or not found.is_bad.any()
    return found.column.field("d")


@for_each(("avro", "default"), GOOD)
def test_all_find_the_same_value(avro, default):
    value = read_by_avro(avro, default)
    assert value.equals(read_by_json(avro, default))
    assert value.equals(written_by_avro(avro, default))
    if default not in (math.inf, "-Infinity", 2**62):  # JSON has no such number, and no such time
        assert value.equals(written_by_json(avro, default))
    assert value.null_count == (default is None)


def test_text_may_be_not_a_number():
    for made in (read_by_avro, read_by_json, written_by_avro):
        assert math.isnan(made("float", "NaN")[0].as_py())


@for_each("made", [read_by_avro, written_by_avro, written_by_json])
@for_each(("avro", "default"), BAD)
def test_all_refuse_what_is_no_value_of_the_type(avro, default, made):
    with pytest.raises(SchemaError, match="default of field 'd' in the topic's schema is not a value"):
        made(avro, default)


@for_each(("avro", "default"), BAD)
def test_json_needs_a_default_only_where_a_payload_lacks_the_field(avro, default):
    writer, reader = schemas(avro, default, SchemaType.JSON)
    found = read(writer, reader, [b'{"k":1,"d":null}', b'{"k":2}'] * 10)
    assert found.is_bad.tolist() == [False, True] * 10
    assert found.column.field("k").to_pylist() == [1, None] * 10


@pytest.mark.parametrize("where", ["%s", '{"a":[{"k":1,"d":2},%s]}'])
def test_a_default_that_is_needed_is_named(where):
    item = {**EMPTY, "fields": [*EMPTY["fields"], {"name": "d", "type": "int", "default": ""}]}
    array = {"type": "array", "items": ["null", item]}
    whole = {"type": "record", "name": "Whole", "fields": [{"name": "a", "type": array}]}
    own = schema_of_tree(item if where == "%s" else whole, SchemaType.JSON)
    why = formats.decoder(own, own, formats.column_type(own)).explain(where.encode() % b'{"k":1}', None)
    path = "d" if where == "%s" else "a[].d"
    place = "" if where == "%s" else "field 'a[1]': "
    assert why == f"{place}the default of field {path!r} in the topic's schema is not a value of its type"


@for_each(("avro", "default"), BAD)
def test_a_record_within_another_needs_a_default_only_where_there_is_one(avro, default):
    old = {"type": "record", "name": "Item", "fields": [{"name": "k", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "d", "type": avro, "default": default}]}
    fields = [
        lambda item: {"type": "array", "items": item},
        lambda item: ["null", item.get("name") and "Item"],
    ]
    versions = []
    for item in (old, new):
        parts = [{"name": f"f{i}", "type": make(item)} for i, make in enumerate(fields)]
        versions.append(schema_of_tree({"type": "record", "name": "Whole", "fields": parts}, SchemaType.AVRO))
    # No item and null, one item, no item and a record.
    payloads = [b"\x00\x00", b"\x02\x02\x00\x00", b"\x00\x02\x06"] * 10
    older, newer = versions
    found = read(older, newer, payloads)
    assert found.is_bad.tolist() == [False, True, True] * 10
    assert found.column[0].as_py() == {"f0": [], "f1": None}
    made = formats.decoder(older, newer, formats.column_type(newer))
    for payload, path in zip(payloads[1:3], ("f0[]", "f1"), strict=True):
        why = f"the default of field '{path}.d' in the topic's schema is not a value of its type"
        assert made.explain(payload, None) == f"field '{path}': {why}"


@pytest.mark.parametrize(("avro", "default"), [("int", None), (RECORD, None), (RECORD, {"x": 4})], ids=str)
def test_a_field_without_a_value_is_null_to_readers_and_cannot_be_written(avro, default):
    value = read_by_avro(avro, default)
    assert value.equals(read_by_json(avro, default))
    assert (value.field("y") if default else value).null_count == 1
    with pytest.raises(SchemaError, match="default of field 'd'"):
        written_by_avro(avro, default)


@pytest.mark.parametrize("made", [read_by_avro, read_by_json, written_by_avro, written_by_json])
def test_defaults_that_grow_are_refused_before_they_take_time(made):
    avro: object = "int"
    default: object = 1
    for level in range(20):
        field = {"name": "f", "type": avro, "default": default}
        avro = {"type": "array", "items": {"type": "record", "name": f"N{level}", "fields": [field]}}
        default = [{}, {}]
    with pytest.raises(UnsupportedError, match="are too large"):
        made(avro, default)


@pytest.mark.parametrize("made", [read_by_avro, read_by_json, written_by_avro, written_by_json])
def test_defaults_whose_text_grows_are_refused_before_they_take_memory(made):
    text = {"name": "s", "type": "string", "default": "x" * 50_000}
    items = {"type": "array", "items": {"type": "record", "name": "L", "fields": [text]}}
    with pytest.raises(UnsupportedError, match="are too large"):
        made(items, [{}] * 20_000)


RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "x", "type": "int", "default": 3}, {"name": "y", "type": "string"}],
}


def made(kind, default):
    field = AvroField("f", parse(schema_of_tree(kind)), (), True, default)
    return default_bytes(field, "r", Defaults(WAY_OUT))


def by_fastavro(kind, value):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(kind))), value)
    return data.getvalue()


@for_each(
    ("kind", "default", "value"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -(2**31), -(2**31)),
        ("long", 2**63 - 1, 2**63 - 1),
        ("float", 1, 1.0),
        ("double", 2.5, 2.5),
        ("string", "é", "é"),
        ("bytes", "\xff\x00", b"\xff\x00"),
        ({"type": "fixed", "name": "F", "size": 2}, "\xff\x00", b"\xff\x00"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "array", "items": "int"}, [1, 300], [1, 300]),
        ({"type": "map", "values": "int"}, {"é": 1}, {"é": 1}),
        ({"type": "map", "values": "int"}, {}, {}),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        (["null", "int"], 5, 5),
        (RECORD, {"y": "a"}, {"x": 3, "y": "a"}),
        (RECORD, {"x": 4, "y": "a", "z": 1}, {"x": 4, "y": "a"}),
    ],
)
def test_defaults(kind, default, value):
    assert made(kind, default) == by_fastavro(kind, value)


def test_what_is_no_default_is_named():
    with pytest.raises(SchemaError, match=r"default of field 'r\.f' .* is not a value of its type"):
        made("int", True)


def test_a_default_that_grows():
    large = {
        "type": "record",
        "name": "L",
        "fields": [{"name": "s", "type": "string", "default": "x" * 50_000}],
    }
    fields = [{"name": f"f{i}", "type": "L" if i else large, "default": {}} for i in range(100)]
    with pytest.raises(UnsupportedError, match=r"defaults up to field 'r.f' .* are too large"):
        made({"type": "record", "name": "A", "fields": fields}, {})
    with pytest.raises(UnsupportedError, match=r"defaults up to field 'r.f' .* are too large"):
        made({"type": "array", "items": large}, [{}] * 100)
    some = [AvroField(f"f{i}", parse(schema_of_tree("string")), (), True, "x" * 50_000) for i in range(100)]
    defaults = Defaults(WAY_OUT)
    with pytest.raises(UnsupportedError, match=r"up to field 'f83' .* are too large"):
        [default_bytes(field, "", defaults) for field in some]


@for_each("default", [None, []])
def test_a_default_of_a_type_without_a_column(default):
    children = {"type": "array", "items": "Node"}
    kind = ["null", children] if default is None else children
    field = {"name": "f", "type": kind, "default": default}
    whole = parse(schema_of_tree({"type": "record", "name": "Node", "fields": [field]}))
    assert default_bytes(whole.fields[0], "", Defaults(WAY_OUT)) == b"\x00"


def test_a_default_with_nanoseconds_that_no_column_has_is_not_written():
    kind = {"type": "array", "items": {"type": "long", "logicalType": "timestamp-nanos"}}
    assert made(kind, [5_000]) == by_fastavro({"type": "array", "items": "long"}, [5_000])
    with pytest.raises(SchemaError, match=r"default of field 'r\.f'"):
        made(kind, [5_001])


def test_a_default_that_has_many_values_and_no_bytes():
    empty = {
        "type": "record",
        "name": "E",
        "fields": [{"name": f"f{i}", "type": "null"} for i in range(1000)],
    }
    with pytest.raises(UnsupportedError, match=r"are too large"):
        made({"type": "array", "items": empty}, [dict.fromkeys(f"f{i}" for i in range(1000))] * 200)


def test_varint():
    rng = random.Random(1)
    for number in [0, -1, 2**63 - 1, -(2**63), *(rng.randint(-(2**63), 2**63 - 1) for _ in range(50))]:
        assert varint(number) == by_fastavro("long", number)
