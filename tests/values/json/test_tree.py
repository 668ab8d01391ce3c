import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.values.json.json_read import decoder
from pulsar_spark.values.json.tree import filled_type, make_tree, select
from pulsar_spark.values.json_types import column_type
from tests.values.json_payloads import json_schema, read_objects
from tests.values.random_avro import OTHER_TIMES

INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])
WHOLE = pa.struct(
    [
        ("a", pa.int32()),
        ("l", pa.list_(pa.field("element", INNER))),
        ("m", pa.map_(pa.string(), pa.field("value", INNER))),
    ]
)
X, Y = pa.struct([INNER[0]]), pa.struct([INNER[1]])
ROWS = [
    {"a": 1, "l": [{"x": 1, "y": "a"}, None], "m": [("k", {"x": 2, "y": "b"}), ("l", None)]},
    None,
    {"a": None, "l": None, "m": None},
    {"a": 2, "l": [], "m": []},
]


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        (WHOLE, ROWS),
        (pa.struct([("a", pa.int32())]), [{"a": 1}, None, {"a": None}, {"a": 2}]),
        (pa.struct([]), [{}, None, {}, {}]),
        (
            pa.struct([("m", pa.map_(pa.string(), Y)), ("l", pa.list_(X))]),
            [
                {"m": [("k", {"y": "b"}), ("l", None)], "l": [{"x": 1}, None]},
                None,
                {"m": None, "l": None},
                {"m": [], "l": []},
            ],
        ),
    ],
)
def test_the_fields_of_a_part_are_selected_at_any_depth(part, rows):
    assert filled_type(WHOLE, part) == WHOLE
    found = select(pa.array(ROWS, WHOLE), part)
    found.validate(full=True)
    assert found.type == part
    assert found.to_pylist() == rows


def test_the_fields_that_a_part_has_keep_its_types():
    part = pa.struct([("l", pa.list_(pa.struct([("y", pa.binary())]))), ("a", pa.float64())])
    filled = filled_type(WHOLE, part)
    assert filled.names == ["a", "l", "m"]
    assert filled.field("a").type == pa.float64()
    assert filled.field("l").type.value_type == pa.struct([("x", pa.int64()), ("y", pa.binary())])
    assert filled.field("m").type == WHOLE.field("m").type


MILLIS, MICROS, NANOS = (
    {"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros", "nanos")
)


def record(*fields):
    return {"type": "record", "name": "R", "fields": [dict(field) for field in fields]}


def read(writer, reader, payload, target=None):
    schema = json_schema(reader)
    node = make_tree(json_schema(writer), schema, target or column_type(schema))
    (value,) = read_objects(node, [payload]).column.to_pylist()
    return value


def test_whole_timestamps_have_the_unit_of_the_writer():
    first, second = record({"name": "a", "type": MILLIS}), record({"name": "a", "type": ["null", MICROS]})
    assert read(first, second, b'{"a":1000000}')["a"].timestamp() == 1000
    assert read(second, first, b'{"a":1000000}')["a"].timestamp() == 1
    assert read(record({"name": "a", "type": "long"}), second, b'{"a":1000000}')["a"].timestamp() == 1
    assert read(record(), second, b'{"a":1000000}')["a"].timestamp() == 1


