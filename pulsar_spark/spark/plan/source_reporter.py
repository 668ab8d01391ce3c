"""SourceReporter: makes the reports of one source in one run of a query, and probes its backlog for them.

:class:`EntrySampler` estimates messages and bytes of the backlog, because brokers only count its entries. At
most every ten seconds, it probes the first entries of the longest backlog, about 256 KiB, with a non-durable
reader. Until a probe has succeeded, a run waits up to three seconds for each.

:class:`OldestMessages` tracks the publish time of each partition's first unprocessed message:

    known                                                          its time
    a probe at this position has returned it                       PROBED: exact
    all messages known at an earlier trigger are processed now     TRIGGER: the trigger's time, or later
    another message was the first unprocessed one before           MESSAGE: that message's time, or later
    nothing                                                        UNKNOWN

If a time may be more than a second too early, the message is probed, a few at each trigger: unknown times
first, then the earliest. If many partitions have inexact times, TRIGGER times are not probed: some partition
received a message soon after the trigger, so the oldest time of them all is nearly exact. So a query that
keeps up probes little.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import EntryInfo, PendingCalls, PlanningClient
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.monitoring.driver_files import new_planner_id
from pulsar_spark.spark.monitoring.source_report import (
    EntryMeans,
    Json,
    PartitionBacklog,
    SourceReport,
    partition_backlog,
)
from pulsar_spark.spark.plan.broker_probe import messages_in
from pulsar_spark.spark.plan.data_loss import LossReporter
from pulsar_spark.spark.plan.offsets import updated
from pulsar_spark.spark.plan.partition import Partition

_log = logging.getLogger(__name__)

_EVERY = 10.0  # seconds between two probes
_FIRST_PATIENCE = 3.0  # maximum seconds to wait for the first probe
# A probe ends when its entries hold this many messages or bytes.
_MAX_MESSAGES = 10_000
_MAX_BYTES = 256 << 10
# Number of recent probes in the mean, so that the mean follows changes of the producers.
_SAMPLES = 8


class Waiting(NamedTuple):
    """The state of a partition at a trigger.

    Attributes:
        position: position up to which it is processed.
        last: its last message; ``MessageId.EARLIEST`` if there is none.
        entries: number of entries in ``(position, last]``; 1 if the number is unknown.
    """

    position: MessageId
    last: MessageId
    entries: int = 0

    @property
    def has_backlog(self) -> bool:
        """Whether the partition has unprocessed messages."""
        return self.position < self.last


class _Sample(NamedTuple):
    """Numbers of one probe: entries, messages that these entries complete, and bytes of the entries."""

    entries: int
    messages: int
    size: int


class EntrySampler:
    """Estimates the mean messages and bytes of the entries that a query will read."""

    def __init__(self, client: PlanningClient) -> None:
        self._client = client
        self._calls: PendingCalls[TopicName] = PendingCalls()
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)
        self._next_at = 0.0

    @property
    def means(self) -> EntryMeans | None:
        """Returns the means of the entries in recent probes; None before the first probe."""
        entries = sum(each.entries for each in self._samples)
        if entries == 0:
            return None
        messages = sum(each.messages for each in self._samples)
        return EntryMeans(messages / entries, sum(each.size for each in self._samples) / entries)

    def refresh(self, partitions: Mapping[TopicName, Waiting]) -> None:
        """Adds the results of probes, and starts another probe if it is due. Never raises."""
        now = self._client.now()
        calls: dict[TopicName, Callable[[], _Sample]] = {}
        waiting = {topic: each for topic, each in partitions.items() if each.entries > 0}
        if waiting and now >= self._next_at:
            self._next_at = now + _EVERY
            topic = max(waiting, key=lambda each: waiting[each].entries)
            calls = {topic: partial(self._probe, topic, waiting[topic])}
        self._take(self._calls.run({}, 0.0))
        if calls:
            self._take(self._calls.run(calls, 0.0 if self._samples else _FIRST_PATIENCE))

    def _take(self, results: Mapping[TopicName, object]) -> None:
        found = (each for each in results.values() if isinstance(each, _Sample))
        self._samples.extend(each for each in found if each.entries)

    def _probe(self, topic: TopicName, seen: Waiting) -> _Sample:
        found = first_entries(self._client, topic, seen, _MAX_MESSAGES, _MAX_BYTES)
        return _Sample(len(found), sum(map(messages_in, found)), sum(each.size for each in found))


def first_entries(
    client: PlanningClient, topic: TopicName, seen: Waiting, messages: int, size: int
) -> list[EntryInfo]:
    """Probes the first unprocessed entries, until they hold this many messages or bytes.

    Returns no entries if the probe fails, because a missing figure must not end the query.
    """
    try:
        reader = client.probe_entries(topic, seen.position.last_whole_entry)
        try:
            return reader.read(messages, size, seen.last)
        finally:
            reader.close()
    except Exception as error:  # noqa: BLE001 - see above
        _log.debug("the entries of a backlog of %s could not be probed: %s", topic, error)
        return []


_TOLERANCE_MS = 1000  # maximum error of a publish time; if the error may be larger, the message is probed
_MAX_PROBES = 8  # probes at each trigger
_PATIENCE = 0.5  # seconds to wait for these probes


class _KnownBy(Enum):
    """The source of a publish time, as in the table at the top of this module."""

    PROBED = auto()
    TRIGGER = auto()
    MESSAGE = auto()
    UNKNOWN = auto()


class _Probe(NamedTuple):
    """Result of a probe: publish time of the message after ``position``; None: the probe failed."""

    position: MessageId
    time_ms: int | None


@dataclass(slots=True)
class _Known:
    """State and publish time of a partition at its last trigger.

    ``time_ms``: the earliest time at which its first unprocessed message may have been published, in ms since
    1970; 0 if it is unknown.
    """

    seen: Waiting
    time_ms: int = 0
    by: _KnownBy = _KnownBy.UNKNOWN

    def after(self, seen: Waiting, before_ms: int) -> _Known:
        """Returns the state and time at the next trigger, which found ``seen``.

        Args:
            before_ms: time of the last trigger.
        """
        if seen.position == self.seen.position and self.seen.has_backlog:
            return _Known(seen, self.time_ms, self.by)
        if seen.position >= self.seen.last:
            return _Known(seen, before_ms, _KnownBy.TRIGGER)
        return _Known(seen, self.time_ms, _KnownBy.MESSAGE if self.time_ms else _KnownBy.UNKNOWN)


class OldestMessages:
    """Tracks the publish time of each partition's first unprocessed message, for one query."""

    def __init__(self, client: PlanningClient) -> None:
        self._client = client
        self._calls: PendingCalls[TopicName] = PendingCalls()
        self._pauses = self._calls.pauses
        self._known: dict[TopicName, _Known] = {}
        self._triggered_ms = 0

    def refresh(self, partitions: Mapping[TopicName, Waiting], now_ms: int) -> None:
        """Updates the partitions at a trigger; probes some oldest messages of unknown age; never raises.

        ``partitions``: partitions of the query; unchanged ones may be left out if they have no backlog.
        """
        known, before_ms, self._triggered_ms = self._known, self._triggered_ms, now_ms
        for topic, seen in partitions.items():
            known[topic] = known[topic].after(seen, before_ms) if topic in known else _Known(seen)
        due = self._due({topic: known[topic] for topic in partitions}, now_ms)
        calls = {topic: partial(self._probe, topic, known[topic].seen) for topic in due}
        for topic, found in self._calls.run(calls, _PATIENCE).items():
            if isinstance(found, _Probe):
                self._take(topic, found, now_ms)

    def time_ms(self, topic: TopicName) -> int | None:
        """Returns the publish time of a partition's first unprocessed message, in ms since 1970.

        None if there is no such message, or its time is unknown. The time is exact, or at most a second too
        early. If many partitions have a backlog, it may be the time of the last trigger without the message.
        """
        known = self._known.get(topic)
        return None if known is None or not known.seen.has_backlog else known.time_ms or None

    def forget(self, topics: Iterable[TopicName]) -> None:
        """Drops partitions that the query does not read any more."""
        for topic in topics:
            self._known.pop(topic, None)

    def _due(self, partitions: Mapping[TopicName, _Known], now_ms: int) -> list[TopicName]:
        busy, now = self._calls.busy, self._client.now()
        late = {
            topic: known
            for topic, known in partitions.items()
            if known.seen.has_backlog
            and known.by is not _KnownBy.PROBED
            and now_ms - known.time_ms > _TOLERANCE_MS
            and topic not in busy
            and self._pauses.is_over(topic, now)
        }
        if len(late) > _MAX_PROBES:
            late = {topic: known for topic, known in late.items() if known.by is not _KnownBy.TRIGGER}
        return sorted(late, key=lambda topic: late[topic].time_ms)[:_MAX_PROBES]

    def _take(self, topic: TopicName, found: _Probe, now_ms: int) -> None:
        if found.time_ms is None:
            self._pauses.failed(topic, self._client.now())
            return
        self._pauses.succeeded(topic)
        known = self._known.get(topic)
        if known is None or known.seen.position != found.position:
            return
        # Producers choose the time, but a message is not older than processed messages, nor from the future.
        known.time_ms = min(max(found.time_ms, known.time_ms), now_ms)
        known.by = _KnownBy.PROBED

    def _probe(self, topic: TopicName, seen: Waiting) -> _Probe:
        found = first_entries(self._client, topic, seen, 1, 1)
        first = next((each for each in found if not each.corrupt), None)
        return _Probe(seen.position, None if first is None else first.publish_time)


