"""Witnesses: chooses the witness of a query's offsets, and compares it with the cluster at a restart.

Entries that the planner has at hand become witnesses: those of tails, and those that admission control has
probed. They cost no request. A run without a witness probes one entry, once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from contextlib import closing
from datetime import datetime, timezone
from functools import partial

from pulsar_spark.client import (
    PROMPT,
    Calls,
    EntryInfo,
    Kind,
    LastMessageId,
    PlanningClient,
    Witness,
    WitnessVerdict,
)
from pulsar_spark.errors import OtherClusterError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.partition import Partition

# Maximum probes of a run for its first witness.
_MAX_PROBES = 3
# Maximum entries after the witness's publish time that are searched for its copy, and bytes at a time.
_MAX_SEARCHED = 10_000
_SEARCHED_BYTES = 1 << 20


class Witnesses:
    """The witness of one run of a query.

    Args:
        client: client of the cluster.
        calls: pending requests of the query.
        options: options of the source.
    """

    def __init__(self, client: PlanningClient, calls: Calls[Partition], options: SourceOptions) -> None:
        self._client = client
        self._pending = calls[Kind.WITNESS]
        self._options = options
        self._probes_left = _MAX_PROBES
        self._is_gone = False  # the checkpoint's witness is deleted: the next one replaces it

    def renewed(self, old: Witness | None, ends: Mapping[Partition, MessageId]) -> Witness | None:
        """The witness of the next offsets: an entry at hand that they cover, or the old one.

        Args:
            old: witness of the offsets before.
            ends: planned end of each partition that has news.
        """
        old = None if self._is_gone else old
        for partition, end in ends.items():
            entry = _at_hand(partition, end)
            # A copy may have the same id, time and source in two clusters that got it from a third one.
            if entry is not None and (entry.source is None or old is None or old.source is not None):
                self._is_gone = False
                return Witness.of(partition.topic, entry)
        return old or self._probed(ends)

    def _probed(self, ends: Mapping[Partition, MessageId]) -> Witness | None:
        """The first witness of a run, by one request; a broker that takes long is not waited for."""
        news = {each: end for each, end in ends.items() if each.position != end and end.is_message}
        calls = {}
        if news and self._probes_left and not self._pending.busy:
            self._probes_left -= 1
            partition, end = next(iter(news.items()))
            calls[partition] = partial(self._client.entry_at, partition.topic, end)
        for each, found in self._pending.run(calls, PROMPT).items():
            if isinstance(found, EntryInfo) and not found.corrupt and not each.is_closed:
                self._is_gone = False
                return Witness.of(each.topic, found)
        return None

    def check(self, witness: Witness | None, partitions: Container[TopicName]) -> None:
        """Compare the checkpoint's witness with the cluster; costs one probe.

        Args:
            witness: the checkpoint's witness.
            partitions: existing partitions that are read now; a witness of another one says nothing.

        Raises:
            OtherClusterError: another entry is stored there.
            BrokerError: the broker did not answer.
        """
        self._is_gone = witness is not None
        if witness is None or witness.topic not in partitions:
            return
        try:
            found = self._client.entry_at(witness.topic, witness.id)
            if found is not None and found.corrupt:
                return
            verdict = witness.judge(found)
            self._is_gone = verdict is WitnessVerdict.GONE
            is_other = verdict is WitnessVerdict.OTHER or (self._is_gone and self._is_elsewhere(witness))
        except TopicNotFoundError:
            return
        except PulsarError as error:
            raise error.located(str(witness.topic)) from error
        if is_other:
            raise self._error(witness)

    def _is_elsewhere(self, witness: Witness) -> bool:
        """Whether the topic has the witness as another cluster has it: as a copy, or as the original."""
        if witness.source is not None:
            place = witness.source.position
            found = None if place is None else self._client.entry_at(witness.topic, place)
            return found is not None and found.source is None and found.publish_time == witness.publish_time
        topic, time_ms = witness.topic, witness.publish_time
        margin_ms = round(1000 * self._options.publish_time_margin)
        begin, last = self._client.bounds(topic)
        if begin >= last:
            return False
        first = self._client.first_at(topic, time_ms, margin_ms, begin.next_entry, last)
        if first is None:
            return False
        left = _MAX_SEARCHED
        with closing(self._client.probe_entries(topic, first.previous)) as probe:
            while left > 0 and (entries := probe.read(left, _SEARCHED_BYTES, last)):
                if any(witness.is_copied_to(each) for each in entries):
                    return True
                if entries[-1].publish_time > time_ms + margin_ms:
                    return False
                left -= len(entries)
        return False

    def why_unsure(
        self,
        witness: Witness | None,
        missing: Container[TopicName],
        answers: Mapping[TopicName, LastMessageId],
    ) -> str:
        """Why the cluster may be another one although nothing contradicts; empty if it is the same one.

        Args:
            witness: the checkpoint's witness, which was checked.
            missing: partitions on which the broker did not have the subscription.
            answers: the broker's answers when it was opened.
        """
        if not self._is_gone or witness is None or witness.topic not in answers:
            return ""
        if witness.topic not in missing and answers[witness.topic].mark_delete >= witness.id:
            return ""
        return (
            f"the broker has neither {witness.id} of {witness.topic}, which this query has read, nor a "
            "subscription that stands after it: it may be another cluster, whose message ids say nothing"
        )

    def _error(self, witness: Witness) -> OtherClusterError:
        margin_ms = round(1000 * self._options.publish_time_margin)
        start = datetime.fromtimestamp((witness.publish_time - margin_ms) / 1000, timezone.utc)
        return OtherClusterError(
            "the checkpoint is of another cluster: this one has another message there",
            topic=str(witness.topic),
            message_id=str(witness.id),
            advice="Continue on the cluster that the checkpoint is of. Or start the query here with a new "
            f"checkpointLocation and startingTime={start.isoformat(timespec='milliseconds')}: it reads some "
            "messages again, and none is left out if replication lagged less than publishTimeMargin. See "
            "docs/clusters.md",
        )


def _at_hand(partition: Partition, end: MessageId) -> EntryInfo | None:
    """The last known entry up to ``end``; None if none is known."""
    entries: list[EntryInfo] = [] if partition.known is None else partition.known.entries
    tail = partition.tail
    found = _last(entries, end)
    if tail is not None and tail.last is not None and tail.last.id <= end and not tail.last.corrupt:
        return tail.last if found is None or found.id < tail.last.id else found
    return found


def _last(entries: Iterable[EntryInfo], end: MessageId) -> EntryInfo | None:
    up_to = [each for each in entries if each.id <= end and not each.corrupt]
    return up_to[-1] if up_to else None
