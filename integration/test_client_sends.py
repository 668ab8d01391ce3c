"""One producer against the real broker: sequence ids, marks, and what receipts add up to."""

from __future__ import annotations

from contextlib import closing

import pytest

from integration.chaos.messages import columns_of, numbered
from integration.clients import entries_of
from integration.peer import Peer, Record
from pulsar_spark.client import Client, Producer, ProducerOptions, SentTotals
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.batches import encode_batch_messages
from pulsar_spark.wire.singles import EncodedSingle, encode_singles

# A field far beyond those of MessageMetadata (19999, bytes): every client skips it.
MARK = b"\xfa\xe1\x09\x04mark"

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def open_producer(
    client: Client, topic: str, options: ProducerOptions | None = None, *, first: int | None = None
) -> Producer:
    options = options or ProducerOptions()
    return Producer(client, TopicName.parse(topic), options, 1, first_sequence_id=first)


def batch_of(records: list[Record], mark: bytes = b"") -> Batch:
    encoded = encode_batch_messages(columns_of(records))
    return Batch((encoded.buffer,), len(records), len(encoded.buffer), mark)


def singles_of(records: list[Record], mark: bytes = b"") -> list[EncodedSingle]:
    return [single._replace(dedup_mark=mark) for single in encode_singles(columns_of(records))]


def test_receipts_add_up(client: Client, topic: str) -> None:
    with closing(open_producer(client, topic)) as producer:
        producer.flush()
        assert producer.sent == SentTotals()
        producer.send_singles(singles_of(numbered(2)))
        producer.send_batches([batch_of(numbered(3)), batch_of(numbered(4))])
        producer.flush()
        first, *_, last = found = entries_of(client, topic)
        size = sum(6 + 4 + entry.metadata.ByteSize() + len(entry.payload) for entry in found)
        first_id, last_id = MessageId(first.ledger, first.entry), MessageId(last.ledger, last.entry, 3)
        assert producer.sent == SentTotals(9, size, first_id, last_id)


def test_what_is_stored_already_is_not_stored_again(
    client: Client, peer: Peer, plain_once_topic: str
) -> None:
    options = ProducerOptions(name="once")
    with closing(open_producer(client, plain_once_topic, options, first=1 << 32)) as producer:
        assert producer.last_sequence_id == -1
        producer.send_batches([batch_of(numbered(5))])
        producer.flush()
        sent = producer.sent
    with closing(open_producer(client, plain_once_topic, options, first=1 << 32)) as producer:
        assert producer.last_sequence_id == (1 << 32) + 4
        producer.send_batches([batch_of(numbered(2, first=5))])  # after what is there
        producer.flush()
    peer.produce(
        plain_once_topic,
        numbered(3, first=90),
        batch_size=3,
        producer_name="once",
        initial_sequence_id=(1 << 32) + 3,
    )
    assert peer.read_all(plain_once_topic) == numbered(7)
    assert sent.messages == 5
    assert sent.first_id is not None


@pytest.mark.parametrize("compression", ["NONE", "LZ4"])
def test_marks_are_stored_and_no_reader_minds_them(
    client: Client, peer: Peer, topic: str, compression: str
) -> None:
    codec = getattr(pb, compression)
    with closing(open_producer(client, topic, ProducerOptions(compression=codec))) as producer:
        producer.send_batches([batch_of(numbered(3), MARK)])
        producer.send_singles(singles_of(numbered(2, first=3), MARK))
        producer.flush()
    assert all(entry.metadata.SerializeToString().endswith(MARK) for entry in entries_of(client, topic))
    assert peer.read_all(topic) == numbered(5)
