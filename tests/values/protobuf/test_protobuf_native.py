"""PROTOBUF_NATIVE: rows as Spark's from_protobuf makes them, from any payload and any descriptors."""

import datetime as dt
import gc
import json
import random
import weakref
from decimal import Decimal

import pyarrow as pa
import pytest
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, timestamp_pb2, wrappers_pb2
from google.protobuf.message import DecodeError

from pulsar_spark.values import formats
from pulsar_spark.values.protobuf import protobuf_native, readers
from tests.loops import a_few_of
from tests.values import protobuf_files
from tests.values.protobuf.decoding import bad_rows, column_type, decode, read, rows_of, why
from tests.values.protobuf_files import (
    file,
    fill,
    message_class,
    mutated,
    own_file,
    random_file,
    row_class,
    row_of,
    schema,
)
from tests.wire.runtimes import read_with

# ---------------------------------------------------------------------------------------- types and values


def test_a_payload_of_java():
    of = schema(own_file(timestamp_pb2), "google.protobuf.Timestamp")
    assert formats.column_type(of) == pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
    assert rows_of(decode(of, [bytes.fromhex("08051006")])) == [{"seconds": 5, "nanos": 6}]


def test_types_are_those_of_from_protobuf():
    own = file(
        """enum Color
        RED = 0
        message Timestamp
        int64 seconds = 1
        int32 nanos = 2
        message Duration
        int64 seconds = 1
        int32 nanos = 2
        message Point
        double x = 1
        message Empty
        message M0
        double a = 1
        float b = 2
        int64 c = 3
        uint64 d = 4
        int32 e = 5
        fixed64 f = 6
        fixed32 g = 7
        bool h = 8
        string i = 9
        bytes j = 10
        uint32 k = 11
        sfixed32 l = 12
        sfixed64 m = 13
        sint32 n = 14
        sint64 o = 15
        Color p = 16
        Timestamp q = 17
        Duration r = 18
        Point s = 19
        repeated Point t = 20
        map Point u = 21
        repeated Timestamp v = 22
        Empty w = 23
        repeated Empty x = 24
        map Empty y = 25"""
    )
    point = pa.struct([("x", pa.float64())])
    time, big = pa.timestamp("us", "UTC"), pa.decimal128(20, 0)
    assert formats.column_type(schema(own, "p.M0")) == pa.struct(
        [
            *[("a", pa.float64()), ("b", pa.float32()), ("c", pa.int64()), ("d", big), ("e", pa.int32())],
            *[("f", big), ("g", pa.int64()), ("h", pa.bool_()), ("i", pa.string()), ("j", pa.binary())],
            *[("k", pa.int64()), ("l", pa.int32()), ("m", pa.int64()), ("n", pa.int32()), ("o", pa.int64())],
            *[("p", pa.string()), ("q", time), ("r", pa.duration("us")), ("s", point)],
            ("t", pa.list_(pa.field("element", point))),
            ("u", pa.map_(pa.string(), pa.field("value", point))),
            ("v", pa.list_(pa.field("element", time))),
            ("w", pa.bool_()),
            ("x", pa.list_(pa.field("element", pa.bool_()))),
            ("y", pa.map_(pa.string(), pa.field("value", pa.bool_()))),
        ]
    )


def test_wrappers_and_any_are_structs():
    importing = file("message M0\n.google.protobuf.StringValue a = 1\n.google.protobuf.Any b = 2")
    of = schema([own_file(wrappers_pb2), own_file(any_pb2), importing], "p.M0")
    payload = b"\x0a\x03\x0a\x01x\x12\x05\x0a\x01t\x12\x00"
    assert rows_of(decode(of, [payload])) == [{"a": {"value": "x"}, "b": {"type_url": "t", "value": None}}]


