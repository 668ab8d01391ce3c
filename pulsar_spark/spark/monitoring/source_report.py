"""SourceReport: a source's report to Spark at each trigger, shown as ``sources[i].latestOffset``. Pure.

    {"planner": "4711-5f2a", "subscription": "spark-pulsar-...", "startTimeMs": 1763801000000,
     "timeMs": 1763802000000, "serviceUrl": "pulsar://localhost:6650",
     "topics": {"persistent://public/default/t": {
         "0": {"end": "12:99", "backlogEntries": 10, "batchEntries": 10, "backlogMessagesEstimate": 1000,
               "oldestTimeMs": 1763801999000, "possibleLoss": "(9:3, 12:-1]"}}},
     "backlogEntries": 10, "batchEntries": 10, "backlogMessagesEstimate": 1000, "batchBytesEstimate": 92000,
     "dataLosses": 0, "retries": 0, "endedPartitions": 0}

A backlog is every entry that the query had not processed when the trigger ran, up to the end of the topic.
Its first ``batchEntries`` are the micro-batch that the trigger begins. Unknown estimates are left out.
Partitions that were deleted while the query ran, without a loss, are listed as ``deletedTopics``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pulsar_spark.ids import MessageId, TopicName

Json = dict[str, Any]


class PartitionBacklog(NamedTuple):
    """The backlog of one topic partition.

    Attributes:
        partition: partition number as text, ``-1`` for a topic without partitions.
        end: id of the last message, or the query's position if that is later.
        entries: number of broker entries that were not processed when the trigger ran.
        batch_entries: number of unprocessed entries that the micro-batch reads.
        messages: estimate of the messages in ``entries``; None if unknown.
        oldest_ms: publish time of the first message in ``entries``, in ms since 1970; None if unknown.
        possible_loss: range of messages that may have been deleted before the query read them; empty for
            none.
    """

    topic: str
    partition: str
    end: str
    entries: int
    batch_entries: int
    messages: int | None
    oldest_ms: int | None = None
    possible_loss: str = ""

    def to_json(self) -> Json:
        """Returns the partition's part of the report."""
        shown: Json = {"end": self.end, "backlogEntries": self.entries, "batchEntries": self.batch_entries}
        if self.messages is not None:
            shown["backlogMessagesEstimate"] = self.messages
        if self.oldest_ms is not None:
            shown["oldestTimeMs"] = self.oldest_ms
        if self.possible_loss:
            shown["possibleLoss"] = self.possible_loss
        return shown


