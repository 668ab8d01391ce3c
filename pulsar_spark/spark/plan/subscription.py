"""A query's durable subscription: it retains, on each topic partition, what Spark has not checkpointed.

It is created before the first row is planned, so that the broker keeps unprocessed messages. It has no
permits: the broker sends it nothing, and moves it only as :mod:`data_loss` says. If anybody else moves it,
data may be lost, which :mod:`loss_check` finds out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from pulsar_spark.client import (
    PROMPT,
    Consumer,
    InitialPosition,
    LastMessageId,
    Pauses,
    PendingCalls,
    PlanningClient,
    SubscriptionOptions,
    TopicEnd,
    close_consumers,
    run_all,
)
from pulsar_spark.errors import BusyError, DeadlineError, PulsarError, TopicEndedError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.consumer import SubscriptionSettings
from pulsar_spark.spark.plan.partition import PROBED_ENTRIES, AckStep, PartitionState, Seen

_log = logging.getLogger(__name__)

# Maximum partitions on which it is opened at the same time.
_OPENED_AT_ONCE = 32


class OpenAnswers(NamedTuple):
    """The result of opening a subscription on partitions.

    Attributes:
        opened: end of each partition, and the subscription's position there.
        failed: errors of partitions on which it could not be opened.
        gone: partitions that do not exist (any more).
    """

    opened: Mapping[TopicName, LastMessageId]
    failed: Mapping[TopicName, PulsarError]
    gone: Sequence[TopicName]


class _Opened(NamedTuple):
    consumer: Consumer
    answer: LastMessageId


class _Request(NamedTuple):
    """When a last message was requested, and up to where acknowledgements had been sent."""

    at: float
    asked: MessageId


class _ChunkProbe(NamedTuple):
    """Whether there are chunks; if so, the publish time of an entry in ms, or why it is not known."""

    has_chunks: bool
    published: int | PulsarError = 0


class Subscription:
    """One durable, exclusive subscription on any number of partitions.

    Args:
        client: client of the cluster.
        name: name of the subscription, the same on each partition.
        settings: settings of the subscription at the broker.
        processed: up to where partitions are processed before it is opened.

    Attributes:
        name: name of the subscription.
        partitions: state of each partition on which it is open.
    """

    def __init__(
        self,
        client: PlanningClient,
        name: str,
        settings: SubscriptionSettings = SubscriptionSettings(),  # noqa: B008 - it is immutable
        processed: Mapping[TopicName, MessageId] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._processed = processed
        self._settings = settings
        self.partitions: dict[TopicName, PartitionState] = {}
        self._client = client
        self._consumers: dict[TopicName, Consumer] = {}
        self._held_for_chunks: set[TopicName] = set()
        self._openings: PendingCalls[TopicName] = PendingCalls(_OPENED_AT_ONCE)
        # Requests for the last message; only these open a lost consumer again, on a thread. The consumer is
        # used for nothing else meanwhile.
        self._asked: PendingCalls[TopicName] = PendingCalls()
        self._requests: dict[TopicName, _Request] = {}  # the last one of each partition
        self._answers: dict[TopicName, LastMessageId | PulsarError] = {}  # to be given by the next ask()
        self._acks: PendingCalls[TopicName] = PendingCalls()
        self._ack_pauses: Pauses[TopicName] = Pauses()
        self._counts: PendingCalls[TopicName] = PendingCalls()
        self._probes: PendingCalls[TopicName] = PendingCalls()
        self._probed: dict[TopicName, tuple[MessageId, float]] = {}  # what is probed now, and since when

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
        answers = self.try_open(initial)
        for error in answers.failed.values():
            raise error
        return answers.opened

    def try_open(
        self, initial: Mapping[TopicName, InitialPosition], patience: float | None = None
    ) -> OpenAnswers:
        """Like :meth:`open`, but partitions on which it cannot be opened now are not an error.

        Args:
            initial: as in :meth:`open`.
            patience: seconds to wait; later calls give the results that take longer. None: until all are
                known.
        """
        answers = self._openings.run(
            {topic: partial(self._open_one, topic, position) for topic, position in initial.items()},
            patience,
        )
        opened, failed, gone = {}, {}, []
        in_order = {topic: answers[topic] for topic in initial if topic in answers}
        for topic, answer in (in_order | answers).items():
            if isinstance(answer, TopicNotFoundError):
                gone.append(topic)
            elif isinstance(answer, PulsarError):
                failed[topic] = _naming(answer, self.name).located(str(topic))
            else:
                self._consumers[topic], opened[topic] = answer
                self.partitions[topic] = PartitionState.opened(answer.answer)
        return OpenAnswers(opened, failed, gone)

    def _open_one(self, topic: TopicName, position: InitialPosition) -> _Opened:
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
        consumer = self._client.subscribe(topic, options)
        try:
            return _Opened(consumer, self._last_message_id(topic, consumer))
        except PulsarError:
            consumer.begin_close()
            raise

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
        return {topic for topic, exists in self.exists(topics).items() if not exists}

    def exists(self, topics: Sequence[TopicName]) -> dict[TopicName, bool | None]:
        """Whether the broker has it on each partition; None for a partition that does not exist.

        Raises:
            BrokerError: a broker did not answer.
        """
        calls = [partial(self._client.has_subscription, topic, self.name) for topic in topics]
        found: dict[TopicName, bool | None] = {}
        for topic, exists in zip(topics, run_all(calls), strict=True):
            if isinstance(exists, PulsarError) and not isinstance(exists, TopicNotFoundError):
                raise exists.located(str(topic))
            found[topic] = None if isinstance(exists, TopicNotFoundError) else exists
        return found

    def drop(self, topic: TopicName) -> None:
        """Close it on one partition, which is gone."""
        self.partitions.pop(topic, None)
        consumer = self._consumers.pop(topic, None)
        if consumer is not None and not self._leave(topic, consumer):
            consumer.begin_close()

    def _leave(self, topic: TopicName, consumer: Consumer) -> bool:
        """Drop the requests of a partition; True if its consumer is closed when one of them has ended."""
        for pending in (self._acks, self._counts, self._probes):
            pending.leave(topic, _ignore)
        self._ack_pauses.succeeded(topic)
        self._answers.pop(topic, None)
        return self._asked.leave(topic, lambda _: consumer.begin_close())

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
        """Close it, within 5 s; the broker keeps it and its position."""
        consumers, self._consumers = self._consumers, {}
        self.partitions.clear()
        self._openings.leave_all(_close_opened)
        close_consumers([each for topic, each in consumers.items() if not self._leave(topic, each)])

    # ---- what the broker answers

    def ask(
        self, topics: Sequence[TopicName], patience: float | None = None
    ) -> dict[TopicName, LastMessageId | PulsarError]:
        """Request the last messages of partitions, in parallel.

        A partition that does not answer is :attr:`silent`, until a later call has its answer.

        Args:
            topics: partitions to ask, unless they are silent.
            patience: seconds to wait for the answers, of partitions that have answered promptly before; None:
                until all have answered.
        """
        answers, self._answers = self._answers, {}
        answers |= self._ask([topic for topic in topics if topic not in answers], patience)
        for topic, answer in answers.items():
            if not isinstance(answer, PulsarError):
                state = self.partitions[topic]
                state.asked_at, state.asked_before = self._requests[topic]
        return answers

    def _ask(
        self, topics: Iterable[TopicName], patience: float | None
    ) -> dict[TopicName, LastMessageId | PulsarError]:
        now, busy, answers = self._client.now(), self._asked.busy, self._asked.take()
        calls, begun = {}, {}
        for topic in topics:
            if topic in busy or topic in answers:
                continue
            consumer = self._consumers[topic]
            # The time of the request, not of the answer: the partition may have grown since the answer was
            # made.
            self._requests[topic] = _Request(now, self.partitions[topic].asked)
            self._answers.pop(topic, None)  # judged late, it would not know what was requested since
            calls[topic] = partial(self._last_message_id, topic, consumer)
            # In a compacted topic, or a segment, one answer may require other requests.
            is_alone = not self._client.read_compacted and not self._client.may_have_old_end(topic)
            request = consumer.begin_last_message_id() if is_alone else None
            if request is not None:
                begun[topic] = request
        return answers | self._asked.run(calls, patience, begun)

    @property
    def is_opening(self) -> bool:
        """Whether :meth:`try_open` has more results later."""
        return self._openings.has_more

    @property
    def silent(self) -> set[TopicName]:
        """The partitions that have not answered for a while; they get no further requests meanwhile."""
        return self._asked.busy

    @property
    def late(self) -> set[TopicName]:
        """The partitions whose last answer took a while, or takes so now; they are not waited for."""
        return self._asked.late

    def _last_message_id(self, topic: TopicName, consumer: Consumer) -> LastMessageId:
        """A partition's end; if its log is empty, the last message that compaction has kept."""
        answer = consumer.last_message_id()
        if self._client.may_have_old_end(topic):
            state = self.partitions.get(topic)
            processed = self._processed.get(topic, MessageId.EARLIEST).whole_entry
            seen = processed if state is None else state.last
            return answer._replace(last=self._client.visible_end(topic, answer.last, seen))
        if self._client.read_compacted and not answer.last.is_message:
            return answer._replace(last=self._client.bounds(topic).last)
        return answer

    def backlogs(self, topics: Sequence[TopicName]) -> dict[TopicName, int]:
        """The number of unacknowledged entries, of partitions whose broker answers promptly."""
        counts = self._counts.take()
        busy = self._asked.busy | self._counts.busy | counts.keys()
        asked = [topic for topic in topics if topic not in busy]
        begun = {
            topic: request
            for topic in asked
            if (request := self._consumers[topic].begin_backlog()) is not None
        }
        counts |= self._counts.run({}, PROMPT, begun)
        return {topic: count for topic, count in counts.items() if not isinstance(count, PulsarError)}

    def note_ends(
        self,
        told_tail: Callable[[TopicName], TopicEnd | None],
        is_expected: Callable[[TopicName], bool] = lambda topic: False,
    ) -> None:
        """Note which topics have ended; warn of each once.

        Args:
            told_tail: what a partition's tail was told. A consumer without permits is told only when it
                acknowledges the last message, or when the topic is terminated after that.
            is_expected: whether it is a segment, which ends because others follow.
        """
        for topic, state in self.partitions.items():
            if state.topic_end is None:
                end = self._consumers[topic].topic_end or told_tail(topic)
                if end is not None and not is_expected(topic):
                    state.topic_end = end
                    ended = TopicEndedError(
                        f"nothing more will come from this topic: {state.topic_end.value}", topic=str(topic)
                    )
                    _log.warning("%s", ended)

    # ---- moving it

    def put_back(self, topic: TopicName, position: MessageId) -> None:
        """Move it back, so that it holds everything that exists after ``position``."""
        consumer = self._consumers[topic]
        self._acks.leave(topic, _ignore)
        consumer.seek(position if position.is_message else MessageId.EARLIEST)
        self.partitions[topic].moved(consumer.last_message_id().mark_delete)

    def skip_to_end(self, topic: TopicName, answer: LastMessageId) -> None:
        """Skip everything that the partition holds, as the broker's latest answer shows it."""
        last = answer.last.whole_entry
        # What they answer is about positions that the topic does not have any more.
        for pending in (self._acks, self._probes):
            pending.leave(topic, _ignore)
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
        now = self._client.now()
        self._take_acks(self._acks.take())
        waiting = self._waiting(now)
        steps = {
            topic: step
            for topic, state in self.partitions.items()
            if topic not in waiting
            and (step := state.ack_step(now, expire, seen(topic), is_polled=is_polled)) is not AckStep.NOTHING
        }
        probed = self._probe_chunks([topic for topic, step in steps.items() if step is AckStep.PROBE])
        if expire == 0:
            self._warn_of_chunks()
        positions = {
            topic: self.partitions[topic].settle(expire)
            for topic, step in steps.items()
            if step is AckStep.ACKNOWLEDGE
        }
        for topic, entry in probed.items():
            state = self.partitions[topic]
            # Without chunks everything up to the probed entry is settled; more may be processed by now.
            positions[topic] = state.settle(expire) if state.has_chunks else entry
        self.acknowledge(positions)
        return not waiting and all(
            self.partitions[topic].ack_step(now, expire) is AckStep.NOTHING for topic in steps
        )

    def acknowledge(self, positions: Mapping[TopicName, MessageId]) -> None:
        """Acknowledge everything up to ``positions`` that is not acknowledged yet.

        A failure is logged, and a later call acknowledges the same: the checkpoint is authoritative, and the
        broker only retains more than necessary meanwhile.
        """
        waiting = self._waiting(self._client.now())
        due = {
            topic: entry
            for topic, position in positions.items()
            if topic not in waiting
            and self.partitions[topic].is_unacknowledged(entry := position.last_whole_entry)
        }
        lost = self._send_acks(due)
        if lost:
            found = self._ask(lost, PROMPT)
            self._answers |= found
            again = self._send_acks({topic: due[topic] for topic in lost & found.keys()})
            for topic in again | (lost - found.keys()):
                self._ack_failed(topic, "the broker has closed its consumer")

    def _waiting(self, now: float) -> set[TopicName]:
        """The partitions that are not acknowledged now: a request is open, or failed lately."""
        return self._asked.busy | self._acks.busy | self._ack_pauses.resting(now)

    def _send_acks(self, due: Mapping[TopicName, MessageId]) -> set[TopicName]:
        """Acknowledge, and return the partitions whose consumer must first be opened again."""
        begun = {
            topic: request
            for topic, entry in due.items()
            if (request := self._consumers[topic].begin_ack_cumulative(entry)) is not None
        }
        for topic in begun:
            self.partitions[topic].asked = due[topic]
        return (due.keys() - begun.keys()) | self._take_acks(self._acks.run({}, PROMPT, begun), due.keys())

    def _take_acks(
        self, answers: Mapping[TopicName, MessageId | PulsarError], due: Set[TopicName] = frozenset()
    ) -> set[TopicName]:
        """Process answers; return those of ``due`` whose consumer must be opened again."""
        lost = set()
        for topic, answer in answers.items():
            if isinstance(answer, MessageId):
                self.partitions[topic].acknowledged = answer
                self._ack_pauses.succeeded(topic)
            elif answer.retriable and topic in due:
                lost.add(topic)
            else:
                if isinstance(answer, DeadlineError) and topic not in self._asked.busy:
                    self._consumers[topic].lose(answer)
                self._ack_failed(topic, answer)
        return lost

    def _ack_failed(self, topic: TopicName, why: object) -> None:
        is_first = self._ack_pauses.failed(topic, self._client.now())
        _log.log(
            logging.WARNING if is_first else logging.DEBUG,
            "an acknowledgement of %s failed and is retried: %s",
            topic,
            why,
        )

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

    def _probe_chunks(self, topics: Sequence[TopicName]) -> dict[TopicName, MessageId]:
        """Probe partitions for chunks up to what is processed; returns what was probed, also earlier."""

        def probe(topic: TopicName, entry: MessageId, *, has_chunks: bool) -> _ChunkProbe:
            if not has_chunks and not self._client.has_chunks_before(topic, entry, PROBED_ENTRIES):
                return _ChunkProbe(has_chunks=False)
            try:
                published = self._client.probe_entry(topic, entry).publish_time
            except PulsarError as error:
                return _ChunkProbe(has_chunks=True, published=error)
            # With the publish time of a fast clock, chunks of other producers would expire too early.
            return _ChunkProbe(has_chunks=True, published=min(published, self._client.time_ms()))

        # One that ends between the two looks is busy: its result must not count as that of a new one.
        began, busy, done = self._client.now(), self._probes.busy, self._probes.take()
        calls = {}
        for topic in topics:
            state = self.partitions[topic]
            entry = state.processed
            if entry is not None and topic not in busy and topic not in done:
                self._probed[topic] = entry, began
                calls[topic] = partial(probe, topic, entry, has_chunks=state.has_chunks)
        done |= self._probes.run(calls, PROMPT)
        return {topic: entry for topic, found in done.items() if (entry := self._take_probe(topic, found))}

    def _take_probe(self, topic: TopicName, found: _ChunkProbe | PulsarError) -> MessageId | None:
        """Note what a probe has found; return up to where it was probed, None if that is not known."""
        state, (entry, began), now = self.partitions[topic], self._probed.pop(topic), self._client.now()
        has_chunks, published = (False, found) if isinstance(found, PulsarError) else found
        if has_chunks:
            state.meet_chunks()
        if isinstance(published, PulsarError) and (published.is_passing or state.has_chunks):
            _log.info(
                "the last messages of %s could not be probed for chunks; this is retried later: %s",
                topic,
                published,
            )
            state.probe_failed(now, now - began)
            return None
        if has_chunks and not isinstance(published, PulsarError):
            state.dated(entry, published, now)
        state.probed(entry, now)
        return entry


def _ignore(_: object) -> None:
    """Drop a result."""


def _close_opened(opened: object) -> None:
    if isinstance(opened, _Opened):
        opened.consumer.begin_close()


def _naming(error: PulsarError, name: str) -> PulsarError:
    """The same error, which names the subscription if another consumer uses it."""
    if not isinstance(error, BusyError):
        return error
    return BusyError(
        f"subscription {name!r} is in use: {error.what}",
        topic=error.topic,
        advice="Stop the other query or consumer, or choose another predefinedSubscription",
    )
