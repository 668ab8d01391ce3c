"""Our client and the C++ client, each reading what the other wrote."""

import base64
import itertools
import random
from contextlib import closing
from dataclasses import replace

import pulsar
import pyarrow as pa
import pytest

from integration.chaos.messages import (
    BEGINNING,
    columns_of,
    decoded,
    last_message,
    numbered,
    read_partition,
    read_topic,
    records_of,
)
from integration.helpers.peer import CompressionType, Record
from pulsar_spark.client import ProducerOptions, RangeEntries, TopicWriter
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.rows.read import record_batches
from pulsar_spark.spark.rows.schema import MESSAGE_ID, RowColumns
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.message_columns import MessageColumns
from tests.ranges import read_range
from tests.writes import send_all, write_all

CODECS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
PEER_NAMES = {"ZLIB": "ZLib"}
BATCH = 7
HOUR = 3_600_000

every_shape = pytest.mark.parametrize(
    ("codec", "batched", "keyed"), list(itertools.product(CODECS, (True, False), (True, False)))
)


pytestmark = pytest.mark.usefixtures("leaves_nothing")


def varied(count, *, keyed):
    """Messages of all kinds: null, empty, long values, properties, event times, keys in many scripts."""
    values = (b"plain", None, b"", b"\x00\xff" * 40, b"long " * 3000)
    keys = ("key", "ключ", "鍵", "🔑", "") if keyed else (None,)
    properties = ((), (("name", "value"),), (("empty", ""), ("имя", "značka")))
    records = []
    for number in range(count):
        value = values[number % len(values)]
        records.append(
            Record(
                value if value is None else value + b"%d" % number if len(value) > 1 else value,
                keys[number % len(keys)] or None,
                properties[number % len(properties)],
                (number % 4) * HOUR,
            )
        )
    return records


