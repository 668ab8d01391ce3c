"""QueryPlanner: what Spark's planner process keeps for one run of a streaming query.

Spark checkpoints the start and end of each batch; what is decided here must come out the same from there.

    fresh query     initial() makes a subscription: its position is the start. From "latest" the first
                    latest() takes nothing: Spark checkpoints an empty batch 0 and with it the start.
    every trigger   latest(start): Spark has checkpointed ``start`` as processed, it is acknowledged
    restart         ranges(start, end) of the unfinished batch, or latest(start): both name the subscription
                    to go on with. For a batch 0 that did not finish Spark calls initial() once more and hands
                    over that start. The subscription made for it is removed again, and the batch begins no
                    later than where the one in ``end`` stands, to which nothing was acknowledged yet.
"""

from __future__ import annotations

import logging
import uuid

from pulsar_spark.client import shared_client
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.offsets import Offsets
from pulsar_spark.spark.options import SourceOptions
from pulsar_spark.spark.planner import Range, plan_end, plan_ranges
from pulsar_spark.spark.positions import Word
from pulsar_spark.spark.subscription import Subscription, find_partitions, look
from pulsar_spark.wire.commands import InitialPosition

_log = logging.getLogger(__name__)


class QueryPlanner:
    """Plans the batches of one run of a query and acknowledges what is processed.

    Raises:
        TopicNotFoundError: a topic does not exist.
        BrokerError: no broker answers within :data:`subscription.FIRST_CONTACT` seconds.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._earliest = options.start.everywhere is Word.EARLIEST
        self._client = shared_client(options.client)
        self._topics = find_partitions(options.client, options.topics)
        self._subscription: Subscription | None = None
        self._fresh: Offsets | None = None
        self._fresh_is_planned = False
        self._start_is_durable = False
        self._frozen: dict[TopicName, MessageId] | None = None

    def initial(self) -> Offsets:
        """Where a query begins that has no checkpoint; always the same in one run."""
        if self._fresh is None:
            name = f"{self._options.subscription_prefix}-{uuid.uuid4()}"
            earliest = self._earliest
            position = InitialPosition.EARLIEST if earliest else InitialPosition.LATEST
            _log.info("a new query makes the subscription %s", name)
            self._subscription = Subscription(self._client, self._topics, name, position, fresh=True)
            self._fresh = Offsets(name, self._subscription.begins)
        return self._fresh

    def latest(self, start: Offsets) -> Offsets:
        """Acknowledge ``start``, which is processed, and return the next end; ``start`` if nothing is new."""
        subscription = self._follow(start)
        end = self._end(subscription, start)
        self._fresh_is_planned = True
        return end

    def _end(self, subscription: Subscription, start: Offsets) -> Offsets:
        if start == self._fresh and not self._start_is_durable and not self._earliest:
            self._start_is_durable = True
            return start
        subscription.acknowledge(start.positions)
        return plan_end(start, subscription.begins, self._frozen or subscription.lasts())

    def ends(self) -> dict[TopicName, MessageId]:
        """The last message of each partition, for the query's progress; empty before the first batch."""
        return {} if self._subscription is None else self._frozen or self._subscription.lasts()

    def freeze(self) -> None:
        """Take what the topics hold now as all there is (Trigger.AvailableNow)."""
        looks = look(self._client, self._topics, InitialPosition.LATEST)
        self._frozen = {topic: seen.last for topic, seen in looks.items()}

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What the tasks of the batch ``(start, end]`` read."""
        return plan_ranges(start, end, self._follow(end).begins)

    def commit(self, end: Offsets) -> None:
        """Acknowledge a batch that Spark has finished."""
        self._follow(end).acknowledge(end.positions)

    def close(self) -> None:
        """Let go of the subscription, which stays for the next run; if no checkpoint can name it, it goes."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._leave(subscription)

    def _leave(self, subscription: Subscription) -> None:
        made_here = self._fresh is not None and subscription.name == self._fresh.subscription
        if made_here and not self._fresh_is_planned:
            subscription.unsubscribe()
        else:
            subscription.close()

    def _follow(self, offsets: Offsets) -> Subscription:
        """The subscription that a checkpointed offset names; on a partition that is new: from earliest."""
        before, name = self._subscription, offsets.subscription
        if before is not None and before.name == name:
            return before
        gone = sorted(str(topic) for topic in offsets.positions.keys() - set(self._topics))
        if gone:
            _log.warning(
                "the query reads %s no longer; remove the subscription %s from there", ", ".join(gone), name
            )
        self._subscription = None
        try:
            found = Subscription(self._client, self._topics, name, InitialPosition.EARLIEST)
        finally:
            if before is not None:
                self._leave(before)
        self._subscription = found
        return found
