"""What one value may take as columns: one rule for AVRO, JSON and PROTOBUF_NATIVE, before memory is taken."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats, value_bounds
from pulsar_spark.values.protobuf.costs import COPIES, take_items
from pulsar_spark.values.value_bounds import (
    ValueCost,
    ValueRoom,
    accepted,
    item_width,
    largest_unchecked,
    max_growth,
    part_ends,
    rows_to_check,
)
from tests.values.protobuf_files import file, message_class, schema

ROOT = Path(__file__).resolve().parents[3]
NAMES = [f"c{i}" for i in range(20)]


def avro(tree, kind=SchemaType.AVRO):
    return Schema(kind, json.dumps(tree).encode(), {})


def record(name, *fields):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t, **m} for n, t, m in fields]}


def array(items):
    return {"type": "array", "items": items}


WIDE = record("Wide", *((name, ["null", "long"], {"default": None}) for name in NAMES))
TREE = record(
    "Root",
    ("id", "long", {}),
    ("wide", array(WIDE), {}),
    ("deep", array(array("int")), {}),
    ("map", {"type": "map", "values": ["null", "Wide"]}, {}),
    ("texts", array("string"), {}),
    ("maybe", array(["null", "Wide"]), {}),
)
PROTO = file(
    "message M0\nint64 id = 1\nrepeated M1 wide = 2\nrepeated M2 deep = 3\nmap M1 map = 4\n"
    "repeated string texts = 5\nrepeated fixed32 fixed = 6\nM0b one = 7\n"
    "message M0b\nrepeated M1 wide = 1\n"
    "message M1\n"
    + "".join(f"optional int64 {name} = {i}\n" for i, name in enumerate(NAMES, 1))
    + "message M2\n"
    "repeated int32 items = 1\n"
)
WIDE_BITS = 1 + 20 * 65


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        (pa.list_(pa.null()), 1),
        (pa.list_(pa.bool_()), 1),
        (pa.list_(pa.int32()), 5),
        (pa.list_(pa.int64()), 9),
        (pa.list_(pa.decimal128(20, 0)), 17),
        (pa.list_(pa.string()), 5),
        (pa.list_(pa.list_(pa.int64())), 5),
        (pa.list_(pa.struct([])), 1),
        (pa.list_(pa.struct([(name, pa.int64()) for name in NAMES])), (WIDE_BITS + 7) // 8),
        (pa.map_(pa.string(), pa.int64()), (1 + 33 + 65 + 7) // 8),
    ],
    ids=str,
)
def test_the_width_of_an_item_is_that_of_all_its_columns(kind, width):
    assert item_width(kind) == width


def test_what_is_never_too_large_is_not_counted():
    assert accepted(1000) == (16 << 20) + 10_000
    assert largest_unchecked(10) is None
    assert largest_unchecked(42) == (16 << 20) // 32
    values = pa.array([b"xx", None, b"xxx", b"x", b"xxxx"])[1:]
    assert rows_to_check(values, 2).tolist() == [1, 3]
    assert rows_to_check(values, None).tolist() == rows_to_check(values, 999).tolist() == []


def test_growth_is_that_of_the_worst_list_and_of_the_worst_without_bytes():
    assert max_growth([]) == 0
    assert max_growth([(9, 1), (40, 4), (10, 2)]) == 10
    assert max_growth([(9, 1), (7, 0), (5, 0)]) == 9 + 7


def test_parts_are_cut_by_what_their_values_may_take(monkeypatch):
    monkeypatch.setattr(value_bounds, "_MAX_TOGETHER", 100)
    values, keys = (
        pa.array([b"x" * 5, None, b"", b"x" * 9, b"x", b"x", b"x"] * 2)[7:],
        pa.nulls(7, pa.binary()),
    )
    flat = pa.struct([("a", pa.int64()), ("b", pa.int64())])  # 17 bytes a row
    assert part_ends(flat, values, keys, [ValueCost()]) == [5, 7]
    assert part_ends(flat, values, keys, [ValueCost(16)]) == [3, 6, 7]
    assert part_ends(flat, values, keys, [ValueCost(1000)]) == [1, 2, 3, 4, 5, 6, 7]
    lists = pa.struct([("a", pa.struct([("b", pa.list_(pa.int64()))]))])  # 5 a row
    nine = [ValueCost(0, 9.0)]
    assert part_ends(lists, values, keys, nine) == [3, 5, 7]
    assert part_ends(lists, values, pa.array([None] * 4 + [b"x" * 8] * 3), nine) == [3, 4, 5, 6, 7]
    of_row = np.array([1, 1, 0, 0, 0, 0, 1])
    two = [ValueCost(), ValueCost(60, 3.0)]
    assert part_ends(lists, values, keys, two, of_row) == [1, 6, 7]
    # None takes more than it may.
    monkeypatch.setattr(value_bounds, "ALLOWANCE", 0)
    monkeypatch.setattr(value_bounds, "PER_BYTE", 2)
    assert part_ends(lists, values, keys, nine) == [7]


def test_usual_values_are_one_part():
    values, keys = pa.array([bytes(600)] * 10_000), pa.nulls(10_000, pa.binary())
    flat = pa.struct([(str(i), pa.int64()) for i in range(1000)])
    lists = pa.struct([("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.string()))])
    assert part_ends(flat, values, keys, [ValueCost()]) == [10_000]
    assert part_ends(lists, values, keys, [ValueCost(0, 9.0)]) == [10_000]


# ---- values of each kind, and what they take


def avro_value(wide, deep, more):
    """Sparse: c3 of each wide record is set."""
    sparse = b"\0\0\0\x02\x02" + b"\0" * 16
    value = b"\x02" + blocks([sparse] * wide) + blocks([blocks([b"\x02"] * deep)] * 3 * bool(deep))
    return (
        value
        + blocks([b"\x02" + bytes([97 + i]) + b"\0" for i in range(more)])
        + blocks([b"\x02x"] * more)
        + blocks([b"\0"] * more)
    )


def blocks(items):
    return b"".join(b"\x02" + item for item in items) + b"\0"


def json_value(wide, deep, more):
    return json.dumps(
        {
            "id": 1,
            "wide": [{"c3": 1}] * wide,
            "deep": [[1] * deep] * 3 * bool(deep),
            "map": {chr(97 + i): None for i in range(more)},
            "texts": ["x"] * more,
            "maybe": [None] * more,
        }
    ).encode()


def protobuf_value(wide, deep, more):
    value = message_class(PROTO, "p.M0")(id=1, texts=["x"] * more, fixed=[1 << 30] * more)
    for _ in range(wide):
        value.wide.add(c3=1)
        value.one.wide.add(c3=1)
    for _ in range(3 * bool(deep)):
        value.deep.add(items=[1] * deep)
    for i in range(more):
        value.map[chr(97 + i)].SetInParent()
    unpacked = b"\x1a\x04\x08\x01\x08\x01"  # two items of ``deep`` that are not packed
    return value.SerializeToString() + unpacked * bool(deep)


KINDS = {
    "AVRO": (avro(TREE), avro_value),
    "JSON": (avro(TREE, SchemaType.JSON), json_value),
    "PROTOBUF_NATIVE": (schema(PROTO, "p.M0"), protobuf_value),
}


def decode(of, payloads, target=None):
    decoder = formats.decoder(of, of, target or formats.column_type(of))
    found = decoder.decode(pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.binary()))
    found.column.validate(full=True)
    bad = [] if found.is_bad is None else found.is_bad.nonzero()[0].tolist()
    return found.column, bad, decoder


def taken(column):
    """Bytes that all items in a column take."""
    if pa.types.is_struct(column.type):
        return sum(map(taken, column.flatten()))
    if not pa.types.is_nested(column.type):
        return 0
    if pa.types.is_map(column.type):
        return len(column.keys) * item_width(column.type) + taken(column.items)
    return len(column.values) * item_width(column.type) + taken(column.values)


SIZES = [(3, 0, 0), (0, 9, 0), (0, 0, 9), (2, 3, 4), (300, 20, 20)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_is_bad_by_what_it_takes_itself_whatever_is_around_it(kind, sizes, monkeypatch):
    of, make = KINDS[kind]
    value, small = make(*sizes), make(0, 0, 0)
    column, bad, decoder = decode(of, [value])
    needed = taken(column)
    assert bad == []
    if kind == "PROTOBUF_NATIVE":  # the runtime takes memory, too
        room = ValueRoom(0)
        room.left += 1 << 30  # so that all are counted
        take_items(room, value, decoder.counted)
        room.left -= 1 << 30
        assert needed < room.accepted - room.left < 5 * needed + 500
        needed = room.accepted - room.left
    assert needed
    monkeypatch.setattr(value_bounds, "PER_BYTE", 0)
    for around in (0, 1, 70):
        payloads = [small] * around + [value, None] + [small] * around
        monkeypatch.setattr(value_bounds, "ALLOWANCE", needed)
        good, bad, _ = decode(of, payloads)
        assert bad == []
        monkeypatch.setattr(value_bounds, "ALLOWANCE", needed - 1)
        found, bad, decoder = decode(of, payloads)
        assert bad == [around]
        assert found[around].as_py() is None
        assert found[:around].equals(good[:around])
        assert found[around + 1 :].equals(good[around + 1 :])
        assert f"bytes as columns; the maximum is {needed - 1}" in decoder.explain(value, None)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_asked_for_takes_nothing(kind, monkeypatch):
    of, make = KINDS[kind]
    monkeypatch.setattr(value_bounds, "PER_BYTE", COPIES if kind == "PROTOBUF_NATIVE" else 0)
    monkeypatch.setattr(value_bounds, "ALLOWANCE", 1)
    column, bad, _ = decode(of, [make(300, 20, 20)], pa.struct([("id", pa.int64())]))
    assert bad == []
    assert column.to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_values_of_a_thousand_items_are_read(kind):
    of, make = KINDS[kind]
    column, bad, _ = decode(of, [make(1000, 100, 20)] * 20)
    assert bad == []
    assert len(column[19]["wide"]) == 1000
    assert column[19]["wide"][999].as_py() == {name: 1 if name == "c3" else None for name in NAMES}


def test_members_of_a_union_that_are_not_its_type_take_no_room(monkeypatch):
    one, two = (record(n, ("a", array("long"), {}), (n, ["null", "long"], {"default": None})) for n in "xy")
    of = avro(record("Root", ("u", [one, two], {})), SchemaType.JSON)
    monkeypatch.setattr(value_bounds, "PER_BYTE", 0)
    for text, items in [
        (b'{"u":{"a":[1,2],"y":1}}', 2),
        (b'{"u":{"a":[1,2],"x":1}}', 2),
        (b'{"u":{"a":[1,2],"x":true}}', 2),  # tried as x, too
        (b'{"u":{"a":[1,2],"z":1}}', 2),
    ]:
        for more, is_bad in [(0, False), (-1, True)]:
            monkeypatch.setattr(value_bounds, "ALLOWANCE", items * 9 + more)
            assert bool(decode(of, [text])[1]) == is_bad, (text, more)


# ---- text of the schema

LONG = "x" * 5_000
SYMBOL = {"type": "enum", "name": "E", "symbols": ["y" * 900, "z"]}
OLD = record("Root", ("id", "long", {}))
WITH_TEXT = record(
    "Root",
    ("id", "long", {}),
    ("text", "string", {"default": LONG}),
    ("texts", array("string"), {"default": ["z" * 100] * 20}),
    (
        "many",
        array(record("Item", ("s", "string", {"default": ""}), ("t", "string", {"default": LONG}))),
        {"default": []},
    ),
)
ITEMS = record("Root", ("id", "long", {}), ("many", array(record("Item", ("s", "string", {}))), {}))
NAMED = "x" * 900
TEXTS_OF_PROTO = file(
    f"message M0\noptional int64 id = 1\noptional string text = 2 = {NAMED}\nrepeated M1 many = 3\n"
    f"message M1\noptional string t = 1 = {NAMED}\n",
    syntax="proto2",
)
ADDED = {
    "AVRO": (avro(OLD), avro(WITH_TEXT), b"\x02", None),
    "AVRO items": (
        avro(ITEMS),
        avro(WITH_TEXT),
        None,
        lambda count: b"\x02" + blocks([b"\xc8\1" + b"s" * 100] * count),
    ),
    "AVRO enum": (avro(record("R", ("e", SYMBOL, {}))), avro(record("R", ("e", SYMBOL, {}))), b"\0", None),
    "JSON": (avro(OLD, SchemaType.JSON), avro(WITH_TEXT, SchemaType.JSON), b"{}", None),
    "JSON items": (
        avro(ITEMS, SchemaType.JSON),
        avro(WITH_TEXT, SchemaType.JSON),
        None,
        lambda count: b'{"many":[' + b",".join([b"{}"] * count) + b"]}",
    ),
    "PROTOBUF_NATIVE": (schema(TEXTS_OF_PROTO, "p.M0"), schema(TEXTS_OF_PROTO, "p.M0"), b"", None),
    "PROTOBUF_NATIVE items": (
        schema(TEXTS_OF_PROTO, "p.M0"),
        schema(TEXTS_OF_PROTO, "p.M0"),
        None,
        lambda count: b"\x1a\0" * count,
    ),
}


@pytest.mark.parametrize("name", ADDED)
def test_text_that_a_schema_adds_counts_in_parts(name, monkeypatch):
    writer, reader, payload, make = ADDED[name]
    monkeypatch.setattr(value_bounds, "_MAX_TOGETHER", 1 << 20)
    decoder = formats.decoder(writer, reader, formats.column_type(reader))
    payloads = [payload] * 2_000 if make is None else [make(count % 30) for count in range(300)]
    values, keys = pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.binary())
    ends = part_ends(decoder.type, values, keys, [decoder.cost])
    first = size = 0
    for end in ends:
        found = decoder.decode(values[first:end], keys[first:end])
        assert found.is_bad is None
        assert found.column.nbytes <= 1 << 20
        first, size = end, size + found.column.nbytes
    assert first == len(payloads)
    assert size > 1 << 20
    if make is None:  # the items that a payload may have are not counted
        assert len(ends) < 4 * size / (1 << 20) + 2, "parts that are smaller than they need be"


# ---- memory: by what counts above, and before a release as the system counts

ATTACK = """
import pyarrow as pa
from pulsar_spark.values import formats
from tests.values import test_value_bounds as own

