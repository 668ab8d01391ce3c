"""LossCheck: applies the rules of :mod:`data_loss` to a query's partitions.

It requests a topic's first position if the rules require it, reports losses, and moves the query's
subscription as the rules require.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pulsar_spark.client import LastMessageId, LostRange, PlanningClient
from pulsar_spark.errors import DataLossError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.data_loss import (
    Judgement,
    LossReporter,
    LossVerdict,
    Stored,
    judge_answer,
    judge_deleted,
    judge_restart,
    lost_by_deletion,
)
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.partition import Partition, visible_end
from pulsar_spark.spark.plan.subscription import Subscription

_log = logging.getLogger(__name__)


class LossCheck:
    """Checks the partitions of one run of a query for data loss.

    Args:
        was_deleted: function that returns whether a partition was recently deleted and created again; called
            if messages seem lost; may take seconds.

    Attributes:
        holding: scalable topics on which the subscription was registered when this run opened it, so that
            brokers have kept unread segments.
        absent: partitions of the checkpoint that were reported as absent or deleted.
        has_moved: whether the query has just moved here from another cluster. Then its subscription here is
            missing, or has the position at which the query once left this cluster.
        why_unsure: reason why this may be another cluster, so that no partition is FINE; or empty.
    """

    def __init__(
        self, client: PlanningClient, options: SourceOptions, was_deleted: Callable[[TopicName], bool]
    ) -> None:
        self._client = client
        self._options = options
        self._was_deleted = was_deleted
        self.reporter = LossReporter(fail_on_data_loss=options.fail_on_data_loss)
        self.holding: set[TopicName] = set()
        self.absent: set[TopicName] = set()
        self.has_moved = False
        self.why_unsure = ""

    # ---- partitions on which the subscription is open

    def check_restart(
        self,
        subscription: Subscription,
        topic: TopicName,
        position: MessageId,
        answer: LastMessageId,
        *,
        was_missing: bool,
    ) -> None:
        """Judges changes of a partition while the query was stopped; moves its subscription back if needed.

        ``was_missing``: whether the subscription did not exist before this run opened it. Raises
        DataLossError: unprocessed messages are gone. The next start finds the same state at the broker.
        """

        def judge(stored: Stored | None) -> Judgement:
            return judge_restart(
                position,
                last=answer.last,
                mark_delete=answer.mark_delete,
                was_missing=was_missing,
                is_processed=self._is_processed(topic, position),
                stored=stored,
            ).elsewhere(position, self.why_unsure)

        self._reconcile(subscription, topic, position, answer, judge)

    def check_first_end(self, subscription: Subscription, ends: Mapping[TopicName, MessageId]) -> None:
        """Checks for data loss if the subscription's position is after the end of an unfinished batch 0.

        A subscription that this run has created does not count as removed, because the earlier run may have
        ended before it created the subscription.
        """
        for topic in sorted(ends.keys() & subscription.partitions.keys()):
            end, state = ends[topic], subscription.partitions[topic]
            if end.is_entry and state.start > end:
                answer = LastMessageId(state.last, state.start)
                self.check_restart(subscription, topic, end, answer, was_missing=False)

    def check_answer(self, subscription: Subscription, topic: TopicName, answer: LastMessageId) -> None:
        """Judges whether another program moved the subscription; stores the broker's answer."""
        state = subscription.partitions[topic]
        position = state.position_or_start
        state.see(state.last)
        if state.tail is not None:
            state.see(state.tail.newest)

        def judge(stored: Stored | None) -> Judgement:
            return judge_answer(
                position,
                acknowledged=state.acknowledged,
                asked=state.asked_before,
                last_seen=state.last,
                next_seen=state.next_seen,
                last=answer.last,
                mark_delete=answer.mark_delete,
                is_processed=self._is_processed(topic, state.position),
                goes_on=state.goes_on,
                stored=stored,
            )

        verdict = self._reconcile(subscription, topic, position, answer, judge)
        if verdict in (LossVerdict.FINE, LossVerdict.UNSURE):
            state.acknowledged = answer.mark_delete
            if not answer.mark_delete.is_entry:
                state.goes_on = answer.mark_delete
        state.last = visible_end(answer.last)

    def _is_processed(self, topic: TopicName, position: MessageId | None) -> bool:
        """Whether ``position`` is a message that the query has processed.

        Otherwise ``position`` is the user's start, the position before a ledger's first message, or None.
        """
        return position is not None and position.is_entry and position != self._options.start.named.get(topic)

    def _reconcile(
        self,
        subscription: Subscription,
        topic: TopicName,
        position: MessageId,
        answer: LastMessageId,
        judge: Callable[[Stored | None], Judgement],
    ) -> LossVerdict:
        """Reports losses, and moves the subscription back if another program has moved it.

        If ``judge(None)`` returns ASK, it is called again with the stored entries.
        """
        found = judge(None)
        if found.verdict is LossVerdict.ASK:
            try:
                found = judge(self._stored(topic, position, answer))
            except PulsarError as error:
                raise error.located(str(topic)) from error
        found = found.of_deleted(lambda: self._was_deleted(topic))
        try:
            self._report(topic, found)
            if found.verdict is LossVerdict.SET_BACK:
                self.reporter.set_back(topic, position, answer.last)
                subscription.skip_to_end(topic, answer)
        except DataLossError:
            if found.was_removed:
                subscription.remove(topic)
            raise
        if found.verdict is LossVerdict.MOVED and not self.has_moved:
            # A new cluster's ledger ids begin low again, so its messages seem to be before ``position``.
            unless = f", unless the cluster is a new one: messages up to {position} are not read"
            _log.warning("%s: %s; nothing is lost%s", topic, found.why, unless if found.was_removed else "")
        if found.verdict is LossVerdict.RECREATED:
            _log.warning(
                "%s: %s; all messages of the old topic that the query had seen are processed",
                topic,
                found.why,
            )
        if found.verdict in (LossVerdict.MOVED, LossVerdict.LOST, LossVerdict.RECREATED):
            subscription.put_back(topic, position.last_whole_entry)
        return found.verdict

    def _report(self, topic: TopicName, found: Judgement) -> None:
        if found.lost is not None:
            report = self.reporter.unsure if found.verdict is LossVerdict.UNSURE else self.reporter.lost
            report(topic, found.lost)

    def _stored(self, topic: TopicName, position: MessageId, answer: LastMessageId) -> Stored:
        """Requests the range of a partition's stored entries, and the end of the ledger of ``position``."""
        begin, end = self._client.bounds(topic).begin, self._client.stored_end(topic)
        if self._client.read_compacted:  # entries that compaction has removed are no loss
            return Stored(begin, end, position.entry)
        if not answer.last.is_entry:
            begin = max(begin, end)  # without entries, brokers may report an old begin
        if begin > position:
            return Stored(begin, end)
        return Stored(begin, end, self._client.ledger_end(topic, position, answer.last))

    # ---- partitions that are gone

    def report_deleted(self, topic: TopicName, state: Partition) -> None:
        """Reports a partition that was deleted while the query runs.

        Raises DataLossError: known messages of the partition are not processed.
        """
        lost = lost_by_deletion(state.position_or_start, state.last)
        if lost is not None:
            self.reporter.lost(topic, lost)
        else:
            self.reporter.deleted.append(topic)

    def report_unheld(self, topic: TopicName, position: MessageId, segments: int = 0) -> None:
        """Reports that brokers deleted an unread segment, or ``segments`` unread segments of a topic."""
        what = f"{segments} segments that the query never saw" if segments else "a segment"
        why = f"its subscription was removed from the scalable topic, and then the brokers deleted {what}"
        self.reporter.lost(topic, LostRange(position, None, why))

    def report_absent(
        self, topic: TopicName, position: MessageId, planned: MessageId, subscription: str
    ) -> None:
        """Reports a partition of the checkpoint that does not exist, or that the options no longer name.

        A missing segment of a topic in :attr:`holding` is no loss: brokers deleted it after it was read.

        Raises:
            DataLossError: planned messages are gone. Or the options name the partition, which may have had
                later messages.
        """
        self.absent.add(topic)
        if topic.scalable in self.holding:
            self.reporter.deleted.append(topic)
            return
        pattern = self._options.pattern
        is_named = not {topic, topic.base, topic.scalable}.isdisjoint(self._options.topics)
        if is_named or (pattern is not None and pattern.matches(topic)):
            self._report(topic, judge_deleted(position, planned, is_named=is_named))
        else:
            _log.warning(
                "the checkpoint is of a query that reads %s, which the options do not name. If this is the "
                "checkpoint of another query, stop this one and give it a checkpointLocation of its own. If "
                "you changed the topics of this query, remove the subscription %s from that topic",
                topic,
                subscription,
            )


