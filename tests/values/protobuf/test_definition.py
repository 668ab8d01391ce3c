"""Descriptors that anybody may register: what is read, and what is refused by its reason."""

import base64
import json
import random

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.protobuf.definition import parse, protobuf_schema
from tests.values.protobuf.decoding import column_type, decode, read, rows_of
from tests.values.protobuf_files import file, message_class, random_file, schema


def refused(of, error, text):
    for ask in (
        lambda: formats.column_type(of),
        lambda: formats.decoder(of, of, pa.struct([("a", pa.int32())])),
    ):
        with pytest.raises(error, match=text):
            ask()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        json.dumps({"rootMessageTypeName": "M", "fileDescriptorSet": 7}).encode(),
        json.dumps({"rootMessageTypeName": "M", "fileDescriptorSet": "%%%%"}).encode(),
        json.dumps({"rootMessageTypeName": "M", "fileDescriptorSet": "/////w=="}).encode(),
        json.dumps({"rootMessageTypeName": "M", "fileDescriptorSet": ""}).encode(),
        json.dumps({"rootMessageTypeName": ["M"], "fileDescriptorSet": ""}).encode(),
    ],
)
def test_what_is_no_definition_is_refused(data):
    refused(Schema(SchemaType.PROTOBUF_NATIVE, data), SchemaError, "malformed Protobuf schema")


def changed(change, text="message M0\nint32 a = 1\nint32 b = 2", syntax="proto3"):
    own = file(text, syntax)
    change(own)
    return schema(own, "p.M0")


@pytest.mark.parametrize(
    ("number", "name"),
    [(1, "b"), (2, "a"), (0, "b"), (-1, "b"), (2**29, "b"), (19_000, "b"), (2, "b" * 1001)],
)
def test_fields_that_no_message_can_have_are_refused(number, name):
    def change(own):
        own.message_type[0].field[1].number, own.message_type[0].field[1].name = number, name

    refused(changed(change), SchemaError, "malformed")


def test_names_that_are_defined_twice_or_too_long_are_refused():
    refused(changed(lambda own: own.message_type.add(name="M0")), SchemaError, "twice")
    refused(changed(lambda own: own.message_type.add(name="M" * 1000)), SchemaError, "1000 characters")
    refused(changed(lambda own: own.enum_type.add(name="E")), SchemaError, "no values")

    def change(own):
        own.enum_type.add(name="E").value.add(name="V" * 1001)

    refused(changed(change), SchemaError, "1000 characters")
    lines = "\n".join(f"message N{number}" for number in range(10_000))
    refused(schema(file(f"message M0\nint32 a = 1\n{lines}"), "p.M0"), SchemaError, "more than 10000")


def test_more_fields_than_protobuf_takes_are_refused_and_some_of_them_are_read():
    own = file("message M0")
    for number in range(1, 9_001):
        own.message_type[0].field.add(
            name=f"f{number}", number=number, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING, label=3
        )
    of = schema(own, "p.M0")
    with pytest.raises(UnsupportedError, match=r"too many fields for Protobuf.*\.schema\(\.\.\.\)"):
        formats.decoder(of, of, formats.column_type(of))
    some = pa.struct([("f9", formats.column_type(of).field("f9").type)])
    assert formats.decoder(of, of, some).type == some


def test_names_within_long_names_do_not_add_up():
    own = file("message M0\nint32 a = 1")
    outer = own.message_type.add(name="N" * 900)
    for number in range(3):
        outer.nested_type.add(name=f"{number}" * 120)
    refused(schema(own, "p.M0"), SchemaError, "1000 characters")


def refused_at_load(text, match):
    """Without a selection the field is an error, and with one the other fields are read."""
    of = schema(file(text, "proto3"), "p.M0")
    with pytest.raises(UnsupportedError, match=match):
        formats.check_columns(of)
    assert formats.column_type(of) == pa.struct([("z", pa.int32())])
    assert rows_of(decode(of, [b"\x08\x05"])) == [{"z": 5}]


def test_a_type_that_is_not_defined_is_refused_by_the_field_s_name():
    text = "message M1\n.q.Other a = 1\nmessage M0\nint32 z = 1\nM1 b = 2"
    refused_at_load(text, r"field b\.a .*q\.Other.*valueFormat=raw")


@pytest.mark.parametrize("edition", [0, 99997])  # numbers that each runtime knows
def test_an_unknown_syntax_is_refused(edition):
    own = file("message M0\nint32 a = 1", "editions")
    own.edition = edition
    refused(schema(own, "p.M0"), UnsupportedError, rf"p\.M0 .*edition {edition}'.*valueFormat=raw")


