"""Values of kind AVRO -> columns: types, versions, bad rows, sizes; fastavro is the other side."""

import json
from collections import Counter
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from integration.hostile import values as fuzzer
from pulsar_spark.errors import SchemaError
from pulsar_spark.values.avro import avro_read
from pulsar_spark.values.avro.avro_read import decoder
from pulsar_spark.values.avro.avro_types import READ_OFFSET
from pulsar_spark.values.avro.steps import MemberStep, NullStep
from pulsar_spark.values.json_types import column_type
from tests.loops import a_few_of, for_each
from tests.values.avro.decoding import (
    array,
    avro,
    decode,
    encoded,
    logical,
    made,
    map_of,
    record,
    renamed,
    rows,
)
from tests.values.protobuf_files import plain_rows
from tests.values.random_avro import OTHER_TIMES

UTC = timezone.utc
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
A = record(("x", "int"), name="A")
B = record(("y", "string"), name="B")
COLOURS = {"type": "enum", "name": "E", "symbols": ["RED", "GREEN", "BLUE"]}

# Writer's schema, value, what the row is.
SAME = [
    ("null", None, None),
    ("boolean", True, True),
    ("int", -(2**31), -(2**31)),
    ("long", 2**63 - 1, 2**63 - 1),
    ("long", -(2**63), -(2**63)),
    ("float", 1.5, 1.5),
    ("double", -0.1, -0.1),
    ("bytes", b"\0\xff", b"\0\xff"),
    ("string", "Grüße 語", "Grüße 語"),
    ({"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc"),
    ({"type": "fixed", "name": "F", "size": 0}, b"", b""),
    (COLOURS, "BLUE", "BLUE"),
    (logical("int", "date"), date(1969, 12, 31), date(1969, 12, 31)),
    (logical("long", "timestamp-millis"), MOMENT, MOMENT),
    (logical("long", "timestamp-micros"), MOMENT, MOMENT),
    (logical("long", "local-timestamp-millis"), MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=None)),
    (logical("long", "local-timestamp-micros"), MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=None)),
    (
        logical("bytes", "decimal", precision=38, scale=2),
        Decimal("9" * 36 + ".99"),
        Decimal("9" * 36 + ".99"),
    ),
    (
        logical("bytes", "decimal", precision=38, scale=2),
        Decimal("-" + "9" * 36 + ".99"),
        Decimal("-" + "9" * 36 + ".99"),
    ),
    (logical("bytes", "decimal", precision=4, scale=2), Decimal("-1.28"), Decimal("-1.28")),
    (
        {"type": "fixed", "name": "F", "size": 20, "logicalType": "decimal", "precision": 20, "scale": 0},
        Decimal("-12345678901234567890"),
        Decimal("-12345678901234567890"),
    ),
    (logical("long", "time-micros"), 5, 5),
    (["null", "string"], None, None),
    (["null", "string"], "a", "a"),
    (["string", "null"], None, None),
    (["int", "long"], 5, 5),
    (["float", "null", "double"], 0.5, 0.5),
    (["null", "int", "string"], "a", {"member0": None, "member1": "a"}),
    (["null", "int", "string"], 3, {"member0": 3, "member1": None}),
    (["null", "int", "string"], None, None),
    (["null", A, B], ("B", {"y": "b"}), {"member0": None, "member1": {"y": "b"}}),
    (array("long"), [1, 2**40, -1], [1, 2**40, -1]),
    (array("double"), [0.5, 1.5], [0.5, 1.5]),
    (array(["null", "string"]), ["a", None], ["a", None]),
    (array(array("int")), [[1], [], [2, 3]], [[1], [], [2, 3]]),
    (array("null"), [None], [None]),
    (array(A), [{"x": 1}, {"x": 2}], [{"x": 1}, {"x": 2}]),
    (map_of("int"), {"a": 1, "b": 2}, {"a": 1, "b": 2}),
    (map_of(array("string")), {"a": ["x"], "b": []}, {"a": ["x"], "b": []}),
    (record(("a", A), ("b", "A")), {"a": {"x": 1}, "b": {"x": 2}}, {"a": {"x": 1}, "b": {"x": 2}}),
    (record(), {}, {}),
    (record(("a-b$.c", ["null", A])), {"a-b$.c": {"x": 1}}, {"a-b$.c": {"x": 1}}),
]


