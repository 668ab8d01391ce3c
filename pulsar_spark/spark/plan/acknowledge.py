"""Acknowledger: acknowledges processed positions, if necessary after a probe for chunks of messages.

A cumulative acknowledgement would lose a message of which only some chunks are processed. So a probe first
searches the last processed entries for chunks. If it finds any, it requests the last entry's publish time,
by which :class:`Partition` decides when to acknowledge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import PROMPT, Calls, Kind, PlanningClient
from pulsar_spark.errors import DeadlineError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.partition import PROBED_ENTRIES, AckStep, Partition

_log = logging.getLogger(__name__)


class Acknowledger:
    """Acknowledges a query's partitions.

    ``reopen``: function that reconnects partitions' closed consumers; returns the partitions that answered.
    """

    def __init__(
        self,
        client: PlanningClient,
        calls: Calls[Partition],
        reopen: Callable[[Iterable[Partition]], Set[Partition]],
    ) -> None:
        self._client = client
        self._calls = calls
        self._asked, self._acks = calls[Kind.LAST_MESSAGE], calls[Kind.ACK]
        self._reopen = reopen

    def acknowledge_processed(
        self, partitions: Collection[Partition], expire: float, *, is_polled: bool = False
    ) -> bool:
        """Acknowledges processed positions, as far as chunked messages allow.

        Args:
            expire: maximum seconds between the publish times of a message's chunks; 0: no limit.
            is_polled: whether more triggers are expected soon.

        Returns:
            True if no processed position is left to acknowledge later.
        """
        now = self._client.now()
        self._take_acks(self._acks.take())
        waiting = self._waiting(now)
        steps = {
            partition: step
            for partition in partitions
            if partition not in waiting
            and (step := partition.ack_step(now, expire, is_polled=is_polled)) is not AckStep.NOTHING
        }
        probes = (each for each, step in steps.items() if step is AckStep.PROBE)
        probed = probe_chunks(self._client, self._calls, probes)
        if expire == 0:
            _warn_of_chunks(partitions)
        positions = {each: each.settle(expire) for each, step in steps.items() if step is AckStep.ACKNOWLEDGE}
        for each, entry in probed.items():
            # Entries after ``entry`` were not probed. So without chunks the acknowledgement ends there.
            positions[each] = each.settle(expire) if each.has_chunks else entry
        self.acknowledge(positions)
        return not waiting and all(each.ack_step(now, expire) is AckStep.NOTHING for each in steps)

    def acknowledge(self, positions: Mapping[Partition, MessageId]) -> None:
        """Acknowledges each partition up to its position in ``positions``.

        A failure is logged, and a later call repeats the acknowledgement. Meanwhile the broker retains more
        messages than necessary. No message is read twice, because Spark's checkpoint has the position.
        """
        waiting = self._waiting(self._client.now())
        due = {
            each: entry
            for each, position in positions.items()
            if each not in waiting and each.is_unacknowledged(entry := position.last_whole_entry)
        }
        lost = self._send_acks(due)
        if lost:
            opened = self._reopen(lost)
            again = self._send_acks({each: due[each] for each in lost & opened})
            for each in again | (lost - opened):
                self._ack_failed(each, "the broker has closed its consumer")

    def _waiting(self, now: float) -> set[Partition]:
        """Returns the partitions not to acknowledge now, because a request is pending or has just failed."""
        return self._asked.busy | self._acks.busy | self._acks.pauses.resting(now)

    def _send_acks(self, due: Mapping[Partition, MessageId]) -> set[Partition]:
        """Sends acknowledgements; returns the partitions whose consumer must first be opened again."""
        begun = {
            each: request
            for each, entry in due.items()
            if (request := each.consumer.begin_ack_cumulative(entry)) is not None
        }
        for each in begun:
            each.asked = due[each]
        return (due.keys() - begun.keys()) | self._take_acks(self._acks.run({}, PROMPT, begun), due.keys())

    def _take_acks(
        self, answers: Mapping[Partition, MessageId | PulsarError], due: Set[Partition] = frozenset()
    ) -> set[Partition]:
        """Stores acknowledgement results; returns partitions in ``due`` whose consumer must be reopened."""
        lost = set()
        for partition, answer in answers.items():
            if isinstance(answer, MessageId):
                partition.acknowledged = answer
                self._acks.pauses.succeeded(partition)
            elif answer.retriable and partition in due:
                lost.add(partition)
            else:
                if isinstance(answer, DeadlineError) and partition not in self._asked.busy:
                    partition.consumer.lose(answer)
                self._ack_failed(partition, answer)
        return lost

    def _ack_failed(self, partition: Partition, why: object) -> None:
        is_first = self._acks.pauses.failed(partition, self._client.now())
        _log.log(
            logging.WARNING if is_first else logging.DEBUG,
            "an acknowledgement of %s failed and is retried: %s",
            partition.topic,
            why,
        )


def _warn_of_chunks(partitions: Iterable[Partition]) -> None:
    """Logs once for each partition with chunks that it is no longer acknowledged."""
    for each in partitions:
        if each.has_chunks and not each.is_warned_of_chunks:
            each.is_warned_of_chunks = True
            _log.warning(
                "%s has chunked messages: it is not acknowledged any more in this run of the query, "
                "because with expireTimeOfIncompleteChunkedMessage=0 they may complete at any time",
                each.topic,
            )


class _Found(NamedTuple):
    """The result of a probe.

    Attributes:
        published: publish time of ``entry`` in ms since 1970; 0 without chunks; an error if the probe failed.
    """

    entry: MessageId
    began: float
    has_chunks: bool
    published: int | PulsarError = 0


def probe_chunks(
    client: PlanningClient, calls: Calls[Partition], partitions: Iterable[Partition]
) -> dict[Partition, MessageId]:
    """Probes partitions up to their processed positions, and stores the result in each.

    Does not wait for slow partitions.

    Returns:
        The entry up to which each partition has been probed, including late results of earlier calls.
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
    # Limited to now, because a time from a fast clock would expire the chunks of other producers too early.
    return _Found(entry, began, has_chunks, min(published, client.time_ms()))


def _note(client: PlanningClient, partition: Partition, found: _Found) -> bool:
    """Stores the result of a probe; False if the probe must be repeated."""
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
