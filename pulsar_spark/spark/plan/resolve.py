"""Resolves start and end positions: words, times and message ids become positions of each partition.

It uses non-durable readers and closes them immediately, so no subscription remains at the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from pulsar_spark.client import PartitionBounds, PlanningClient, SubscriptionOptions, run_all
from pulsar_spark.errors import OptionError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import AtTime, Position, PositionWord

T = TypeVar("T")

_log = logging.getLogger(__name__)

# Maximum partitions that a warning names.
_MAX_LISTED = 10


def probe_bounds(
    client: PlanningClient, topics: Iterable[TopicName], *, must_exist: bool = True
) -> dict[TopicName, PartitionBounds]:
    """Requests the first and last positions of partitions, in parallel.

    ``must_exist``: whether a missing partition is an error; otherwise it is left out.
    """
    calls = {topic: partial(client.bounds, topic) for topic in topics}
    leave_out = () if must_exist else TopicNotFoundError
    bounds = run_for_each(calls, leave_out)
    empty = _empty(bounds)
    for _ in client.opening_turns() if empty else ():
        bounds |= run_for_each({topic: calls[topic] for topic in empty}, leave_out)
        empty = _empty(bounds)
        if not empty:
            break
    return bounds


def _empty(bounds: Mapping[TopicName, PartitionBounds]) -> list[TopicName]:
    return [topic for topic, each in bounds.items() if not each.last.is_entry]


def resolve(
    client: PlanningClient,
    positions: Mapping[TopicName, Position],
    bounds: Mapping[TopicName, PartitionBounds],
    margin: float,
) -> dict[TopicName, MessageId]:
    """Returns the positions of a start or an end, after which reading begins or ends.

    A time after the last message means that message. A message id is not changed, even before the first
    existing message; if its message does not exist yet, the query waits for it.

    Args:
        positions: positions by partition; not :attr:`PositionWord.SUBSCRIPTION`, which :func:`subscribed`
            resolves.
        margin: maximum seconds by which a later message's publish time may be earlier.
    """

    def resolve_one(topic: TopicName, position: Position) -> MessageId:
        begin, last = bounds[topic]
        if isinstance(position, AtTime):
            return before_time(client, topic, position, margin, begin, last)
        if isinstance(position, MessageId):
            return position
        return begin if position is PositionWord.EARLIEST else last

    return run_for_each({topic: partial(resolve_one, topic, each) for topic, each in positions.items()})


def warn_of_late_starts(
    client: PlanningClient,
    option: str,
    starts: Mapping[TopicName, MessageId],
    bounds: Mapping[TopicName, PartitionBounds],
) -> None:
    """Warns of partitions that end before their start: nothing is read until they have grown past it.

    The end is the last stored entry, even one that readers do not receive, such as a transaction marker. So a
    start at such an entry is not reported.
    """
    late = [topic for topic, start in starts.items() if start.is_entry and start > bounds[topic].last]
    ends = run_all([partial(client.stored_end, topic) for topic in late])
    found = [
        f"{topic}: the start is after {starts[topic]}, the end is {bounds[topic].last}"
        for topic, end in zip(late, ends, strict=True)
        if not isinstance(end, PulsarError) and end < starts[topic].whole_entry
    ]
    if found:
        more = f"; and {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
        _log.warning(
            "%s is after the end of %d topic partitions; nothing of them is read until they have grown past "
            "it: %s%s. Check that the message id comes from the same topic, and that the topic was not "
            "deleted and created again",
            *(option, len(found), "; ".join(found[:_MAX_LISTED]), more),
        )


def before_time(
    client: PlanningClient,
    topic: TopicName,
    time: AtTime,
    margin: float,
    begin: MessageId,
    last: MessageId,
    *,
    looks_back: bool = False,
) -> MessageId:
    """Returns the position before the first message in ``(begin, last]`` published at or after ``time``.

    Returns ``last`` if there is no such message. ``looks_back``: whether to search the messages up to
    ``begin``, too. If one of these was published at or after ``time``, returns ``begin``.
    """
    if begin >= last:
        return last
    search = partial(client.first_at, topic, time.ms, round(1000 * margin))
    if looks_back and begin.is_entry:
        # If the ledger of ``begin`` is deleted, ``probe_entry`` returns the first message still stored.
        is_in_time = client.probe_entry(topic, begin).publish_time >= time.ms
        if is_in_time or search(MessageId.EARLIEST, begin) is not None:
            return begin
    first = search(begin.next_entry, last)
    return last if first is None else first.previous


def subscribed(client: PlanningClient, topics: Iterable[TopicName], name: str) -> dict[TopicName, MessageId]:
    """Returns the positions of a durable subscription on these partitions, and does not change it.

    Raises:
        OptionError: the subscription does not exist.
        BusyError: another consumer uses the subscription.
    """
    found = existing(client, topics, name)
    for topic, position in found.items():
        if position is None:
            raise OptionError(
                f"there is no subscription {name!r} to start from",
                topic=str(topic),
                advice="Correct predefinedSubscription, or choose another start with startingOffsets",
            )
    return {topic: position for topic, position in found.items() if position is not None}


def existing(
    client: PlanningClient, topics: Iterable[TopicName], name: str
) -> dict[TopicName, MessageId | None]:
    """Returns the positions of a durable subscription; None for partitions without the subscription.

    Raises BusyError: another consumer uses the subscription.
    """

    def mark_delete(topic: TopicName) -> MessageId | None:
        if not client.has_subscription(topic, name):
            return None
        with client.subscribe(topic, SubscriptionOptions(name=name, durable=True)) as consumer:
            return consumer.last_message_id().mark_delete

    return run_for_each({topic: partial(mark_delete, topic) for topic in topics})


def run_for_each(
    calls: Mapping[TopicName, Callable[[], T]],
    leave_out: type[PulsarError] | tuple[type[PulsarError], ...] = (),
) -> dict[TopicName, T]:
    """Runs calls in parallel, one per topic.

    Raises the first error that is not in ``leave_out``, with its topic.
    """
    found = {}
    for topic, answer in zip(calls, run_all(list(calls.values())), strict=True):
        if isinstance(answer, leave_out):
            continue
        if isinstance(answer, PulsarError):
            raise answer.located(str(topic))
        found[topic] = answer
    return found
