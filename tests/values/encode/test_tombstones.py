"""Null records are tombstones; the others are given to the encoder as they are."""

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.encode.tombstones import TombstoneEncoder
from pulsar_spark.values.interfaces import EncodedValues

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
