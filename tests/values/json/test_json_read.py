import random
import tracemalloc
from datetime import date, datetime, timezone
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.errors import UnsupportedError
from pulsar_spark.schema import SchemaType
from pulsar_spark.values import value_bounds
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroMap,
    AvroRecord,
    AvroUnion,
    is_member_struct,
)
from pulsar_spark.values.json import json_read, json_write
from pulsar_spark.values.json.json_read import ArrowReader, decoder
from pulsar_spark.values.json.tree import make_tree
from pulsar_spark.values.json_types import column_type
from tests.loops import a_few_of, for_each
from tests.values.json_payloads import (
    Maker,
    ModelError,
    UnknownError,
    broken,
    json_schema,
    model,
    plain,
    read_objects,
)
from tests.values.random_avro import column as random_column
from tests.values.random_avro import random_case, schema_of_tree

ROWS = 200


@pytest.fixture(autouse=True)
def _few_rows_by_lines(monkeypatch):
    monkeypatch.setattr(json_read, "_FEWEST_ROWS", 1)
    monkeypatch.setattr(json_read, "ArrowReader", partial(ArrowReader, fewest_of_part=1))


def column(payloads):
    return pa.array(payloads, pa.binary())


def some_payloads(maker, tree, count=ROWS, damaged=3):
    """JsonPayloads of which one of ``damaged`` is broken, and some are tombstones."""
    payloads = [maker.payload(tree) for _ in range(count)]
    pick = maker.random
    for row in range(count):
        if pick.randrange(damaged) == 0:
            payloads[row] = broken(pick, payloads[row], payloads[row - 1])
    return [None if pick.random() < 0.02 else payload for payload in payloads]


def check(tree, payloads, decode=None):
    """Read payloads in both ways, which must agree; returns the verdicts."""
    schema = json_schema(tree)
    made = decoder(schema, schema, column_type(schema))
    offset = column([b"{}", *payloads]).slice(1)
    for _ in range(2):  # the second time with what was learned the first time
        found = made.decode(offset, offset)
        found.column.validate(full=True)
        objects = read_objects(make_tree(schema, schema, column_type(schema)), payloads)
        objects.column.validate(full=True)
        assert found.column.type == made.type == column_type(schema)
        is_bad = np.zeros(len(payloads), np.bool_) if objects.is_bad is None else objects.is_bad
        assert repr(plain(found.column)) == repr(plain(objects.column))
        assert (found.is_bad is None and not is_bad.any()) or found.is_bad.tolist() == is_bad.tolist()
    return found, is_bad


def check_model(tree, payloads, found, is_bad):
    """Compare with the second reader; returns how many payloads it could read or refuse."""
    compared = 0
    for payload, value, bad in zip(payloads, plain(found.column), is_bad.tolist(), strict=True):
        if payload is None:
            assert (value, bad) == (None, False)
            continue
        try:
            expected = model(tree, payload)
        except UnknownError:
            continue
        except ModelError:
            assert bad, payload
        else:
            assert not bad, (payload, explain_it(tree, payload))
            assert repr(value) == repr(expected), payload
        compared += 1
    return compared


def explain_it(tree, payload):
    schema = json_schema(tree)
    return decoder(schema, schema, column_type(schema)).explain(payload, None)


@pytest.mark.parametrize("seed", a_few_of(12, 4))
def test_by_lines_by_objects_and_by_a_model_values_and_verdicts_are_the_same(seed):
    maker = Maker(seed, has_unions=False)
    tree = maker.record()
    payloads = some_payloads(maker, tree)
    found, is_bad = check(tree, payloads)
    assert check_model(tree, payloads, found, is_bad) > ROWS / 2
    schema = json_schema(tree)
    made = decoder(schema, schema, column_type(schema))
    assert [bool(made.explain(payload, None)) for payload in payloads] == is_bad.tolist()


@for_each("seed", range(100, 108))
def test_unions_are_read_with_neighbours_whole(seed):
    maker = Maker(seed)
    tree = maker.record()
    tree["fields"].append({"name": "u", "type": ["null", "string", "long", "boolean"]})
    check(tree, some_payloads(maker, tree))


FLAT = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}],
}
GOOD = [b'{"a":%d,"b":"x%d"}' % (row, row) for row in range(ROWS)]


