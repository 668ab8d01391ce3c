"""OldestMessages: when the first unprocessed message of each topic partition was published.

At each trigger, by what is known of that message:

    known                                                          its time
    it was probed at this position                                 PROBED, exact
    all messages known at an earlier trigger are processed now     TRIGGER, not before that trigger
    a message before it was the first unprocessed one              MESSAGE, not before that message
    nothing                                                        UNKNOWN

A time that may be more than a second too early is replaced by a probe, a few at each trigger: first where it
is unknown, then the earliest. Times of triggers are probed only if few partitions have them: of many
partitions, some got a message soon after the trigger. So a query that keeps up probes little or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import PendingCalls, PlanningClient
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.monitoring.entry_samples import first_entries

# Milliseconds that a time may be too early; probes at each trigger, and seconds to wait for them.
_TOLERANCE_MS = 1000
_MAX_PROBES = 8
_PATIENCE = 0.5


class Waiting(NamedTuple):
    """A partition at a trigger.

    Attributes:
        position: position up to which it is processed.
        last: its last message; ``MessageId.EARLIEST`` if there is none.
    """

    position: MessageId
    last: MessageId

    @property
    def has_backlog(self) -> bool:
        """Whether messages are unprocessed."""
        return self.position < self.last


class _Since(Enum):
    """Kind of a time; see the table at the top."""

    PROBED = auto()
    TRIGGER = auto()
    MESSAGE = auto()
    UNKNOWN = auto()


class _Probe(NamedTuple):
    """The message after ``position`` was published at ``time_ms``; None: that could not be found out."""

    position: MessageId
    time_ms: int | None


@dataclass(slots=True)
class _Known:
    """A partition at the last trigger that had it.

    Attributes:
        seen: the partition.
        time_ms: the earliest time at which its first unprocessed message may have been published, in ms since
            1970; 0 if it is unknown.
        since: kind of that time.
    """

    seen: Waiting
    time_ms: int = 0
    since: _Since = _Since.UNKNOWN

    def after(self, seen: Waiting, before_ms: int) -> _Known:
        """Returns the knowledge at a later trigger; the trigger before it was at ``before_ms``."""
        if seen.position == self.seen.position and self.seen.has_backlog:
            return _Known(seen, self.time_ms, self.since)
        if seen.position >= self.seen.last:
            return _Known(seen, before_ms, _Since.TRIGGER)
        return _Known(seen, self.time_ms, _Since.MESSAGE if self.time_ms else _Since.UNKNOWN)


class OldestMessages:
    """Knows how old the unprocessed messages of one query are.

    Args:
        client: client of the cluster.
    """

    def __init__(self, client: PlanningClient) -> None:
        self._client = client
        self._calls: PendingCalls[TopicName] = PendingCalls()
        self._pauses = self._calls.pauses
        self._known: dict[TopicName, _Known] = {}
        self._triggered_ms = 0

    def refresh(self, partitions: Mapping[TopicName, Waiting], now_ms: int) -> None:
        """Take the partitions of a trigger, and probe some whose times are not known well; never raises.

        Args:
            partitions: partitions of the query; unchanged ones may be left out if they
                have no backlog.
            now_ms: the time of the trigger, in ms since 1970.
        """
        known, before_ms, self._triggered_ms = self._known, self._triggered_ms, now_ms
        for topic, seen in partitions.items():
            known[topic] = known[topic].after(seen, before_ms) if topic in known else _Known(seen)
        due = self._due({topic: known[topic] for topic in partitions}, now_ms)
        calls = {topic: partial(self._probe, topic, *known[topic].seen) for topic in due}
        for topic, found in self._calls.run(calls, _PATIENCE).items():
            if isinstance(found, _Probe):
                self._take(topic, found, now_ms)

    def time_ms(self, topic: TopicName) -> int | None:
        """When a partition's first unprocessed message was published, in ms since 1970.

        None if there is none, or if it is unknown. It is exact, at most a second too early, or, of many
        partitions with a backlog, as much too early as the last trigger is ago.
        """
        known = self._known.get(topic)
        return None if known is None or not known.seen.has_backlog else known.time_ms or None

    def forget(self, topics: Iterable[TopicName]) -> None:
        """Forget partitions that are not read any more."""
        for topic in topics:
            self._known.pop(topic, None)

    def _due(self, partitions: Mapping[TopicName, _Known], now_ms: int) -> list[TopicName]:
        """The partitions to probe at this trigger."""
        busy, now = self._calls.busy, self._client.now()
        late = {
            topic: known
            for topic, known in partitions.items()
            if known.seen.has_backlog
            and known.since is not _Since.PROBED
            and now_ms - known.time_ms > _TOLERANCE_MS
            and topic not in busy
            and self._pauses.is_over(topic, now)
        }
        if len(late) > _MAX_PROBES:
            late = {topic: known for topic, known in late.items() if known.since is not _Since.TRIGGER}
        return sorted(late, key=lambda topic: late[topic].time_ms)[:_MAX_PROBES]

    def _take(self, topic: TopicName, found: _Probe, now_ms: int) -> None:
        if found.time_ms is None:
            self._pauses.failed(topic, self._client.now())
            return
        self._pauses.succeeded(topic)
        known = self._known.get(topic)
        if known is None or known.seen.position != found.position:
            return
        # Producers choose the time: it cannot be before what was processed, nor in the future.
        known.time_ms = min(max(found.time_ms, known.time_ms), now_ms)
        known.since = _Since.PROBED

    def _probe(self, topic: TopicName, position: MessageId, last: MessageId) -> _Probe:
        found = first_entries(self._client, topic, position, last, 1, 1)
        first = next((each for each in found if not each.corrupt), None)
        return _Probe(position, None if first is None else first.publish_time)
