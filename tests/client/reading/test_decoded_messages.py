"""The columns of decoded messages: of batches and singles, of some with a field and some without."""

import pyarrow as pa
import pytest

from pulsar_spark.client.reading import decoded_messages
from pulsar_spark.client.reading.decode import RangeEntries, decode_entries
from pulsar_spark.client.reading.decoded_messages import EXTERNAL, NO_VERSION, schema_versions
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import EntryField
from tests.client.reading.stored_entries import (
    TOPIC,
    batch_entry,
    columns,
    compacted_entry,
    metadata,
    single_entry,
)
from tests.loops import for_each

MAP = pa.map_(pa.string(), pa.string())
COLUMNS = (
    *("value", "is_null", "key", "ordering_key", "event_time", "properties", "sequence_id"),
    *("ledger", "entry", "batch_index", "broker_index", "message_id"),
)


def decoded(groups, *positions, topic=TOPIC):
    entries = [Entries.of(group) for group in groups]
    (messages,) = decode_entries([RangeEntries(topic, entries, *positions)], max_rows=10_000, max_bytes=2**20)
    for name in COLUMNS:
        array = getattr(messages, name)
        if array is not None:
            array.validate(full=True)
            assert len(array) == len(messages)
    return messages


def full_batch(entry):
    """Two messages with all fields, and one with none."""
    return batch_entry(
        7,
        entry,
        columns(
            [b"a", None, b""],
            [b"k", b"", None],
            event_time=pa.array([5, -1, None], pa.int64()),
            properties=pa.array([[("a", "1"), ("b", "2")], [("a", "")], []], MAP),
            ordering_key=pa.array([b"o", b"", None], pa.binary()),
            sequence_id=pa.array([41, 0, None], pa.int64()),
        ),
        sequence_id=40,
    )._replace(broker_index=12)


def full_single(entry):
    made = single_entry(
        7,
        entry,
        b"s",
        partition_key=b"key",
        event_time=77,
        properties=[pb.KeyValue(key=b"x", value=b"y")],
        ordering_key=b"x",
        sequence_id=50,
    )
    return made._replace(broker_index=13)


def plain_single(entry):
    return single_entry(7, entry, b"", sequence_id=51, null_value=True)


def plain_batch(entry):
    return batch_entry(7, entry, columns([b"p"]), sequence_id=60)


# Rows of full_batch (three), full_single, plain_single and plain_batch.
EXPECTED = {
    "value": [b"a", None, b"", b"s", None, b"p"],
    "is_null": [False, True, False, False, True, False],
    "key": [b"k", b"", None, b"key", None, None],
    "ordering_key": [b"o", b"", None, b"x", None, None],
    "event_time": [5, -1, None, 77, None, None],
    "properties": [[("a", "1"), ("b", "2")], [("a", "")], [], [("x", "y")], [], []],
    "sequence_id": [41, 0, 40, 50, 51, 60],
    "ledger": [7] * 6,
    "entry": [1, 1, 1, 2, 3, 4],
    "batch_index": [0, 1, 2, None, None, 0],
    "broker_index": [10, 11, 12, 13, None, None],
}
GROUPS = {
    "in one group": [[full_batch(1), full_single(2), plain_single(3), plain_batch(4)]],
    "each in its own": [[full_batch(1)], [full_single(2)], [plain_single(3)], [plain_batch(4)]],
}


@for_each("name", EXPECTED)
@for_each("groups", GROUPS.values())
def test_columns_of_batches_and_singles(groups, name):
    assert getattr(decoded(groups), name).to_pylist() == EXPECTED[name]


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS.keys())
def test_message_ids_of_batches_and_singles(groups):
    expected = [
        *(
            pb.MessageIdData(ledgerId=7, entryId=1, partition=3, batch_index=row, batch_size=3)
            for row in range(3)
        ),
        pb.MessageIdData(ledgerId=7, entryId=2, partition=3),
        pb.MessageIdData(ledgerId=7, entryId=3, partition=3),
        pb.MessageIdData(ledgerId=7, entryId=4, partition=3, batch_index=0, batch_size=1),
    ]
    assert decoded(groups).message_id.to_pylist() == [one.SerializeToString() for one in expected]