class EntryMeans(NamedTuple):
    """Mean number of messages in an entry, and mean bytes of an entry."""

    messages: float
    size: float


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The report of one source in one run of a query.

    ``batch_bytes``: estimate of the stored bytes that the micro-batch reads; None if unknown.
    """

    planner: str
    subscription: str
    start_time_ms: int
    time_ms: int
    partitions: tuple[PartitionBacklog, ...]
    batch_bytes: int | None
    data_losses: int
    retries: int
    ended_partitions: int = 0
    service_url: str = ""

    def to_json(self, topics: Json | None = None) -> Json:
        """Returns the report as JSON for Spark, in the form at the top of this module.

        Args:
            topics: value of the key ``topics``. None: it is made from the attribute ``partitions``, which may
                lack partitions without a backlog.
        """
        if topics is None:
            topics = {}
            for each in self.partitions:
                topics.setdefault(each.topic, {})[each.partition] = each.to_json()
        report: Json = {
            "planner": self.planner,
            "subscription": self.subscription,
            "startTimeMs": self.start_time_ms,
            "timeMs": self.time_ms,
            "serviceUrl": self.service_url,
            "topics": topics,
            "backlogEntries": sum(each.entries for each in self.partitions),
            "batchEntries": sum(each.batch_entries for each in self.partitions),
        }
        messages = sum_or_none([each.messages for each in self.partitions])
        if messages is not None:
            report["backlogMessagesEstimate"] = messages
        if self.batch_bytes is not None:
            report["batchBytesEstimate"] = self.batch_bytes
        return report | {
            "dataLosses": self.data_losses,
            "retries": self.retries,
            "endedPartitions": self.ended_partitions,
        }

    @classmethod
    def parse(cls, text: str | None) -> SourceReport | None:
        """Parses a source's ``latestOffset`` in Spark's progress; None if it is not from a Pulsar source.

        Raises ValueError: the report is from a Pulsar source, but lacks a field or has a wrong type.
        """
        try:
            found = json.loads(text or "null")
        except ValueError:
            return None
        if not (isinstance(found, dict) and "planner" in found and "topics" in found):
            return None
        try:
            size = found.get("batchBytesEstimate")
            return cls(
                planner=str(found["planner"]),
                subscription=str(found["subscription"]),
                start_time_ms=int(found["startTimeMs"]),
                time_ms=int(found["timeMs"]),
                partitions=tuple(_partitions(found["topics"])),
                batch_bytes=None if size is None else int(size),
                data_losses=int(found["dataLosses"]),
                retries=int(found["retries"]),
                ended_partitions=int(found.get("endedPartitions", 0)),
                service_url=str(found.get("serviceUrl", "")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the source's report lacks a field, or has another type: {error!r}") from error

    def when_idle(self) -> SourceReport:
        """Returns the backlog after this report's micro-batch, if no message has been received since."""
        rest = tuple(_after_batch(each) for each in self.partitions)
        return replace(self, partitions=rest, batch_bytes=None if self.batch_bytes is None else 0)


def partition_backlog(
    topic: TopicName,
    *,
    position: MessageId,
    planned: MessageId,
    last: MessageId,
    entries: int | None,
    means: EntryMeans | None,
    oldest_ms: int | None = None,
) -> PartitionBacklog:
    """Returns the backlog of one partition.

    Args:
        planned: end of the micro-batch that begins at ``position``; ``position`` if there is no micro-batch.
        last: last message, a whole entry; ``MessageId.EARLIEST`` if there is none.
    """
    position, planned = position.last_whole_entry, planned.last_whole_entry
    waiting = batch = 0
    if position < last:
        counted = last.entries_since(position)
        waiting = max(1, entries or 0) if counted is None else counted
    if position < planned:
        within, rest = planned.entries_since(position), last.entries_since(planned)
        if within is None:
            within = planned.entry + 1 if rest is None else waiting - rest
        batch = min(max(1, within), waiting)
    messages = None if means is None else round(waiting * means.messages)
    return PartitionBacklog(
        str(topic.base),
        str(topic.partition),
        str(max(last, planned)),
        waiting,
        batch,
        0 if waiting == 0 else messages,
        None if waiting == 0 else oldest_ms,
    )


def sum_or_none(numbers: list[int | None]) -> int | None:
    """Returns the sum; None if one of the numbers is unknown."""
    known = [each for each in numbers if each is not None]
    return sum(known) if len(known) == len(numbers) else None


def _partitions(topics: Mapping[str, Mapping[str, Json]]) -> Iterator[PartitionBacklog]:
    for topic, partitions in topics.items():
        for number, found in partitions.items():
            messages, oldest_ms = found.get("backlogMessagesEstimate"), found.get("oldestTimeMs")
            yield PartitionBacklog(
                topic,
                number,
                str(found["end"]),
                int(found["backlogEntries"]),
                int(found["batchEntries"]),
                None if messages is None else int(messages),
                None if oldest_ms is None else int(oldest_ms),
                str(found.get("possibleLoss", "")),
            )


def _after_batch(backlog: PartitionBacklog) -> PartitionBacklog:
    left = backlog.entries - backlog.batch_entries
    messages = backlog.messages
    if messages is not None and backlog.entries:
        messages = messages * left // backlog.entries
    oldest_ms = None if backlog.batch_entries else backlog.oldest_ms
    return backlog._replace(entries=left, batch_entries=0, messages=messages, oldest_ms=oldest_ms)
