"""Columns -> AVRO: fastavro reads what was written, for any schema and shape of columns."""

import decimal
import io
import json

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro import avro_write
from pulsar_spark.values.json_types import column_type
from tests.loops import for_each, for_seeds
from tests.values.random_avro import bare, check_written, record, schema_of_tree

UTC_MICROS = pa.timestamp("us", "UTC")


def encoded(tree, rows):
    return avro_write.encoder(schema_of_tree(tree), rows.type)(rows).values


def read(tree, payload):
    data = io.BytesIO(payload)
    value = fastavro.schemaless_reader(data, fastavro.parse_schema(json.loads(json.dumps(tree))))
    assert data.read() == b"", "bytes left over"
    return value


def written_as(tree, rows):
    return [read(tree, payload) for payload in encoded(tree, rows).to_pylist()]


def one(kind, values, of=None):
    """Rows of one column ``a``, and what is read of it after it was written as ``kind``."""
    rows = pa.StructArray.from_arrays([pa.array(values, of)], ["a"])
    return [row["a"] for row in written_as(record(("a", kind)), rows)]


@for_seeds(150, 50)
def test_any_schema_and_any_rows(seed):
    check_written(seed, encoded, read, lambda value, _: bare(value))


def test_the_bytes_are_those_of_fastavro():
    tree = record(
        ("a", "long"),
        ("s", "string"),
        ("n", ["null", "string"]),
        ("m", ["double", "null"]),
        ("l", {"type": "array", "items": ["null", "int"]}),
        ("d", {"type": "map", "values": "boolean"}),
    )
    rows: list[dict] = [
        {"a": 2**62, "s": "", "n": None, "m": 0.5, "l": [], "d": {}},
        {"a": -(2**63), "s": "ab" * 100, "n": "", "m": None, "l": [None, 70], "d": {"x": True, "": False}},
        {"a": 0, "s": "é", "n": "x", "m": 1.0, "l": [1], "d": {"y": False}},
    ]
    parsed = fastavro.parse_schema(tree)
    expected = []
    for row in rows:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, parsed, row)
        expected.append(data.getvalue())
    columns = pa.array(
        [{**row, "d": list(row["d"].items())} for row in rows], column_type(schema_of_tree(tree))
    )
    assert encoded(tree, columns).to_pylist() == expected


@for_each("bits", range(64))
def test_varints_of_every_length(bits):
    numbers = [0, (1 << bits) - 1, -(1 << bits), -1]
    for some in (numbers, numbers[1:2], numbers[2:3]):
        expected = []
        for number in some:
            data = io.BytesIO()
            fastavro.schemaless_writer(data, "long", number)
            expected.append(data.getvalue())
        assert encoded("long", pa.array(some, pa.int64())).to_pylist() == expected


@pytest.mark.parametrize("size", [1, 2, 4, 7, 8, 9, 15, 16])
def test_decimals_have_as_few_bytes_as_javas(size):
    bounds = [
        n
        for n in (0, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)), 2 ** max(8 * size - 9, 0))
        if abs(n) < 10**38
    ]
    values = [decimal.Decimal(bound) for bound in bounds]
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
    assert one(kind, values, pa.decimal128(38)) == values
    rows = pa.StructArray.from_arrays([pa.array(values, pa.decimal128(38))], ["a"])
    for payload, bound in zip(encoded(record(("a", kind)), rows).to_pylist(), bounds, strict=True):
        magnitude = bound if bound >= 0 else ~bound
        assert len(payload) == 1 + magnitude.bit_length() // 8 + 1


def test_no_rows():
    for tree in (record(("a", {"type": "array", "items": "string"})), record(("a", "int")), record()):
        kind = column_type(schema_of_tree(tree))
        assert encoded(tree, pa.array([], kind)).to_pylist() == []


def test_a_record_without_fields_has_no_bytes():
    assert encoded(record(), pa.array([{}, {}], pa.struct([]))).to_pylist() == [b"", b""]


def test_a_root_that_is_no_record():
    assert encoded("long", pa.array([1, -1])).to_pylist() == [b"\x02", b"\x01"]
    assert encoded(["null", "string"], pa.array(["a", None])).to_pylist() == [b"\x02\x02a", b"\x00"]
    with pytest.raises(SchemaError, match="row 1 of the batch: null"):
        encoded("long", pa.array([1, None]))


def test_large_strings_and_binary():
    text = "x" * 300_000
    assert one("string", [text, "", "é"], pa.large_string()) == [text, "", "é"]
    assert one("bytes", [b"\xff", b""], pa.large_binary()) == [b"\xff", b""]


@pytest.mark.parametrize(
    ("of", "values", "kind"),
    [
        (pa.int8(), [-128, 127], "int"),
        (pa.int16(), [-(2**15)], "long"),
        (pa.int32(), [2**31 - 1, -(2**31)], "long"),
        (pa.int32(), [2**24, -(2**24)], "float"),
        (pa.int32(), [2**31 - 1], "double"),
        (pa.int64(), [2**53, -(2**62)], "double"),
        (pa.int64(), [2**24], "float"),
        (pa.float32(), [1.5], "double"),
        (pa.string(), ["é"], ["null", "string"]),
        (pa.int32(), [5], ["string", "long", "null"]),
    ],
)
def test_promotion(of, values, kind):
    assert one(kind, values, of) == values


def test_promotion_between_texts():
    assert one("bytes", ["é", ""], pa.string()) == ["é".encode(), b""]
    assert one("string", ["é".encode(), b""], pa.binary()) == ["é", ""]
    with pytest.raises(SchemaError, match="row 2 of the batch, field 'a': text that is not UTF-8"):
        one("string", [b"", b"a", b"\xff"], pa.binary())


