"""What JSON is read as what, one payload at a time; leaves too."""

import json
import math
import random
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from pulsar_spark.values.json import leaves
from pulsar_spark.values.json.objects import ObjectReader, explain
from pulsar_spark.values.json.tree import JsonKind
from tests.loops import for_each
from tests.values.json_payloads import JAVA, plain, read_objects, tree_of
from tests.work import calls

BAD = object()
DATE = {"type": "int", "logicalType": "date"}
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
BIG = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
FIXED = {"type": "fixed", "name": "F", "size": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["RED"]}


def read(avro, text, properties=None):
    """The value, or BAD; its neighbours are looked at, too."""
    node = tree_of(avro, properties)
    payload = text if isinstance(text, bytes) else text.encode()
    values = read_objects(node, [b"null", payload, None])
    values.column.validate(full=True)
    first, value, last = values.column.to_pylist()
    assert (first, last) == (None, None)
    if values.is_bad is None:
        assert explain(node, payload) == ""
        return value
    assert values.is_bad.tolist() == [False, True, False]
    assert value is None
    assert explain(node, payload)
    return BAD


def utc(*parts):
    return datetime(*parts).replace(tzinfo=timezone.utc)


@for_each(
    ("avro", "text", "value"),
    [
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("boolean", "1", True),
        ("boolean", "0", False),
        ("boolean", "2", BAD),
        ("boolean", "1.5", BAD),
        ("boolean", '"true"', True),
        ("boolean", '"false"', False),
        ("boolean", '"True"', True),
        ("boolean", '"yes"', BAD),
        ("bytes", "[1,2,-1]", BAD),
        ("int", "5", 5),
        ("int", "5.0", 5),
        ("int", "5e2", 500),
        ("int", "500e-2", 5),
        ("int", '"5"', 5),
        ("int", "5.5", BAD),
        ("int", '"5 "', BAD),
        ("int", '"0x5"', BAD),
        ("int", "05", BAD),
        ("int", "2147483647", 2**31 - 1),
        ("int", "2147483648", BAD),
        ("int", "-2147483648", -(2**31)),
        ("int", "-2147483649", BAD),
        ("int", "true", BAD),
        ("int", "NaN", BAD),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "9223372036854775808", BAD),
        ("long", "1e18", 10**18),
        ("long", "1e99999999", BAD),
        ("long", "0e99999999999", 0),
        ("long", "9" * 5_000, BAD),
        ("double", "5", 5.0),
        ("double", '"2.5"', 2.5),
        ("double", '"Infinity"', float("inf")),
        ("double", "-Infinity", float("-inf")),
        ("float", '"-Infinity"', float("-inf")),
        ("double", "1e400", BAD),
        ("double", '"1_0"', BAD),
        ("double", "0.1", 0.1),
        ("float", "3.4028235e38", 3.4028234663852886e38),
        ("float", "3.5e38", BAD),
        ("string", '"a"', "a"),
        ("string", "12.30", "12.30"),
        ("string", "1e400", "1e400"),
        ("string", '"\\ud834\\udd1e"', "𝄞"),
        ("string", '"\\ud834"', BAD),
        ("string", "true", BAD),
        ("string", "[]", BAD),
        (ENUM, '"RED"', "RED"),
        (ENUM, "2", "2"),
        (ENUM, '"R\\u0045D"', "RED"),
        (ENUM, '"red"', BAD),
        (ENUM, '""', BAD),
        (DATE, "[2023,11,14]", date(2023, 11, 14)),
        (DATE, "19675", date(2023, 11, 14)),
        (DATE, '"2023-11-14"', date(2023, 11, 14)),
        (DATE, "[2023,2,29]", BAD),
        (DATE, "[2023,11]", BAD),
        (DATE, "[2023,11,14,1]", BAD),
        (DATE, '"20231114x"', BAD),
        (MILLIS, "1700000000.123456789", utc(2023, 11, 14, 22, 13, 20, 123456)),
        (MICROS, "1700000000.123456789", utc(2023, 11, 14, 22, 13, 20, 123456)),
        (MILLIS, "1700000000123", utc(2023, 11, 14, 22, 13, 20, 123000)),
        (MICROS, "1700000000123456", utc(2023, 11, 14, 22, 13, 20, 123456)),
        (MILLIS, "-0.0000001", utc(1969, 12, 31, 23, 59, 59, 999999)),
        (MILLIS, "-0.25", utc(1969, 12, 31, 23, 59, 59, 750000)),
        # As Java writes it: 1 ns before 1970, 1.75 s before, and a second.
        (MILLIS, "-1.999999999", utc(1969, 12, 31, 23, 59, 59, 999999)),
        (MICROS, '"-2.25"', utc(1969, 12, 31, 23, 59, 58, 250000)),
        (MICROS, "-1.000000000", utc(1969, 12, 31, 23, 59, 59)),
        (MICROS, "-2.5e0", utc(1969, 12, 31, 23, 59, 57, 500000)),
        (MILLIS, '"2023-11-14T22:13:20.123456789Z"', utc(2023, 11, 14, 22, 13, 20, 123456)),
        (MILLIS, '"2023-11-14T23:13:20+01:00"', utc(2023, 11, 14, 22, 13, 20)),
        (MILLIS, '"2023-11-14 22:13"', utc(2023, 11, 14, 22, 13)),
        (MILLIS, '"1700000000123"', utc(2023, 11, 14, 22, 13, 20, 123000)),
        (MILLIS, "9223372036854775807", BAD),
        (MILLIS, "1e99", BAD),
        (MILLIS, "[2023,1,2,3,4]", BAD),
        (MILLIS, '"2023-11-14T25:00:00Z"', BAD),
        (LOCAL, "[2023,1,2,3,4]", datetime(2023, 1, 2, 3, 4)),
        (LOCAL, "[2023,1,2,3,4,5,6789]", datetime(2023, 1, 2, 3, 4, 5, 6)),
        (LOCAL, '"2023-01-02T03:04:05"', datetime(2023, 1, 2, 3, 4, 5)),
        (LOCAL, '"2023-01-02T03:04:05Z"', BAD),
        (LOCAL, "[2023,1,2,3,4,5,-1]", BAD),
        (DECIMAL, "12.3", Decimal("12.30")),
        (DECIMAL, '"-12.30"', Decimal("-12.30")),
        (DECIMAL, "999.99", Decimal("999.99")),
        (DECIMAL, "1000", BAD),
        (DECIMAL, "1.234", BAD),
        (DECIMAL, "1.23000", Decimal("1.23")),
        (BIG, "9" * 38, Decimal("9" * 38)),
        (BIG, "-" + "9" * 38, Decimal("-" + "9" * 38)),
        (BIG, "1" + "0" * 38, BAD),
        (FIXED, '"AP8="', b"\x00\xff"),
        (FIXED, '"AA=="', BAD),
        ({"type": "array", "items": "int"}, "[1, null ,3]", [1, None, 3]),
        ({"type": "array", "items": "int"}, "[1,]", BAD),
        ({"type": "map", "values": "int"}, '{"a":1,"\\u0062":2}', [("a", 1), ("b", 2)]),
        ({"type": "map", "values": "int"}, '{"a":1,"\\u0061":2}', [("a", 2)]),
        ("null", "5", BAD),
    ],
)
def test_json_is_read_as(avro, text, value):
    assert read(avro, text) == value


