"""ChunkProbes: whether parts of chunked messages lie before what is processed, and how old that is.

A cumulative acknowledgement past an incomplete chunked message would lose it. So partitions are probed before
they are acknowledged, as :class:`PartitionState` says when.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import PROMPT, PendingCalls, PlanningClient
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.partition import PROBED_ENTRIES, PartitionState

_log = logging.getLogger(__name__)


class _Found(NamedTuple):
    """Whether there are chunks; if so, the publish time of an entry in ms, or why it is not known."""

    has_chunks: bool
    published: int | PulsarError = 0


class _Probe(NamedTuple):
    """Up to where a partition is probed, and since when, in seconds of the client's clock."""

    entry: MessageId
    began: float


class ChunkProbes:
    """Probes partitions, several at a time; one that takes long is not waited for.

    Args:
        client: client of the cluster.
        partitions: state of each partition; what is found is noted there.
    """

    def __init__(self, client: PlanningClient, partitions: Mapping[TopicName, PartitionState]) -> None:
        self._client = client
        self._partitions = partitions
        self._calls: PendingCalls[TopicName] = PendingCalls()
        self._probes: dict[TopicName, _Probe] = {}

    def run(self, topics: Iterable[TopicName]) -> dict[TopicName, MessageId]:
        """Probe partitions up to what is processed; returns up to where, also of earlier calls."""
        # One that ends between the two looks is busy: its result must not count as that of a new one.
        began, busy, done = self._client.now(), self._calls.busy, self._calls.take()
        calls = {}
        for topic in topics:
            state = self._partitions[topic]
            entry = state.processed
            if entry is not None and topic not in busy and topic not in done:
                self._probes[topic] = _Probe(entry, began)
                calls[topic] = partial(self._find, topic, entry, has_chunks=state.has_chunks)
        done |= self._calls.run(calls, PROMPT)
        return {topic: entry for topic, found in done.items() if (entry := self._note(topic, found))}

    def leave(self, topic: TopicName) -> None:
        """Drop what is asked about a partition."""
        self._calls.leave(topic, lambda _: None)

    def _find(self, topic: TopicName, entry: MessageId, *, has_chunks: bool) -> _Found:
        if not has_chunks and not self._client.has_chunks_before(topic, entry, PROBED_ENTRIES):
            return _Found(has_chunks=False)
        try:
            published = self._client.probe_entry(topic, entry).publish_time
        except PulsarError as error:
            return _Found(has_chunks=True, published=error)
        # With the publish time of a fast clock, chunks of other producers would expire too early.
        return _Found(has_chunks=True, published=min(published, self._client.time_ms()))

    def _note(self, topic: TopicName, found: _Found | PulsarError) -> MessageId | None:
        """Note what a probe has found; return up to where it was probed, None if that is not known."""
        state, (entry, began), now = self._partitions[topic], self._probes.pop(topic), self._client.now()
        has_chunks, published = (False, found) if isinstance(found, PulsarError) else found
        if has_chunks:
            state.meet_chunks()
        if isinstance(published, PulsarError) and (published.is_passing or state.has_chunks):
            _log.info(
                "the last messages of %s could not be probed for chunks; this is retried later: %s",
                topic,
                published,
            )
            state.probe_failed(now, now - began)
            return None
        if has_chunks and not isinstance(published, PulsarError):
            state.dated(entry, published, now)
        state.probed(entry, now)
        return entry