BAD = [
    b"",
    b"{}{}",
    b'{"a":1,"b":"x"}{"a":2,"b":"y"}',
    b'{"a":1,"b":"x"},{"a":2,"b":"y"}',
    b'{"a":1,"b":"x"}\n{"a":2,"b":"y"}',
    b'{"a":1,"b":"x',
    b'{"a":1',
    b'x","a":1}',
    b'{"a":1,"b":"x\\',
    b'"}',
    b'},{"n":5,"r":{',
    b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}',
    b'{"a":1}\0',
    b'{"a":1,"b":"\0"}',
    b'{"a":1,"b":"\n"}',
    b'{"a":1,"b":"\xff"}',
    b'{"a":1,"b":"\xed\xa0\x80"}',
    b'{"a":1,"b":"\\ud800"}',
    b'{"a":' + b"9" * 5_000 + b"}",
    b'{"a":1e999999}',
    b'{"a":1e9999999999999999999999}',
    b"[" * 20_000,
    b'{"z":' + b"[" * 20_000,
    b'{"z":' * 20_000,
    b'{"z":' + b"[" * 1000 + b"]" * 1000 + b"}",
    b'{"a":1,"\\ud800":' + b'{"":' * 1000 + b'"' + b"]" * 2000 + b'"' + b"}" * 1001,
    b'{"a":1,}',
    b"[]",
]


@for_each(("number", "bad"), enumerate(BAD))
def test_a_bad_payload_changes_no_neighbour(number, bad):
    row = (0, 77, ROWS - 1)[number % 3]
    payloads = [*GOOD[:row], bad, *GOOD[row + 1 :]]
    found, is_bad = check(FLAT, payloads)
    assert np.flatnonzero(is_bad).tolist() == [row]
    expected = [{"a": each, "b": f"x{each}"} for each in range(ROWS)]
    expected[row] = None
    assert found.column.to_pylist() == expected


DEEP = [
    b'{"z":%s,"a":5}' % (b"[" * 999 + b"]" * 999),
    b'{"z":%s,"a":5}' % (b'{"y":' * 999 + b"NaN" + b"}" * 999),
    b'{"z":"%s","a":5}' % (b'\\"\\\\' + b"[" * 5000),
    b'{"z":[%s],"a":5}' % (b"[[]]," * 5000 + b"{}"),
]


@for_each("deep", DEEP)
def test_what_nobody_asks_for_may_nest_a_thousand_brackets(deep):
    """However deep Python's stack is already."""

    def below(frames):
        return below(frames - 1) if frames else check(FLAT, [deep, *GOOD])

    found, is_bad = below(200)
    assert not is_bad.any()
    assert found.column[0].as_py() == {"a": 5, "b": None}


def test_a_byte_order_mark_is_skipped_and_the_last_of_a_name_counts():
    payloads = [b'\xef\xbb\xbf {"a":1,"b":"x"}', b'{"a":"x","a":2}', b'{"a":1,"b":"y","b":null}']
    found, is_bad = check(FLAT, payloads)
    assert not is_bad.any()
    assert found.column.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 1, "b": None}]


def test_tombstones_and_null_are_null_rows_and_not_bad():
    found, is_bad = check(FLAT, [None, b"null", b" null\n", *GOOD])
    assert not is_bad.any()
    assert found.column.to_pylist()[:4] == [None, None, None, {"a": 0, "b": "x0"}]


def test_a_batch_may_be_empty_or_have_nothing_but_tombstones():
    for payloads in ([], [None] * ROWS):
        found, _ = check(FLAT, payloads)
        assert found.column.to_pylist() == payloads


def test_layouts_of_several_producers_are_learned_in_one_batch():
    orders = (b'{"a":%d,"b":"x"}', b'{ "b": "x", "a": %d }', b'{"c":[{"d":1}],"a":%d,"b":"x"}')
    payloads = [orders[row % 3] % row for row in range(ROWS)]
    found, is_bad = check(FLAT, payloads)
    assert not is_bad.any()
    assert found.column.to_pylist() == [{"a": row, "b": "x"} for row in range(ROWS)]


def test_roots_need_not_be_records():
    for tree, payload, value in (
        ("long", b"5", 5),
        ("string", b'"a\\n"', "a\n"),
        ({"type": "array", "items": "int"}, b"[1]", [1]),
    ):
        found, is_bad = check(tree, [payload] * ROWS + [b""] + [payload] * ROWS)
        assert is_bad.tolist() == [False] * ROWS + [True] + [False] * ROWS
        assert found.column.to_pylist() == [value] * ROWS + [None] + [value] * ROWS


def test_explain_says_nothing_of_tombstones_and_of_good_values():
    assert explain_it(FLAT, None) == ""
    assert explain_it(FLAT, b'{"a":1}') == ""