def test_text_that_is_no_number():
    for avro in ("float", "double"):
        assert math.isnan(read(avro, '"NaN"'))
        assert read(avro, '"nan"') is BAD


@pytest.mark.parametrize(
    ("text", "of_java", "of_others"),
    [
        ('"AP8="', b"\x00\xff", b"\x00\xff"),
        ('""', b"", b""),
        ('"test"', b"\xb5\xeb-", b"\xb5\xeb-"),
        ('"no base64"', BAD, b"no base64"),
        ('"AP8"', BAD, b"AP8"),
        ('"AP9="', b"\x00\xff", b"AP9="),  # bits left over: nobody writes it so
        ('"sch\\u00f6n"', BAD, "schön".encode()),
        ('"\\ud800"', BAD, BAD),
        ("5", BAD, BAD),
    ],
)
def test_bytes_are_base64_for_certain_where_java_has_made_the_schema(text, of_java, of_others):
    assert read("bytes", text, JAVA) == of_java
    assert read("bytes", text, {}) == of_others


UNION = [
    "null",
    "string",
    "long",
    {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]},
    {"type": "record", "name": "B", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]},
]


@pytest.mark.parametrize(
    ("text", "member", "value"),
    [
        ('"a"', 0, "a"),
        ("5", 1, 5),
        ("5.5", 0, "5.5"),
        ('{"x":1}', 2, {"x": 1}),
        ('{"x":1,"y":2}', 3, {"x": 1, "y": 2}),
        ('{"x":1,"z":2}', 2, {"x": 1}),
    ],
)
def test_a_union_is_the_member_that_looks_like_it(text, member, value):
    expected = dict.fromkeys([f"member{i}" for i in range(4)])
    assert read(UNION, text) == expected | {f"member{member}": value}