class Checkpoint(NamedTuple):
    """A query's last micro-batch in Spark's checkpoint; ``end`` names the subscription.

    ``begins``: start positions of that batch. ``processed``: positions up to which messages are processed.
    """

    end: Offsets
    begins: Mapping[TopicName, MessageId]
    processed: Mapping[TopicName, MessageId]

    @classmethod
    def finished(cls, end: Offsets) -> Checkpoint:
        """Returns a checkpoint whose last micro-batch is processed."""
        return cls(end, end.positions, end.positions)

    @classmethod
    def unfinished(cls, start: Offsets, end: Offsets) -> Checkpoint:
        """Returns a checkpoint whose last micro-batch must run again.

        Its field ``processed`` lacks deleted partitions, which are not in ``end``. It also lacks partitions
        whose ``end`` is before ``start``: the first plan of the batch has reported their lost messages.
        """
        processed = start.positions if start.subscription == end.subscription else end.positions
        existed = {
            topic: position
            for topic, position in processed.items()
            if topic in end.positions and position <= end.positions[topic]
        }
        return cls(end, start.positions, existed)

    def report_absent(self, loss_check: LossCheck, topic: TopicName) -> None:
        """Reports a partition that does not exist, or that the options no longer name."""
        position = self.begins.get(topic, MessageId.EARLIEST)
        loss_check.report_absent(topic, position, self.end.positions[topic], self.end.subscription)
