"""KEY_VALUE: bytes as a broker has stored them from the Java client, hostile definitions, mixed encodings."""

import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.key_value import KeyValueParts, parts_of, schema_of
from tests.loops import for_each

INLINE = {"kv.encoding.type": "INLINE"}
SEPARATED = {"kv.encoding.type": "SEPARATED"}
NO_DEFINITIONS = bytes(8)


def key_value(key, value, encoding=INLINE):
    return Schema(
        SchemaType.KEY_VALUE, NO_DEFINITIONS, {"key.schema.type": key, "value.schema.type": value, **encoding}
    )


TEXT_INT = key_value("STRING", "INT32")
LONG_TEXT = key_value("INT64", "STRING", SEPARATED)


def made(schema, fields=("key", "value"), writer=None):
    column = formats.column_type(schema)
    return formats.decoder(writer or schema, schema, pa.struct([column.field(name) for name in fields]))


def decode(schema, values, keys=None, **options):
    decoder = made(schema, **options)
    keys = [None] * len(values) if keys is None else keys
    array = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
    found = decoder.decode(array, pa.array(keys, pa.binary()))
    found.column.validate(full=True)
    assert found.column.type == decoder.type
    return found


def rows_of(found):
    """The rows, and which are bad."""
    is_bad = [False] * len(found.column) if found.is_bad is None else found.is_bad.tolist()
    assert found.is_bad is None or any(is_bad)
    return found.column.to_pylist(), is_bad


def laid_out(key, value):
    parts = (struct.pack(">i", -1 if part is None else len(part)) + (part or b"") for part in (key, value))
    return b"".join(parts)


# ---------------------------------------------------------------------------------------- definitions


def test_parts_of_a_definition_with_their_properties():
    avro, offset = b'{"type":"long"}', {"__AVRO_READ_OFFSET__": "5"}
    schema = Schema(
        SchemaType.KEY_VALUE,
        laid_out(b"", avro),
        {
            **SEPARATED,
            "key.schema.name": "k",
            "key.schema.type": "BOOLEAN",
            "key.schema.properties": "{}",
            "value.schema.name": "v",
            "value.schema.type": "AVRO",
            "value.schema.properties": json.dumps(offset),
        },
    )
    assert parts_of(schema) == KeyValueParts(
        Schema(SchemaType.BOOL, name="k"), Schema(SchemaType.AVRO, avro, offset, "v"), True
    )


def test_what_is_absent_is_as_for_java():
    assert parts_of(Schema(SchemaType.KEY_VALUE, NO_DEFINITIONS)) == KeyValueParts(
        Schema(SchemaType.NONE), Schema(SchemaType.NONE), False
    )


def test_a_definition_of_the_cpp_client_has_minus_one_for_what_is_empty():
    assert parts_of(Schema(SchemaType.KEY_VALUE, b"\xff" * 8)) == parts_of(
        Schema(SchemaType.KEY_VALUE, NO_DEFINITIONS)
    )


KINDS = [kind for kind in SchemaType if kind is not SchemaType.KEY_VALUE]
PARTS = st.builds(
    Schema,
    st.sampled_from(KINDS),
    st.binary(max_size=9),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    st.text(max_size=5),
)


@given(st.builds(KeyValueParts, PARTS, PARTS, st.booleans()))
def test_a_schema_that_is_put_together_has_the_same_parts(parts):
    schema = schema_of(parts)
    assert schema.type is SchemaType.KEY_VALUE
    assert parts_of(schema) == parts