def test_a_topic_without_partitions_has_ids_without_one():
    messages = decoded([[single_entry(2**40, 2**33, b"v")]], topic=TopicName.parse("t"))
    expected = pb.MessageIdData(ledgerId=2**40, entryId=2**33)
    assert messages.message_id.to_pylist() == [expected.SerializeToString()]


def test_the_rows_that_compaction_and_positions_left_keep_what_is_theirs():
    group = [compacted_entry(1, 0, b"abcd", gone={1}, index=99), compacted_entry(1, 1, b"x", gone={0})]
    messages = decoded([[*group, plain_batch(2)]], MessageId(1, 0, 0))
    assert messages.value.to_pylist() == [b"c", b"d", b"p"]
    assert messages.batch_index.to_pylist() == [2, 3, 0]
    assert messages.broker_index.to_pylist() == [98, 99, None]
    assert messages.entry.to_pylist() == [0, 0, 2]
    assert messages.entry_field(EntryField.PRODUCER_NAME).to_pylist() == ["p"] * 3
    parsed = [pb.MessageIdData.FromString(one) for one in messages.message_id.to_pylist()]
    assert [(one.entryId, one.batch_index, one.batch_size) for one in parsed] == [
        (0, 2, 4),
        (0, 3, 4),
        (2, 0, 1),
    ]


def test_the_id_of_a_chunked_message_holds_that_of_its_first_chunk():
    small = single_entry(5, 8, b"small")
    whole = single_entry(5, 9, b"large", num_chunks_from_msg=3)._replace(first_chunk=MessageId(4, 300))
    messages = decoded([[small, whole]])
    expected = pb.MessageIdData(
        ledgerId=5,
        entryId=9,
        partition=3,
        first_chunk_message_id=pb.MessageIdData(ledgerId=4, entryId=300, partition=3),
    )
    first = pb.MessageIdData(ledgerId=5, entryId=8, partition=3)
    assert messages.message_id.to_pylist() == [first.SerializeToString(), expected.SerializeToString()]
    assert messages.entry.to_pylist() == [8, 9]


def test_fields_of_the_entry_are_given_to_each_of_its_messages():
    with_all = {"producer_name": b"maker", "schema_version": b"\0\1", "replicated_from": b"west"}
    groups = [
        [batch_entry(7, 1, columns([b"a", b"b"]), publish_time=2**64 - 1, event_time=9, **with_all)],
        [batch_entry(7, 2, columns([b"c"]))],
        [single_entry(7, 3, b"s", publish_time=3), single_entry(7, 4, b"s", **with_all)],
    ]
    messages = decoded(groups)
    for field, expected in (
        (EntryField.PRODUCER_NAME, ["maker", "maker", "p", "p", "maker"]),
        (EntryField.REPLICATED_FROM, ["west", "west", None, None, "west"]),
        (EntryField.SCHEMA_VERSION, [b"\0\1", b"\0\1", None, None, b"\0\1"]),
        (EntryField.PUBLISH_TIME, [-1, -1, 1000, 3, 1000]),
        (EntryField.EVENT_TIME, [9, 9, None, None, None]),
        (EntryField.CHUNKS, [None] * 5),
    ):
        array = messages.entry_field(field)
        array.validate(full=True)
        assert array.to_pylist() == expected
    assert messages.entry_field(EntryField.CHUNKS).type == pa.int64()
    assert messages.entry_field(EntryField.REPLICATED_FROM).type == pa.string()
    assert messages.entry_field(EntryField.SCHEMA_VERSION).type == pa.binary()


def test_text_of_the_entry_that_is_not_utf8_becomes_replacement_characters():
    named = pb.MessageMetadata.FromString(
        metadata().SerializeToString().replace(b"\x0a\x01p", b"\x0a\x01\xff")
    )
    messages = decoded([[single_entry(7, 1, b"v")._replace(metadata=named)]])
    assert messages.entry_field(EntryField.PRODUCER_NAME).to_pylist() == ["\ufffd"]


