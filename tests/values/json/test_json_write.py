"""Columns -> JSON: the json module reads what was written, for any schema and shape of columns."""

import base64
import datetime as dt
import decimal
import json
import struct

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroUnion,
)
from pulsar_spark.values.json import json_write
from pulsar_spark.values.json_types import column_type
from tests.loops import for_seeds
from tests.values.json_payloads import JAVA, json_schema
from tests.values.random_avro import check_written, record, schema_of_tree

UTC_MICROS = pa.timestamp("us", "UTC")
LETTERS = "".join(map(chr, [*range(0x80), 0x80, 0x9F, 0xE9, 0x2028, 0x2029, 0xFFFF, 0x1F600]))


def encoded(tree, rows, properties=None):
    return json_write.encoder(json_schema(tree, properties or {}), rows.type)(rows).values


def texts(kind, values, of=None, properties=JAVA):
    """What is written of rows of one column ``a`` that is ``kind``."""
    rows = pa.StructArray.from_arrays([pa.array(values, of)], ["a"])
    return [payload.decode() for payload in encoded(record(("a", kind)), rows, properties).to_pylist()]


def unique(pairs):
    """The object of JSON; no key may be there twice."""
    found = dict(pairs)
    assert len(found) == len(pairs)
    return found


def read(payload):
    return json.loads(payload, object_pairs_hook=unique, parse_float=decimal.Decimal)


