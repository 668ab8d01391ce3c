"""Reads ranges of topic partitions, for Spark tasks."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryption, Decryptor
from pulsar_spark.client.parallel import prefetch_each
from pulsar_spark.client.reading.chunk_search import ChunkSearch, take
from pulsar_spark.client.reading.entry_range import WINDOW_BYTES, RangeOptions, read_entries
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.chunk_assembler import (
    Assembled,
    ChunkAssembler,
    ChunkLimits,
    Dropped,
    message_key,
)
from pulsar_spark.protocol.reading.permits import FIRST_ENTRIES
from pulsar_spark.protocol.reading.range_progress import Range
from pulsar_spark.wire.entry.entries import Entries, Entry

_log = logging.getLogger(__name__)

# Maximum ranges of a task that are open at one time. Together they may have as many received and in-flight
# bytes as a single range, plus one entry each, because the size of an entry is not known in advance.
_OPEN_RANGES = 8
_OPEN_BYTES = WINDOW_BYTES // (2 * _OPEN_RANGES)

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
    chunk. Its other chunks are left out; chunks before the range are read, too. Messages that stay incomplete
    are left out and named in one WARNING.

    Ranges are read through non-durable subscriptions, so nothing is left at the broker. Callers that do not
    read to the end must close the generator, because garbage collection runs in any thread, and might wait
    for locks of that thread.

    An error of a range is raised instead of its entries, and the next ranges can still be read. When the next
    range is requested, the rest of the previous one is dropped. Entries are decrypted, and chunks assembled,
    on the caller's thread.

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
    opened = prefetch_each(streams, _size, max_streams=_OPEN_RANGES, max_size=_OPEN_BYTES)
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
                    search = ChunkSearch(client, topic, start, limits, options, decryption)
                    assembly = _Assembly(topic, limits, search)
                yield from assembly.whole(entries)
            elif len(entries):
                yield entries
            last = each
    if assembly is not None:
        assembly.report(start, end, last)
    decryption.report()


def _size(entries: Entries) -> int:
    return int(entries.sizes.sum())


class _Assembly:
    def __init__(self, topic: TopicName, limits: ChunkLimits, search: ChunkSearch) -> None:
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
        """Logs left-out messages, and keeps chunks for the next range; ``last``: last read entries."""
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
        message = take(self._chunks, entry)
        if isinstance(message, Assembled) and not message.is_odd:
            self._search.settle(entry)
        elif message is not None and message is not Dropped.EXPIRED:
            message = self._search_back(entry, message)
        if not isinstance(message, Assembled):
            return None
        return entry._replace(payload=message.payload, first_chunk=message.first)

    def _search_back(self, last: Entry, known: Assembled | Dropped) -> Assembled | Dropped | None:
        """Assembles a message with chunks from before the range; ``known``: result without such chunks."""
        message = self._search.find(last)
        is_counted = isinstance(known, Dropped) and known is not Dropped.NO_BEGINNING
        if isinstance(message, Assembled):
            self._chunks.finish(message_key(last.metadata))
        elif message is not None and not is_counted:
            self._chunks.count(message)
        return message
