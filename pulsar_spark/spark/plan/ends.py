"""EndTracker: where topic partitions end, with few requests and little delay.

Spark's default trigger runs every 12 ms. A partition whose end stays the same gets a :class:`Tail`, to which
the broker sends the next entry unasked. That costs no request while nothing comes, and a new message is still
seen immediately. The tail follows while a few entries come at a time. A partition that gets many has no tail;
its end is requested again after a moment. Whether it is read to its end makes no difference: messages may
wait there for hours, until ``minMessagesPerTrigger`` is reached. When the end is requested
(:class:`EndSchedule`):

    since the last answer    with a tail                      requested
    less than 0.05 s         or not                           no
    more                     no                               yes
    more                     and an entry came                yes
    more                     and nothing came for 10 to 20 s, yes
                             or 0.5 to 1 s a partition
    more                     and nothing came                 no

Entries up to the known end do not count as new while the tail follows. If triggers are rare, they may be
processed later than a second after the answer. If the tail has waited for permits or for one of these entries
meanwhile, the end is requested.

A tail that cannot be opened, for example because of a limit of consumers, is tried again after a growing
pause; the partition's end is requested meanwhile.

A partition whose tail receives nothing takes no work: :class:`Arrivals` reports new entries, and the
remaining requests wait in a queue by time.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import (
    PROMPT,
    Arrivals,
    LastMessageId,
    Pauses,
    PendingCalls,
    PlanningClient,
    Tail,
    TopicEnd,
)
from pulsar_spark.errors import DeadlineError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.partition import Seen

_log = logging.getLogger(__name__)

# Seconds for which an answer is valid.
_KNOWN_FOR = 0.05
# Seconds without a new message after which a partition gets a tail: opening it costs a few requests.
_IDLE_AFTER = 0.25
# Seconds after an answer. A tail that then lacks an entry, or permits, may not show what came since.
_FOLLOWS_WITHIN = 1.0
# Seconds after which the end of a partition with a tail is requested anyway; the minimum for each of many
# partitions; the step of these times: requests due at the same time cost one round.
_ASKED_ANYWAY = 10.0
_ASKED_ANYWAY_EACH = 0.5
_STEP = 5.0

Ask = Callable[[Sequence[TopicName]], Mapping[TopicName, LastMessageId | PulsarError]]


class EndAnswers(NamedTuple):
    """The result of one refresh.

    Attributes:
        answers: the answers of partitions that were asked.
        gone: the partitions that no longer exist.
    """

    answers: Mapping[TopicName, LastMessageId]
    gone: Sequence[TopicName]


@dataclass(slots=True)
class EndSchedule:
    """The times when one partition's end is requested. Pure; times are seconds of a monotonic clock.

    Attributes:
        last: last message in the last answer.
        known_until: when that answer becomes too old.
        idle_at: when the partition counts as idle, unless a new message comes.
        ask_anyway_at: when the end is requested although the tail shows nothing new.
    """

    last: MessageId
    known_until: float
    idle_at: float
    ask_anyway_at: float = 0.0

    @classmethod
    def of(cls, last: MessageId, now: float) -> EndSchedule:
        """The schedule after a first answer."""
        return cls(last, now + _KNOWN_FOR, now + _IDLE_AFTER)

    def due_at(self, *, has_news: bool) -> float:
        """When to request the end. ``has_news``: whether there is no tail, or it shows new entries."""
        return self.known_until if has_news else max(self.known_until, self.ask_anyway_at)

    def asked(self, now: float) -> None:
        """Note a request, answered or not."""
        self.known_until = now + _KNOWN_FOR

    def answered(self, last: MessageId, now: float) -> None:
        """Note an answer."""
        if self.last != last:
            self.last, self.idle_at = last, now + _IDLE_AFTER

    def is_idle(self, now: float) -> bool:
        """Whether the partition is idle, so that a tail pays off."""
        return now >= self.idle_at

    def followed(self, now: float, partitions: int, number: int) -> None:
        """Note that the tail has reached the end.

        Args:
            now: time in seconds of a monotonic clock.
            partitions: number of partitions.
            number: number of this partition; requests are spread in groups by it.
        """
        interval = max(_ASKED_ANYWAY, _ASKED_ANYWAY_EACH * partitions)
        spread = 1 + number % partitions / partitions
        self.ask_anyway_at = math.ceil((now + interval * spread) / _STEP) * _STEP


@dataclass(slots=True)
class _Tracked:
    """One partition: the schedule of its requests, and its tail.

    Attributes:
        number: number of the partition, in the order in which partitions were added.
        is_queued: whether it waits in the queue by time.
        is_behind: whether its tail, or its previous tail, never reached a known end.
        is_blind: whether an answer showed new entries that its tail did not.
        has_failed: whether its last request failed.
    """

    schedule: EndSchedule
    number: int
    tail: Tail | None = None
    is_queued: bool = False
    is_behind: bool = False
    is_blind: bool = False
    has_failed: bool = False


class EndTracker:
    """The ends of a query's partitions.

    Args:
        client: client for the clock and the tails.
        ask: requests the last messages of partitions, in parallel.
        tail_start: returns the entry after which a partition's tail begins.
        on_chunk: called with each partition in which a part of a chunked message is found.
    """

    def __init__(
        self,
        client: PlanningClient,
        ask: Ask,
        tail_start: Callable[[TopicName], MessageId],
        on_chunk: Callable[[TopicName], None],
    ) -> None:
        self._client = client
        self._ask = ask
        self._tail_start = tail_start
        self._on_chunk = on_chunk
        self._tracked: dict[TopicName, _Tracked] = {}
        self._arrivals = Arrivals()
        self._openings: PendingCalls[TopicName] = PendingCalls()
        self._pauses: Pauses[TopicName] = Pauses()
        # Partitions without a tail, or with new entries, in order: requested when their answers are too old.
        self._active: dict[TopicName, None] = {}
        self._queue: list[tuple[float, int, TopicName]] = []
        self._numbers = 0

    def add(self, answers: Mapping[TopicName, LastMessageId]) -> None:
        """Track more partitions, whose answers have just come."""
        now = self._client.now()
        for topic, answer in answers.items():
            self._tracked[topic] = _Tracked(EndSchedule.of(answer.last, now), self._numbers)
            self._active[topic] = None
            self._numbers += 1

    def drop(self, topic: TopicName) -> None:
        """Stop tracking a partition."""
        _close_tail(self._tracked.pop(topic))
        self._active.pop(topic, None)
        self._openings.leave(topic, _close_opened)
        self._pauses.succeeded(topic)

    def close(self) -> None:
        """Stop tracking all partitions."""
        for topic in list(self._tracked):
            self.drop(topic)
        self._queue.clear()

    @property
    def due_at(self) -> float:
        """When the next refresh has work to do. New entries make it due immediately."""
        known = [self._tracked[topic].schedule.known_until for topic in self._active]
        return min([*known, *(at for at, _, _ in self._queue[:1])], default=math.inf)

    @property
    def has_arrivals(self) -> bool:
        """Whether a tail has received something; sends no request."""
        return bool(self._arrivals)

    def wait_for_arrivals(self, seconds: float) -> None:
        """Wait until a tail receives something, at most ``seconds``."""
        self._arrivals.wait(seconds)

    def seen(self, topic: TopicName) -> Seen | None:
        """The entries that the partition's tail has seen; None if it has no tail."""
        tail = self._tracked[topic].tail
        return None if tail is None else Seen(tail.after, tail.reached)

    def newest(self, topic: TopicName) -> MessageId:
        """The newest entry that the partition's tail got; ``MessageId.EARLIEST`` without a tail."""
        tail = self._tracked[topic].tail
        return MessageId.EARLIEST if tail is None else tail.newest

    def topic_end(self, topic: TopicName) -> TopicEnd | None:
        """Why nothing more will come, as the partition's tail was told; None: more may come."""
        tail = self._tracked[topic].tail
        return None if tail is None else tail.topic_end

    def refresh(self) -> EndAnswers:
        """Request the ends that are due.

        If a broker does not answer, that is logged and the next call tries again: an exception would end the
        query. Its partitions are left out until it answers.

        Raises:
            PulsarError: the broker refuses to answer.
        """
        self._take_arrivals()
        due = self._due(self._client.now())
        answers: dict[TopicName, LastMessageId] = {}
        gone = []
        for topic, answer in self._ask(due).items():
            if isinstance(answer, TopicNotFoundError):
                gone.append(topic)
            elif isinstance(answer, PulsarError):
                if not (answer.retriable or isinstance(answer, DeadlineError)):
                    raise answer
                # The request is repeated soon, so there is one warning until the partition answers.
                level = logging.DEBUG if self._tracked[topic].has_failed else logging.WARNING
                _log.log(
                    level,
                    "the end of a topic is not known at the moment; the broker is asked again: %s",
                    answer,
                )
                self._tracked[topic].has_failed = True
            else:
                answers[topic] = answer
                self._tracked[topic].has_failed = False
        now = self._client.now()
        for topic, found in answers.items():
            tracked = self._tracked[topic]
            known = tracked.schedule.last.whole_entry
            if tracked.tail is not None and found.last.whole_entry > known:
                tracked.is_blind = not tracked.tail.has_passed(known)
            tracked.schedule.answered(found.last, now)
        for topic in due:
            self._tracked[topic].schedule.asked(now)
        return EndAnswers(answers, gone)

    def _take_arrivals(self) -> None:
        """Determine which arrivals are new entries; the others lie before known ends."""
        now = self._client.now()
        for topic in self._arrivals.take():
            tracked = self._tracked.get(topic)
            if tracked is None or tracked.tail is None:
                continue
            end = tracked.schedule.last.whole_entry
            # What may be new is not consumed before the answer, which shows how far the tail has to follow.
            has_news = tracked.tail.has_passed(end) or not self._follow(topic, tracked, tracked.tail)
            is_late = now >= tracked.schedule.known_until + _FOLLOWS_WITHIN
            if has_news or (is_late and not tracked.tail.was_waiting):
                self._active[topic] = None

    def _follow(self, topic: TopicName, tracked: _Tracked, tail: Tail) -> bool:
        """Let a tail see the entries up to the end; False if it cannot."""
        end = tracked.schedule.last.whole_entry
        follows = tail.follow(end)
        if tail.has_chunks:
            self._on_chunk(topic)
        tracked.is_behind = tracked.is_behind and tail.reached < end
        return follows

    def _due(self, now: float) -> list[TopicName]:
        due = [topic for topic in self._active if now >= self._tracked[topic].schedule.due_at(has_news=True)]
        while self._queue and self._queue[0][0] <= now:
            _, number, topic = heapq.heappop(self._queue)
            tracked = self._tracked.get(topic)
            if tracked is None or tracked.number != number:
                continue
            tracked.is_queued = False
            if topic in self._active:
                continue
            if now >= tracked.schedule.due_at(has_news=False):
                due.append(topic)
            else:
                self._enqueue(topic, tracked)
        # They stay active until their answers come.
        self._active |= dict.fromkeys(due)
        return due

    def _enqueue(self, topic: TopicName, tracked: _Tracked) -> None:
        if not tracked.is_queued:
            tracked.is_queued = True
            at = tracked.schedule.due_at(has_news=False)
            heapq.heappush(self._queue, (at, tracked.number, topic))

    def renew_tails(self, topics: Sequence[TopicName]) -> None:
        """Let the tails of partitions that have answered follow, and open tails for idle partitions.

        Call this after the answers were judged: an error here must not hide them.
        """
        now = self._client.now()
        for topic in topics:
            tracked, tail = self._tracked[topic], self._tracked[topic].tail
            if tail is None:
                continue
            known = max(tail.reached, tracked.schedule.last.whole_entry)
            if tracked.is_blind or not self._follow(topic, tracked, tail):
                _close_tail(tracked)
            elif tail.reached <= known:
                self._is_followed(topic, tracked, now)
            # Otherwise the tail would process entries after the answer. The next request comes soon.
        without = [topic for topic in topics if self._tracked[topic].tail is None]
        self._active |= dict.fromkeys(without)
        self._open_tails([topic for topic in without if self._tracked[topic].schedule.is_idle(now)])

    def _is_followed(self, topic: TopicName, tracked: _Tracked, now: float) -> None:
        tracked.schedule.followed(now, len(self._tracked), tracked.number)
        self._active.pop(topic, None)
        self._enqueue(topic, tracked)

    def _open_tails(self, topics: list[TopicName]) -> None:
        """Open tails, and take those that were slow to open."""
        now, calls = self._client.now(), {}
        for topic in topics:
            if self._pauses.is_over(topic, now):
                tracked = self._tracked[topic]
                # The next tail could not see either what was too large for the last one.
                after = tracked.schedule.last.whole_entry if tracked.is_behind else self._tail_start(topic)
                calls[topic] = partial(
                    self._client.open_tail, topic, after, partial(self._arrivals.add, topic)
                )
        opened = self._openings.run(calls, PROMPT)
        now = self._client.now()
        for topic, tail in opened.items():
            if isinstance(tail, PulsarError):
                _log.log(
                    logging.INFO if self._pauses.failed(topic, now) else logging.DEBUG,
                    "%s: its end is requested regularly, because no reader can wait for new entries: %s",
                    topic,
                    tail,
                )
                continue
            tracked = self._tracked[topic]
            tracked.tail, tracked.is_behind = tail, tail.after < tracked.schedule.last.whole_entry
            self._pauses.succeeded(topic)
            # It then also gets what comes next, if the next trigger is far away.
            follows = self._follow(topic, tracked, tail)
            self._is_followed(topic, tracked, now)
            if not follows or tail.has_passed(tracked.schedule.last.whole_entry):
                self._arrivals.add(topic)  # what came before it was tracked showed nothing


def _close_tail(tracked: _Tracked) -> None:
    if tracked.tail is not None:
        tracked.tail.close()
    tracked.tail, tracked.is_blind = None, False


def _close_opened(opened: Tail | PulsarError) -> None:
    if not isinstance(opened, PulsarError):
        opened.close()
