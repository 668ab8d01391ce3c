"""Fields of Java's classes: the schemas and payloads are those of Java's client, character by character."""

import json
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.schema_of import merged
from tests.loops import for_each
from tests.values.json_payloads import json_schema


def without_fields(name):
    space, _, short = name.rpartition(".")
    return {"type": "record", "name": short, "namespace": space, "fields": []}


def pairs(key, value, name="PairIntegerString"):
    fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
    item = {"type": "record", "name": name, "namespace": "org.apache.avro.reflect", "fields": fields}
    return {"type": "array", "items": item, "java-class": "java.util.Map"}


CHAR = {"type": "int", "java-class": "java.lang.Character"}
CHARS = {"type": "array", "items": CHAR, "java-class": "[C"}
LIST_OF_CHARS = {"type": "array", "items": CHAR, "java-class": "java.util.List"}
TIME = {"type": "int", "logicalType": "time-millis"}
TIME_MICROS = {"type": "long", "logicalType": "time-micros"}
WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
WIDE_FIXED = WIDE | {"type": "fixed", "name": "W", "size": 40}
DATE, DURATION, OBJECT = map(without_fields, ("java.util.Date", "java.time.Duration", "java.lang.Object"))
COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}
PART = {"type": "record", "name": "Part", "fields": [{"name": "n", "type": "int"}]}
UTC = pa.timestamp("us", "UTC")
NUMBER = "123456789012345678901234567890123456789012345678.50"
AT = datetime(2023, 11, 14, 22, 13, 20, 123000, timezone.utc)


def entries(key, value):
    return pa.list_(pa.field("element", pa.struct([("key", key), ("value", value)])))


ANY_JSON = '{"a":[1,{"b":"é\\n"}]}'  # without spaces
# A field's schema, its JSON, its column's type and value, and what the sink writes if that is something else.
READ = [
    (DATE, "1700000000123", UTC, AT, '"2023-11-14T22:13:20.123000Z"'),
    (
        DATE,
        "-1",
        UTC,
        datetime(1969, 12, 31, 23, 59, 59, 999000, timezone.utc),
        '"1969-12-31T23:59:59.999000Z"',
    ),
    (without_fields("java.sql.Timestamp"), "1700000000123", UTC, AT, '"2023-11-14T22:13:20.123000Z"'),
    (
        without_fields("java.time.OffsetDateTime"),
        "1700000000.123000000",
        UTC,
        AT,
        '"2023-11-14T22:13:20.123000Z"',
    ),
    (DURATION, "1.500000000", pa.string(), "1.500000000", None),
    (without_fields("java.time.Period"), '"P3D"', pa.string(), '"P3D"', None),
    (without_fields("java.sql.Time"), '"22:13:20"', pa.string(), '"22:13:20"', None),
    (OBJECT, '{"a":[1, {"b":"\\u00e9\\n"}]}', pa.string(), ANY_JSON, ANY_JSON),
    (OBJECT, "true", pa.string(), "true", None),
    (OBJECT, '"a\\"b"', pa.string(), '"a\\"b"', None),
    (CHAR, '"c"', pa.string(), "c", None),
    (CHAR, '"\\u0000"', pa.string(), "\0", None),
    (CHARS, '"ab"', pa.string(), "ab", None),
    (LIST_OF_CHARS, '["a","b"]', pa.list_(pa.field("element", pa.string())), ["a", "b"], None),
    (WIDE, NUMBER, pa.string(), NUMBER, None),
    (WIDE, "1E+45", pa.string(), "1E+45", None),
    (WIDE_FIXED, NUMBER, pa.string(), NUMBER, None),
    (TIME, "[10,11]", pa.int32(), 36_660_000, '"10:11:00.000"'),
    (TIME, "[10,11,12]", pa.int32(), 36_672_000, '"10:11:12.000"'),
    (TIME, "[23, 59, 59, 999999999]", pa.int32(), 86_399_999, '"23:59:59.999"'),
    (TIME, "36672013", pa.int32(), 36_672_013, '"10:11:12.013"'),
    (TIME, '"10:11:12.0139"', pa.int32(), 36_672_013, '"10:11:12.013"'),
    (TIME, '"10:11"', pa.int32(), 36_660_000, '"10:11:00.000"'),
    (TIME_MICROS, "[0,0,0,13000]", pa.int64(), 13, '"00:00:00.000013"'),
    (
        pairs("int", "string"),
        '{"7":"x","-8":"y"}',
        entries(pa.int32(), pa.string()),
        [(7, "x"), (-8, "y")],
        None,
    ),
    (pairs("int", "string"), "{}", entries(pa.int32(), pa.string()), [], None),
    (pairs(COLOR, "int"), '{"RED":1}', entries(pa.string(), pa.int32()), [("RED", 1)], None),
    (pairs("boolean", "int"), '{"true":1}', entries(pa.bool_(), pa.int32()), [(True, 1)], None),
    (pairs("double", "int"), '{"1.5":1}', entries(pa.float64(), pa.int32()), [(1.5, 1)], None),
    (pairs(CHAR, "int"), '{"\\"":1}', entries(pa.string(), pa.int32()), [('"', 1)], None),
    (
        pairs("long", PART),
        '{"7":{"n":0}}',
        entries(pa.int64(), pa.struct([("n", pa.int32())])),
        [(7, {"n": 0})],
        None,
    ),
    (
        pairs(DATE, ["null", "int"]),
        '{"2023-11-14T22:13:20.123+00:00":null}',
        entries(UTC, pa.int32()),
        [(AT, None)],
        '{"2023-11-14T22:13:20.123000Z":null}',
    ),
]


