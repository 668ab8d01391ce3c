"""The durable subscription of one query: it holds what Spark has not checkpointed, on each topic partition.

It is made before the first row is planned, so that the broker keeps what is not processed. It gets no
permits: nothing is sent to it, and the broker moves it only as this file says. Whoever else moves it makes
data go away.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

from pulsar_spark.client import (
    Client,
    Consumer,
    Deadline,
    InitialPosition,
    LastMessageId,
    SubscriptionOptions,
    run_all,
)
from pulsar_spark.errors import (
    BusyError,
    NotAllowedError,
    PulsarError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId, TopicName

_log = logging.getLogger(__name__)


class Subscription:
    """One durable, exclusive subscription on any number of partitions.

    Args:
        client: where to connect.
        name: of the subscription, the same on each partition.
        chunks_expire: seconds for which an unfinished chunked message is waited for.

    Attributes:
        name: of the subscription.
        begins: by partition, the position of the subscription when this run opened it.
    """

    def __init__(self, client: Client, name: str, chunks_expire: float) -> None:
        self.name = name
        self.begins: dict[TopicName, MessageId] = {}
        self._client = client
        self._consumers: dict[TopicName, Consumer] = {}
        self._acknowledged: dict[TopicName, MessageId] = {}
        self._chunks_expire = chunks_expire
        self._processed: dict[TopicName, deque[tuple[Deadline, MessageId]]] = {}

    def open(self, initial: Mapping[TopicName, InitialPosition]) -> dict[TopicName, LastMessageId]:
        """Take the subscription on more partitions; after a failure it may be had on some of them.

        Args:
            initial: where it begins on partitions that do not have it yet.

        Returns:
            Where each partition ends, and where the subscription stands there.

        Raises:
            BusyError: another query has it.
            BrokerError: it cannot be had on one of them.
        """

        def open_one(topic: TopicName, position: InitialPosition) -> LastMessageId:
            # Brokers remove idle partitions; the topic's metadata still names them: they may be made again.
            options = SubscriptionOptions(
                name=self.name, durable=True, initial=position, create=topic.partition >= 0
            )
            consumer = self._consumers[topic] = Consumer(self._client, topic, options)
            return consumer.last_message_id()

        answers = run_all([partial(open_one, topic, position) for topic, position in initial.items()])
        opened = {}
        for topic, answer in zip(initial, answers, strict=True):
            if isinstance(answer, PulsarError):
                raise named(answer, self.name).located(str(topic))
            opened[topic] = answer
            self.begins[topic] = self._acknowledged[topic] = answer.mark_delete
        return opened

    def missing(self, topics: Sequence[TopicName]) -> set[TopicName]:
        """The partitions on which the broker does not have it (any more); to be asked before ``open``.

        Raises:
            BrokerError: one of them could not be asked.
        """
        calls = [partial(subscription_exists, self._client, topic, self.name) for topic in topics]
        found = set()
        for topic, exists in zip(topics, run_all(calls), strict=True):
            if isinstance(exists, TopicNotFoundError) or exists is False:
                found.add(topic)
            elif isinstance(exists, PulsarError):
                raise exists.located(str(topic))
        return found

    def ask(self, topics: Sequence[TopicName]) -> dict[TopicName, LastMessageId | PulsarError]:
        """Ask for the last messages, all at the same time and within one operation timeout."""
        deadline = self._client.operation()
        calls = [partial(self._consumers[topic].last_message_id, deadline) for topic in topics]
        return dict(zip(topics, run_all(calls), strict=True))

    def backlogs(self, topics: Sequence[TopicName]) -> dict[TopicName, int]:
        """Entries that are not acknowledged, of partitions whose broker answers."""
        counts = run_all([self._consumers[topic].backlog for topic in topics])
        found = zip(topics, counts, strict=True)
        return {topic: count for topic, count in found if not isinstance(count, PulsarError)}

    def is_ahead(self, topic: TopicName, mark_delete: MessageId) -> bool:
        """Whether the broker tells a position ahead of what was acknowledged."""
        return mark_delete > self._acknowledged[topic]

    def stands(self, topic: TopicName, mark_delete: MessageId) -> None:
        """Take the broker's position as it is.

        One behind ours is that of a broker that crashed before it wrote ours down; ours is sent again.
        """
        self._acknowledged[topic] = mark_delete

    def put_back(self, topic: TopicName, position: MessageId) -> None:
        """Hold all that is there behind ``position``."""
        consumer = self._consumers[topic]
        consumer.seek(position if position.entry >= 0 else MessageId(-1, -1))
        self.begins[topic] = self._acknowledged[topic] = consumer.last_message_id().mark_delete

    def remove(self, topic: TopicName) -> None:
        """Remove it from one partition; a broker that does not answer is logged."""
        try:
            self._consumers[topic].unsubscribe()
            self.drop(topic)
        except PulsarError as error:
            _log.warning("subscription %s stays behind on topic %s: %s", self.name, topic, error)

    def hold_chunks(self, topic: TopicName) -> None:
        """Acknowledge late from now on, where chunked messages are about.

        A batch may end inside one. Its first chunks must stay until the batch that holds the last has read
        them, so they are kept for as long as an unfinished message is waited for.
        """
        self._processed.setdefault(topic, deque())

    def without_chunks(self, positions: Mapping[TopicName, MessageId]) -> dict[TopicName, MessageId]:
        """What of ``positions`` is news to the broker, of partitions where no chunks are about."""
        return {
            topic: done
            for topic, position in positions.items()
            if topic not in self._processed and self._is_news(topic, done := position.last_whole_entry)
        }

    def _is_news(self, topic: TopicName, done: MessageId) -> bool:
        return topic in self._consumers and done.entry >= 0 and done > self._acknowledged[topic]

    def acknowledge(self, positions: Mapping[TopicName, MessageId]) -> None:
        """Tell the broker that everything up to ``positions`` is processed, where that is news.

        A failure is logged and made good by the next call: the checkpoint is the truth, the broker only holds
        more than it must meanwhile.
        """
        due = {}
        for topic, position in positions.items():
            done = self._settled(topic, position.last_whole_entry)
            if self._is_news(topic, done):
                due[topic] = done
        calls = [partial(self._consumers[topic].ack_cumulative, done) for topic, done in due.items()]
        for (topic, done), failure in zip(due.items(), run_all(calls) if calls else (), strict=True):
            if isinstance(failure, PulsarError):
                _log.warning("an acknowledgement failed and is tried again: %s", failure)
            else:
                self._acknowledged[topic] = done

    def _settled(self, topic: TopicName, done: MessageId) -> MessageId:
        """The position that no unfinished chunked message can begin before."""
        queue = self._processed.get(topic)
        if queue is None:
            return done
        if not queue or queue[-1][1] < done:
            queue.append((Deadline(self._chunks_expire), done))
        settled = MessageId(-1, -1)
        while queue and queue[0][0].passed:
            settled = queue.popleft()[1]
        return settled

    def drop(self, topic: TopicName) -> None:
        """Let go of one partition, which is gone."""
        self.begins.pop(topic, None)
        self._processed.pop(topic, None)
        consumer = self._consumers.pop(topic, None)
        if consumer is not None:
            consumer.close()

    def unsubscribe(self) -> None:
        """Remove the subscription from the brokers and close it; what cannot be removed is logged."""
        deadline = self._client.operation()
        topics = list(self._consumers)
        answers = run_all([partial(self._consumers[topic].unsubscribe, deadline) for topic in topics])
        for topic, answer in zip(topics, answers, strict=True):
            if isinstance(answer, PulsarError):
                _log.warning("subscription %s stays behind on topic %s: %s", self.name, topic, answer)
            else:
                del self._consumers[topic]
        self.close()

    def close(self) -> None:
        """Let go of it; the broker keeps it and its position."""
        consumers, self._consumers = list(self._consumers.values()), {}
        if consumers:
            run_all([consumer.close for consumer in consumers])


def subscription_exists(client: Client, topic: TopicName, name: str) -> bool:
    """Whether a durable subscription is there: brokers refuse a non-durable one of its name then."""
    try:
        Consumer(client, topic, SubscriptionOptions(name=name, durable=False)).close()
    except NotAllowedError:
        return True
    return False


def named(error: PulsarError, name: str) -> PulsarError:
    """The same error; where another consumer has the subscription it says which one that is."""
    if not isinstance(error, BusyError):
        return error
    return BusyError(
        f"subscription {name!r} is in use: {error.what}",
        topic=error.topic,
        advice="Stop the other query or consumer, or choose another predefinedSubscription",
    )
