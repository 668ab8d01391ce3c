"""The work that values are counted for: what is read one after the other, in each kind of schema."""

import json
import math
import struct

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.protobuf import protobuf_native
from pulsar_spark.values.value_bounds import ANY_WORK, ValueWork, WorkPool
from tests.values.protobuf_files import file, message_class, schema
from tests.values.test_value_bounds import KINDS
from tests.work import calls

_MANY = 1e9
UNIONS = {"type": "array", "items": ["int", "boolean"]}
# Of JSON, values of unions count.
COUNTED = KINDS | {
    "JSON": (
        Schema(SchemaType.JSON, json.dumps(UNIONS).encode()),
        lambda wide, *_: b"[" + b",".join([b"1"] * wide) + b"]",
    )
}


def decoder_of(of, target=None):
    return formats.decoder(of, of, target or formats.column_type(of))


def decoded(decoder, values, units, keys=None, own=0.0):
    """Values with as much work as a pool has; and how much is left."""
    pool = WorkPool(units)
    work = ValueWork(np.full(len(values), own), pool)
    keys = pa.array(keys or [None] * len(values), pa.binary())
    found = decoder.decode(pa.array(values, pa.binary()), keys, work)
    assert not found.column.is_valid().to_numpy(zero_copy_only=False)[work.refused].any()
    return found, work, pool.left


def work_of(decoder, value, key=None):
    return _MANY - decoded(decoder, [value], _MANY, [key])[2]


def test_each_item_counts():
    of, make = KINDS["AVRO"]
    decoder = decoder_of(of)
    none, few, many = (work_of(decoder, make(*sizes)) for sizes in ((0, 0, 0), (2, 3, 4), (300, 20, 20)))
    assert none < 120
    assert few - none >= 2 + 3 * 3 / 2 + 3 * 4
    assert many - none >= 300 + 3 * 20 / 2 + 3 * 20


def test_what_is_not_asked_for_counts_too():
    """It takes time to find its end; protobuf's runtime skips it."""
    of, make = KINDS["AVRO"]
    decoder = decoder_of(of, pa.struct([formats.column_type(of).field("id")]))
    assert work_of(decoder, make(300, 20, 20)) > 300


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_value_is_looked_at_no_longer_than_it_may_be(kind):
    of, make = COUNTED[kind]
    value, decoder = make(100_000, 0, 0), decoder_of(of)
    decoded(decoder, [value], 10)
    assert decoded(decoder, [value], 10)[1].refused.all()
    assert calls(lambda: decoded(decoder, [value], 10)) < 10_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 5, 300])
def test_a_value_that_takes_too_much_changes_no_other(kind, rows):
    of, make = COUNTED[kind]
    good, decoder = make(2, 1, 1), decoder_of(of)
    whole = decoder.decode(pa.array([good], pa.binary()), pa.nulls(1, pa.binary())).column[0]
    values = [good] * rows + [make(20_000, 0, 0)] + [good] * rows
    found, work, _ = decoded(decoder, values, 0, own=1000.0)
    assert np.flatnonzero(work.refused).tolist() == [rows]
    assert [found.column[row] for row in (0, rows - 1, rows + 1, 2 * rows)] == [whole] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_many_usual_values_are_read_with_what_they_have(kind):
    """However little their entries are compressed to: of 600 of them, an entry has as much by itself."""
    of, make = KINDS[kind]
    found, work, left = decoded(decoder_of(of), [make(3, 1, 1)] * 3_000, 0, own=15.0)
    assert not work.refused.any()
    assert found.is_bad is None
    assert left == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [0, 1, 20])
def test_what_is_malformed_has_no_more_items_than_it_has(kind, cut):
    of, make = KINDS[kind]
    for value in (make(2, 3, 4)[:cut], b"\xff" * 30, None):
        assert not decoded(decoder_of(of), [value], 1000)[1].refused.any()


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
    ("kind", "item", "units"),
    [
        ("double", bytes(8), 0),
        ("int", b"\2", 0),
        ("string", b"\0", 1),
        (["null", "string"], b"\0", 2),
        ({"type": "array", "items": "string"}, b"\0", 1),
        ({"type": "array", "items": "string"}, b"\2\0\0", 1 + 4 + 1),
        (WIDE, bytes(20), 21),
    ],
    ids=range(7),
)
def test_an_item_counts_by_the_time_that_it_takes(kind, item, units):
    value = b"\xd0\x0f" + item * 1000 + b"\0"  # 1000 items
    assert work_of(array_of(kind), value) == pytest.approx(1000 * units + 4, abs=1)


def test_blocks_count_as_items():
    """Each takes longer than an item."""
    assert work_of(array_of("int"), b"\2\2" * 1000 + b"\0") == pytest.approx(4000, abs=5)


