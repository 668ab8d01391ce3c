"""Schemas and versions as commands carry them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import from_wire_schema, from_wire_version, to_wire_schema, to_wire_version

texts = st.text(st.characters(exclude_categories=["Cs"]))
schemas = st.builds(Schema, st.sampled_from(SchemaType), st.binary(), st.dictionaries(texts, texts), texts)


@given(schemas)
def test_schemas_come_back_as_they_were_sent(schema):
    wire = pb.Schema.FromString(to_wire_schema(schema).SerializeToString())
    assert from_wire_schema(wire) == schema


def test_a_golden_schema():
    wire = to_wire_schema(Schema(SchemaType.KEY_VALUE, b"\x00", {"kv.encoding.type": "INLINE"}, "n"))
    assert (
        wire.SerializeToString().hex()
        == "0a016e1a0100200f2a1a0a106b762e656e636f64696e672e747970651206494e4c494e45"
    )


def test_of_properties_with_one_name_the_last_counts_and_bytes_may_be_no_text():
    wire = pb.Schema(name="", schema_data=b"", type=pb.Schema.Avro)
    wire.properties.add(key=b"a", value=b"1")
    wire.properties.add(key=b"a", value=b"2\xff")
    assert from_wire_schema(wire).properties == {"a": "2\ufffd"}


@given(st.integers(0, 2**63 - 1))
def test_versions(version):
    assert from_wire_version(to_wire_version(version)) == version


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (bytes(8), 0),
        (bytes(7) + b"\x05", 5),
        (b"\x7f" + b"\xff" * 7, 2**63 - 1),
        (b"", None),
        (b"\x05", None),
        (bytes(9), None),
        (b"\xff" * 8, None),
        (b"\x80" + bytes(7), None),
    ],
)
def test_bytes_that_are_no_version(data, version):
    assert from_wire_version(data) == version
