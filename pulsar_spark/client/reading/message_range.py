"""Reads ranges of topic partitions, for Spark tasks: decrypts entries, and assembles chunked messages.

A message may have chunks before the range. A search finds them, backwards from the range's start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryption, Decryptor
from pulsar_spark.client.parallel import prefetch_each
from pulsar_spark.client.reading.entry_range import WINDOW_BYTES, RangeOptions, positions_before, read_entries
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
from pulsar_spark.protocol.reading.permits import FIRST_ENTRIES
from pulsar_spark.protocol.reading.range_progress import Range
from pulsar_spark.wire.entry.entries import Entries, Entry

_log = logging.getLogger(__name__)

# Maximum ranges of a task that are open at one time. Together they may have as many received and in-flight
# bytes as a single range, plus one entry each, because the size of an entry is not known in advance.
_OPEN_RANGES = 8
_OPEN_BYTES = WINDOW_BYTES // (2 * _OPEN_RANGES)

# Maximum entries of the first step back, because a message may declare a wrong number of chunks.
_MAX_FIRST_STEP = 1000
# Maximum entries between two chunks that one reader reads through, because a second reader would take longer.
_MAX_BETWEEN = 50
# Bytes by which encryption enlarges a chunk.
_TAG_SIZE = 16
# Maximum chunks of all topics that a client keeps for later ranges; each takes 40 bytes.
_MAX_REMEMBERED = 1_000_000

_NOTHING = Entries.of([])


def read_ranges(
    client: Client,
    ranges: Sequence[Range],
    *,
    poll_timeout: float,
    fail_on_data_loss: bool = True,
    read_compacted: bool = False,
    chunks: ChunkLimits | None = None,
    decryptor: Decryptor | None = None,
) -> Generator[Generator[Entries, None, None], None, None]:
    """Yields the entries in ``(start, end]`` of each range in turn, in order; prefetches the next ranges.

    A chunked message belongs to the range with its last chunk, and is yielded as one entry instead of that
    chunk, without its other chunks; chunks before the range are read, too. Messages that stay incomplete are
    not yielded, and counted in one WARNING.

    Ranges are read through non-durable subscriptions, so nothing is left at the broker. Callers that do not
    read to the end must close the generator, because garbage collection runs in any thread, and might wait
    for locks of that thread.

    An error of a range is raised instead of its entries, and the next ranges can still be read. When the next
    range is requested, unread entries of the previous one are dropped. Entries are decrypted, and chunks
    assembled, on the caller's thread.

    Args:
        chunks: bounds of incomplete chunked messages; None: the defaults.
        decryptor: decryptor of encrypted entries; None: encrypted entries are an error.

    Raises:
        DataLossError: an entry of the range has been deleted.
        DeadlineError: no entry was received for ``poll_timeout``, and the broker has more.
        CorruptError: an entry cannot be decoded, and ``fail_on_data_loss`` is true.
        CryptoError: an entry cannot be decrypted, and the failure action is FAIL.
    """
    is_one = len(ranges) == 1
    if not is_one:
        client.locate_all(each.topic for each in ranges)
    options = [
        RangeOptions(
            poll_timeout=poll_timeout,
            visible=each.visible,
            begins=each.begins,
            followed=each.followed,
            fail_on_data_loss=fail_on_data_loss,
            read_compacted=read_compacted,
            window_bytes=WINDOW_BYTES if is_one else _OPEN_BYTES,
            first_entries=FIRST_ENTRIES if is_one else 1,
        )
        for each in ranges
    ]
    streams = [
        partial(read_entries, client, each.topic, each.start.last_whole_entry, each.end, own)
        for each, own in zip(ranges, options, strict=True)
    ]
    opened = prefetch_each(
        streams, lambda entries: int(entries.sizes.sum()), max_streams=_OPEN_RANGES, max_size=_OPEN_BYTES
    )
    with closing(opened):
        for each, own, stored in zip(ranges, options, opened, strict=True):
            start = each.start.last_whole_entry
            yield whole_messages(client, each.topic, start, each.end, stored, own, chunks, decryptor)


def whole_messages(
    client: Client,
    topic: TopicName,
    start: MessageId,
    end: MessageId,
    stored: Generator[Entries, None, None],
    options: RangeOptions,
    chunks: ChunkLimits | None,
    decryptor: Decryptor | None,
) -> Generator[Entries, None, None]:
    """Yields the stored entries in ``(start, end]``, decrypted, with chunked messages assembled."""
    decryption = Decryption(decryptor or Decryptor(), topic)
    assembly: _Assembly | None = None  # made with the first chunk, because most ranges have none
    last = _NOTHING
    with closing(stored):
        for each in stored:
            entries = decryption.entries(each)
            if entries.chunked.any():
                if assembly is None:
                    limits = chunks or ChunkLimits()
                    search = _ChunkSearch(client, topic, start, limits, options, decryption)
                    assembly = _Assembly(topic, limits, search)
                yield from assembly.whole(entries)
            elif len(entries):
                yield entries
            last = each
    if assembly is not None:
        assembly.report(start, end, last)
    decryption.report()


class _Assembly:
    def __init__(self, topic: TopicName, limits: ChunkLimits, search: _ChunkSearch) -> None:
        self._topic = topic
        self._search = search
        self._chunks = ChunkAssembler(limits)

    def whole(self, entries: Entries) -> Iterator[Entries]:
        """Yields the entries, each last chunk replaced by its message, without the other chunks."""
        first = 0
        for row in np.flatnonzero(entries.chunked).tolist():
            if row > first:
                yield entries[first:row]
            message = self._whole(entries.one(row))
            if message is not None:
                yield Entries.of([message])
            first = row + 1
        if first < len(entries):
            yield entries[first:]

    def report(self, start: MessageId, end: MessageId, last: Entries) -> None:
        """Logs the number of dropped messages, and keeps chunks for the next range; see ``remember``."""
        dropped = self._chunks.dropped
        if dropped:
            reasons = "; ".join(f"{count} because {why.value}" for why, count in dropped.items())
            _log.warning(
                "%s: %d incomplete chunked messages in (%s, %s] are left out: %s",
                *(self._topic, dropped.total(), start, end, reasons),
            )
        if self._chunks.pending:
            _log.info("%s: %d chunked messages end after %s", self._topic, self._chunks.pending, end)
        self._search.remember(end, last)

    def _whole(self, entry: Entry) -> Entry | None:
        self._search.add(entry)
        message = _take(self._chunks, entry)
        if isinstance(message, Assembled) and not message.is_odd:
            self._search.settle(entry)
        elif message is not None and message is not Dropped.EXPIRED:
            message = self._search_back(entry, message)
        if not isinstance(message, Assembled):
            return None
        return entry._replace(payload=message.payload, first_chunk=message.first)

    def _search_back(self, last: Entry, known: Assembled | Dropped) -> Assembled | Dropped | None:
        """Assembles a message with chunks before the range; ``known``: result of the range's chunks alone."""
        message = self._search.find(last)
        is_counted = isinstance(known, Dropped) and known is not Dropped.NO_BEGINNING
        if isinstance(message, Assembled):
            self._chunks.finish(message_key(last.metadata))
        elif message is not None and not is_counted:
            self._chunks.count(message)
        return message