@pytest.mark.parametrize(
    ("of", "value", "kind"),
    [
        (pa.int64(), 2**53 + 1, "double"),
        (pa.int64(), 2**63 - 1, "double"),
        (pa.int64(), 2**63 - 1, "float"),
        (pa.int32(), 2**24 + 1, "float"),
        (pa.int32(), 2**31 - 1, "float"),
        (pa.float64(), 0.1, "float"),
        (pa.float64(), 1e300, "float"),
        (pa.float64(), 1e-60, "float"),
    ],
)
def test_numbers_that_a_floating_point_number_does_not_hold(of, value, kind):
    with pytest.raises(SchemaError, match=r"row 1 of the batch, field 'a': .* loses digits"):
        one(kind, [0, value], of)


def test_wider_decimals():
    values = [decimal.Decimal("12.3"), decimal.Decimal("-99.9")]
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 20}
    assert one(kind, values, pa.decimal128(3, 1)) == values


def test_milliseconds():
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    rows = pa.StructArray.from_arrays([pa.array([0, -1000, None, 5000], UTC_MICROS)], ["a"])
    tree = record(("a", ["null", kind]))
    assert encoded(tree, rows).to_pylist() == [b"\x02\x00", b"\x02\x01", b"\x00", b"\x02\x0a"]
    with pytest.raises(SchemaError, match=r"row 1 of the batch, field 'a': .*date_trunc\('MILLISECOND'"):
        one(kind, [0, 1], UTC_MICROS)


def test_nanoseconds():
    kind = {"type": "long", "logicalType": "timestamp-nanos"}
    rows = pa.StructArray.from_arrays([pa.array([0, -1, None], UTC_MICROS)], ["a"])
    tree = record(("a", ["null", kind]))
    assert encoded(tree, rows).to_pylist() == [b"\x02\x00", b"\x02\xcf\x0f", b"\x00"]
    most = (2**63 - 1) // 1000
    for micros in (most + 1, -most - 1, -(2**63)):
        with pytest.raises(SchemaError, match=r"row 1 of the batch, field 'a': .* outside the years"):
            one(kind, [most, micros], UTC_MICROS)


def test_timestamps_of_any_zone():
    kind = {"type": "long", "logicalType": "timestamp-micros"}
    rows = pa.StructArray.from_arrays([pa.array([7], pa.timestamp("us", "America/New_York"))], ["a"])
    assert encoded(record(("a", kind)), rows).to_pylist() == [b"\x0e"]


def test_values_below_a_null_are_not_looked_at():
    below = pa.StructArray.from_arrays([pa.array(["C", None, "A"])], ["e"])
    parent = pa.StructArray.from_arrays(
        [below.field(0)], fields=list(below.type), mask=pa.array([True, True, False])
    )
    lists = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 4], pa.int32()), pa.array([1, None, 2, 3]), mask=pa.array([True, False, False])
    )
    rows = pa.StructArray.from_arrays([parent, lists], ["p", "l"])
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    tree = record(
        ("p", ["null", {"type": "record", "name": "P", "fields": [{"name": "e", "type": enum}]}]),
        ("l", ["null", {"type": "array", "items": "long"}]),
    )
    assert written_as(tree, rows) == [
        {"p": None, "l": None},
        {"p": None, "l": [2, 3]},
        {"p": {"e": "A"}, "l": []},
    ]


def test_fields_in_the_schemas_order_with_defaults_for_others():
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int", "default": 3}]}
    tree = record(
        ("z", "int"),
        ("text", "string", "déf"),
        ("none", ["null", "int"], None),
        ("long", "string", "x" * 100),
        ("inner", inner, {}),
        ("a", ["string", "null"]),
    )
    rows = pa.array(
        [{"a": "p", "z": 1}, {"a": None, "z": 2}], pa.struct([("a", pa.string()), ("z", pa.int32())])
    )
    same = {"text": "déf", "none": None, "long": "x" * 100, "inner": {"x": 3}}
    assert written_as(tree, rows) == [{"z": 1, "a": "p", **same}, {"z": 2, "a": None, **same}]


def test_members_of_a_union():
    tree = record(("u", ["null", "string", "int"]))
    kind = column_type(schema_of_tree(tree))
    values = [{"member0": "a"}, {"member1": 5}, {}, None]
    rows = pa.array([{"u": value} for value in values], kind)
    assert [row["u"] for row in written_as(tree, rows)] == ["a", 5, None, None]


def test_one_member_of_a_union_as_a_plain_column():
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    assert one(["null", enum], ["B", None]) == ["B", None]
    assert one(["null", {"type": "fixed", "name": "F", "size": 2}], [b"ab", None]) == [b"ab", None]
    assert one(["null", "string", "int"], ["a", None], pa.string()) == ["a", None]
    assert one(["null", "string", "int"], [7, None], pa.int32()) == [7, None]


def test_bytes_of_nan_and_zero_stay():
    values = np.array([np.nan, -0.0, np.inf], np.float64)
    rows = pa.StructArray.from_arrays([pa.array(values)], ["a"])
    assert b"".join(encoded(record(("a", "double")), rows).to_pylist()) == values.astype("<f8").tobytes()


def test_values_that_begin_with_bytes_of_another_system():
    schema = Schema(SchemaType.AVRO, b'"int"', {"__AVRO_READ_OFFSET__": "5"})
    with pytest.raises(UnsupportedError, match="'5' bytes"):
        avro_write.encoder(schema, pa.int32())
    same = Schema(SchemaType.AVRO, b'"int"', {"__AVRO_READ_OFFSET__": "0"})
    assert avro_write.encoder(same, pa.int32())(pa.array([1], pa.int32())).values.to_pylist() == [b"\x02"]
