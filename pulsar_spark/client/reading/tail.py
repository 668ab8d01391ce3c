"""Tail: shows new entries of a topic partition without requests. Arrivals: which of many tails got some."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.consuming.inbox import TopicEnd
from pulsar_spark.client.reading.probe import reader_options
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import Permits

# Bytes that may be in flight to a tail, unless one entry is larger.
_WINDOW_BYTES = 1 << 20
# Maximum entries, and about how many bytes, that a tail follows at a time: only tasks read more.
_FOLLOWED_ENTRIES = 16
_FOLLOWED_BYTES = 64 << 10

_log = logging.getLogger(__name__)

K = TypeVar("K")


class Tail(Closing):
    """A reader at the end of a partition; a context manager, not thread-safe.

    The broker sends it the next entry by itself. :meth:`follow` gives it the partition's end: it then takes
    the entries up to there, and again the next one. So it sees each entry.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions.
        after: the entry before the first that it sees; ``MessageId.EARLIEST`` for the topic's beginning.
        on_arrival: called on the connection's thread when something came, or the broker was lost so that
            something may have come; it must not block. :meth:`take` or :meth:`follow` is due then.

    Attributes:
        after: as given.
        reached: every visible entry after ``after`` up to this one was seen.
        has_chunks: whether one of them was a chunk.
        was_waiting: whether at the last :meth:`follow` all entries up to its end had come, and the broker was
            free to send the next one: so there was none.

    Raises:
        TopicNotFoundError, BrokerError: as ``Consumer``.
    """

    def __init__(
        self, client: Client, topic: TopicName, after: MessageId, on_arrival: Callable[[], object]
    ) -> None:
        self.after = self.reached = self._acknowledged = after.whole_entry
        self.has_chunks = self.was_waiting = False
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
        """Whether an entry after ``end`` came, or may have since the broker was lost; makes no request."""
        return self.is_lost or self.newest > end

    @property
    def newest(self) -> MessageId:
        """The newest entry that came, or that it began after; makes no request."""
        newest = self._consumer.newest_arrived
        return self.reached if newest is None else max(self.reached, newest)

    @property
    def topic_end(self) -> TopicEnd | None:
        """Why nothing more will come, as the broker says; None: more may come. Makes no request."""
        return self._consumer.topic_end

    @property
    def is_lost(self) -> bool:
        """Whether nothing more will come, so it must be closed; makes no request."""
        return self._is_lost or self._consumer.lost

    def take(self) -> None:
        """Process the entries that have come; makes no request. A corrupt entry makes the tail lost."""
        try:
            while len(entries := self._consumer.take_arrived()):
                self.reached = MessageId(int(entries.ledger[-1]), int(entries.entry[-1]))
                self.has_chunks = self.has_chunks or bool(entries.chunked.any())
                self._entries += len(entries)
                self._bytes += int(entries.sizes.sum())
        except PulsarError as error:
            self._is_lost = True
            _log.info("a reader that waits for new entries has ended: %s", error)

    def follow(self, end: MessageId) -> bool:
        """Process the entries that have come; request those up to ``end`` and the next one. Does not wait.

        Processed entries are acknowledged: the broker counts all others as the reader's backlog.

        Args:
            end: the last visible message of the partition, a whole entry.

        Returns:
            False if it is lost, or too many entries lie before the end.
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
        """Close the reader, without waiting for the broker's answer."""
        self._consumer.begin_close()


class Arrivals(Generic[K]):
    """Partitions whose tails got entries; connections' threads add them, one thread takes them."""

    def __init__(self) -> None:
        self._partitions: set[K] = set()
        self._came = threading.Condition()

    def add(self, partition: K) -> None:
        """Note that the tail of a partition got an entry."""
        with self._came:
            self._partitions.add(partition)
            self._came.notify()

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def wait(self, seconds: float) -> None:
        """Wait until there is one, for at most ``seconds``."""
        with self._came:
            self._came.wait_for(lambda: self._partitions, seconds)

    def take(self) -> set[K]:
        """All of them, each once."""
        with self._came:
            found, self._partitions = self._partitions, set()
            return found
