"""The start of a query's run: its subscription, and the start position of each partition.

A query that has no checkpoint (:func:`start_query`):

    user's subscription   start given   the query begins               the subscription is moved
    none                  yes or no     at the start, else at latest   to the start, immediately
    an existing one       no            at its position                not at all
    an existing one       yes           at the start                   back: immediately; forward: when Spark
                                                                       has checkpointed the start
    a missing one         no            at latest                      not at all
    a missing one         yes           at the start                   as an existing one, with a start

So only the user's start moves an existing position forward, with a warning of the skipped backlog. It moves
after Spark has checkpointed the start: if batch 0 fails, it is planned again from there, not from a newer
"latest".

The subscription of a query with a checkpoint is opened again, and checked for data loss
(:func:`restart_query`). A removed subscription is created again at the topic's end. So the broker takes all
earlier messages as acknowledged, also those that this query has not read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from pulsar_spark.client import Calls, LastMessageId, PlanningClient, Range
from pulsar_spark.errors import OptionError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import AtTime, Position, PositionWord
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.clusters import Witnesses
from pulsar_spark.spark.plan.loss_check import Checkpoint, LossCheck
from pulsar_spark.spark.plan.offsets import done_in
from pulsar_spark.spark.plan.partition import Partition
from pulsar_spark.spark.plan.resolve import (
    before_time,
    probe_bounds,
    resolve,
    run_for_each,
    subscribed,
    warn_of_late_starts,
)
from pulsar_spark.spark.plan.scalable import ScalableTopics
from pulsar_spark.spark.plan.subscription import Subscription
from pulsar_spark.spark.plan.topics import Topics

_log = logging.getLogger(__name__)


class QueryStart(NamedTuple):
    """A query at the start of its run. ``positions``: the position after which each partition is read."""

    subscription: Subscription
    answers: Mapping[TopicName, LastMessageId]
    positions: Mapping[TopicName, MessageId]


def start_query(
    client: PlanningClient,
    calls: Calls[Partition],
    options: SourceOptions,
    partitions: Iterable[TopicName],
    scalable: ScalableTopics,
) -> QueryStart:
    """Creates a new query's subscription, or opens the user's subscription, and moves it to the start.

    Args:
        partitions: existing partitions. Partitions deleted meanwhile are left out, unless they must exist.

    Raises:
        TopicNotFoundError: a topic that the user named was deleted meanwhile.
        OptionError: the start does not fit the topics, or a subscription to continue from does not exist.
        BusyError: another query uses the subscription.
        BrokerError: the broker did not answer. A subscription created here is removed again.
    """
    given = options.subscription
    name = given or f"{options.client.subscription_prefix}-{uuid4()}"
    starts = options.start.of(partitions)
    with_segments = {topic.base for topic in starts if topic.is_segment}
    goes_on = options.start.everywhere is PositionWord.SUBSCRIPTION
    if goes_on:
        subscribed(client, starts, name)
    subscription = Subscription(client, calls, name, options.subscription_settings)
    _log.info("the subscription of the new query is %s", name)
    try:
        is_old = set() if given is None else starts.keys() - subscription.missing(list(starts))
        at_end = {topic for topic, start in starts.items() if start is PositionWord.LATEST}
        answers = subscription.open(scalable.initial_positions(starts, at_end))
        scalable.register(with_segments, name)  # after ``open``: this creates a subscription at earliest
        starts = _existing(options, starts, answers)
        is_earliest = {topic for topic, start in starts.items() if start is PositionWord.EARLIEST}
        subscription.begin_before(is_earliest - is_old)
        is_by_words = all(isinstance(each, PositionWord) for each in starts.values())
        if goes_on or options.start.is_default or (given is None and is_by_words):
            positions = {topic: state.start for topic, state in subscription.partitions.items()}
        else:
            bounds = probe_bounds(client, starts)
            positions = resolve(client, starts, bounds, options.publish_time_margin)
            for topic, position in positions.items():
                subscription.partitions[topic].is_start_time_found = position < bounds[topic].last
            warn_of_late_starts(client, options.start.option, positions, bounds)
            _warn_of_backlog(subscription, {topic: positions[topic] for topic in is_old & starts.keys()})
            _put_back(subscription, positions)
            if given is None:
                _acknowledge(subscription, positions)
    except BaseException:  # also SystemExit, by which Spark ends the planner
        if given is None:
            subscription.unsubscribe()
            scalable.unregister(with_segments, name)
        else:
            subscription.close()
        raise
    return QueryStart(subscription, answers, positions)


def start_before(
    started: QueryStart, ends: Mapping[TopicName, MessageId], options: SourceOptions
) -> dict[TopicName, MessageId]:
    """Returns the start positions, limited to the ends of the first batch, so that no message is skipped.

    Raises OptionError: the user gave a message id after the batch's end.
    """
    late = {
        topic: ends[topic]
        for topic, position in started.positions.items()
        if topic in ends and position > ends[topic]
    }
    given = options.start.of(started.positions)
    for topic in late:
        if isinstance(given[topic], MessageId):
            raise OptionError(
                f"the start is after {given[topic]}, but the first micro-batch ends at {ends[topic]}; Spark "
                "before 4.2 cannot wait for it",
                topic=str(topic),
                advice=f"Give an earlier position or latest in {options.start.option}, or use Spark 4.2",
            )
        started.subscription.partitions[topic].is_start_time_found = False  # later batches search again
    _put_back(started.subscription, late)
    return {**started.positions, **late}


def _existing(
    options: SourceOptions, starts: Mapping[TopicName, Position], answers: Mapping[TopicName, LastMessageId]
) -> dict[TopicName, Position]:
    """Returns the starts of partitions on which the subscription was opened."""
    # A segment may be removed at any time before the query's subscription retains it.
    gone = sorted(topic for topic in starts.keys() - answers.keys() if not topic.is_segment)
    if gone and options.must_exist:
        raise TopicNotFoundError("the topic was deleted while the query started", topic=str(gone[0]))
    return {topic: starts[topic] for topic in answers}


def _put_back(subscription: Subscription, positions: Mapping[TopicName, MessageId]) -> None:
    """Moves the subscription back, so that it retains the messages after the positions."""
    run_for_each(
        {
            topic: partial(subscription.put_back, topic, position.last_whole_entry)
            for topic, position in positions.items()
            if subscription.partitions[topic].start > position.last_whole_entry
        }
    )


def after_start_times(
    client: PlanningClient,
    options: SourceOptions,
    partitions: Mapping[TopicName, Partition],
    ranges: Sequence[Range],
) -> list[Range]:
    """Skips messages that were published before ``startingTime`` but stored after the query had begun.

    ``partitions``: state of each partition, which stores the position found. A query may use a stream twice,
    as in a self-join. Then Spark plans each micro-batch again, and the stored position is used.
    """
    start = options.start
    searched: dict[TopicName, Callable[[], MessageId]] = {}
    for each in ranges:
        time = start.everywhere or start.named.get(each.topic, start.named.get(each.topic.base))
        is_found = partitions[each.topic].is_start_time_found
        if isinstance(time, AtTime) and not is_found:
            search = partial(before_time, client, each.topic, time, options.publish_time_margin)
            begin, end = each.start.last_whole_entry, each.end.whole_entry
            searched[each.topic] = partial(search, begin, end, looks_back=is_found is None)
    firsts = run_for_each(searched)
    found = []
    for each in ranges:
        state, first = partitions[each.topic], firsts.get(each.topic)
        if first is not None:
            state.is_start_time_found = first < each.end.whole_entry
            if first >= each.end.whole_entry:
                continue
            state.time_begins = first
        found.append(each._replace(start=max(each.start, state.time_begins)))
    return found


def _acknowledge(subscription: Subscription, positions: Mapping[TopicName, MessageId]) -> None:
    """Acknowledges each partition up to its position, or to its last message if that is earlier."""
    states = subscription.partitions
    subscription.acknowledge(
        {
            topic: min(position, states[topic].last)
            for topic, position in positions.items()
            if states[topic].last.is_entry
        }
    )


def _warn_of_backlog(subscription: Subscription, positions: Mapping[TopicName, MessageId]) -> None:
    states = subscription.partitions
    behind = [topic for topic, each in positions.items() if states[topic].start < each.last_whole_entry]
    for topic, backlog in subscription.backlogs(behind).items():
        if backlog > 0:
            _log.warning(
                "%s: subscription %s is at %s with a backlog of %d entries, but by its options this query "
                "starts at %s. The messages between are acknowledged and not read. To start at the position "
                "of the subscription, leave startingOffsets and startingTime out",
                *(topic, subscription.name, states[topic].start, backlog, positions[topic]),
            )


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
    """
    name, processed = checkpoint.end.subscription, checkpoint.processed
    done = done_in(processed)
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
        loss_check.holding = {topic for topic in scalable.topics if scalable.is_registered(topic, name)}
        for topic, count in scalable.skipped_after(processed, loss_check.holding).items():
            loss_check.report_unheld(topic, MessageId.EARLIEST, count)
        for topic in sorted(processed.keys() - set(topics.partitions) - done):
            checkpoint.report_absent(loss_check, topic)
        # Registered after these checks: if they fail by data loss, the next start must find the same state.
        scalable.register(scalable.topics, name)
        answers = found.open(scalable.initial_positions(topics.partitions, at_end=processed))
        found.begin_before(topic for topic in answers if topic not in processed)
        loss_check.why_unsure = witnesses.why_unsure(checkpoint.end.witness, processed, missing, answers)
        for topic in topics.partitions:
            if topic not in processed or topic in done:
                continue
            try:
                if topic in answers:
                    was_missing = topic in missing
                    loss_check.check_restart(
                        found, topic, processed[topic], answers[topic], was_missing=was_missing
                    )
                    continue
            except TopicNotFoundError:
                found.drop(topic)
            checkpoint.report_absent(loss_check, topic)
        loss_check.has_moved = False
        loss_check.reporter.log_noted()
    except BaseException:  # also SystemExit, by which Spark ends the planner
        found.close()
        raise
    return QueryStart(found, {topic: answers[topic] for topic in found.partitions}, processed)
