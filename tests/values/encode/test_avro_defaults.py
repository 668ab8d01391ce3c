"""Defaults -> bytes: what fastavro writes of the same value, and what is no default."""

import io
import json
import random

import fastavro
import pytest

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.values.avro.avro_types import AvroField, parse
from pulsar_spark.values.encode.avro_defaults import default_bytes, varint
from tests.loops import for_each
from tests.values.random_avro import schema_of_tree

RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "x", "type": "int", "default": 3}, {"name": "y", "type": "string"}],
}


def made(kind, default):
    return default_bytes([AvroField("f", parse(schema_of_tree(kind)), (), True, default)], "r")


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
    with pytest.raises(UnsupportedError, match=r"up to field 'f83' .* are too large"):
        default_bytes(some, "")


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
