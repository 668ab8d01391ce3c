"""Payloads of any layout are read by columns; test_json_read shows that their values are right."""

import json
import random

import pyarrow as pa
import pytest

from pulsar_spark.values.json import json_read
from pulsar_spark.values.json.by_column.cursor import JsonPayloads
from pulsar_spark.values.json.by_column.names import Names
from pulsar_spark.values.json.by_column.tape_read import TapeReader
from pulsar_spark.values.json.by_column.unescape import unescaped
from pulsar_spark.values.json.general import read_rows
from pulsar_spark.values.json.json_read import column_type, decoder
from tests.values.json_payloads import json_schema, record, tree_of

ROWS = 300


RECORDS = [record(f"U{number}", **{f"a{number}": "long", "b": "string"}) for number in range(30)]
KINDS = {
    "names in any order": (
        record(a="int", b="string", c="double", d="boolean"),
        lambda rnd, i: dict(rnd.sample(list({"a": i, "b": f"x{i}", "c": i / 4, "d": True}.items()), 4)),
    ),
    "a union": (
        record(a="int", u=["null", "string", "long", "boolean"]),
        lambda rnd, i: {"a": i, "u": rnd.choice(["text", i, False, None])},
    ),
    "a union of records": (
        record(u=["null", *RECORDS]),
        lambda rnd, i: {"u": {f"a{rnd.randrange(30)}": i, "b": "text"}},
    ),
    "long arrays": (
        record(a={"type": "array", "items": "int"}),
        lambda rnd, i: {"a": list(range(60 + i % 50))},
    ),
    "escapes": (record(a="string"), lambda rnd, i: {"a": f'say "{i}"\n\té𝄞'}),
    "unknown values": (
        record(a="int"),
        lambda rnd, i: dict(rnd.sample([("a", i), ("x", [{"y": [i, None]}]), ("z", {})], 3)),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_not_read_row_by_row(kind, monkeypatch):
    avro, make = KINDS[kind]
    rnd = random.Random(1)
    payloads = [json.dumps(make(rnd, i), separators=(",", ":")).encode() for i in range(ROWS)]
    seen = []
    monkeypatch.setattr(json_read, "read_rows", lambda node, rows: read_rows(node, seen.extend(rows) or seen))
    schema = json_schema(avro)
    made = decoder(schema, schema, column_type(schema))
    found = made.decode(pa.array(payloads, pa.binary()), pa.nulls(ROWS, pa.binary()))
    assert found.is_bad is None
    assert found.column.equals(read_rows(tree_of(avro), payloads).column)
    assert not seen


def taken(avro, *texts):
    """Which payloads are read by their tokens."""
    column = pa.array([text.encode() for text in texts], pa.binary())
    values, rows = TapeReader(tree_of(avro)).read(JsonPayloads(column))
    values.validate(full=True)
    return rows.tolist()


def test_what_is_no_json_is_left():
    avro = record(a="int", b={"type": "array", "items": "int"})
    good = '{"a":1,"b":[1,2]}'
    bad = [
        *('{"a":1,}', '{"a":1,"b":[1,]}', '{"a":1,"b":[1 2]}', '{"a" 1}', '{,"a":1}', '{"a":1}}', '{"a":1'),
        *("", "{", '{"a":1[2],"b":[]}', '{"b":[1 [2]]}', '{"b":[1][2]}', '{"a":1:2}', '{"a"}', "{[1]}"),
        *('{"a":1 "b":[]}', '{"b":[1}', '{"b":[,1]}', '{"a":}', "{1}", '{"x":"y"[1]}', '{"x":[tru]}'),
        *('{"a":1,"a":1}', '{"x":{"y":1 2}}', '["a":1]', '{"a":1}x', 'x{"a":1}', '{"x":"\\q"}', good * 2),
        '{"a":1,"b":{]}',
    ]
    assert taken(avro, good, *bad, good) == [0, len(bad) + 1]


def test_a_member_that_may_be_another_is_left():
    """The first that reads it counts, and text that is a number is one to ``general`` alone."""
    assert taken(record(u=["long", "string"]), '{"u":1}', '{"u":1.0}', '{"u":"x"}') == [0, 2]
    assert taken(record(u=["long", "boolean"]), '{"u":"1"}', '{"u":true}') == [1]


def test_names_that_differ_in_the_middle_are_told_apart():
    names = ["customer_first_identifier", "customer_other_identifier", "a", "", "12345678"]
    payloads = JsonPayloads(pa.array(["".join(f'"{name}"' for name in (*names, "b"))], pa.binary()))
    quotes = payloads.quotes[:-2].astype("int64")
    assert Names(names).find(payloads, quotes[::2] + 1, quotes[1::2]).tolist() == [0, 1, 2, 3, 4, -1]
    assert not Names(["a", 'quo"te']).can_find
    assert not Names(["x" * 129]).can_find


def test_escapes_are_those_of_json():
    rnd = random.Random(5)
    atoms = [
        "\\n",
        "\\t",
        '\\"',
        "\\\\",
        "\\/",
        "\\b",
        "\\f",
        "\\r",
        "\\u00e9",
        "\\u0041",
        "\\u20ac",
        "\\u0000",
    ]
    atoms += [
        "\\ud834\\udd1e",
        "\\ud834",
        "\\udd1e",
        "\\u12",
        "\\uXX00",
        "\\q",
        "\\é",
        "a",
        "é",
        "𝄞",
        "xyz",
        "",
    ]
    for _ in range(1000):
        texts = ["".join(rnd.choices(atoms, k=rnd.randrange(5))) for _ in range(rnd.randrange(8))]
        found, ok = unescaped(pa.array(texts, pa.string()))
        found.validate(full=True)
        for text, value, is_good in zip(texts, found.to_pylist(), ok.tolist(), strict=True):
            try:
                expected = json.loads(f'"{text}"')
                expected.encode()
            except ValueError:
                assert not is_good, text
            else:
                assert (is_good, value) == (True, expected)


def test_a_last_payload_with_no_name_before_a_colon_ends_no_read():
    avro = record(a="long", m={"type": "map", "values": "int"})
    tree, many = tree_of(avro), ROWS // 10
    others = [b'{"a":%d}' % row for row in range(many)]
    for last in ("{:1}", "{5:1}", '{"a":1,b:2}', '{"a":1,{}:2}', '{"m":{:1}}', "{[]:1}", '{"a"::1}', "{::}"):
        payloads = [*others, last.encode()]
        column, rows = TapeReader(tree).read(JsonPayloads(pa.array(payloads, pa.binary())))
        assert (column.field("a").to_pylist(), rows.tolist()) == (list(range(many)), list(range(many)))
