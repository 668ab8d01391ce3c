"""Our client and the C++ client, each reading what the other wrote."""

import itertools
from contextlib import closing

import pulsar
import pytest

from integration.chaos.messages import (
    BEGINNING,
    columns_of,
    last_message,
    numbered,
    read_partition,
    records_of,
)
from integration.helpers.peer import CompressionType, Record
from pulsar_spark.client import ProducerOptions, RangeEntries, TopicWriter
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.rows.read import record_batches
from pulsar_spark.spark.rows.schema import MESSAGE_ID, RowColumns
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.ranges import read_range

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
