"""Which payloads PyArrow reads, and that their values are those of reading them one by one."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pytest

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.json import json_read, objects
from pulsar_spark.values.json.json_read import ArrowReader
from pulsar_spark.values.json.tree import make_tree
from pulsar_spark.values.json_types import column_type
from tests.loops import for_each
from tests.values.json_payloads import plain, read_objects, record, tree_of


def read(avro, *payloads):
    """The rows that are read, each of which must be as ``objects`` reads it."""
    tree = tree_of(avro)
    reader = ArrowReader(tree, fewest_of_part=1)
    assert reader.can_read
    values = pa.array([each.encode() if isinstance(each, str) else each for each in payloads], pa.binary())
    rows = []
    for column, some in reader.read(pa.array([b"", *values], pa.binary()).slice(1), np.arange(len(values))):
        column.validate(full=True)
        expected = read_objects(tree, [values[row].as_py() for row in some])
        assert column.type == expected.column.type
        assert expected.is_bad is None
        assert repr(plain(column)) == repr(plain(expected.column))
        rows += some.tolist()
    return rows


FLAT = record(a=["null", "long"], t=["null", "string"])
GOOD = '{"a":1,"t":"x"}'


def test_names_in_any_order_escapes_and_long_arrays_are_read():
    avro = record(a="long", t="string", items={"type": "array", "items": record("I", b="double")})
    items = json.dumps([{"b": number / 7} for number in range(100)])
    texts = (
        '{"t":"\\u00e9\\ud834\\udd1e\\n\\u0000","a":1,"items":null}',
        f" {GOOD} ".strip(),
        f'{{"items":{items},"a":-9223372036854775808}}',
        '{"items":[null,{},{"b":-0.0}],"t":"schön"}',
        '{ "a" : null ,\n"t":\t"" }',
        "{}",
        '{"\\u0061":5}',
    )
    assert read(avro, *texts) == list(range(len(texts)))


@for_each(
    "left",
    [
        "",
        "{",
        "null",
        " {}",
        "[1]",
        "{}{}",
        "{}null{}",
        "{}\n{}",
        '{"a":1},{"a":2}',
        '{"a":1}}',
        '{"a":1.0}',
        '{"a":"1"}',
        '{"a":9223372036854775808}',
        '{"a":1,"a":1}',
        '{"a":null,"a":1}',
        '{"t":1}',
        '{"t":"\\ud834"}',
        '{"t":"a\nb"}',
        b'{"t":"\xff"}',
        b'{"x":"\xff"}',
        b'{"a":1}\0}',
        b'\xef\xbb\xbf{"a":1}',
        '{"t":"}',
        '{","a":1}',
        '{"x":Inf}',
        '{"x":[-Inf ]}',
        '{"x":-NaN}',
        '{"x":1.}',
    ],
)
def test_what_is_no_value_or_needs_lenience_is_left_and_its_neighbours_are_not(left):
    rows = 20
    for place in (0, 1, rows - 1):
        payloads = [GOOD] * rows
        payloads[place] = left
        assert read(FLAT, *payloads) == [row for row in range(rows) if row != place]


def test_of_two_payloads_that_make_up_for_each_other_none_is_read():
    # One line is no value and the other one two: as many as there are lines.
    for pair in (
        (b'{"a":1}{"a":2}', b"  "),
        (b'{"t":"}', b'{","a":1}'),
        (b"{}{}", b'{"a":[{}'),
        (b"{}{}", b"{}\0}"),
    ):
        assert read(FLAT, GOOD, *pair, GOOD) == [0, 3]


def test_unknown_names_are_ignored_whatever_their_values_are():
    texts = (
        '{"x":{"y":[1,{"a":2}]},"a":1}',
        '{"x":1,"x":2,"a":1}',
        '{"x":NaN,"y":Infinity,"z":-Infinity,"a":1}',
        '{"t":"Infinity, -nan, Information"}',
        '{"a":1,"x":' + "[" * 999 + "]" * 999 + "}",
        GOOD,
    )
    assert read(FLAT, *texts, '{"x":1}') == list(range(len(texts)))


def test_numbers_that_are_not_finite_or_out_of_range_are_left():
    avro = record(d="double", f="float")
    texts = (
        '{"d":1.5,"f":0.1}',
        '{"d":NaN}',
        '{"d":1.7976931348623159e308}',
        '{"d":1e400}',
        '{"f":1e39}',
        '{"f":-3e38}',
    )
    assert read(avro, *texts) == [0, 5]


def test_timestamps_are_read_in_their_unit_and_those_out_of_range_left():
    types = {name: {"type": "long", "logicalType": f"timestamp-{name}"} for name in ("millis", "micros")}
    texts = (
        '{"millis":1700000000123,"micros":-1}',
        '{"millis":null}',
        '{"millis":9223372036854775807}',
        '{"millis":-9223372036854775808}',
        '{"micros":9223372036854775807}',
        '{"micros":1.5}',
    )
    assert read(record(**types), *texts) == [0, 1, 4]


def test_times_that_are_texts_are_read_where_they_have_a_second_and_the_zone_of_their_type():
    """The sink writes such texts."""
    moments = {name: {"type": "long", "logicalType": f"{name}timestamp-micros"} for name in ("", "local-")}
    avro = record(
        at=["null", moments[""]], local=moments["local-"], day={"type": "int", "logicalType": "date"}
    )
    good = '{"at":"2023-11-14T22:13:20.001000Z","local":"2023-11-14T22:13:20.5","day":"2020-02-29"}'
    texts = (
        good,
        '{"at":null,"local":"1969-12-31 23:59:59.999999","day":"0001-01-01"}',
        '{"at":"0001-01-01T00:00:00Z","local":"9999-12-31T23:59:59"}',
        *(
            f'{{"{name}":"{text}"}}'
            for name, left in {
                "at": (
                    "0000-12-31T23:59:59Z",
                    "2023-11-14T22:13Z",
                    "2023-11-14T22:13:20",
                    "2023-11-14T22:13:20+01:00",
                    "2023-11-14T22:13:20.1234567Z",
                    "2023-11-14T22:13:60Z",
                    "2023-02-29T00:00:00Z",
                    "1700000000",
                ),
                "local": ("2023-11-14", "2023-11-14T22:13", "2023-11-14T22:13:20Z", "0000-12-31T23:59:59"),
                "day": ("0000-12-31", "2020-2-29", "2021-02-29", "19000"),
            }.items()
            for text in left
        ),
        '{"at":1700000000000000}',
        '{"day":19000}',
        '{"local":[2023,11,14,22,13]}',
        good,
    )
    assert read(avro, *texts) == [0, 1, 2, len(texts) - 4, len(texts) - 3, len(texts) - 1]


def test_one_payload_with_times_in_another_form_does_not_make_pyarrow_leave_its_neighbours():
    """Anybody may write it."""
    avro = record(at={"type": "long", "logicalType": "timestamp-micros"})
    text, number = '{"at":"2023-11-14T22:13:20Z"}', '{"at":1}'
    for usual, other in ((text, number), (number, text)):
        reader = ArrowReader(tree_of(avro))
        for payloads in ([other] + [usual] * 16_383, [usual] * 16_384):
            values = pa.array([each.encode() for each in payloads], pa.binary())
            found = reader.read(values, np.arange(len(values)))
            assert sum(len(rows) for _, rows in found) >= len(values) - len(values) // 8


def test_bytes_enums_dates_and_times_are_read():
    avro = record(
        b="bytes",
        e={"type": "enum", "name": "E", "symbols": ["X", "Y"]},
        d={"type": "int", "logicalType": "date"},
        t={"type": "long", "logicalType": "time-micros"},
    )
    texts = (
        '{"b":"AP8=","e":"X","d":19000,"t":5}',
        '{"b":"","e":null}',
        '{"b":"no base64"}',
        '{"e":"Z"}',
        '{"d":[2020,1,2]}',
    )
    assert read(avro, *texts) == [0, 1]


def test_a_missing_value_that_has_a_default_is_left():
    avro = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "int", "default": 7}],
    }
    assert read(avro, '{"a":1,"b":2}', '{"a":1}') == [0]


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "map", "values": "int"},
        ["null", "string", "int"],
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        record("I"),
    ],
)
def test_trees_with_what_pyarrow_reads_otherwise_are_left(kind):
    assert not ArrowReader(tree_of(record(a="int", b=kind))).can_read
    assert not ArrowReader(tree_of({"type": "array", "items": "int"})).can_read


def test_where_most_are_left_only_some_are_tried(monkeypatch):
    schema = Schema(SchemaType.JSON, json.dumps(record(a="long")).encode())
    tried = []
    monkeypatch.setattr(ArrowReader, "read", lambda self, values, rows: tried.append(len(rows)) or [])
    made = json_read._JsonDecoder(make_tree(schema, schema, column_type(schema)))
    values = pa.array([b'{"a":1.0}'] * 5000, pa.binary())
    for _ in range(2):
        assert made.decode(values, values).is_bad is None
    assert tried == [5000, json_read._SAMPLE]


@pytest.mark.parametrize("left", [['{"a":1.0}'], ['{"a":"1"}'], ['{"a":"1"}', '{"t":1}']])
def test_rows_that_are_left_do_not_make_pyarrow_read_the_others_again_and_again(monkeypatch, left):
    """Anybody may write them."""
    read_json, tried = pj.read_json, []
    monkeypatch.setattr(pj, "read_json", lambda *given, **more: tried.append(1) or read_json(*given, **more))
    payloads = [GOOD] * 16_384
    for every, is_read in ((8000, True), (100, False)):
        tried.clear()
        for number, row in enumerate(range(0, len(payloads), every)):
            payloads[row] = left[number % len(left)]
        values = pa.array([each.encode() for each in payloads], pa.binary())
        found = ArrowReader(tree_of(FLAT)).read(values, np.arange(len(values)))
        assert (sum(len(rows) for _, rows in found) > len(values) // 2) is is_read
        assert len(tried) <= 1 + 8


def test_a_text_that_is_no_time_teaches_no_form(monkeypatch):
    """It may have the words of PyArrow's errors, which tell it."""
    read_json, tried = pj.read_json, []
    monkeypatch.setattr(pj, "read_json", lambda *given, **more: tried.append(1) or read_json(*given, **more))
    reader = ArrowReader(tree_of(record(at={"type": "long", "logicalType": "timestamp-micros"})))
    for at, calls in (
        ("2023-11-14T22:13:20Z", 2),
        ("unexpected field 01:00Z", 1),
        ("2023-11-14T22:13:20Z", 1),
    ):
        tried.clear()
        reader.read(pa.array([b'{"at":"%s"}' % at.encode()], pa.binary()), np.arange(1))
        assert len(tried) == calls
    assert not reader._form.has_unknown


