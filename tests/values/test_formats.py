"""The table of kinds of schemas."""

import json

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats, key_value
from pulsar_spark.values.formats import TombstoneEncoder
from pulsar_spark.values.interfaces import EncodedValues
from tests.loops import for_each

NEVER = {SchemaType.PROTOBUF, SchemaType.AUTO_CONSUME, SchemaType.EXTERNAL}
RECORDS = {SchemaType.AVRO, SchemaType.JSON}
PRIMITIVES = set(SchemaType) - NEVER - RECORDS - {SchemaType.KEY_VALUE, SchemaType.PROTOBUF_NATIVE}


@for_each("kind", sorted(PRIMITIVES - {SchemaType.TIME}))
def test_each_kind_is_read_and_written(kind):
    schema = Schema(kind)
    column = formats.column_type(schema)
    rows = pa.nulls(2, column)
    values = formats.encoder(schema, column).encode(rows).values
    decoder = formats.decoder(schema, schema, column)
    assert decoder.type == column
    assert decoder.decode(values, pa.nulls(2, pa.binary())).column == rows


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_records_are_read_and_written(kind):
    schema = Schema(kind, b'{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]}]}')
    column = formats.column_type(schema)
    rows = pa.array([{"a": 5}, {"a": None}], column)
    values = formats.encoder(schema, column).encode(rows).values
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

    def encode(self, rows: pa.Array) -> EncodedValues:
        self.rows.append(rows.to_pylist())
        for number, row in enumerate(self.rows[-1]):
            if row is None or row["n"] is None:
                raise SchemaError(f"row {number}: null")
        return EncodedValues(pa.array([str(row["n"]).encode() for row in self.rows[-1]], pa.binary()))


def encoded(rows: list, start: int = 0) -> list[bytes | None]:
    return TombstoneEncoder(Payloads()).encode(pa.array(rows, TYPE).slice(start)).values.to_pylist()


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
    assert formats.encoder(schema, TYPE).encode(rows).values.to_pylist() == [b"\x02", None, b"\x01"]
