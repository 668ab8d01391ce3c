"""PROTOBUF_NATIVE: values of other versions, and the columns that a query asks for."""

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError
from pulsar_spark.values import formats
from tests.loops import for_each
from tests.values.protobuf.decoding import bad_rows, decode, read, rows_of
from tests.values.protobuf.test_protobuf_native import ENUM
from tests.values.protobuf_files import file, message_class, schema


def test_other_versions_are_read_by_the_readers_descriptors():
    older = schema(file("message M0\nint32 a = 1\nstring gone = 2"), "p.M0")
    newer = schema(file("message M0\nint64 a = 1\nstring b = 3\nint32 gone = 4"), "p.M0")
    payload_of_older, payload_of_newer = b"\x08\x05\x12\x01x", b"\x08\x05\x1a\x01y\x20\x01"
    assert rows_of(decode(newer, [payload_of_older], writer=older)) == [{"a": 5, "b": None, "gone": None}]
    rest = pa.struct([("gone", pa.string())])
    assert rows_of(decode(older, [payload_of_newer], rest, writer=newer)) == [{"gone": None}]


SAME = [
    ("int32", "int64", b"\x08\x7b", 123),
    ("int32", "int64", b"\x08" + b"\xff" * 9 + b"\x01", -1),
    ("uint32", "int64", b"\x08\xff\xff\xff\xff\x0f", 2**32 - 1),
    ("bool", "int32", b"\x08\x01", 1),
    ("string", "bytes", b"\x0a\x01x", b"x"),
    ("bytes", "string", b"\x0a\x01x", "x"),
    ("string", "repeated string", b"\x0a\x01x", ["x"]),
]


@for_each(("old", "new", "payload", "value"), SAME)
def test_a_field_may_get_a_type_that_means_the_same(old, new, payload, value):
    older, newer = (schema(file(f"message M0\n{kind} a = 1"), "p.M0") for kind in (old, new))
    assert rows_of(decode(newer, [payload], writer=older)) == [{"a": value}]


OTHERS = [
    ("int64", "int32"),
    ("int32", "uint32"),
    ("int32", "sint32"),
    ("sint64", "int64"),
    ("int32", "bool"),
    ("int32", "string"),
    ("fixed32", "sfixed32"),
    ("fixed64", "double"),
    ("int32", "fixed32"),
    ("repeated int32", "int32"),
    ("string", "M1"),
    ("M1", "bytes"),
]


@for_each(("old", "new"), OTHERS)
def test_a_field_is_not_read_as_a_type_that_means_something_else(old, new):
    words = rf"a: {old} cannot be read as {new}".replace("M1", "message")
    for text in (
        "message M1\nint32 x = 1\nmessage M0\n{} a = 1\nint32 b = 2",
        "message M1\nint32 x = 1\nmessage M2\n{} a = 1\nmessage M0\nrepeated M2 c = 1\nint32 b = 2",
        "message M1\nint32 x = 1\nmessage M2\n{} a = 1\nmessage M0\nmap M2 c = 1\nint32 b = 2",
    ):
        older, newer = (schema(file(text.format(kind)), "p.M0") for kind in (old, new))
        with pytest.raises(SchemaError, match=words):
            decode(newer, [], writer=older)
        rest = pa.struct([("b", pa.int32())])
        assert rows_of(decode(newer, [b"\x10\x05"], rest, writer=older)) == [{"b": 5}]


def test_a_time_is_read_only_by_a_version_that_has_one():
    time = "message Timestamp\nint64 seconds = 1\nint32 nanos = 2\nmessage M0\nTimestamp a = 1"
    other = "message Timestamp\nint64 seconds = 1\nmessage M0\nTimestamp a = 1"
    newer, older = (schema(file(text), "p.M0") for text in (time, other))
    for reader, writer in ((newer, older), (older, newer)):
        with pytest.raises(SchemaError, match=r"field a: p\.Timestamp cannot be read as"):
            decode(reader, [], writer=writer)
    assert decode(newer, [b"\x0a\x02\x08\x05"], writer=newer).is_bad is None
    of_newer, of_older = (schema(file(text), "p.Timestamp") for text in (time, other))
    assert rows_of(decode(of_newer, [b"\x08\x05"], writer=of_older)) == [{"seconds": 5, "nanos": None}]