@for_each(("tree", "value", "row"), SAME)
@for_each("count", [1, 100])
def test_values_of_each_type(tree, value, row, count):
    # As the value of a field, too, since fastavro names nothing by itself.
    payload = encoded(tree, value)
    assert rows(made(tree), [payload] * count) == [row] * count


FIXED = {"type": "fixed", "name": "F", "size": 2}
# Writer's schema, reader's, value, what the row is.
VERSIONS = [
    ("int", "long", 5, 5),
    ("int", "float", 2**24 + 1, 2.0**24),
    ("int", "double", 5, 5.0),
    ("long", "float", 5, 5.0),
    ("long", "double", 2**53, 2.0**53),
    ("float", "double", 0.5, 0.5),
    ("string", "bytes", "é", "é".encode()),
    ("bytes", "string", "é".encode(), "é"),
    ("int", ["null", "int"], 5, 5),
    (["null", "int"], "int", 5, 5),
    (["null", "int"], ["null", "long"], 5, 5),
    (["null", "int"], ["long", "null"], None, None),
    ("int", ["string", "long"], 5, {"member0": None, "member1": 5}),
    (["int", "string"], ["string", "int"], 5, {"member0": None, "member1": 5}),
    # A branch of the same kind goes before one that comes earlier.
    ("int", ["double", "boolean", "int"], 5, {"member0": None, "member1": None, "member2": 5}),
    (
        record(("a", "int")),
        record(("a", "int"), ("b", "string", {"default": "x"})),
        {"a": 1},
        {"a": 1, "b": "x"},
    ),
    (record(("a", "int")), record(("a", "int"), ("b", "string")), {"a": 1}, {"a": 1, "b": None}),
    (record(("a", "int"), ("b", "string")), record(("b", "string")), {"a": 1, "b": "x"}, {"b": "x"}),
    (
        record(("a", "int"), ("b", "string")),
        record(("b", "string"), ("a", "int")),
        {"a": 1, "b": "x"},
        {"b": "x", "a": 1},
    ),
    (record(("a", "int")), record(("z", "long", {"aliases": ["a"]})), {"a": 1}, {"z": 1}),
    # A field's own name goes before its aliases, wherever the writer has it.
    (
        record(("old", "long"), ("z", "long")),
        record(("z", "long", {"aliases": ["old"]})),
        {"old": 1, "z": 2},
        {"z": 2},
    ),
    (
        record(("z", "long"), ("old", "long")),
        record(("z", "long", {"aliases": ["old"]})),
        {"old": 1, "z": 2},
        {"z": 2},
    ),
    (
        record(("a", "long"), ("b", "long")),
        record(("b", "long", {"aliases": ["a"]}), ("c", "long", {"aliases": ["a"]})),
        {"a": 1, "b": 2},
        {"b": 2, "c": 1},
    ),
    (A, record(("x", "int"), name="Other"), {"x": 1}, {"x": 1}),
    (["null", A], ["null", record(("x", "long"), name="Other")], {"x": 1}, {"x": 1}),
    (COLOURS, renamed(COLOURS, name="Other"), "RED", "RED"),
    (FIXED, renamed(FIXED, name="Other"), b"ab", b"ab"),
    (
        ["null", B, A],
        ["null", renamed(A, name="n.A2", aliases=["A"]), renamed(B, name="n.B")],
        ("A", {"x": 1}),
        {"member0": {"x": 1}, "member1": None},
    ),
    (COLOURS, renamed(COLOURS, symbols=["BLUE", "OTHER"], default="OTHER"), "RED", "OTHER"),
    (COLOURS, renamed(COLOURS, symbols=["BLUE", "OTHER"], default="OTHER"), "BLUE", "BLUE"),
    (
        array(A),
        array(record(("x", "long"), ("n", "int", {"default": 1}), name="A")),
        [{"x": 1}],
        [{"x": 1, "n": 1}],
    ),
    (map_of("int"), map_of(["null", "double"]), {"a": 1}, {"a": 1.0}),
    # Times are in the writer's unit, decimals of the reader's precision.
    (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), MOMENT, MOMENT),
    (logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), MOMENT, MOMENT),
    ("long", logical("long", "timestamp-millis"), 1_700_000_000_123, MOMENT),
    ("long", logical("long", "timestamp-nanos"), 1_700_000_000_123_000_999, MOMENT),
    (logical("long", "timestamp-millis"), logical("long", "timestamp-nanos"), MOMENT, MOMENT),
    (logical("long", "timestamp-millis"), "long", MOMENT, 1_700_000_000_123),
    (
        logical("bytes", "decimal", precision=4, scale=2),
        logical("bytes", "decimal", precision=9, scale=2),
        Decimal("1.28"),
        Decimal("1.28"),
    ),
]