@pytest.mark.parametrize("seed", a_few_of(5))
def test_rows_are_those_of_from_protobuf(seed):
    own, reached = random.Random(seed), {True: 0, False: 0}
    for _ in range(8):
        made = random_file(own, own.choice(["proto2", "proto3"]))
        whole, parsed = message_class(made, "p.M0"), row_class([made], "p.M0")
        payloads, expected = [], []
        for _ in range(30):
            message = whole()
            fill(own, message)
            payload = message.SerializePartialToString(deterministic=True)
            payloads.append(mutated(own, payload) if own.random() < 0.4 else payload)
            try:
                message = parsed.FromString(payloads[-1])
                expected.append(row_of(message) if message.IsInitialized() else None)
            except (DecodeError, UnicodeDecodeError):
                expected.append(None)
        found = decode(schema(made, "p.M0"), payloads)
        assert repr(rows_of(found)) == repr(expected)  # in which -0.0 is another number than 0.0
        assert bad_rows(found) == [row is None for row in expected]
        for is_bad in bad_rows(found):
            reached[is_bad] += 1
    assert min(reached.values()) > 20


def test_absent_values():
    text = "int32 a = 1\n{} int32 b = 2\n{} string c = 3\nrepeated int32 d = 4\nmap int32 e = 5\nM1 f = 6"
    text = f"message M1\nint32 a = 1\nmessage M0\n{text.format('optional', 'oneof')}"
    nothing = {"a": None, "b": None, "c": None, "d": [], "e": {}, "f": None}
    assert read(text, b"") == nothing
    zeros = b"\x08\x00\x10\x00\x1a\x00\x32\x00"
    assert read(text, zeros) == {**nothing, "b": 0, "c": "", "f": {"a": None}}
    assert read(text, zeros, "proto2") == {**nothing, "a": 0, "b": 0, "c": "", "f": {"a": None}}


def test_zeros_of_fields_without_presence_are_null_but_minus_zero_is_not():
    text = "message M0\ndouble a = 1\nfloat b = 2\nbool c = 3\nbytes d = 4\nuint64 e = 5"
    nothing = dict.fromkeys("abcde")
    assert read(text, b"\x09" + bytes(8) + b"\x15" + bytes(4) + b"\x18\x00\x22\x00\x28\x00") == nothing
    assert str(read(text, b"\x09" + bytes(7) + b"\x80")["a"]) == "-0.0"


def test_of_a_oneof_the_last_one_counts():
    text = "message M0\noneof int32 a = 1\noneof string b = 2"
    assert read(text, b"\x08\x01\x12\x01x") == {"a": None, "b": "x"}
    assert read(text, b"\x12\x01x\x08\x01") == {"a": 1, "b": None}


def test_defaults_of_proto2():
    text = r"""enum Color
        RED = 3
        BLUE = -4
        message M0
        optional int32 a = 1 = -5
        optional uint64 b = 2 = 18446744073709551615
        optional double c = 3 = -inf
        optional bool d = 4 = true
        optional string e = 5 = text
        optional bytes f = 6 = \001\377x
        optional Color g = 7 = BLUE"""
    numbers = {"a": -5, "b": Decimal(2**64 - 1), "c": float("-inf"), "d": True}
    default = {**numbers, "e": "text", "f": b"\x01\xffx", "g": "BLUE"}
    assert read(text, b"", "proto2") == default
    assert read(text, b"\x08\x00\x20\x00\x2a\x00\x38\x03", "proto2") == {
        **default,
        "a": 0,
        "d": False,
        "e": "",
        "g": "RED",
    }


ENUM = "enum Color\nRED = 0\nCRIMSON = 0\nBLUE = 7\nmessage M0\nColor a = 1\nrepeated Color b = 2"


def test_numbers_that_an_enum_does_not_name():
    payload = b"\x08\x05\x10\x07\x10\x05\x10\x00"
    assert read(ENUM, payload) == {
        "a": "UNKNOWN_ENUM_VALUE_Color_5",
        "b": ["BLUE", "UNKNOWN_ENUM_VALUE_Color_5", "RED"],
    }
    assert read(ENUM, payload, "proto2") == {"a": None, "b": ["BLUE", "RED"]}


