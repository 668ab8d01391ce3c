"""Columns of payloads: raw and by a schema, and what becomes of bad rows."""

import logging

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StructType

from pulsar_spark.client import DecodedMessages, RangeEntries, ReaderSchema, TypedValueReader
from pulsar_spark.errors import SchemaError
from pulsar_spark.schema import SchemaType
from pulsar_spark.spark.rows.read import BadRows, SchemaValues, raw_values, record_batches
from pulsar_spark.spark.rows.schema import CORRUPT_VALUE, IS_NULL, RowColumns
from pulsar_spark.values import value_bounds
from pulsar_spark.wire.entry.entries import Entries
from tests.client.reading.csv_values import csv, installed
from tests.client.reading.stored_entries import TOPIC, batch_entry, columns, single_entry

OFFSET = "__offset"
NO_MESSAGES = DecodedMessages((), 0)
SCHEMA = csv("a,b")
VERSION = {"schema_version": bytes(8)}

csv_only = pytest.fixture(autouse=True)(installed)


def rows_of(*entries, wanted=(OFFSET,), bad_rows=BadRows.FAILFAST, is_flat=True, projection=None, **limits):
    """The rows of entries whose values are of the schema."""
    reader = ReaderSchema(SCHEMA, {TOPIC.base: (0, SCHEMA)})
    of_rows = RowColumns(wanted, reader.type, is_flat)
    if projection is not None:
        of_rows = of_rows.projected(projection)
    values = SchemaValues(
        TypedValueReader(lambda topic, versions: {}, TOPIC, reader, of_rows.target), of_rows, bad_rows
    )
    batches = list(
        record_batches(
            [RangeEntries(TOPIC, [Entries.of(entries)])], columns=of_rows, values=values.read, **limits
        )
    )
    for batch in batches:
        assert batch.schema.equals(of_rows.arrow_schema, check_metadata=True)
        batch.validate(full=True)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def batch(entry, *values):
    return batch_entry(7, entry, columns(values), **VERSION)


def test_fields_are_columns_and_a_tombstone_is_a_row_of_nulls():
    assert rows_of(batch(0, b"1,2", None), single_entry(7, 1, b"3,4", **VERSION)) == [
        (1, 2, "7:0:0"),
        (None, None, "7:0:1"),
        (3, 4, "7:1"),
    ]


def test_a_deletion_is_a_tombstone():
    entry = batch_entry(7, 0, columns([b"1,2", b"", None, b""], [b"k", b"k", b"k", None]), **VERSION)
    rows = [(1, 2, False), (None, None, True), (None, None, True)]
    assert rows_of(entry, wanted=(IS_NULL,), bad_rows=BadRows.DROPMALFORMED) == rows
    rows.append((None, None, False))
    assert rows_of(entry, wanted=(IS_NULL,), bad_rows=BadRows.PERMISSIVE) == rows
    with pytest.raises(SchemaError, match="message 7:0:3"):
        rows_of(entry, wanted=(IS_NULL,))


def test_a_record_in_one_column():
    rows = rows_of(batch(0, b"1,2", None), is_flat=False)
    assert rows == [({"a": 1, "b": 2}, "7:0:0"), (None, "7:0:1")]


def test_a_projection_in_the_users_order():
    wanted = StructType().add("__offset", "string").add("b", LongType())
    assert rows_of(batch(0, b"1,2", b"3,4"), projection=wanted) == [("7:0:0", 2), ("7:0:1", 4)]
    only_metadata = StructType().add("__offset", "string")
    assert rows_of(batch(0, b"1,2"), projection=only_metadata) == [("7:0:0",)]


def test_the_first_bad_row_ends_the_read():
    with pytest.raises(SchemaError, match=r"field b is x; topic .*; message 7:1:1\. Set mode to PERM"):
        rows_of(batch(0, b"1,2"), batch(1, b"3,4", b"5,x", b"y,6"))


def test_a_bad_row_has_nulls_and_its_payload(caplog):
    rows = rows_of(
        *(batch(0, b"1,2", b"5,x", None), single_entry(7, 1, b"8,9"), single_entry(7, 2, b"8,9", **VERSION)),
        wanted=(CORRUPT_VALUE, OFFSET),
        bad_rows=BadRows.PERMISSIVE,
    )
    assert rows == [
        (1, 2, None, "7:0:0"),
        (None, None, b"5,x", "7:0:1"),
        (None, None, None, "7:0:2"),
        (None, None, b"8,9", "7:1"),
        (8, 9, None, "7:2"),
    ]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(
        f"{TOPIC}: 2 of 5 messages cannot be read and have null in their columns; first: [PULSAR_SCHEMA] "
        "a value of schema version 0 cannot be read: field b is x; topic"
    )
    assert "PERMISSIVE" not in record.getMessage(), "it is set"


def test_a_bad_key_without_a_payload_has_its_key():
    schema = csv("k,v", SchemaType.KEY_VALUE)
    reader = ReaderSchema(schema, {TOPIC.base: (0, schema)})
    of_rows = RowColumns((CORRUPT_VALUE,), reader.type, is_flat=True)
    typed = TypedValueReader(lambda topic, versions: {}, TOPIC, reader, reader.type)
    made = SchemaValues(typed, of_rows, BadRows.PERMISSIVE)
    entry = batch_entry(7, 0, columns([None, b"1", None, b"x"], [b"x", b"2", b"3", b"4"]), **VERSION)
    (rows,) = record_batches([RangeEntries(TOPIC, [Entries.of([entry])])], columns=of_rows, values=made.read)
    assert rows.column(CORRUPT_VALUE).to_pylist() == [b"x", None, None, b"x"]