of, attacks = own.KINDS[{kind!r}][0], own.attacks({kind!r})
decoder = formats.decoder(of, of, formats.column_type(of))
before = own.peak()
for attack in attacks:
    found = decoder.decode(pa.array([attack]), pa.nulls(1, pa.binary()))
    assert found.is_bad.all()
    assert "bytes as columns" in decoder.explain(attack, None), decoder.explain(attack, None)
print(own.peak(is_over=True) - before)
"""


def peak(*, is_over=False):
    """KiB that the process had at most, since this was asked for the first time."""
    if not is_over:  # what the imports took does not count, nor what the process was forked from
        Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def attacks(kind, items=1_700_000):
    """Payloads of a few bytes an item, which take 163 each."""
    if kind == "JSON":
        return [b'{"wide":[' + b",".join([b"{}"] * items) + b"]}"]
    if kind == "PROTOBUF_NATIVE":
        many = b"\x0a\0" * items
        return [b"\x12\0" * items, b"\x3a" + varint(len(many)) + many]
    return [bytes(5) + varint(2 * items) + bytes(items) + b"\0"]


def varint(number):
    size = max(1, (number.bit_length() + 6) // 7)
    parts = [number >> 7 * i & 127 | 128 * (i < size - 1) for i in range(size)]
    return bytes(parts)


READ = """
import os
import pyarrow as pa
from pulsar_spark.values import formats
from tests.values import test_value_bounds as own

