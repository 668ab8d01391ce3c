"""PlanningClient: all requests to a cluster that the planning of reads needs.

Planning uses no other part of the client, so tests can replace PlanningClient by topics in memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace

from pulsar_spark.client.client import Client, ClientOptions, impatient_client, shared_client
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.consuming.consumer_link import SubscriptionOptions
from pulsar_spark.client.net.admin import Admin
from pulsar_spark.client.net.deadline import Deadline, epoch_ms, now, retry, retry_count
from pulsar_spark.client.reading.entry_range import hidden_end, position_back, stored_end
from pulsar_spark.client.reading.probe import (
    OPENS_COMPACTED_WITHIN,
    WINDOW_BYTES,
    EntryInfo,
    EntryProbe,
    PartitionBounds,
    Tail,
    reader_options,
    receive_infos,
    visible_end,
)
from pulsar_spark.client.watches import ScalableTopicWatch, SegmentWatch, TopicWatch
from pulsar_spark.errors import (
    AuthError,
    DeadlineError,
    NotAllowedError,
    NotReadyError,
    PulsarError,
    SubscriptionLimitError,
)
from pulsar_spark.ids import MessageId, TopicName, TopicPattern
from pulsar_spark.protocol.reading import time_search
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.protocol.segments import TopicLayout
from pulsar_spark.wire.commands import InitialPosition

# Seconds to wait for the broker's report that a topic has ended. A broker sends it at once.
_END_TIMEOUT = 10.0
# Seconds without an entry after which a stream considers a segment's unread entries invisible, and asks again
# later. A batch read cannot ask again later, so it waits for an operation timeout.
_SILENCE = 1.0
_log = logging.getLogger(__name__)

# Entry id that no ledger reaches: a reader that starts there begins after the ledger's last entry.
_NO_ENTRY = 1 << 62

# Maximum attempts to count a growing topic's entries; the last count may be a few entries too large.
_MAX_COUNTS = 20

# Maximum consecutive corrupt entries that a search for a publish time probes; see ``first_at``.
_MAX_CORRUPT = 100

_FIRST_PAUSE = 0.1  # seconds until the broker is asked again whether a compacted topic is empty
_PROBED_MESSAGES = 4  # messages probed for chunks at a time; chunks are large
_PROBED_BYTES = 1 << 20  # bytes probed for chunks at a time


class PlanningClient:
    """The requests to one cluster that planning a read needs; thread-safe.

    Its methods raise the errors of ``Consumer``. Its readers leave nothing at the broker.

    Args:
        read_compacted: whether bounds and searches for times use the compacted topic.
    """

    def __init__(self, client: Client, *, read_compacted: bool = False) -> None:
        self._client = client
        self.read_compacted = read_compacted
        self._has_transactions: bool | None = None  # None: unknown

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
        return epoch_ms()

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
        """Whether a durable subscription exists. If so, brokers refuse a non-durable one of the same name.

        Returns False if brokers refuse because of the maximum number of subscriptions. To create a missing
        subscription, call ``create_subscription``.
        """
        try:
            self.subscribe(topic, SubscriptionOptions(name=name, durable=False)).close()
        except NotAllowedError as error:
            return not isinstance(error, SubscriptionLimitError)
        return False

    def create_subscription(self, topic: TopicName, options: SubscriptionOptions) -> Consumer:
        """Like ``subscribe``, for a durable subscription that ``has_subscription`` did not find.

        After a broker has closed a non-durable subscription, it removes the subscription's cursor later. A
        durable subscription that is created before the removal gets this cursor, and is lost with it. So
        ``has_subscription`` is called again, and a lost subscription is created again.
        """

        def create() -> None:
            self.subscribe(topic, options).close()
            if not self.has_subscription(topic, options.name):
                what = f"the broker still removes an older subscription named {options.name}"
                raise NotReadyError(what, topic=str(topic))

        retry(create, self.operation())
        return self.subscribe(topic, options)

    # ---- contents of partitions

    def bounds(self, topic: TopicName) -> PartitionBounds:
        """Returns the current bounds of a partition, which is created again if the broker has removed it.

        The compacted topic outlives the log from which it was made. So its bounds begin at
        ``MessageId.EARLIEST``, and may end before the log begins. Until a broker has opened a compacted
        topic, the result is as for an empty topic, so ask again; see :meth:`opening_turns`.
        """
        is_segment = topic.is_segment and not self.read_compacted
        if is_segment and not (stored := self.stored_end(topic)).is_entry:
            # No request: a restarted broker does not find the first position of an empty sealed segment.
            return PartitionBounds(stored, stored)
        bounds = self._bounds(topic, read_compacted=self.read_compacted)
        if is_segment and self.may_have_old_end(topic):
            patience = self.operation().seconds
            return bounds._replace(last=visible_end(self._client, topic, bounds.last, stored, patience))
        if bounds.last.is_entry:
            return bounds
        return bounds._replace(last=self.hidden_end(topic, bounds.last))

    def _bounds(self, topic: TopicName, *, read_compacted: bool = False) -> PartitionBounds:
        options = SubscriptionOptions(
            name=self._client.reader_name("planner"),
            durable=False,
            initial=InitialPosition.EARLIEST,
            create=topic.partition >= 0,
        )
        with self.subscribe(topic, options) as consumer:
            last, begin = consumer.last_message_id()
        if read_compacted:
            begin = MessageId.EARLIEST
            if not last.is_entry:  # the log is empty
                with self._reader("planner", topic, begin, read_compacted=True) as consumer:
                    last = consumer.last_message_id().last
        return PartitionBounds(begin, last.whole_entry if last.is_entry else begin)

    def _reader(
        self,
        role: str,
        topic: TopicName,
        start: MessageId,
        permits: Permits | None = None,
        *,
        read_compacted: bool = False,
    ) -> Consumer:
        options = reader_options(self._client, role, start, read_compacted=read_compacted)
        return Consumer(self._client, topic, options, permits)

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
        """Returns the last visible entry of a segment; see :func:`probe.visible_end`.

        Args:
            reported: last message by GET_LAST_MESSAGE_ID.
            seen: entry that is known to be visible.
        """
        # If the timeout ends the reading early, the next call continues from the result (``seen``).
        stored = self.stored_end(topic)
        return visible_end(self._client, topic, reported, stored, _SILENCE, seen, self.operation().seconds)

    def opening_turns(self) -> Iterator[None]:
        """Yields whenever the caller should ask again whether a compacted topic is empty; waits ever longer.

        Until a broker has opened a compacted topic, it answers as if the topic were empty. Yields nothing if
        compacted topics are not read.
        """
        deadline, pause = Deadline(OPENS_COMPACTED_WITHIN), _FIRST_PAUSE
        while self.read_compacted and not deadline.passed:
            time.sleep(min(pause, deadline.left))
            pause *= 2
            yield

    def stored_end(self, topic: TopicName) -> MessageId:
        """Returns the last entry of a partition, visible or not; see ``stored_end`` of ``entry_range``."""
        return stored_end(self._client, topic)

    def hidden_end(
        self, topic: TopicName, reported: MessageId, seen: MessageId = MessageId.EARLIEST
    ) -> MessageId:
        """Returns the last visible message of a terminated topic for which the broker reports none.

        Returns ``reported``, the broker's answer, for other topics; see ``stored_end`` of ``entry_range``.
        ``seen``: entry that is known to be visible.
        """
        try:
            stored = hidden_end(self._client, topic, reported)
        except SubscriptionLimitError as error:
            _log.warning("%s: whether the topic ended with an empty ledger is not known: %s", topic, error)
            return reported
        return visible_end(self._client, topic, reported, stored, _SILENCE, seen, self.operation().seconds)

    def probe_entry(self, topic: TopicName, position: MessageId) -> EntryInfo:
        """Returns the first visible entry at or after ``position``; there must be one.

        Raises:
            DeadlineError: no entry was received within the operation timeout.
        """
        return self._probe_entry(topic, position, read_compacted=self._is_compacted_after(topic, position))

    def _probe_entry(self, topic: TopicName, position: MessageId, *, read_compacted: bool) -> EntryInfo:
        with self._reader("probe", topic, position, Permits(1), read_compacted=read_compacted) as consumer:
            return receive_infos(consumer, self.operation(), 1)[0]

    def entry_at(self, topic: TopicName, position: MessageId) -> EntryInfo | None:
        """Returns the visible entry at ``position``; None if there is none."""
        position = position.whole_entry
        with self._reader("probe", topic, position, Permits(1)) as consumer:
            reported, before = consumer.last_message_id()
            last = hidden_end(self._client, topic, reported)
            if last.whole_entry < position or before >= position:  # not stored yet, or already deleted
                return None
            found = receive_infos(consumer, self.operation(), 1)[0]
            return found if found.id == position else None

    def first_after(self, topic: TopicName, position: MessageId) -> MessageId | None:
        """Returns the first visible entry after ``position``; None if the broker knows no such entry."""
        with self._reader("probe", topic, position.next_entry, Permits(1)) as consumer:
            last = hidden_end(self._client, topic, consumer.last_message_id().last)
            if last.whole_entry <= position:
                return None
            return receive_infos(consumer, self.operation(), 1)[0].id

    def probe_entries(self, topic: TopicName, after: MessageId) -> EntryProbe:
        """Returns an :class:`EntryProbe`, which reads the entries after a position."""
        compacted = self._is_compacted_after(topic, after)
        return EntryProbe(self._client, topic, after, read_compacted=compacted)

    def _is_compacted_after(self, topic: TopicName, position: MessageId) -> bool:
        """Whether to read the compacted topic, because the log lacks the entries after ``position``."""
        if not self.read_compacted:
            return False
        log = self._bounds(topic)
        return position < log.begin or not log.last.is_entry

    def first_at(
        self, topic: TopicName, time_ms: int, margin_ms: int, first: MessageId, last: MessageId
    ) -> MessageId | None:
        """Returns the first visible entry published at ``time_ms`` or later; None if there is none.

        Probes about 2 log2 n of n entries; reads entries from ``time_ms - margin_ms`` on, up to the result.
        An entry that cannot be decoded is skipped. But if it is the last entry, or follows 99 others that
        cannot be decoded, it counts as published at ``time_ms``.

        Args:
            margin_ms: maximum ms by which a publish time may be lower than that of an earlier message.
            first: start of the search, inclusive; ``MessageId.EARLIEST`` for the topic's beginning.
            last: last visible message, or an earlier message.
        """
        if self.read_compacted:
            # The search ends at the last remaining message: a probe after it would never receive an entry.
            with self._reader("probe", topic, first, read_compacted=True) as consumer:
                kept = self._last_kept(consumer)
            last = min(last, kept)
            if not kept.is_entry or first > last.whole_entry:
                return None

        def timed(entry: EntryInfo) -> EntryInfo:
            return replace(entry, publish_time=time_ms) if entry.corrupt else entry

        def probe(position: MessageId) -> EntryInfo:
            for _ in range(_MAX_CORRUPT):
                found = self._probe_entry(topic, position, read_compacted=self.read_compacted)
                if not found.corrupt or found.id >= last.whole_entry:
                    break
                position = found.id.next_entry
            return timed(found)

        def read(after: MessageId) -> Generator[EntryInfo, None, None]:
            with EntryProbe(self._client, topic, after, read_compacted=self.read_compacted) as entries:
                while found := entries.read(WINDOW_BYTES, WINDOW_BYTES, last):
                    yield from (
                        timed(each) for each in found if not each.corrupt or each.id >= last.whole_entry
                    )

        return time_search.first_at(probe, read, time_ms, margin_ms, first, last)

    def _last_kept(self, consumer: Consumer) -> MessageId:
        last = consumer.last_message_id().last
        for _ in () if last.is_entry else self.opening_turns():
            last = consumer.last_message_id().last
            if last.is_entry:
                break
        return last

    def ledger_end(self, topic: TopicName, position: MessageId, last: MessageId) -> int:
        """Returns the id of the last entry in the ledger of ``position``; -1 for a missing ledger.

        Args:
            last: last visible message, which counts as the end of its ledger.
        """
        if position.ledger >= last.ledger:
            return last.entry
        with self._reader("probe", topic, MessageId(position.ledger, _NO_ENTRY)) as consumer:
            # The broker begins with the next existing entry. The mark-delete position is the entry before it.
            before = consumer.last_message_id().mark_delete
        return before.entry if before.ledger == position.ledger else -1

    def count_entries(self, topic: TopicName, end: MessageId, position: MessageId) -> tuple[MessageId, int]:
        """Returns the last entry before ``position``, and the number of entries after it, up to ``end``.

        At the beginning of a ledger or topic the entry may be ``(ledger, -1)``. Brokers count up to the
        topic's end, which may grow. So the entries from ``end`` on are counted before and after the entries
        from ``position`` on. If both counts are equal, the result is exact. The entry ``end`` must exist,
        because a reader that begins after the topic's last entry may skip new entries.
        """
        return retry(lambda: self._count_entries(topic, end, position), self.operation())

    def _count_entries(self, topic: TopicName, end: MessageId, position: MessageId) -> tuple[MessageId, int]:
        with (
            self._reader("planner", topic, position) as reader,
            self._reader("planner", topic, end) as at_end,
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

    def has_chunks_before(self, topic: TopicName, position: MessageId, entries: int) -> bool:
        """Whether chunked messages lie among the last entries up to a position.

        Args:
            position: id of a visible entry.
            entries: number of probed entries, including the entry at ``position``.
        """
        after = position_back(self._client, topic, position, entries)
        while True:
            with EntryProbe(self._client, topic, after) as probe:
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

    def has_ended(self, topic: TopicName, after: MessageId) -> bool:
        """Waits for the broker's report that no message will follow a position; False without a report."""
        came = threading.Event()
        with Tail(self._client, topic, after, came.set) as tail:
            came.wait(_END_TIMEOUT)
            return tail.topic_end is not None and tail.newest <= after.whole_entry

    def open_tail(self, topic: TopicName, after: MessageId, on_arrival: Callable[[], object]) -> Tail:
        """Opens a :class:`Tail`, which receives new entries after a position."""
        return Tail(self._client, topic, after, on_arrival)
