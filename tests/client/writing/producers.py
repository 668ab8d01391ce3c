"""Producers in tests: opened, and made to send."""

from pulsar_spark.client import Producer
from pulsar_spark.protocol.writing.batcher import Batch
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages, encode_singles
from tests.client.clients import TOPIC, columns, producing
from tests.fake_clients import Type


def open_producer(
    client,
    partitions=1,
    *,
    first_sequence_id=None,
    transaction=None,
    on_receipt=None,
    may_repeat=False,
    **options,
):
    return Producer(
        client,
        TOPIC,
        producing(**options),
        partitions,
        first_sequence_id=first_sequence_id,
        transaction=transaction,
        on_receipt=on_receipt,
        may_repeat=may_repeat,
    )


def send(producer, values):
    producer.send_singles(encode_singles(columns(values)))


def store(producer, values=(), *, closes=False):
    """Send values, wait until all are stored, and perhaps close the producer."""
    if values:
        send(producer, values)
    producer.flush()
    if closes:
        producer.close()


def send_batch(producer, values):
    encoded = encode_batch_messages(columns(values))
    producer.send_batches([Batch((encoded.buffer,), len(values), len(encoded.buffer))])


def sent_ids(broker):
    """The sequence ids that came over each connection."""
    found = {}
    for each in broker.commands:
        if each.command.type == Type.SEND:
            found.setdefault(each.connection, []).append(each.command.send.sequence_id)
    return list(found.values())