def test_a_schema_is_put_together_as_by_java():
    avro = Schema(SchemaType.AVRO, b"{}", {"b": "2", "a": "1"}, "v")
    assert schema_of(KeyValueParts(Schema(SchemaType.BOOL), avro, True)) == Schema(
        SchemaType.KEY_VALUE,
        bytes.fromhex("00000000 00000002 7b7d"),
        {
            "key.schema.name": "",
            "key.schema.type": "BOOLEAN",
            "key.schema.properties": "{}",
            "value.schema.name": "v",
            "value.schema.type": "AVRO",
            "value.schema.properties": '{"a":"1","b":"2"}',
            "kv.encoding.type": "SEPARATED",
        },
        "KeyValue",
    )


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"", {}),
        (b"\0\0\0", {}),
        (bytes(7), {}),
        (bytes(9), {}),
        (b"\0\0\0\x04" + bytes(7), {}),
        (b"\x7f\xff\xff\xff" + bytes(8), {}),
        (b"\xff\xff\xff\xfe" + bytes(8), {}),
        (b"\x80\0\0\0" + bytes(8), {}),
        (bytes(4) + b"\x7f\xff\xff\xff", {}),
        (NO_DEFINITIONS, {"kv.encoding.type": "inline"}),
        (NO_DEFINITIONS, {"key.schema.properties": "no JSON"}),
        (NO_DEFINITIONS, {"key.schema.properties": "[1]"}),
        (NO_DEFINITIONS, {"value.schema.properties": "[" * 100_000}),
    ],
)
def test_malformed_definitions_are_refused(data, properties):
    with pytest.raises(SchemaError, match="malformed KEY_VALUE schema"):
        formats.column_type(Schema(SchemaType.KEY_VALUE, data, properties))


@pytest.mark.parametrize("kind", ["KEY_VALUE", "AUTO_CONSUME", "PROTOBUF", "NEW_KIND", ""])
def test_kinds_that_are_no_part_are_refused(kind):
    for schema in (key_value(kind, "STRING"), key_value("STRING", kind)):
        with pytest.raises(UnsupportedError, match=rf"(key|value).*{kind}.*valueFormat=raw"):
            formats.column_type(schema)


# ---------------------------------------------------------------------------------------- reading


def test_the_column_has_both_parts():
    assert formats.column_type(TEXT_INT) == pa.struct([("key", pa.string()), ("value", pa.int32())])


def test_inline_payloads_of_java():
    values = ["000000036b65790000000400000001", "ffffffff0000000400000002", "000000016bffffffff"]
    found = decode(TEXT_INT, [*map(bytes.fromhex, values), None])
    assert rows_of(found) == (
        [{"key": "key", "value": 1}, {"key": None, "value": 2}, {"key": "k", "value": None}, None],
        [False] * 4,
    )


def test_separated_payloads_of_java():
    keys = [bytes.fromhex("0000000000000005"), bytes.fromhex("0000000000000006"), None, None]
    assert rows_of(decode(LONG_TEXT, [b"val", None, b"nokey", None], keys)) == (
        [{"key": 5, "value": "val"}, {"key": 6, "value": None}, {"key": None, "value": "nokey"}, None],
        [False] * 4,
    )


def test_the_encoding_is_the_writers():
    inline = key_value("INT64", "STRING")
    found = decode(LONG_TEXT, [laid_out(bytes(8), b"v")], [b"own key"], writer=inline)
    assert rows_of(found) == ([{"key": 0, "value": "v"}], [False])
    found = decode(inline, [b"v"], [bytes(8)], writer=LONG_TEXT)
    assert rows_of(found) == ([{"key": 0, "value": "v"}], [False])


def test_parts_of_other_kinds_do_not_resolve():
    for writer in (key_value("INT32", "STRING", SEPARATED), key_value("INT64", "BYTES", SEPARATED)):
        with pytest.raises(SchemaError, match=r"the (key|value) of a KEY_VALUE schema: .*cannot be read"):
            made(LONG_TEXT, writer=writer)


GOOD = laid_out(b"k", struct.pack(">i", 7))
BAD_LAYOUTS = [
    b"",
    b"\0\0\0",
    bytes(7),
    bytes(9),
    b"\0\0\0\x05" + GOOD[4:],
    b"\x7f\xff\xff\xff" + GOOD[4:],
    b"\xff\xff\xff\xfe" + GOOD[4:],
    b"\x80\0\0\0" + GOOD[4:],
    GOOD[:-1],
    GOOD + b"x",
    laid_out(b"k", None) + b"x",
    laid_out(b"k", None)[:-4] + b"\x7f\xff\xff\xff",
    laid_out(b"k", None)[:-4] + b"\xff\xff\xff\xfe",
]