def value_of(kind, found):
    is_entries = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
    return [tuple(each.values()) for each in found] if is_entries else found


@pytest.mark.parametrize("is_nullable", [True, False])
def test_what_java_writes_is_read_and_written_back(is_nullable):
    for avro, text, kind, value, written in READ:
        field = {"name": "f", "type": ["null", avro] if is_nullable else avro}
        schema = json_schema({"type": "record", "name": "R", "fields": [field, {"name": "z", "type": "int"}]})
        assert formats.column_type(schema) == pa.struct([("f", kind), ("z", pa.int32())]), avro
        formats.check_columns(schema)
        decoder = formats.decoder(schema, schema, formats.column_type(schema))
        payload = f'{{"f":{text},"z":5}}'.encode()
        rows = decoder.decode(pa.array([payload, b'{"z":6}']), pa.nulls(2, pa.binary()))
        assert rows.is_bad is None, (text, decoder.explain(payload, None))
        first, missing = rows.column.to_pylist()
        assert (value_of(kind, first["f"]), first["z"], missing) == (value, 5, {"f": None, "z": 6})
        encoder = formats.encoder(schema, rows.column.type)
        assert encoder(rows.column.slice(0, 1)).values[0].as_py().decode() == (
            f'{{"f":{text if written is None else written},"z":5}}'
        )


@for_each(
    ("avro", "text", "reason"),
    [
        (DATE, "true", "expected a timestamp"),
        (DURATION, "1.5.0", "malformed JSON: Expecting ',' delimiter"),
        (OBJECT, '{"a":}', "malformed JSON: Expecting value"),
        (CHAR, "[]", "expected text"),
        (CHARS, '["a","b"]', "expected text"),
        (WIDE, "[]", "expected text"),
        (TIME, "[10]", "expected one of 2 to 4 numbers"),
        (TIME, "[10,11,12,13,14]", "expected one of 2 to 4 numbers"),
        (TIME, "[24,0]", "not a time of day"),
        (TIME, "[0,60]", "not a time of day"),
        (TIME, "[0,0,-1]", "not a time of day"),
        (TIME, "[0,0,0,1000000000]", "not a time of day"),
        (TIME, '"1:2"', "expected a time of day"),
        (TIME, "2147483648", "out of range"),
        (pairs("int", "string"), '{"x":"y"}', "field 'f[0].key': expected a whole number"),
        (pairs("int", "string"), '{"7":5,"8":[]}', "field 'f[1].value': expected text"),
        (pairs("int", "string"), '{"7":"x"]', "malformed JSON: Expecting ',' delimiter"),
        ({"type": "array", "items": PART}, '{"7":{"n":1}}', "expected an array"),
    ],
)
def test_what_java_does_not_write_is_a_bad_row(avro, text, reason):
    schema = json_schema({"type": "record", "name": "R", "fields": [{"name": "f", "type": avro}]})
    decoder = formats.decoder(schema, schema, formats.column_type(schema))
    payload = f'{{"f":{text}}}'.encode()
    rows = decoder.decode(pa.array([payload, b"{}"]), pa.nulls(2, pa.binary()))
    assert rows.is_bad.tolist() == [True, False]
    assert rows.column.to_pylist() == [None, {"f": None}]
    assert reason in decoder.explain(payload, None)


NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "kids", "type": ["null", {"type": "array", "items": "Node"}], "default": None},
        {"name": "named", "type": ["null", {"type": "map", "values": "Node"}], "default": None},
        {"name": "next", "type": ["null", "Node"], "default": None},
        {"name": "v", "type": "int"},
    ],
}


def test_a_class_within_itself_is_json_there():
    schema = json_schema(NODE)
    text = pa.string()
    assert formats.column_type(schema) == pa.struct(
        [
            ("kids", pa.list_(pa.field("element", text))),
            ("named", pa.map_(text, pa.field("value", text))),
            ("next", text),
            ("v", pa.int32()),
        ]
    )
    formats.check_columns(schema)
    decoder = formats.decoder(schema, schema, formats.column_type(schema))
    payloads = [b'{"v":1,"next":{"v":2,"next":{"v":3}},"kids":[{"v":4}],"named":{"a":{"v":5}}}', b'{"v":1}']
    rows = decoder.decode(pa.array(payloads), pa.nulls(2, pa.binary()))
    assert rows.is_bad is None
    assert rows.column.to_pylist() == [
        {"v": 1, "next": '{"v":2,"next":{"v":3}}', "kids": ['{"v":4}'], "named": [("a", '{"v":5}')]},
        {"v": 1, "next": None, "kids": None, "named": None},
    ]
    again = formats.encoder(schema, rows.column.type)(rows.column).values
    assert [json.loads(each) for each in again.to_pylist()] == [json.loads(each) for each in payloads]


@pytest.mark.parametrize(
    ("avro", "values", "reason"),
    [
        (OBJECT, ["{}", None, "{"], "not JSON"),
        (OBJECT, ["", "1"], "not JSON"),
        (OBJECT, ["NaN"], "not JSON"),
        (OBJECT, ['{"a":[-Infinity]}'], "not JSON"),
        (OBJECT, ["[" * 100_000], "not JSON"),
        (WIDE, ["1.5", "x"], "not a number"),
        (WIDE, ["01"], "not a number"),
        (WIDE, ["1\n"], "not a number"),
        (CHAR, ["ab"], "not one character"),
        (CHAR, ["\U0001f600"], "not one character"),
        (TIME, [86_400_000], "not between 0 and 24 hours"),
        (TIME, [-1], "not between 0 and 24 hours"),
        (TIME_MICROS, [86_400_000_000], "not between 0 and 24 hours"),
        (pairs(["null", "int"], "int"), [[{"key": None, "value": 1}]], "null as a key"),
    ],
)
def test_what_java_cannot_read_is_not_written(avro, values, reason):
    schema = json_schema({"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", avro]}]})
    kind = formats.column_type(schema)
    rows = pa.array([{"f": value} for value in values], kind)
    with pytest.raises(SchemaError, match=reason):
        formats.encoder(schema, kind)(rows)


def test_defaults_have_the_form_of_payloads():
    fields = [
        {"name": "char", "type": CHAR, "default": 99},
        {"name": "chars", "type": CHARS, "default": [97, 98]},
        {"name": "wide", "type": WIDE, "default": "\u0004\u00e2"},
        {"name": "time", "type": TIME, "default": 36_672_013},
        {"name": "object", "type": OBJECT, "default": {"a": [1]}},
        {"name": "map", "type": pairs("int", "string"), "default": [{"key": 1, "value": "x"}]},
    ]
    newer = json_schema({"type": "record", "name": "R", "fields": [{"name": "z", "type": "int"}, *fields]})
    older = json_schema({"type": "record", "name": "R", "fields": [{"name": "z", "type": "int"}]})
    expected = {
        "z": 1,
        "char": "c",
        "chars": "ab",
        "wide": "12.50",
        "time": 36_672_013,
        "object": '{"a":[1]}',
        "map": [{"key": 1, "value": "x"}],
    }
    decoder = formats.decoder(older, newer, formats.column_type(newer))
    found = decoder.decode(pa.array([b'{"z":1}']), pa.nulls(1, pa.binary())).column
    assert found.to_pylist() == [expected]
    rows = pa.array([{"z": 1}], pa.struct([("z", pa.int32())]))
    (written,) = formats.encoder(newer, rows.type)(rows).values.to_pylist()
    again = formats.decoder(newer, newer, formats.column_type(newer))
    assert again.decode(pa.array([written]), pa.nulls(1, pa.binary())).column.to_pylist() == [expected]


