"""EndTracker: the ends of topic partitions, with few requests. QuietTime: triggers without work.

Spark's default trigger runs every 12 ms. A partition whose end stays the same gets a :class:`Tail`: a reader
at its end, to which the broker pushes the next entry. So an idle partition costs no requests, and a new
message is still noticed immediately. If many entries arrive, the tail is closed, and the end is requested
periodically. A partition with unread messages gets a tail, too, because they may wait for hours until
``minMessagesPerTrigger`` is reached. The end is requested in these cases (:class:`EndSchedule`):

    last answer       tail                                                           end is requested
    younger than      any                                                            no
    0.05 s
    older             none                                                           yes
    older             has received an entry after the known end                      yes
    older             has received none for 10 to 20 s, or, if this is longer, for   yes
                      0.5 to 1 s multiplied by the number of partitions
    older             has received none, for a shorter time                          no

The end is also requested if a tail has not received all entries up to the known end within a second after the
answer.

If a tail cannot be opened, for example because of a limit of consumers, opening is tried again after a
growing pause; the partition's end is requested meanwhile.

A partition whose tail receives nothing costs no work, because :class:`Arrivals` reports new entries, and a
queue, ordered by time, has the remaining requests.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import PROMPT, Arrivals, Calls, Kind, LastMessageId, PlanningClient
from pulsar_spark.errors import PulsarError, TopicNotFoundError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.partition import EndSchedule, Partition

_log = logging.getLogger(__name__)

# Seconds after an answer within which the tail (reader at the end) must receive the entries up to that end.
_FOLLOWS_WITHIN = 1.0
# If two triggers without data are closer than this number of seconds, the next one is expected soon.
_POLLED_WITHIN = 1.0
# Bounds of the seconds that a trigger waits for new entries; low, because a query's other sources wait, too.
_MIN_WAIT = 0.05
_WAIT_EACH = 0.00015  # seconds to wait for each partition, within the bounds
_MAX_WAIT = 0.5

Ask = Callable[[Sequence[Partition]], Mapping[Partition, LastMessageId | PulsarError]]


class EndAnswers(NamedTuple):
    """The result of one refresh.

    ``gone``: deleted partitions. ``arrived``: partitions whose tail received an entry or the topic's end.
    """

    answers: Mapping[Partition, LastMessageId]
    gone: Sequence[Partition]
    arrived: Collection[Partition]


class EndTracker:
    """The ends of a query's partitions."""

    def __init__(self, client: PlanningClient, calls: Calls[Partition]) -> None:
        self._client = client
        self._openings = calls[Kind.TAIL]
        self._arrivals: Arrivals[Partition] = Arrivals()
        # Partitions without a tail, or with new entries. Their ends are requested when the answers are old.
        self._active: dict[Partition, None] = {}
        self._queue: list[tuple[float, int, Partition]] = []
        self._numbers = 0

    def add(self, answers: Mapping[Partition, LastMessageId]) -> None:
        """Tracks the ends of more partitions until they are closed; ``answers``: their present ends."""
        now = self._client.now()
        for each, answer in answers.items():
            each.number, self._numbers = self._numbers, self._numbers + 1
            each.schedule = EndSchedule.of(answer.last, now)
            self._active[each] = None

    @property
    def due_at(self) -> float:
        """Returns the time of the next refresh with work to do. New entries make it due immediately."""
        known = [each.schedule.known_until for each in self._active if not each.is_closed]
        return min([*known, *(at for at, _, _ in self._queue[:1])], default=math.inf)

    @property
    def has_arrivals(self) -> bool:
        """Whether a tail (reader at the end) has received an entry or the topic's end; sends no request."""
        return bool(self._arrivals)

    def wait_for_arrivals(self, seconds: float) -> None:
        """Waits until a tail (reader at the end) receives an entry, at most ``seconds``."""
        self._arrivals.wait(seconds)

    def refresh(self, ask: Ask) -> EndAnswers:
        """Requests the ends that are due; ``ask`` requests the last messages of partitions, in parallel.

        If a broker does not answer, this is logged and the next call tries again, because an exception would
        end the query. The broker's partitions are left out until it answers.
        """
        arrived = self._take_arrivals()
        due = self._due(self._client.now())
        answers: dict[Partition, LastMessageId] = {}
        gone = []
        for partition, answer in ask(due).items():
            if isinstance(answer, TopicNotFoundError):
                gone.append(partition)
            elif isinstance(answer, PulsarError):
                if not answer.is_passing:
                    raise answer
                # The request is repeated soon, so there is one warning until the partition answers.
                level = logging.DEBUG if partition.has_failed else logging.WARNING
                _log.log(
                    level,
                    "the end of a topic is not known at the moment; the broker is asked again: %s",
                    answer,
                )
                partition.has_failed = True
            else:
                answers[partition] = answer
                partition.has_failed = False
        now = self._client.now()
        for partition, found in answers.items():
            known = partition.schedule.last.whole_entry
            if partition.tail is not None and found.last.whole_entry > known:
                partition.is_blind = not partition.tail.has_passed(known)
            partition.schedule.answered(found.last, now)
        for partition in due:
            partition.schedule.asked(now)
        return EndAnswers(answers, gone, arrived)

    def _take_arrivals(self) -> Collection[Partition]:
        """Returns partitions whose tails received entries; marks those whose end must be requested again."""
        now = self._client.now()
        arrived = self._arrivals.take()
        for partition in arrived:
            tail = partition.tail
            if tail is None:
                continue
            # If the tail has passed the known end, ``follow`` is not called yet: first the end is requested.
            has_news = tail.has_passed(partition.schedule.last.whole_entry) or not partition.follow(tail)
            is_late = now >= partition.schedule.known_until + _FOLLOWS_WITHIN
            if has_news or (is_late and not tail.was_waiting):
                self._active[partition] = None
        return arrived

    def _due(self, now: float) -> list[Partition]:
        self._active = {each: None for each in self._active if not each.is_closed}
        due = [each for each in self._active if now >= each.schedule.due_at(has_news=True)]
        while self._queue and self._queue[0][0] <= now:
            _, _, partition = heapq.heappop(self._queue)
            partition.is_queued = False
            if partition.is_closed or partition in self._active:
                continue
            if now >= partition.schedule.due_at(has_news=False):
                due.append(partition)
            else:
                self._enqueue(partition)
        # A partition stays active until its answer arrives, so a failed request is repeated.
        self._active |= dict.fromkeys(due)
        return due

    def _enqueue(self, partition: Partition) -> None:
        if not partition.is_queued:
            partition.is_queued = True
            at = partition.schedule.due_at(has_news=False)
            heapq.heappush(self._queue, (at, partition.number, partition))

    def renew_tails(self, partitions: Sequence[Partition], count: int) -> None:
        """Lets tails (readers at the ends) read up to the new ends; closes failed ones, opens missing ones.

        Call this after the answers were checked for data loss, because an error here must not prevent that.
        ``count``: number of the query's partitions.
        """
        now = self._client.now()
        for partition in partitions:
            tail = partition.tail
            if tail is None:
                continue
            known = max(tail.reached, partition.schedule.last.whole_entry)
            if partition.is_blind or not partition.follow(tail):
                partition.close_tail()
            elif tail.reached <= known:
                self._schedule_next_ask(partition, now, count)
            # If the tail has passed the answered end, the partition stays active: its end is requested again.
        without = [each for each in partitions if each.tail is None]
        self._active |= dict.fromkeys(without)
        self._open_tails([each for each in without if each.schedule.is_idle(now)], count)

    def _schedule_next_ask(self, partition: Partition, now: float, count: int) -> None:
        partition.schedule.followed(now, count, partition.number)
        self._active.pop(partition, None)
        self._enqueue(partition)

    def _open_tails(self, partitions: Iterable[Partition], count: int) -> None:
        """Opens tails (readers at the ends), and stores the tails that earlier calls began to open."""
        now, pauses = self._client.now(), self._openings.pauses
        calls = {
            each: partial(
                self._client.open_tail, each.topic, each.tail_start, partial(self._arrivals.add, each)
            )
            for each in partitions
            if pauses.is_over(each, now)
        }
        opened = self._openings.run(calls, PROMPT)
        now = self._client.now()
        for partition, tail in opened.items():
            if isinstance(tail, PulsarError):
                _log.log(
                    logging.INFO if pauses.failed(partition, now) else logging.DEBUG,
                    "%s: its end is requested regularly, because no reader can wait for new entries: %s",
                    partition.topic,
                    tail,
                )
                continue
            pauses.succeeded(partition)
            end = partition.schedule.last.whole_entry
            partition.tail, partition.is_behind = tail, tail.after < end
            # ``follow`` is called now, so that the tail receives entries even if the next trigger is late.
            follows = partition.follow(tail)
            self._schedule_next_ask(partition, now, count)
            if not follows or tail.has_passed(end) or tail.topic_end is not None:
                self._arrivals.add(partition)  # reported again: it was ignored while the tail was not set