@for_each("bad", BAD_LAYOUTS)
@for_each("fields", [("key", "value"), ("value",), ("key",), ()])
def test_a_bad_layout_is_told_and_its_neighbours_are_whole(bad, fields):
    found, is_bad = rows_of(decode(TEXT_INT, [GOOD, bad, None, GOOD, bad], fields=fields))
    whole = {name: {"key": "k", "value": 7}[name] for name in fields}
    assert found == [whole, None, None, whole, None]
    assert is_bad == [False, True, False, False, True]
    alone, is_bad_alone = rows_of(decode(TEXT_INT, [bad], fields=fields))
    assert (alone, is_bad_alone) == ([None], [True])
    why = made(TEXT_INT, fields).explain(bad, None)
    assert "length" in why or "bytes remain" in why


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [(b"\xff", bytes(4), "key: not UTF-8"), (b"k", bytes(5), "value: 5 bytes"), (b"\xff", bytes(5), "key: ")],
)
def test_a_bad_part_is_told_and_its_neighbours_are_whole(key, value, why):
    whole = {"key": "k", "value": 7}
    bad = laid_out(key, value)
    assert rows_of(decode(TEXT_INT, [GOOD, bad, GOOD])) == ([whole, None, whole], [False, True, False])
    assert made(TEXT_INT).explain(bad, None).startswith(why)
    separated = key_value("STRING", "INT32", SEPARATED)
    found = decode(separated, [GOOD[-4:], value, GOOD[-4:]], [b"k", key, b"k"])
    assert rows_of(found) == ([whole, None, whole], [False, True, False])
    assert made(separated).explain(value, key).startswith(why)


def test_parts_that_are_not_asked_for_are_not_looked_into():
    bad_key, bad_value = laid_out(b"\xff", GOOD[-4:]), laid_out(b"k", b"")
    assert rows_of(decode(TEXT_INT, [bad_key, bad_value], fields=["value"])) == (
        [{"value": 7}, None],
        [False, True],
    )
    assert rows_of(decode(TEXT_INT, [bad_key, bad_value], fields=["key"])) == (
        [None, {"key": "k"}],
        [True, False],
    )
    assert rows_of(decode(TEXT_INT, [GOOD], fields=["value", "key"])) == ([{"value": 7, "key": "k"}], [False])


def test_parts_are_promoted():
    wide = pa.struct([("value", pa.int64())])
    found = formats.decoder(TEXT_INT, TEXT_INT, wide).decode(pa.array([GOOD]), pa.nulls(1, pa.binary()))
    assert found.column.type == wide
    assert found.column.to_pylist() == [{"value": 7}]


@pytest.mark.parametrize(
    "target",
    [
        pa.int32(),
        pa.struct([("other", pa.int32())]),
        pa.struct([("key", pa.string()), ("key", pa.string())]),
        pa.struct([("value", pa.int16())]),
    ],
)
def test_other_targets_are_refused(target):
    with pytest.raises(SchemaError, match="KEY_VALUE"):
        formats.decoder(TEXT_INT, TEXT_INT, target)


# ---------------------------------------------------------------------------------------- mixed encodings


@pytest.mark.parametrize(
    ("schema", "key", "value"),
    [
        (LONG_TEXT, bytes(8), b"val"),
        (LONG_TEXT, None, b"val"),
        (LONG_TEXT, bytes(8), None),
        (key_value("STRING", "STRING", SEPARATED), b"", b""),
        (key_value("STRING", "INT64", SEPARATED), b"k", bytes(8)),
    ],
)
def test_an_inline_payload_without_a_key_is_bad_where_parts_are_separated(schema, key, value):
    mixed_up = laid_out(key, value)
    assert rows_of(decode(schema, [mixed_up, None])) == ([None, None], [True, False])
    assert decode(schema, [mixed_up, None], fields=["key"]).is_bad.tolist() == [True, False]
    if schema is LONG_TEXT:
        assert "kv.encoding.type=INLINE" in made(schema).explain(mixed_up, None)