def test_whole_nanoseconds_are_cut_to_microseconds():
    writer = json_schema(record({"name": "a", "type": NANOS}))
    values = [1_700_000_000_123_456_789, -1, -1000, 999]
    rows = pa.array([b'{"a":%d}' % value for value in values] + [b'{"a":1.5}'])
    for reader in (writer, json_schema(record({"name": "a", "type": MICROS}))):
        found = decoder(writer, reader, column_type(reader)).decode(rows, pa.nulls(5, pa.binary()))
        micros = found.column.field("a").cast(pa.int64()).to_pylist()
        assert micros == [value // 1000 for value in values] + [1_500_000]


def test_timestamps_in_arrays_maps_and_records_have_the_unit_of_the_writer():
    def within(unit):
        inner = {"type": "record", "name": "I", "fields": [{"name": "t", "type": unit}]}
        return record(
            {"name": "l", "type": {"type": "array", "items": unit}},
            {"name": "m", "type": {"type": "map", "values": unit}},
            {"name": "r", "type": inner},
        )

    value = read(within(MILLIS), within(MICROS), b'{"l":[1000],"m":{"k":1000},"r":{"t":1000}}')
    assert [value["l"][0], value["m"][0][1], value["r"]["t"]] == [value["l"][0]] * 3
    assert value["l"][0].timestamp() == 1


@pytest.mark.parametrize("micros", [0, 1, -1, 1_000_000, -1_000_000, -250_000, -2_250_000, 2**62, -(2**62)])
def test_a_default_of_a_timestamp_has_the_unit_of_the_reader(micros):
    inner = {"type": "record", "name": "I", "fields": [{"name": "t", "type": MICROS, "default": micros}]}
    reader = record({"name": "t", "type": MICROS, "default": micros}, {"name": "r", "type": inner})
    older = inner | {"fields": [{"name": "t", "type": MILLIS}]}
    writer = record({"name": "t", "type": MILLIS}, {"name": "r", "type": older})
    for each in (writer, reader, record()):
        schema = json_schema(reader)
        node = make_tree(json_schema(each), schema, column_type(schema))
        column = read_objects(node, [b'{"r":{}}']).column
        assert column.field("t").cast(pa.int64()).to_pylist() == [micros]
        assert column.field("r").field("t").cast(pa.int64()).to_pylist() == [micros]


def test_a_default_of_milliseconds_stands_for_them_whatever_the_writer_has():
    reader = record({"name": "t", "type": MILLIS, "default": -1500})
    for writer in (reader, record(), record({"name": "t", "type": MICROS})):
        assert read(writer, reader, b"{}")["t"].timestamp() == -1.5
    wrong = json_schema(record({"name": "t", "type": MILLIS, "default": 2**62}))
    assert "default of field 't'" in decoder(wrong, wrong, column_type(wrong)).explain(b"{}", None)


def test_strings_that_were_bytes_and_bytes_that_were_strings_are_what_their_writer_meant():
    payloads = {"string": b'{"a":"test"}', "bytes": b'{"a":"dGVzdA=="}'}
    for writer, payload in payloads.items():
        for reader, value in (("string", "test"), ("bytes", b"test")):
            for ours in (reader, ["null", reader]):
                old, new = (json_schema(record({"name": "a", "type": each})) for each in (writer, ours))
                found = decoder(old, new, column_type(new)).decode(pa.array([payload] * 99), None)
                assert found.is_bad is None
                assert found.column.to_pylist() == [{"a": value}] * 99
                inner = [{"type": kind, "items": each} for kind, each in (("array", writer), ("array", ours))]
                old, new = (record({"name": "l", "type": each}) for each in inner)
                assert read(old, new, b'{"l":[%b]}' % payload[5:-1]) == {"l": [value]}


def test_a_default_of_strings_that_were_bytes_is_as_in_the_schema():
    for writer, reader, default, value in (
        ("bytes", "string", "test", "test"),
        ("string", "bytes", "test", b"test"),
        ("string", ["bytes", "null"], "", b""),
        ("string", "bytes", "\xff", b"\xff"),
    ):
        new = record({"name": "a", "type": reader, "default": default})
        assert read(record({"name": "a", "type": writer}), new, b"{}") == {"a": value}


def test_members_of_a_union_in_another_order_are_read_by_their_own_kind():
    old = record({"name": "a", "type": ["bytes", "boolean", "string"]})
    new = record({"name": "a", "type": ["string", "boolean", "bytes"]})
    assert read(old, new, b'{"a":"test"}')["a"]["member0"] == "test"
    old, new = (record({"name": "a", "type": kinds}) for kinds in ([MILLIS, "string"], ["string", MICROS]))
    assert read(old, new, b'{"a":1000000}')["a"]["member1"].timestamp() == 1000


def test_a_time_is_not_taken_for_one_of_another_kind():
    for writer, reader, words in OTHER_TIMES:
        for wrap in (lambda kind: kind, lambda kind: ["null", kind]):
            old, new = (record({"name": "a", "type": wrap(kind)}) for kind in (writer, reader))
            with pytest.raises(SchemaError, match=f"field 'a': {words}"):
                read(old, new, b'{"a":1000}')


def test_a_field_may_have_been_renamed():
    writer = record({"name": "old", "type": "int"})
    reader = record({"name": "new", "type": "int", "aliases": ["older", "old"]})
    assert read(writer, reader, b'{"old":5}') == {"new": 5}
    assert read(reader, reader, b'{"old":5}') == {"new": None}


def test_a_name_of_the_writer_is_one_field_only_first_the_one_that_has_it_as_its_name():
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "aliases": ["a"]}]
    for each in (fields, fields[::-1]):
        assert read(record(fields[0]), record(*each), b'{"a":1}') == {"a": 1, "b": None}
        assert read(record(fields[0]), record(*each), b'{"a":1,"b":2}') == {"a": 1, "b": 2}
    twice = [{"name": name, "type": "int", "aliases": ["old"]} for name in "ab"]
    old = record({"name": "old", "type": "int"})
    assert read(old, record(*twice), b'{"old":1}') == {"a": 1, "b": None}
    schema = json_schema(record(*twice))
    (only,) = make_tree(json_schema(old), schema, pa.struct([("b", pa.int32())])).members
    assert only.key == "b"


