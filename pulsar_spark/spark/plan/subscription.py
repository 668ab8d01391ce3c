"""A query's durable subscription: it retains the messages of each partition that are not checkpointed.

The subscription is created before the first row is planned, so the broker retains unprocessed messages. Its
consumers have no permits, so the broker sends no messages. The query moves the subscription only in the cases
of :mod:`data_loss`. If another program moves it, data may be lost; :mod:`loss_check` detects this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from pulsar_spark.client import (
    PROMPT,
    Calls,
    Consumer,
    InitialPosition,
    Kind,
    LastMessageId,
    PendingCalls,
    PlanningClient,
    SubscriptionOptions,
    close_consumers,
    run_all,
)
from pulsar_spark.errors import BusyError, PulsarError, TopicEndedError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import SubscriptionSettings
from pulsar_spark.spark.plan.acknowledge import Acknowledger
from pulsar_spark.spark.plan.partition import Life, Partition
from pulsar_spark.spark.plan.resolve import run_for_each

_log = logging.getLogger(__name__)

# Maximum partitions on which a subscription is opened at the same time.
_OPENED_AT_ONCE = 32


class OpenAnswers(NamedTuple):
    """The result of opening a subscription on partitions.

    ``opened``: end of each partition, and the subscription's position.
    """

    opened: Mapping[TopicName, LastMessageId]
    failed: Mapping[TopicName, PulsarError]
    gone: Sequence[TopicName]


class _Opened(NamedTuple):
    consumer: Consumer
    answer: LastMessageId


class Subscription:
    """One durable, exclusive subscription on any number of partitions.

    Args:
        processed: positions up to which partitions are processed before the opening.

    Attributes:
        unsettled: partitions that may have changes or unfinished work; a trigger visits no other partitions.
    """

    def __init__(
        self,
        client: PlanningClient,
        calls: Calls[Partition],
        name: str,
        settings: SubscriptionSettings = SubscriptionSettings(),  # noqa: B008 - it is immutable
        processed: Mapping[TopicName, MessageId] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._processed = processed
        self._settings = settings
        self.partitions: dict[TopicName, Partition] = {}
        self.unsettled: dict[TopicName, Partition] = {}
        self._client = client
        self._calls = calls
        self._missing: set[TopicName] = set()
        self.openings: PendingCalls[TopicName] = PendingCalls(_OPENED_AT_ONCE)
        self._asked = calls[Kind.LAST_MESSAGE]
        self._acknowledger = Acknowledger(client, calls, self._reopen)
        self._answers: dict[Partition, LastMessageId | PulsarError] = {}  # returned by the next ask()

    # ---- opening and closing

    def open(self, initial: Mapping[TopicName, InitialPosition]) -> Mapping[TopicName, LastMessageId]:
        """Opens the subscription on more partitions; missing partitions are left out.

        After a failure the subscription may be open on some partitions.

        Args:
            initial: initial position on partitions that do not have the subscription yet.

        Returns:
            The end of each partition, and the subscription's position.

        Raises:
            BusyError: another query uses the subscription.
            BrokerError: opening failed on a partition.
        """
        answers = self.try_open(initial)
        for error in answers.failed.values():
            raise error
        return answers.opened

    def try_open(
        self, initial: Mapping[TopicName, InitialPosition], patience: float | None = None
    ) -> OpenAnswers:
        """Like :meth:`open`, but a failure on some partitions is not an error.

        ``patience``: seconds to wait; later calls return late results. None: wait for all results.
        """
        answers = self.openings.run(
            {topic: partial(self._open_one, topic, position) for topic, position in initial.items()}, patience
        )
        opened, failed, gone = {}, {}, []
        in_order = {topic: answers[topic] for topic in initial if topic in answers}
        for topic, answer in (in_order | answers).items():
            if isinstance(answer, TopicNotFoundError):
                gone.append(topic)
            elif isinstance(answer, PulsarError):
                failed[topic] = _naming(answer, self.name).located(str(topic))
            else:
                opened[topic] = answer.answer
                self.partitions[topic] = self.unsettled[topic] = Partition.opened(topic, *answer)
        return OpenAnswers(opened, failed, gone)

    def _open_one(self, topic: TopicName, position: InitialPosition) -> _Opened:
        # Missing partitions are created again, because brokers remove idle partitions of existing topics.
        options = SubscriptionOptions(
            name=self.name,
            durable=True,
            initial=position,
            create=topic.partition >= 0,
            properties=self._settings.properties,
            is_replicated=self._settings.is_replicated,
        )
        is_missing = topic in self._missing
        subscribe = self._client.create_subscription if is_missing else self._client.subscribe
        consumer = subscribe(topic, options)
        try:
            seen = self._processed.get(topic, MessageId.EARLIEST).whole_entry
            return _Opened(consumer, self._last_message_id(topic, consumer, seen))
        except PulsarError:
            consumer.begin_close()
            raise

    def begin_before(self, topics: Iterable[TopicName]) -> None:
        """Sets the start to EARLIEST for compacted reads, because the compacted ledger has older messages."""
        if self._client.read_compacted:
            for topic in topics:
                self.partitions[topic].start = MessageId.EARLIEST

    def missing(self, topics: Sequence[TopicName]) -> Set[TopicName]:
        """Returns the partitions that lack the subscription or do not exist. Call this before ``open``."""
        calls = {topic: partial(self._client.has_subscription, topic, self.name) for topic in topics}
        found = run_for_each(calls, TopicNotFoundError)
        self._missing = {topic for topic in topics if not found.get(topic)}
        return self._missing

    def drop(self, topic: TopicName) -> None:
        """Closes the subscription on one partition, which was deleted."""
        self.unsettled.pop(topic, None)
        partition = self.partitions.pop(topic, None)
        if partition is not None and not partition.close(self._calls):
            partition.consumer.begin_close()

    def note_done(self, segments: Set[TopicName]) -> None:
        """Records that sealed segments are read to their ends."""
        for topic in segments & self.partitions.keys():
            self.partitions[topic].life = Life.DONE

    def drop_done(self, segments: Set[TopicName]) -> None:
        """Closes the subscription on segments that are read to their ends and acknowledged."""
        for topic in segments & self.partitions.keys():
            state = self.partitions[topic]
            if state.acknowledged >= state.last:
                self.drop(topic)

    def remove(self, topic: TopicName) -> None:
        """Removes and closes the subscription on one partition. A failure is logged, and leaves it open."""
        try:
            self.partitions[topic].consumer.unsubscribe()
            self.drop(topic)
        except PulsarError as error:
            _log.warning("subscription %s cannot be removed from topic %s: %s", self.name, topic, error)

    def unsubscribe(self) -> None:
        """Removes the subscription from the brokers and closes it. Failures are logged."""
        text = "subscription %s cannot be removed from topic %s: %s"
        try:
            deadline, silent = self._client.operation(), self.silent
            for topic in silent:
                _log.warning(text, self.name, topic, "the broker does not respond")
            topics = [topic for topic in self.partitions if topic not in silent]
            answers = run_all(
                [partial(self.partitions[topic].consumer.unsubscribe, deadline) for topic in topics]
            )
            for topic, answer in zip(topics, answers, strict=True):
                if isinstance(answer, PulsarError):
                    _log.warning(text, self.name, topic, answer)
                else:
                    self.partitions.pop(topic).close(self._calls)
        finally:
            self.close()

    def close(self) -> None:
        """Closes the subscription, within 5 s; the broker keeps it and its position."""
        partitions, self.partitions = self.partitions, {}
        self.openings.leave_all(_close_opened)
        close_consumers([each.consumer for each in partitions.values() if not each.close(self._calls)])

    # ---- partitions that a trigger visits

    def unsettle(self, partitions: Iterable[Partition]) -> None:
        """Adds partitions with possible changes to ``unsettled``, if the subscription is open on them."""
        self.unsettled.update({each.topic: each for each in partitions if not each.is_closed})

    def settle(self, checkpointed: Mapping[TopicName, MessageId]) -> None:
        """Removes partitions from ``unsettled`` that need no work before their next entry arrives."""
        self.unsettled = {
            topic: state
            for topic, state in self.unsettled.items()
            if not state.is_settled or state.planned != checkpointed.get(topic)
        }

    # ---- answers of the broker

    def ask(
        self, partitions: Sequence[Partition], patience: float | None = None
    ) -> dict[Partition, LastMessageId | PulsarError]:
        """Requests the last messages of partitions, in parallel.

        A partition without an answer is silent, until a later call receives the answer.

        ``patience``: seconds to wait for partitions that have answered promptly before; None: wait for all
        answers.
        """
        kept = {each: answer for each, answer in self._answers.items() if not each.is_closed}
        self._answers = {}
        answers = kept | self._ask([each for each in partitions if each not in kept], patience)
        answers |= self._ask_for_hidden(answers, patience)
        self._note_silent(answers)
        for partition, answer in answers.items():
            if not isinstance(answer, PulsarError):
                partition.answered()
        return answers

    def _ask_for_hidden(
        self, answers: dict[Partition, LastMessageId | PulsarError], patience: float | None
    ) -> dict[Partition, LastMessageId | PulsarError]:
        """Removes answers "no message" that may be wrong, and requests the ends of these partitions again."""
        empty = [
            each
            for each, answer in answers.items()
            if isinstance(answer, LastMessageId) and not answer.last.is_entry
        ]
        unsure = [each for each in empty if each.may_hide_end]
        for each in empty:
            each.hides_end = each in unsure
        for each in unsure:
            del answers[each]
        return self._ask(unsure, patience) if unsure else {}

    def _note_silent(self, answered: Iterable[Partition]) -> None:
        """Marks partitions as silent while a request has no answer; warns once if the answer is late."""
        late = self._asked.late
        for each in answered:
            each.be_silent(is_silent=False)
            each.is_reported_late = each.is_reported_late and each in late
        for each in self._asked.busy:
            each.be_silent(is_silent=True)
            if each in late and not each.is_reported_late and not each.is_closed:
                each.is_reported_late = True
                _log.warning(
                    "%s does not respond promptly; it is left out of micro-batches until it responds",
                    each.topic,
                )

    def _ask(
        self, partitions: Iterable[Partition], patience: float | None
    ) -> dict[Partition, LastMessageId | PulsarError]:
        now, busy, answers = self._client.now(), self._asked.busy, self._asked.take()
        calls, begun = {}, {}
        for each in partitions:
            if each in busy or each in answers:
                continue
            # Records the time of the request, because the answer may lack entries stored after it.
            each.requested(now)
            self._answers.pop(each, None)  # an old answer does not show later acknowledgements
            calls[each] = partial(self._last_message_id, each.topic, each.consumer, each)
            # A compacted topic or a segment may need further requests, so a thread sends all its requests.
            is_alone = not self._client.read_compacted and not self._client.may_have_old_end(each.topic)
            request = each.consumer.begin_last_message_id() if is_alone and not each.hides_end else None
            if request is not None:
                begun[each] = request
        return answers | self._asked.run(calls, patience, begun)

    @property
    def silent(self) -> set[TopicName]:
        """Returns the partitions that have not answered for a while, and get no new requests."""
        return {each.topic for each in self._asked.busy if not each.is_closed}

    def _last_message_id(
        self, topic: TopicName, consumer: Consumer, seen: MessageId | Partition
    ) -> LastMessageId:
        """Returns a partition's end, even if the broker reports an older end or none.

        ``seen``: a known visible entry, or a partition, which has it as its field ``last``.
        """
        answer = consumer.last_message_id()
        seen = seen.last if isinstance(seen, Partition) else seen
        if self._client.may_have_old_end(topic):
            return answer._replace(last=self._client.visible_end(topic, answer.last, seen))
        if self._client.read_compacted and not answer.last.is_entry:
            return answer._replace(last=self._client.bounds(topic).last)
        if not answer.last.is_entry:
            return answer._replace(last=self._client.hidden_end(topic, answer.last, seen))
        return answer

    @property
    def is_waited_for(self) -> bool:
        """Whether a segment has messages that cannot be read yet, because older segments are read first."""
        return any(
            each.life is Life.HELD and each.end > each.position_or_start for each in self.unsettled.values()
        )

    def count_backlogs(self) -> None:
        """Counts unprocessed entries: within a ledger by entry numbers, otherwise by the broker."""
        across = [topic for topic, state in self.unsettled.items() if not state.count_backlog()]
        for topic, count in (self.backlogs(across) if across else {}).items():
            self.partitions[topic].backlog_counted(count)

    def backlogs(self, topics: Sequence[TopicName]) -> dict[TopicName, int]:
        """Returns the number of unacknowledged entries of partitions that answer promptly."""
        pending = self._calls[Kind.BACKLOG]
        counts = pending.take()
        busy = self._asked.busy | pending.busy | counts.keys()
        begun = {
            partition: request
            for partition in (self.partitions[topic] for topic in topics)
            if partition not in busy and (request := partition.consumer.begin_backlog()) is not None
        }
        counts |= pending.run({}, PROMPT, begun)
        return {each.topic: count for each, count in counts.items() if not isinstance(count, PulsarError)}

    def note_ends(self, is_expected: Callable[[TopicName], bool] = lambda topic: False) -> None:
        """Records which topics have ended; warns of each once.

        The subscription's consumer has no permits. So it receives the end only when it acknowledges the last
        message, or when the topic is terminated after that. A tail (``client/reading/probe``) has a permit,
        so it always receives the end.

        ``is_expected``: function that returns whether a topic is a segment, which ends because newer segments
        follow.
        """
        for topic, state in self.unsettled.items():
            if state.topic_end is None:
                end = state.consumer.topic_end or (None if state.tail is None else state.tail.topic_end)
                if end is not None and not is_expected(topic):
                    state.topic_end = end
                    ended = TopicEndedError(
                        f"nothing more will come from this topic: {state.topic_end.value}", topic=str(topic)
                    )
                    _log.warning("%s", ended)

    # ---- moving the subscription

    def put_back(self, topic: TopicName, position: MessageId) -> None:
        """Moves the subscription back, so that it retains all messages after ``position``."""
        partition = self.partitions[topic]
        self._calls[Kind.ACK].leave(partition, _ignore)
        partition.consumer.seek(position if position.is_entry else MessageId.EARLIEST)
        partition.moved(partition.consumer.last_message_id().mark_delete)

    def skip_to_end(self, topic: TopicName, answer: LastMessageId) -> None:
        """Skips all messages of the partition up to ``answer.last``, the last message at the broker."""
        partition, last = self.partitions[topic], answer.last.whole_entry
        # Results of pending calls are dropped, because the topic no longer has their positions.
        self._calls[Kind.ACK].leave(partition, _ignore)
        self._calls[Kind.CHUNKS].leave(partition, _ignore)
        partition.moved(answer.mark_delete)
        self.acknowledge({topic: last})
        partition.set_back(last)

    # ---- acknowledging

    def acknowledge_processed(self, expire: float, *, is_polled: bool = False) -> bool:
        """Acknowledges processed positions; see :meth:`Acknowledger.acknowledge_processed`."""
        return self._acknowledger.acknowledge_processed(self.unsettled.values(), expire, is_polled=is_polled)

    def acknowledge(self, positions: Mapping[TopicName, MessageId]) -> None:
        """Acknowledges each partition up to its position in ``positions``."""
        self._acknowledger.acknowledge({self.partitions[topic]: each for topic, each in positions.items()})

    def _reopen(self, partitions: Iterable[Partition]) -> Set[Partition]:
        """Requests last messages, which opens lost consumers again; returns the partitions that answered."""
        found = self._ask(partitions, PROMPT)
        self._answers |= found
        return found.keys()


def _ignore(_: object) -> None:
    """Drops a result."""


def _close_opened(opened: object) -> None:
    if isinstance(opened, _Opened):
        opened.consumer.begin_close()


def _naming(error: PulsarError, name: str) -> PulsarError:
    """Adds the subscription's name to a BusyError; returns any other error unchanged."""
    if not isinstance(error, BusyError):
        return error
    return BusyError(
        f"subscription {name!r} is in use: {error.what}",
        topic=error.topic,
        advice="Stop the other query or consumer, or choose another predefinedSubscription",
    )
