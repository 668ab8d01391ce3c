"""Chunk probes: whether parts of chunked messages lie before what is processed, and how old that is.

A cumulative acknowledgement past an incomplete chunked message would lose it. So partitions are probed before
they are acknowledged, as :class:`Partition` says when.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import PROMPT, Calls, Kind, PlanningClient
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.partition import PROBED_ENTRIES, Partition

_log = logging.getLogger(__name__)


class _Found(NamedTuple):
    """The result of a probe.

    Attributes:
        entry: the last entry that was probed.
        began: when the probe began, in seconds of the client's clock.
        has_chunks: whether there are chunks.
        published: publish time of an entry in ms if there are chunks; the error if something is not known.
    """

    entry: MessageId
    began: float
    has_chunks: bool
    published: int | PulsarError = 0


def probe_chunks(
    client: PlanningClient, calls: Calls[Partition], partitions: Iterable[Partition]
) -> dict[Partition, MessageId]:
    """Probe partitions up to what is processed, and note in each what is found.

    A partition that takes long is not waited for.

    Returns:
        The entry up to which each partition was probed, also by earlier calls.
    """
    now = client.now()
    found = calls[Kind.CHUNKS].run(
        {
            each: partial(_find, client, each.topic, entry, now, has_chunks=each.has_chunks)
            for each in partitions
            if (entry := each.processed) is not None
        },
        PROMPT,
    )
    return {
        each: it.entry for each, it in found.items() if isinstance(it, _Found) and _note(client, each, it)
    }


def _find(
    client: PlanningClient, topic: TopicName, entry: MessageId, began: float, *, has_chunks: bool
) -> _Found:
    try:
        has_chunks = has_chunks or client.has_chunks_before(topic, entry, PROBED_ENTRIES)
        if not has_chunks:
            return _Found(entry, began, has_chunks)
        published = client.probe_entry(topic, entry).publish_time
    except PulsarError as error:
        return _Found(entry, began, has_chunks, error)
    # With the publish time of a fast clock, chunks of other producers would expire too early.
    return _Found(entry, began, has_chunks, min(published, client.time_ms()))


def _note(client: PlanningClient, partition: Partition, found: _Found) -> bool:
    """Note what a probe has found; False if it must be repeated."""
    now, published = client.now(), found.published
    if found.has_chunks:
        partition.meet_chunks()
    if isinstance(published, PulsarError) and (published.is_passing or partition.has_chunks):
        _log.info(
            "the last messages of %s could not be probed for chunks; this is retried later: %s",
            partition.topic,
            published,
        )
        partition.probe_failed(now, now - found.began)
        return False
    if found.has_chunks and not isinstance(published, PulsarError):
        partition.dated(found.entry, published, now)
    partition.probed(found.entry, now)
    return True
