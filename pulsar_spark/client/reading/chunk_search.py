"""Searches backwards for the chunks of one message, or for any chunk before a position."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryption
from pulsar_spark.client.reading.entry_range import RangeOptions, position_before, read_entries
from pulsar_spark.client.reading.probe import EntryProbe
from pulsar_spark.errors import DeadlineError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.chunk_assembler import (
    Assembled,
    ChunkAssembler,
    ChunkLimits,
    Dropped,
    is_chunk,
    message_key,
)
from pulsar_spark.protocol.reading.chunk_index import ChunkIndex, FoundChunk
from pulsar_spark.wire.entry.entries import Entries, Entry

# Maximum entries of the first step back, because a message may declare a wrong number of chunks.
_MAX_FIRST_STEP = 1000
# Maximum entries between two chunks that one reader reads through, because a second reader would take longer.
_MAX_BETWEEN = 50
# Bytes by which encryption makes a chunk larger.
_TAG_SIZE = 16
# Maximum chunks of all topics that a client keeps for later ranges; each takes 40 bytes.
_MAX_REMEMBERED = 1_000_000
_PROBED_MESSAGES = 4  # messages probed for chunks at a time; chunks are large
_PROBED_BYTES = 1 << 20  # bytes probed for chunks at a time


class ChunkSearch:
    """Finds chunks that lie before a range, and whose message ends in the range; one object for each range.

    Each step goes further back, until the topic's beginning, entries older than the maximum age of an
    incomplete message, or a task's maximum number of searched entries. No entry is searched twice: the found
    chunks are kept for the next range of the topic in this process.

    Args:
        start: last entry before the range.
        limits: limits of chunked messages; only the maximum age ``expire`` is used.
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
        self._limits = replace(limits, max_pending=0)
        self._options = replace(options, visible=False, begins=None, followed=False, fail_on_data_loss=False)
        self._decryption = decryption
        self._start = start
        self._name = topic, limits.expire, options.read_compacted
        self._index: ChunkIndex | None = None  # made with the first chunk, because most topics have none
        self._older: ChunkIndex | None = None  # index kept from an earlier range that ends before this one
        self._positions: Iterator[MessageId] | None = None  # start positions of the next steps back

    def add(self, chunk: Entry) -> None:
        """Adds a chunk that was read in the range."""
        self._known.add(_found(chunk, len(chunk.payload)))

    def settle(self, last: Entry) -> None:
        """Records that the message of a last chunk was completed or given up."""
        self._known.settle(message_key(last.metadata), MessageId(last.ledger, last.entry))

    def find(self, last: Entry) -> Assembled | Dropped | None:
        """Assembles a message from its decrypted last chunk ``last`` and the entries before it.

        Returns:
            The message; or the reason that it cannot be completed; or None if ``last`` repeats the last chunk
            of a message that was completed or given up before.
        """
        index, metadata = self._known, last.metadata
        found = _found(last, len(last.payload))
        if index.is_settled(found.key, found.place):
            self.settle(last)  # so that the next search need not go further back
            return None
        chunks, total = metadata.num_chunks_from_msg, metadata.total_chunk_msg_size
        while True:
            places = index.chunks_before(found, chunks, total)
            message = self._missing(found) if places is None else self._assembled(found.key, places, last)
            is_clear = not (message.is_odd if isinstance(message, Assembled) else message)
            if is_clear or index.has_ended:
                break
            self._look_back(2 * chunks)
            # If the known chunks seemed complete and made no message, one of them belongs to another message,
            # so all earlier entries are searched.
            while places is not None and not index.has_ended:
                self._look_back(2 * chunks)
        if not isinstance(message, Dropped) or (places is None and message is Dropped.NO_BEGINNING):
            self.settle(last)
        else:
            index.failed(found.key, found.place, was_read=places is not None)
        return message

    def remember(self, end: MessageId, last: Entries) -> None:
        """Keeps the known chunks for the next range.

        Args:
            end: end of the range; all entries up to it were read.
            last: last entries that were read, for the publish times at the range's end.
        """
        if self._index is not None:
            self._index.read_up_to(end, last.publish_time)
            _memory_of(self._client).put(self._name, self._index)

    @property
    def _known(self) -> ChunkIndex:
        if self._index is None:
            kept = _memory_of(self._client).take(self._name)
            if kept is not None and kept.low <= self._start <= kept.high:
                self._index = kept
            else:
                self._index = ChunkIndex(self._limits.expire, self._start)
                self._older = kept if kept is not None and kept.high < self._start else None
        return self._index

    def _assembled(self, key: bytes, places: list[MessageId], last: Entry) -> Assembled | Dropped | None:
        """Assembles a message from its chunks at ``places`` and its last chunk; see ChunkAssembler.take."""
        assembler = ChunkAssembler(self._limits)
        for entry in self._read(key, places):
            take(assembler, entry)
        return take(assembler, last)

    def _missing(self, last: FoundChunk) -> Dropped:
        has_beginning = self._known.has_beginning(last.key, last.place)
        return Dropped.OUT_OF_ORDER if has_beginning else Dropped.NO_BEGINNING

    def _read(self, key: bytes, places: list[MessageId]) -> Iterator[Entry]:
        for first, last in _spans(places):
            for entries in read_entries(self._client, self._topic, first.previous, last, self._options):
                for entry in _chunks_in(entries):
                    if message_key(entry.metadata) == key:
                        plain = self._decryption.entry(entry)
                        if plain is not None and is_chunk(plain.metadata):
                            yield plain

    def _look_back(self, step: int) -> None:
        index, older = self._known, self._older
        if self._positions is None:
            first_step = min(step, _MAX_FIRST_STEP)
            self._positions = positions_before(self._client, self._topic, index.low.next_entry, first_step)
        start = next(self._positions, None)
        if older is not None and (start is None or start <= older.high):
            start = older.high
        found: list[FoundChunk] = []
        times = [np.zeros(0, np.int64)]
        if start is not None:
            for entries in read_entries(self._client, self._topic, start, index.low, self._options):
                times.append(entries.publish_time)
                found += (_found(entry, _plain_size(entry)) for entry in _chunks_in(entries))
        index.searched(start or index.low, found, np.concatenate(times), is_beginning=start is None)
        if older is not None and start == older.high:
            index.joined(older)
            self._older = self._positions = None