def test_a_default_of_a_record_is_found_under_an_alias_too():
    inner = {"type": "record", "name": "I", "fields": [{"name": "new", "type": "int", "aliases": ["old"]}]}
    older = {"type": "record", "name": "I", "fields": [{"name": "old", "type": "int"}]}
    reader = record({"name": "a", "type": inner, "default": {"new": 3}})
    assert read(record({"name": "a", "type": older}), reader, b"{}") == {"a": {"new": 3}}


def chain(depth, wrap, default, aliases=()):
    """Records in each other, each of them in what ``wrap`` makes of it, and with a default."""
    avro, value = "int", 1
    for level in range(depth):
        field = {"name": "f", "type": avro, "default": value, "aliases": list(aliases)}
        avro, value = wrap({"type": "record", "name": f"N{level}", "fields": [field]}), default
    return record({"name": "f", "type": avro, "default": value})


def test_a_default_has_its_parts_once_however_many_aliases_their_fields_have():
    avro = chain(10, lambda inner: inner, {}, aliases=("a", "b", "c", "d"))
    schema = json_schema(avro)
    (member,) = make_tree(schema, schema, column_type(schema)).members
    assert member.default.column.nbytes < 100
    value = read(avro, avro, b"{}")
    for _ in range(11):
        value = value["f"]
    assert value == 1


@pytest.mark.parametrize(
    "avro",
    [
        chain(20, lambda inner: {"type": "array", "items": inner}, [{}, {}]),
        chain(20, lambda inner: {"type": "map", "values": inner}, {"a": {}, "b": {}}),
        record(*({"name": f"f{i}", "type": "string", "default": "x" * 20_000} for i in range(4))),
        record({"name": "f", "type": {"type": "map", "values": "int"}, "default": {"x" * 70_000: 1}}),
    ],
    ids=["arrays", "maps", "texts", "names"],
)
def test_defaults_that_are_too_large_are_refused(avro):
    schema = json_schema(avro)
    with pytest.raises(UnsupportedError, match="are too large"):
        decoder(schema, schema, column_type(schema))


def test_the_target_may_have_fewer_fields_in_another_order_and_wider_numbers():
    tree = record(
        {"name": "a", "type": "int"},
        {"name": "b", "type": "float"},
        {"name": "c", "type": "string"},
        {"name": "d", "type": "bytes"},
    )
    target = pa.struct([("d", pa.string()), ("c", pa.binary()), ("b", pa.float64()), ("a", pa.int64())])
    payload = b'{"a":3000000000,"b":1e39,"c":"x","d":"eQ=="}'
    assert read(tree, tree, payload, target) == {"a": 3 * 10**9, "b": 1e39, "c": b"x", "d": "y"}
    assert list(read(tree, tree, payload, target)) == ["d", "c", "b", "a"]


MEMBERS = [
    "string",
    {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}, {"name": "z", "type": "int"}]},
    {"type": "record", "name": "B", "fields": [{"name": "y", "type": "int"}]},
    {"type": "record", "name": "C", "fields": [{"name": each, "type": "int"} for each in "xzw"]},
]


@pytest.mark.parametrize(
    ("target", "payload", "value"),
    [
        ([("member1", pa.struct([("x", pa.int64())]))], b'{"x":3000000000}', {"member1": {"x": 3 * 10**9}}),
        ([("member2", pa.struct([("y", pa.int32())]))], b'{"x":1,"z":2}', {"member2": None}),
        ([("member2", pa.struct([("y", pa.int32())]))], b'{"y":1}', {"member2": {"y": 1}}),
        ([("member2", pa.struct([("y", pa.int32())]))], b"{}", {"member2": None}),
        (
            [("member2", pa.struct([("y", pa.int32())])), ("member0", pa.binary())],
            b'"a"',
            {"member2": None, "member0": b"a"},
        ),
        ([], b'"a"', {}),
        # Which member it is does not depend on what is asked for.
        ([("member1", pa.struct([]))], b'{"x":1,"z":2}', {"member1": {}}),
        ([("member1", pa.struct([]))], b'{"x":"no number"}', {"member1": None}),
        (
            [("member1", pa.struct([])), ("member3", pa.struct([]))],
            b'{"x":1,"w":2}',
            {"member1": None, "member3": {}},
        ),
        (
            [("member1", pa.struct([])), ("member3", pa.struct([]))],
            b'{"x":1,"z":2}',
            {"member1": {}, "member3": None},
        ),
        ([("member0", pa.string())], b"null", None),
    ],
)
def test_the_target_may_have_some_members_of_a_union_and_parts_of_them(target, payload, value):
    avro = record({"name": "u", "type": [*MEMBERS, "null"]})
    whole = b'{"u":' + payload + b"}"
    assert read(avro, avro, whole, pa.struct([("u", pa.struct(target))])) == {"u": value}