def has_union(avro):
    parts = {
        AvroRecord: lambda: [field.type for field in avro.fields],
        AvroArray: lambda: [avro.items],
        AvroMap: lambda: [avro.values],
        AvroUnion: lambda: avro.branches,
    }.get(type(avro), list)()
    return (isinstance(avro, AvroUnion) and is_member_struct(avro)) or any(map(has_union, parts))


@for_each("seed", range(60))
def test_what_json_write_writes_is_read_again(seed):
    pick = random.Random(seed)
    tree, avro, values = random_case(pick, 40)
    rows = random_column(values, avro)
    schema = schema_of_tree(tree, SchemaType.JSON)
    payloads = json_write.encoder(schema, rows.type)(rows).values
    found = decoder(schema, schema, rows.type).decode(payloads, payloads)
    assert found.is_bad is None
    # Two members of a union may look alike in JSON.
    if not has_union(avro):
        assert repr(plain(found.column)) == repr(plain(rows))


INNER = {"type": "record", "name": "I", "fields": [{"name": "street", "type": "string"}]}
CLIENTS = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "int"},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": ["null", {"type": "string", "java-class": "java.math.BigDecimal"}]},
        {"name": "inner", "type": ["null", INNER]},
        {"name": "color", "type": ["null", {"type": "enum", "name": "E", "symbols": ["RED"]}]},
    ],
}
BY_JAVA = (
    b'{"a":7,"raw":"AP8=","at":1700000000.123456789,"day":[2023,11,14],"price":12.30,'
    b'"inner":{"street":"st"},"color":"RED"}'
)
BY_PYTHON = (
    b'{\n "a": 7,\n "raw": "no base64",\n "price": "12.30",\n "inner": {\n  "street": "st"\n },'
    b'\n "color": 1\n}'
)


@pytest.mark.parametrize("rows", [1, ROWS])
def test_what_the_clients_of_java_and_python_write_is_read(rows):
    schema = json_schema(CLIENTS, {})
    payloads = column([BY_JAVA, BY_PYTHON] * rows)
    found = decoder(schema, schema, column_type(schema)).decode(payloads, payloads)
    assert found.is_bad is None
    java = {
        "a": 7,
        "raw": b"\x00\xff",
        "at": datetime(2023, 11, 14, 22, 13, 20, 123456, timezone.utc),
        "day": date(2023, 11, 14),
        "price": "12.30",
        "inner": {"street": "st"},
        "color": "RED",
    }
    python = java | {"raw": b"no base64", "at": None, "day": None, "color": "1"}
    assert found.column.to_pylist() == [java, python] * rows


def test_more_than_a_column_can_hold_is_an_error_that_says_what_to_do(monkeypatch):
    def full(*_):
        raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")

    monkeypatch.setattr(json_read, "joined", full)
    schema = json_schema(FLAT)
    with pytest.raises(UnsupportedError, match="1 values are too large for one Arrow column"):
        decoder(schema, schema, column_type(schema)).decode(column([b"{}"]), column([None]))


@for_each("part", [b"[", b'{"z":', b'"', b"\\", b"{},", b"1,", b"\n", b"9"])
@for_each("size", [100_000, 500])
def test_a_payload_takes_memory_in_proportion_to_its_bytes(part, size):
    schema = json_schema(FLAT)
    made = decoder(schema, schema, column_type(schema))
    payloads = column([b'{"z":[' + part * (size // len(part))] * (100_000 // size))
    made.decode(payloads, payloads)
    tracemalloc.start()
    try:
        made.decode(payloads, payloads)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Payloads are parsed in parts, which have a maximum size.
    assert peak < 50 * min(payloads.nbytes, json_read._MAX_BYTES) + (1 << 20)


@pytest.mark.parametrize(
    ("avro", "part"),
    [
        (["null"], None),
        ("boolean", None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, None),
        (["string", "long"], pa.struct([])),
    ],
    ids=["null", "boolean", "decimal", "union"],
)
def test_what_items_without_values_take_while_they_are_read_is_bounded(avro, part, monkeypatch):
    monkeypatch.setattr(value_bounds, "ALLOWANCE", 1 << 16)
    names = [f"c{i}" for i in range(100)]
    fields = [{"name": name, "type": avro} for name in names]
    inner = {"type": "record", "name": "I", "fields": fields}
    schema = json_schema({"type": "array", "items": inner})
    whole = column_type(schema)
    target = whole if part is None else pa.list_(pa.struct([(name, part) for name in names]))
    made = decoder(schema, schema, target)
    payloads = column([b"[" + b"{}," * 5_000 + b"{}]"])
    tracemalloc.start()
    try:
        found = made.decode(payloads, column([None]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.is_bad.tolist() == [True]
    assert peak < 10 * payloads.nbytes + (1 << 19)
