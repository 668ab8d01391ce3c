"""Probes of a topic partition for planning: its bounds, entries, times and ledgers.

Probes use readers that leave nothing at the broker, and keep no payload. All raise ``Consumer``'s errors.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Generator, Iterator
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
    NotAllowedError,
    NotReadyError,
    SubscriptionLimitError,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading import time_search
from pulsar_spark.protocol.reading.copies import Source, source_of
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entry.entries import Entries

# Maximum bytes in flight to a probe.
_WINDOW_BYTES = 1 << 20

# Entry id that no ledger reaches: a reader that starts there begins after the ledger's last entry.
_NO_ENTRY = 1 << 62

# Maximum attempts to count a growing topic's entries; the last count may be a few entries too large.
_MAX_COUNTS = 20

# Maximum corrupt entries in a row that a search for a publish time probes; the last one counts as the result.
_MAX_CORRUPT = 100

# Seconds in which a broker must open a compacted topic; until then it answers as if the topic were empty.
OPENS_COMPACTED_WITHIN = 5.0
_FIRST_PAUSE = 0.1

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


def probe_bounds(client: Client, topic: TopicName, *, read_compacted: bool = False) -> PartitionBounds:
    """Returns the current bounds of a partition.

    Args:
        topic: one partition, which is created again if the broker has removed it; or a topic without
            partitions.
        read_compacted: whether to include the compacted topic. It outlives the log from which it was made, so
            the bounds begin at ``MessageId.EARLIEST``, and may end before the log begins. Until a broker has
            opened the compacted topic, it answers as if the topic were empty, so the caller asks again.
    """
    options = SubscriptionOptions(
        name=client.reader_name("planner"),
        durable=False,
        initial=InitialPosition.EARLIEST,
        create=topic.partition >= 0,
    )
    with Consumer(client, topic, options) as consumer:
        last, begin = consumer.last_message_id()
    if read_compacted:
        begin = MessageId.EARLIEST
        if not last.is_entry:  # the log is empty
            compacted = reader_options(client, "planner", begin, read_compacted=True)
            with Consumer(client, topic, compacted) as consumer:
                last = consumer.last_message_id().last
    return PartitionBounds(begin, last.whole_entry if last.is_entry else begin)


def stored_end(client: Client, topic: TopicName) -> MessageId:
    """Returns the position of the last entry of a partition, visible or not.

    Markers of transactions, and aborted messages, may lie after the last visible message.
    """
    options = SubscriptionOptions(
        name=client.reader_name("planner"), durable=False, initial=InitialPosition.LATEST
    )
    with Consumer(client, topic, options) as consumer:
        return consumer.last_message_id().mark_delete


def has_subscription(client: Client, topic: TopicName, name: str) -> bool:
    """Whether a durable subscription exists: then brokers refuse to open a non-durable one of that name.

    If brokers refuse because of the maximum number of subscriptions, the durable one does not exist.
    """
    try:
        Consumer(client, topic, SubscriptionOptions(name=name, durable=False)).close()
    except NotAllowedError as error:
        return not isinstance(error, SubscriptionLimitError)
    return False


def probe_entry(
    client: Client, topic: TopicName, position: MessageId, *, read_compacted: bool = False
) -> EntryInfo:
    """Returns the first visible entry at or after ``position``.

    Args:
        position: position, with or without an entry; a visible entry at or after it must exist.

    Raises:
        DeadlineError: no entry was received within the operation timeout.
    """
    options = reader_options(client, "probe", position, read_compacted=read_compacted)
    with Consumer(client, topic, options, Permits(1)) as consumer:
        return receive_infos(consumer, client.operation(), 1)[0]


def entry_at(client: Client, topic: TopicName, position: MessageId) -> EntryInfo | None:
    """Returns the visible entry at ``position``; None if there is none."""
    position = position.whole_entry
    with Consumer(client, topic, reader_options(client, "probe", position), Permits(1)) as consumer:
        last, before = consumer.last_message_id()
        if last.whole_entry < position or before >= position:  # not stored yet, or already deleted
            return None
        found = receive_infos(consumer, client.operation(), 1)[0]
        return found if found.id == position else None


def first_after(client: Client, topic: TopicName, position: MessageId) -> MessageId | None:
    """Returns the first visible entry after ``position``; None if the broker knows no such entry."""
    with Consumer(
        client, topic, reader_options(client, "probe", position.next_entry), Permits(1)
    ) as consumer:
        if consumer.last_message_id().last.whole_entry <= position:
            return None
        return receive_infos(consumer, client.operation(), 1)[0].id


def first_at(
    client: Client,
    topic: TopicName,
    time_ms: int,
    margin_ms: int,
    first: MessageId,
    last: MessageId,
    *,
    read_compacted: bool = False,
) -> MessageId | None:
    """Returns the first visible entry published at ``time_ms`` or later; None if there is none.

    It probes about 2 log2 of the number of entries, and reads the entries of about ``margin_ms`` before the
    result. An entry that cannot be decoded is passed over. But if it is the last entry, or follows many such
    entries, it counts as published at ``time_ms``.

    Args:
        margin_ms: maximum time by which a message is older than one before it.
        first: start of the search, inclusive; ``MessageId.EARLIEST`` for the topic's beginning.
        last: last visible message, or an earlier message.
    """
    if read_compacted:
        # The search ends at the last remaining message: a probe after it would never receive an entry.
        with Consumer(client, topic, reader_options(client, "probe", first, read_compacted=True)) as consumer:
            kept = _last_kept(consumer)
        last = min(last, kept)
        if not kept.is_entry or first > last.whole_entry:
            return None

    def timed(entry: EntryInfo) -> EntryInfo:
        return replace(entry, publish_time=time_ms) if entry.corrupt else entry

    def probe(position: MessageId) -> EntryInfo:
        for _ in range(_MAX_CORRUPT):
            found = probe_entry(client, topic, position, read_compacted=read_compacted)
            if not found.corrupt or found.id >= last.whole_entry:
                break
            position = found.id.next_entry
        return timed(found)

    def read(after: MessageId) -> Generator[EntryInfo, None, None]:
        with EntryProbe(client, topic, after, read_compacted=read_compacted) as entries:
            while found := entries.read(_WINDOW_BYTES, _WINDOW_BYTES, last):
                yield from (timed(each) for each in found if not each.corrupt or each.id >= last.whole_entry)

    return time_search.first_at(probe, read, time_ms, margin_ms, first, last)


def ledger_end(client: Client, topic: TopicName, position: MessageId, last: MessageId) -> int:
    """Returns the number of the last entry in the ledger of ``position``; -1 for a missing ledger.

    Args:
        last: last visible message, which counts as the end of its ledger.
    """
    if position.ledger >= last.ledger:
        return last.entry
    after_end = reader_options(client, "probe", MessageId(position.ledger, _NO_ENTRY))
    with Consumer(client, topic, after_end) as consumer:
        # The broker begins with the next existing entry; its mark-delete position is the entry before that.
        before = consumer.last_message_id().mark_delete
    return before.entry if before.ledger == position.ledger else -1


def count_entries(
    client: Client, topic: TopicName, end: MessageId, position: MessageId
) -> tuple[MessageId, int]:
    """Returns the last entry before ``position``, and the number of entries after that entry, up to ``end``.

    At the beginning of a ledger or topic the entry may be ``(ledger, -1)``. Brokers count up to the topic's
    end, which may grow. So the entries from ``end`` on are counted twice: if equal, the result is exact.
    ``end`` must exist, because a reader that begins after a topic's last entry may begin after a newer entry.

    Raises:
        NotReadyError: a reader was lost.
    """
    with (
        Consumer(client, topic, reader_options(client, "planner", position)) as reader,
        Consumer(client, topic, reader_options(client, "planner", end)) as at_end,
    ):
        before = reader.last_message_id().mark_delete
        for _ in range(_MAX_COUNTS):
            begun = [each.begin_backlog() for each in (at_end, reader, at_end)]
            counts = [each.result() for each in begun if each is not None]
            if len(counts) < len(begun):
                raise NotReadyError("the reader was lost", topic=str(topic))
            if counts[0] == counts[2]:
                break
        return before, counts[1] - counts[0] + 1


def opening_turns() -> Iterator[None]:
    """Yields whenever the caller should ask again whether a compacted topic is empty; waits ever longer.

    Until a broker has opened a compacted topic, it answers as if the topic were empty.
    """
    deadline, pause = Deadline(OPENS_COMPACTED_WITHIN), _FIRST_PAUSE
    while not deadline.passed:
        time.sleep(min(pause, deadline.left))
        pause *= 2
        yield


def _last_kept(consumer: Consumer) -> MessageId:
    last = consumer.last_message_id().last
    for _ in () if last.is_entry else opening_turns():
        last = consumer.last_message_id().last
        if last.is_entry:
            break
    return last


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
        self._consumer = Consumer(client, topic, options, Permits(_WINDOW_BYTES))
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
        metadata = entries.one(row).metadata
        is_part = metadata.chunk_id < metadata.num_chunks_from_msg - 1
        found[row] = replace(found[row], chunk=is_part, chunked=True)
    for row in np.flatnonzero(entries.copied).tolist():
        found[row] = replace(found[row], source=source_of(entries.one(row).metadata))
    return found
