"""Which payloads are read by column; test_json_read shows that their values are right."""

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.values.json.by_column import fast
from pulsar_spark.values.json.by_column.cursor import JsonPayloads
from pulsar_spark.values.json.by_column.fast import read_columns
from pulsar_spark.values.json.by_column.shape import JsonLayout
from pulsar_spark.values.json.general import read_rows
from tests.values.json_payloads import record, tree_of


def read(avro, *texts, sample=0):
    """Values of the payloads that are read by column, by their row."""
    column = pa.array([text.encode() for text in texts], pa.binary())
    layout = JsonLayout()
    layout.learn(column[sample].as_py())
    values, is_read = read_columns(tree_of(avro), JsonPayloads(column), np.arange(len(texts)), layout)
    values.validate(full=True)
    assert len(values) == len(is_read) == len(texts)
    return {row: values[row].as_py() for row in np.flatnonzero(is_read).tolist()}


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch):
    monkeypatch.setattr(fast, "_FEWEST_ROWS", 1)


def test_unions_are_read_where_the_first_character_decides():
    records = [{**record(**{name: "int"}), "name": f"R{name}"} for name in "bc"]
    avro = record(a=["null", "string", "long", records[0]], u=["null", "Rb", records[1]])
    texts = (
        '{"a":"x"}',
        '{"a":1}',
        '{"a":null}',
        '{"a":{"b":1}}',
        '{"a":true}',
        '{"u":{"c":1}}',
        '{"a":1.0}',
    )
    nothing = {"member0": None, "member1": None, "member2": None}
    found: list[dict[str, object] | None] = [
        {**nothing, "member0": "x"},
        {**nothing, "member1": 1},
        None,
        {**nothing, "member2": {"b": 1}},
    ]
    expected = {number: {"a": each, "u": None} for number, each in enumerate(found)}
    assert read(avro, *texts) == expected


def test_members_may_be_missing_and_null():
    avro = record(a="int", b=["null", "string"], c="double")
    texts = ('{"a":1,"b":"x","c":1.5}', '{"a":1}', "{}", '{"b":null,"c":2}', "null", '{"c":3}')
    rows = [(1, "x", 1.5), (1, None, None), (None, None, None), (None, None, 2.0), None, (None, None, 3.0)]
    expected = {i: row and dict(zip("abc", row, strict=True)) for i, row in enumerate(rows)}
    assert read(avro, *texts) == expected


def test_what_is_not_in_the_order_of_the_layout_is_left():
    avro = record(a="int", b="int")
    assert list(read(avro, '{"a":1,"b":2}', '{"b":2,"a":1}', '{"a":1,"z":1}', '{"a":1,"a":1}')) == [0]
    assert list(read(avro, '{"a":1,"b":2}', '{"b":2,"a":1}', sample=1)) == [1]


def test_what_is_no_json_is_left():
    avro = record(a="int", b={"type": "array", "items": "int"})
    good = '{"a":1,"b":[1,2]}'
    bad = (
        '{"a":1,}',
        '{"a":1,"b":[1,]}',
        '{"a":1,"b":[1 2]}',
        '{"a" 1}',
        '{,"a":1}',
        '{"a":1}}',
        '{"a":1',
        "",
        "{",
        good * 2,
    )
    assert list(read(avro, good, *bad, good)) == [0, len(bad) + 1]


def test_values_that_nobody_asked_for_are_gone_over_where_they_look_like_the_sample():
    avro = record(a="int")
    texts = (
        '{"x":[{"y":"s","z":[1.5e3]}],"a":1}',
        '{"x":[],"a":2}',
        '{"x":[{"y":"s"},{"z":[]},null],"a":3}',
        '{"x":null,"a":4}',
        '{"x":5,"a":5}',
        '{"x":[{"y":"\\q"}],"a":6}',
        '{"x":[{"y":01}],"a":7}',
        '{"x":[{"y":true}],"a":8}',
    )
    assert {row: value["a"] for row, value in read(avro, *texts).items()} == {0: 1, 1: 2, 2: 3, 3: 4, 7: 8}


