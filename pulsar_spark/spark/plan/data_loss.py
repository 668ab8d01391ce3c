"""What is loss, and what is not, when topics and subscriptions are not as this query left them.

Nobody but this query moves its durable subscription: it has no permits, so the broker does not either, but
for one thing: where a consumed ledger has gone it may stand at (next ledger, -1). What a subscription stands
behind is there, so wherever it stands otherwise, ahead of what is processed, somebody has skipped messages.

Whether they are gone is told by where the topic begins. A topic that begins behind the last processed message
may have lost some, or none where that was the last of its ledger: it counts as loss.
"""

from __future__ import annotations

import logging

from pulsar_spark.client import Client, LastMessageId
from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.resolve import probe_bounds
from pulsar_spark.spark.plan.subscription import Subscription

_log = logging.getLogger(__name__)


class LossRules:
    """Compares what the broker says with what the query has processed.

    Its methods raise :class:`DataLossError` where unprocessed messages are gone, or log a WARNING with topic,
    partition and range where ``failOnDataLoss`` is false; the query then goes on with what is there.

    Args:
        client: to see what is left.
        options: they say what is read, and whether loss is an error.
    """

    def __init__(self, client: Client, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._recreated: set[TopicName] = set()

    def on_restart(
        self,
        subscription: Subscription,
        topic: TopicName,
        position: MessageId,
        answer: LastMessageId,
        *,
        was_missing: bool,
    ) -> None:
        """Notice what happened to a partition while the query was stopped.

        Args:
            subscription: just opened, at the end where it was missing.
            topic: where.
            position: up to where the checkpoint has processed it.
            answer: how the broker answered when it was opened.
            was_missing: whether the broker did not have the subscription.
        """
        last, mark = answer.last, answer.mark_delete
        if last.entry >= 0 and last.ledger < position.ledger and self._was_taken(topic, position):
            _log.warning(
                "topic %s ends at %s, before the checkpoint's %s: it is another topic of that name, and is "
                "read from its beginning",
                *(topic, last, position),
            )
            subscription.put_back(topic, MessageId(-1, -1))
            self._recreated.add(topic)
        elif was_missing:
            why = "its subscription was removed, or the topic was deleted and made again"
            self._moved(subscription, topic, position, why, removed=True)
        elif mark.entry >= 0 and mark > position.last_whole_entry:
            self._moved(subscription, topic, position, "its subscription was moved by somebody else")

    def on_answer(
        self,
        subscription: Subscription,
        topic: TopicName,
        position: MessageId,
        seen: MessageId,
        answer: LastMessageId,
    ) -> None:
        """Notice that somebody moved or removed the subscription under the running query.

        One that was removed is made again, at the end, when its consumer subscribes again.

        Args:
            subscription: of the query.
            topic: where.
            position: up to where the query has processed it.
            seen: the last message that was seen there before.
            answer: the broker's answer now.
        """
        mark = answer.mark_delete
        is_behind_seen = position < seen < mark
        by_the_broker = mark.entry < 0 and not is_behind_seen
        if not subscription.is_ahead(topic, mark) or mark <= position.last_whole_entry or by_the_broker:
            subscription.stands(topic, mark)
        else:
            why = "its subscription was removed or moved by somebody else, or the topic was made again"
            self._moved(subscription, topic, position, why, removed=mark.entry < 0)

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

    def _was_taken(self, topic: TopicName, position: MessageId) -> bool:
        """Whether a message was there: else it is where the user begins, or the beginning of a ledger."""
        return position.entry >= 0 and position != self._options.start.named.get(topic)

    def _moved(
        self,
        subscription: Subscription,
        topic: TopicName,
        position: MessageId,
        why: str,
        *,
        removed: bool = False,
    ) -> None:
        """Hold again what is left; before that tell of what is not.

        An error leaves all as it was, so that the next start finds the same: what was ``removed`` is removed.
        """
        begin = probe_bounds(self._client, [topic])[topic].begin
        if begin <= position.last_whole_entry:
            _log.warning("%s: %s; nothing is lost", topic, why)
        else:
            try:
                self._lost(topic, position, begin, why)
            except DataLossError:
                if removed:
                    subscription.remove(topic)
                raise
        subscription.put_back(topic, position.last_whole_entry)

    def _lost(self, topic: TopicName, start: MessageId, end: MessageId | None, why: str) -> None:
        error = DataLossError(
            f"messages that this query had not processed are gone: {why}",
            topic=str(topic),
            message_id=f"({start}, {'the end' if end is None else end}]",
        )
        if self._options.fail_on_data_loss:
            raise error
        _log.warning("%s", error)