def test_a_tree_of_too_many_fields_is_refused():
    doubling = [f"message M{number}\nM{number + 1} a = 1\nM{number + 1} b = 2" for number in range(40)]
    with pytest.raises(UnsupportedError, match="more than 10000 fields"):
        column_type("\n".join([*doubling, "message M40\nint32 a = 1"]))


def test_messages_that_are_too_deep_are_refused():
    deep = [f"message M{number}\nM{number + 1} a = 1" for number in range(100)]
    refused_at_load(
        "\n".join([*deep[1:], "message M100\nint32 a = 1", "message M0\nint32 z = 1\nM1 a = 2"]), "deep"
    )
    deepest = "\n".join([*deep[:47], "message M47\nint32 a = 1"])
    payload = b"\x08\x05"
    for _ in range(47):
        payload = b"\x0a" + bytes([len(payload)]) + payload
    row = read(deepest, payload)
    for _ in range(47):
        row = row["a"]
    assert row == {"a": 5}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int32", "x"),
        ("int32", "2147483648"),
        ("bool", "1"),
        ("double", "x"),
        ("uint64", "1e"),
        ("int64", ""),
    ],
)
def test_defaults_that_are_no_value_are_refused(kind, default):
    own = file(f"message M0\noptional {kind} a = 1", "proto2")
    own.message_type[0].field[0].default_value = default
    refused_default = schema(own, "p.M0")
    with pytest.raises(SchemaError, match="the default of field a"):
        formats.column_type(refused_default)


@pytest.mark.parametrize("change", ["no value", "no key", "repeated key", "message key", "double key"])
def test_maps_that_are_none_are_refused(change):
    own = file("message M0\nmap int32 a = 1")
    entry = own.message_type[0].nested_type[0]
    if change.startswith("no "):
        del entry.field[change == "no value"]
    elif change == "repeated key":
        entry.field[0].label = 3
    elif change == "double key":
        entry.field[0].type = 1
    else:
        entry.field[0].type, entry.field[0].type_name = 11, ".p.M0"
    with pytest.raises(SchemaError, match="field a is a map"):
        formats.column_type(schema(own, "p.M0"))


@pytest.mark.parametrize("seed", range(4))
def test_descriptors_with_bytes_changed_are_read_or_refused(seed):
    own, reached = random.Random(seed), {"read": 0, "refused": 0}
    for _ in range(60):
        made = random_file(own, own.choice(["proto2", "proto3"]))
        data = bytearray(descriptor_pb2.FileDescriptorSet(file=[made]).SerializeToString())
        for _ in range(own.randint(1, 2)):
            data[own.randrange(len(data))] ^= 1 << own.randrange(8)
        told = {"fileDescriptorSet": base64.b64encode(data).decode(), "rootMessageTypeName": "p.M0"}
        of = Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(told).encode())
        try:
            decode(of, [b"", b"\xff", bytes(range(64))])
            reached["read"] += 1
        except (SchemaError, UnsupportedError):
            reached["refused"] += 1
    assert min(reached.values()) > 5


def test_fields_changed_at_random_are_read_or_refused():
    own, reached = random.Random(1), {"read": 0, "refused": 0}
    for _ in range(120):
        made = random_file(own, own.choice(["proto2", "proto3", "editions"]))
        for _ in range(own.randint(1, 3)):
            field = own.choice(own.choice(made.message_type).field or [descriptor_pb2.FieldDescriptorProto()])
            what = own.choice(
                ["type", "label", "number", "type_name", "oneof_index", "default_value", "name"]
            )
            if own.random() < 0.2:
                field.ClearField(what)
            elif what in ("type_name", "default_value", "name"):
                setattr(field, what, own.choice([".p.M1", ".p.E", "x", "", ".p.M0"]))
            else:
                setattr(field, what, own.choice([1, 2, 3, 9, 10, 11, 14] if what == "type" else [1, 2, 3]))
        try:
            decode(schema(made, "p.M0"), [b"", b"\xff", bytes(range(64))])
            reached["read"] += 1
        except (SchemaError, UnsupportedError):
            reached["refused"] += 1
    assert min(reached.values()) > 15


ORDER = """
message Order
int64 id = 1
repeated Line lines = 3
.money.Money price = 4
map int32 counts = 6
"""


def importing(text, package, *imports):
    made = file(text, package=package)
    made.dependency.extend(f"{name}.proto" for name in imports)
    return made


CURRENCY = file("enum Currency\nEUR = 0\nUSD = 1", package="currency")
MONEY = importing("message Money\nint64 cents = 1", "money", "currency")
SHOP = importing(ORDER, "shop", "money")
SHOP.message_type[0].nested_type.add(name="Line").field.add(name="item", number=2, type=9, label=1)
SHOP.message_type[0].field[1].type_name = ".shop.Order.Line"
OTHER = file("message Other\nint32 a = 1", package="other")


def descriptors(*files):
    return FileDescriptorSet(file=files).SerializeToString()