def expected(value, avro):
    """A value of ``random_value`` as ``read`` gives it."""
    if isinstance(avro, AvroUnion):
        branch, inner = value if len(avro.members) > 1 else (0, value)
        if inner is None:
            return None
        return expected(inner, avro.branches[branch] if len(avro.members) > 1 else avro.members[0])
    if isinstance(avro, AvroRecord):
        fields = {field.name: expected(value[field.name], field.type) for field in avro.fields}
        return {name: field for name, field in fields.items() if field is not None}
    if isinstance(avro, AvroArray):
        return [expected(item, avro.items) for item in value]
    if isinstance(avro, AvroMap):
        return {key: expected(item, avro.values) for key, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        micros = (value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
        return (
            micros // 1000
            if avro.logical.endswith("millis")
            else micros * (1000 if "nanos" in avro.logical else 1)
        )
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(avro, AvroEnum | AvroFixed) or avro.kind != "float":
        return decimal.Decimal(repr(value)) if isinstance(value, float) else value
    return Float(value)


class Float:
    """A float of 4 bytes, equal to any number that is nearest to it."""

    def __init__(self, value):
        self.bits = struct.pack("<f", value)

    def __eq__(self, other):
        return isinstance(other, decimal.Decimal) and struct.pack("<f", float(other)) == self.bits

    __hash__ = None


@for_seeds(150, 50)
def test_any_schema_and_any_rows(seed):
    check_written(seed, encoded, lambda _, payload: read(payload), expected)


def test_nulls_are_left_out():
    tree = record(("a", ["null", "int"]), ("b", ["null", "string"]), ("c", ["null", "int"]))
    rows = pa.array(
        [{"a": a, "b": b, "c": c} for a in (1, None) for b in ("x", None) for c in (3, None)],
        column_type(schema_of_tree(tree)),
    )
    assert [payload.decode() for payload in encoded(tree, rows).to_pylist()] == [
        '{"a":1,"b":"x","c":3}',
        '{"a":1,"b":"x"}',
        '{"a":1,"c":3}',
        '{"a":1}',
        '{"b":"x","c":3}',
        '{"b":"x"}',
        '{"c":3}',
        "{}",
    ]


def test_nulls_of_items_are_written():
    assert texts({"type": "array", "items": ["null", "string"]}, [[None, "x"], [], [None]]) == [
        '{"a":[null,"x"]}',
        '{"a":[]}',
        '{"a":[null]}',
    ]
    pairs = [[("k", None), ("j", 1)], []]
    kind = pa.map_(pa.string(), pa.int32())
    assert texts({"type": "map", "values": ["null", "int"]}, pairs, kind) == [
        '{"a":{"k":null,"j":1}}',
        '{"a":{}}',
    ]


@pytest.mark.parametrize("fill", [0, 500])
def test_a_map_with_a_key_twice_is_refused(fill):
    kind = pa.map_(pa.string(), pa.int32())
    rows = [[("k", 1), ("j", 1)], [], [("k", 1)], *([(f"n{each}", each)] for each in range(fill))]
    avro = {"type": "map", "values": "int"}
    assert texts(avro, rows, kind)[:3] == ['{"a":{"k":1,"j":1}}', '{"a":{}}', '{"a":{"k":1}}']
    with pytest.raises(SchemaError, match=f"row {fill + 3} of the batch, field 'a': a map with the same key"):
        texts(avro, [*rows, [("j", 1), ("k", 2), ("j", 3)]], kind)


def test_defaults_of_fields_without_a_column_are_written():
    nullable = ["null", "int"]
    tree = record(("z", nullable), ("gone", "string", 'x"'), ("null", nullable, None), ("a", nullable))
    rows = pa.array([{"a": 1, "z": 2}, {}], pa.struct([("a", pa.int32()), ("z", pa.int32())]))
    assert encoded(tree, rows).to_pylist() == [b'{"z":2,"gone":"x\\"","a":1}', b'{"gone":"x\\""}']
    first = record(("gone", ["null", "string"], "x"), ("a", nullable))
    rows = pa.array([{"a": 1}, {}], pa.struct([("a", pa.int32())]))
    assert encoded(first, rows).to_pylist() == [
        b'{"gone":"x","a":1}',
        b'{"gone":"x"}',
    ]
    none = record(("gone", ["null", "string"], None))
    assert encoded(none, pa.array([{}, {}], pa.struct([]))).to_pylist() == [b"{}", b"{}"]


def test_every_letter():
    values = [LETTERS, *LETTERS, '\\"' * 3, ""]
    rows = pa.StructArray.from_arrays([pa.array(values)], ["a"])
    payloads = encoded(record(("a", "string")), rows).to_pylist()
    assert payloads == [
        json.dumps({"a": v}, ensure_ascii=False, separators=(",", ":")).encode() for v in values
    ]
    assert encoded(record(("a", "string")), rows.slice(5, 3)).to_pylist() == payloads[5:8]


def test_names_and_keys_are_escaped():
    name = 'a"\\\n é'
    rows = pa.StructArray.from_arrays([pa.array([[(name, 1)]], pa.map_(pa.string(), pa.int64()))], [name])
    (payload,) = encoded(record((name, {"type": "map", "values": "long"})), rows).to_pylist()
    assert json.loads(payload) == {name: {name: 1}}


def test_floating_point_numbers_look_like_such():
    values = [1.0, -0.0, 0.1, 1e20, 1e-7, 5e-324, 1.7976931348623157e308, 123456789.0, 2.0**53]
    found = texts("double", values)
    assert [json.loads(text)["a"] for text in found] == values
    assert all("." in text or "e" in text for text in found)
    floats = texts(["null", "float"], [0.1, 16777216.0, None], pa.float32())
    assert floats == ['{"a":0.1}', '{"a":16777216.0}', "{}"]
    assert texts("double", [3, -4], pa.int64()) == ['{"a":3.0}', '{"a":-4.0}']


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_what_json_has_no_number_for(value, kind):
    with pytest.raises(SchemaError, match="row 2 of the batch, field 'a': NaN or infinity"):
        texts(["null", kind], [None, 1.0, value], pa.float32())


@pytest.mark.parametrize("size", range(7))
def test_base64(size):
    values = [bytes(range(250, 250 + size)) if size < 6 else b"\xff" * 1000, None, b"", b"\0"]
    assert texts(["null", "bytes"], values) == [
        "{}" if value is None else f'{{"a":"{base64.b64encode(value).decode()}"}}' for value in values
    ]


def test_times():
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    micros = [0, -1, 1_700_000_000_123_456, None]
    assert texts(["null", kind], micros, pa.timestamp("us", "Asia/Tokyo")) == [
        '{"a":"1970-01-01T00:00:00.000000Z"}',
        '{"a":"1969-12-31T23:59:59.999999Z"}',
        '{"a":"2023-11-14T22:13:20.123456Z"}',
        "{}",
    ]
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    assert texts(local, [1], pa.timestamp("us")) == ['{"a":"1970-01-01T00:00:00.000001"}']
    assert texts({"type": "int", "logicalType": "date"}, [dt.date(2023, 1, 2)]) == ['{"a":"2023-01-02"}']


def test_times_that_are_not_of_a_class_of_java_are_numbers_of_their_unit():
    micros = [0, -1_000, 1_700_000_000_123_000, None]
    for unit, factor in (("millis", 1), ("micros", 1000), ("nanos", 1_000_000)):
        kind = {"type": "long", "logicalType": f"timestamp-{unit}"}
        assert texts(["null", kind], micros, UTC_MICROS, {}) == [
            '{"a":0}',
            f'{{"a":-{factor}}}',
            f'{{"a":{1_700_000_000_123 * factor}}}',
            "{}",
        ]
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    with pytest.raises(SchemaError, match="row 1 of the batch, field 'a': a timestamp with microseconds"):
        texts(kind, [0, 1], UTC_MICROS, {})
    clocks = {"type": "array", "items": {"type": "int", "logicalType": "time-millis"}}
    assert texts(clocks, [[0, 86_399_999]], pa.list_(pa.int32()), {}) == ['{"a":[0,86399999]}']
    assert texts({"type": "int", "logicalType": "date"}, [dt.date(1969, 12, 31)], None, {}) == ['{"a":-1}']


FIRST, LAST = -62135596800000000, 253402300799999999


@pytest.mark.parametrize(
    ("kind", "of", "good", "bad"),
    [
        (("long", "timestamp-micros"), UTC_MICROS, [FIRST, LAST], [FIRST - 1, LAST + 1]),
        (("long", "local-timestamp-micros"), pa.timestamp("us"), [FIRST, LAST], [FIRST - 1, LAST + 1]),
        (("int", "date"), pa.date32(), [-719162, 2932896], [-719163, 2932897]),
    ],
)
def test_times_of_other_years_than_those_with_four_digits(kind, of, good, bad):
    kind = {"type": kind[0], "logicalType": kind[1]}
    numbers = pa.int32() if pa.types.is_date32(of) else pa.int64()
    assert [text[5:11] for text in texts(kind, pa.array(good, numbers).view(of), of)] == ['"0001-', '"9999-']
    for value in bad:
        with pytest.raises(SchemaError, match="row 1 of the batch, field 'a': a time outside the years"):
            texts(kind, pa.array([0, value], numbers).view(of), of)


def test_decimals_are_numbers_with_all_digits():
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
    values = [decimal.Decimal("12345678901234567890123456.7"), decimal.Decimal("-0.1"), decimal.Decimal(0)]
    found = texts(kind, values, pa.decimal128(27, 1))
    assert [json.loads(text, parse_float=decimal.Decimal)["a"] for text in found] == values


def test_values_below_a_null_are_not_looked_at():
    below = pa.array([float("nan"), float("inf"), 1.0])
    parent = pa.StructArray.from_arrays([below], ["e"], mask=pa.array([True, True, False]))
    lists = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 4], pa.int32()), pa.array([1, None, 2, 3]), mask=pa.array([True, False, False])
    )
    rows = pa.StructArray.from_arrays([parent, lists], ["p", "l"])
    tree = record(
        ("p", ["null", {"type": "record", "name": "P", "fields": [{"name": "e", "type": "double"}]}]),
        ("l", ["null", {"type": "array", "items": "long"}]),
    )
    assert encoded(tree, rows).to_pylist() == [b"{}", b'{"l":[2,3]}', b'{"p":{"e":1.0},"l":[]}']


def test_members_of_a_union():
    tree = record(("u", ["null", "string", "int"]))
    kind = column_type(schema_of_tree(tree))
    rows = pa.array([{"u": value} for value in ({"member0": "a"}, {"member1": 5}, {}, None)], kind)
    assert encoded(tree, rows).to_pylist() == [b'{"u":"a"}', b'{"u":5}', b'{"u":null}', b"{}"]
    enum = {"type": "enum", "name": "E", "symbols": ["A", 'B"']}
    assert texts(["null", enum], ["A", 'B"', None]) == ['{"a":"A"}', '{"a":"B\\""}', "{}"]


def test_no_rows():
    assert encoded(record(("a", "int")), pa.array([], pa.struct([("a", pa.int32())]))).to_pylist() == []


def test_a_root_that_is_no_record():
    assert encoded(["null", "string"], pa.array(["a", None])).to_pylist() == [b'"a"', b"null"]
    assert encoded(
        {"type": "array", "items": "int"}, pa.array([[1, 2]], pa.list_(pa.int32()))
    ).to_pylist() == [b"[1,2]"]
