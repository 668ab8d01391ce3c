"""Record batches: their schema, what they share and where they are cut."""

import math
from itertools import product

import pyarrow as pa
import pytest

from pulsar_spark.client import RangeEntries, ReaderSchema, Schema, SchemaType, TypedValueReader
from pulsar_spark.client.reading import decode
from pulsar_spark.client.reading.entry_range import RangeOptions
from pulsar_spark.client.reading.message_range import whole_messages
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.rows.read import BadRows, SchemaValues, record_batches
from pulsar_spark.spark.rows.schema import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS, RowColumns
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns import message_ids
from pulsar_spark.wire.entry.entries import Entries
from tests.client.reading.stored_entries import (
    TOPIC,
    batch_entry,
    bomb,
    columns,
    compacted_entry,
    single_entry,
)
from tests.work import calls

ALL = tuple(METADATA_COLUMNS)


def batches_of(groups, *positions, columns=DEFAULT_METADATA_COLUMNS, **limits) -> list[pa.RecordBatch]:
    entries = [Entries.of(group) for group in groups]
    batches = list(
        record_batches([RangeEntries(TOPIC, entries, *positions)], columns=RowColumns(columns), **limits)
    )
    for batch in batches:
        assert batch.schema.equals(RowColumns(columns).arrow_schema, check_metadata=True)
        batch.validate(full=True)
    return batches


def rows_of(groups, *positions, **more) -> list[dict]:
    return [row for batch in batches_of(groups, *positions, **more) for row in batch.to_pylist()]


def sizes_of(groups, **limits) -> list[int]:
    return [batch.num_rows for batch in batches_of(groups, **limits)]


@pytest.mark.parametrize("max_rows", [1, 2, 100])
def test_rows_without_columns_are_counted(max_rows):
    schema = Schema(SchemaType.AVRO, b'{"type":"record","name":"R","fields":[]}')
    reader = ReaderSchema(schema, is_given=True, is_default=True)
    rows = RowColumns((), reader.type, is_flat=True)
    typed = TypedValueReader(lambda topic, versions: {}, TOPIC, reader, rows.target)
    entries = Entries.of([batch_entry(7, 0, columns([b"", None, b"x"])), single_entry(7, 1, b"")])
    for bad_rows, count in ((BadRows.PERMISSIVE, 4), (BadRows.DROPMALFORMED, 3)):
        values = SchemaValues(typed, rows, bad_rows)
        batches = list(
            record_batches(
                [RangeEntries(TOPIC, [entries])], columns=rows, values=values.read, max_rows=max_rows
            )
        )
        assert sum(each.num_rows for each in batches) == count
        assert all(each.schema.equals(rows.arrow_schema, check_metadata=True) for each in batches)


def test_the_columns_of_a_row_are_those_of_one_message():
    groups = [
        [
            batch_entry(7, 3, columns([b"a", None], [b"k", None])),
            single_entry(7, 4, b"s", partition_key=b"x"),
        ],
        [compacted_entry(7, 5, b"abcd", gone={0, 2})],
    ]
    rows = rows_of(groups, columns=("__key", "__offset", "__isNull"))
    assert [tuple(row.values()) for row in rows] == [
        (b"a", b"k", "7:3:0", False),
        (None, None, "7:3:1", True),
        (b"s", b"x", "7:4", False),
        (b"b", None, "7:5:1", False),
        (b"d", None, "7:5:3", False),
    ]
    assert rows_of(groups, MessageId(7, 3, 0), MessageId(7, 5, 1), columns=("__offset",)) == [
        {"value": None, "__offset": "7:3:1"},
        {"value": b"s", "__offset": "7:4"},
        {"value": b"b", "__offset": "7:5:1"},
    ]


def test_a_partition_with_one_message_costs_little(monkeypatch):
    """A task may read thousands of them. Each step counts: it took 615 calls."""
    monkeypatch.setattr(decode, "_JOINED_SECONDS", math.inf)  # a busy machine joins few ranges in 0.1 s
    options = RangeOptions(poll_timeout=1.0)
    start, end, count = MessageId(5, -1), MessageId(5, 0), 50

    def ranges():
        for number in range(count):
            topic = TOPIC.base.of_partition(number)
            stored = (each for each in [Entries.of([single_entry(5, 0, b"value")])])
            # A client is for chunks.
            whole = whole_messages(None, topic, start, end, stored, options, None, None)
            yield RangeEntries(topic, whole, start, end)

    def read() -> int:
        return sum(batch.num_rows for batch in record_batches(ranges()))

    assert read() == count
    assert calls(read) / count < 300