def test_a_field_that_is_called_like_the_corrupt_value_is_no_metadata():
    schema = csv(f"a,{CORRUPT_VALUE}")
    reader = ReaderSchema(schema, {TOPIC.base: (0, schema)})
    of_rows = RowColumns((), reader.type, is_flat=True)
    typed = TypedValueReader(lambda topic, versions: {}, TOPIC, reader, reader.type)
    made = SchemaValues(typed, of_rows, BadRows.PERMISSIVE)
    (rows,) = record_batches(
        [RangeEntries(TOPIC, [Entries.of([batch(0, b"1,2", b"x")])])], columns=of_rows, values=made.read
    )
    assert rows.column(CORRUPT_VALUE).to_pylist() == [2, None]


def test_bad_rows_of_a_task_are_warned_of_once(caplog):
    caplog.set_level(logging.DEBUG)
    rows_of(
        *(single_entry(7, number, b"8,x", **VERSION) for number in range(3)),
        bad_rows=BadRows.DROPMALFORMED,
        max_rows=1,
    )
    levels = [record.levelno for record in caplog.records if "cannot be read" in record.getMessage()]
    assert levels[0] == logging.WARNING
    assert set(levels[1:]) <= {logging.DEBUG}
    assert len(levels) > 1


def test_good_rows_have_no_corrupt_value(caplog):
    assert rows_of(batch(0, b"1,2"), wanted=(CORRUPT_VALUE,)) == [(1, 2, None)]
    assert caplog.records == []


def test_the_payload_may_be_wanted_alone():
    wanted = StructType().add(CORRUPT_VALUE, BinaryType())
    more = {"wanted": (CORRUPT_VALUE,), "bad_rows": BadRows.PERMISSIVE}
    assert rows_of(batch(0, b"1,2", b"x"), projection=wanted, **more) == [(None,), (b"x",)]


@pytest.mark.parametrize("max_rows", [4, 100])
def test_bad_rows_may_be_left_out(max_rows, caplog):
    values = [b"x" if n % 3 == 0 else b"%d,0" % n for n in range(50)]
    rows = rows_of(
        batch(0, *values), bad_rows=BadRows.DROPMALFORMED, wanted=(CORRUPT_VALUE, OFFSET), max_rows=max_rows
    )
    assert rows == [(n, 0, None, f"7:0:{n}") for n in range(50) if n % 3]
    assert "17 of 50 messages cannot be read and are left out; first: " in caplog.text
    assert rows_of(batch(0, b"x", b"y"), bad_rows=BadRows.DROPMALFORMED) == []


@pytest.mark.parametrize("max_rows", [3, 7, 100])
@pytest.mark.parametrize("rows", [1, 4, 10])
def test_parts_that_are_read_one_after_the_other_have_their_own_metadata(rows, max_rows, monkeypatch):
    values = [b"x" if n % 7 == 0 else b"%d,0" % n for n in range(30)]
    more = {"wanted": (CORRUPT_VALUE, OFFSET), "max_rows": max_rows}
    permissive = rows_of(batch(0, *values), bad_rows=BadRows.PERMISSIVE, **more)
    monkeypatch.setattr(value_bounds, "_MAX_TOGETHER", 17 * rows)
    assert rows_of(batch(0, *values), bad_rows=BadRows.PERMISSIVE, **more) == permissive
    dropped = rows_of(batch(0, *values), bad_rows=BadRows.DROPMALFORMED, **more)
    assert dropped == [(n, 0, None, f"7:0:{n}") for n in range(30) if n % 7]


def test_batches_are_cut_by_the_bytes_that_are_read():
    values = [b"1," + b"0" * 400] * 10
    reader = ReaderSchema(SCHEMA, is_given=True, is_default=True)
    of_rows = RowColumns((), reader.type, is_flat=True)
    made = SchemaValues(
        TypedValueReader(lambda topic, versions: {}, TOPIC, reader, reader.type), of_rows, BadRows.FAILFAST
    )
    batches = record_batches(
        [RangeEntries(TOPIC, [Entries.of([batch(0, *values)])])],
        columns=of_rows,
        values=made.read,
        max_bytes=1000,
    )
    assert [each.num_rows for each in batches] == [2] * 5


def test_bytes_are_not_made_where_they_are_not_wanted(monkeypatch):
    of_rows = RowColumns().projected(StructType().add("__key", BinaryType()))
    entries = [Entries.of([batch(0, b"a", b"b")])]
    (made,) = record_batches([RangeEntries(TOPIC, entries)], columns=of_rows)
    assert made.to_pylist() == [{"__key": None}] * 2
    assert next(raw_values(of_rows)(NO_MESSAGES)).columns == {}
    (made,) = record_batches([RangeEntries(TOPIC, entries)], columns=RowColumns(()))
    assert made == pa.record_batch({"value": pa.array([b"a", b"b"])})
