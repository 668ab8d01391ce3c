"""Values of kind AVRO with many items, and records within themselves: rows, and bounds of work and memory."""

import itertools
import json
import tracemalloc

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from tests.loops import for_each
from tests.values.avro.decoding import array, decode, encoded, made, map_of, record, renamed, rows
from tests.work import calls

A = record(("x", "int"), name="A")
COLOURS = {"type": "enum", "name": "E", "symbols": ["RED", "GREEN", "BLUE"]}


def varint(number):
    return encoded("long", number)


ITEMS = {
    "long": (b"\4", 2),
    "double": (b"\0" * 8, 0.0),
    "string": (b"\2a", "a"),
    "boolean": (b"\1", True),
    json.dumps(["null", "int"]): (b"\2\4", 2),
    json.dumps(record(("s", "string"), ("d", "double"), name="I")): (
        b"\2a" + b"\0" * 8,
        {"s": "a", "d": 0.0},
    ),
    json.dumps(array("long")): (b"\2\4\0", [2]),
    json.dumps(COLOURS): (b"\2", "GREEN"),
}


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("lengths", [[3_000, 0, 3], [3] * 200, [0, 1, 2, 3] * 40 + [500] * 3])
@pytest.mark.parametrize("block", [None, 1, -2])
def test_arrays_of_any_length_and_blocks(item, lengths, block, monkeypatch):
    monkeypatch.setattr("pulsar_spark.values.avro.items.ITEMS_AT_ONCE", 1000)
    tree = array(item if item in ("long", "double", "string", "boolean") else json.loads(item))
    raw, value = ITEMS[item]

    def payload(length):
        whole = b""
        size = min(length, abs(block or length))
        for at in range(0, length, size or 1):
            count = min(size, length - at)
            body = raw * count
            whole += (varint(-count) + varint(len(body)) if block == -2 else varint(count)) + body
        return whole + b"\0"

    done = decode(made(tree), [payload(length) for length in lengths])
    assert done.is_bad is None
    assert [len(row) for row in done.column.to_pylist()] == lengths
    assert set(map(repr, done.column.flatten().to_pylist())) == {repr(value)}


@for_each("item", ["long", "double", "string"])
def test_no_item_of_a_long_array_takes_a_step_of_all_rows(item):
    """Such a step has dozens of calls."""
    raw, read = ITEMS[item][0], made(array(item))
    for payloads in ([varint(6_000) + raw * 6_000 + b"\0"] * 2, [(b"\2" + raw) * 6_000 + b"\0"]):
        assert calls(lambda payloads=payloads: decode(read, payloads)) < 16 * 6_000


NOTHING = [
    array("null"),
    array(record(name="N")),
    array({"type": "fixed", "name": "F", "size": 0}),
    array(array("null")),
]


@pytest.mark.parametrize("tree", NOTHING)
def test_items_without_bytes_are_bounded_by_the_bytes(tree):
    read = made(tree)
    head = b"\2" if tree == array(array("null")) else b""
    many = head + varint(2**60) + b"\0" * 2
    worst = head + varint(-(2**63)) + varint(0) + b"\0" * 2
    one = head + b"\2\0" + (b"\0" if head else b"")
    decode(read, [one, many])  # what the first call of a process loads is not counted
    tracemalloc.start()
    done = decode(read, [one, many, one, worst, one])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert done.is_bad.tolist() == [False, True, False, True, False]
    assert peak < 1 << 20
    assert "too many" in read.explain(many, None)


def test_many_small_arrays_share_the_bound_of_their_row():
    """Each of them alone may be that long."""
    payload = varint(10_000) + (varint(9_000) + b"\0") * 10_000 + b"\0"
    assert decode(made(array(array("null"))), [payload, b"\0"]).is_bad.tolist() == [True, False]


def test_symbols_and_defaults_do_not_multiply_without_bound():
    long = renamed(COLOURS, symbols=["x" * 900])
    done = decode(made(array(long)), [varint(50_000) + b"\0" * 50_001, varint(2) + b"\0" * 3])
    assert done.is_bad.tolist() == [True, True]
    reader = array(record(("x", "int"), ("d", "string", {"default": "y" * 900}), name="A"))
    assert decode(made(array(A), reader), [varint(50_000) + b"\2" * 50_000 + b"\0"]).is_bad.tolist() == [True]
    with pytest.raises(UnsupportedError, match="defaults that the topic's schema adds"):
        made(record(), record(("d", "string", {"default": "y" * 100_000})))


