"""The table of kinds of schemas."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats, key_value
from pulsar_spark.values.formats import with_tombstones
from pulsar_spark.values.interfaces import EncodedValues
from tests.loops import for_each
from tests.values.random_avro import record, schema_of_tree

NEVER = {SchemaType.PROTOBUF, SchemaType.AUTO_CONSUME, SchemaType.EXTERNAL}
RECORDS = {SchemaType.AVRO, SchemaType.JSON}
PRIMITIVES = set(SchemaType) - NEVER - RECORDS - {SchemaType.KEY_VALUE, SchemaType.PROTOBUF_NATIVE}


@for_each("kind", sorted(PRIMITIVES - {SchemaType.TIME}))
def test_each_kind_is_read_and_written(kind):
    schema = Schema(kind)
    column = formats.column_type(schema)
    rows = pa.nulls(2, column)
    values = formats.encoder(schema, column)(rows).values
    decoder = formats.decoder(schema, schema, column)
    assert decoder.type == column
    assert decoder.decode(values, pa.nulls(2, pa.binary())).column == rows


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_records_are_read_and_written(kind):
    schema = Schema(kind, b'{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]}]}')
    column = formats.column_type(schema)
    rows = pa.array([{"a": 5}, {"a": None}], column)
    values = formats.encoder(schema, column)(rows).values
    assert formats.decoder(schema, schema, column).decode(values, pa.nulls(2, pa.binary())).column == rows


@pytest.mark.parametrize("kind", sorted(NEVER))
def test_kinds_without_columns_are_refused_with_the_way_out(kind):
    schema = Schema(kind)
    for ask in (
        lambda: formats.column_type(schema),
        lambda: formats.decoder(schema, schema, pa.binary()),
        lambda: formats.encoder(schema, pa.binary()),
    ):
        with pytest.raises(UnsupportedError, match=rf"{kind.name}.*valueFormat=raw"):
            ask()


def test_the_way_to_read_plain_protobuf():
    with pytest.raises(UnsupportedError, match=r"PROTOBUF have no columns.*set schemaType=protobuf"):
        formats.column_type(Schema(SchemaType.PROTOBUF))


def test_new_values_of_keys_and_values():
    def schema(kind, key):
        own, other = (Schema(kind, json.dumps(each).encode()) for each in (key, "int"))
        return key_value.schema_of(key_value.KeyValueParts(own, other, is_separated=True))

    old, new = (schema(SchemaType.AVRO, key) for key in ("int", ["null", "int"]))
    assert list(formats.new_values(new, old)) == ["key as null"]
    assert list(formats.new_values(old, new)) == []
    assert list(formats.new_values(Schema(SchemaType.STRING), old)) == []


ITEMS = {"type": "array", "items": "null"}


@for_each(
    ("kind", "tree", "payloads"),
    [
        (SchemaType.AVRO, record(("n", "null"), ("a", "int")), [b"\x02", b"\x04"]),
        (SchemaType.AVRO, record(("n", ["null"]), ("l", ITEMS)), [b"\0\x04\0", b"\0\0"]),
        (SchemaType.AVRO, record(("m", {"type": "map", "values": "null"})), [b"\x02\x02a\0", b"\0"]),
        (SchemaType.AVRO, "int", [b"\x02", None, b"\x04"]),
        (SchemaType.AVRO, {"type": "enum", "name": "E", "symbols": ["A", "B"]}, [b"\x02"]),
        (SchemaType.AVRO, {"type": "map", "values": "int"}, [b"\x02\x02a\x02\0"]),
        (SchemaType.AVRO, {"type": "array", "items": record(("a", "int"))}, [b"\x02\x02\0", b"\0"]),
        (SchemaType.AVRO, ["null", "int"], [b"\x02\x04"]),
        (SchemaType.AVRO, ["null", record(("value", "int"))], [b"\x02\x04"]),
        (SchemaType.AVRO, ["int", "string"], [b"\0\x04", b"\x02\x02a"]),
        (SchemaType.JSON, record(("n", "null"), ("l", ITEMS), ("a", "int")), [b'{"l":[null,null],"a":1}']),
        (SchemaType.JSON, "string", [b'"a"', None]),
        (SchemaType.JSON, {"type": "array", "items": "int"}, [b"[1]", b"[]"]),
    ],
)
def test_what_is_read_can_be_written(kind, tree, payloads):
    """Nulls, and roots that are no record, by columns as Spark has them."""
    schema = schema_of_tree(tree, kind)
    own = formats.column_type(schema)
    values = pa.array(payloads, pa.binary())
    rows = formats.decoder(schema, schema, own).decode(values, pa.nulls(len(values), pa.binary())).column
    if not pa.types.is_struct(own):
        rows = pa.StructArray.from_arrays([rows], ["value"])
    assert formats.encoder(schema, rows.type)(rows).values.to_pylist() == payloads
    assert formats.encoder(schema, rows.type)(rows[1:]).values.to_pylist() == payloads[1:]


NUMBER = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}


@pytest.mark.parametrize(("kind", "digit"), [(SchemaType.AVRO, b"\x02\x7b"), (SchemaType.JSON, b"12.3")])
def test_decimals_are_read_as_wider_ones(kind, digit):
    """At any depth; narrower ones are refused."""
    is_avro = kind is SchemaType.AVRO
    schema = schema_of_tree(record(("l", {"type": "array", "items": NUMBER}), ("b", NUMBER)), kind)
    payload = b"\x02" + digit + b"\0" + digit if is_avro else b'{"l":[%s],"b":%s}' % (digit, digit)
    wide = pa.decimal128(20, 6)
    target = pa.struct([("b", wide), ("l", pa.list_(pa.field("element", wide)))])
    decoder = formats.decoder(schema, schema, target)
    found = decoder.decode(pa.array([payload, b"\xff", None]), pa.nulls(3, pa.binary()))
    assert found.column.type == decoder.type == target
    number = Decimal("12.300000")
    assert found.column.to_pylist() == [{"b": number, "l": [number]}, None, None]
    assert found.is_bad.tolist() == [False, True, False]
    for narrow in (pa.decimal128(5, 3), pa.decimal128(3, 1), pa.int64()):
        with pytest.raises(SchemaError, match="cannot be read as"):
            formats.decoder(schema, schema, pa.struct([("b", narrow)]))


def test_a_void_column_is_null_in_any_nullable_field():
    schema = schema_of_tree(record(("a", ["null", "int"]), ("b", ["string", "null"])))
    rows = pa.array([{"a": None, "b": None}], pa.struct([("a", pa.null()), ("b", pa.null())]))
    assert formats.encoder(schema, rows.type)(rows).values.to_pylist() == [b"\0\x02"]
    with pytest.raises(SchemaError, match="'a' is void, but the topic has int"):
        formats.encoder(schema_of_tree(record(("a", "int"))), pa.struct([("a", pa.null())]))


def test_values_of_another_kind_are_not_read():
    with pytest.raises(SchemaError, match=r"INT32.*INT64.*valueFormat=raw"):
        formats.decoder(Schema(SchemaType.INT32), Schema(SchemaType.INT64), pa.int64())


def test_values_of_the_schema_time_are_not_written():
    """Java's is a time of day, and Pulsar's milliseconds since 1970."""
    schema = Schema(SchemaType.TIME)
    for source in (formats.column_type(schema), pa.time64("us"), pa.int64()):
        with pytest.raises(SchemaError, match=r"cannot be written as TIME.* such as one with the schema"):
            formats.encoder(schema, source)


def test_values_of_protobuf_are_not_written():
    with pytest.raises(UnsupportedError, match=r"PROTOBUF_NATIVE cannot be written.*valueFormat=raw"):
        formats.encoder(Schema(SchemaType.PROTOBUF_NATIVE), pa.binary())


TYPE = pa.struct([("n", pa.int32())])


class Payloads:
    """Encodes rows as their text, and takes no null."""

    def __init__(self) -> None:
        self.rows: list[list] = []

    def __call__(self, rows: pa.Array) -> EncodedValues:
        self.rows.append(rows.to_pylist())
        for number, row in enumerate(self.rows[-1]):
            if row is None or row["n"] is None:
                raise SchemaError(f"row {number}: null")
        return EncodedValues(pa.array([str(row["n"]).encode() for row in self.rows[-1]], pa.binary()))


def encoded(rows: list, start: int = 0) -> list[bytes | None]:
    return with_tombstones(Payloads())(pa.array(rows, TYPE).slice(start)).values.to_pylist()


def test_null_records_are_tombstones():
    assert encoded([{"n": 1}, {"n": 2}]) == [b"1", b"2"]
    assert encoded([None, {"n": 1}, None, {"n": 2}]) == [None, b"1", None, b"2"]
    assert encoded([{"n": 0}, None, {"n": 1}, None], 1) == [None, b"1", None]
    assert encoded([None, None]) == [None, None]
    assert encoded([]) == []


def test_rows_of_errors_keep_their_numbers():
    with pytest.raises(SchemaError, match="row 2: null"):
        encoded([None, {"n": 1}, {"n": None}])


def test_records_are_written_so():
    schema = Schema(SchemaType.AVRO, b'{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}')
    rows = pa.array([{"n": 1}, None, {"n": -1}], TYPE)
    assert formats.encoder(schema, TYPE)(rows).values.to_pylist() == [b"\x02", None, b"\x01"]
