"""A cluster in memory, as planning sees one: topics with ledgers and cursors, and a clock that is set."""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from pulsar_spark.client import (
    Deadline,
    EntryInfo,
    Ledger,
    PartitionBounds,
    PlanningClient,
    SubscriptionOptions,
    TopicEnd,
    TopicLayout,
)
from pulsar_spark.errors import PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName, TopicPattern
from pulsar_spark.protocol.reading import time_search
from tests.spark.plan.simulated_readers import Cursor, Reader, Tail
from tests.spark.plan.simulated_watches import LayoutChanges, ScalableChanges, TopicChanges


class SimulatedTopic:
    """One partition, or a topic without partitions.

    Attributes:
        entries: what is visible, in order.
        ledgers: the ids of the ledgers that exist.
        cursors: by subscription, its mark-delete position.
        held: subscriptions that a foreign consumer holds.
        compacted: what compaction has kept of ledgers that do not exist any more.
        tails: of readers that are to hear of each entry.
        topic_end: why nothing more will come, for those who have acknowledged everything.
        is_withheld: whether a transaction is open.
        hides_end: whether brokers report no last message although there is one.
    """

    def __init__(self, ledger: int) -> None:
        self.entries: list[EntryInfo] = []
        self.ledgers = [ledger]
        self.cursors: dict[str, MessageId] = {}
        self.held: set[str] = set()
        self.compacted: list[EntryInfo] = []
        self.tails: list[Tail] = []
        self.topic_end: TopicEnd | None = None
        self.is_withheld = self.hides_end = False
        self._markers: list[MessageId] = []
        self._next = 0
        self._newest = MessageId.EARLIEST  # a broker knows it until it loads the topic again

    def produce(
        self, count: int = 1, *, time: int = 0, messages: int = 1, chunks: bool = False
    ) -> list[MessageId]:
        """Write entries; with ``chunks`` they are parts of one message, and the last one completes it."""
        ids = []
        for number in range(count):
            place = MessageId(self.ledgers[-1], self._next)
            is_part = chunks and number < count - 1
            self.entries.append(EntryInfo(place, messages, 100 * messages, time, None, is_part, chunks))
            self._next += 1
            self._newest = place
            ids.append(place)
            self._push()
        return ids

    def _push(self) -> None:
        for tail in list(self.tails):
            tail.arrived()

    def mark_transaction(self) -> MessageId:
        """Write an entry that readers never see."""
        self._markers.append(MessageId(self.ledgers[-1], self._next))
        self._next += 1
        return self._markers[-1]

    def roll_over(self, ledger: int | None = None, *, trims: bool = False) -> None:
        """Begin the next ledger, and perhaps remove all before it."""
        self.ledgers.append(self.ledgers[-1] + 10 if ledger is None else ledger)
        self._next = 0
        if trims:
            self.trim()

    def reload(self) -> None:
        """Have the broker load the topic again: it forgets what is not stored any more."""
        self._newest = MessageId.EARLIEST

    def compact_and_trim(self, *kept: MessageId) -> None:
        """Remove all ledgers, but have these entries for those who read what compaction left."""
        self.compacted = [entry for entry in self.entries if entry.id in kept]
        self.roll_over(trims=True)

    def trim(self) -> None:
        """Remove all ledgers but the last; cursors in them stand before the next ledger then."""
        self.ledgers = self.ledgers[-1:]
        self.entries = [entry for entry in self.entries if entry.id.ledger == self.ledgers[0]]
        self.cursors = {name: max(mark, self.begin) for name, mark in self.cursors.items()}

    @property
    def begin(self) -> MessageId:
        return MessageId(self.ledgers[0], -1)

    @property
    def last(self) -> MessageId:
        return self.entries[-1].id if self.entries else MessageId(self.ledgers[-1], -1)

    @property
    def end(self) -> MessageId:
        """The last entry, visible or not."""
        last = self._newest if self._newest.is_entry and not self.entries else self.last
        return max(last, *self._markers) if self._markers else last

    @property
    def ids(self) -> list[MessageId]:
        return [entry.id for entry in self.entries]

    @property
    def kept(self) -> list[EntryInfo]:
        """All that readers get who read what compaction left."""
        return self.compacted + self.entries

    def between(self, start: MessageId, end: MessageId) -> list[MessageId]:
        """The entries of which something lies in ``(start, end]``."""
        ids = [entry.id for entry in self.kept]
        return ids[bisect_right(ids, start.last_whole_entry) : bisect_right(ids, end.whole_entry)]