@pytest.mark.parametrize("kind", ["string", "int"])
def test_looks_at_an_item_of_many_rows_count(kind):
    """100 arrays of as many items, or blocks, are found together."""
    item, blocks = (b"\0" * 8000, b"\x80\x7d") if kind == "string" else (b"\2\2" * 2000, b"")
    value = blocks + item + b"\0"
    _, work, left = decoded(array_of(kind), [value] * 100, _MANY)
    assert 0.8 < (_MANY - left) / ((8000 * 64) if kind == "string" else (2000 * 12 * 4)) < 1.2
    _, work, left = decoded(array_of(kind), [value] * 100, 20_000)
    assert work.refused.any()
    assert left < 1000


def test_a_few_rows_more_are_gone_over_alike():
    """Together, 13 rows took a call of numpy for each item of the longest: minutes, where 12 took seconds."""
    decoder, value = array_of({"type": "array", "items": "string"}), b"\xa0\x06" + b"\2\0\0" * 400 + b"\0"

    def looks(rows):
        values = pa.array([value] * rows, pa.binary())
        return calls(lambda: decoder.decode(values, pa.nulls(rows, pa.binary())))

    looks(1)
    assert looks(13) == pytest.approx(looks(12) * 13 / 12, rel=0.01)
    assert looks(64) < 6 * looks(12)
    assert looks(400) < 6 * looks(12)


# ---- JSON


def json_array_of(kind):
    return decoder_of(Schema(SchemaType.JSON, json.dumps({"type": "array", "items": kind}).encode()))


def test_in_a_union_values_count_for_each_member_that_is_tried():
    value = b"[" + b"5," * 999 + b"5]"
    assert work_of(json_array_of("long"), value) == 0
    assert work_of(json_array_of(["null", "string", "long", "boolean"]), value) == 1000
    fitting, other = (b"[" + b",".join([each] * 1000) + b"]" for each in (b'{"a":1}', b'{"b":2}'))
    records = [
        {"type": "record", "name": f"R{name}", "fields": [{"name": name, "type": kind}]}
        for name, kind in (("a", "int"), ("b", "boolean"))
    ]
    assert work_of(json_array_of(records), fitting) == 1000
    # Tried as the second record, then as the first one with its member.
    # Each distinct bad value is looked at, too.
    assert work_of(json_array_of(records), other) == pytest.approx(1000 * (1 + 1 + 2 * 0.2) + 2)


@pytest.mark.parametrize(
    ("kind", "item", "units"),
    [
        ("long", b'"5"', 0),
        ("long", b'"%d"', 2),
        ("bytes", b'"%d"', 0),
        ({"type": "record", "name": "java.lang.Object", "fields": []}, b"[1]", 2),
        ({"type": "int", "logicalType": "date"}, b"[2023,1,%d]", 2),
        ({"type": "map", "values": "string"}, b'{"a":"b"}', 0),
        ({"type": "array", "items": "int"}, b"[1,2,3]", 0),
    ],
    ids=range(7),
)
def test_what_is_converted_by_itself_counts_once_for_each_distinct_value(kind, item, units):
    items = [item % (1 + number % 28) if b"%" in item else item for number in range(1000)]
    distinct = len({*items}) if item != b"[1]" else len(items)
    value = b"[" + b",".join(items) + b"]"
    assert work_of(json_array_of(kind), value) == (units * distinct if distinct > 1 else 2 * (item == b'"5"'))


def test_tokens_count_where_honest_values_have_fewer():
    decoder = json_array_of({"type": "array", "items": "long"})
    dense, honest = b"[" + b"[]," * 999 + b"[]]", b"[" + b"[1,2,3]," * 99 + b"[1]]"
    assert _MANY - decoded(decoder, [dense] * 300, _MANY)[2] == 300 * (2000 - 3001 / 2)
    assert decoded(decoder, [honest] * 300, _MANY)[2] == _MANY
    assert decoded(decoder, [dense] * 300, 1000)[1].refused[2:].all()


# ---- PROTOBUF_NATIVE


def test_small_messages_in_repeated_fields_count():
    made = file(
        "message B\nstring s = 1\nmessage A\nrepeated int32 n = 1\nrepeated B b = 20\nrepeated string s = 3"
    )
    of = schema(made, "p.A")
    value, decoder = message_class(made, "p.A"), decoder_of(of)
    for cheap in (value(n=[1] * 1000), value(s=["x"] * 1000)):
        assert work_of(decoder, cheap.SerializeToString()) == 0
    assert work_of(decoder, b"\x78\1" * 1000) == 0, "not in the schema"
    small, usual = (value(b=[{"s": text}] * 1000).SerializeToString() for text in ("", "a text"))
    assert work_of(decoder, small) == pytest.approx(1000 * (1.6 + 0.45 - 3 / 5), abs=1)
    assert work_of(decoder, usual) < 1000