def test_numbers_are_read_packed_or_not():
    text = "message M0\nrepeated sint32 a = 1\nrepeated fixed32 b = 2"
    payload = b"\x0a\x02\x01\x02\x08\x03" + b"\x15\xff\xff\xff\xff" + b"\x12\x04\x01\0\0\0"
    assert read(text, payload) == {"a": [-1, 1, -2], "b": [2**32 - 1, 1]}


def test_groups_are_messages():
    own = file(
        "message Part\nint32 a = 1\nmessage M0\noptional Part part = 1\nrepeated Part parts = 2", "proto2"
    )
    for field in own.message_type[1].field:
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_GROUP
    found = decode(schema(own, "p.M0"), [b"\x0b\x08\x05\x0c\x13\x14\x13\x08\x01\x14", b"\x0b\x08\x05", b""])
    assert rows_of(found) == [
        {"part": {"a": 5}, "parts": [{"a": None}, {"a": 1}]},
        None,
        {"part": None, "parts": []},
    ]
    assert bad_rows(found) == [False, True, False]


def test_of_entries_with_the_same_key_the_last_one_counts():
    text = "message M0\nmap int32 a = 1"
    entries = [(b"k", 1), (b"l", 2), (b"k", 3)]
    payload = b"".join(b"\x0a\x05\x0a\x01" + key + b"\x10" + bytes([value]) for key, value in entries)
    of = schema(file(text), "p.M0")
    found = decode(of, [payload, payload[:7], payload[7:], b"\x0a\x00" * 3])
    assert rows_of(found) == [
        {"a": {"k": 3, "l": 2}},
        {"a": {"k": 1}},
        {"a": {"l": 2, "k": 3}},
        {"a": {"": 0}},
    ]
    # What rows are compared by has no order of keys.
    expected = row_of(row_class([file(text)], "p.M0").FromString(payload))
    assert repr(rows_of(found)[0]) == repr(expected)


TIMES = """message Timestamp
    int64 seconds = 1
    int32 nanos = 2
    message Duration
    int64 seconds = 1
    int32 nanos = 2
    message M0
    Timestamp a = 1
    Duration b = 2
    repeated Timestamp c = 3"""


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_an_entry_that_does_not_count_makes_a_row_bad_all_the_same(syntax):
    """As to protobuf's own runtime, which refuses the whole payload."""
    payload = b"\x0a\x06\x0a\x01k\x12\x01\xff" + b"\x0a\x06\x0a\x01k\x12\x01v"
    assert "not UTF-8" in why("message M0\nmap string a = 1", payload, syntax)
    if syntax == "proto3":
        with pytest.raises(DecodeError):
            message_class(file("message M0\nmap string a = 1"), "p.M0").FromString(payload)


def test_times():
    made = message_class(file(TIMES), "p.M0")()
    made.a.seconds, made.a.nanos = -1, 999_999_999
    made.b.seconds, made.b.nanos = -1, -1_500
    made.c.add()
    assert read(TIMES, made.SerializeToString()) == {
        "a": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.timezone.utc),
        "b": dt.timedelta(microseconds=-1_000_001),
        "c": [dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)],
    }


@pytest.mark.parametrize(
    "changed", ["int32 seconds = 1\nint32 nanos = 2", "int64 nanos = 2\nint32 seconds = 1"]
)
def test_other_messages_of_a_time_s_name_are_structs(changed):
    kind = column_type(f"message Timestamp\n{changed}\nmessage M0\nTimestamp a = 1")
    assert pa.types.is_struct(kind.field("a").type)


# ---------------------------------------------------------------------------------------- bad rows


NESTED = """message M2
    required string a = 1
    message M1
    optional M2 b = 1
    repeated M2 c = 2
    map string d = 3
    message M0
    optional M1 e = 1
    optional int64 f = 2"""


MAPPED = """message M2
    required string a = 1
    message M0
    map M2 d = 1"""


