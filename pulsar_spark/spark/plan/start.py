"""The start of a query that has no checkpoint: its subscription, and the start position on each partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import uuid4

from pulsar_spark.client import InitialPosition, LastMessageId, PlanningClient
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import PositionWord
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.resolve import probe_bounds, resolve, subscribed
from pulsar_spark.spark.plan.subscription import Subscription

_log = logging.getLogger(__name__)


class QueryStart(NamedTuple):
    """A new query.

    Attributes:
        subscription: its durable subscription.
        answers: where each partition ends.
        positions: the start position of each partition: up to there it counts as taken.
    """

    subscription: Subscription
    answers: Mapping[TopicName, LastMessageId]
    positions: Mapping[TopicName, MessageId]


def start_query(
    client: PlanningClient, options: SourceOptions, partitions: Iterable[TopicName]
) -> QueryStart:
    """Make the subscription of a new query, or take the one that the user named, and place it at the start.

    Raises:
        OptionError: the start does not fit what is read, or a subscription to go on with does not exist.
        BusyError: another query has the subscription.
        BrokerError: the broker could not be asked. A subscription that was made here is removed again.
    """
    given = options.subscription
    name = given or f"{options.subscription_prefix}-{uuid4()}"
    starts = options.start.of(partitions)
    goes_on = options.start.everywhere is PositionWord.SUBSCRIPTION
    if goes_on:
        subscribed(client, starts, name)
    subscription = Subscription(client, name, fail_on_data_loss=options.fail_on_data_loss)
    _log.info("a new query has the subscription %s", name)
    try:
        answers = subscription.open(
            {
                topic: InitialPosition.LATEST if start is PositionWord.LATEST else InitialPosition.EARLIEST
                for topic, start in starts.items()
            }
        )
        is_at_start = goes_on or (
            given is None and all(isinstance(each, PositionWord) for each in starts.values())
        )
        if is_at_start:
            positions = {topic: state.start for topic, state in subscription.partitions.items()}
        else:
            positions = resolve(client, starts, probe_bounds(client, starts))
            _place(subscription, positions)
    except BaseException:  # SystemExit, too: that is how Spark ends the planner
        if given is None:
            subscription.unsubscribe()
        else:
            subscription.close()
        raise
    return QueryStart(subscription, answers, positions)


def _place(subscription: Subscription, positions: Mapping[TopicName, MessageId]) -> None:
    """Hold what comes after the positions, and no more; what does not exist yet cannot be acknowledged."""
    reached = {}
    for topic, position in positions.items():
        state = subscription.partitions[topic]
        if state.start > position.last_whole_entry:
            subscription.put_back(topic, position.last_whole_entry)
        if state.last.is_message:
            reached[topic] = min(position, state.last)
    subscription.acknowledge(reached)
