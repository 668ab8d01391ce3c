"""Descriptor sets of users become schemas; what is wrong with one is said.

integration/schemas/test_source.py has one that protoc writes.
"""

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.schema import SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.protobuf.definition import parse
from pulsar_spark.values.protobuf.descriptor_file import protobuf_schema
from tests.values.protobuf_files import file, message_class

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