@pytest.mark.parametrize(
    ("avro", "default"),
    [
        (CHAR, "c"),
        (CHAR, 1 << 16),
        (CHAR, 0xD800),
        (CHARS, 5),
        (WIDE, ""),
        (WIDE, "\u0001" * 2000),
        (WIDE, 5),
    ],
)
def test_defaults_that_are_none(avro, default):
    fields = [{"name": "f", "type": avro, "default": default}]
    schema = json_schema({"type": "record", "name": "R", "fields": fields})
    older = json_schema({"type": "record", "name": "R", "fields": []})
    decoder = formats.decoder(older, schema, formats.column_type(schema))
    assert decoder.explain(b"{}", None).startswith("the default of field 'f'")


def test_in_a_union_what_takes_any_json_is_the_last():
    union = [OBJECT, "int", PART, "boolean"]
    schema = json_schema({"type": "record", "name": "R", "fields": [{"name": "f", "type": union}]})
    texts = ["5", '{"n":1}', '{"x":1}', "true", '"x"', "[1]", "5.5"]
    payloads = [f'{{"f":{text}}}'.encode() for text in texts]
    decoder = formats.decoder(schema, schema, formats.column_type(schema))
    rows = decoder.decode(pa.array(payloads), pa.nulls(len(payloads), pa.binary()))
    assert rows.is_bad is None
    found = [
        next((name, value) for name, value in row["f"].items() if value is not None)
        for row in rows.column.to_pylist()
    ]
    assert found == [
        ("member1", 5),
        ("member2", {"n": 1}),
        ("member0", '{"x":1}'),
        ("member3", True),
        ("member0", '"x"'),
        ("member0", "[1]"),
        ("member0", "5.5"),
    ]


def test_rows_read_together_and_one_by_one_are_the_same():
    tree = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": OBJECT}, {"name": "t", "type": TIME}],
    }
    schema = json_schema(tree)
    values = [
        *("5", "-1.5e3", '"x"', '"a\\n\u00e9"', "true", "false", "null", "[1]", '{"a":1}', "nul"),
        *("1.", "NaN"),
    ]
    payloads = pa.array([f'{{"a":{value},"t":{row}}}'.encode() for row, value in enumerate(values * 10)])
    keys = pa.nulls(len(payloads), pa.binary())
    decoder = formats.decoder(schema, schema, formats.column_type(schema))
    found = decoder.decode(payloads, keys)
    alone = [decoder.decode(payloads[row : row + 1], keys[:1]) for row in range(len(payloads))]
    assert found.column.to_pylist() == [each.column[0].as_py() for each in alone]
    assert found.is_bad.tolist() == [each.is_bad is not None for each in alone]
    assert found.column.field("a").to_pylist()[:6] == [*values[:6]]


def test_avro_has_none_of_these():
    fields = [
        {"name": f"f{n}", "type": avro} for n, avro in enumerate((CHAR, CHARS, WIDE, TIME, TIME_MICROS, DATE))
    ]
    schema = Schema(SchemaType.AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}).encode())
    kinds = [
        pa.int32(),
        pa.list_(pa.field("element", pa.int32())),
        pa.binary(),
        pa.int32(),
        pa.int64(),
        pa.struct([]),
    ]
    assert [field.type for field in formats.column_type(schema)] == kinds


def test_a_column_is_added_beside_them():
    schema = json_schema(
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", OBJECT], "default": None}]}
    )
    rows = pa.struct([("f", pa.string()), ("g", pa.int32())])
    more = merged(schema, rows)
    assert json.loads(more.data)["fields"][0]["type"] == ["null", OBJECT]
    assert formats.column_type(more) == rows


def test_a_name_that_only_the_payload_has_is_a_null():
    """Java's ``@JsonProperty("v_") int v``."""
    schema = json_schema({"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}]})
    decoder = formats.decoder(schema, schema, formats.column_type(schema))
    rows = decoder.decode(pa.array([b'{"v_":5}']), pa.nulls(1, pa.binary()))
    assert rows.is_bad is None
    assert rows.column.to_pylist() == [{"v": None}]