@every_shape
def test_reads_what_the_peer_wrote(client, peer, topic, codec, batched, keyed):
    written = varied(30, keyed=keyed)
    ids = peer.produce(
        topic,
        written,
        batch_size=BATCH if batched else 0,
        compression=getattr(CompressionType, PEER_NAMES.get(codec, codec)),
    )
    entries = list(read_partition(client, TopicName.parse(topic)))
    assert records_of(entries) == written
    assert [entry.metadata.compression for entry in entries] == [pb.CompressionType.Value(codec)] * len(
        entries
    )
    assert len(entries) == (-(-30 // BATCH) if batched else 30)
    places = {(one.ledger_id(), one.entry_id()) for one in ids}
    assert {(entry.ledger, entry.entry) for entry in entries} == places


@every_shape
def test_the_peer_reads_what_we_wrote(client, peer, topic, codec, batched, keyed):
    written = varied(30, keyed=keyed)
    options = ProducerOptions(compression=getattr(pb, codec), batching=batched, batching_max_messages=BATCH)
    with TopicWriter(client, TopicName.parse(topic), options) as writer:
        for first in range(0, 30, 10):
            writer.send(columns_of(written[first : first + 10]))
        writer.flush()
    assert peer.read_all(topic) == written


@pytest.mark.parametrize("batched", [True, False])
def test_reads_an_entry_with_all_its_columns(client, topic, batched):
    """What the C++ client does not show: ordering keys, keys and values that are no text, sequence ids."""
    keys = [b"\xff\xfe binary", None, "utf-8 é".encode(), b"", b"\x80"]
    columns = MessageColumns(
        value=pa.array([b"\x00", None, b"", b"\xf0\x28", b"end"], pa.binary()),
        key=pa.array(keys, pa.binary()),
        event_time=pa.array([1, None, 2**53, None, 5], pa.int64()),
        properties=pa.array(
            [[("a", "1"), ("b", "2")], [], [], [("", "")], []], pa.map_(pa.string(), pa.string())
        ),
        ordering_key=pa.array([None, b"\xff", b"ordering", None, b""], pa.binary()),
    )
    name = TopicName.parse(topic)
    write_all(TopicWriter(client, name, ProducerOptions(batching=batched)), columns)
    read = [decoded(entry) for entry in read_partition(client, name)]
    assert len(read) == (1 if batched else 5)
    for column in ("value", "key", "event_time", "properties", "ordering_key"):
        expected = getattr(columns, column).to_pylist()
        got = [
            cell
            for part in read
            for cell in (
                [[] if column == "properties" else None] * len(part)
                if getattr(part, column) is None
                else getattr(part, column).to_pylist()
            )
        ]
        assert got == expected, column


@pytest.mark.parametrize("batched", [True, False])
def test_a_binary_key_goes_as_base64_both_ways(client, peer, topic, batched):
    key = b"\xff\x00\xfe"
    columns = MessageColumns(value=pa.array([b"v"], pa.binary()), key=pa.array([key], pa.binary()))
    name = TopicName.parse(topic)
    write_all(TopicWriter(client, name, ProducerOptions(batching=batched)), columns)
    assert peer.read_all(topic) == [Record(b"v", base64.b64encode(key).decode())]
    assert decoded(next(read_partition(client, name))).key.to_pylist() == [key]


def java_hash(text):
    """Java's String.hashCode made non-negative, one code unit at a time."""
    units = text.encode("utf-16-le")
    result = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        result = (31 * result + (high << 8 | low)) & 0xFFFFFFFF
    return result & 0x7FFFFFFF


@pytest.mark.parametrize("batched", [True, False])
def test_keys_choose_partitions_as_the_java_client_does(client, peer, admin, topic, batched):
    admin.create_partitioned_topic(topic, 5)
    keys = [f"key-{number}" for number in range(40)] + ["ключ", "🔑", "Aa", "BB", "polygenelubricants"]
    written = [Record(b"%d" % number, key) for number, key in enumerate(keys * 3)]
    with TopicWriter(client, TopicName.parse(topic), ProducerOptions(batching=batched)) as writer:
        for first in range(0, len(written), 20):
            writer.send(columns_of(written[first : first + 20]))
        writer.flush()
    expected = [replace(record, partition=java_hash(record.key or "") % 5) for record in written]
    # A stable sort: within a partition the order is that of the writing.
    expected.sort(key=lambda record: record.partition)
    assert peer.read_all(topic) == expected
    assert read_topic(client, topic) == expected


def test_reads_all_that_the_peer_spread(client, peer, admin, topic):
    admin.create_partitioned_topic(topic, 3)
    peer.produce(topic, numbered(60, keys=11), batch_size=4)
    read = read_topic(client, topic)
    assert read == peer.read_all(topic)
    assert len({record.partition for record in read}) == 3
    assert len(read) == 60


@pytest.mark.parametrize("batched", [True, False])
def test_rows_without_key_reach_all_partitions(client, peer, admin, topic, batched):
    admin.create_partitioned_topic(topic, 3)
    options = ProducerOptions(batching=batched, batching_max_messages=10, batching_max_publish_delay=60.0)
    written = numbered(60)
    with TopicWriter(client, TopicName.parse(topic), options) as writer:
        for first in range(0, 60, 15):
            writer.send(columns_of(written[first : first + 15]))
        writer.flush()
    read = peer.read_all(topic)
    assert sorted(record.value for record in read) == sorted(record.value for record in written)
    assert [sum(record.partition == number for record in read) for number in range(3)] == [20, 20, 20]


def test_writes_to_one_that_is_named(client, peer, admin, topic):
    admin.create_partitioned_topic(topic, 2)
    with TopicWriter(client, TopicName.parse(topic).of_partition(1), ProducerOptions()) as writer:
        send_all(writer, columns_of(numbered(10, keys=10)))
    assert {record.partition for record in peer.read_all(topic)} == {1}


def test_the_peer_goes_on_from_our_message_ids(client, peer, topic):
    """Ids mean the same to both: a reader of the peer that starts at one of ours begins after it."""
    peer.produce(topic, numbered(20), batch_size=5)
    entries = list(read_partition(client, TopicName.parse(topic)))
    start = pulsar.MessageId(-1, entries[1].ledger, entries[1].entry, 2)
    reader = peer.client.create_reader(topic, start)
    try:
        assert reader.read_next(10_000).data() == b"8 "
    finally:
        reader.close()


def test_reads_chunks_of_the_largest_size(client, peer, topic):
    """The id names the first chunk too, as the peer writes it down."""
    value = random.Random(topic).randbytes(12_000_000)
    [written] = peer.produce(topic, [Record(value)], chunking_enabled=True)
    [entry] = read_partition(client, TopicName.parse(topic))
    assert entry.payload == value
    assert entry.first_chunk is not None
    serialized = pb.MessageIdData.FromString(written.serialize())
    assert (entry.ledger, entry.entry) == (serialized.ledgerId, serialized.entryId)
    first = serialized.first_chunk_message_id
    assert (entry.first_chunk.ledger, entry.first_chunk.entry) == (first.ledgerId, first.entryId)


@pytest.mark.parametrize("partitions", [0, 2])
def test_message_ids_are_the_peer_s(client, peer, admin, topic, partitions):
    """Byte for byte, also of chunked messages."""
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    with closing(
        peer.client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    ) as chunking:
        for size in (11_000_000, 5, 6_000_000, 5):
            chunking.send(bytes(size))
    peer.produce(topic, numbered(5), batch_size=5)
    theirs = list(peer.messages(topic))
    assert len(theirs) == 9
    expected = sorted((message.message_id().serialize(), len(message.data())) for message in theirs)
    ours = [
        (row[MESSAGE_ID], len(row["value"]))
        for partition in client.partitions(TopicName.parse(topic))
        for batch in record_batches(
            [RangeEntries(partition, read_groups(client, partition))], columns=RowColumns((MESSAGE_ID,))
        )
        for row in batch.to_pylist()
    ]
    assert sorted(ours) == expected


def read_groups(client, partition):
    end = last_message(client, partition)
    return iter(()) if end.entry < 0 else read_range(client, partition, BEGINNING, end, poll_timeout=30.0)