def test_numbers_that_look_like_lengths_are_no_inline_payloads():
    longs = key_value("STRING", "INT64", SEPARATED)
    assert rows_of(decode(longs, [bytes(8), b"\xff" * 8])) == (
        [{"key": None, "value": 0}, {"key": None, "value": -1}],
        [False, False],
    )


@pytest.mark.parametrize("value", [b"\xff" * 8, bytes(8), b"\0" * 7 + b"\x01"])
def test_a_separated_payload_is_bad_where_parts_are_inline(value):
    longs = key_value("STRING", "INT64")
    assert rows_of(decode(longs, [value], [b"key"])) == ([None], [True])
    assert "key" in made(longs).explain(value, b"key") or "value" in made(longs).explain(value, b"key")


def test_an_inline_payload_of_two_nulls():
    assert rows_of(decode(TEXT_INT, [b"\xff" * 8])) == ([{"key": None, "value": None}], [False])
    assert rows_of(decode(TEXT_INT, [b"\xff" * 8], [b""])) == ([None], [True])
    assert "SEPARATED" in made(TEXT_INT).explain(b"\xff" * 8, b"")


# ---------------------------------------------------------------------------------------- writing


ROWS = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {"key": st.none() | st.integers(-(2**63), 2**63 - 1), "value": st.none() | st.text(max_size=5)}
    ),
    max_size=6,
)


@settings(max_examples=40)
@given(ROWS, st.integers(0, 2), st.permutations(["key", "value"]), st.booleans())
def test_what_is_written_is_read(rows, first, order, is_separated):
    schema = key_value("INT64", "STRING", SEPARATED if is_separated else INLINE)
    types = {"key": pa.int64(), "value": pa.string()}
    column = pa.array(rows, pa.struct([(name, types[name]) for name in order]))[first:]
    encoded = formats.encoder(schema, column.type)(column)
    encoded.values.validate(full=True)
    assert (encoded.keys is not None) == is_separated
    for row, value in zip(rows[first:], encoded.values.to_pylist(), strict=True):
        assert is_separated or (value is None) == (row is None)
    keys = encoded.keys if is_separated else pa.nulls(len(column), pa.binary())
    found, is_bad = rows_of(made(schema).decode(encoded.values, keys))
    expected = rows[first:]
    if is_separated:  # a tombstone has neither part
        nothing = {"key": None, "value": None}
        expected = [None if row == nothing else row for row in expected]
    assert found == expected
    assert not any(is_bad)


def test_rows_are_written_as_java_writes_them():
    column = pa.array([("key", 1), (None, 2), ("k", None), None], formats.column_type(TEXT_INT))
    seen = ["000000036b65790000000400000001", "ffffffff0000000400000002", "000000016bffffffff"]
    found = formats.encoder(TEXT_INT, column.type)(column)
    assert found.values.to_pylist() == [*map(bytes.fromhex, seen), None]
    assert found.keys is None


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (pa.string(), "key and value"),
        (pa.struct([("key", pa.string())]), "have no value"),
        (pa.struct([("key", pa.string()), ("value", pa.int32()), ("more", pa.int32())]), "key and value"),
        (
            pa.struct([("key", pa.string()), ("value", pa.int64())]),
            "the value of a KEY_VALUE schema: .*bigint",
        ),
    ],
)
def test_rows_of_other_types_are_refused(source, why):
    with pytest.raises(SchemaError, match=why):
        formats.encoder(TEXT_INT, source)


def test_a_row_that_is_no_value_is_named_with_its_part():
    times = key_value("LOCAL_TIME", "STRING")
    column = pa.array([(1, ""), (-1, "")], formats.column_type(times))
    with pytest.raises(SchemaError, match="the key of a KEY_VALUE schema: row 1"):
        formats.encoder(times, column.type)(column)


# ---------------------------------------------------------------------------------------- any bytes