RECORDS = [
    {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]},
    {"type": "record", "name": "B", "fields": [{"name": "y", "type": "int"}]},
]


def test_the_first_member_wins_in_each_row_where_none_has_all_the_names():
    payload = b'{"x":1,"added":0}'
    for rows in (1, 3):
        column = read_objects(tree_of(RECORDS), [payload] * rows).column
        assert column.to_pylist() == [{"member0": {"x": 1}, "member1": None}] * rows


def nested_unions(depth):
    inner = nested_unions(depth - 1) if depth else "int"
    fields = ({"name": "x", "type": inner}, {"name": "y", "type": "int"})
    return [
        {"type": "record", "name": f"{name}{depth}", "fields": [each]}
        for name, each in zip("AB", fields, strict=True)
    ]


def test_a_value_of_nested_unions_is_read_once_at_each_level(monkeypatch):
    numbers = []
    form = leaves.FORMS[JsonKind.INTEGER]
    counted = form._replace(convert=lambda *of: numbers.append(of) or form.convert(*of))
    monkeypatch.setitem(leaves.FORMS, JsonKind.INTEGER, counted)
    text = '"1"'
    for _ in range(10):
        text = f'{{"x":{text},"added":0}}'
    value = read(nested_unions(9), text)
    for _ in range(10):
        assert value["member1"] is None
        value = value["member0"]["x"]
    assert value == 1
    assert len(numbers) == 1 + 1  # explain reads it, too


def test_a_later_member_that_has_all_the_names_takes_the_place_of_the_first():
    payloads = [b'{"x":1,"z":0}', b'{"y":2}', b'{"x":3,"y":4}', b'{"y":5}']
    found = read_objects(tree_of(RECORDS), payloads).column
    found.validate(full=True)
    assert found.to_pylist() == [
        {"member0": {"x": 1}, "member1": None},
        {"member0": None, "member1": {"y": 2}},
        {"member0": {"x": 3}, "member1": None},
        {"member0": None, "member1": {"y": 5}},
    ]


def test_a_value_of_no_member_is_bad():
    assert read(UNION, "[]") is BAD
    assert read(UNION, '{"x":"a"}') is BAD


NESTED = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": {"type": "record", "name": "S", "fields": [{"name": "b", "type": "int"}]}},
        {"name": "l", "type": {"type": "array", "items": "int"}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {
            "name": "r",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "T", "fields": [{"name": "n", "type": "int"}]},
            },
        },
    ],
}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the payload is empty"),
        ('{"a":{"b":"x"}}', "field 'a.b': expected a whole number, but found text"),
        ('{"a":{"b":{}}}', "field 'a.b': expected a whole number, but found an object"),
        ('{"a":{"b":3000000000}}', "field 'a.b': a number that is not whole, or out of range"),
        ('{"a":[1]}', "field 'a': expected an object, but found an array"),
        ('{"l":[1,true]}', "field 'l[1]': expected a whole number, but found true"),
        ('{"r":[{"n":1},null,{"n":[]}]}', "field 'r[2].n': expected a whole number, but found an array"),
        ('{"m":{"k":1,"l":NaN}}', "field 'm{}': expected a whole number, but found NaN"),
        ('{"m":{"\\ud800":1}}', "field 'm{}': text with half of a surrogate pair"),
        ('{"a":{"b":1}', "malformed JSON: Expecting ',' delimiter (at character 12)"),
        ('{"a":null} x', "malformed JSON: Extra data (at character 11)"),
        (b'{"a":\xff}', "the payload is not UTF-8 at byte 5"),
        ('{"z":"\\x"}', "malformed JSON: Invalid \\escape (at character 6)"),
        ('{"z":' + "[" * 1000 + "]" * 1000 + "}", "more than 1000 brackets in each other"),
    ],
)
def test_explain_names_the_field_and_what_is_wrong(text, reason):
    payload = text if isinstance(text, bytes) else text.encode()
    assert explain(tree_of(NESTED), payload) == reason


def test_missing_members_have_the_default_or_null():
    avro = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "int", "default": 7},
            {"name": "b", "type": "bytes", "default": "\u00ff"},
            {"name": "c", "type": {"type": "array", "items": "int"}, "default": [1]},
            {"name": "d", "type": DECIMAL, "default": "\u0001"},
            {"name": "e", "type": ["null", "int"], "default": None},
            {"name": "f", "type": "int"},
        ],
    }
    expected = {"a": 7, "b": b"\xff", "c": [1], "d": Decimal("0.01"), "e": None, "f": None}
    assert read(avro, "{}") == expected
    assert read(avro, '{"a":null}') == expected | {"a": None}
    items = {"type": "array", "items": ["null", avro]}
    found = read(items, '[{"a":1},{},null,{"f":2,"c":[]},{}]')
    assert found == [expected | {"a": 1}, expected, None, expected | {"f": 2, "c": []}, expected]
    whole = {"a": 2, "b": b"", "c": [2, 3], "d": Decimal(1), "e": 4, "f": 5}
    assert read(items, '[{"a":1,"b":"","c":[2,3],"d":1,"e":4,"f":5,"a":2}]') == [whole]