@for_each(("writer", "reader", "value", "row"), VERSIONS)
def test_values_of_another_version(writer, reader, value, row):
    assert rows(made(writer, reader), [encoded(writer, value)] * 3) == [row] * 3


TWO_AS = [A, renamed(A, name="A2")]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (["null", A, B], ["null", A]),
        ([A, B], A),
        (["int", "null", B], ["int", *TWO_AS]),
        (array([A, B]), array(A)),
        (map_of([A, B]), map_of(["null", A])),
    ],
    ids=json.dumps,
)
def test_a_branch_that_the_other_version_lacks_is_not_read_as_another_record(writer, reader):
    """As another record, whose fields all are null, it would be a value that nobody wrote."""
    value = ("B", {"y": "text"})
    payload = encoded(writer, {"array": [value], "map": {"k": value}}.get(kind_of(writer), value))
    assert decode(made(writer, reader), [payload] * 3).is_bad.tolist() == [True] * 3


def kind_of(tree):
    return tree["type"] if isinstance(tree, dict) else "union"


@pytest.mark.parametrize("writer", [B, ["null", B], record(("x", "int"), name="C")], ids=json.dumps)
def test_a_record_that_may_be_one_of_several_is_told_by_its_name(writer):
    with pytest.raises(SchemaError, match="cannot be read as"):
        made(record(("a", writer)), record(("a", TWO_AS)))


PROJECTED = record(("a", "int"), ("s", record(("x", "int"), ("y", "string"), name="S")), ("b", "string"))


def test_a_projection_at_any_depth():
    target = pa.struct([("b", pa.string()), ("s", pa.struct([("x", pa.float64())])), ("a", pa.int64())])
    payload = encoded(PROJECTED, {"a": 1, "s": {"x": 2, "y": "z"}, "b": "c"})
    assert rows(made(PROJECTED, target=target), [payload]) == [{"b": "c", "s": {"x": 2.0}, "a": 1}]


@pytest.mark.parametrize(
    "target",
    [
        pa.struct([("missing", pa.int32())]),
        pa.struct([("a", pa.string())]),
        pa.struct([("a", pa.int16())]),
        pa.struct([("a", pa.int32()), ("a", pa.int32())]),
        pa.struct([("s", pa.struct([("x", pa.bool_())]))]),
        pa.int32(),
    ],
)
def test_a_target_that_is_no_projection(target):
    with pytest.raises(SchemaError):
        made(PROJECTED, target=target)


DECIMAL = logical("bytes", "decimal", precision=9, scale=2)


