"""What is loss, and what is not, when topics and subscriptions are not as this query left them.

Nobody but this query moves its durable subscription: it has no permits, so the broker does not either, but
for one thing: it takes the last consumed ledger away and then stands at (next ledger, -1).
"""

from __future__ import annotations

import logging

from pulsar_spark.client import LastMessageId
from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options import SourceOptions
from pulsar_spark.spark.planner import not_behind
from pulsar_spark.spark.subscription import Subscription

_log = logging.getLogger(__name__)


class LossRules:
    """Compares what the broker says with what the query has processed.

    Its methods raise :class:`DataLossError` where unprocessed messages are gone, or log a WARNING with topic,
    partition and range where ``failOnDataLoss`` is false; the query then goes on with what is there.

    Args:
        options: they say what is read, and whether loss is an error.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._recreated: set[TopicName] = set()

    def on_restart(
        self, subscription: Subscription, topic: TopicName, position: MessageId, answer: LastMessageId
    ) -> None:
        """Notice what happened to a partition while the query was stopped.

        Args:
            subscription: just opened.
            topic: where.
            position: up to where the checkpoint has processed it.
            answer: how the broker answered when it was opened.
        """
        last = answer.last
        if answer.mark_delete > not_behind(position):
            self._moved(subscription, topic, position, None)
        elif last.entry >= 0 and last.ledger < position.ledger and position != self._named_start(topic):
            _log.warning(
                "topic %s ends at %s, before the checkpoint's %s: it is another topic of that name, and is "
                "read from its beginning",
                *(topic, last, position),
            )
            subscription.put_back(topic, MessageId(-1, -1))
            self._recreated.add(topic)

    def on_answer(
        self,
        subscription: Subscription,
        topic: TopicName,
        position: MessageId,
        seen: MessageId,
        answer: LastMessageId,
    ) -> None:
        """Notice that somebody moved or removed the subscription under the running query.

        Args:
            subscription: of the query.
            topic: where.
            position: up to where the query has processed it.
            seen: the last message that was seen there before.
            answer: the broker's answer now.
        """
        if subscription.was_moved(topic, answer.mark_delete):
            self._moved(subscription, topic, position, seen)

    def topic_gone(self, topic: TopicName, position: MessageId, last: MessageId) -> None:
        """A topic, or one partition, was deleted under the running query; ``last`` was seen there."""
        if position < last:
            self._lost(topic, position, last, "the topic was deleted")
        else:
            _log.warning("topic %s was deleted; all that was seen of it is processed", topic)

    def gone_while_stopped(self, topic: TopicName, position: MessageId, name: str) -> None:
        """A partition of the checkpoint is not read any more; ``name`` is the query's subscription."""
        pattern = self._options.pattern
        is_read = topic.base in self._options.topics or topic in self._options.topics
        if is_read or (pattern is not None and pattern.matches(topic)):
            self._lost(topic, position, None, "the topic was deleted while the query was stopped")
        else:
            _log.warning("the query reads %s no longer; remove the subscription %s from there", topic, name)

    def take_recreated(self) -> set[TopicName]:
        """Partitions that another topic of that name has now, since this was asked last."""
        recreated, self._recreated = self._recreated, set()
        return recreated

    def _named_start(self, topic: TopicName) -> object:
        return self._options.start.named.get(topic)

    def _moved(
        self, subscription: Subscription, topic: TopicName, position: MessageId, seen: MessageId | None
    ) -> None:
        """Hold again what is left, and tell of what is not.

        Args:
            subscription: that somebody moved, or removed.
            topic: where.
            position: up to where the query has processed it.
            seen: the last message that was seen there; None where the query did not run meanwhile.
        """
        name, found = subscription.name, subscription.put_back(topic, not_behind(position))
        if found <= not_behind(position):
            _log.warning("subscription %s was moved on %s; nothing is lost", name, topic)
        elif seen is not None and position >= seen:
            _log.warning("subscription %s was moved on %s, where all that was seen is processed", name, topic)
        else:
            self._lost(topic, position, found, "its subscription was removed or moved by somebody else")

    def _lost(self, topic: TopicName, start: MessageId, end: MessageId | None, why: str) -> None:
        error = DataLossError(
            f"messages that this query had not processed are gone: {why}",
            topic=str(topic),
            message_id=f"({start}, {'the end' if end is None else end}]",
            advice="Look at the topic's retention, TTL and subscriptions; failOnDataLoss=false goes on",
        )
        if self._options.fail_on_data_loss:
            raise error
        _log.warning("%s", error)