def test_another_message_is_not_read():
    own = file("message M1\nint32 a = 1\nmessage M0\nint32 a = 1")
    with pytest.raises(SchemaError, match=r"p\.M1 cannot be read as p\.M0"):
        decode(schema(own, "p.M0"), [], writer=schema(own, "p.M1"))


def test_fields_that_are_asked_for_in_types_that_are_asked_for():
    text = "M1 c = 3\nrepeated M1 d = 4\nmap M1 e = 5\nmessage M1\nstring x = 1\nint32 y = 2\nbytes z = 3"
    own = file(f"{ENUM}\n{text}")
    message = message_class(own, "p.M0")(a=7)
    for each in (message.c, message.d.add(), message.e["k"]):
        each.x, each.y, each.z = "text", 9, b"bytes"
    part = pa.struct([pa.field("y", pa.float64()), pa.field("z", pa.string())])
    target = pa.struct(
        [
            ("e", pa.map_(pa.string(), pa.field("value", part))),
            ("d", pa.list_(pa.field("element", pa.struct([("x", pa.binary())])))),
            ("c", part),
            ("a", pa.binary()),
        ]
    )
    of, payload = schema(own, "p.M0"), message.SerializeToString()
    assert rows_of(decode(of, [payload], target)) == [
        {
            "e": {"k": {"y": 9.0, "z": "bytes"}},
            "d": [{"x": b"text"}],
            "c": {"y": 9.0, "z": "bytes"},
            "a": b"BLUE",
        }
    ]
    assert rows_of(decode(of, [payload], pa.struct([]))) == [{}]
    no_text = payload.replace(b"bytes", b"\xff\xff\xff\xff\xff")
    assert bad_rows(decode(of, [payload, no_text], target)) == [False, True]
    only_a = pa.struct([target.field("a")])
    assert bad_rows(decode(of, [payload, no_text], only_a)) == [False, False]


def test_what_is_not_asked_for_does_not_matter():
    text = "message M1\nM1 a = 1\nmessage M0\nM1 a = 1\nint32 b = 2"
    assert read(text, b"\x10\x05", target=pa.struct([("b", pa.int32())])) == {"b": 5}


@pytest.mark.parametrize(
    ("column", "path"),
    [
        (("other", pa.int32()), "other"),
        (("a", pa.int32()), "a"),
        (("c", pa.struct([("other", pa.int32())])), "c.other"),
        (("c", pa.struct([("x", pa.int32())])), "c.x"),
        (("c", pa.string()), "c"),
        (("d", pa.string()), "d"),
        (("d", pa.list_(pa.string())), "d"),
        (("e", pa.list_(pa.string())), "e"),
        (("e", pa.map_(pa.int32(), pa.string())), "e.key"),
        (("e", pa.map_(pa.string(), pa.int32())), "e.value"),
        (("t", pa.int64()), "t"),
    ],
)
def test_other_targets_are_refused(column, path):
    text = """message Timestamp
        int64 seconds = 1
        int32 nanos = 2
        message M1
        string x = 1
        message M0
        int64 a = 1
        M1 c = 3
        repeated M1 d = 4
        map string e = 5
        Timestamp t = 6"""
    of = schema(file(text), "p.M0")
    with pytest.raises(SchemaError, match=rf"field {path}\b"):
        formats.decoder(of, of, pa.struct([column]))


def test_targets_that_are_no_struct_or_name_a_field_twice_are_refused():
    of = schema(file("message M0\nint32 a = 1"), "p.M0")
    for target in (pa.int32(), pa.struct([("a", pa.int32()), ("a", pa.int32())])):
        with pytest.raises(SchemaError, match="PULSAR_SCHEMA"):
            formats.decoder(of, of, target)
