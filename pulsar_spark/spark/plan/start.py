"""The beginning of a query that has no checkpoint: its subscription, and the position on each partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from uuid import uuid4

from pulsar_spark.client import Client, InitialPosition, LastMessageId
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import PositionWord
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.resolve import probe_bounds, resolve, subscribed
from pulsar_spark.spark.plan.subscription import Subscription

_log = logging.getLogger(__name__)


def begin(
    client: Client, options: SourceOptions, partitions: Iterable[TopicName]
) -> tuple[Subscription, dict[TopicName, LastMessageId], dict[TopicName, MessageId]]:
    """Make the subscription of a new query, or take the one that the user named, and place it at the start.

    Returns:
        The subscription; where each partition ends; up to where each counts as taken.

    Raises:
        OptionError: the start does not fit what is read, or a subscription to go on with is not there.
        BusyError: another query has the subscription.
        BrokerError: the broker could not be asked. A subscription that was made here is removed again.
    """
    named = options.subscription
    name = named or f"{options.subscription_prefix}-{uuid4()}"
    starts = options.start.of(partitions)
    goes_on = options.start.everywhere is PositionWord.SUBSCRIPTION
    if goes_on:
        subscribed(client, starts, name)
    subscription = Subscription(client, name, options.chunks.expire)
    _log.info("a new query has the subscription %s", name)
    try:
        answers = subscription.open(
            {
                topic: InitialPosition.LATEST if start is PositionWord.LATEST else InitialPosition.EARLIEST
                for topic, start in starts.items()
            }
        )
        stands_there = goes_on or (
            named is None and all(isinstance(each, PositionWord) for each in starts.values())
        )
        if stands_there:
            positions = dict(subscription.begins)
        else:
            positions = resolve(client, starts, probe_bounds(client, starts))
            _place(subscription, answers, positions)
    except BaseException:  # SystemExit, too: that is how Spark ends the planner
        if named is None:
            subscription.unsubscribe()
        else:
            subscription.close()
        raise
    return subscription, answers, positions


def _place(
    subscription: Subscription,
    answers: Mapping[TopicName, LastMessageId],
    positions: Mapping[TopicName, MessageId],
) -> None:
    """Hold what lies behind the positions, and no more; what is not there yet cannot be acknowledged."""
    reached = {}
    for topic, position in positions.items():
        if subscription.begins[topic] > position.last_whole_entry:
            subscription.put_back(topic, position.last_whole_entry)
        last = answers[topic].last
        if last.entry >= 0:
            reached[topic] = min(position, last.whole_entry)
    subscription.acknowledge(reached)