@pytest.mark.parametrize(
    ("writer", "reader", "why"),
    [
        (record(("a", "int")), record(("a", "string")), "field 'a': int cannot be read as string"),
        (record(("a", array("int"))), record(("a", map_of("int"))), "field 'a': array cannot be read as map"),
        (record(("a", array("long"))), record(("a", array("int"))), r"field 'a\[\]': long"),
        (["int", "string"], "boolean", "the root: a union of int, string cannot be read as boolean"),
        ("string", ["int", "null"], "string cannot be read as a union of int, null"),
        (
            {"type": "fixed", "name": "F", "size": 1},
            {"type": "fixed", "name": "F", "size": 2},
            "fixed 'F' of 1 bytes",
        ),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            logical("bytes", "decimal", precision=4, scale=1),
            "a decimal of scale 2",
        ),
        *OTHER_TIMES,
        ("string", DECIMAL, "string cannot be read as decimal"),
        (logical("string", "uuid"), ["null", DECIMAL], "string cannot be read as a union of null, decimal"),
        (DECIMAL, "string", "decimal cannot be read as string"),
        (record(("a", ["null", DECIMAL])), record(("a", "string")), "decimal cannot be read as string"),
        ("string", logical("bytes", "decimal", precision=50), "string cannot be read as decimal"),
    ],
)
def test_versions_that_do_not_go_together(writer, reader, why):
    with pytest.raises(SchemaError, match=why):
        made(writer, reader)


@pytest.mark.parametrize("offset", ["-1", "x", "", "1" * 10, "²"])
def test_an_offset_that_is_no_number(offset):
    with pytest.raises(SchemaError, match=READ_OFFSET):
        made("int", **{READ_OFFSET: offset})


def test_an_offset_is_that_of_the_writer():
    read = made("int", "int", **{READ_OFFSET: "5"})
    done = decode(read, [b"\0\0\0\0\1\4", None, b"\0\0\0\0", b"\0\0\0\0\1"])
    assert done.column.to_pylist() == [2, None, None, None]
    assert done.is_bad.tolist() == [False, False, True, True]
    assert "shorter than the 5 bytes" in read.explain(b"\0\0\0\0", None)


ROW = record(
    ("id", "long"),
    ("text", "string"),
    ("tags", array("string")),
    ("m", map_of(["null", "long"])),
    ("e", COLOURS),
    (
        "in",
        [
            "null",
            record(("f", "boolean"), ("i", "int"), ("d", logical("bytes", "decimal", precision=2)), name="I"),
        ],
    ),
)
GOOD = {
    "id": 1,
    "text": "é",
    "tags": ["a", "b"],
    "m": {"k": 1},
    "e": "RED",
    "in": {"f": True, "i": 7, "d": Decimal(5)},
}
PAYLOAD = encoded(ROW, GOOD)  # 02 | 04 c3a9 | 04 0261 0262 00 | 02 026b 0202 00 | 00 | 02 01 0e 0205

BAD = [
    (b"", "field 'id': the value ends"),
    (b"\x80" * 12, "field 'id': a number has more than 10 bytes"),
    (b"\xff" * 9 + b"\x02", "field 'id': a number has more than 64 bits"),
    (PAYLOAD + b"\0", "1 bytes remain"),
    (PAYLOAD[:-1], "field 'in.d': 1 bytes are required, but 0 are left"),
    (PAYLOAD.replace(b"\xc3\xa9", b"\xc3\x28"), "field 'text': text that is not UTF-8"),
    (PAYLOAD.replace(b"\4\xc3", b"\x03\xc3"), "field 'text': -2 bytes"),
    (PAYLOAD.replace(b"\2b", b"\2\xff"), r"field 'tags[]': text that is not UTF-8"),
    (PAYLOAD.replace(b"\4\2a", b"\x7e\2a"), r"field 'tags[]': 63 items, but 17 bytes are left"),
    (PAYLOAD.replace(b"k\2\2", b"k\6\2"), "field 'm{}': branch 3, but the union has 2"),
    (PAYLOAD.replace(b"k\2\2", b"k\1\2"), "field 'm{}': branch -1, but the union has 2"),
    (PAYLOAD.replace(b"\0\0\2\1", b"\0\6\2\1"), "field 'e': symbol 3, but the enum has 3"),
    (PAYLOAD.replace(b"\0\2\1\x0e", b"\0\2\2\x0e"), "field 'in.f': a boolean is 0 or 1, not 2"),
    (PAYLOAD.replace(b"\1\x0e", b"\1\xfe\xff\xff\xff\x1f"), "field 'in.i': a number that is out of range"),
    (PAYLOAD.replace(b"\2\5", b"\0"), "field 'in.d': a decimal without bytes"),
    (PAYLOAD.replace(b"\2\5", b"\2\x64"), "field 'in.d': a decimal of more than 2 digits"),
]