_Name: TypeAlias = "tuple[TopicName, float, bool]"


class _Memory:
    """The known chunks of topics, for the next ranges of one client's tasks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Name, ChunkIndex] = OrderedDict()

    def take(self, name: _Name) -> ChunkIndex | None:
        """Removes and returns the known chunks of a topic, because one range at a time uses them."""
        with self._lock:
            return self._kept.pop(name, None)

    def put(self, name: _Name, index: ChunkIndex) -> None:
        """Keeps the known chunks of a topic; drops the least recently read topics if there are too many."""
        with self._lock:
            self._kept[name] = index
            while sum(map(len, self._kept.values())) > _MAX_REMEMBERED:
                self._kept.popitem(last=False)


_memories: WeakKeyDictionary[Client, _Memory] = WeakKeyDictionary()
_memories_lock = threading.Lock()


def _memory_of(client: Client) -> _Memory:
    with _memories_lock:
        return _memories.setdefault(client, _Memory())


def _found(chunk: Entry, size: int) -> FoundChunk:
    place = MessageId(chunk.ledger, chunk.entry)
    return FoundChunk(message_key(chunk.metadata), place, chunk.metadata.chunk_id, size)


def _plain_size(chunk: Entry) -> int:
    return len(chunk.payload) - (_TAG_SIZE if chunk.metadata.encryption_keys else 0)


def _chunks_in(entries: Entries) -> Iterator[Entry]:
    return (entries.one(row) for row in np.flatnonzero(entries.chunked).tolist())


def _spans(places: list[MessageId]) -> Iterator[tuple[MessageId, MessageId]]:
    """Groups near positions, to be read by one reader; yields each group's first and last position."""
    first = last = places[0]
    for place in places[1:]:
        if place.ledger != last.ledger or place.entry > last.entry + _MAX_BETWEEN:
            yield first, last
            first = place
        last = place
    yield first, last


def take(chunks: ChunkAssembler, entry: Entry) -> Assembled | Dropped | None:
    """Passes the chunk of an entry to an assembler; returns the result of :meth:`ChunkAssembler.take`."""
    message_id = MessageId(entry.ledger, entry.entry)
    return chunks.take(entry.metadata, entry.payload, message_id, entry.metadata.publish_time / 1000)


def positions_before(
    client: Client, topic: TopicName, position: MessageId, step: int, growth: float = 2.0
) -> Iterator[MessageId]:
    """Yields ever earlier positions before an entry; the last is the topic's beginning.

    Args:
        position: id of the entry.
        step: number of entries between the entry and the first position.
        growth: factor from one step back to the next, within a ledger; above 1.
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
        position: id of a visible entry.
        entries: number of probed entries, including the entry at ``position``.
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
                # Opens a new reader, because the broker may have dropped entries of this one.
                if probe.position == after:
                    raise
                after = probe.position


def _position_back(client: Client, topic: TopicName, position: MessageId, entries: int) -> MessageId:
    while position.entry + 1 < entries:
        before = _end_of_ledger_before(client, topic, position)
        if before is None:
            break
        entries -= position.entry + 1
        position = before
    return position.back(entries)


def _end_of_ledger_before(client: Client, topic: TopicName, position: MessageId) -> MessageId | None:
    """Returns the last entry before the ledger of ``position``; None if the topic begins with this ledger."""
    before = position_before(client, topic, position.ledger_start.next_entry)
    return before if before.ledger < position.ledger else None