for name, size in own.READS:
    if os.fork():
        assert os.wait()[1] == 0, (name, size)
        continue
    of, make = own.LARGE[name]
    decoder = formats.decoder(of, of, formats.column_type(of))
    value = make(size)
    values, keys = pa.array([value]), pa.nulls(1, pa.binary())
    decoder.decode(pa.array([make(1000)]), keys)  # pages of libraries, which count where they are first used
    before = own.peak()
    found = decoder.decode(values, keys)
    print(name, size, len(value), own.peak(is_over=True) - before, found.is_bad is None, sep=";", flush=True)
    os._exit(0)
"""


LARGE = {
    "longs": (avro(array("long")), lambda size: varint(2 * size) + bytes(size) + b"\0"),
    "longs, some in a block": (avro(array("long")), lambda size: (b"\x10" + bytes(8)) * (size // 9) + b"\0"),
    "records": (
        avro(array(record("R", ("n", "long", {}), ("m", ["null", "long"], {})))),
        lambda size: varint(size) + bytes(size) + b"\0",
    ),
    "doubles": (avro(array("double")), lambda size: varint(size // 4) + bytes(size // 8 * 8) + b"\0"),
    "texts": (avro(array("string")), lambda size: varint(size // 2) + b"\x06abc" * (size // 4) + b"\0"),
    "JSON text": (
        avro(record("R", ("a", "string", {})), SchemaType.JSON),
        lambda size: b'{"a":"\xf0\x9f\x98\x80' + b"a" * size + b'"}',
    ),
    "JSON text with escapes": (
        avro(record("R", ("a", "string", {})), SchemaType.JSON),
        lambda size: b'{"a":"\xf0\x9f\x98\x80' + b'a\\"\\ud83d\\ude00' * (size // 15) + b'"}',
    ),
    "JSON bytes": (
        avro(record("R", ("a", "bytes", {})), SchemaType.JSON),
        lambda size: b'{"a":"\xf0\x9f\x98\x80' + b"a" * size + b'"}',
    ),
    "JSON names": (
        avro({"type": "map", "values": "int"}, SchemaType.JSON),
        lambda size: b'{"\xf0\x9f\x98\x80' + b"a" * size + b'":1}',
    ),
    "JSON numbers": (avro(array("long"), SchemaType.JSON), lambda size: b"[" + b"1," * (size // 2) + b"1]"),
    "packed": (
        schema(file("message M\nrepeated int64 n = 1\n"), "p.M"),
        lambda size: b"\x0a" + varint(size) + b"\x01" * size,
    ),
    "packed doubles": (
        schema(file("message M\nrepeated double n = 1\n"), "p.M"),
        lambda size: b"\x0a" + varint(size // 8 * 8) + bytes(size // 8 * 8),
    ),
    "messages": (
        schema(
            file("message M\nrepeated N n = 1\nmessage N\noptional int64 a = 1\noptional string b = 2\n"),
            "p.M",
        ),
        lambda size: b"\x0a\x06\x08\x05\x12\x02ab" * (size // 8),
    ),
    "words": (
        schema(file("message M\nrepeated string n = 1\n"), "p.M"),
        lambda size: b"\x0a\x05hello" * (size // 7),
    ),
}
REFUSED = {("packed", 8 << 20), ("messages", 8 << 20)}
SLOW = {"longs, some in a block", "records", "JSON numbers"}  # a second for each 2 MiB
READS = [(name, size) for name in LARGE for size in (500 << 10, (3 if name in SLOW else 8) << 20)]
INDEXED = {"longs"}  # varints alone: VarintEnds takes 4 bytes for each, and a flag for each byte
ALLOCATORS = 6 << 20  # bytes that they keep beside what is asked of them; older ones more


@pytest.mark.long
def test_reading_takes_ten_times_the_bytes_at_most():
    # Each in a process of its own, which are forked since imports take longest.
    told = subprocess.run(
        [sys.executable, "-c", READ],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    lines = [line.split(";") for line in told.stdout.splitlines()]
    assert [(name, int(size)) for name, size, *_ in lines] == READS
    for name, size, length, taken, is_good in lines:
        assert (is_good == "True") is ((name, int(size)) not in REFUSED)
        more = (int(taken) << 10) - accepted(int(length)) - 5 * int(length) * (name in INDEXED)
        assert more < ALLOCATORS, f"{name}: {length} bytes took {taken} KiB"


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_of_a_few_megabytes_does_not_fill_a_worker(kind):
    told = subprocess.run(
        [sys.executable, "-c", ATTACK.format(kind=kind)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    most = 200 if kind == "JSON" else 150
    assert int(told.stdout.split()[-1]) < most * 1024  # KiB
