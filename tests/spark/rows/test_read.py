import datetime
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pulsar_spark.errors import CorruptError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.rows import metadata_columns as module
from pulsar_spark.spark.rows.read import MAX_MESSAGES, MAX_UNCOMPRESSED, record_batches
from pulsar_spark.spark.rows.schema import (
    DEFAULT_METADATA_COLUMNS,
    METADATA_COLUMNS,
    SOURCE_SCHEMA,
    arrow_schema,
    source_schema,
)
from pulsar_spark.wire import message_ids
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.batches import encode_batch_messages
from pulsar_spark.wire.codecs import compress
from pulsar_spark.wire.entries import Entries, Entry
from pulsar_spark.wire.message_columns import MessageColumns

ARROW_SCHEMA = arrow_schema(DEFAULT_METADATA_COLUMNS)
TOPIC = TopicName.parse("t-partition-3")
UTC = datetime.timezone.utc


def columns(values, keys=None, **more) -> MessageColumns:
    return MessageColumns(
        value=pa.array(values, pa.binary()), key=pa.array(keys or [None] * len(values), pa.binary()), **more
    )


def metadata(**fields) -> pb.MessageMetadata:
    made = pb.MessageMetadata(**{"producer_name": "p", "sequence_id": 0, "publish_time": 1000, **fields})
    return pb.MessageMetadata.FromString(made.SerializeToString())


def batch_entry(ledger, entry, messages: MessageColumns, *, compression=pb.NONE, **fields) -> Entry:
    encoded = encode_batch_messages(messages)
    plain = bytes(memoryview(encoded.buffer)[encoded.offsets[0] : encoded.offsets[-1]])
    payload = memoryview(compress(compression, plain))
    fields = {"num_messages_in_batch": len(messages), "compression": compression, **fields}
    return Entry(ledger, entry, metadata(uncompressed_size=len(plain), **fields), payload, None)


def single_entry(ledger, entry, value: bytes | memoryview, **fields) -> Entry:
    return Entry(ledger, entry, metadata(**fields), memoryview(value), None)


def bomb(count: int) -> Entry:
    """A few bytes that are, after ZSTD, a well-formed batch of ``count`` empty messages."""
    plain = b"\0\0\0\x02\x18\0" * count
    fields = {"num_messages_in_batch": count, "compression": pb.ZSTD, "uncompressed_size": len(plain)}
    return Entry(5, 6, metadata(**fields), memoryview(compress(pb.ZSTD, plain)), None)


