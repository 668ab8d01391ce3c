"""What the planner asks and tells the broker: where topics end, and how far a query has come.

A query holds one durable subscription on each of its topic partitions. It is made before the first row is
planned, so that the broker keeps what is not processed; it gets no permits, so that nothing is sent to it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    Deadline,
    LastMessageId,
    SubscriptionOptions,
)
from pulsar_spark.errors import ConnectError, DeadlineError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.planner import not_behind
from pulsar_spark.wire.commands import InitialPosition

_log = logging.getLogger(__name__)

# Seconds until a broker that cannot be reached at all is an error, where a query has just begun.
FIRST_CONTACT = 4.0

# Seconds for which the ends of topics are not asked again: Spark's default trigger asks every 12 ms.
_KNOWN_FOR = 0.05

# Seconds after which the broker's own word replaces what was acknowledged: a crash may take its cursors back.
_ACKNOWLEDGED_FOR = 10.0


def find_partitions(options: ClientOptions, topics: Iterable[TopicName]) -> list[TopicName]:
    """All partitions of ``topics``, each once: the first contact of a query.

    It gives up soon, so that a wrong address is an error in seconds, not after the operation timeout.

    Raises:
        TopicNotFoundError: one of them does not exist.
        BrokerError: no broker could be asked.
    """
    with _impatient_client(options) as client:
        return list(dict.fromkeys(name for topic in topics for name in client.partitions(topic)))


def check_reachable(options: ClientOptions) -> None:
    """Make sure that a broker answers, giving up as soon as :func:`find_partitions`; it may answer anything.

    Raises:
        ConnectError, DeadlineError: no broker answered.
    """
    with _impatient_client(options) as client:
        try:
            client.partitions(TopicName.parse("pulsar-spark"))
        except (ConnectError, DeadlineError):
            raise
        except PulsarError as error:
            _log.debug("a broker is there: %s", error)


def _impatient_client(options: ClientOptions) -> Client:
    return Client(
        replace(
            options,
            operation_timeout=min(FIRST_CONTACT, options.operation_timeout),
            connection_timeout=min(FIRST_CONTACT, options.connection_timeout),
        )
    )


def look(
    client: Client, topics: Iterable[TopicName], initial: InitialPosition
) -> dict[TopicName, LastMessageId]:
    """Where topic partitions begin (or end) and what their last message is, through readers closed at once.

    Nothing stays behind at the broker.

    Args:
        client: where to connect.
        topics: partitions.
        initial: what ``mark_delete`` of the answers is: the position before the first message, or the end.
    """
    return {topic: _look_at(client, topic, initial) for topic in topics}


def _options(topic: TopicName, name: str, initial: InitialPosition, *, durable: bool) -> SubscriptionOptions:
    # Brokers remove idle partitions; the topic's metadata still names them, so they may be made again.
    create = topic.partition >= 0
    return SubscriptionOptions(name=name, durable=durable, initial=initial, create=create)


def _look_at(client: Client, topic: TopicName, initial: InitialPosition) -> LastMessageId:
    options = _options(topic, f"spark-pulsar-planner-{uuid.uuid4()}", initial, durable=False)
    with Consumer(client, topic, options) as consumer:
        return consumer.last_message_id()


class Subscription:
    """The durable subscription of one query on all its topic partitions.

    Args:
        client: where to connect.
        topics: partitions.
        name: of the subscription, the same on each of them.
        initial: where it begins on partitions that do not have it yet.
        fresh: whether the name is new, so that nobody misses the subscription where it cannot be had on all.

    Attributes:
        name: of the subscription.
        begins: by partition, the position of the subscription when it was opened: everything up to there is
            taken, so this is where reading begins if no checkpoint knows better.

    Raises:
        BrokerError: it cannot be had on one of them; it is then closed on the others, and removed if fresh.
    """

    def __init__(
        self,
        client: Client,
        topics: Iterable[TopicName],
        name: str,
        initial: InitialPosition,
        *,
        fresh: bool = False,
    ) -> None:
        self.name = name
        self.begins: dict[TopicName, MessageId] = {}
        self._consumers: dict[TopicName, Consumer] = {}
        self._lasts: dict[TopicName, MessageId] = {}
        self._known = Deadline(0.0)
        try:
            for topic in topics:
                options = _options(topic, name, initial, durable=True)
                consumer = self._consumers[topic] = Consumer(client, topic, options)
                self._lasts[topic], self.begins[topic] = consumer.last_message_id()
        except BaseException:  # SystemExit, too: that is how Spark ends the planner
            if fresh:
                self.unsubscribe()
            self.close()
            raise
        self._order = list(self._consumers)
        self._acknowledged = dict(self.begins)
        self._trusted = Deadline(_ACKNOWLEDGED_FOR)

    def lasts(self) -> dict[TopicName, MessageId]:
        """The last message of each partition, as of now or of a moment ago.

        A broker that does not answer is logged, and asked again by the next call, after the others: an
        exception would end the query. Until it answers, its partitions are as they were.

        Raises:
            PulsarError: the broker will not give the answer, such as for a topic that was deleted.
        """
        if self._known.passed:
            self._look()
            self._known = Deadline(_KNOWN_FOR)
        return self._lasts

    def _look(self) -> None:
        """Ask for all ends, up to the first that is not answered: each costs the whole operation timeout."""
        trust = not self._trusted.passed
        if not trust:
            self._trusted = Deadline(_ACKNOWLEDGED_FOR)
        for number, topic in enumerate(self._order):
            try:
                last, mark_delete = self._consumers[topic].last_message_id()
            except PulsarError as error:
                if not (error.retriable or isinstance(error, DeadlineError)):
                    raise
                _log.warning("the end of a topic is not known now, it is asked again: %s", error)
                self._order = [*self._order[number + 1 :], *self._order[: number + 1]]
                return
            self._lasts[topic] = last
            if not trust:
                self._acknowledged[topic] = mark_delete

    def acknowledge(self, positions: Mapping[TopicName, MessageId]) -> None:
        """Tell the broker that everything up to ``positions`` is processed, where that is news.

        A failure is logged and made good by the next call: the checkpoint is the truth, the broker only holds
        more than it must meanwhile.
        """
        for topic, position in positions.items():
            done = not_behind(position)
            consumer = self._consumers.get(topic)
            if consumer is None or done.entry < 0 or done <= self._acknowledged[topic]:
                continue
            try:
                consumer.ack_cumulative(done)
            except PulsarError as error:
                _log.warning("an acknowledgement failed and is tried again: %s", error)
                return
            self._acknowledged[topic] = done

    def unsubscribe(self) -> None:
        """Remove the subscription from the brokers and close it; what cannot be removed is logged.

        A broker that does not answer is not waited for again: what is left then stays.
        """
        left = dict(self._consumers)
        for topic, consumer in self._consumers.items():
            try:
                consumer.unsubscribe()
                del left[topic]
            except PulsarError as error:
                _log.warning("subscription %s cannot be removed from topic %s: %s", self.name, topic, error)
                if error.retriable or isinstance(error, DeadlineError):
                    break
        if left:
            _log.warning("subscription %s stays behind on %s", self.name, ", ".join(map(str, left)))
        self._consumers = left
        self.close()

    def close(self) -> None:
        """Let go of it; the broker keeps it and its position."""
        for consumer in self._consumers.values():
            consumer.close()
