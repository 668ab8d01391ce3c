"""Tail: a reader that waits at a partition's end. Arrivals: partitions whose tails have received entries.

``visible_end`` finds the last visible message of a segment. Brokers with transactions (5.0.0-M1, 5.0.1) do
not report it: they repeat their first answer to GET_LAST_MESSAGE_ID until they load the segment again,
although they deliver all new messages. So stored entries are compared with received entries.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.consuming.inbox import TopicEnd
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.reading.probe import (
    has_read_over,
    reader_options,
    receive_infos,
)
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.copies import Witness, source_of
from pulsar_spark.protocol.reading.permits import Permits

# Bytes that may be in flight to a reader, unless one entry is larger.
_WINDOW_BYTES = 1 << 20
_FOLLOWED_ENTRIES = 16  # maximum entries that a tail follows; if more are left, callers close it
_FOLLOWED_BYTES = 64 << 10  # approximate maximum bytes that a tail follows

_log = logging.getLogger(__name__)

K = TypeVar("K")


class Tail(Closing):
    """A reader at the end of a partition; a context manager, not thread-safe.

    The broker has a permit for one entry, so it sends the next entry without a request. When the caller knows
    the partition's end, :meth:`follow` requests the entries up to the end, and one more. So the tail receives
    every visible entry.

    Args:
        after: entry before the tail's first entry; ``MessageId.EARLIEST`` for the topic's beginning.
        on_arrival: function that is called on the connection's thread when an entry is received, or the
            consumer is lost; it must not block. The caller then calls :meth:`take` or :meth:`follow`.

    Attributes:
        reached: last processed entry; ``after`` before the first.
        has_chunks: whether a processed entry was a chunk.
        last: facts about the last processed entry; None before the first.
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
            Permits(_WINDOW_BYTES),
            on_arrival,
        )
        try:
            self._consumer.ask_for(1)
        except PulsarError:
            self._consumer.close()
            raise

    def has_passed(self, end: MessageId) -> bool:
        """Whether an entry after ``end`` was received, or the tail is lost; makes no request."""
        return self.is_lost or self.newest > end

    @property
    def newest(self) -> MessageId:
        """Returns the last received entry, or ``after`` if there is none; makes no request."""
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
        """Processes the received entries; makes no request. A corrupt entry makes the tail lost."""
        try:
            while len(entries := self._consumer.take_arrived()):
                self.reached = MessageId(int(entries.ledger[-1]), int(entries.entry[-1]))
                metadata = entries.metadata(-1)
                self.last = Witness(
                    self._consumer.topic, self.reached, metadata.publish_time, source_of(metadata)
                )
                self.has_chunks = self.has_chunks or bool(entries.chunked.any())
                self._entries += len(entries)
                self._bytes += int(entries.sizes.sum())
        except PulsarError as error:
            self._is_lost = True
            _log.info("a reader that waits for new entries has ended: %s", error)

    def follow(self, end: MessageId) -> bool:
        """Processes the received entries; requests the entries up to ``end`` and the next one. Does not wait.

        Processed entries are acknowledged, because the broker counts all others as the reader's backlog.

        Args:
            end: last visible message of the partition, without a batch index.

        Returns:
            False if the tail is lost, or too far behind the end; close it then.
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
            self._is_lost = True
            _log.info("a reader that waits for new entries has ended: %s", error)
        return not self._is_lost

    def close(self) -> None:
        """Closes the reader, without waiting for the broker's answer."""
        self._consumer.begin_close()


class Arrivals(Generic[K]):
    """Partitions whose tails have received entries; connections' threads add, one thread takes partitions."""

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


# Seconds without an entry after which the broker is asked how far it has read.
_ASKED_AFTER = 0.5


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

    Args:
        reported: last message by GET_LAST_MESSAGE_ID, or the position before the first entry.
        stored: last entry, visible or not.
        silence: seconds without an entry after which the rest counts as invisible, because it belongs to an
            open transaction. The wait ends early if the broker has read all entries.
        seen: entry that is known to be visible.
        patience: seconds after which the last entry found so far is returned.

    Raises:
        DeadlineError: the connection was lost for longer than the operation timeout.
    """
    if stored <= reported.whole_entry:
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
    with Consumer(client, topic, options, Permits(_WINDOW_BYTES)) as reader:
        while position.whole_entry < end and not until.passed:
            count = end.entries_since(position.whole_entry)
            # A lost connection does not count as silence.
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
