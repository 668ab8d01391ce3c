"""How many items a value has before it is decoded: what makes work, in each kind of schema."""

import json
import struct

import pyarrow as pa
import pytest

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.json.scan import has_more_tokens
from tests.loops import for_each
from tests.values.protobuf_files import file, message_class, schema
from tests.values.test_value_size import KINDS
from tests.work import calls


def decoder_of(of, target=None):
    return formats.decoder(of, of, target or formats.column_type(of))


def items_of(decoder, value, key=None):
    """The number of items by which a value is just accepted."""
    low, high = -1, 4 * len(value) + 10
    while high - low > 1:
        middle = (low + high) // 2
        # Half an item more, as a number of items for each byte is none that can be trusted to the last bit.
        if decoder.has_more_items(value, key, (middle + 0.4) / len(value)):
            low = middle
        else:
            high = middle
    return high


@pytest.mark.parametrize("kind", KINDS)
def test_each_item_counts(kind):
    of, make = KINDS[kind]
    decoder = decoder_of(of)
    none, few, many = (items_of(decoder, make(*sizes)) for sizes in ((0, 0, 0), (2, 3, 4), (300, 20, 20)))
    assert none < 40
    assert few - none >= 2 + 3 * 3 / 2 + 3 * 4
    assert many - none >= 300 + 3 * 20 / 2 + 3 * 20


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_asked_for_counts_too(kind):
    """It takes time to find its end."""
    of, make = KINDS[kind]
    decoder = decoder_of(of, pa.struct([formats.column_type(of).field("id")]))
    assert items_of(decoder, make(300, 20, 20)) > 300


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_is_looked_at_no_longer_than_it_may_be(kind):
    of, make = KINDS[kind]
    value, decoder = make(100_000, 0, 0), decoder_of(of)
    assert decoder.has_more_items(value, None, 10 / len(value))
    assert calls(lambda: decoder.has_more_items(value, None, 10 / len(value))) < 10_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [0, 1, 20])
def test_what_is_malformed_has_no_more_items_than_it_has(kind, cut):
    of, make = KINDS[kind]
    assert not decoder_of(of).has_more_items(make(2, 3, 4)[:cut], None, 1000.0)
    assert not decoder_of(of).has_more_items(b"\xff" * 30, None, 1000.0)
    assert not decoder_of(of).has_more_items(None, None, 0.0)


# ---- AVRO


def array_of(kind):
    tree = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": kind}}],
    }
    return decoder_of(Schema(SchemaType.AVRO, json.dumps(tree).encode()))


WIDE = {"type": "record", "name": "W", "fields": [{"name": f"f{i}", "type": "string"} for i in range(20)]}


@pytest.mark.parametrize(
    ("kind", "item", "items"),
    [
        ("double", bytes(8), 0),
        ("int", b"\2", 0.5),
        ("string", b"\0", 1),
        ("boolean", b"\1", 1),
        ({"type": "array", "items": "string"}, b"\0", 1),
        ({"type": "array", "items": "string"}, b"\2\0\0", 1 + 4 + 1),
        (WIDE, bytes(20), 21),
        (["null", "string"], b"\0", 2),
    ],
    ids=range(8),
)
def test_an_item_counts_by_the_time_that_it_takes(kind, item, items):
    decoder = array_of(kind)
    value = b"\xd0\x0f" + item * 1000 + b"\0"  # 1000 items
    assert items_of(decoder, value) == pytest.approx(1000 * items + 4, abs=1)


def test_blocks_count_as_items():
    """Each takes longer than an item."""
    assert items_of(array_of("int"), b"\2\2" * 1000 + b"\0") == pytest.approx(4500, abs=5)


# ---- JSON


@for_each(
    ("payload", "tokens"),
    [
        (b"", 0),
        (b"[]", 1),
        (b'{"a":1,"b":[2,3]}', 6),
        (b'{"a":",,,::[[{{"}', 2),
        (b'["\\"",",",1]', 3),
        (b'["\\\\",1,1]', 3),
        (b'["\\\\\\",[[[[",1]', 2),
        (b'["\\\\\\\\",1,"\\\\"]', 3),
        (b'["' + b"," * 200_000 + b'",1]', 2),
        (b'["' + b"\\," * 100_000 + b'",1]', 2),
        (b"[" * 100_000, 100_000),
        (b'["a,",' * 50_000, 100_000),
        (b'"' + b"," * 70_000, 0),  # without an end
        (b',"' * 40_001, 20_001),
    ],
)
def test_tokens_outside_of_strings_count(payload, tokens):
    assert not has_more_tokens(payload, tokens)
    assert tokens == 0 or has_more_tokens(payload, tokens - 1)


def test_in_a_union_they_count_for_each_member():
    def decoder(kind):
        return decoder_of(Schema(SchemaType.JSON, json.dumps({"type": "array", "items": kind}).encode()))

    value = b"[" + b"5," * 999 + b"5]"
    assert items_of(decoder("long"), value) == 1000
    assert items_of(decoder(["null", "string", "long", "boolean"]), value) == 3000


# ---- PROTOBUF_NATIVE


def test_packed_numbers_count_half():
    made = file("message A\nrepeated int32 n = 1\nrepeated fixed64 f = 2\nrepeated string s = 3\n")
    of, value = schema(made, "p.A"), message_class(made, "p.A")
    decoder = decoder_of(of)
    assert items_of(decoder, value(n=[1] * 1000).SerializeToString()) == pytest.approx(501, abs=1)
    assert items_of(decoder, value(f=[1] * 1000).SerializeToString()) == pytest.approx(501, abs=1)
    assert items_of(decoder, value(s=[""] * 1000).SerializeToString()) == 1000
    assert items_of(decoder, b"\x78\1" * 1000) == 1000, "not in the schema"


# ---- KEY_VALUE


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_both_parts_count(encoding):
    part = json.dumps({"type": "array", "items": "string"}).encode()
    properties = {"key.schema.type": "AVRO", "value.schema.type": "JSON", "kv.encoding.type": encoding}
    of = Schema(SchemaType.KEY_VALUE, 2 * (struct.pack(">i", len(part)) + part), properties)
    decoder = decoder_of(of)
    avro, texts = b"\xd0\x0f" + b"\0" * 1000 + b"\0", b"[" + b'"",' * 999 + b'""]'

    def inline(key, value):
        return b"".join(struct.pack(">i", len(each)) + each for each in (key, value))

    def has_more(key, value, per_byte):
        if encoding == "INLINE":
            return decoder.has_more_items(inline(key, value), None, per_byte)
        return decoder.has_more_items(value, key, per_byte)

    assert not has_more(avro, texts, 1.1)
    assert has_more(avro, b"[]", 0.9)
    assert has_more(b"\0", texts, 0.3)
    assert not has_more(b"\0", b"[]", 5.0)
    # Without a key it is tried whether a separated value is an inline one.
    assert decoder.has_more_items(inline(avro, b"[]"), None, 0.9)
    assert not decoder.has_more_items(b"\0\0", None, 0.0)


@pytest.mark.parametrize("kind", [SchemaType.STRING, SchemaType.INT32, SchemaType.NONE])
def test_values_without_items_have_none(kind):
    assert not decoder_of(Schema(kind)).has_more_items(bytes(1000), None, 0.0)