@for_each(("payload", "why"), BAD)
@for_each("around", [1, 100])
def test_bad_values_between_good_ones(payload, why, around):
    read = made(ROW)
    done = decode(read, [PAYLOAD] * around + [payload] + [PAYLOAD] * around)
    assert done.is_bad.tolist() == [False] * around + [True] + [False] * around
    good = [GOOD] * around
    assert plain_rows(done.column) == [*good, None, *good]
    assert all(part.null_count == len(part) for part in done.column[around : around + 1].flatten())
    assert why in read.explain(payload, None)


def test_tombstones_are_null_and_not_bad():
    done = decode(made(ROW), [None, PAYLOAD, None])
    assert done.is_bad is None
    assert plain_rows(done.column) == [None, GOOD, None]
    assert decode(made(ROW), [None]).column.to_pylist() == [None]


def test_no_values():
    done = made(ROW).decode(pa.array([], pa.binary()), pa.array([], pa.binary()))
    assert (len(done.column), done.column.type) == (0, column_type(avro(ROW)))


def test_values_for_which_the_reader_has_no_branch_or_symbol():
    read = made(record(("u", ["null", "int", "string"])), record(("u", ["int", "boolean"])))
    done = decode(read, [b"\2\4", b"\0", b"\4\2a"])
    assert done.is_bad.tolist() == [False, True, True]
    assert read.explain(b"\0", None) == "field 'u': null cannot be read as a union of int, boolean"
    assert made(["null", "int"], "int").explain(b"\0", None) == "null cannot be read as int"
    enum = made(COLOURS, renamed(COLOURS, symbols=["BLUE"]))
    assert decode(enum, [b"\4", b"\0"]).is_bad.tolist() == [False, True]
    assert "not in the reader's schema" in enum.explain(b"\0", None)


@pytest.mark.parametrize(
    ("wrap", "within", "column"),
    [
        (lambda kind: kind, lambda value: value, lambda kind: kind),
        (lambda kind: ["null", kind], lambda value: value, lambda kind: kind),
        (array, lambda value: [value] * 100, lambda kind: pa.list_(pa.field("element", kind))),
        (map_of, lambda value: {"k": value}, lambda kind: pa.map_(pa.string(), pa.field("value", kind))),
    ],
)
def test_texts_and_bytes_of_any_kind_are_read_as_each_other(wrap, within, column):
    fixed = {"type": "fixed", "name": "F", "size": 2}
    for kind, value, other, expected in (
        (COLOURS, "RED", pa.binary(), b"RED"),
        (fixed, b"ab", pa.string(), "ab"),
    ):
        tree = record(("a", wrap(kind)))
        made_decoder = made(tree, target=pa.struct([("a", column(other))]))
        assert rows(made_decoder, [encoded(tree, {"a": within(value)})]) == [{"a": within(expected)}]
    tree = record(("a", fixed))
    text = pa.struct([("a", pa.string())])
    assert decode(made(tree, target=text), [b"\xff\xfe", b"ab"]).is_bad.tolist() == [True, False]
    with_default = record(("a", fixed, {"default": "\xff\xfe"}))
    with pytest.raises(SchemaError, match="default of field 'a'"):
        made(record(), with_default, text)