ALL = descriptors(CURRENCY, MONEY, OTHER, SHOP)


def test_values_are_read_as_by_a_topics_schema():
    made = protobuf_schema(ALL, "shop.Order")
    assert made.type is SchemaType.PROTOBUF_NATIVE
    column = formats.column_type(made)
    line, price = pa.struct([("item", pa.string())]), pa.struct([("cents", pa.int64())])
    assert [(field.name, field.type) for field in column] == [
        ("id", pa.int64()),
        ("lines", pa.list_(pa.field("element", line))),
        ("price", price),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
    order = message_class([CURRENCY, MONEY, SHOP], "shop.Order")(
        id=7, lines=[{"item": "tea"}], price={"cents": 5}, counts={"a": 1}
    )
    values = pa.array([order.SerializeToString()], pa.binary())
    (row,) = formats.decoder(made, made, column).decode(values, pa.nulls(1, pa.binary())).column.to_pylist()
    assert row == {"id": 7, "lines": [{"item": "tea"}], "price": {"cents": 5}, "counts": [("a", 1)]}


def test_a_message_may_be_in_another():
    made = protobuf_schema(ALL, "shop.Order.Line")
    assert formats.column_type(made) == pa.struct([("item", pa.string())])


def test_only_what_the_message_needs_is_kept():
    made = protobuf_schema(ALL, "shop.Order")
    entry = "shop.Order.counts_entry"
    assert parse(made).messages.keys() == {"shop.Order", "shop.Order.Line", entry, "money.Money"}
    assert parse(protobuf_schema(ALL, "other.Other")).messages.keys() == {"other.Other"}
    given = FileDescriptorSet.FromString(ALL)
    given.file[3].source_code_info.location.add(leading_comments="a comment")
    assert protobuf_schema(given.SerializeToString(), "shop.Order") == made


@pytest.mark.parametrize("data", [b"\xff", b'syntax = "proto3";', b"PK\x03\x04", b'{"type": "string"}'])
def test_what_is_no_descriptor_set(data):
    with pytest.raises(OptionError, match=r"is not a descriptor set.*Make the file with protoc"):
        protobuf_schema(data, "p.M0")


@pytest.mark.parametrize("data", [b"", descriptors(file("enum E\nA = 0"))])
def test_a_set_without_messages(data):
    with pytest.raises(OptionError, match=r"'p\.M0', which .* does not define.*Make the file with protoc"):
        protobuf_schema(data, "p.M0")


@pytest.mark.parametrize("name", ["Order", ".shop.Order", "currency.Currency", "shop.Order.counts_entry"])
def test_messages_that_are_not_there(name):
    with pytest.raises(OptionError, match="does not define") as caught:
        protobuf_schema(ALL, name)
    assert caught.value.advice == "Its messages are money.Money, other.Other, shop.Order, shop.Order.Line"


def test_few_of_many_messages_are_shown():
    many = file("\n".join(f"message A{number:02}" for number in range(50)))
    with pytest.raises(OptionError, match=r"p\.A00, p\.A01, .*p\.A19 and 30 more"):
        protobuf_schema(descriptors(many), "p.B")


def test_a_message_of_several_files_is_none_of_them():
    """As two versions in one file, which ``cat`` makes."""
    newer = file("message Other\nint64 b = 2", package="other")
    newer.name = "newer.proto"
    with pytest.raises(OptionError, match=r"defines other\.Other 2 times, in other\.proto, newer\.proto"):
        protobuf_schema(descriptors(OTHER, newer), "other.Other")
    assert protobuf_schema(descriptors(OTHER, newer, SHOP, MONEY, CURRENCY), "shop.Order")


def test_imports_that_are_not_there():
    for given, words in {
        descriptors(SHOP): r"lacks money\.proto, which shop\.proto imports",
        descriptors(SHOP, MONEY): r"lacks currency\.proto, which money\.proto imports",
    }.items():
        with pytest.raises(OptionError, match=f"{words}.*--include_imports"):
            protobuf_schema(given, "shop.Order")


def test_imports_in_a_circle_end():
    """protoc refuses them, and others may write such a file."""
    given = descriptors(importing("message A", "a", "b"), importing("message B", "b", "a"))
    assert parse(protobuf_schema(given, "a.A")).messages.keys() == {"a.A", "b.B"}


def test_limits_of_schemas_hold():
    with pytest.raises(SchemaError, match=r"malformed Protobuf schema: .* 1000 characters"):
        protobuf_schema(descriptors(file(f"message {'M' * 1000}")), "p.M0")
    wide = file("message M0\n" + "\n".join(f"int32 a{number} = {number}" for number in range(1, 10_002)))
    with pytest.raises(UnsupportedError, match="more than 10000 fields"):
        formats.column_type(protobuf_schema(descriptors(wide), "p.M0"))
