"""Where reads begin and end at the broker: words, times and message ids become positions.

It asks through non-durable readers that are closed at once, so nothing stays behind.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from pulsar_spark.client import (
    Client,
    Consumer,
    InitialPosition,
    SubscriptionOptions,
    first_at,
    probe_entry,
    run_all,
)
from pulsar_spark.errors import OptionError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import AtTime, Position, PositionWord
from pulsar_spark.spark.plan.subscription import subscription_exists

T = TypeVar("T")


class PartitionBounds(NamedTuple):
    """What a partition holds.

    Attributes:
        begin: the position before the first entry.
        last: the last visible message, as a whole entry; ``begin`` where there is none.
    """

    begin: MessageId
    last: MessageId


def probe_bounds(client: Client, topics: Iterable[TopicName]) -> dict[TopicName, PartitionBounds]:
    """Where partitions begin and end now.

    Raises:
        BrokerError: of the first that could not be asked.
    """

    def look_at(topic: TopicName) -> PartitionBounds:
        options = SubscriptionOptions(
            name=f"spark-pulsar-planner-{uuid.uuid4()}",
            durable=False,
            initial=InitialPosition.EARLIEST,
            create=topic.partition >= 0,
        )
        with Consumer(client, topic, options) as consumer:
            last, begin = consumer.last_message_id()
        return PartitionBounds(begin, begin if last.entry < 0 else last.whole_entry)

    return _all({topic: partial(look_at, topic) for topic in topics})


def resolve(
    client: Client, positions: Mapping[TopicName, Position], looks: Mapping[TopicName, PartitionBounds]
) -> dict[TopicName, MessageId]:
    """The positions of a start or of an end, "taken up to here".

    A time behind the last message means that one, and a message id stays as it is: what is not there yet is
    waited for. A message id before the first message that is there stays, too.

    Args:
        client: where to look for times.
        positions: by partition; not :attr:`PositionWord.SUBSCRIPTION`, which :func:`subscribed` resolves.
        looks: at the same partitions.

    Raises:
        BrokerError: the broker could not be asked.
    """

    def resolve_one(topic: TopicName, position: Position) -> MessageId:
        seen = looks[topic]
        if isinstance(position, AtTime):
            return before_time(client, topic, position, seen.begin, seen.last)
        if isinstance(position, MessageId):
            return position
        return seen.begin if position is PositionWord.EARLIEST else seen.last

    return _all({topic: partial(resolve_one, topic, each) for topic, each in positions.items()})


def before_time(
    client: Client, topic: TopicName, time: AtTime, begin: MessageId, last: MessageId
) -> MessageId:
    """The position in ``[begin, last]`` behind which the first message published at or after ``time`` lies.

    Where the message at ``begin`` is in time, so is all behind it: what other clocks, or another cluster,
    dated earlier is not left out. (Where it is gone, the first that is left counts.)

    Returns:
        ``last`` where all are older.
    """
    if begin >= last:
        return last
    if probe_entry(client, topic, begin).publish_time >= time.ms:
        return begin
    first = first_at(client, topic, time.ms, MessageId(begin.ledger, begin.entry + 1), last)
    return last if first is None else first.previous


def subscribed(client: Client, topics: Iterable[TopicName], name: str) -> dict[TopicName, MessageId]:
    """Where a durable subscription stands on each of these partitions; it is left as it is.

    Raises:
        OptionError: it is not there.
        BusyError: another consumer has it.
    """

    def stands(topic: TopicName) -> MessageId:
        if not subscription_exists(client, topic, name):
            raise OptionError(
                f"there is no subscription {name!r} to go on with",
                topic=str(topic),
                advice="Correct predefinedSubscription, or begin elsewhere with startingOffsets",
            )
        options = SubscriptionOptions(name=name, durable=True)
        with Consumer(client, topic, options) as consumer:
            return consumer.last_message_id().mark_delete

    return _all({topic: partial(stands, topic) for topic in topics})


def _all(calls: Mapping[TopicName, Callable[[], T]]) -> dict[TopicName, T]:
    """Run the calls at the same time; raise the first error."""
    found = {}
    for topic, answer in zip(calls, run_all(list(calls.values())), strict=True):
        if isinstance(answer, PulsarError):
            raise answer.located(str(topic))
        found[topic] = answer
    return found
