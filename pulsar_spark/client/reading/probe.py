"""Probes: readers, used in planning, that return sizes, times and counts of entries, and keep no payload.

EntryProbe reads the next entries of a topic partition; a Tail waits at its end for new entries.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.consuming.consumer_link import SubscriptionOptions
from pulsar_spark.client.consuming.inbox import TopicEnd
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.errors import CorruptError, DeadlineError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.copies import Source, Witness, source_of
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire.entry.entries import Entries

# Maximum bytes in flight to a probe.
WINDOW_BYTES = 1 << 20

# Seconds in which a broker must open a compacted topic; until then it answers as if the topic were empty.
OPENS_COMPACTED_WITHIN = 5.0

_FOLLOWED_ENTRIES = 16  # maximum entries that ``Tail.follow`` requests up to the end
_FOLLOWED_BYTES = 64 << 10  # approximate maximum bytes that ``Tail.follow`` requests up to the end

# Seconds without an entry after which the broker is asked how far it has read.
_ASKED_AFTER = 0.5

K = TypeVar("K")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """One visible entry.

    Attributes:
        id: id of the entry, without a batch index.
        messages: number of its messages, at least 1.
        size: stored bytes of its metadata and payload.
        publish_time: time in ms since the epoch.
        index: the broker's index of its last message, if the broker sends it.
        chunk: whether it is a chunk, but not its message's last; ``chunked``: whether it is any chunk.
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
    """``begin``: position before a partition's first entry; ``last``: entry id of its last visible message.

    Both are equal if the partition has no visible message.
    """

    begin: MessageId
    last: MessageId


