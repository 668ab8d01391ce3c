"""EntryProbe: reads facts about the entries of a topic partition, for planning, and keeps no payload."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.consuming.consumer_link import SubscriptionOptions
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.errors import (
    CorruptError,
    DeadlineError,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.copies import Source, source_of
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire.entry.entries import Entries

# Maximum bytes in flight to a probe.
WINDOW_BYTES = 1 << 20

# Seconds in which a broker must open a compacted topic; until then it answers as if the topic were empty.
OPENS_COMPACTED_WITHIN = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """One visible entry.

    Attributes:
        id: position of the whole entry.
        messages: number of its messages, at least 1.
        size: stored bytes of its metadata and payload.
        index: the broker's index of its last message, if the broker sends it.
        chunk: whether it is a chunk, but not the last one of its message.
        source: cluster and position where it was produced, if it is a copy from another cluster.
        corrupt: whether it cannot be decoded. Then only the id is known, and the entry counts as one message
            of one byte, published in 1970. The task that reads it fails or leaves it out.
    """

    id: MessageId
    messages: int
    size: int
    publish_time: int
    index: int | None
    chunk: bool
    chunked: bool
    corrupt: bool = False
    source: Source | None = None


class PartitionBounds(NamedTuple):
    """The bounds of a partition.

    Attributes:
        begin: position before the first entry.
        last: last visible message, without a batch index; ``begin`` if there is none.
    """

    begin: MessageId
    last: MessageId


class EntryProbe(Closing):
    """Reads the entries after a position, in order; a context manager, not thread-safe.

    Args:
        after: entry before the first wanted one; ``MessageId.EARLIEST`` for the topic's beginning.
        read_compacted: whether to read the compacted topic. Its last entries may be missing, so it ends when
            no entry is received for a few seconds.

    Attributes:
        position: last returned entry, at first ``after``.
    """

    def __init__(
        self, client: Client, topic: TopicName, after: MessageId, *, read_compacted: bool = False
    ) -> None:
        self.position = after.whole_entry
        self._client = client
        self._read_compacted = read_compacted
        options = reader_options(client, "probe", after.next_entry, read_compacted=read_compacted)
        self._consumer = Consumer(client, topic, options, Permits(WINDOW_BYTES))
        self._found: deque[EntryInfo] = deque()
        self._totals = _Totals()
        self._after = self.position
        self._late: DeadlineError | None = None

    def read(self, messages: int, size: int, end: MessageId) -> list[EntryInfo]:
        """Returns the next entries, up to one of three limits.

        Args:
            messages: number of messages at which the result ends; a chunked message counts with its last
                chunk.
            size: stored bytes at which the result ends.
            end: last entry, inclusive: the last visible message, or an earlier message.

        Returns:
            The entries; fewer if the broker has read up to ``end`` and delivers no more entries, or if the
            next entry was not received within the operation timeout.

        Raises:
            DeadlineError: no entry was received within the operation timeout. Every later call raises it,
                too, because the broker may have dropped entries, which only a new probe would receive.
            PulsarError: the broker does not answer.
        """
        taken: list[EntryInfo] = []
        end = end.whole_entry
        while messages > 0 and size > 0 and self.position < end:
            try:
                if not self._found:
                    self._receive(messages, size, end)
            except DeadlineError:
                if not taken:
                    raise
            if not self._found or self._found[0].id > end:
                break
            entry = self._found.popleft()
            self.position = entry.id
            messages -= 0 if entry.chunk else entry.messages
            size -= entry.size
            taken.append(entry)
        return taken

    def close(self) -> None:
        """Closes the reader, without waiting for the broker's answer."""
        self._consumer.begin_close()

    def _receive(self, messages: int, size: int, end: MessageId) -> None:
        if self._late is not None:
            raise self._late
        entries = self._totals.entries_for(messages, size)
        left = end.entries_since(self.position)
        entries = entries if left is None else min(entries, left)
        deadline = self._client.operation()
        if self._read_compacted:
            deadline = deadline.at_most(OPENS_COMPACTED_WITHIN)
        try:
            found = receive_infos(self._consumer, deadline, entries)
        except DeadlineError as error:
            if not self._is_read_over(end):
                self._late = error
                raise
            _log.warning("no message after %s is delivered: %s", self.position, error)
            return
        self._totals.add(found)
        self._found.extend(found)

    def _is_read_over(self, end: MessageId) -> bool:
        if self._read_compacted:
            return True
        return has_read_over(self._consumer, self._after, self.position, end)


class _Totals:
    def __init__(self) -> None:
        self._entries = self._messages = self._bytes = 0

    def add(self, found: list[EntryInfo]) -> None:
        self._entries += len(found)
        self._messages += sum(entry.messages for entry in found)
        self._bytes += sum(entry.size for entry in found)

    def entries_for(self, messages: int, size: int) -> int:
        """Returns the estimated number of entries with this many messages or bytes; 1 at first."""
        if self._entries == 0:
            return 1
        estimate = min(messages * self._entries // self._messages, size * self._entries // self._bytes)
        return max(1, estimate)


def reader_options(
    client: Client, role: str, start: MessageId, *, read_compacted: bool = False
) -> SubscriptionOptions:
    """Returns the options of a non-durable subscription with a unique name; ``start`` is inclusive."""
    return SubscriptionOptions(
        name=client.reader_name(role), durable=False, start=start, read_compacted=read_compacted
    )


def receive_infos(
    consumer: Consumer, deadline: Deadline, remaining_entries: int | None, idle: float | None = None
) -> list[EntryInfo]:
    """Receives the next entries without decoding their payloads; see ``Consumer.receive``.

    An entry that cannot be decoded is returned alone, and the consumer continues after it.
    """
    try:
        return entry_infos(consumer.receive(deadline, remaining_entries, idle))
    except CorruptError as error:
        found = MessageId.parse(str(error.message_id))  # the consumer sets the id
        _log.info("planning continues after an entry that cannot be decoded: %s", error)
        consumer.seek(found.next_entry)
        return [EntryInfo(found.whole_entry, 1, 1, 0, None, False, False, corrupt=True)]


def has_read_over(consumer: Consumer, after: MessageId, position: MessageId, end: MessageId) -> bool:
    """Whether the reader's mark-delete position has reached ``end``; undelivered entries advance it, too.

    Args:
        after: entry before the reader's first one.
        position: last received entry, or ``after``.
    """
    if position > after:
        consumer.ack_cumulative(position)
    return consumer.last_message_id().mark_delete >= end


def entry_infos(entries: Entries) -> list[EntryInfo]:
    """Returns the EntryInfo of each entry; parses only the metadata of chunks and copies."""
    columns = (
        entries.ledger.tolist(),
        entries.entry.tolist(),
        np.maximum(entries.messages, 1).tolist(),
        (entries.metadata_sizes + entries.payload_sizes).tolist(),
        entries.publish_time.astype(np.uint64).tolist(),
        entries.index.tolist(),
    )
    found = [
        EntryInfo(
            MessageId(ledger, entry), messages, size, time_ms, index if index >= 0 else None, False, False
        )
        for ledger, entry, messages, size, time_ms, index in zip(*columns, strict=True)
    ]
    for row in np.flatnonzero(entries.chunked).tolist():
        metadata = entries.metadata(row)
        is_part = metadata.chunk_id < metadata.num_chunks_from_msg - 1
        found[row] = replace(found[row], chunk=is_part, chunked=True)
    for row in np.flatnonzero(entries.copied).tolist():
        found[row] = replace(found[row], source=source_of(entries.metadata(row)))
    return found