# How often it is asked again whether compacted topics are empty.
OPENING_TURNS = 5


class SimulatedCluster(PlanningClient):
    """Topics in memory.

    Attributes:
        topics: the partitions, and the topics without partitions, that exist.
        clock: seconds.
        failing: what a request about a topic raises.
        stalled: topics whose last message is answered when the event is set.
        held: of kinds of requests and topics, what was asked and is not answered: "ack", "backlog" or "last
            message".
        refused: of the same, the error of the next one.
        requests: what was asked or done, such as ("last", topic) or ("ack", topic, position).
        probed: how many entries each read of a probe has returned.
        open_readers: readers, tails and watches that are not closed.
        deleted: what watches have yet to report as deleted.
        read_compacted: whether what compaction left is read.
        unopened: after how many turns a compacted topic that the broker has not opened is opened.
        layouts: of scalable topics.
        registered: the subscriptions of scalable topics.
    """

    def __init__(self, *, read_compacted: bool = False) -> None:
        self.read_compacted = read_compacted
        self.topics: dict[TopicName, SimulatedTopic] = {}
        self.clock = 1000.0
        self.failing: dict[TopicName, Exception] = {}
        self.stalled: dict[TopicName, threading.Event] = {}
        self.held: dict[tuple[str, TopicName], list[Future[Any]]] = {}
        self.refused: dict[tuple[str, TopicName], PulsarError] = {}
        self.requests: list[tuple[Any, ...]] = []
        self.open_readers = 0
        self.probed: list[int] = []
        self.deleted: set[TopicName] = set()
        self.unopened: dict[TopicName, int] = {}
        self.layouts: dict[TopicName, TopicLayout] = {}
        self.registered: dict[TopicName, set[str]] = {}
        self._partitioned: dict[TopicName, int] = {}
        self._changes = 0
        self._lock = threading.Lock()

    # ---- what tests do to it

    def create(self, name: str, partitions: int = 0, *, ledger: int = 10) -> list[SimulatedTopic]:
        """Create a topic, or add partitions to it; returns those that are new."""
        topic = TopicName.parse(name)
        old = self._partitioned.get(topic, 0)
        names = [topic.of_partition(number) for number in range(old, partitions)] or [topic]
        if partitions:
            self._partitioned[topic] = partitions
        for each in names:
            self.topics[each] = SimulatedTopic(ledger)
        self._changes += 1
        return [self.topics[each] for each in names]

    def delete(self, name: str) -> None:
        """Delete a topic with its partitions, or one partition for good."""
        topic = TopicName.parse(name)
        self._partitioned.pop(topic, None)
        for each in [each for each in self.topics if topic in (each, each.base)]:
            gone = self.topics.pop(each)
            self.deleted.add(each)
            for tail in list(gone.tails):
                tail.arrived()
        self._changes += 1

    def count(self, *request: Any) -> int:
        """How many requests there were that begin like this."""
        return sum(each[: len(request)] == request for each in self.requests)

    # ---- what planning asks

    @classmethod
    def shared(cls, options: Any, *, read_compacted: bool = False) -> Any:
        raise AssertionError("tests bring their own cluster")

    @contextmanager
    def impatient(self) -> Any:
        yield self

    def now(self) -> float:
        return self.clock

    def time_ms(self) -> int:
        return int(self.clock * 1000)

    def retries(self) -> int:
        return 0

    def operation(self) -> Deadline:
        return Deadline(30.0)

    def partitions(self, topic: TopicName) -> list[TopicName]:
        self.note("list")
        if topic.is_scalable:
            return list(self.layout(topic).segments)
        count = self._partitioned.get(topic, 0)
        if not count:
            self.topic(topic)
        return [topic.of_partition(number) for number in range(count)] or [topic]

    def layout(self, topic: TopicName) -> TopicLayout:
        self.note("layout", topic)
        if not topic.is_scalable:
            return self.layouts.get(topic, TopicLayout(0, {}, is_scalable=False))
        if topic not in self.layouts:
            raise TopicNotFoundError("it does not exist", topic=str(topic))
        return self.layouts[topic]

    def has_scalable_topics(self) -> bool:
        return bool(self.layouts)

    def watch_layout(self, topic: TopicName) -> Any:
        return LayoutChanges(self, topic)

    def topics_matching(self, pattern: TopicPattern) -> dict[TopicName, frozenset[TopicName]]:
        self.note("list topics")
        if pattern.is_scalable:
            return super().topics_matching(pattern)
        found = [topic for topic in sorted(self.topics) if pattern.matches(topic)]
        return {
            base: frozenset(topic for topic in found if topic.base == base)
            for base in dict.fromkeys(topic.base for topic in found)
        }

    def watch_topics(self, pattern: TopicPattern, *, may_list: bool) -> Any:
        self.note("watch topics", str(pattern), may_list)
        return TopicChanges(self, pattern)

    def watch_scalable_topics(self, pattern: TopicPattern) -> Any:
        return ScalableChanges(self, pattern)

    def admin(self, url: str) -> Any:
        assert url is not None
        return _Ledgers(self)

    def subscribe(self, topic: TopicName, options: SubscriptionOptions) -> Any:
        count = self._partitioned.get(topic.base, 0)
        if options.create and topic not in self.topics and topic.partition < count:
            self.topics[topic] = SimulatedTopic(10)
        return Cursor(self, topic, options)

    def create_subscription(self, topic: TopicName, options: SubscriptionOptions) -> Any:
        return self.subscribe(topic, options)

    def has_subscription(self, topic: TopicName, name: str) -> bool:
        return name in self.topic(topic).cursors

    def opening_turns(self) -> Iterator[None]:
        for _ in range(OPENING_TURNS if self.read_compacted else 0):
            self.unopened = {topic: turns - 1 for topic, turns in self.unopened.items() if turns > 1}
            self.note("turn")
            yield

    def bounds(self, topic: TopicName) -> PartitionBounds:
        self.note("bounds", topic)
        found = self.topic(topic)
        begin = MessageId.EARLIEST if self.read_compacted else found.begin
        entries = [] if topic in self.unopened else self._entries(found)
        return PartitionBounds(begin, entries[-1].id if entries else begin)

    def may_have_old_end(self, topic: TopicName) -> bool:
        return False  # its brokers know

    def visible_end(self, topic: TopicName, reported: MessageId, seen: MessageId) -> MessageId:
        raise AssertionError(f"{topic}: {reported} and {seen} need no look")

    def hidden_end(
        self, topic: TopicName, reported: MessageId, seen: MessageId = MessageId.EARLIEST
    ) -> MessageId:
        found = self.topic(topic)
        return found.last if found.hides_end and found.entries else reported

    def stored_end(self, topic: TopicName) -> MessageId:
        self.note("stored end", topic)
        return self.topic(topic).end

    def has_ended(self, topic: TopicName, after: MessageId) -> bool:
        self.note("has ended", topic)
        found = self.topic(topic)
        return found.topic_end is not None and not found.is_withheld and found.last <= after.whole_entry

    def probe_entry(self, topic: TopicName, position: MessageId) -> EntryInfo:
        self.note("probe", topic)
        return next(each for each in self._entries(self.topic(topic)) if each.id >= position)

    def entry_at(self, topic: TopicName, position: MessageId) -> EntryInfo | None:
        self.note("entry at", topic)
        entries = self._entries(self.topic(topic))
        return next((each for each in entries if each.id == position.whole_entry), None)

    def first_after(self, topic: TopicName, position: MessageId) -> MessageId | None:
        self.note("first after", topic)
        return next((each for each in self.topic(topic).ids if each > position), None)

    def probe_entries(self, topic: TopicName, after: MessageId) -> Any:
        return Reader(self, topic, after)

    def first_at(
        self, topic: TopicName, time_ms: int, margin_ms: int, first: MessageId, last: MessageId
    ) -> MessageId | None:
        entries = self._entries(self.topic(topic))
        ids = [each.id for each in entries]

        def read(after: MessageId) -> Generator[Any, None, None]:
            yield from entries[bisect_right(ids, after) : bisect_right(ids, last)]

        def probe(position: MessageId) -> Any:
            return entries[bisect_left(ids, position)]

        return time_search.first_at(probe, read, time_ms, margin_ms, first, last)

    def ledger_end(self, topic: TopicName, position: MessageId, last: MessageId) -> int:
        self.note("ledger", topic)
        own = [each.entry for each in self.topic(topic).ids if each.ledger == position.ledger]
        return max(own, default=-1)

    def count_entries(self, topic: TopicName, end: MessageId, position: MessageId) -> tuple[MessageId, int]:
        self.note("count", topic)
        found = self.topic(topic)
        before = [each for each in found.ids if each < position]
        return before[-1] if before else found.begin, sum(position <= each <= end for each in found.ids)

    def has_chunks_before(self, topic: TopicName, position: MessageId, entries: int) -> bool:
        self.note("chunks", topic)
        found = self.topic(topic)
        end = bisect_right(found.ids, position)
        return any(each.chunked for each in found.entries[max(0, end - entries) : end])

    def open_tail(self, topic: TopicName, after: MessageId, on_arrival: Callable[[], object]) -> Any:
        self.note("tail", topic)
        return Tail(self, topic, after, on_arrival)

    # ---- for the parts of it

    def _entries(self, topic: SimulatedTopic) -> list[EntryInfo]:
        return topic.kept if self.read_compacted else topic.entries

    def note(self, *request: Any) -> None:
        with self._lock:
            self.requests.append(request)

    def topic(self, name: TopicName) -> SimulatedTopic:
        if name in self.failing:
            raise self.failing[name]
        if name not in self.topics:
            raise TopicNotFoundError("it does not exist", topic=str(name))
        return self.topics[name]

    @property
    def changes(self) -> int:
        return self._changes


