"""EntrySampler: estimates how many messages and bytes an entry of a backlog holds, by a few probes.

Brokers count entries, and an entry is a batch of any size. At most every ten seconds, the first entries of
the longest backlog are probed with one non-durable reader, about 256 KiB. A query waits only for the first
probe of its run, and for at most three seconds.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from pulsar_spark.client import EntryInfo, PendingCalls, PlanningClient
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.monitoring.source_report import EntryMeans

_log = logging.getLogger(__name__)

# Seconds between two probes, and maximum seconds to wait for the first one.
_EVERY = 10.0
_PATIENCE = 3.0
# A probe ends when its entries hold this many messages or bytes.
_MAX_MESSAGES = 10_000
_MAX_BYTES = 256 << 10
# The number of last probes in the mean, which so follows changes of producers.
_SAMPLES = 8


class _Sample:
    """The entries of one probe, the messages that they complete, and their bytes."""

    def __init__(self, entries: int, messages: int, size: int) -> None:
        self.entries, self.messages, self.size = entries, messages, size


class EntrySampler:
    """Estimates the mean messages and bytes of the entries that a query will read.

    Args:
        client: client of the cluster.
    """

    def __init__(self, client: PlanningClient) -> None:
        self._client = client
        self._calls: PendingCalls[TopicName] = PendingCalls()
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)
        self._next_at = 0.0

    @property
    def means(self) -> EntryMeans | None:
        """The means of the entries in recent probes; None before the first."""
        entries = sum(each.entries for each in self._samples)
        if entries == 0:
            return None
        messages = sum(each.messages for each in self._samples)
        return EntryMeans(messages / entries, sum(each.size for each in self._samples) / entries)

    def refresh(self, backlogs: Mapping[TopicName, tuple[MessageId, MessageId, int]]) -> None:
        """Take the results of probes, and start another probe if it is due. It never raises.

        Args:
            backlogs: for each partition, the position up to which it is processed, its last message, and the
                number of entries in between.
        """
        now = self._client.now()
        calls: dict[TopicName, Callable[[], _Sample]] = {}
        waiting = {topic: each for topic, each in backlogs.items() if each[2] > 0}
        if waiting and now >= self._next_at:
            self._next_at = now + _EVERY
            topic = max(waiting, key=lambda each: waiting[each][2])
            calls = {topic: partial(self._probe, topic, *waiting[topic][:2])}
        self._take(self._calls.run({}, 0.0))
        if calls:
            self._take(self._calls.run(calls, 0.0 if self._samples else _PATIENCE))

    def _take(self, results: Mapping[TopicName, object]) -> None:
        found = (each for each in results.values() if isinstance(each, _Sample))
        self._samples.extend(each for each in found if each.entries)

    def _probe(self, topic: TopicName, position: MessageId, last: MessageId) -> _Sample:
        found = first_entries(self._client, topic, position, last, _MAX_MESSAGES, _MAX_BYTES)
        messages = sum(0 if each.chunk else each.messages for each in found)
        return _Sample(len(found), messages, sum(each.size for each in found))


def first_entries(
    client: PlanningClient, topic: TopicName, position: MessageId, last: MessageId, messages: int, size: int
) -> list[EntryInfo]:
    """Probe the first entries in ``(position, last]``, until they hold this many messages or bytes.

    Empty if that fails: a figure that is missing must not end the query.
    """
    try:
        reader = client.probe_entries(topic, position.last_whole_entry)
        try:
            return reader.read(messages, size, last)
        finally:
            reader.close()
    except Exception as error:  # noqa: BLE001 - see above
        _log.debug("the entries of a backlog of %s could not be probed: %s", topic, error)
        return []