class QuietTime:
    """Detects triggers without work: nothing has changed since a trigger with nothing to plan. Pure.

    Without new entries, Spark's default trigger calls the planner again and again with the same start. Each
    call costs time, because Spark passes offsets and the report as JSON. So a trigger that directly follows
    another trigger waits a moment, unless entries arrive.

    ``is_polled``: whether triggers follow one another directly.
    """

    def __init__(self) -> None:
        self.is_polled = False
        self._start: Offsets | None = None
        self._limited = True
        self._partitions: Sequence[TopicName] = ()
        self._until = self._triggered_at = -math.inf

    def trigger(self, start: Offsets, now: float) -> None:
        """Records that a trigger begins."""
        if self._start is start:
            self.is_polled = now < self._triggered_at + _POLLED_WITHIN
        self._triggered_at = now

    def begin(self, start: Offsets, partitions: Sequence[TopicName], until: float, *, limited: bool) -> None:
        """Records that there is nothing to plan.

        Args:
            partitions: partitions that are read; the same object as long as they do not change.
            until: time of the next work, if no new entries arrive.
        """
        self._start, self._partitions, self._until, self._limited = start, partitions, until, limited

    def end(self) -> None:
        """Ends the state without work: new entries may have arrived, so the next trigger plans again."""
        self._start = None

    def lasts(self, start: Offsets, partitions: Sequence[TopicName], now: float, *, limited: bool) -> bool:
        """Whether there is nothing to plan: the arguments are those of :meth:`begin`, ``until`` is later."""
        is_same = self._start is start and self._partitions is partitions and self._limited == limited
        return is_same and now < self._until

    def seconds_to_wait(self, now: float) -> float:
        """Returns the seconds that the next trigger waits; 0 after new entries, or if triggers are rare."""
        if self._start is None or not self.is_polled:
            return 0.0
        wait = max(_MIN_WAIT, min(_MAX_WAIT, _WAIT_EACH * len(self._partitions)))
        return max(0.0, min(wait, self._until - now))
