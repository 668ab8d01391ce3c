"""A query's durable subscription: it retains, on each topic partition, what Spark has not checkpointed.

It is created before the first row is planned, so that the broker keeps unprocessed messages. It has no
permits: the broker sends it nothing, and moves it only as :mod:`data_loss` says. If anybody else moves it,
data may be lost, which :mod:`loss_check` finds out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import (
    Consumer,
    Deadline,
    InitialPosition,
    LastMessageId,
    PendingCalls,
    PlanningClient,
    SubscriptionOptions,
    TopicEnd,
    run_all,
)
from pulsar_spark.errors import BusyError, PulsarError, TopicEndedError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.consumer import SubscriptionSettings
from pulsar_spark.spark.plan.partition import PROBED_ENTRIES, AckStep, PartitionState, Seen

_log = logging.getLogger(__name__)

# Seconds to wait for the answers of all partitions. Those without an answer by then are requested again, on a
# thread that retries.
_PATIENCE = 1.0


class OpenAnswers(NamedTuple):
    """The result of opening a subscription on partitions; partitions that do not exist are left out.

    Attributes:
        opened: end of each partition, and the subscription's position there.
        failed: errors of partitions on which it could not be opened.
    """

    opened: Mapping[TopicName, LastMessageId]
    failed: Mapping[TopicName, PulsarError]


class Subscription:
    """One durable, exclusive subscription on any number of partitions.

    Args:
        client: client of the cluster.
        name: name of the subscription, the same on each partition.
        settings: settings of the subscription at the broker.

    Attributes:
        name: name of the subscription.
        partitions: state of each partition on which it is open.
    """

    def __init__(
        self,
        client: PlanningClient,
        name: str,
        settings: SubscriptionSettings = SubscriptionSettings(),  # noqa: B008 - it is immutable
    ) -> None:
        self.name = name
        self._settings = settings
        self.partitions: dict[TopicName, PartitionState] = {}
        self._client = client
        self._consumers: dict[TopicName, Consumer] = {}
        self._held_for_chunks: set[TopicName] = set()
        self._asked: PendingCalls[TopicName] = PendingCalls()
        self._asked_at: dict[TopicName, float] = {}  # start of the last call that was answered

    # ---- opening and closing

    def open(self, initial: Mapping[TopicName, InitialPosition]) -> Mapping[TopicName, LastMessageId]:
        """Open it on more partitions; those that do not exist (any more) are left out.

        After a failure it may be open on some of them.

        Args:
            initial: initial position on partitions that do not have the subscription yet.

        Returns:
            The end of each partition, and the subscription's position there.

        Raises:
            BusyError: another query uses it.
            BrokerError: it cannot be opened on one of the partitions.
        """
        opened, failed = self.try_open(initial)
        for error in failed.values():
            raise error
        return opened

    def try_open(self, initial: Mapping[TopicName, InitialPosition]) -> OpenAnswers:
        """Like :meth:`open`, but partitions on which it cannot be opened now are not an error."""

        def open_one(topic: TopicName, position: InitialPosition) -> LastMessageId:
            # Brokers remove idle partitions, but the topic's metadata still names them: they may be created
            # again.
            options = SubscriptionOptions(
                name=self.name,
                durable=True,
                initial=position,
                create=topic.partition >= 0,
                properties=self._settings.properties,
                is_replicated=self._settings.is_replicated,
            )
            consumer = self._consumers[topic] = self._client.subscribe(topic, options)
            return self._last_message_id(topic, consumer)

        answers = run_all([partial(open_one, topic, position) for topic, position in initial.items()])
        opened, failed = {}, {}
        for topic, answer in zip(initial, answers, strict=True):
            if isinstance(answer, PulsarError):
                self.drop(topic)
                if not isinstance(answer, TopicNotFoundError):
                    failed[topic] = _naming(answer, self.name).located(str(topic))
            else:
                opened[topic] = answer
                self.partitions[topic] = PartitionState.opened(answer)
        return OpenAnswers(opened, failed)

    def begin_before(self, topics: Iterable[TopicName]) -> None:
        """Move it before the partitions' logs: messages that compaction has kept outlive the logs."""
        if self._client.read_compacted:
            for topic in topics:
                self.partitions[topic].start = MessageId.EARLIEST

    def missing(self, topics: Sequence[TopicName]) -> set[TopicName]:
        """The partitions on which the broker does not have it (any more). Call it before ``open``.

        Raises:
            BrokerError: a broker did not answer.
        """
        calls = [partial(self._client.has_subscription, topic, self.name) for topic in topics]
        found = set()
        for topic, exists in zip(topics, run_all(calls), strict=True):
            if isinstance(exists, TopicNotFoundError) or exists is False:
                found.add(topic)
            elif isinstance(exists, PulsarError):
                raise exists.located(str(topic))
        return found

    def drop(self, topic: TopicName) -> None:
        """Close it on one partition, which is gone."""
        self.partitions.pop(topic, None)
        consumer = self._consumers.pop(topic, None)
        if consumer is not None and not self._asked.leave(topic, consumer.close):
            consumer.close()

    def remove(self, topic: TopicName) -> None:
        """Remove it from one partition and close it there. A failure is logged, and leaves it open."""
        try:
            self._consumers[topic].unsubscribe()
            self.drop(topic)
        except PulsarError as error:
            _log.warning("subscription %s cannot be removed from topic %s: %s", self.name, topic, error)

    def unsubscribe(self) -> None:
        """Remove the subscription from the brokers and close it. Failures are logged."""
        deadline = self._client.operation()
        silent = self.silent
        for topic in silent:
            _log.warning(
                "subscription %s cannot be removed from topic %s: the broker does not respond",
                self.name,
                topic,
            )
        topics = [topic for topic in self._consumers if topic not in silent]
        answers = run_all([partial(self._consumers[topic].unsubscribe, deadline) for topic in topics])
        for topic, answer in zip(topics, answers, strict=True):
            if isinstance(answer, PulsarError):
                _log.warning("subscription %s cannot be removed from topic %s: %s", self.name, topic, answer)
            else:
                del self._consumers[topic]
        self.close()

    def close(self) -> None:
        """Close it; the broker keeps it and its position."""
        consumers, self._consumers = self._consumers, {}
        self.partitions.clear()
        closing = [
            each.close for topic, each in consumers.items() if not self._asked.leave(topic, each.close)
        ]
        if closing:
            run_all(closing)

    # ---- what the broker answers

    def ask(
        self, topics: Sequence[TopicName], patience: float | None = None
    ) -> dict[TopicName, LastMessageId | PulsarError]:
        """Request the last messages of partitions, in parallel and within one operation timeout.

        A partition that does not answer is :attr:`silent`, until a later call has its answer.

        Args:
            topics: partitions to ask, unless they are silent.
            patience: seconds to wait for the answers; None: until all have answered.
        """
        deadline = self._client.operation()
        until = Deadline(_PATIENCE if patience is None else patience)

        def ask_one(topic: TopicName, consumer: Consumer) -> LastMessageId:
            now = self._client.now()
            answer = self._last_message_id(topic, consumer, deadline)
            self._asked_at[topic] = now
            return answer

        answers = self._ask_at_once(topics, until)
        calls = {
            topic: partial(ask_one, topic, self._consumers[topic]) for topic in topics if topic not in answers
        }
        found = self._asked.run(calls, None if patience is None else until.left)
        for topic, answer in found.items():
            # The time of the request, not of the answer: the partition may have grown since the answer was
            # made.
            if not isinstance(answer, PulsarError):
                self.partitions[topic].asked_at = self._asked_at[topic]
        return {**found, **answers}

    def _ask_at_once(self, topics: Sequence[TopicName], until: Deadline) -> dict[TopicName, LastMessageId]:
        """Ask all in one thread; the answers of those that give one at the first attempt and in time."""
        if self._client.read_compacted:  # one answer may require another request
            return {}
        now, silent = self._client.now(), self.silent
        begun = [
            (topic, self._consumers[topic].begin_last_message_id()) for topic in topics if topic not in silent
        ]
        answers = {}
        for topic, wait in begun:
            answer = wait(until.left)
            if answer is not None:
                answers[topic] = answer
                self.partitions[topic].asked_at = now
        return answers

    @property
    def silent(self) -> set[TopicName]:
        """The partitions that have not answered for a while; they get no further requests meanwhile."""
        return self._asked.busy

    def _last_message_id(
        self, topic: TopicName, consumer: Consumer, deadline: Deadline | None = None
    ) -> LastMessageId:
        """A partition's end; if its log is empty, the last message that compaction has kept."""
        answer = consumer.last_message_id(deadline)
        state = self.partitions.get(topic)
        is_fresh = state is None or state.position is None or not state.position.is_message
        if self._client.read_compacted and is_fresh and not answer.last.is_message:
            return answer._replace(last=self._client.bounds(topic).last)
        return answer

    def backlogs(self, topics: Sequence[TopicName]) -> dict[TopicName, int]:
        """The number of unacknowledged entries, of partitions whose broker answers."""
        silent = self.silent
        topics = [topic for topic in topics if topic not in silent]
        counts = run_all([self._consumers[topic].backlog for topic in topics])
        found = zip(topics, counts, strict=True)
        return {topic: count for topic, count in found if not isinstance(count, PulsarError)}

    def note_ends(self, told_tail: Callable[[TopicName], TopicEnd | None]) -> None:
        """Note which topics have ended; warn of each once.

        Args:
            told_tail: what a partition's tail was told. A consumer without permits is told only when it
                acknowledges the last message, or when the topic is terminated after that.
        """
        for topic, state in self.partitions.items():
            if state.topic_end is None:
                state.topic_end = self._consumers[topic].topic_end or told_tail(topic)
                if state.topic_end is not None:
                    ended = TopicEndedError(
                        f"nothing more will come from this topic: {state.topic_end.value}", topic=str(topic)
                    )
                    _log.warning("%s", ended)

    # ---- moving it

    def put_back(self, topic: TopicName, position: MessageId) -> None:
        """Move it back, so that it holds everything that exists after ``position``."""
        consumer = self._consumers[topic]
        consumer.seek(position if position.is_message else MessageId.EARLIEST)
        self.partitions[topic].moved(consumer.last_message_id().mark_delete)

    def skip_to_end(self, topic: TopicName, answer: LastMessageId) -> None:
        """Skip everything that the partition holds, as the broker's latest answer shows it."""
        last = answer.last.whole_entry
        self.partitions[topic].moved(answer.mark_delete)
        self.acknowledge({topic: last})
        self.partitions[topic].set_back(last)

    # ---- acknowledging

    def meet_chunks(self, topic: TopicName) -> None:
        """Note that a part of a chunked message was found in a partition."""
        state = self.partitions.get(topic)
        if state is not None:
            state.meet_chunks()

    def acknowledge_processed(
        self,
        expire: float,
        seen: Callable[[TopicName], Seen | None] = lambda topic: None,
        *,
        is_polled: bool = False,
    ) -> bool:
        """Acknowledge what is processed, as far as chunked messages allow.

        Args:
            expire: seconds to wait for the rest of an incomplete chunked message, by publish times. 0: no
                limit.
            seen: returns the entries that a partition's tail has seen.
            is_polled: whether it will be called again soon.

        Returns:
            Whether nothing is left to acknowledge later.
        """
        now, silent = self._client.now(), self.silent
        steps = {
            topic: step
            for topic, state in self.partitions.items()
            if topic not in silent
            and (step := state.ack_step(now, expire, seen(topic), is_polled=is_polled)) is not AckStep.NOTHING
        }
        probed = self._probe_chunks([topic for topic, step in steps.items() if step is AckStep.PROBE])
        if expire == 0:
            self._warn_of_chunks()
        self.acknowledge(
            {
                topic: self.partitions[topic].settle(expire)
                for topic, step in steps.items()
                if step is AckStep.ACKNOWLEDGE or topic in probed
            }
        )
        return not silent and all(
            self.partitions[topic].ack_step(now, expire) is AckStep.NOTHING for topic in steps
        )

    def acknowledge(self, positions: Mapping[TopicName, MessageId]) -> None:
        """Acknowledge everything up to ``positions`` that is not acknowledged yet.

        A failure is logged, and the next call acknowledges the same: the checkpoint is authoritative, and the
        broker only retains more than necessary meanwhile.
        """
        due = {
            topic: entry
            for topic, position in positions.items()
            if self.partitions[topic].is_unacknowledged(entry := position.last_whole_entry)
        }
        for topic, entry in due.items():
            self.partitions[topic].asked = entry
        begun = [self._consumers[topic].begin_ack_cumulative(entry) for topic, entry in due.items()]
        until, again = Deadline(_PATIENCE), {}
        for (topic, entry), is_confirmed in zip(due.items(), begun, strict=True):
            if is_confirmed(until.left):
                self.partitions[topic].acknowledged = entry
            else:
                again[topic] = entry
        calls = [partial(self._consumers[topic].ack_cumulative, entry) for topic, entry in again.items()]
        for (topic, entry), failure in zip(again.items(), run_all(calls) if calls else (), strict=True):
            if isinstance(failure, PulsarError):
                _log.warning("an acknowledgement failed and is retried: %s", failure)
            else:
                self.partitions[topic].acknowledged = entry

    def _warn_of_chunks(self) -> None:
        """Log once for each partition with chunks that it is no longer acknowledged."""
        for topic, state in self.partitions.items():
            if state.has_chunks and topic not in self._held_for_chunks:
                self._held_for_chunks.add(topic)
                _log.warning(
                    "%s has chunked messages: it is not acknowledged any more in this run of the query, "
                    "because with expireTimeOfIncompleteChunkedMessage=0 they may complete at any time",
                    topic,
                )

    def _probe_chunks(self, topics: Sequence[TopicName]) -> set[TopicName]:
        """Probe partitions for chunks up to what is processed; returns those for which it succeeded."""

        def probe(topic: TopicName, entry: MessageId) -> None:
            state = self.partitions[topic]
            if not state.has_chunks and self._client.has_chunks_before(topic, entry, PROBED_ENTRIES):
                state.meet_chunks()
            if state.has_chunks:
                # With the publish time of a fast clock, chunks of other producers would expire too early.
                published = min(self._client.probe_entry(topic, entry).publish_time, self._client.time_ms())
                state.dated(entry, published, self._client.now())

        entries = {
            topic: entry for topic in topics if (entry := self.partitions[topic].processed) is not None
        }
        calls = [partial(probe, topic, entry) for topic, entry in entries.items()]
        done, began = set(), self._client.now()
        for (topic, entry), failure in zip(entries.items(), run_all(calls) if calls else (), strict=True):
            state = self.partitions[topic]
            if isinstance(failure, PulsarError) and (failure.is_passing or state.has_chunks):
                _log.info(
                    "the last messages of %s could not be probed for chunks; this is retried later: %s",
                    topic,
                    failure,
                )
                now = self._client.now()
                state.probe_failed(now, now - began)
            else:
                state.probed(entry, self._client.now())
                done.add(topic)
        return done


def _naming(error: PulsarError, name: str) -> PulsarError:
    """The same error, which names the subscription if another consumer uses it."""
    if not isinstance(error, BusyError):
        return error
    return BusyError(
        f"subscription {name!r} is in use: {error.what}",
        topic=error.topic,
        advice="Stop the other query or consumer, or choose another predefinedSubscription",
    )
