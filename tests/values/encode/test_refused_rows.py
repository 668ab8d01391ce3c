"""Rows that a field does not take, by both formats alike: the error names the row and the field."""

import random
import struct

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError
from pulsar_spark.schema import SchemaType
from pulsar_spark.values.avro import avro_write
from pulsar_spark.values.json import json_write
from pulsar_spark.values.json_types import column_type
from tests.values.random_avro import column, random_case, record, schema_of_tree

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
MILLIS = {"type": "int", "logicalType": "time-millis"}
MICROS = {"type": "long", "logicalType": "time-micros"}
INNER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": {"type": "map", "values": "int"}}]}
DEEP = ["null", {"type": "array", "items": ["null", INNER]}]
GOOD, BAD = [{"x": [("k", 1)]}, None, {"x": []}], [None, {"x": [("k", 1), ("j", None)]}]
NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(struct.pack("<3i", 0, 1, 2)), pa.py_buffer(b"a\xff")]
)
UNION = ["null", "string", "int"]

# What the field "a" is, its column, the row, the path below "a", and why.
REFUSED = {
    "no symbol": (["null", ENUM], ["B", None, "C"], 2, "", "a string that is not a symbol of enum 'E'"),
    "another size": (["null", FIXED], [b"ab", b"abc", None], 1, "", ".* 2 bytes"),
    "null": ("string", ["a", None, None], 1, "", "null, but the topic's field is not"),
    "null for a union": (["int", "string"], pa.array([1, None], pa.int32()), 1, "", "null"),
    "no text": ("string", NOT_UTF8, 1, "", "text that is not UTF-8"),
    "the next day": (["null", MILLIS], [0, None, 86_399_999, 86_400_000], 3, "", "a time of day that is not"),
    "time before midnight": (MICROS, [86_399_999_999, -1], 1, "", "a time of day that is not"),
    "several members": (UNION, [{}, {"member0": "a", "member1": 5}], 1, "", "several members"),
    "deep within": (DEEP, [None, GOOD, [], GOOD, None, BAD, GOOD], 5, r"\[\].x\{\}", "null"),
}


def encoded(type_, tree, rows):
    module = {SchemaType.AVRO: avro_write, SchemaType.JSON: json_write}[type_]
    return module.encoder(schema_of_tree(tree, type_), rows.type)(rows).values


@pytest.fixture(params=[SchemaType.AVRO, SchemaType.JSON])
def type_(request):
    return request.param


@pytest.mark.parametrize(("kind", "values", "row", "path", "why"), REFUSED.values(), ids=REFUSED)
def test_the_row_and_the_field_are_named(type_, kind, values, row, path, why):
    tree = record(("a", kind))
    if not isinstance(values, pa.Array):
        values = pa.array(values, column_type(schema_of_tree(tree)).field("a").type)
    rows = pa.StructArray.from_arrays([values], ["a"])
    with pytest.raises(SchemaError, match=f"row {row} of the batch, field 'a{path}': {why}"):
        encoded(type_, tree, rows)


def test_rows_are_counted_from_the_beginning_of_a_slice(type_):
    tree = record(("a", DEEP))
    rows = pa.array([{"a": each} for each in (GOOD, BAD, GOOD)], column_type(schema_of_tree(tree)))
    with pytest.raises(SchemaError, match=r"row 0 of the batch, field 'a\[\].x\{\}': null"):
        encoded(type_, tree, rows.slice(1))


@pytest.mark.parametrize("row", range(5))
def test_the_row_of_an_item(type_, row):
    lists: list[list] = [[], [1, 2], [], [3], []]
    lists[row] = [None, *lists[row]]
    rows = pa.StructArray.from_arrays([pa.array(lists, pa.list_(pa.int32()))], ["a"])
    with pytest.raises(SchemaError, match=rf"row {row} of the batch, field 'a\[\]': null"):
        encoded(type_, record(("a", {"type": "array", "items": "int"})), rows)


def test_a_null_row_is_no_record(type_):
    rows = pa.StructArray.from_arrays([pa.array([1, 2], pa.int32())], ["a"], mask=pa.array([True, False]))
    with pytest.raises(SchemaError, match="row 0 of the batch: null"):
        encoded(type_, record(("a", ["null", "int"])), rows)


def test_the_same_rows_give_the_same_bytes(type_):
    tree, avro, values = random_case(random.Random(3), 30)
    rows = column(values, avro)
    cut = pa.concat_arrays([rows.slice(0, 11), rows.slice(11)])
    assert encoded(type_, tree, rows).equals(encoded(type_, tree, cut))
