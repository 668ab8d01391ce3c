"""The restart of a query from its checkpoint: its subscription is opened again, and checked for data loss.

A removed subscription is created again at the end. So it looks like a subscription that has acknowledged
messages which this query never acknowledged.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from pulsar_spark.client import Calls, LastMessageId, PlanningClient
from pulsar_spark.errors import TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.clusters.witnesses import Witnesses
from pulsar_spark.spark.plan.loss_check import LossCheck
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.partition import Partition
from pulsar_spark.spark.plan.scalable.registration import register, registered
from pulsar_spark.spark.plan.scalable.segments import done_in
from pulsar_spark.spark.plan.scalable.topics import ScalableTopics
from pulsar_spark.spark.plan.start import QueryStart
from pulsar_spark.spark.plan.subscription import Subscription
from pulsar_spark.spark.plan.topics import Topics


class Checkpoint(NamedTuple):
    """The end of a query's last micro-batch in Spark's checkpoint.

    Attributes:
        end: end of the last micro-batch; it names the subscription.
        begins: start of that micro-batch; its end if it is processed.
        processed: position up to which each partition is processed.
    """

    end: Offsets
    begins: Mapping[TopicName, MessageId]
    processed: Mapping[TopicName, MessageId]

    @classmethod
    def finished(cls, end: Offsets) -> Checkpoint:
        """Makes a checkpoint whose last micro-batch is processed."""
        return cls(end, end.positions, end.positions)

    @classmethod
    def unfinished(cls, start: Offsets, end: Offsets) -> Checkpoint:
        """Makes a checkpoint whose last micro-batch must run again.

        A partition missing in the end was gone when the micro-batch was planned, and a partition whose end
        lies before its start was set back. Both were reported then.
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


def restart_query(
    client: PlanningClient,
    calls: Calls[Partition],
    options: SourceOptions,
    topics: Topics,
    scalable: ScalableTopics,
    loss_check: LossCheck,
    witnesses: Witnesses,
    checkpoint: Checkpoint,
) -> QueryStart:
    """Opens the subscription of a checkpoint on all partitions that are read now.

    Raises:
        MovedError: the checkpoint belongs to another cluster, whose entries have copies here.
        OtherClusterError: the checkpoint belongs to another cluster, and cannot be continued here.
        DataLossError: unprocessed messages are gone. The next start finds the same state.
        BusyError: another query uses the subscription.
        BrokerError: the broker did not answer.
    """
    name, processed = checkpoint.end.subscription, checkpoint.processed
    done = done_in(Offsets(name, processed))
    scalable.keep_legacy(processed.keys() - done)
    if scalable.take_changed():
        topics.renew()
    scalable.check_done(done, processed)
    found = Subscription(client, calls, name, options.subscription_settings, processed)
    try:
        witnesses.check(checkpoint.end, topics.partitions)
        asked = [topic for topic in topics.partitions if topic in processed or topic.is_segment]
        # Missing subscriptions are found first, because opening creates them.
        missing = found.missing([topic for topic in asked if topic not in done])
        loss_check.holding = registered(client, options, scalable.topics, name)
        for topic, count in scalable.skipped_after(processed, loss_check.holding).items():
            loss_check.report_unheld(topic, MessageId.EARLIEST, count)
        for topic in sorted(processed.keys() - set(topics.partitions) - done):
            checkpoint.report_absent(loss_check, topic)
        # Registered last, because after a loss that is an error, the next start must find the same state.
        register(client, options, scalable.topics, name)
        answers = found.open(scalable.initial_positions(topics.partitions, at_end=processed))
        found.begin_before(topic for topic in answers if topic not in processed)
        loss_check.why_unsure = witnesses.why_unsure(checkpoint.end.witness, processed, missing, answers)
        for topic in topics.partitions:
            if topic in processed.keys() - done and not _check(
                loss_check, found, topic, processed[topic], answers, missing
            ):
                checkpoint.report_absent(loss_check, topic)
        loss_check.has_moved = False
        loss_check.reporter.log_noted()
    except BaseException:  # also SystemExit, by which Spark ends the planner
        found.close()
        raise
    return QueryStart(found, {topic: answers[topic] for topic in found.partitions}, processed)


def _check(
    loss_check: LossCheck,
    subscription: Subscription,
    topic: TopicName,
    position: MessageId,
    answers: Mapping[TopicName, LastMessageId],
    missing: Container[TopicName],
) -> bool:
    """Judges changes of a partition while the query was stopped; False if it is gone by now."""
    if topic not in answers:
        return False
    try:
        loss_check.check_restart(subscription, topic, position, answers[topic], was_missing=topic in missing)
    except TopicNotFoundError:
        subscription.drop(topic)
        return False
    return True