def test_fields_that_are_found_one_by_one_count():
    """Empty texts whose tag messages have, too: finding them took longer than their bytes paid for."""
    made = file(
        "message C\nint32 n = 1\nmessage B\nrepeated C c = 2\n"
        "message A\nrepeated B b = 1\nrepeated string s = 2"
    )
    value, decoder = message_class(made, "p.A")(s=[""] * 1000), decoder_of(schema(made, "p.A"))
    assert work_of(decoder, value.SerializeToString()) == pytest.approx(1000 * (0.45 - 2 / 5), abs=1)
    assert decoded(decoder, [value.SerializeToString()], 10)[1].refused.all()


def test_packed_items_that_become_json_count():
    made = file("message A\nrepeated A a = 1\nrepeated float n = 2")
    value, decoder = message_class(made, "p.A"), decoder_of(schema(made, "p.A"))
    numbers = value(n=[1.5] * 1000)
    assert work_of(decoder, numbers.SerializeToString()) == 0
    assert work_of(decoder, value(a=[numbers]).SerializeToString()) == pytest.approx(
        1000 * (1.6 - 4 / 5), abs=2
    )


def test_a_repeated_payload_of_protobuf_costs_each_time_and_is_counted_once(monkeypatch):
    of, make = COUNTED["PROTOBUF_NATIVE"]
    decoder, value = decoder_of(of), make(300, 20, 20)
    units = work_of(decoder, value)
    assert decoded(decoder, [value] * 4, 2.5 * units)[1].refused.tolist() == [False, False, True, True]
    counted = []
    monkeypatch.setattr(protobuf_native, "take_items", lambda room, payload, _: counted.append(payload))
    decoded(decoder, [value] * 4, 5 * units)
    assert counted == [value]


# ---- KEY_VALUE


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_both_parts_count(encoding):
    parts = (
        json.dumps({"type": "array", "items": items}).encode() for items in ("string", ["string", "int"])
    )
    properties = {"key.schema.type": "AVRO", "value.schema.type": "JSON", "kv.encoding.type": encoding}
    definition = b"".join(struct.pack(">i", len(part)) + part for part in parts)
    of = Schema(SchemaType.KEY_VALUE, definition, properties)
    decoder = decoder_of(of)
    avro, texts = b"\xd0\x0f" + b"\0" * 1000 + b"\0", b"[" + b'"",' * 999 + b'""]'

    def inline(key, value):
        return b"".join(struct.pack(">i", len(each)) + each for each in (key, value))

    def units(key, value):
        if encoding == "INLINE":
            return work_of(decoder, inline(key, value))
        return work_of(decoder, value, key)

    assert units(avro, b"[]") == pytest.approx(1000, abs=15)
    assert units(b"\0", texts) == 1000
    assert units(avro, texts) == pytest.approx(2000, abs=15)
    if encoding == "INLINE":
        assert decoded(decoder, [inline(avro, texts)], 10)[1].refused.all()
    else:
        # What is no value is not also read as an inline one.
        assert work_of(decoder, inline(avro, texts)) == 0


@pytest.mark.parametrize("kind", [SchemaType.STRING, SchemaType.INT32, SchemaType.NONE])
def test_values_without_items_have_none(kind):
    assert work_of(decoder_of(Schema(kind)), bytes(1000)) == 0


def test_a_value_takes_its_own_first_and_then_of_the_pool():
    pool = WorkPool(10)
    work = ValueWork(np.array([5.0, 5.0, np.inf]), pool)
    assert work.take(0, 5)
    assert pool.left == 10
    assert work.take(0, 8)
    assert pool.left == 2
    assert [work.left(row) for row in range(3)] == [2, 7, math.inf]
    assert work.take(1, 7)
    assert pool.left == 0
    assert work.take(2, math.nan), "it may make any"
    assert work.left(2) == math.inf
    assert not work.refused.any()


def test_a_value_that_makes_too_much_is_refused_from_then_on_and_ends_the_allowance():
    """Its work was made until it was refused. Others keep what their bytes pay for."""
    pool = WorkPool(3)
    work = ValueWork(np.array([1.0, 1.0]), pool)
    assert work.left(0) == 4
    assert not work.take(0, 5)
    assert not work.take(0, 0)
    assert work.left(0) < 0
    assert pool.left == 0
    assert work.take(1, 1)
    assert work.refused.tolist() == [True, False]
    assert not work.take(1, 1)


@pytest.mark.parametrize("rows", [[2, 0], [1]])
def test_a_part_takes_from_the_whole(rows):
    work = ValueWork(np.array([1.0, 2.0, 3.0]), WorkPool(0))
    part = work.part(slice(3)).part(np.array(rows))
    assert [part.left(row) for row in range(len(rows))] == [row + 1.0 for row in rows]
    part.take(0, 10)
    assert np.flatnonzero(work.refused).tolist() == rows[:1]
    assert part.refused.tolist() == [True] + [False] * (len(rows) - 1)


def test_any_work_is_never_refused():
    part = ANY_WORK.part(slice(2)).part(np.array([1]))
    assert part.take(0, 1e12)
    assert part.left(0) == math.inf
    assert not part.is_limited
