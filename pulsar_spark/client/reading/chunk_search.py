"""Searching backwards for chunks: those of one message, and whether a position has any before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryption
from pulsar_spark.client.reading.entry_range import RangeOptions, position_before, read_entries
from pulsar_spark.client.reading.probe import EntryProbe
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.chunk_assembler import Assembled, ChunkAssembler, ChunkLimits, Dropped, is_chunk
from pulsar_spark.wire.entries import Entry

# The first step back has at most so many entries: the number of chunks that a message declares may be wrong.
_MAX_FIRST_STEP = 1000
# What is probed for chunks at once: chunks are large.
_PROBED_MESSAGES = 4
_PROBED_BYTES = 1 << 20


def find_chunks_before(
    client: Client,
    topic: TopicName,
    last: Entry,
    limits: ChunkLimits,
    options: RangeOptions,
    decryption: Decryption,
) -> Assembled | Dropped | None:
    """Assemble the message whose last chunk is ``last`` from the entries before that.

    It begins further and further back, to the topic's beginning or to where entries are older than a message
    may take to complete.

    Args:
        client: where to connect.
        topic: the topic partition.
        last: the last chunk of the message, decrypted.
        limits: ``expire`` counts.
        options: how to read.
        decryption: of the other chunks.

    Returns:
        The message; why it is given up; or None where ``last`` repeats the last chunk of a message that was
        complete before it.
    """
    options = replace(options, visible=False, begins=None, fail_on_data_loss=False)
    place = MessageId(last.ledger, last.entry)
    step = min(2 * last.metadata.num_chunks_from_msg, _MAX_FIRST_STEP)
    for start in positions_before(client, topic, place, step):
        chunks = ChunkAssembler(limits)
        oldest = last.metadata.publish_time
        for entries in read_entries(client, topic, start, place.previous, options):
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
    """Give an assembler the chunk that an entry holds; returns what :meth:`ChunkAssembler.take` does."""
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
    while True:
        while step < position.entry:
            yield position.back(step + 1)
            step *= 2
        yield position.ledger_start
        before = _end_of_ledger_before(client, topic, position)
        if before is None:
            return
        position = before.next_entry


def has_chunks_before(client: Client, topic: TopicName, position: MessageId, entries: int) -> bool:
    """Whether chunked messages lie among the last entries up to a position.

    Args:
        client: where to connect.
        topic: the topic partition.
        position: a visible entry.
        entries: how many are probed, ``position`` among them.

    Raises:
        BrokerError, DeadlineError: the broker does not answer.
    """
    after = _position_back(client, topic, position, entries)
    with EntryProbe(client, topic, after) as probe:
        while found := probe.read(_PROBED_MESSAGES, _PROBED_BYTES, position):
            if any(entry.chunked for entry in found):
                return True
    return False


def _position_back(client: Client, topic: TopicName, position: MessageId, entries: int) -> MessageId:
    """The position so many entries before another one, or the topic's beginning."""
    while position.entry + 1 < entries:
        before = _end_of_ledger_before(client, topic, position)
        if before is None:
            break
        entries -= position.entry + 1
        position = before
    return position.back(entries)


def _end_of_ledger_before(client: Client, topic: TopicName, position: MessageId) -> MessageId | None:
    """The last entry before the ledger of ``position``; None where the topic begins with that."""
    before = position_before(client, topic, position.ledger_start.next_entry)
    return before if before.ledger < position.ledger else None