class _Ledgers:
    """An Admin."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def ledgers(self, topic: TopicName) -> list[Ledger]:
        self._cluster.note("admin", topic)
        found = self._cluster.topic(topic)
        counts = {each: sum(entry.id.ledger == each for entry in found.entries) for each in found.ledgers}
        return [Ledger(each, count, 100 * count) for each, count in counts.items()]

    def scalable_topics(self, tenant: str, namespace: str) -> list[TopicName]:
        if (failure := self._cluster.failing.get(TopicName("topic", tenant, namespace, ""))) is not None:
            raise failure
        return [name for name in self._cluster.layouts if name[1:3] == (tenant, namespace)]

    def hold_scalable(self, topic: TopicName, name: str) -> None:
        self._cluster.registered.setdefault(topic, set()).add(name)
        for segment in self._cluster.layout(topic).segments.values():
            found = self._cluster.topics[segment.topic]
            if not segment.is_sealed:
                found.cursors.setdefault(name, found.begin)

    def scalable_subscriptions(self, topic: TopicName) -> dict[str, str]:
        segments = self._cluster.layout(topic).segments
        stored = [self._cluster.topics[each] for each in segments if each in self._cluster.topics]
        cursors = {name for each in stored for name in each.cursors}
        registered = self._cluster.registered.get(topic, ())
        return dict.fromkeys(cursors, "QUEUE") | dict.fromkeys(registered, "STREAM")

    def release_scalable(self, topic: TopicName, name: str) -> None:
        self._cluster.registered[topic].discard(name)
        for segment in self._cluster.layout(topic).segments:
            self._cluster.topics[segment].cursors.pop(name, None)
