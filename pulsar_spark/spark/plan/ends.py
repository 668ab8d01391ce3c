"""EndTracker: where topic partitions end, asked as seldom as a prompt answer allows.

Spark's default trigger asks every 12 ms. A partition to which messages come is asked again after a moment.
One whose end stays the same gets an :class:`ArrivalWatch`, to which the broker sends the first new entry by
itself: that costs no request while nothing comes, and yet a new message is seen at once. Whether the
partition is read to its end makes no difference: messages may wait there for hours, for
``minMessagesPerTrigger`` others. A partition is asked (:class:`EndSchedule`):

    since the last answer    watched                          asked
    less than 0.05 s         or not                           no
    more                     no                               yes
    more                     and an entry came                yes
    more                     and nothing came for 10 s        yes, 0.5 s later for each partition over 20
    more                     and nothing came                 no
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import ArrivalWatch, LastMessageId, PlanningClient, run_all
from pulsar_spark.errors import DeadlineError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName

_log = logging.getLogger(__name__)

# Seconds for which an answer is good.
_KNOWN_FOR = 0.05
# Seconds without a new message after which a partition is watched: opening a watch costs a few requests.
_IDLE_AFTER = 0.25
# Seconds after which a partition that is watched is asked all the same, and the least for each of many.
_ASKED_ANYWAY = 10.0
_ASKED_ANYWAY_EACH = 0.5

Ask = Callable[[Sequence[TopicName]], Mapping[TopicName, LastMessageId | PulsarError]]


class EndAnswers(NamedTuple):
    """What one refresh found out.

    Attributes:
        answers: of the partitions that were asked and answered.
        gone: the partitions that do not exist any more.
    """

    answers: Mapping[TopicName, LastMessageId]
    gone: Sequence[TopicName]


@dataclass(slots=True)
class EndSchedule:
    """When the end of one partition is asked for. Pure; times are seconds of a clock that never goes back.

    Attributes:
        last: the last message of the last answer.
        known_until: when that is too old.
        idle_at: when the partition counts as idle, unless a new message comes.
        ask_anyway_at: when it is asked although a watch shows nothing.
    """

    last: MessageId
    known_until: float
    idle_at: float
    ask_anyway_at: float = 0.0

    @classmethod
    def of(cls, last: MessageId, now: float) -> EndSchedule:
        """The schedule after a first answer."""
        return cls(last, now + _KNOWN_FOR, now + _IDLE_AFTER)

    def is_due(self, now: float, *, has_news: bool | None) -> bool:
        """Whether it is to be asked; ``has_news`` says what its watch shows, None that it has none."""
        if now < self.known_until:
            return False
        return has_news is None or has_news or now >= self.ask_anyway_at

    def asked(self, now: float) -> None:
        """Take in that it was asked, with an answer or without."""
        self.known_until = now + _KNOWN_FOR

    def answered(self, last: MessageId, now: float) -> None:
        """Take in an answer."""
        if self.last != last:
            self.last, self.idle_at = last, now + _IDLE_AFTER

    def is_idle(self, now: float) -> bool:
        """Whether it is worth a watch."""
        return now >= self.idle_at

    def watched(self, now: float, partitions: int) -> None:
        """Take in that a watch was opened, or tried to; ``partitions`` is the number of all."""
        self.ask_anyway_at = now + max(_ASKED_ANYWAY, _ASKED_ANYWAY_EACH * partitions)


@dataclass(slots=True)
class _Tracked:
    """One partition: when it is asked, its watch while it is idle, and whether its last question failed."""

    schedule: EndSchedule
    watch: ArrivalWatch | None = None
    has_failed: bool = False

    def is_due(self, now: float) -> bool:
        has_news = None if self.watch is None else self.watch.moved
        return self.schedule.is_due(now, has_news=has_news)


class EndTracker:
    """The ends of the partitions of one query.

    Args:
        client: for the clock and the watches.
        ask: asks the broker for the last messages of partitions, all at the same time.
        on_chunk: called with each partition in which a part of a chunked message was met.
    """

    def __init__(self, client: PlanningClient, ask: Ask, on_chunk: Callable[[TopicName], None]) -> None:
        self._client = client
        self._ask = ask
        self._on_chunk = on_chunk
        self._tracked: dict[TopicName, _Tracked] = {}

    def add(self, answers: Mapping[TopicName, LastMessageId]) -> None:
        """Track more partitions, which have just answered."""
        now = self._client.now()
        for topic, answer in answers.items():
            self._tracked[topic] = _Tracked(EndSchedule.of(answer.last, now))

    def drop(self, topic: TopicName) -> None:
        """Stop tracking a partition."""
        tracked = self._tracked.pop(topic, None)
        if tracked is not None:
            self._close_watches([tracked])

    def close(self) -> None:
        """Stop tracking all partitions."""
        self._close_watches(self._tracked.values())
        self._tracked.clear()

    def refresh(self) -> EndAnswers:
        """Ask the partitions that are due.

        A broker that does not answer is logged, and asked again by the next call: an exception would end the
        query. Until it answers, its partitions are left out.

        Raises:
            PulsarError: the broker refuses the answer.
        """
        now = self._client.now()
        due = [topic for topic, tracked in self._tracked.items() if tracked.is_due(now)]
        answers: dict[TopicName, LastMessageId] = {}
        gone = []
        for topic, answer in self._ask(due).items() if due else ():
            if isinstance(answer, TopicNotFoundError):
                gone.append(topic)
            elif isinstance(answer, PulsarError):
                if not (answer.retriable or isinstance(answer, DeadlineError)):
                    raise answer
                # Asked again soon: one warning until it answers.
                level = logging.DEBUG if self._tracked[topic].has_failed else logging.WARNING
                _log.log(level, "the end of a topic is not known now, it is asked again: %s", answer)
                self._tracked[topic].has_failed = True
            else:
                answers[topic] = answer
                self._tracked[topic].has_failed = False
        now = self._client.now()
        for topic, found in answers.items():
            self._tracked[topic].schedule.answered(found.last, now)
        for topic in due:
            self._tracked[topic].schedule.asked(now)
        return EndAnswers(answers, gone)

    def renew_watches(self, topics: Sequence[TopicName]) -> None:
        """Close the watches of partitions that have answered, and open new ones for those that are idle.

        To be called when the answers are judged: what goes wrong here must not hide what they say.

        Raises:
            PulsarError: what arrived at a watch cannot be had.
        """
        for topic in topics:
            watch = self._tracked[topic].watch
            if watch is not None and watch.is_chunk:
                self._on_chunk(topic)
        # A watch is for one use, or may have missed something: another begins where the end is now.
        self._close_watches([self._tracked[topic] for topic in topics])
        now = self._client.now()
        self._open_watches([topic for topic in topics if self._tracked[topic].schedule.is_idle(now)])

    def _open_watches(self, topics: list[TopicName]) -> None:
        def open_watch(topic: TopicName) -> ArrivalWatch:
            return self._client.watch_arrivals(topic, self._tracked[topic].schedule.last.whole_entry)

        watches = run_all([partial(open_watch, topic) for topic in topics]) if topics else []
        now = self._client.now()
        for topic, watch in zip(topics, watches, strict=True):
            tracked = self._tracked[topic]
            if isinstance(watch, PulsarError):
                _log.info("%s is asked again and again, since it cannot be watched: %s", topic, watch)
            else:
                tracked.watch = watch
            tracked.schedule.watched(now, len(self._tracked))

    def _close_watches(self, partitions: Iterable[_Tracked]) -> None:
        closing = [(tracked, tracked.watch) for tracked in partitions if tracked.watch is not None]
        if closing:
            run_all([watch.close for _, watch in closing])
        for tracked, _ in closing:
            tracked.watch = None
