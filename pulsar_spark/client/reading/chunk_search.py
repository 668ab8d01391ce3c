"""Searches backwards for chunks: those of one message, or any before a position."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryption
from pulsar_spark.client.reading.entry_range import RangeOptions, position_before, read_entries
from pulsar_spark.client.reading.probe import EntryProbe
from pulsar_spark.errors import DeadlineError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.chunk_assembler import (
    Assembled,
    ChunkAssembler,
    ChunkLimits,
    Dropped,
    is_chunk,
    message_key,
)
from pulsar_spark.protocol.chunk_index import ChunkIndex
from pulsar_spark.wire.entries import Entries, Entry

# The first step back has at most so many entries: the number of chunks that a message declares may be wrong.
_MAX_FIRST_STEP = 1000
# Bytes probed for chunks at a time: chunks are large.
_PROBED_MESSAGES = 4
_PROBED_BYTES = 1 << 20


class ChunkSearch:
    """Finds chunks before a range whose message ends within the range; one object for each range.

    It searches further and further back: to the topic's beginning, to entries that are older than a message
    may take to complete, or up to the maximum of a task. It never searches the same entries twice.

    Args:
        client: where to connect.
        topic: the topic partition.
        start: of the range; nothing before it is known.
        limits: ``expire`` counts.
        options: how to read.
        decryption: of the chunks.
    """

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        start: MessageId,
        limits: ChunkLimits,
        options: RangeOptions,
        decryption: Decryption,
    ) -> None:
        self._client = client
        self._topic = topic
        self._limits = limits
        self._options = replace(options, visible=False, begins=None, fail_on_data_loss=False)
        self._decryption = decryption
        self._index = ChunkIndex(limits.expire)
        # Everything after this is known; and the positions further back, where the next searches begin.
        self._reached = start
        self._positions: Iterator[MessageId] | None = None

    def begin(self, first: Entry) -> None:
        """Add the first chunk of a message that was read in the range."""
        self._index.begin(message_key(first.metadata), MessageId(first.ledger, first.entry))

    def find(self, last: Entry) -> Assembled | Dropped | None:
        """Assemble the message whose last chunk is ``last``, decrypted, from the entries before that.

        Returns:
            The message; why it is given up; or None where ``last`` repeats the last chunk of a message that
            was complete before it.
        """
        message = message_key(last.metadata)
        while (first := self._index.find(message)) is None:
            if self._index.has_ended:
                return Dropped.NO_BEGINNING
            self._look_back(2 * last.metadata.num_chunks_from_msg)
        chunks = ChunkAssembler(self._limits)
        place = MessageId(last.ledger, last.entry)
        for entries in read_entries(self._client, self._topic, first.previous, place.previous, self._options):
            for entry in _chunks_in(entries):
                if message_key(entry.metadata) == message:
                    plain = self._decryption.entry(entry)
                    if plain is not None and is_chunk(plain.metadata):
                        take(chunks, plain)
        found = take(chunks, last)
        if isinstance(found, Assembled):
            return found
        return next(iter(chunks.dropped), None) if chunks.is_finished(message) else Dropped.NO_BEGINNING

    def _look_back(self, step: int) -> None:
        """Search the entries before all known ones for first chunks."""
        if self._positions is None:
            first_step = min(step, _MAX_FIRST_STEP)
            self._positions = positions_before(
                self._client, self._topic, self._reached.next_entry, first_step
            )
        start = next(self._positions, None)
        begins: dict[bytes, MessageId] = {}
        times = [np.zeros(0, np.int64)]
        if start is not None:
            for entries in read_entries(self._client, self._topic, start, self._reached, self._options):
                times.append(entries.publish_time)
                for entry in _chunks_in(entries):
                    if entry.metadata.chunk_id == 0:
                        begins[message_key(entry.metadata)] = MessageId(entry.ledger, entry.entry)
            self._reached = start
        self._index.looked_through(begins, np.concatenate(times), is_beginning=start is None)


def _chunks_in(entries: Entries) -> Iterator[Entry]:
    return (entries.one(row) for row in np.flatnonzero(entries.chunked).tolist())


def take(chunks: ChunkAssembler, entry: Entry) -> Assembled | Dropped | None:
    """Give an assembler the chunk of an entry; return the result of :meth:`ChunkAssembler.take`."""
    message_id = MessageId(entry.ledger, entry.entry)
    return chunks.take(entry.metadata, entry.payload, message_id, entry.metadata.publish_time / 1000)


def positions_before(
    client: Client, topic: TopicName, position: MessageId, step: int, growth: float = 2.0
) -> Iterator[MessageId]:
    """Positions before an entry, each further back, the last of them the topic's beginning.

    Args:
        client: where to connect.
        topic: the topic partition.
        position: the entry.
        step: the entries between it and the first position.
        growth: how much further back each position is than the one before, within a ledger; above 1.
    """
    while True:
        while step < position.entry:
            yield position.back(step + 1)
            step = math.ceil(step * growth)
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
    while True:
        with EntryProbe(client, topic, after) as probe:
            try:
                while found := probe.read(_PROBED_MESSAGES, _PROBED_BYTES, position):
                    if any(entry.chunked for entry in found):
                        return True
                return False
            except DeadlineError:
                # The broker may drop an entry together with others, and deliver it to a new reader.
                if probe.position == after:
                    raise
                after = probe.position


def _position_back(client: Client, topic: TopicName, position: MessageId, entries: int) -> MessageId:
    """The position ``entries`` entries before another one, or the topic's beginning."""
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