def read_alone(value):
    """What one INLINE payload of text and int is; None where it is bad."""
    at, parts = 0, []
    for _ in range(2):
        if len(value) < at + 4:
            return None
        (size,) = struct.unpack_from(">i", value, at)
        at += 4
        if size < -1 or at + size > len(value):
            return None
        parts.append(None if size == -1 else value[at : at + size])
        at += max(size, 0)
    if at < len(value) or (parts[1] is not None and len(parts[1]) != 4):
        return None
    try:
        key = None if parts[0] is None else parts[0].decode()
    except UnicodeDecodeError:
        return None
    return {"key": key, "value": None if parts[1] is None else int.from_bytes(parts[1], "big", signed=True)}


SIZES = st.integers(-2, 6) | st.sampled_from([2**31 - 1, -(2**31), 256])


@st.composite
def payloads(draw):
    key, value = draw(st.binary(max_size=5)), draw(st.binary(min_size=3, max_size=5))
    sizes = draw(SIZES | st.just(len(key))), draw(SIZES | st.just(len(value)))
    return struct.pack(">i", sizes[0]) + key + struct.pack(">i", sizes[1]) + value


@given(st.lists(st.none() | st.binary(max_size=20) | payloads(), max_size=8), st.integers(0, 3))
def test_any_bytes_are_a_row_or_bad(values, first):
    array = pa.array(values, pa.binary())[first:]
    expected = [None if value is None else read_alone(value) for value in values[first:]]
    found, is_bad = rows_of(decode(TEXT_INT, array))
    assert found == expected
    assert is_bad == [
        row is None and value is not None for row, value in zip(expected, values[first:], strict=True)
    ]


def test_mutated_payloads():
    random = np.random.default_rng(12)
    values, reached = [], {"good": 0, "bad": 0}
    for _ in range(20_000):
        mutated = bytearray(laid_out(b"key"[: random.integers(4)], b"\0\0\0\x07"))
        for _ in range(random.integers(3)):
            mutated[random.integers(len(mutated))] = random.choice([0, 1, 3, 4, 5, 127, 128, 255])
        values.append(bytes(mutated[: len(mutated) - random.integers(2)] + b"x" * random.integers(2)))
    found, is_bad = rows_of(decode(TEXT_INT, values))
    for value, row, bad in zip(values, found, is_bad, strict=True):
        assert row == read_alone(value)
        assert bad == (row is None)
        reached["bad" if bad else "good"] += 1
    assert min(reached.values()) > 4000


# ---------------------------------------------------------------------------------------- parts of columns


def record(*fields):
    nullable = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields]
    text = json.dumps({"type": "record", "name": "R", "fields": nullable})
    return Schema(SchemaType.JSON, text.encode())


def test_what_change_capture_writes_is_read_whole_and_by_versions():
    key, after = (
        record(("id", "long")),
        {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]},
    )
    older = schema_of(KeyValueParts(key, record(("op", "string")), True))
    newer = schema_of(KeyValueParts(key, record(("op", "string"), ("after", after)), True))
    values = [b'{"op": "c", "after": {"x": 1}}', None, b"{broken", b'{"op": "d"}']
    keys = [b'{"id": 1}', b'{"id": 2}', b'{"id": 3}', None]
    created = {"key": {"id": 1}, "value": {"op": "c", "after": {"x": 1}}}
    tombstone = {"key": {"id": 2}, "value": None}
    keyless = {"key": None, "value": {"op": "d", "after": None}}
    assert rows_of(decode(newer, values, keys)) == (
        [created, tombstone, None, keyless],
        [False, False, True, False],
    )
    assert made(newer).explain(values[2], keys[2]).startswith("value: ")
    assert rows_of(decode(newer, values[3:], [b'{"id": 4}'], writer=older)) == (
        [{**keyless, "key": {"id": 4}}],
        [False],
    )
    nested = pa.struct([("value", pa.struct([("after", pa.struct([("x", pa.int64())]))]))])
    found = formats.decoder(newer, newer, nested).decode(pa.array(values[:1]), pa.array(keys[:1]))
    assert found.column.type == nested
    assert found.column.to_pylist() == [{"value": {"after": {"x": 1}}}]
