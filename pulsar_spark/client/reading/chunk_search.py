"""Looking for the first chunks of a message before the range that holds its last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryption
from pulsar_spark.client.reading.entry_range import RangeOptions, position_before, read_entries
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.chunk_assembler import Assembled, ChunkAssembler, ChunkLimits, Dropped, is_chunk
from pulsar_spark.wire.entries import Entry

# The most entries of the first step back: a message does not say truly of how many chunks it is.
_FIRST_STEP = 1000


def find_chunks_before(
    client: Client,
    topic: TopicName,
    last: Entry,
    limits: ChunkLimits,
    options: RangeOptions,
    decryption: Decryption,
) -> Assembled | Dropped | None:
    """Put the message together whose last chunk is ``last`` from what lies before that.

    It reads what may hold the message's chunks, from ever further back, to the topic's beginning or to where
    entries are older than a message may take to complete.

    Args:
        client: where to connect.
        topic: the topic partition.
        last: the last chunk of the message, decrypted.
        limits: ``expire`` counts.
        options: how to read.
        decryption: of the other chunks.

    Returns:
        The message; why it cannot be had; or None where ``last`` repeats the last chunk of a message that was
        complete before it.
    """
    options = replace(options, visible=False, begins=None, fail_on_data_loss=False)
    end = MessageId(last.ledger, last.entry - 1)
    step = min(2 * last.metadata.num_chunks_from_msg, _FIRST_STEP)
    for start in positions_before(client, topic, MessageId(last.ledger, last.entry), step):
        chunks = ChunkAssembler(limits)
        oldest = last.metadata.publish_time
        for entries in read_entries(client, topic, start, end, options):
            oldest = min(oldest, int(entries.publish_time[0]))
            for row in np.flatnonzero(entries.chunked).tolist():
                entry = entries.one(row)
                if entry.metadata.uuid == last.metadata.uuid:
                    plain = decryption.entry(entry)
                    if plain is not None and is_chunk(plain.metadata):
                        take(chunks, plain)
        message = take(chunks, last)
        if isinstance(message, Assembled):
            return message
        if chunks.is_finished(last.metadata.uuid):
            return next(iter(chunks.dropped), None)
        if 0 < limits.expire * 1000 < last.metadata.publish_time - oldest:
            break
    return Dropped.NO_BEGINNING


def take(chunks: ChunkAssembler, entry: Entry) -> Assembled | Dropped | None:
    """Take the chunk in that an entry holds; see :meth:`ChunkAssembler.take`."""
    message_id = MessageId(entry.ledger, entry.entry)
    return chunks.take(entry.metadata, entry.payload, message_id, entry.metadata.publish_time / 1000)


def positions_before(client: Client, topic: TopicName, position: MessageId, step: int) -> Iterator[MessageId]:
    """Positions before an entry, each about twice as far back, the last of them the topic's beginning.

    Args:
        client: where to connect.
        topic: the topic partition.
        position: the entry.
        step: the entries between it and the first position.
    """
    ledger, entry = position.ledger, position.entry
    while True:
        while step < entry:
            yield MessageId(ledger, entry - step - 1)
            step *= 2
        yield MessageId(ledger, -1)
        before = position_before(client, topic, MessageId(ledger, 0))
        if before.ledger >= ledger:
            return
        ledger, entry = before.ledger, before.entry + 1
