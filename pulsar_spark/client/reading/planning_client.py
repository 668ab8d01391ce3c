"""PlanningClient: one interface to a cluster for planning.

Planning uses no other part of the client, so tests can replace it by topics in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pulsar_spark.client.client import Client, ClientOptions, impatient_client, shared_client
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.consuming.consumer_link import SubscriptionOptions
from pulsar_spark.client.net.admin import Admin
from pulsar_spark.client.net.deadline import Deadline, now
from pulsar_spark.client.net.retry import retry, retry_count
from pulsar_spark.client.reading import chunk_search, probe
from pulsar_spark.client.reading.probe import EntryInfo, EntryProbe, PartitionBounds
from pulsar_spark.client.reading.tail import Tail, visible_end
from pulsar_spark.client.watches import ScalableTopicWatch, SegmentWatch, TopicWatch
from pulsar_spark.errors import AuthError, PulsarError
from pulsar_spark.ids import MessageId, TopicName, TopicPattern
from pulsar_spark.protocol.segments import TopicLayout

# Seconds to wait for the broker's report that a topic has ended. A broker sends it at once.
_END_TIMEOUT = 10.0
# Seconds without an entry after which a stream considers the rest of a segment invisible, and asks again
# later. A batch read cannot ask again later, so it waits for an operation timeout.
_SILENCE = 1.0


class PlanningClient:
    """The requests of planning to one cluster; thread-safe.

    Its methods raise the errors of the functions and classes of this package that they wrap.

    Args:
        read_compacted: whether bounds and searches for times use the compacted topic.
    """

    def __init__(self, client: Client, *, read_compacted: bool = False) -> None:
        self._client = client
        self.read_compacted = read_compacted
        self._has_transactions: bool | None = None  # not known yet

    @classmethod
    def shared(cls, options: ClientOptions, *, read_compacted: bool = False) -> PlanningClient:
        """Returns a PlanningClient on the client of :func:`shared_client`."""
        return cls(shared_client(options), read_compacted=read_compacted)

    @contextmanager
    def impatient(self) -> Iterator[PlanningClient]:
        """Yields a PlanningClient whose requests fail within seconds if the cluster cannot be reached."""
        with impatient_client(self._client.options) as client:
            yield PlanningClient(client, read_compacted=self.read_compacted)

    def now(self) -> float:
        """Returns seconds of a clock that never goes back."""
        return now()

    def time_ms(self) -> int:
        """Returns this machine's time, in ms since 1970."""
        return time.time_ns() // 1_000_000

    def retries(self) -> int:
        """Returns how often this process has repeated requests to brokers."""
        return retry_count()

    def operation(self) -> Deadline:
        """Returns a deadline that is one operation timeout from now."""
        return self._client.operation()

    # ---- topics

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """Returns the partitions or segments of a topic, or the topic itself if it has neither."""
        return list(self.layout(topic).segments) if topic.is_scalable else self._client.partitions(topic)

    def layout(self, topic: TopicName) -> TopicLayout:
        """Returns the segments of a topic now."""
        with self.watch_layout(topic) as watch:
            return watch.layout()

    def watch_layout(self, topic: TopicName) -> SegmentWatch:
        """Watches the segments of a topic."""
        return SegmentWatch(self._client, topic)

    def has_scalable_topics(self) -> bool:
        """Whether the brokers support scalable topics, which have segments."""
        return self._client.service(self._client.operation()).scalable_topics

    def topics_matching(self, pattern: TopicPattern) -> dict[TopicName, frozenset[TopicName]]:
        """Returns the topics that match a pattern, each with its partitions that exist at the broker."""
        if not pattern.is_scalable:
            return self._client.topics_matching(pattern)
        with self.watch_scalable_topics(pattern) as watch:
            return {topic: frozenset((topic,)) for topic in watch.topics()}

    def watch_scalable_topics(self, pattern: TopicPattern) -> ScalableTopicWatch:
        """Watches the scalable topics that match a pattern."""
        return ScalableTopicWatch(self._client, pattern)

    def watch_topics(self, pattern: TopicPattern, *, may_list: bool) -> TopicWatch:
        """Watches the topics that match a pattern; ``may_list``: see :class:`TopicWatch`."""
        return TopicWatch(self._client, pattern, may_list=may_list)

    def admin(self, url: str) -> Admin:
        """Returns the admin service at ``url``, with this client's login."""
        return self._client.admin(url)

    # ---- subscriptions

    def subscribe(self, topic: TopicName, options: SubscriptionOptions) -> Consumer:
        """Returns a consumer that sends requests and acknowledges, but receives no messages."""
        return Consumer(self._client, topic, options)

    def has_subscription(self, topic: TopicName, name: str) -> bool:
        """Whether a durable subscription exists on a partition."""
        return probe.has_subscription(self._client, topic, name)

    # ---- contents of partitions

    def bounds(self, topic: TopicName) -> PartitionBounds:
        """Returns the current bounds of a partition."""
        if not topic.is_segment or self.read_compacted:
            return probe.probe_bounds(self._client, topic, read_compacted=self.read_compacted)
        stored = self.stored_end(topic)
        if not stored.is_entry:
            # Not probed: after a restart brokers do not find the first position of an empty sealed segment.
            return PartitionBounds(stored, stored)
        bounds = probe.probe_bounds(self._client, topic)
        if not self.may_have_old_end(topic):
            return bounds
        patience = self.operation().seconds
        return bounds._replace(last=visible_end(self._client, topic, bounds.last, stored, patience))

    def may_have_old_end(self, topic: TopicName) -> bool:
        """Whether the broker may repeat an old answer to GET_LAST_MESSAGE_ID; see :meth:`visible_end`."""
        if not topic.is_segment or self.read_compacted:
            return False
        if self._has_transactions is None:
            try:
                self._has_transactions = bool(self._client.transaction_coordinators())
            except AuthError:
                self._has_transactions = True  # unknown, so assume that it has
            except PulsarError as error:
                if not error.is_passing:
                    raise
                return True  # unknown now; a stream calls this method again
        return self._has_transactions

    def visible_end(self, topic: TopicName, reported: MessageId, seen: MessageId) -> MessageId:
        """Returns the last visible entry of a segment; see :func:`tail.visible_end`.

        Args:
            reported: last message by GET_LAST_MESSAGE_ID.
            seen: entry that is known to be visible.
        """
        # If the timeout ends the reading early, the next call continues from the result (``seen``).
        stored = self.stored_end(topic)
        return visible_end(self._client, topic, reported, stored, _SILENCE, seen, self.operation().seconds)

    def opening_turns(self) -> Iterator[None]:
        """Returns :func:`probe.opening_turns`; yields nothing if compacted topics are not read."""
        return probe.opening_turns() if self.read_compacted else iter(())

    def stored_end(self, topic: TopicName) -> MessageId:
        """Returns the position of the last entry of a partition, visible or not."""
        return probe.stored_end(self._client, topic)

    def probe_entry(self, topic: TopicName, position: MessageId) -> EntryInfo:
        """Returns the first visible entry at or after ``position``; there must be one."""
        compacted = self._is_compacted_after(topic, position)
        return probe.probe_entry(self._client, topic, position, read_compacted=compacted)

    def entry_at(self, topic: TopicName, position: MessageId) -> EntryInfo | None:
        """Returns the visible entry at ``position``; None if there is none."""
        return probe.entry_at(self._client, topic, position)

    def first_after(self, topic: TopicName, position: MessageId) -> MessageId | None:
        """Returns the first visible entry after ``position``; None if the broker knows no such entry."""
        return probe.first_after(self._client, topic, position)

    def probe_entries(self, topic: TopicName, after: MessageId) -> EntryProbe:
        """Returns a probe of the entries after a position."""
        compacted = self._is_compacted_after(topic, after)
        return EntryProbe(self._client, topic, after, read_compacted=compacted)

    def _is_compacted_after(self, topic: TopicName, position: MessageId) -> bool:
        """Whether to read the compacted topic, because the log lacks the entries after ``position``."""
        if not self.read_compacted:
            return False
        log = probe.probe_bounds(self._client, topic)
        return position < log.begin or not log.last.is_entry

    def first_at(
        self, topic: TopicName, time_ms: int, margin_ms: int, first: MessageId, last: MessageId
    ) -> MessageId | None:
        """Returns the first entry in ``[first, last]`` since ``time_ms``; see :func:`probe.first_at`."""
        compacted = self.read_compacted
        return probe.first_at(self._client, topic, time_ms, margin_ms, first, last, read_compacted=compacted)

    def ledger_end(self, topic: TopicName, position: MessageId, last: MessageId) -> int:
        """Returns the number of the last entry in the ledger of ``position``; -1 if it does not exist."""
        return probe.ledger_end(self._client, topic, position, last)

    def count_entries(self, topic: TopicName, end: MessageId, position: MessageId) -> tuple[MessageId, int]:
        """Returns the result of :func:`probe.count_entries`; retries."""
        return retry(lambda: probe.count_entries(self._client, topic, end, position), self.operation())

    def has_chunks_before(self, topic: TopicName, position: MessageId, entries: int) -> bool:
        """Whether chunked messages lie among the last ``entries`` entries up to a position."""
        return chunk_search.has_chunks_before(self._client, topic, position, entries)

    def has_ended(self, topic: TopicName, after: MessageId) -> bool:
        """Waits for the broker's report that no message will follow a position; False: there was none."""
        came = threading.Event()
        with Tail(self._client, topic, after, came.set) as tail:
            came.wait(_END_TIMEOUT)
            return tail.topic_end is not None and tail.newest <= after.whole_entry

    def open_tail(self, topic: TopicName, after: MessageId, on_arrival: Callable[[], object]) -> Tail:
        """Opens a tail, which shows new entries after a position."""
        return Tail(self._client, topic, after, on_arrival)