def test_rows_of_ranges_have_their_own_topics():
    """Those of each range alone, also where a range has several kinds of entries, or a cut of one."""
    names = [TOPIC.base, *(TOPIC.base.of_partition(number) for number in (3, 1, 300))]
    names.append(TOPIC.base.segment(0, 0x7FFF, 0))
    kinds = [
        [single_entry(5, 0, b"s", partition_key=b"k"), single_entry(5, 1, b"t")],
        [batch_entry(5, 2, columns([b"a", b"b", b"c"])), single_entry(5, 3, b"d")],
        [batch_entry(5, 4, columns([b"e", b"f"])), compacted_entry(5, 5, b"ghij", gone={0, 2})],
        [single_entry(5, number, b"%d" % number) for number in range(30)],
    ]
    positions = [(None, None), (MessageId(5, 2, 0), MessageId(5, 5, 1))]
    asked = list(product(names, kinds, positions))
    chosen = RowColumns(ALL)

    def rows(given):
        ranges = [RangeEntries(topic, [Entries.of(kind)], *both) for topic, kind, both in given]
        return [row for batch in record_batches(ranges, columns=chosen) for row in batch.to_pylist()]

    assert rows(asked) == [row for each in asked for row in rows([each])]


def test_no_rows_no_batches():
    assert batches_of([]) == []
    assert batches_of([[batch_entry(1, 0, columns([b"a"] * 3))]], MessageId(1, 0, 2), MessageId(1, 9)) == []


def test_ids_of_a_long_batch_are_those_of_protobuf():
    rows = rows_of([[batch_entry(9, 1, columns([b""] * 20_000))]], columns=("__messageId",))
    for index in (0, 1, 127, 128, 129, 16_383, 16_384, 19_999):
        expected = pb.MessageIdData(ledgerId=9, entryId=1, partition=3, batch_index=index, batch_size=20_000)
        assert rows[index]["__messageId"] == expected.SerializeToString()


def test_small_entries_share_a_record_batch():
    assert sizes_of([[batch_entry(1, n, columns([b"v"] * 10))] for n in range(10)], max_rows=40) == [
        40,
        40,
        20,
    ]


def test_large_entries_are_split_by_rows():
    values = [b"%05d" % row for row in range(1000)]
    batches = batches_of([[batch_entry(1, 0, columns(values))]], max_rows=300)
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]
    assert [value for batch in batches for value in batch["value"].to_pylist()] == values
    assert {batch["value"].buffers()[2].address for batch in batches} == {
        batches[0]["value"].buffers()[2].address
    }
    for count, expected in ((599, [599]), (600, [300, 300]), (601, [300, 300, 1])):
        assert sizes_of([[batch_entry(1, 0, columns(values[:count]))]], max_rows=300) == expected


def test_large_entries_are_split_by_the_bytes_of_their_payloads():
    values = [b"x" * 100, None, b"y" * 5000, b"z" * 100, b"z" * 100, b""]
    assert sizes_of([[batch_entry(1, 0, columns(values))]], max_bytes=1000) == [2, 1, 3]
    assert sizes_of([[batch_entry(1, 0, columns([b"x" * 500] * 5))]], max_bytes=1000) == [2, 2, 1]
    assert sizes_of([[single_entry(1, n, b"x" * 400) for n in range(7)]], max_bytes=1000) == [3, 3, 1]


def test_huge_batches_leave_nothing_in_memory():
    before = message_ids._kept_suffixes.cache_info().currsize
    assert sum(sizes_of([[bomb(90_000)]])) == 90_000
    assert message_ids._kept_suffixes.cache_info().currsize == before


def test_a_chunked_message_is_a_batch_of_its_own_that_is_not_copied():
    payload = memoryview(bytes(range(256)) * 40_000)
    whole = single_entry(5, 9, payload, num_chunks_from_msg=3)._replace(first_chunk=MessageId(4, 300))
    around = single_entry(5, 10, b"small")
    batches = batches_of([[around, whole, around]])
    assert [batch.num_rows for batch in batches] == [1, 1, 1]
    value = batches[1].column(0)
    assert value.buffers()[2].address == pa.py_buffer(payload).address
    assert value.to_pylist() == [payload]