def test_a_column_is_made_when_it_is_asked_for(monkeypatch):
    """The columns that take time."""
    made = []

    def count_calls(name):
        make = getattr(decoded_messages, name)

        def counted(*given):
            made.append(name)
            return make(*given)

        monkeypatch.setattr(decoded_messages, name, counted)

    count_calls("serialize_ids")
    count_calls("_texts_of_entries")
    count_calls("_numbers_of_entries")
    count_calls("_broker_indexes")
    count_calls("_sequence_ids")
    entries = [Entries.of([full_batch(1), plain_single(2)])]
    (messages,) = decode_entries([RangeEntries(TOPIC, entries)], max_rows=100, max_bytes=1000)
    assert len(messages.value) == len(messages.key) == len(messages) == 4
    assert made == []
    assert len(messages.message_id) == 4
    assert made == ["serialize_ids"] * 2  # the batch's, and the single's


def test_a_column_of_one_run_is_not_copied():
    messages = decoded([[full_batch(1), full_batch(2)]])
    addresses = {messages.value.buffers()[2].address for _ in range(2)}
    assert addresses == {messages.runs[0].columns.value.buffers()[2].address}


def version(number):
    return {"schema_version": number.to_bytes(8, "big")}


def found(*groups):
    """The version of each message, by one group of entries after the other."""
    entries = [Entries.of(group) for group in groups]
    (messages,) = decode_entries([RangeEntries(TOPIC, entries)], max_rows=10_000, max_bytes=2**20)
    distinct, of_row = schema_versions(messages)
    if of_row is None:
        assert len(distinct) == 1
        return [distinct[0]] * len(messages)
    assert len(of_row) == len(messages)
    return [distinct[place] for place in of_row]


def test_one_version_of_all_is_no_work_a_row():
    entries = [batch_entry(1, n, columns([b"a"] * 3), **version(7)) for n in range(3)]
    (messages,) = decode_entries([RangeEntries(TOPIC, [Entries.of(entries)])], max_rows=100, max_bytes=1000)
    assert schema_versions(messages) == ([7], None)


def test_each_message_has_the_version_of_its_entry():
    groups = [
        [batch_entry(1, 0, columns([b"a", None]), **version(1)), single_entry(1, 1, b"s", **version(0))],
        [single_entry(1, 2, b"s", **version(1)), batch_entry(1, 3, columns([b"a"] * 3), **version(2**62))],
    ]
    assert found(*groups) == [1, 1, 0, 1, 2**62, 2**62, 2**62]
    assert found(groups[0]) == [1, 1, 0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, NO_VERSION),
        ({"schema_version": b""}, NO_VERSION),
        ({"schema_version": b"\0\1"}, "the message's schema version is not a number: 0001"),
        (
            {"schema_version": b"\x80" + bytes(7)},
            f"the message's schema version is not a number: 80{'00' * 7}",
        ),
        ({"schema_version": bytes(1000)}, f"the message's schema version is not a number: {'00' * 16}"),
        ({"schema_id": b"\xff\0\0\0\1"}, EXTERNAL),
        ({**version(1), "schema_id": b""}, EXTERNAL),
    ],
)
def test_a_message_without_a_number_has_words_that_say_why(fields, words):
    bad = batch_entry(1, 1, columns([b"b"] * 2), **fields)
    assert set(found([bad])) == {words}
    good = [single_entry(1, number, b"s", **version(3)) for number in (0, 2)]
    assert found([good[0], bad, good[1]]) == [3, words, words, 3]
    # A walk over the metadata of many entries finds the same.
    singles = [single_entry(1, number, b"s", **fields) for number in range(3, 100)]
    assert found([*good, *singles]) == [3, 3, *[words] * 97]


def test_rows_outside_of_the_range_have_none():
    entries = [batch_entry(1, n, columns([b"a"] * 3), **version(n)) for n in range(2)]
    (messages,) = decode_entries(
        [RangeEntries(TOPIC, [Entries.of(entries)], MessageId(1, 0, 1), MessageId(1, 1, 0))],
        max_rows=100,
        max_bytes=100,
    )
    assert schema_versions(messages).of_row.tolist() == [0, 1]