@pytest.mark.parametrize("kind", ["timestamp", "local-timestamp"])
@pytest.mark.parametrize("other", ["micros", "millis"])
def test_nanoseconds_are_cut_to_microseconds_whatever_unit_the_reader_has(kind, other):
    writer = logical("long", f"{kind}-nanos")
    values = [1_700_000_000_123_456_789, 0, -1, -1000, 2**63 - 1, -(2**63)]
    for reader in (writer, logical("long", f"{kind}-{other}")):
        done = decode(made(writer, reader), [encoded("long", value) for value in values])
        assert done.is_bad is None
        assert done.column.cast(pa.int64()).to_pylist() == [value // 1000 for value in values]


def test_millis_that_are_no_micros_are_bad():
    done = decode(made(logical("long", "timestamp-millis")), [encoded("long", 2**62), encoded("long", 1)])
    assert done.is_bad.tolist() == [True, False]


def test_more_rows_than_are_read_together(monkeypatch):
    """Their columns are joined field by field: all at once they would be in memory twice."""
    joined, concat_arrays = [], pa.concat_arrays
    monkeypatch.setattr(
        pa, "concat_arrays", lambda parts: joined.append(parts[0].type) or concat_arrays(parts)
    )
    tree = record(("i", "int"), ("s", "string"))
    payloads = [encoded(tree, {"i": i, "s": str(i) * (i % 40)}) for i in range(40_000)]
    payloads[20_000] = b"\xff"
    done = decode(made(tree), payloads)
    assert done.is_bad.nonzero()[0].tolist() == [20_000]
    expected = [{"i": i, "s": str(i) * (i % 40)} for i in range(40_000)]
    expected[20_000] = None
    assert done.column.to_pylist() == expected
    assert joined
    assert not any(map(pa.types.is_struct, joined))


def test_wide_rows_are_read_many_at_a_time():
    rows = pa.array([bytes(20_000)] * 600, pa.binary())
    assert [end - first for first, end in avro_read._slices(rows)] == [419, 181]
    narrow = pa.array([bytes(100)] * 20_000, pa.binary())
    assert [end - first for first, end in avro_read._slices(narrow)][:1] == [10_485]


def test_a_wide_record_that_is_not_read():
    """Its end is found some fields at a time, also where the value ends before."""
    wide = record(*((f"f{n}", "string") for n in range(6000)), name="W")
    tree = record(("w", wide), ("id", "long"))
    value = encoded(tree, {"w": {f"f{n}": "x" * 60 for n in range(6000)}, "id": 7})
    cut = [value[:size] for size in range(0, len(value), 20_000)]
    done = decode(made(tree, target=pa.struct([("id", pa.int64())])), [value, *cut, value])
    assert done.is_bad.tolist() == [False, *[True] * len(cut), False]
    assert [done.column[0].as_py(), done.column[-1].as_py()] == [{"id": 7}] * 2


@pytest.mark.parametrize("seed", a_few_of(12, 4))
def test_random_schemas_versions_and_payloads_against_fastavro(seed, monkeypatch):
    monkeypatch.setattr(fuzzer, "ROWS", 60)
    counts = Counter()
    fuzzer.differential_round(f"unit {seed}", counts)
    fuzzer.hostile_round(f"unit {seed}", counts)
    assert counts["good"] > 60


def test_members_are_compared_without_the_type_of_their_union():
    """Each has the type of all members, and a type takes as long to hash as it is large: it took minutes."""
    one, other = (
        MemberStep(pa.struct([("member0", kind)]), NullStep(None), 0) for kind in (pa.int8(), pa.null())
    )
    assert (one, hash(one)) == (other, hash(other))
    for member in ("string", "boolean"):
        assert rows(made("int", ["int", member]), [b"\2"]) == [{"member0": 1, "member1": None}]


def test_versions_that_differ_in_what_is_not_read_have_one_plan():
    """They are read together, not one after the other."""
    reader = avro(record(("a", "int")))

    def plan(name, kind, **properties):
        writer = avro(record(("a", "int"), (name, kind)), **properties)
        return decoder(writer, reader, column_type(reader)).plan

    assert plan("b", "string") == plan("c", "string")
    assert plan("b", "string") != plan("b", ["null", "string"])
    assert plan("b", "string") != plan("b", "string", **{READ_OFFSET: "5"})
