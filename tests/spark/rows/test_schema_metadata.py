"""Each metadata column as Spark wants it: its type, and what becomes of values that Spark does not know."""

import datetime
from typing import Any

import pyarrow as pa

from pulsar_spark.client import RangeEntries, decode_entries
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.rows import schema
from pulsar_spark.spark.rows.schema import (
    BROKER_PUBLISH_TIME,
    CORRUPT_VALUE,
    DEFAULT_METADATA_COLUMNS,
    EVENT_TIME,
    INDEX,
    IS_NULL,
    KEPT_ROWS,
    KEY,
    MESSAGE_ID,
    METADATA_COLUMNS,
    OFFSET,
    ORDERING_KEY,
    PARTITION,
    PRODUCER_NAME,
    PROPERTIES,
    PUBLISH_TIME,
    REPLICATED_FROM,
    SCHEMA_ID,
    SCHEMA_VERSION,
    SEQUENCE_ID,
    TOPIC,
    Repeated,
    RowColumns,
)
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries
from tests.client.reading.stored_entries import TOPIC as PARTITION_3
from tests.client.reading.stored_entries import batch_entry, columns, single_entry
from tests.loops import for_each

UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


def decoded(*entries, topic=PARTITION_3):
    (messages,) = decode_entries(
        [RangeEntries(topic, [Entries.of(entries)])], max_rows=10_000, max_bytes=2**20
    )
    return messages


def made(name, *entries, topic=PARTITION_3):
    array = METADATA_COLUMNS[name].make(decoded(*entries, topic=topic))
    array.validate(full=True)
    assert array.type == RowColumns((name,)).arrow_schema.field(name).type
    return array


def full_single():
    fields = {"producer_name": b"maker", "schema_version": b"\0\1", "replicated_from": b"west"}
    fields["schema_id"] = b"\xff\7"
    return single_entry(
        7,
        4,
        b"s",
        partition_key=b"k",
        publish_time=1_700_000_000_123,
        event_time=77,
        properties=[pb.KeyValue(key=b"x", value=b"y")],
        ordering_key=b"o",
        sequence_id=50,
        **fields,
    )._replace(broker_index=13, broker_time=1_700_000_000_456)


# Of a batch of two bare messages, then of a single message with all fields.
EXPECTED: dict[str, list[Any]] = {
    KEY: [None, None, b"k"],
    TOPIC: ["persistent://public/default/t-partition-3"] * 3,
    MESSAGE_ID: [
        pb.MessageIdData(
            ledgerId=7, entryId=3, partition=3, batch_index=row, batch_size=2
        ).SerializeToString()
        for row in range(2)
    ]
    + [pb.MessageIdData(ledgerId=7, entryId=4, partition=3).SerializeToString()],
    PUBLISH_TIME: [EPOCH + datetime.timedelta(seconds=1)] * 2
    + [datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)],
    EVENT_TIME: [None, None, EPOCH + datetime.timedelta(milliseconds=77)],
    PROPERTIES: [[], [], [("x", "y")]],
    PARTITION: [3] * 3,
    OFFSET: ["7:3:0", "7:3:1", "7:4"],
    ORDERING_KEY: [None, None, b"o"],
    SEQUENCE_ID: [40, 40, 50],
    PRODUCER_NAME: ["p", "p", "maker"],
    SCHEMA_VERSION: [None, None, b"\0\1"],
    SCHEMA_ID: [None, None, b"\xff\7"],
    REPLICATED_FROM: [None, None, "west"],
    IS_NULL: [False, True, False],
    INDEX: [None, None, 13],
    BROKER_PUBLISH_TIME: [None, None, datetime.datetime(2023, 11, 14, 22, 13, 20, 456000, UTC)],
    CORRUPT_VALUE: [None, None, None],
}


def test_all_columns_are_looked_at_here():
    assert list(EXPECTED) == list(METADATA_COLUMNS)
    assert tuple(METADATA_COLUMNS)[: len(DEFAULT_METADATA_COLUMNS)] == DEFAULT_METADATA_COLUMNS


@for_each("name", METADATA_COLUMNS)
def test_columns_of_messages_with_and_without_their_fields(name):
    bare = batch_entry(7, 3, columns([b"a", None]), sequence_id=40)
    assert made(name, bare, full_single()).to_pylist() == EXPECTED[name]
    assert made(name, bare).to_pylist() == EXPECTED[name][:2]
    assert made(name, full_single()).to_pylist() == EXPECTED[name][2:]


def test_a_topic_without_partitions_has_null_for_its_number():
    assert made(PARTITION, single_entry(1, 0, b""), topic=TopicName.parse("t")).to_pylist() == [None]


def test_times_that_do_not_fit_are_the_nearest_that_do_and_an_event_time_of_0_is_unset():
    times = pa.array([0, 2**62, -(2**62), 1, None], pa.int64())
    entry = batch_entry(1, 0, columns([b"a"] * 5, event_time=times), publish_time=2**64 - 1)
    largest = ((2**63) // 1000 - 1) * 1000
    assert made(EVENT_TIME, entry).cast(pa.int64()).to_pylist() == [None, largest, -largest, 1000, None]
    assert set(made(PUBLISH_TIME, entry).cast(pa.int64()).to_pylist()) == {largest}
    signed = single_entry(1, 0, b"", publish_time=2**62)
    assert made(PUBLISH_TIME, signed).cast(pa.int64()).to_pylist() == [largest]


def test_offsets_of_singles_alone_have_no_batch_index():
    assert made(OFFSET, single_entry(2**40, 2**33, b"")).to_pylist() == [f"{2**40}:{2**33}"]


def test_a_repeated_column_begins_with_the_rows_asked_for_and_doubles_up_to_a_limit():
    lengths = []

    def make(length):
        lengths.append(length)
        return pa.nulls(length, pa.int64())

    column = Repeated(make)
    more_than_half = KEPT_ROWS // 2 + 1
    for length in (5, 7, 9, more_than_half, more_than_half + 1, 3, KEPT_ROWS):
        assert len(column.of(length)) == length
    assert lengths == [5, 10, more_than_half, KEPT_ROWS]


def test_a_repeated_column_may_begin_with_no_row():
    column = Repeated(lambda length: pa.nulls(length, pa.int64()))
    assert [len(column.of(length)) for length in (0, 0, 2)] == [0, 0, 2]


def test_what_is_huge_is_not_kept():
    column = Repeated(lambda length: pa.nulls(length, pa.int64()))
    assert len(column.of(KEPT_ROWS + 1)) == KEPT_ROWS + 1
    assert column._array is None
    kept = (schema.NO_BYTES, schema.NO_TIME, schema.NO_PROPERTIES)
    for one in kept:
        one.of(1)
        assert len(one.of(KEPT_ROWS + 1)) == KEPT_ROWS + 1
        assert len(one._array) <= KEPT_ROWS
