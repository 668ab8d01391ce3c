"""Times of day as columns of Spark's time: in each kind of schema, at any depth, read and written."""

import json
from datetime import time

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.key_value import KeyValueParts, schema_of
from pulsar_spark.values.schema_of import schema_of as schema_of_rows
from tests.loops import for_each

TIME = pa.time64("ns")
MILLIS = {"type": "int", "logicalType": "time-millis"}
MICROS = {"type": "long", "logicalType": "time-micros"}
OF_JAVA = {"__alwaysAllowNull": "true"}
LAST = time(23, 59, 59, 999_999)


def record(*fields):
    made = [{"name": each[0], "type": each[1], **(each[2] if len(each) > 2 else {})} for each in fields]
    return json.dumps({"type": "record", "name": "R", "fields": made}).encode()


def schemas(*fields):
    data = record(*fields)
    return [
        Schema(SchemaType.AVRO, data),
        Schema(SchemaType.JSON, data),
        Schema(SchemaType.JSON, data, OF_JAVA),
    ]


def read(schema, payloads, target, writer=None):
    values = pa.array(payloads, pa.binary())
    return formats.decoder(writer or schema, schema, target).decode(
        values, pa.nulls(len(values), pa.binary())
    )


def of_each_depth(kind):
    return pa.struct(
        [
            ("plain", kind),
            ("listed", pa.list_(pa.field("element", kind))),
            ("mapped", pa.map_(pa.string(), pa.field("value", kind))),
            ("within", pa.struct([("t", kind)])),
            ("union", pa.struct([("member0", kind), ("member1", pa.bool_())])),
        ]
    )


def test_times_at_any_depth_are_read_as_they_were_written():
    fields = []
    for unit in (MILLIS, MICROS):
        inner = {"type": "record", "name": "Inner", "fields": [{"name": "t", "type": ["null", unit]}]}
        fields = [
            ("plain", ["null", unit]),
            ("listed", ["null", {"type": "array", "items": ["null", unit]}]),
            ("mapped", ["null", {"type": "map", "values": ["null", unit]}]),
            ("within", ["null", inner]),
            ("union", ["null", unit, "boolean"]),
        ]
        last = time(23, 59, 59, 999_000) if unit is MILLIS else LAST
        rows = [
            {
                "plain": last,
                "listed": [time(0), None, last],
                "mapped": [("a", last), ("b", None)],
                "within": {"t": time(10, 11)},
                "union": {"member0": last, "member1": None},
            },
            dict.fromkeys(("plain", "listed", "mapped", "within", "union")),
        ]
        column = pa.array(rows, of_each_depth(TIME))
        for schema in schemas(*fields):
            encoded = formats.encoder(schema, column.type)(column).values
            found = read(schema, encoded.to_pylist(), column.type)
            assert found.is_bad is None
            assert found.column.equals(column)
            whole = formats.column_type(schema)  # without .schema(...) columns are numbers, as before
            assert whole.field("plain").type == (pa.int32() if unit is MILLIS else pa.int64())


def test_a_new_schema_has_times_of_microseconds():
    rows = pa.struct([("t", TIME)])
    for kind in (SchemaType.AVRO, SchemaType.JSON):
        made = json.loads(schema_of_rows(kind, rows).data)
        assert made["fields"] == [{"name": "t", "type": ["null", MICROS], "default": None}]


def test_local_time_is_read_in_microseconds_and_written_exactly():
    schema = Schema(SchemaType.LOCAL_TIME)
    column = pa.array([0, None, 86_399_999_999_999], TIME)
    encoded = formats.encoder(schema, TIME)(column).values
    assert encoded.to_pylist() == [bytes(8), None, (86_399_999_999_999).to_bytes(8, "big")]
    found = read(schema, encoded.to_pylist(), TIME)
    assert found.column.to_pylist() == [time(0), None, LAST]
    assert found.column[2].value == 86_399_999_999_000
    assert read(schema, [(86_400_000_000_000).to_bytes(8, "big")], TIME).is_bad.tolist() == [True]


