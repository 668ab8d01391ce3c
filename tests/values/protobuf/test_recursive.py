"""Messages that contain themselves are JSON text, as protobuf's own writer has it."""

import json
import random

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2
from google.protobuf.json_format import MessageToDict

from pulsar_spark.errors import SchemaError
from pulsar_spark.values import formats
from tests.loops import a_few_of
from tests.values.protobuf.decoding import bad_rows, decode, read, rows_of, why
from tests.values.protobuf_files import file, fill, message_class, own_file, schema

# As OpenTelemetry has it, with a field of each kind.
TREE = """enum Color
RED = 0
BLUE = 2
LESS = -1
MORE = 5
message Empty
message Leaf
double a = 1
float b = 2
int64 c = 3
uint64 d = 4
bool e = 5
bytes f = 6
string g = 7
Color h = 8
repeated Color i = 9
repeated float j = 10
optional string k = 11
map string l = 12
map M0 m = 13
Empty n = 14
message List
repeated M0 values = 1
message M0
oneof string text = 1
oneof Leaf leaf = 2
oneof List list = 3"""


def as_json(value):
    """What ``json_format`` has, with numbers of 64 bits as numbers, as columns have them."""
    if isinstance(value, dict):
        return {key: int(item) if key in ("c", "d") else as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
@pytest.mark.parametrize("seed", a_few_of(5))
def test_texts_are_those_of_protobuf_s_own_writer(syntax, seed):
    own, rnd = (
        file(TREE.replace("optional ", "") if syntax == "proto2" else TREE, syntax),
        random.Random(seed),
    )
    messages = [message_class(own, "p.M0")() for _ in range(50)]
    for message in messages:
        fill(rnd, message)
    column = decode(schema(own, "p.M0"), [message.SerializeToString() for message in messages])
    assert column.is_bad is None
    texts = 0
    for row, message in zip(rows_of(column), messages, strict=True):
        values = (row["list"] or {"values": []})["values"]
        expected = [MessageToDict(each, preserving_proto_field_name=True) for each in message.list.values]
        # Maps have any order; -0.0 is not 0.0.
        found, expected = list(map(json.loads, values)), as_json(expected)
        assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)
        texts += len(values)
    assert texts


def test_google_s_own_recursive_messages():
    own = own_file(descriptor_pb2)
    of = schema(own, "google.protobuf.FileDescriptorProto")
    (row,) = rows_of(decode(of, [own.SerializeToString()]))
    for found, message in zip(row["message_type"], own.message_type, strict=True):
        inner = [MessageToDict(each, preserving_proto_field_name=True) for each in message.nested_type]
        assert list(map(json.loads, found["nested_type"])) == inner
    of = schema(own_file(struct_pb2), "google.protobuf.Struct")
    struct = struct_pb2.Struct()
    struct.update({"a": 1, "b": {"c": [True, "é"]}})
    (row,) = rows_of(decode(of, [struct.SerializeToString()]))
    assert row["fields"]["a"]["number_value"] == 1
    assert json.loads(row["fields"]["b"]["struct_value"]) == {
        "fields": {"c": {"list_value": {"values": [{"bool_value": True}, {"string_value": "é"}]}}}
    }


def test_some_columns_of_a_message_within_itself():
    text = "message M0\nint32 b = 1\nM0 a = 2\nmap M0 c = 3"
    assert read(text, bytes.fromhex("08051202 0806 1a061200 0a026b65".replace(" ", "")[:12])) == {
        "b": 5,
        "a": '{"b":6}',
        "c": {},
    }
    assert read(text, b"\x08\x05\x12\x00", target=pa.struct([("a", pa.string())])) == {"a": "{}"}
    assert read(text, b"\x08\x05\x12\x00", target=pa.struct([("b", pa.int32())])) == {"b": 5}


def test_text_that_is_not_utf_8_is_bad():
    assert why("message M0\nM0 a = 1\nstring b = 2", b"\x0a\x03\x12\x01\xff") == "a: text in it is not UTF-8"


def test_fields_within_the_text_keep_their_meaning():
    new = schema(file("message M0\nM1 a = 1\nmessage M1\nM0 b = 1\nsint32 c = 2"), "p.M0")
    old = schema(file("message M0\nM1 a = 1\nmessage M1\nM0 b = 1\nint32 c = 2"), "p.M0")
    with pytest.raises(SchemaError, match=r"field a\.b\.a\.c: int32 cannot be read as sint32|field a\.c"):
        formats.decoder(old, new, formats.column_type(new))
    only_b = pa.struct([("a", pa.struct([("b", pa.string())]))])
    with pytest.raises(SchemaError, match=r"field a\.b\.a\.c: int32 cannot be read as sint32"):
        formats.decoder(old, new, only_b)


def test_messages_of_two_bytes_are_counted():
    text = "message M0\nrepeated M0 a = 1\n" + "\n".join(f"int32 f{n} = {n}" for n in range(2, 30))
    of = schema(file(text), "p.M0")
    inner = b"\x0a\x00" * 200_000
    payload = b"\x0a" + bytes([len(inner) & 127 | 128, len(inner) >> 7 & 127 | 128, len(inner) >> 14]) + inner
    found = decode(of, [payload, b"\x0a\x02\x0a\x00"])
    assert bad_rows(found) == [True, False]
    assert rows_of(found)[1]["a"] == ['{"a":[{}]}']