def test_a_form_that_another_thread_learns_meanwhile_is_not_taken_for_these_payloads(monkeypatch):
    """A word is checked for where names are ignored, else it would be read as a number."""
    reader = ArrowReader(tree_of(FLAT))

    def options(**given):
        reader._form = json_read._Form(has_unknown=True)
        return made(**given)

    made = pj.ReadOptions
    monkeypatch.setattr(pj, "ReadOptions", options)
    assert reader.read(pa.array([b'{"x":Inf}'], pa.binary()), np.arange(1)) == []


def test_flat_payloads_are_read_by_lines_alone(monkeypatch):
    schema = Schema(SchemaType.JSON, json.dumps(record(a="long", t="string")).encode())
    monkeypatch.setattr(objects.ObjectReader, "read", None)
    made = json_read._JsonDecoder(make_tree(schema, schema, column_type(schema)))
    values = pa.array([b'{"t":"%d","a":%d}' % (row, row) for row in range(1000)], pa.binary())
    assert made.decode(values, values).column.field("a").to_pylist() == list(range(1000))


def values_at_once(monkeypatch, avro, payloads, width):
    """Values that PyArrow is given in each of its calls, by a row's width; and the rows that are read."""
    read_json, given = pj.read_json, []

    def counted(source, **more):
        table = read_json(source, **more)
        given.append(len(table) * width)
        return table

    monkeypatch.setattr(pj, "read_json", counted)
    monkeypatch.setattr(json_read, "_MAX_VALUES", 1 << 18)
    values = pa.array(payloads, pa.binary())
    found = ArrowReader(tree_of(avro)).read(values, np.arange(len(values)))
    return given, sum(len(rows) for _, rows in found)