def test_a_missing_value_of_many_members_is_their_default(monkeypatch):
    """Also where few records have any, which are read by their own names."""
    fields = [{"name": f"f{i}", "type": "int", "default": i} for i in range(50)]
    fields += [{"name": f"n{i}", "type": ["null", {"type": "array", "items": "int"}]} for i in range(50)]
    avro = {"type": "array", "items": {"type": "record", "name": "R", "fields": fields}}
    texts = ["{}"] * 20 + ['{"n7":[1],"f3":5,"z":1}', "null", '{"n7":[],"n8":[2,3]}']
    expected = {f"f{i}": i for i in range(50)} | dict.fromkeys(f"n{i}" for i in range(50))
    found = read(avro, f"[{','.join(texts)}]")
    assert found[:20] == [expected] * 20
    assert found[20:] == [expected | {"n7": [1], "f3": 5}, None, expected | {"n7": [], "n8": [2, 3]}]
    reason = explain(tree_of(avro), f'[{",".join(texts)},{{"n9":[1,{{}}]}}]'.encode())
    assert reason == "field '[23].n9[1]': expected a whole number, but found an object"


@pytest.mark.parametrize("text", ["x" * 5001, "x\\n" * 3000, "\\ud83d\\ude00" * 3000, "\U0001f600" * 3000])
@pytest.mark.parametrize("avro", ["string", "bytes", {"type": "map", "values": "int"}])
def test_long_strings_are_read_as_short_ones(text, avro):
    texts = {text: text, text + "\\u00e9\\n": text + "é\n"}
    texts |= dict.fromkeys((text + "\\ud83d", text + "\n", text + "\\x", text + "\\u12"))
    for given, meant in texts.items():
        payload = f'{{"{given}":1}}' if isinstance(avro, dict) else f'"{given}"'
        found = read(avro, payload, {})
        if meant is None:
            assert found is BAD
            continue
        plain = json.loads(f'"{meant}"', strict=False)
        assert found == {"string": plain, "bytes": plain.encode()}.get(str(avro), [(plain, 1)])
        assert read(avro, payload[:-1]) is BAD


WIDE = [{"name": f"f{i}", "type": ["null", "string"]} for i in range(30)]
ITEMS = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": {"type": "array", "items": {"type": "record", "name": "W", "fields": WIDE}}},
        {"name": "b", "type": ["null", "W"]},
    ],
}
ENDS = [
    "",
    "}",
    '{"f3":"y"}',
    '{"f3":"y","f4":[',
    '{"f5":"z"},{"f6":"x","f1":',
    '{"f3":"y"}],"b":{"f1":"q","f9":1',
]


@for_each("whole", range(4))
@for_each("end", ENDS)
def test_nothing_of_a_bad_row_is_left_however_far_it_was_read(whole, end):
    """What is forgotten of it are the members that it has, not all of them."""
    items = ",".join(f'{{"f{i}":"{i}","f7":"x"}}' for i in range(whole))
    bad = '{"a":[' + items + "," * bool(whole and end) + end
    good = '{"b":{"f2":"b"},"a":[{"f7":"1"},{"f1":"2"}]}'
    payloads = [each.encode() for each in (good, bad, good, bad, bad, good)]
    found = read_objects(tree_of(ITEMS), payloads)
    found.column.validate(full=True)
    (expected,) = read_objects(tree_of(ITEMS), [good.encode()]).column.to_pylist()
    assert found.is_bad.tolist() == [False, True, False, True, True, False]
    assert found.column.to_pylist() == [expected, None, expected, None, None, expected]


