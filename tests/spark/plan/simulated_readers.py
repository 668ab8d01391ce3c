"""What reads a simulated cluster: cursors of subscriptions, probes, and tails of topics."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_spark.client import EntryInfo, InitialPosition, LastMessageId, SubscriptionOptions, TopicEnd
from pulsar_spark.errors import BusyError, NotReadyError, PulsarError
from pulsar_spark.ids import MessageId, TopicName

if TYPE_CHECKING:
    from tests.spark.plan.simulated_cluster import SimulatedCluster, SimulatedTopic

T = TypeVar("T")


class Cursor:
    """A consumer of a durable subscription."""

    def __init__(self, cluster: SimulatedCluster, topic: TopicName, options: SubscriptionOptions) -> None:
        self._cluster, self._topic, self._options = cluster, topic, options
        self._has_acked = False
        assert options.durable
        found = cluster.topic(topic)
        if options.name in found.held:
            raise BusyError("another consumer has it", topic=str(topic))
        self._opened(options.initial)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self, initial: InitialPosition) -> SimulatedTopic:
        """Subscribe (again): one that somebody removed is made again, at the end."""
        found = self._cluster.topic(self._topic)
        begins_early = initial is InitialPosition.EARLIEST
        if begins_early and self._topic.is_segment and found.topic_end and not found.end.is_entry:
            # As a broker that was restarted: it does not find where such a segment begins.
            raise NotReadyError("without a reason", topic=str(self._topic))
        found.cursors.setdefault(self._options.name, found.begin if begins_early else found.end)
        return found

    def last_message_id(self, deadline: Any = None) -> LastMessageId:
        self._cluster.note("last", self._topic)
        if self._topic in self._cluster.stalled:
            self._cluster.stalled[self._topic].wait(60)
        found = self._opened(InitialPosition.LATEST)
        is_reported = not found.hides_end and (found.entries or not found.compacted)
        last = found.last if is_reported else MessageId.EARLIEST
        return LastMessageId(last, found.cursors[self._options.name])

    def begin_last_message_id(self) -> Future[LastMessageId] | None:
        if self._topic in self._cluster.stalled or self._topic in self._cluster.failing:
            return None
        return self._begin("last message", self.last_message_id)

    @property
    def topic_end(self) -> TopicEnd | None:
        found = self._cluster.topics.get(self._topic)
        is_told = found is not None and self._has_acked and found.cursors[self._options.name] >= found.last
        return found.topic_end if found is not None and is_told else None

    def begin_ack_cumulative(self, message_id: MessageId) -> Future[MessageId] | None:
        if self._topic in self._cluster.failing or self._topic not in self._cluster.topics:
            return None
        return self._begin("ack", lambda: self.ack_cumulative(message_id))

    def begin_backlog(self) -> Future[int] | None:
        return self._begin("backlog", self.backlog)

    def _begin(self, kind: str, answer: Callable[[], T]) -> Future[T]:
        """A request; one that the cluster does not answer ends as the test wants."""
        held = self._cluster.held.get((kind, self._topic))
        if held is not None:
            self._cluster.note(f"held {kind}", self._topic)
            held.append(Future())
            return held[-1]
        found: Future[T] = Future()
        refused = self._cluster.refused.pop((kind, self._topic), None)
        try:
            if refused is not None:
                raise refused
            found.set_result(answer())
        except PulsarError as error:
            found.set_exception(error)
        return found

    def ack_cumulative(self, message_id: MessageId) -> MessageId:
        found = self._opened(InitialPosition.LATEST)
        self._cluster.note("ack", self._topic, message_id)
        self._has_acked = True
        found.cursors[self._options.name] = max(found.cursors[self._options.name], message_id)
        return message_id

    def lose(self, why: PulsarError) -> None:
        self._cluster.note("lose", self._topic)

    def backlog(self) -> int:
        self._cluster.note("backlog", self._topic)
        found = self._opened(InitialPosition.LATEST)
        return len(found.between(found.cursors[self._options.name], found.last))

    def seek(self, target: MessageId) -> None:
        found = self._opened(InitialPosition.LATEST)
        self._cluster.note("seek", self._topic, target)
        found.cursors[self._options.name] = max(found.begin, target.back(1))

    def unsubscribe(self, deadline: Any = None) -> None:
        self._cluster.topic(self._topic).cursors.pop(self._options.name, None)

    def begin_close(self) -> None:
        """The cursor stays."""

    close = begin_close


class Reader:
    """An EntryProbe."""

    def __init__(self, cluster: SimulatedCluster, topic: TopicName, after: MessageId) -> None:
        cluster.topic(topic)
        cluster.note("probe entries", topic)
        cluster.open_readers += 1
        self._cluster, self._topic, self._position = cluster, topic, after

    def read(self, messages: int, size: int, end: MessageId) -> list[EntryInfo]:
        taken: list[EntryInfo] = []
        for entry in self._cluster._entries(self._cluster.topic(self._topic)):
            if self._position < entry.id <= end and messages > 0 and size > 0:
                taken.append(entry)
                messages -= 0 if entry.chunk else entry.messages
                size -= entry.size
        self._position = taken[-1].id if taken else self._position
        self._cluster.probed.append(len(taken))
        return taken

    def close(self) -> None:
        self._cluster.open_readers -= 1


class Tail:
    """A Tail. What it has is pushed at once, whoever asks: it sees nothing before it is followed or taken."""

    def __init__(
        self, cluster: SimulatedCluster, topic: TopicName, after: MessageId, on_arrival: Callable[[], object]
    ) -> None:
        self._found = cluster.topic(topic)
        cluster.open_readers += 1
        self._cluster, self._topic, self._on_arrival = cluster, topic, on_arrival
        self.after = self.reached = after
        self.last: EntryInfo | None = None
        self.has_chunks = self.was_waiting = False
        self.has_permits = self._is_armed = True
        self._came = after
        self._found.tails.append(self)
        self.arrived()

    def arrived(self) -> None:
        """The topic has another entry, or is gone."""
        new = self._new()
        if self.is_lost or (self._is_armed and new):
            if new:
                self._came = new[0].id
            self._is_armed = False
            self._on_arrival()

    def _new(self) -> list[EntryInfo]:
        return [each for each in self._found.entries if each.id > self.reached]

    @property
    def is_lost(self) -> bool:
        return self._cluster.topics.get(self._topic) is not self._found

    def has_passed(self, end: MessageId) -> bool:
        return self.is_lost or self.newest > end

    @property
    def topic_end(self) -> TopicEnd | None:
        return self._found.topic_end if self.reached >= self._found.last else None

    @property
    def newest(self) -> MessageId:
        return max(self.reached, self._came)

    def follow(self, end: MessageId) -> bool:
        new = [each for each in self._new() if each.id <= max(end, self._came)]
        if self.is_lost or len(new) > 16 or sum(each.size for each in new) > 64 << 10:
            return False
        self._cluster.note("follow", self._topic)
        self.was_waiting = self.has_permits and self._is_armed and self.reached >= end
        if new:
            self.reached, self.last = new[-1].id, new[-1]
            self.has_chunks = self.has_chunks or any(each.chunked for each in new)
        self._is_armed = True
        self.arrived()
        return True

    def close(self) -> None:
        self._found.tails.remove(self)
        self._cluster.open_readers -= 1