def test_keys_and_values_may_be_times():
    whole = Schema(SchemaType.AVRO, record(("t", MILLIS)))
    schema = schema_of(KeyValueParts(Schema(SchemaType.LOCAL_TIME), whole, False))
    kind = pa.struct([("key", TIME), ("value", pa.struct([("t", TIME)]))])
    column = pa.array([{"key": LAST, "value": {"t": time(1)}}], kind)
    encoded = formats.encoder(schema, kind)(column).values
    assert read(schema, encoded.to_pylist(), kind).column.equals(column)


@for_each("unit", [MILLIS, MICROS])
def test_numbers_beyond_a_day_are_bad(unit):
    a_day = 86_400_000 if unit is MILLIS else 86_400_000_000
    numbers = [-1, 0, a_day - 1, a_day]
    kind = pa.struct([("t", TIME)])
    for schema in schemas(("t", unit)):
        payloads = [json.dumps({"t": each}).encode() for each in numbers]
        if schema.type is SchemaType.AVRO:
            plain = Schema(SchemaType.AVRO, record(("t", unit["type"])))
            rows = pa.array([{"t": each} for each in numbers], pa.struct([("t", pa.int64())]))
            rows = rows.cast(pa.struct([("t", pa.int32() if unit is MILLIS else pa.int64())]))
            payloads = formats.encoder(plain, rows.type)(rows).values.to_pylist()
        for some in (payloads, payloads * 100):
            found = read(schema, some, kind)
            assert found.is_bad.tolist()[:4] == [True, False, False, True]
        made = formats.decoder(schema, schema, kind)
        assert made.explain(payloads[0], None) in {
            "field 't': a number that is out of range",
            "field 't': not a time of day",
        }


def test_forms_of_java_are_times():
    (_, _, schema) = schemas(("t", MILLIS))
    payloads = [b'{"t":[10,11,12,13999999]}', b'{"t":"10:11:12.013"}', b'{"t":null}']
    found = read(schema, payloads, pa.struct([("t", TIME)]))
    assert found.column.field("t").to_pylist() == [time(10, 11, 12, 13_000)] * 2 + [None]


def test_defaults_are_times():
    kind = pa.struct([("n", pa.int32()), ("t", TIME)])
    for written, wanted, theirs in zip(
        schemas(("n", "int")),
        schemas(("n", "int"), ("t", MILLIS, {"default": 1_500})),
        schemas(("n", "int"), ("t", MILLIS, {"default": 86_400_000})),
        strict=True,
    ):
        payload = b"\x02" if written.type is SchemaType.AVRO else b'{"n":1}'
        assert read(wanted, [payload], kind, written).column.to_pylist() == [
            {"n": 1, "t": time(0, 0, 1, 500_000)}
        ]
        if written.type is SchemaType.JSON:
            assert read(theirs, [payload], kind, written).is_bad.tolist() == [True]
        else:
            with pytest.raises(SchemaError, match="the default of field 't'"):
                read(theirs, [payload], kind, written)


@for_each(
    "field", ["long", ["null", "long"], {"type": "long", "logicalType": "timestamp-micros"}, ["int", "long"]]
)
def test_other_numbers_are_no_times(field):
    for schema in schemas(("n", field)):
        with pytest.raises(SchemaError, match=r"n' of the topic's schema is .*cannot be read as time\(6\)"):
            formats.decoder(schema, schema, pa.struct([("n", TIME)]))


def test_what_a_unit_does_not_have_is_refused():
    for unit, nanos in ((MILLIS, 1_000), (MICROS, 1)):
        column = pa.array([{"t": 0}, {"t": nanos}], pa.struct([("t", TIME)]))
        for schema in schemas(("t", ["null", unit])):
            with pytest.raises(SchemaError, match=r"row 1 .*more digits than the topic's unit has"):
                formats.encoder(schema, column.type)(column)