def rows_of(groups, *positions, topic=TOPIC, **limits) -> list[dict]:
    batches = list(record_batches(topic, [Entries.of(group) for group in groups], *positions, **limits))
    assert all(batch.schema.equals(ARROW_SCHEMA) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def id_of(row: dict) -> pb.MessageIdData:
    return pb.MessageIdData.FromString(row["__messageId"])


def test_the_schema_is_what_spark_compares_with():
    assert ARROW_SCHEMA.equals(to_arrow_schema(SOURCE_SCHEMA, timezone="UTC"), check_metadata=True)


def test_a_batch_becomes_rows():
    entry = batch_entry(7, 300, columns([b"a", None, b""], [b"k", None, b""]), publish_time=1_700_000_000_123)
    first, second, third = rows_of([[entry]])
    assert first == {
        "value": b"a",
        "__key": b"k",
        "__topic": "persistent://public/default/t-partition-3",
        "__messageId": pb.MessageIdData(
            ledgerId=7, entryId=300, partition=3, batch_index=0, batch_size=3
        ).SerializeToString(),
        "__publishTime": datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        "__eventTime": None,
        "__messageProperties": [],
    }
    assert (second["value"], second["__key"]) == (None, None)
    assert (third["value"], third["__key"]) == (b"", b"")
    assert id_of(third).batch_index == 2


@pytest.mark.parametrize("kind", [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY])
def test_batches_and_singles_of_every_codec(kind):
    packed = memoryview(compress(kind, b"single" * 9))
    single = Entry(1, 1, metadata(compression=kind, uncompressed_size=54), packed, None)
    rows = rows_of([[batch_entry(1, 0, columns([b"a", b"b"]), compression=kind), single]])
    assert [row["value"] for row in rows] == [b"a", b"b", b"single" * 9]


def test_a_single_message_has_no_batch_index_and_a_topic_without_partitions_no_partition():
    (row,) = rows_of([[single_entry(2**40, 2**33, b"v", partition_key="k")]], topic=TopicName.parse("t"))
    assert row["__key"] == b"k"
    assert row["__messageId"] == pb.MessageIdData(ledgerId=2**40, entryId=2**33).SerializeToString()


def test_batches_and_singles_keep_their_order_and_their_own_columns():
    times = pa.array([5, None], pa.int64())
    properties = pa.array([[("a", "1"), ("b", "2")], []], pa.map_(pa.string(), pa.string()))
    groups = [
        [single_entry(1, 0, b"0", publish_time=10, event_time=77)],
        [single_entry(1, 1, b"1", publish_time=11, properties=[pb.KeyValue(key="x", value="y")])],
        [batch_entry(1, 2, columns([b"2", b"3"], event_time=times, properties=properties), publish_time=12)],
        [batch_entry(1, 3, columns([b"4"]), publish_time=13), single_entry(1, 4, b"5", publish_time=14)],
    ]
    rows = rows_of(groups)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = [row["__eventTime"] and (row["__eventTime"] - epoch).microseconds // 1000 for row in rows]
    assert [row["value"] for row in rows] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [row["__publishTime"].microsecond // 1000 for row in rows] == [10, 11, 12, 12, 13, 14]
    assert milliseconds == [77, None, 5, None, None, None]
    assert [row["__messageProperties"] for row in rows] == [
        [],
        [("x", "y")],
        [("a", "1"), ("b", "2")],
        [],
        [],
        [],
    ]
    assert [(id_of(row).entryId, id_of(row).batch_index) for row in rows] == [
        (0, -1),
        (1, -1),
        (2, 0),
        (2, 1),
        (3, 0),
        (4, -1),
    ]


def test_an_event_time_of_zero_is_unset_and_an_absurd_one_does_not_overflow():
    times = pa.array([0, 2**62, -(2**62), 1], pa.int64())
    entry = batch_entry(1, 0, columns([b"a"] * 4, event_time=times), publish_time=2**64 - 1)
    (batch,) = record_batches(TOPIC, [Entries.of([entry])])
    micros = batch.column("__eventTime").cast(pa.int64()).to_pylist()
    assert micros[0] is None
    assert micros[1] > 2**62
    assert micros[2] < -(2**62)
    assert micros[3] == 1000
    assert batch.column("__publishTime").cast(pa.int64())[0].as_py() > 2**62


def test_ids_of_a_long_batch_are_those_of_protobuf():
    rows = rows_of([[batch_entry(9, 1, columns([b""] * 20_000))]])
    for index in (0, 1, 127, 128, 129, 16_383, 16_384, 19_999):
        expected = pb.MessageIdData(ledgerId=9, entryId=1, partition=3, batch_index=index, batch_size=20_000)
        assert rows[index]["__messageId"] == expected.SerializeToString()


def test_a_compacted_batch_keeps_its_indexes():
    parts = []
    for index in range(4):
        head = pb.SingleMessageMetadata(payload_size=1, compacted_out=index in (0, 2)).SerializeToString()
        parts.append(len(head).to_bytes(4, "big") + head + b"abcd"[index : index + 1])
    entry = Entry(1, 0, metadata(num_messages_in_batch=4), memoryview(b"".join(parts)), None)
    rows = rows_of([[entry]])
    assert [(row["value"], id_of(row).batch_index, id_of(row).batch_size) for row in rows] == [
        (b"b", 1, 4),
        (b"d", 3, 4),
    ]
    assert [row["value"] for row in rows_of([[entry]], MessageId(1, 0, 1))] == [b"d"]
    assert [row["value"] for row in rows_of([[entry]], MessageId(0, 0), MessageId(1, 0, 2))] == [b"b"]


def test_positions_inside_a_batch_cut_it():
    entries = [
        batch_entry(1, number, columns([b"%d%d" % (number, row) for row in range(3)])) for number in range(2)
    ]
    rows = rows_of([entries], MessageId(1, 0, 1), MessageId(1, 1, 0))
    assert [row["value"] for row in rows] == [b"02", b"10"]
    assert [id_of(row).batch_index for row in rows] == [2, 0]
    assert rows_of([entries[:1]], MessageId(1, 0, 2), MessageId(1, 9)) == []


def test_small_entries_share_a_record_batch_and_large_ones_are_split():
    entries = [Entries.of([batch_entry(1, number, columns([b"v"] * 10))]) for number in range(10)]
    assert [batch.num_rows for batch in record_batches(TOPIC, entries, max_rows=40)] == [40, 40, 20]
    huge = batch_entry(1, 0, columns([b"%05d" % row for row in range(1000)]))
    batches = list(record_batches(TOPIC, [Entries.of([huge])], max_rows=300))
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]
    assert [row for batch in batches for row in batch["value"].to_pylist()] == [
        b"%05d" % row for row in range(1000)
    ]


def test_bytes_bound_a_record_batch():
    entry = batch_entry(1, 0, columns([b"x" * 100, None, b"y" * 5000, b"z" * 100, b"z" * 100, b""]))
    sizes = [batch.num_rows for batch in record_batches(TOPIC, [Entries.of([entry])], max_bytes=1000)]
    assert sizes == [2, 1, 3]
    singles = [single_entry(1, number, b"x" * 400) for number in range(7)]
    assert [batch.num_rows for batch in record_batches(TOPIC, [Entries.of(singles)], max_bytes=1000)] == [
        3,
        3,
        1,
    ]


def test_no_entries_no_batches():
    assert list(record_batches(TOPIC, [])) == []


@pytest.mark.parametrize(
    "entry",
    [
        Entry(5, 6, metadata(num_messages_in_batch=2), memoryview(b"\0\0\0\x02\x18\0"), None),
        Entry(5, 6, metadata(compression=pb.LZ4, uncompressed_size=100), memoryview(b"no"), None),
        Entry(5, 6, metadata(compression=pb.ZSTD, uncompressed_size=2**31), memoryview(b"no"), None),
        Entry(5, 6, metadata(num_messages_in_batch=2**31 - 1), memoryview(b"\0\0\0\x02\x18\0"), None),
        bomb(MAX_MESSAGES + 1),
        Entry(5, 6, metadata(num_messages_in_batch=MAX_MESSAGES), memoryview(b"\0\0\0\x02\x18\0"), None),
        single_entry(5, 6, b"v", partition_key="not base64!", partition_key_b64_encoded=True),
    ],
    ids=["framing", "codec", "size", "count", "bomb", "sparse", "key"],
)
def test_a_corrupt_entry_names_topic_and_message(entry):
    with pytest.raises(CorruptError, match=r"topic persistent://public/default/t-partition-3; message 5:6"):
        rows_of([[single_entry(5, 5, b"good"), entry]])


@pytest.mark.parametrize("payload", [b"no", b""])
def test_a_corrupt_entry_among_lz4_ones_is_found(payload):
    good = [batch_entry(5, number, columns([b"good"]), compression=pb.LZ4) for number in (4, 5)]
    bad = Entry(
        5,
        6,
        metadata(num_messages_in_batch=1, compression=pb.LZ4, uncompressed_size=10),
        memoryview(payload),
        None,
    )
    with pytest.raises(CorruptError, match="message 5:6"):
        rows_of([[*good, bad]])


def test_lz4_entries_whose_sizes_are_wrong_but_for_their_sum_are_found():
    """Together they decompress, and a message does not end where an entry is said to."""
    plain = [encode_batch_messages(columns([value])).buffer.tobytes() for value in (b"a" * 50, b"b" * 70)]
    entries = [
        Entry(
            5,
            6 + number,
            metadata(num_messages_in_batch=1, compression=pb.LZ4, uncompressed_size=len(body) + more),
            memoryview(compress(pb.LZ4, body)),
            None,
        )
        for number, (body, more) in enumerate(zip(plain, (10, -10), strict=True))
    ]
    with pytest.raises(CorruptError, match="message 5:6"):
        rows_of([entries])


def test_the_largest_decompressed_size():
    plain = bytes(MAX_UNCOMPRESSED + 1)
    packed = memoryview(compress(pb.ZSTD, plain))
    entry = Entry(5, 6, metadata(compression=pb.ZSTD, uncompressed_size=len(plain)), packed, None)
    with pytest.raises(CorruptError, match=f"{len(plain)} bytes uncompressed, where {MAX_UNCOMPRESSED}"):
        rows_of([[entry]])


def test_huge_batches_leave_nothing_in_memory():
    before = message_ids._kept_suffixes.cache_info().currsize
    total = sum(batch.num_rows for batch in record_batches(TOPIC, [Entries.of([bomb(300_000)])]))
    assert total == 300_000
    assert message_ids._kept_suffixes.cache_info().currsize == before
    kept = (module.NO_BYTES, module.NO_TIME, module.NO_PROPERTIES)
    assert max(len(column._array) for column in kept) <= module.KEPT_ROWS


def test_random_batches_survive_the_way():
    chance = np.random.default_rng(4)
    values = [chance.bytes(int(size)) for size in chance.integers(0, 300, 5000)]
    cuts = [0, *sorted(chance.integers(0, 5000, 60).tolist()), 5000]
    entries = [
        batch_entry(1, number, columns(values[first:last], values[first:last]))
        for number, (first, last) in enumerate(itertools.pairwise(cuts))
        if last > first
    ]
    rows = rows_of([entries], max_rows=700, max_bytes=20_000)
    assert [row["value"] for row in rows] == values
    assert [row["__key"] for row in rows] == values


ALL = tuple(METADATA_COLUMNS)


def rows_with(columns_wanted, groups, *positions, topic=TOPIC) -> list[dict]:
    batches = list(record_batches(topic, groups, *positions, columns=columns_wanted))
    assert all(batch.schema.equals(arrow_schema(columns_wanted)) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def test_all_columns_of_batches_and_singles():
    common = {"producer_name": "maker", "schema_version": b"\0\1", "replicated_from": "west"}
    messages = columns([b"a", None, b"c"], ordering_key=pa.array([None, b"o", None], pa.binary()))
    batch = batch_entry(7, 3, messages, sequence_id=40, **common)._replace(broker_index=12)
    single = single_entry(7, 4, b"s", sequence_id=50, ordering_key=b"x")._replace(broker_index=13)
    null = single_entry(7, 5, b"", sequence_id=51, null_value=True)
    rows = rows_with(ALL, [Entries.of([batch]), Entries.of([single, null])])
    assert [row["__offset"] for row in rows] == ["7:3:0", "7:3:1", "7:3:2", "7:4", "7:5"]
    assert [row["__index"] for row in rows] == [10, 11, 12, 13, None]
    assert [row["__isNull"] for row in rows] == [False, True, False, False, True]
    assert [row["__orderingKey"] for row in rows] == [None, b"o", None, b"x", None]
    assert [row["__sequenceId"] for row in rows] == [40, 40, 40, 50, 51]
    assert [row["__producerName"] for row in rows] == ["maker"] * 3 + ["p"] * 2
    assert [row["__schemaVersion"] for row in rows] == [b"\0\1"] * 3 + [None] * 2
    assert [row["__replicatedFrom"] for row in rows] == ["west"] * 3 + [None] * 2
    assert [row["__partition"] for row in rows] == [3] * 5
    (row,) = rows_with(("__partition",), [Entries.of([single])], topic=TopicName.parse("t"))
    assert row == {"value": b"s", "__partition": None}


def test_a_message_s_own_sequence_id_wins_over_its_entry_s():
    messages = columns([b"a", b"b"], sequence_id=pa.array([41, None], pa.int64()))
    rows = rows_with(("__sequenceId",), [Entries.of([batch_entry(1, 0, messages, sequence_id=40)])])
    assert [row["__sequenceId"] for row in rows] == [41, 40]


def test_columns_of_what_compaction_and_positions_left():
    parts = []
    for index in range(4):
        head = pb.SingleMessageMetadata(payload_size=1, compacted_out=index == 1).SerializeToString()
        parts.append(len(head).to_bytes(4, "big") + head + b"abcd"[index : index + 1])
    entry = Entry(1, 0, metadata(num_messages_in_batch=4), memoryview(b"".join(parts)), 99)
    rows = rows_with(ALL, [Entries.of([entry])], MessageId(1, 0, 0))
    assert [(row["value"], row["__index"], row["__offset"], row["__producerName"]) for row in rows] == [
        (b"c", 98, "1:0:2", "p"),
        (b"d", 99, "1:0:3", "p"),
    ]
    assert [id_of(row).batch_index for row in rows] == [2, 3]


@pytest.mark.parametrize("wanted", [(), ("__key",), ("__index", "__offset", "__topic"), ALL[::-1]])
def test_columns_come_in_the_order_that_is_asked_for(wanted):
    (row,) = rows_with(wanted, [Entries.of([single_entry(1, 2, b"v")])])
    assert tuple(row) == ("value", *wanted)
    assert arrow_schema(wanted).equals(to_arrow_schema(source_schema(wanted), timezone="UTC"))


def test_a_chunked_message_is_one_row_that_is_not_copied():
    payload = memoryview(bytes(range(256)) * 40_000)
    whole = single_entry(5, 9, payload, num_chunks_from_msg=3)._replace(first_chunk=MessageId(4, 300))
    around = single_entry(5, 10, b"small")
    batches = list(record_batches(TOPIC, [Entries.of([around, whole, around])]))
    assert [batch.num_rows for batch in batches] == [1, 1, 1]
    value = batches[1].column(0)
    assert value.buffers()[2].address == pa.py_buffer(payload).address
    row = batches[1].to_pylist()[0]
    expected = pb.MessageIdData(
        ledgerId=5,
        entryId=9,
        partition=3,
        first_chunk_message_id=pb.MessageIdData(ledgerId=4, entryId=300, partition=3),
    )
    assert row["value"] == payload
    assert row["__messageId"] == expected.SerializeToString()


def test_a_chunked_message_may_be_larger_than_what_else_is_accepted(monkeypatch):
    monkeypatch.setattr("pulsar_spark.spark.rows.read.MAX_UNCOMPRESSED", 100)
    packed = memoryview(compress(pb.ZSTD, bytes(1000)))
    fields = {"compression": pb.ZSTD, "uncompressed_size": 1000}
    (row,) = rows_of([[Entry(5, 6, metadata(num_chunks_from_msg=2, **fields), packed, None)]])
    assert row["value"] == bytes(1000)
    with pytest.raises(CorruptError, match="1000 bytes uncompressed, where 100"):
        rows_of([[Entry(5, 6, metadata(**fields), packed, None)]])


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 5, 2**40]), st.integers(0, 2**30), st.integers(0, 300)), max_size=20
    ),
    st.sampled_from([-1, 0, 300]),
)
def test_message_ids_are_those_of_protobuf(entries, partition):
    ledger, entry, sizes = (np.array([one[place] for one in entries], np.int64) for place in range(3))
    expected = []
    for ledger_id, entry_id, size in entries:
        for index in range(size or 1):
            place = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id)
            if partition >= 0:
                place.partition = partition
            if size:
                place.batch_index, place.batch_size = index, size
            expected.append(place.SerializeToString())
    assert message_ids.serialize_ids(ledger, entry, sizes, partition).to_pylist() == expected