@pytest.mark.parametrize(
    ("syntax", "text", "payload", "expected"),
    [
        ("proto3", TIMES, b"\xff", "1 bytes are not a protobuf message"),
        ("proto3", TIMES, b"\x0a\x05\x08\x01", "4 bytes are not a protobuf message"),
        ("proto3", TIMES, b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f", "a: seconds that do not fit"),
        ("proto3", TIMES, b"\x1a\x00\x1a\x0a\x08" + b"\xff" * 8 + b"\x7f", "c[1]: seconds that do not fit"),
        ("proto2", NESTED, b"\x0a\x02\x0a\x00", "e.b.a: it is required, but missing"),
        ("proto2", NESTED, b"\x0a\x05\x0a\x03\x0a\x01\xff", "e.b.a: not UTF-8: invalid start byte at byte 0"),
        ("proto2", NESTED, b"\x0a\x07\x12\x05\x0a\x03x\xc3y", "e.c[0].a: not UTF-8"),
        ("proto2", NESTED, b"\x0a\x05\x1a\x03\x0a\x01\xff", "e.d.key: not UTF-8"),
        ("proto2", NESTED, b"\x0a\x05\x1a\x03\x12\x01\xff", "e.d.value: not UTF-8"),
        ("proto3", "message M0\nrepeated string a = 1", b"\x0a\x00\x0a\x01\xff", "a[1]: not UTF-8"),
        # The value of an entry without one is empty, also if the entry has an unknown field.
        ("proto2", MAPPED, b"\x0a\x03\x0a\x01k", "d.value.a: it is required, but missing"),
        ("proto2", MAPPED, b"\x0a\x05\x0a\x01k\x18\x01", "d.value.a: it is required, but missing"),
    ],
)
def test_a_bad_row_is_told_and_its_neighbours_are_whole(syntax, text, payload, expected):
    assert why(text, payload, syntax).startswith(expected)
    of = schema(file(text, syntax), "p.M0")
    (whole,) = rows_of(decode(of, [b""]))
    assert rows_of(decode(of, [b"", payload, None, payload, b""])) == [whole, None, None, None, whole]
    assert bad_rows(decode(of, [b"", payload, None, payload, b""])) == [False, True, False, True, False]


def test_tombstones_and_sliced_payloads():
    of = schema(file("message M0\nint32 a = 1"), "p.M0")
    decoder = formats.decoder(of, of, formats.column_type(of))
    assert rows_of(decode(of, [])) == []
    assert rows_of(decode(of, [None, None])) == [None, None]
    payloads = pa.array([b"\x08\x01", None, b"\x08\x02", b"\x08\x03", b"\xff"])
    found = decoder.decode(payloads[1:4], pa.nulls(3, pa.binary()))
    assert rows_of(found) == [None, {"a": 2}, {"a": 3}]
    assert found.is_bad is None


def test_payloads_too_many_to_be_parsed_in_one_call(monkeypatch):
    of = schema(file("message M0\nint32 a = 1"), "p.M0")
    payloads = [b"\x08\x01", b"\xff", None, b"\x08\x02"]
    expected = decode(of, payloads)
    monkeypatch.setattr(protobuf_native, "_MAX_JOINED", 1)
    found = decode(of, payloads)
    assert rows_of(found) == rows_of(expected) == [{"a": 1}, None, None, {"a": 2}]
    assert bad_rows(found) == bad_rows(expected)


def test_items_too_many_to_be_read_at_once(monkeypatch):
    own = file("message M1\nstring a = 1\nmessage M0\nrepeated M1 b = 1\nmap M1 c = 2\nrepeated int32 d = 3")
    whole = message_class(own, "p.M0")
    payloads = []
    for count in (0, 5, 1, 40):
        message = whole(d=range(count))
        for number in range(count):
            message.b.add(a=str(number))
            message.c[str(number)].a = str(number)
        payloads.append(message.SerializeToString(deterministic=True))
    payloads.insert(2, payloads[1].replace(b"\x0a\x014", b"\x0a\x01\xff"))
    expected = decode(schema(own, "p.M0"), payloads)
    monkeypatch.setattr(readers, "_SLICE", 4)
    found = decode(schema(own, "p.M0"), payloads)
    assert rows_of(found) == rows_of(expected)
    assert [len(row["b"]) for row in rows_of(found) if row] == [0, 5, 1, 40]
    assert bad_rows(found) == bad_rows(expected) == [False, False, True, False, False]


def test_features_of_editions():
    """As the runtime has them: on the file, on a message, on an enum and on fields."""
    own = file(
        """enum Open
        A = 0
        enum Closed
        B = 0
        message M1
        int32 a = 1
        message M0
        int32 explicit = 1 = 7
        int32 implicit = 2
        int32 must = 3
        M1 group = 4
        M1 message = 5
        repeated Open open = 6
        repeated Closed closed = 7
        map M1 map = 8
        optional string text = 9""",
        "editions",
    )
    own.edition = 1000
    features = descriptor_pb2.FeatureSet
    own.options.features.message_encoding = features.DELIMITED
    own.message_type[0].options.features.field_presence = features.IMPLICIT
    own.enum_type[1].options.features.enum_type = features.CLOSED
    fields = {field.name: field.options.features for field in own.message_type[1].field}
    fields["implicit"].field_presence = features.IMPLICIT
    fields["must"].field_presence = features.LEGACY_REQUIRED
    fields["message"].message_encoding = features.LENGTH_PREFIXED
    message = message_class(own, "p.M0")(must=1, group={"a": 0}, message={"a": 5}, open=[0, 4], closed=[0])
    message.map["k"].a = 6
    payload = message.SerializeToString()
    assert b"\x23" in payload  # a group begins
    of = schema(own, "p.M0")
    numbers = bytes.fromhex("3804 1000")  # a number that the closed enum does not name, and a zero
    found = decode(of, [payload + numbers, payload.replace(b"\x18\x01", b"")])
    assert bad_rows(found) == [False, True]
    row = {
        "explicit": 7,
        "implicit": None,
        "must": 1,
        "group": {"a": None},
        "message": {"a": 5},
        "text": None,
    }
    assert rows_of(found)[0] == row | {
        "open": ["A", "UNKNOWN_ENUM_VALUE_Open_4"],
        "closed": ["B"],
        "map": {"k": {"a": 6}},
    }


def test_of_a_oneof_of_empty_messages_the_set_one_is_true():
    text = "message Empty\nmessage M0\noneof Empty a = 1\noneof Empty b = 2\nrepeated Empty c = 3"
    assert read(text, bytes.fromhex("0a00 1a00 1200 1a00")) == {"a": None, "b": True, "c": [True, True]}
    of = schema(file(text), "p.M0")
    assert rows_of(decode(of, [b"\x0a\x00"], pa.struct([("a", pa.bool_())]))) == [{"a": True}]


# ---------------------------------------------------------------------------------------- the runtime


def test_a_decoder_leaves_nothing_behind():
    of = schema(file("message M0\nint32 a = 1"), "p.M0")
    decoder = formats.decoder(of, of, formats.column_type(of))
    parser = weakref.ref(getattr(decoder, "parser"))  # noqa: B009 - a part of this decoder alone
    for name in ("p.M0", "M0", "Rows"):
        with pytest.raises(KeyError):
            descriptor_pool.Default().FindMessageTypeByName(name)
    assert parser() is not None
    del decoder
    gc.collect()
    assert parser() is None


def test_both_runtimes_read_the_same():
    own, asked = random.Random(7), []
    for _ in range(20):
        made, payloads = random_file(own, own.choice(["proto2", "proto3"])), []
        for _ in range(20):
            message = message_class(made, "p.M0")()
            fill(own, message)
            payload = message.SerializePartialToString(deterministic=True)
            payloads.append(mutated(own, payload) if own.random() < 0.3 else payload)
        asked.append((schema(made, "p.M0").data.decode(), [payload.hex() for payload in payloads]))
    rows = read_with("upb", protobuf_files.__name__, json.dumps(asked))
    assert read_with("python", protobuf_files.__name__, json.dumps(asked)) == rows
    assert "True" in rows
    assert "UNKNOWN_ENUM_VALUE" in rows