class SourceReporter:
    """Makes the reports of one query run: each partition's end, backlog and oldest unprocessed message."""

    def __init__(self, client: PlanningClient, service_url: str) -> None:
        self._client = client
        self._service_url = service_url
        self._samples = EntrySampler(client)
        self._oldest = OldestMessages(client)
        self._planner = new_planner_id()
        self._topics: dict[str, dict[str, Json]] = {}
        self._shown: set[TopicName] = set()
        self._start_ms = self._triggered_ms = client.time_ms()

    def begin_trigger(self) -> None:
        """Begins a trigger; later reports have its time."""
        self._triggered_ms = self._client.time_ms()

    def probe(self, partitions: Mapping[TopicName, Partition]) -> None:
        """Probes some entries of the backlog; waits up to 0.5 s, but 3.5 s until a run's first success."""
        waiting = {}
        for topic, state in partitions.items():
            if state.position is not None:
                entries = 1 if state.backlog is None else state.backlog
                waiting[topic] = Waiting(state.position.last_whole_entry, state.last, entries)
        self._samples.refresh(waiting)
        self._oldest.refresh(waiting, self._triggered_ms)

    def report(
        self,
        subscription: str,
        partitions: Mapping[TopicName, Partition],
        changed: Mapping[TopicName, Partition],
        losses: LossReporter,
    ) -> Json:
        """Returns the report of the last trigger, see :mod:`source_report`.

        ``changed``: partitions that differ from the last report, have a backlog, or have a planned
        micro-batch.
        """
        means = self._samples.means
        backlogs = {
            topic: partition_backlog(
                topic,
                position=state.planned if state.position is None else state.position,
                planned=state.planned,
                last=state.last,
                entries=state.backlog,
                means=means,
                oldest_ms=self._oldest.time_ms(topic),
            )._replace(possible_loss=str(losses.possible.get(topic, "")))
            for topic, state in changed.items()
            if state.planned is not None and topic in partitions
        }
        backlogs |= {
            topic: PartitionBacklog(
                str(topic.base), str(topic.partition), str(lost.start), 0, 0, 0, None, str(lost)
            )
            for topic, lost in losses.possible.items()
            if topic not in partitions
        }
        self._show(backlogs, self._shown - partitions.keys() - losses.possible.keys())
        entries = sum(each.batch_entries for each in backlogs.values())
        report = SourceReport(
            planner=self._planner,
            subscription=subscription,
            start_time_ms=self._start_ms,
            time_ms=self._triggered_ms,
            partitions=tuple(backlogs.values()),
            batch_bytes=None if means is None else round(entries * means.size),
            data_losses=losses.count,
            retries=self._client.retries(),
            ended_partitions=sum(state.topic_end is not None for state in partitions.values()),
            service_url=self._service_url,
        ).to_json(self._topics)
        return report | ({"deletedTopics": list(map(str, losses.deleted))} if losses.deleted else {})

    def _show(self, backlogs: Mapping[TopicName, PartitionBacklog], gone: Collection[TopicName]) -> None:
        shown = {(each.topic, each.partition): each.to_json() for each in backlogs.values()}
        hidden = [(str(topic.base), str(topic.partition)) for topic in gone]
        self._topics = updated(self._topics, shown, hidden)
        self._shown.update(backlogs)
        self._shown.difference_update(gone)
        self._oldest.forget(gone)

    def renewed(self, report: Json) -> Json:
        """Returns ``report`` with the time of the last trigger and the present number of retries."""
        return report | {"timeMs": self._triggered_ms, "retries": self._client.retries()}