def test_schemas_that_take_too_long_to_compare():
    """Each branch of each union is compared with each branch of the other."""

    numbers = itertools.count()

    def tree(level, leaf):
        if not level:
            return leaf
        fields = [tree(level - 1, leaf) for _ in range(3)]
        return [record(("f", each), name=f"n.R{next(numbers)}") for each in fields]

    def compare():
        with pytest.raises((UnsupportedError, SchemaError)):
            made(tree(6, "int"), tree(6, "string"))

    assert calls(compare) < 1_000_000


# ---- records within themselves, which have no column

NODE = record(
    ("v", "int"),
    ("next", ["null", "N"], {"default": None}),
    ("kids", array("N"), {"default": []}),
    ("by", map_of(["null", "N", "string", "double", "boolean"]), {"default": {}}),
    name="N",
)


def node(number, depth):
    return {
        "v": number,
        "next": node(number, depth - 1) if depth else None,
        "kids": [node(number, depth - 2)] * 2 if depth > 2 else [],
        "by": {"a": None, "b": node(number, 0) if depth else "t", "c": 1.5, "d": True},
    }


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_a_new_field_of_a_recursive_type_leaves_the_other_fields(kind):
    older = record(("a", "int"), ("z", ["null", "string"], {"default": None}))
    newer = record(
        ("a", "int"),
        ("node", ["null", NODE], {"default": None}),
        ("z", ["null", "string"], {"default": None}),
    )
    old, new = (Schema(kind, json.dumps(tree).encode()) for tree in (older, newer))
    values = [{"a": i, "node": node(i, i % 5) if i % 3 else None, "z": "end"} for i in range(30)]
    if kind is SchemaType.AVRO:
        payloads = [encoded(newer, value) for value in values]
    else:
        payloads = [json.dumps(value).encode() for value in values]
    expected = [{"a": i, "z": "end"} for i in range(30)]
    column = formats.column_type(old)
    for reader in (old, new):
        assert rows(formats.decoder(new, reader, column), payloads) == expected
    a = pa.struct([("a", pa.int32())])
    assert rows(formats.decoder(new, new, a), payloads) == [{"a": i} for i in range(30)]
    whole = rows(formats.decoder(new, new, formats.column_type(new)), payloads)
    if kind is SchemaType.AVRO:
        assert [row["node"] for row in whole] == [{"v": i} if i % 3 else None for i in range(30)]
    else:
        assert [row["node"] and row["node"]["v"] for row in whole] == [
            i if i % 3 else None for i in range(30)
        ]
    assert list(formats.new_values(new, old)) == []


def test_the_fields_of_a_recursive_record_that_have_a_column_are_read():
    payloads = [encoded(NODE, node(i, i % 6)) for i in range(20)]
    decoder = made(NODE)
    assert decoder.type == pa.struct([("v", pa.int32())])
    assert rows(decoder, payloads) == [{"v": i} for i in range(20)]
    for payload in payloads[3], payloads[2]:  # 3 has nodes at each place
        for end in range(len(payload)):
            assert decode(decoder, [payload[:end], payload]).is_bad.tolist() == [True, False]
        assert decode(decoder, [payload + b"\0", payload]).is_bad.tolist() == [True, False]


def test_records_in_each_other_may_be_deeper_than_the_stack():
    last = record(("v", "int"), ("next", ["null", "N"]), name="N")
    first = record(("next", ["null", "N"]), ("v", "int"), name="N")
    assert rows(made(last), [b"\x02\x02" * 50_000 + b"\x02\0"]) == [{"v": 1}]
    assert rows(made(first), [b"\x02" * 5_000 + b"\0" + b"\x02" * 5_001]) == [{"v": 1}]
    too_deep = b"\x02" * 50_000 + b"\0" + b"\x02" * 50_001
    assert decode(made(first), [too_deep]).is_bad.tolist() == [True]
    assert made(first).explain(too_deep, None).endswith("records in each other that are too many")
    nulls = record(*((f"n{i}", "null") for i in range(5000)), ("next", ["null", "N"]), ("v", "int"), name="N")
    assert decode(made(nulls), [b"\x02" * 5_000]).is_bad.tolist() == [True]