def texts(count):
    return {f"f{number}": ["null", "string"] for number in range(count)}


def test_wide_rows_are_read_a_bounded_number_of_values_at_once(monkeypatch):
    """Each takes memory, also a null: 60,000 rows of 490 fields took 405 MiB."""
    avro = record(inner=record("Inner", g="int", h="int"), **texts(2000))
    given, count = values_at_once(monkeypatch, avro, [b'{"f7":"%s"}' % (b"x" * 1000)] * 400, 2004)
    assert count == 400
    assert max(given) <= json_read._MAX_VALUES < sum(given)


@pytest.mark.parametrize("item", [b"{}", b"null", b'{"f0":null,"f1":"{[}"}'])
def test_items_that_are_records_count_with_all_their_fields(monkeypatch, item):
    avro = record(items={"type": "array", "items": record("I", **texts(500))}, more="string")
    payload = b'{"items":[%s],"more":"%s"}' % (b", \t".join([item] * 100), b"x" * 50_000)
    given, count = values_at_once(monkeypatch, avro, [payload] * 25, 100 * 501)
    assert count == 25
    assert max(given) <= json_read._MAX_VALUES < sum(given)


def test_rows_of_many_values_a_byte_are_left():
    """They would take longer than by the other readers."""
    full = json.dumps(dict.fromkeys(texts(300), "text"))
    assert read(record(**texts(300)), "{}", full, '{"f0":"x"}') == [1]
    assert read(record(**texts(200)), "{}", '{"f0":"x"}') == [0, 1]
    avro = record(items={"type": "array", "items": record("I", **dict.fromkeys(texts(500), "int"))})
    many = '{"items":[' + "{}," * 4500 + "{}" + " " * (2 << 20) + "]}"
    assert read(avro, many, '{"items":[{}]}', '{"items":[]}') == [2]
