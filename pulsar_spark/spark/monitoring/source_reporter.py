"""SourceReporter: makes the reports of one source in one run of a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pulsar_spark.client import PlanningClient
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.monitoring.entry_samples import EntrySampler
from pulsar_spark.spark.monitoring.planner_file import new_planner_id
from pulsar_spark.spark.monitoring.source_report import Json, SourceReport, partition_backlog


class PlannedPartition(Protocol):
    """What planning knows of a partition.

    Attributes:
        position: up to where it is processed; None before the first trigger.
        planned: where the last planned micro-batch ends; None before the first.
        last: the last message; ``MessageId.EARLIEST`` where there is none.
        backlog: entries in ``(position, last]``; None where it is not known.
    """

    position: MessageId | None
    planned: MessageId | None
    last: MessageId
    backlog: int | None


class SourceReporter:
    """Reports how far a query is behind.

    Args:
        client: where to connect.
    """

    def __init__(self, client: PlanningClient) -> None:
        self._client = client
        self._samples = EntrySampler(client)
        self._planner = new_planner_id()
        self._start_ms = self._triggered_ms = client.time_ms()

    def begin_trigger(self) -> None:
        """A trigger runs now: what is counted from here on is of this time."""
        self._triggered_ms = self._client.time_ms()

    def probe(self, partitions: Mapping[TopicName, PlannedPartition]) -> None:
        """Look at some entries that wait, where it is time. The first look of a run takes 3 s at most."""
        self._samples.refresh(
            {
                topic: (state.position, state.last, state.backlog or 1)
                for topic, state in partitions.items()
                if state.position is not None and state.backlog != 0
            }
        )

    def report(
        self, subscription: str, partitions: Mapping[TopicName, PlannedPartition], data_losses: int
    ) -> Json:
        """The report of the last trigger; see :mod:`source_report`.

        Args:
            subscription: the query's.
            partitions: that it reads.
            data_losses: of this run.
        """
        means = self._samples.means
        backlogs = tuple(
            partition_backlog(
                topic,
                position=state.planned if state.position is None else state.position,
                planned=state.planned,
                last=state.last,
                entries=state.backlog,
                means=means,
            )
            for topic, state in sorted(
                partitions.items(), key=lambda each: (str(each[0].base), each[0].partition)
            )
            if state.planned is not None
        )
        entries = sum(each.batch_entries for each in backlogs)
        return SourceReport(
            planner=self._planner,
            subscription=subscription,
            start_time_ms=self._start_ms,
            time_ms=self._triggered_ms,
            partitions=backlogs,
            batch_bytes=None if means is None else round(entries * means.size),
            data_losses=data_losses,
            retries=self._client.retries(),
        ).to_json()

    def renewed(self, report: Json) -> Json:
        """A report of this run for a later trigger, at which nothing has moved; they share a dict."""
        return report | {"timeMs": self._triggered_ms, "retries": self._client.retries()}