def test_space_is_gone_over_where_the_sample_has_some():
    avro = record(
        a={"type": "array", "items": {"type": "int", "logicalType": "date"}},
        m={"type": "map", "values": "int"},
    )
    loose = ' { "a" : [ [ 1970 , 1 , 2 ] , 2 ] ,\n\t"m" : { "k" : 1 , "l" : 2 } } '
    dense = "".join(loose.split())
    assert list(read(avro, dense, loose)) == [0]
    assert list(read(avro, loose, dense)) == [0, 1]


def test_long_arrays_and_those_that_few_rows_have_are_left(monkeypatch):
    avro = record(a={"type": "array", "items": "int"})
    texts = [f'{{"a":{list(range(count))}}}'.replace(" ", "") for count in (0, 64, 65, 3)]
    assert list(read(avro, *texts)) == [0, 1, 3]
    monkeypatch.setattr(fast, "_FEWEST_ROWS", 3)
    assert list(read(avro, *texts)) == [0, 3]


def test_a_map_with_a_name_twice_is_left():
    avro = record(m={"type": "map", "values": "int"})
    found = read(
        avro, '{"m":{"a":1,"b":2}}', '{"m":{"a":1,"a":2}}', '{"m":{"a":1}}', '{"m":{"a":1,"\\u0061":2}}'
    )
    assert list(found) == [0, 2]


DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}


@pytest.mark.parametrize(
    ("avro", "usual", "others"),
    [
        ("int", ("5", "-2147483648"), ("5.0", '"5"', "2147483648", "1e2", "01")),
        ("long", ("9" * 18,), ("9" * 19, "1.0")),
        ("double", ("1", "-0.1", "1e22", "0.30000000000000004", "1E-7"), ("1e100", "NaN", '"1"')),
        ("float", ("3.4e38",), ("3.5e38",)),
        ("boolean", ("true", "false"), ("tru", "0")),
        ("string", ('"x"', '"\\u00e9"', "12.30", "1e5"), ('"\\ud800"', "x", "true")),
        ("bytes", ('"AP8="', '""'), ('"A"', "1")),
        (DATE, ("[2024,2,29]", "[1,1,1]", "-5"), ("[2023,2,29]", "[0,1,1]", "[2023,13,1]", '"12"')),
        (
            MILLIS,
            ("1.5", "-1.0000001", "-2.25", "-0.25", "1700000000123"),
            ("1e3", '"1"', "9" * 16, "9999999999999.5"),
        ),
        (
            DECIMAL,
            ("1.5", "-99999999999999999999.5", "0.000000000000000001"),
            ("1e2", "0.0000000000000000001"),
        ),
    ],
)
def test_usual_values_are_read_by_column(avro, usual, others):
    texts = [f'{{"v":{text}}}' for text in (*usual, *others)]
    assert list(read(record(v=avro), *texts)) == list(range(len(usual)))


LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}


@pytest.mark.parametrize(
    ("avro", "usual", "others"),
    [
        (
            DATE,
            ("2024-02-29", "0001-01-01", "9999-12-31"),
            ("2023-02-29", "0000-01-01", "2023-1-01", "2023-01-1", ""),
        ),
        (
            MILLIS,
            (
                "2023-11-14T22:13:20Z",
                "2023-11-14 22:13:20",
                "2023-11-14T22:13:20.1Z",
                "0001-01-01T00:00:00.123456789",
            ),
            (
                "2023-11-14T22:13Z",
                "2023-11-14T22:13:20+01:00",
                "2023-11-14T24:00:00Z",
                "2023-11-14T22:60:00Z",
                "2023-11-14T22:13:60Z",
                "2023-11-14T22:13:20.Z",
                "2023-11-14T22:13:20.1234567890Z",
                "2023-11-14T22:13:20ZZ",
                "2023-11-14T22.13:20",
                "2023-11-14",
                "5",
            ),
        ),
        (LOCAL, ("2023-11-14T22:13:20.123456",), ("2023-11-14T22:13:20Z",)),
    ],
)
def test_times_that_are_written_in_iso_8601_are_read_by_column(avro, usual, others):
    texts = [f'{{"v":"{text}"}}' for text in (*usual, *others)]
    found = read(record(v=avro), *texts)
    assert list(found) == list(range(len(usual)))
    one_by_one = read_rows(tree_of(record(v=avro)), [text.encode() for text in texts[: len(usual)]])
    assert one_by_one.is_bad is None
    assert list(found.values()) == one_by_one.column.to_pylist()