class EntryProbe(Closing):
    """Reads the entries after a position, in order; a context manager, not thread-safe.

    Args:
        after: entry before the first wanted one; ``MessageId.EARLIEST`` for the topic's beginning.
        read_compacted: whether to read the compacted topic. Because its last entries may be missing, reading
            then ends when no entry is received for a few seconds.

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
        self._entries = self._messages = self._bytes = 0  # totals of the received entries
        self._after = self.position
        self._late: DeadlineError | None = None

    def read(self, messages: int, size: int, end: MessageId) -> list[EntryInfo]:
        """Returns the next entries, up to ``end`` (inclusive), a visible message.

        The result ends at this number of ``messages``, where a chunked message counts with its last chunk, or
        at this ``size`` in stored bytes. It is shorter if the broker has read up to ``end`` and delivers no
        more entries, or if the next entry was not received within the operation timeout.

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
        entries = self._entries_for(messages, size)
        left = end.entries_since(self.position)
        entries = entries if left is None else min(entries, left)
        deadline = self._client.operation()
        if self._read_compacted:
            deadline = deadline.at_most(OPENS_COMPACTED_WITHIN)
        try:
            found = receive_infos(self._consumer, deadline, entries)
        except DeadlineError as error:
            if not (self._read_compacted or has_read_over(self._consumer, self._after, self.position, end)):
                self._late = error
                raise
            _log.warning("no message after %s is delivered: %s", self.position, error)
            return
        self._entries += len(found)
        self._messages += sum(entry.messages for entry in found)
        self._bytes += sum(entry.size for entry in found)
        self._found.extend(found)

    def _entries_for(self, messages: int, size: int) -> int:
        """Returns the estimated number of entries with this many messages or bytes; 1 at first."""
        if self._entries == 0:
            return 1
        estimate = min(messages * self._entries // self._messages, size * self._entries // self._bytes)
        return max(1, estimate)


class Tail(Closing):
    """A reader at the end of a partition; a context manager, not thread-safe.

    The broker has a permit for one entry, so it sends the next entry without a request. When the caller knows
    the partition's end, :meth:`follow` requests the entries up to the end, and one more. So the tail receives
    every visible entry. ``after`` is as for :class:`EntryProbe`, ``on_arrival`` as for :class:`Consumer`.

    Attributes:
        reached: last processed entry; ``after`` before the first.
        has_chunks: whether a processed entry was a chunk.
        last: id, publish time and source of the last processed entry; None before the first.
        was_waiting: whether the last :meth:`follow` found no entry after the end: all entries up to the end
            were received, and the broker had a permit for one more.
    """

    def __init__(
        self, client: Client, topic: TopicName, after: MessageId, on_arrival: Callable[[], object]
    ) -> None:
        self.after = self.reached = self._acknowledged = after.whole_entry
        self.has_chunks = self.was_waiting = False
        self.last: Witness | None = None
        self._is_lost = False
        self._entries = self._bytes = 0
        self._consumer = Consumer(
            client,
            topic,
            reader_options(client, "tail", after.next_entry),
            Permits(WINDOW_BYTES),
            on_arrival,
        )
        try:
            self._consumer.ask_for(1)
        except PulsarError:
            self._consumer.close()
            raise

    def has_passed(self, end: MessageId) -> bool:
        """Whether an entry after ``end`` was received, or the tail receives no more; makes no request."""
        return self.is_lost or self.newest > end

    @property
    def newest(self) -> MessageId:
        """Returns the id of the last received entry, or ``after`` if there is none; makes no request."""
        newest = self._consumer.newest_arrived
        return self.reached if newest is None else max(self.reached, newest)

    @property
    def topic_end(self) -> TopicEnd | None:
        """Returns the broker's reason why the topic gets no more messages, or None; makes no request."""
        return self._consumer.topic_end

    @property
    def is_lost(self) -> bool:
        """Whether the tail receives no more entries and must be closed; makes no request."""
        return self._is_lost or self._consumer.lost

    def take(self) -> None:
        """Updates the attributes from received entries; makes no request. A corrupt entry ends the tail."""
        try:
            while len(entries := self._consumer.take_arrived()):
                self.reached = entries.id_of(-1)
                metadata = entries.metadata(-1)
                self.last = Witness(
                    self._consumer.topic, self.reached, metadata.publish_time, source_of(metadata)
                )
                self.has_chunks = self.has_chunks or bool(entries.chunked.any())
                self._entries += len(entries)
                self._bytes += int(entries.sizes.sum())
        except PulsarError as error:
            self._lose(error)

    def follow(self, end: MessageId) -> bool:
        """Processes the received entries; requests the entries up to ``end`` and the next one. Does not wait.

        Processed entries are acknowledged, because the broker counts all others as the reader's backlog.
        ``end`` is the partition's last visible message, without a batch index. Returns False if the tail is
        lost, or too many entries are left; close it then.
        """
        self.take()
        self.was_waiting = self.reached >= end and self._consumer.has_permits
        left = 0
        if self.reached < end:
            count = end.entries_since(self.reached)
            left = end.entry + 1 if count is None else count
        size = left * self._bytes // max(1, self._entries)
        if self.is_lost or left > _FOLLOWED_ENTRIES or size > _FOLLOWED_BYTES:
            return False
        try:
            if self._acknowledged < self.reached:
                self._consumer.ack_unconfirmed(self.reached)
                self._acknowledged = self.reached
            self._consumer.ask_for(left + 1)
        except PulsarError as error:
            self._lose(error)
        return not self._is_lost

    def _lose(self, error: PulsarError) -> None:
        self._is_lost = True
        _log.info("a reader that waits for new entries has ended: %s", error)

    def close(self) -> None:
        """Closes the reader, without waiting for the broker's answer."""
        self._consumer.begin_close()


class Arrivals(Generic[K]):
    """Partitions whose tails have received entries; connection threads add, one thread removes them."""

    def __init__(self) -> None:
        self._partitions: set[K] = set()
        self._came = threading.Condition()

    def add(self, partition: K) -> None:
        """Records that the tail of a partition has received an entry."""
        with self._came:
            self._partitions.add(partition)
            self._came.notify()

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def wait(self, seconds: float) -> None:
        """Waits until a partition was added, for at most ``seconds``."""
        with self._came:
            self._came.wait_for(lambda: self._partitions, seconds)

    def take(self) -> set[K]:
        """Removes and returns the partitions."""
        with self._came:
            found, self._partitions = self._partitions, set()
            return found


def visible_end(
    client: Client,
    topic: TopicName,
    reported: MessageId,
    stored: MessageId,
    silence: float,
    seen: MessageId = MessageId.EARLIEST,
    patience: float = math.inf,
) -> MessageId:
    """Returns the last visible entry of a segment: ``reported``, or a later entry.

    Brokers with transactions (5.0.0-M1, 5.0.1) repeat their first answer to GET_LAST_MESSAGE_ID until they
    load the segment again, although they deliver all new messages. So this function receives the entries.

    Args:
        reported: last message by GET_LAST_MESSAGE_ID, or the position before the first entry.
        stored: last entry, visible or not.
        silence: seconds without an entry after which all further entries count as invisible, because they
            belong to an open transaction. The wait ends early if the broker has read all entries.
        seen: entry that is known to be visible.
        patience: seconds after which the last entry found so far is returned.

    Raises:
        DeadlineError: the connection was lost for longer than the operation timeout.
    """
    if not stored.is_entry or stored <= reported.whole_entry:
        return reported
    before = MessageId(stored.ledger, stored.entry - 1)
    given = _last_received(client, topic, before, stored, silence, patience)
    if given > before:
        return given
    after = seen if reported < seen <= stored else reported
    return _last_received(client, topic, after, stored, silence, patience)


def _last_received(
    client: Client, topic: TopicName, after: MessageId, end: MessageId, silence: float, patience: float
) -> MessageId:
    """Receives the entries after a position until ``end`` is reached; returns the last received entry."""
    position, until, quiet = after, Deadline(patience), Deadline(silence)
    options = reader_options(client, "planner", after.next_entry)
    with Consumer(client, topic, options, Permits(WINDOW_BYTES)) as reader:
        while position.whole_entry < end and not until.passed:
            count = end.entries_since(position.whole_entry)
            # Returns an empty list only while connected, so a lost connection does not count as silence.
            found = receive_infos(
                reader, Deadline(_ASKED_AFTER + client.operation().seconds), count, _ASKED_AFTER
            )
            if found:
                position, quiet = found[-1].id, Deadline(silence)
            elif has_read_over(reader, after, position, end):
                break
            elif quiet.passed:
                _log.info("%s: what is stored after %s, up to %s, is not delivered", topic, position, end)
                break
    return position


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
    """Whether the broker has delivered or skipped all entries up to ``end``; acknowledges ``position``.

    ``position`` is the last received entry; before the first one it is ``after``, where the reader began.
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
