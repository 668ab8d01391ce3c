"""Kafka Connect's JSON: decimals are base64, and maps with other keys than strings are pairs."""

from decimal import Decimal

import pyarrow as pa
import pytest

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats, key_value
from pulsar_spark.values.json.tree import number_of, pairs_of
from tests.values.json_payloads import json_schema, record

CONNECT = {"__AVRO_READ_OFFSET__": "0"}


def decimal(precision, scale=2, **fixed):
    kind = {"type": "fixed", "name": "F", **fixed} if fixed else {"type": "bytes"}
    name = "org.apache.kafka.connect.data.Decimal"
    return kind | {
        "scale": scale,
        "precision": precision,
        "connect.name": name,
        "logicalType": "decimal",
    }


def read(avro, text, properties=None, writer=None):
    """The value of a field, or why it is bad."""
    reader = json_schema(record(f=avro), CONNECT if properties is None else properties)
    writer = json_schema(record(f=writer or avro), reader.properties)
    decoder = formats.decoder(writer, reader, formats.column_type(reader))
    payload = b'{"f":%s}' % text.encode()
    found = decoder.decode(pa.array([payload], pa.binary()), pa.nulls(1, pa.binary()))
    if found.is_bad is not None:
        return decoder.explain(payload, None)
    return found.column.to_pylist()[0]["f"]


@pytest.mark.parametrize(
    ("avro", "text", "value"),
    [
        (decimal(10), '"MDAw"', Decimal("31580.64")),  # would be text of no number
        (decimal(10), '"1234"', Decimal("-26588.24")),  # would be text of a number
        (decimal(10), '"/w=="', Decimal("-0.01")),
        (decimal(10), "12.3", Decimal("12.30")),  # decimal.format=numeric
        (decimal(9, size=4), '"AAAB+A=="', Decimal("5.04")),
        (decimal(64), '"MDAw"', "31580.64"),
        (decimal(64), '"AA=="', "0.00"),
        (decimal(64), "12.3", "12.3"),
        ({"type": "fixed", "name": "F", "size": 3}, '"1234"', None),
        ("bytes", '"test"', b"\xb5\xeb-"),
        ({"type": "int", "connect.type": "int8"}, "-7", -7),
    ],
)
def test_values_of_connect(avro, text, value):
    assert read(avro, text) == (value if value is not None else b"\xd7\x6d\xf8")


@pytest.mark.parametrize("text", ['"12.30"', '""', '"M"', '"MDAw\\n"', '"\\u00e9"', '"%s"' % ("AAAA" * 400)])
@pytest.mark.parametrize("precision", [10, 64])
def test_other_text_is_no_decimal_of_connect(precision, text):
    assert read(decimal(precision), text) == "field 'f': expected base64 of a decimal, but found text"


@pytest.mark.parametrize("scale", [10**7, 9 * 10**18, 10**30])
def test_a_scale_beyond_python_s_decimals_is_a_bad_row(scale):
    """It is of the writer's version, which any producer may register."""
    assert "expected base64" in read(decimal(64), '"AQ=="', writer=decimal(scale, scale))


def test_a_decimal_has_the_scale_of_its_writer():
    assert read(decimal(10, 4), '"MDAw"', writer=decimal(10)) == Decimal("31580.6400")
    assert "more digits" in read(decimal(5), '"f////w=="')


def test_text_of_other_clients_is_a_number():
    assert read(decimal(10), '"1234"', {}) == Decimal(1234)


@pytest.mark.parametrize("properties", [CONNECT, {}])
def test_maps_whose_keys_are_no_strings_are_pairs(properties):
    entry = {
        "type": "record",
        "name": "MapEntry",
        "namespace": "io.confluent.connect.avro",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": ["null", "string"]}],
    }
    avro = {"type": "array", "items": entry, "connect.type": "map"}
    expected = [{"key": 1, "value": "a"}, {"key": 2, "value": None}]
    if properties:
        assert read(avro, '[[1,"a"],[2,null]]') == expected
        assert "found an array" in read(avro, '[[1,"a",3]]')
    assert read(avro, '[{"key":1,"value":"a"},{"key":2}]', properties) == expected


def test_parts_of_key_value_are_of_connect_by_their_own_properties():
    key = json_schema(record(f=decimal(10)), CONNECT)
    parts = key_value.KeyValueParts(key, Schema(SchemaType.INT32), True)
    own = key_value.schema_of(parts)
    decoder = formats.decoder(own, own, formats.column_type(own))
    found = decoder.decode(pa.array([bytes(4)], pa.binary()), pa.array([b'{"f":"MDAw"}'], pa.binary()))
    assert found.column.to_pylist() == [{"key": {"f": Decimal("31580.64")}, "value": 0}]


def test_numbers_and_pairs():
    assert number_of("AQ==", 50) == "1E-50"
    assert number_of("AQ==", 0) == "1"
    assert pairs_of({"a": 1}) == pairs_of([["a", 1]]) == [{"key": "a", "value": 1}]
    assert pairs_of([1, [2]]) == [1, [2]]
    assert pairs_of(None) is None
