"""SourceReporter: makes the reports of one source in one run of a query."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from pulsar_spark.client import LostRange, PlanningClient, TopicEnd
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.monitoring.backlog_probes import EntrySampler, OldestMessages, Waiting
from pulsar_spark.spark.monitoring.by_topic import updated
from pulsar_spark.spark.monitoring.driver_files import new_planner_id
from pulsar_spark.spark.monitoring.source_report import (
    Json,
    PartitionBacklog,
    SourceReport,
    partition_backlog,
)


class PlannedPartition(Protocol):
    """The planner's state of a partition.

    Attributes:
        position: position up to which it is processed; None before the first trigger.
        planned: end of the last planned micro-batch; None before the first.
        last: last message; ``MessageId.EARLIEST`` if there is none.
        backlog: number of entries in ``(position, last]``; None if unknown.
        topic_end: reason why no more messages will come; None: more may come.
    """

    position: MessageId | None
    planned: MessageId | None
    last: MessageId
    backlog: int | None
    topic_end: TopicEnd | None


class SourceReporter:
    """Reports how far a query lags.

    Args:
        client: client of the cluster.
        service_url: URL of the cluster.
    """

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
        """Begins a trigger, whose time all later counts get."""
        self._triggered_ms = self._client.time_ms()

    def probe(self, partitions: Mapping[TopicName, PlannedPartition]) -> None:
        """Probes some waiting entries, if a probe is due: at most 3 s in the first trigger, later 0.5 s."""
        self._samples.refresh(
            {
                topic: (state.position, state.last, state.backlog or 1)
                for topic, state in partitions.items()
                if state.position is not None and state.backlog != 0
            }
        )
        self._oldest.refresh(
            {
                topic: Waiting(state.position.last_whole_entry, state.last)
                for topic, state in partitions.items()
                if state.position is not None
            },
            self._triggered_ms,
        )

    def report(
        self,
        subscription: str,
        partitions: Mapping[TopicName, PlannedPartition],
        changed: Mapping[TopicName, PlannedPartition],
        data_losses: int,
        possible_losses: Mapping[TopicName, LostRange],
        deleted: Collection[TopicName],
    ) -> Json:
        """Returns the report of the last trigger, see :mod:`source_report`.

        Args:
            subscription: name of the query's subscription.
            partitions: partitions that the query reads.
            changed: partitions that differ from the last report, have a backlog, or have a planned
                micro-batch.
            data_losses: number of losses in this run.
            possible_losses: ranges of messages that may be lost, by partition.
            deleted: partitions that were deleted without a loss.
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
            )._replace(possible_loss=str(possible_losses.get(topic, "")))
            for topic, state in changed.items()
            if state.planned is not None and topic in partitions
        }
        backlogs |= {
            topic: PartitionBacklog(
                str(topic.base), str(topic.partition), str(lost.start), 0, 0, 0, None, str(lost)
            )
            for topic, lost in possible_losses.items()
            if topic not in partitions
        }
        self._show(backlogs, self._shown - partitions.keys() - possible_losses.keys())
        entries = sum(each.batch_entries for each in backlogs.values())
        report = SourceReport(
            planner=self._planner,
            subscription=subscription,
            start_time_ms=self._start_ms,
            time_ms=self._triggered_ms,
            partitions=tuple(backlogs.values()),
            batch_bytes=None if means is None else round(entries * means.size),
            data_losses=data_losses,
            retries=self._client.retries(),
            ended_partitions=sum(state.topic_end is not None for state in partitions.values()),
            service_url=self._service_url,
        ).to_json(self._topics)
        return report | ({"deletedTopics": list(map(str, deleted))} if deleted else {})

    def _show(self, backlogs: Mapping[TopicName, PartitionBacklog], gone: Collection[TopicName]) -> None:
        shown = {(each.topic, each.partition): each.to_json() for each in backlogs.values()}
        hidden = [(str(topic.base), str(topic.partition)) for topic in gone]
        self._topics = updated(self._topics, shown, hidden)
        self._shown.update(backlogs)
        self._shown.difference_update(gone)
        self._oldest.forget(gone)

    def renewed(self, report: Json) -> Json:
        """Returns the report for a later trigger of this run without changes; both reports share a dict."""
        return report | {"timeMs": self._triggered_ms, "retries": self._client.retries()}
