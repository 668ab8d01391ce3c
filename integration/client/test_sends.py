"""One producer against the real broker: sequence ids, origins, and what receipts add up to."""

from contextlib import closing
from dataclasses import replace

import pytest

from integration.chaos.messages import columns_of, numbered
from integration.helpers.clients import entries_of
from integration.helpers.task_runs import SECRET, run, task_of
from pulsar_spark.client import EntryField, Origin, Producer, ProducerOptions, SentTotals
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.writing.batcher import Batch
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages, encode_singles
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.origin import decode_origin
from tests.fake_topics import signed_metadata

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def open_producer(client, topic, options=None, *, first=None):
    options = options or ProducerOptions()
    return Producer(client, TopicName.parse(topic), options, 1, first_sequence_id=first)


def batch_of(records):
    encoded = encode_batch_messages(columns_of(records))
    return Batch((encoded.buffer,), len(records), len(encoded.buffer))


def singles_of(records):
    return list(encode_singles(columns_of(records)))


def test_receipts_add_up(client, topic):
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


def test_what_is_stored_already_is_not_stored_again(client, peer, plain_once_topic):
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
@pytest.mark.parametrize("batching", [True, False])
def test_entries_say_where_they_come_from_and_no_reader_minds(client, peer, topic, compression, batching):
    """Each names the first entry of the micro-batch."""
    options = {"compression": getattr(pb, compression), "batching": batching, "batching_max_messages": 2}
    run(client, topic, numbered(6), task_of(client, 3, task=1, write=2), at_a_time=2, **options)
    assert peer.read_all(topic) == numbered(6)
    found = entries_of(client, topic)
    origins = [
        decode_origin(field, SECRET, topic, entry.payload, signed_metadata(entry.metadata))
        for field, entry in zip(Entries.of(found).texts(EntryField.ORIGIN).to_pylist(), found, strict=True)
    ]
    begin = MessageId(found[0].ledger, found[0].entry)
    assert len(origins) == (3 if batching else 6)
    of_run = [replace(origin, run=0) for origin in origins if origin is not None]
    assert of_run == [Origin(3, 1, 2), *[Origin(3, 1, 2, begin)] * (len(origins) - 1)]