class _ChunkSearch:
    """Finds chunks before a range whose message ends in the range; one object for each range.

    Each step goes further back, until the topic's beginning, entries older than the maximum age of an
    incomplete message (``expire`` of the limits), or a task's maximum number of searched entries. No entry is
    searched twice: the found chunks are kept for the next range of the topic in this process. ``start`` is
    the last entry before the range.
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
            self.settle(last)  # later calls ignore the message's chunks up to ``last``
            return None
        chunks, total = metadata.num_chunks_from_msg, metadata.total_chunk_msg_size
        while True:
            places = index.chunks_before(found, chunks, total)
            if places is not None:
                message = self._assembled(found.key, places, last)
            elif index.has_beginning(found.key, found.place):
                message = Dropped.OUT_OF_ORDER
            else:
                message = Dropped.NO_BEGINNING
            is_clear = not (message.is_odd if isinstance(message, Assembled) else message)
            if is_clear or index.has_ended:
                break
            self._look_back(2 * chunks)
            # If chunks at ``places`` do not form one message, a chunk belongs to another message with the
            # same key. So all earlier entries are searched.
            while places is not None and not index.has_ended:
                self._look_back(2 * chunks)
        if not isinstance(message, Dropped) or (places is None and message is Dropped.NO_BEGINNING):
            self.settle(last)
        else:
            index.failed(found.key, found.place, was_read=places is not None)
        return message

    def remember(self, end: MessageId, last: Entries) -> None:
        """Keeps the found chunks for the next range, which begins at ``end``; ``last``: last read entries."""
        if self._index is not None:
            self._index.read_up_to(end, last.publish_time)
            _keep(self._client, self._name, self._index)

    @property
    def _known(self) -> ChunkIndex:
        if self._index is None:
            kept = _take_kept(self._client, self._name)
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
            _take(assembler, entry)
        return _take(assembler, last)

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

# For each client: found chunks by topic, kept for later ranges; the most recently read topic is last.
_kept: WeakKeyDictionary[Client, dict[_Name, ChunkIndex]] = WeakKeyDictionary()
_kept_lock = threading.Lock()


def _take_kept(client: Client, name: _Name) -> ChunkIndex | None:
    """Removes and returns the kept chunks of a topic; removed, because only one range may use them."""
    with _kept_lock:
        return _kept.get(client, {}).pop(name, None)


def _keep(client: Client, name: _Name, index: ChunkIndex) -> None:
    """Keeps the found chunks of a topic; drops the least recently read topics if there are too many."""
    with _kept_lock:
        topics = _kept.setdefault(client, {})
        topics[name] = index
        while sum(map(len, topics.values())) > _MAX_REMEMBERED:
            del topics[next(iter(topics))]


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


def _take(chunks: ChunkAssembler, entry: Entry) -> Assembled | Dropped | None:
    message_id = MessageId(entry.ledger, entry.entry)
    return chunks.take(entry.metadata, entry.payload, message_id, entry.metadata.publish_time / 1000)