@pytest.mark.parametrize("first", [{"x": 5, "z": 6}, "text"])
def test_a_default_is_of_the_first_member_whether_it_is_in_the_target_or_not(first):
    members = MEMBERS[1:] if isinstance(first, dict) else MEMBERS
    avro = record({"name": "u", "type": members, "default": first})
    some = pa.struct([("u", pa.struct([("member1", column_type(json_schema(members[1])))]))])
    assert read(avro, avro, b"{}")["u"]["member0"] == first
    assert read(avro, avro, b"{}", some) == {"u": {"member1": None}}


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (pa.struct([("z", pa.int32())]), "no field 'z'"),
        (pa.struct([("a", pa.int32())]), "'a' of the topic's schema is bigint, which cannot be read as int"),
        (
            pa.struct([("l", pa.list_(pa.string()))]),
            r"'l\[\]' of the topic's schema is int, which cannot be read as string",
        ),
        (pa.struct([("l", pa.int32())]), "'l' of the topic's schema is array<int>"),
        (pa.struct([("u", pa.string())]), "'u' of the topic's schema is struct"),
        (pa.struct([("u", pa.struct([("member2", pa.string())]))]), "no field 'u.member2'"),
        (pa.struct([("u", pa.struct([("x", pa.string())]))]), "no field 'u.x'"),
        (
            pa.struct([("u", pa.struct([("member0", pa.int32())]))]),
            "'u.member0' of the topic's schema is string, .* cannot be read as int",
        ),
        (
            pa.struct([("u", pa.struct([("member0", pa.string()), ("member0", pa.string())]))]),
            "no field 'u.member0', or the field is requested twice",
        ),
        (pa.int64(), r"\(the root\) of the topic's schema is struct"),
    ],
)
def test_other_targets_are_refused(target, text):
    tree = record(
        {"name": "a", "type": "long"},
        {"name": "l", "type": {"type": "array", "items": "int"}},
        {"name": "u", "type": ["string", "boolean"]},
    )
    schema = json_schema(tree)
    with pytest.raises(SchemaError, match=text):
        make_tree(schema, schema, target)


def test_symbols_of_enums_are_those_of_the_schema():
    newer = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    older, lenient = newer | {"symbols": ["A"]}, newer | {"symbols": ["A", "X"], "default": "X"}
    payloads = pa.array([b'{"e":"%s"}' % text for text in (b"A", b"B", b"X", b"Z")] + [b'{"e":2}'])

    def found(writer, reader):
        writer, reader = (json_schema(record({"name": "e", "type": each})) for each in (writer, reader))
        return decoder(writer, reader, column_type(reader)).decode(payloads, payloads).column.to_pylist()

    def rows(*symbols):
        return [symbol and {"e": symbol} for symbol in symbols]

    assert found(newer, newer) == rows("A", "B", None, None, "2")
    assert found(newer, older) == rows("A", None, None, None, "2")
    assert found(newer, lenient) == rows("A", "X", "X", None, "2")
    assert found("string", newer) == rows("A", "B", None, None, "2")
    assert found(newer, "string") == rows("A", "B", "X", "Z", "2")


def test_what_a_writer_leaves_out_is_null_if_its_version_has_the_field():
    nullable = {"name": "v", "type": ["null", "string"], "default": "EUR"}
    inner = {"type": "record", "name": "I", "fields": [nullable]}
    reader = record(nullable, {"name": "r", "type": inner}, {"name": "i", "type": "int", "default": 3})
    missing = {"v": "EUR", "r": None, "i": 3}
    assert read(reader, reader, b"{}") == missing | {"v": None}
    assert read(record(), reader, b"{}") == missing
    assert read(reader, reader, b'{"r":{}}') == {"v": None, "r": {"v": None}, "i": 3}
    older = record({"name": "r", "type": inner | {"fields": []}})
    assert read(older, reader, b'{"r":{}}') == missing | {"r": {"v": "EUR"}}
    renamed = record(nullable | {"name": "w", "aliases": ["v"]})
    assert read(reader, renamed, b"{}") == {"w": None}
    required = record(nullable | {"type": "string"})
    assert read(required, record(nullable), b"{}") == {"v": "EUR"}
