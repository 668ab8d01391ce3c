"""Typed values: how much a task decodes of few bytes, and the parts that it decodes at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_spark.client.reading.decode import RangeEntries, decode_entries
from pulsar_spark.client.reading.typed_values import ReaderSchema, TypedValueReader
from pulsar_spark.values import formats, value_bounds
from pulsar_spark.values.value_bounds import WorkPool
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages
from pulsar_spark.wire.entry.entries import Entries
from tests.client.reading.csv_values import CsvDecoder, installed
from tests.client.reading.stored_entries import TOPIC, columns, entry_of
from tests.client.reading.test_typed_values import all_kinds as all_kinds
from tests.client.reading.test_typed_values import broker as broker
from tests.client.reading.test_typed_values import entry, messages_of, reader_of, rows_of
from tests.values.test_value_bounds import KINDS
from tests.work import calls

ROOT = Path(__file__).resolve().parents[3]

csv_only = pytest.fixture(autouse=True)(installed)


def dense(number, value, count, **fields):
    """An entry of a few stored bytes whose values are megabytes."""
    plain = encode_batch_messages(columns([value] * count)).buffer.tobytes()
    fields |= {"num_messages_in_batch": count, "schema_version": bytes(8)}
    return entry_of(5, number, plain, compression=pb.ZSTD, **fields)


def test_values_with_too_many_items_for_their_bytes_are_bad_and_not_decoded(broker):
    """Those of other entries are as they were."""
    many = b",".join([b"1"] * 400_000)
    entries = [entry(0, 0, b"1"), dense(1, many, 2), entry(2, 0, b"2"), dense(3, b"x" * 800_000, 2)]
    reader = reader_of(broker, 0)
    (messages,) = decode_entries(
        [RangeEntries(TOPIC, [Entries.of(entries)])], max_rows=10_000, max_bytes=1 << 23
    )
    (values,) = reader.read(messages)
    assert values.is_bad.tolist() == [False, True, True, False, True, True]
    assert [None if row is None else row["a"] for row in rows_of(values)] == [1, None, None, 2, None, None]
    assert values.error(4, is_fatal=True).what.startswith(
        "a value of schema version 0 cannot be read: field a is x"
    )
    error = values.error(1, is_fatal=True)
    assert error.message_id == "5:1:0"
    assert "it has more items or fields than its bytes pay for" in error.what
    assert values.payloads[1].as_py() == many


def test_the_same_values_are_good_in_an_entry_of_enough_bytes(broker):
    many = b",".join([b"1"] * 400_000)
    padding = [pb.KeyValue(key=b"p", value=bytes(150_000))]
    (messages,) = decode_entries(
        [RangeEntries(TOPIC, [Entries.of([dense(1, many, 2, properties=padding)])])],
        max_rows=10,
        max_bytes=1 << 23,
    )
    (values,) = reader_of(broker, 0).read(messages)
    assert values.error(0, is_fatal=True).what.endswith("bytes are left over"), "by what they are"


def test_all_values_of_a_task_share_an_allowance(broker):
    """Whatever topics they are of: 20 entries with a value of 100,000 items each took 16 s."""
    pool, bad = WorkPool(), []
    for number in range(20):
        entries = Entries.of([dense(number, b",".join([b"1"] * 100_000), 1)])
        (messages,) = decode_entries([RangeEntries(TOPIC, [entries])], max_rows=10, max_bytes=1 << 23)
        (values,) = reader_of(broker, 0, pool=pool).read(messages)
        bad.append("bytes pay for" in values.error(0, is_fatal=True).what)
    assert bad == [False] * 3 + [True] * 17


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("all_kinds")
def test_equal_rows_are_read_however_few_bytes_they_became(kind):
    """Also by a task that has no allowance left."""
    schema, make = KINDS[kind]
    reader = ReaderSchema(schema, {TOPIC.base: (0, schema)})
    typed = TypedValueReader(lambda _, __: {}, TOPIC, reader, reader.type, pool=WorkPool(0))
    value = make(2, 1, 1) if kind != "PROTOBUF_NATIVE" else make(1, 0, 0) + 3 * (b"\x2a\x14" + b"t" * 20)
    entries = Entries.of([dense(number, value, 1000) for number in range(30)])
    assert entries.sizes.max() < 300
    rows = 0
    for messages in decode_entries([RangeEntries(TOPIC, [entries])], max_rows=10_000, max_bytes=1 << 23):
        for values in typed.read(messages):
            assert values.is_bad is None
            rows += len(values.column)
    assert rows == 30_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("all_kinds")
def test_what_a_few_stored_bytes_become_costs_little(kind):
    """A few hundred bytes were 10 to 20 s of a worker's time."""
    of, make = KINDS[kind]
    value = make(3000, 0, 0)
    entries = [dense(1, value, (4 << 20) // len(value))]
    reader = TypedValueReader(
        lambda topic, versions: {}, TOPIC, ReaderSchema(of, {TOPIC.base: (0, of)}), formats.column_type(of)
    )

    def read():
        for messages in decode_entries(
            [RangeEntries(TOPIC, [Entries.of(entries)])], max_rows=10_000, max_bytes=1 << 23
        ):
            list(reader.read(messages))

    assert calls(read) < 3_000_000


# ---- parts


@pytest.mark.parametrize("rows", [1, 2, 5, 99])
def test_rows_that_would_take_too_much_together_are_read_in_parts(broker, rows, monkeypatch):
    entries = [
        entry(0, 0, b"1", b"2"),
        entry(1, 1, b"3,4", b"x,y"),
        entry(2, 2, b"5,6"),
        entry(3, None, b"7"),
    ]
    whole = next(reader_of(broker).read(messages_of(*entries)))
    width = (1 + 2 * 65 + 7) // 8
    monkeypatch.setattr(value_bounds, "_MAX_TOGETHER", rows * width)
    parts = reader_of(broker).read(messages_of(*entries))
    CsvDecoder.calls.clear()
    first = 0
    for part in parts:
        some = slice(first, first + rows)
        assert len(part.column) == min(rows, 6 - first)
        assert rows_of(part) == rows_of(whole)[some]
        assert part.payloads.equals(whole.payloads[some])
        bad = [] if part.is_bad is None else part.is_bad.nonzero()[0].tolist()
        for row in bad:
            assert str(part.error(row, is_fatal=True)) == str(whole.error(first + row, is_fatal=True))
        first += len(part.column)
        assert sum(CsvDecoder.calls) <= first  # the next part is not there yet
    assert first == 6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_values_that_each_take_much_are_not_in_memory_together(kind):
    command = [sys.executable, "-c", MANY.format(kind=kind)]
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert int(told.stdout.split()[-1]) < 100 * 1024  # KiB


MANY = """
import pathlib
import pyarrow as pa
from pulsar_spark.client import ReaderSchema, TypedValueReader
from tests.client.reading.stored_entries import TOPIC
from tests.client.reading.test_typed_values import entry, messages_of
from tests.values.test_value_bounds import KINDS, attacks, peak
from pulsar_spark.values import value_bounds

schema = KINDS[{kind!r}][0]
(attack, *_) = attacks({kind!r}, 20_000)
count = 40
value_bounds._MAX_TOGETHER = 16 << 20
messages = messages_of(entry(0, None, *[attack] * count))
reader = ReaderSchema(schema, is_given=True, is_default=True)
before = peak()
for values in TypedValueReader(None, TOPIC, reader, reader.type).read(messages):
    assert values.is_bad is None
    count -= len(values.column)
    del values
assert not count
print(peak(is_over=True) - before)
"""