def test_nothing_of_a_bad_row_is_left_where_a_later_value_of_it_was_another_member():
    """The later value was read as the first member, too, and forgotten: then the earlier one was not."""
    members = [
        {
            "type": "record",
            "name": name,
            "fields": [{"name": each, "type": ["null", "int"]} for each in fields],
        }
        for name, fields in (("A", "xy"), ("B", "yz"))
    ]
    for several, values in ((list, "items"), (lambda of: {f"k{i}": of[i] for i in range(len(of))}, "values")):
        kind = {"type": "array" if values == "items" else "map", values: members}
        fields = [{"name": "u", "type": kind}, {"name": "n", "type": "int"}]
        node = tree_of({"type": "record", "name": "R", "fields": fields})
        rows = [
            {"u": several([{"x": 1, "y": 2}, {"y": 3, "z": 4}]), "n": "bad"},
            {"u": several([{"y": 5}]), "n": 6},
            {"u": several([{"x": 7, "y": 8}]), "n": 9},
        ]
        payloads = [json.dumps(row).encode() for row in rows]
        found = read_objects(node, payloads)
        found.column.validate(full=True)
        assert found.is_bad.tolist() == [True, False, False]
        assert found.column.to_pylist()[1:] == read_objects(node, payloads[1:]).column.to_pylist()
        assert found.column[1].as_py()["u"] in ([A_OF_Y], [("k0", A_OF_Y)])


def test_each_row_is_what_it_is_alone_whatever_is_before_it():
    rnd = random.Random(1)
    members = [
        {"type": "record", "name": name, "fields": [{"name": each, "type": "int"} for each in fields]}
        for name, fields in (("A", "xyz"), ("B", "yzw"), ("C", "xw"))
    ]
    fields = [{"name": "u", "type": {"type": "array", "items": members}}, {"name": "n", "type": "int"}]
    node = tree_of({"type": "record", "name": "R", "fields": fields})
    payloads = []
    for number in range(250):
        items = [dict.fromkeys(rnd.sample("xyzw", 2), number) for _ in range(3)]
        payloads.append(json.dumps({"u": items, "n": rnd.choice((number, "bad"))}).encode())
    together = read_objects(node, payloads)
    alone = [read_objects(node, [payload]) for payload in payloads]
    assert together.is_bad.tolist() == [each.is_bad is not None for each in alone]
    assert together.column.to_pylist() == [each.column[0].as_py() for each in alone]


def test_floats_beside_their_texts_keep_their_sign():
    node = tree_of({"type": "record", "name": "R", "fields": [{"name": "x", "type": "double"}]})
    payloads = [b'{"x":-0.0}', b'{"x":0}', b'{"x":"1.5"}', b'{"x":1.5}', b'{"x":true}']
    found = read_objects(node, payloads)
    assert repr(found.column.field("x").to_pylist()) == "[-0.0, 0.0, 1.5, 1.5, None]"
    assert found.is_bad.tolist() == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("long", b"9007199254740993.0", (1 << 53) + 1),
        ("string", b"1.50", "1.50"),
        ({"type": "array", "items": "string"}, b"[2.0]", ["2.0"]),
        ({"type": "long", "logicalType": "timestamp-micros"}, b"0.0000019", 1),
        ({"type": "int", "logicalType": "date"}, b"[1970,1.0,2]", 1),
        (["null", "string", "long"], b"5e0", {"member0": None, "member1": 5}),
        (["null", "long", "double"], b"5.5", {"member0": None, "member1": 5.5}),
    ],
)
def test_a_number_is_read_by_its_text_where_that_counts(kind, text, value):
    node = tree_of({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})
    reader = ObjectReader(node)
    for rows in (1, 3):  # the second time with what was learned the first time
        column = reader.read(pa.array([b'{"x":%s}' % text] * rows, pa.binary())).column
        assert plain(column.field("x")) == [value] * rows


def test_instants_of_many_rows_are_those_of_each():
    texts = [b"1.5", b"0.000000999", b"1700000000.123456789", b"-2.25", b"9e9", b"99999999999.5", b"null"]
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    node = tree_of({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})
    payloads = [b'{"x":%s}' % text for text in texts]
    alone = [plain(read_objects(node, [payload]).column)[0] for payload in payloads]
    for some in (slice(0, 3), slice(0, 7), slice(5, 7)):
        assert plain(read_objects(node, payloads[some]).column) == alone[some]
    assert alone[:4] == [{"x": 1_500_000}, {"x": 0}, {"x": 1_700_000_000_123_456}, {"x": -1_750_000}]


A_OF_Y = {"member0": {"x": None, "y": 5}, "member1": None}


@pytest.mark.parametrize("payload", [b'{"f1":"a","f2":', b'{"f1":"a","f2":true}', b'{"f1":"a"}'])
def test_a_row_of_few_names_takes_little_longer_for_many_columns(payload):
    def work(count):
        fields = [{"name": f"f{i}", "type": ["null", "string"]} for i in range(count)]
        node = tree_of({"type": "record", "name": "R", "fields": fields})
        return calls(lambda: read_objects(node, [payload] * 3000))

    assert work(400) < 5 * work(4)
