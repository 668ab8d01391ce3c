"""Partition: one run's state of a topic partition, and the rule for its acknowledgements.

A batch may end inside a chunked message, whose first chunks must stay stored until a later batch has read
them. If a chunk was ever found in the partition, the publish time of each processed position is recorded. The
position is acknowledged when no message that begins before it can still become complete. If no chunk was
found, the last few entries are checked for chunks before they are acknowledged: by a probe, or by the tail, a
reader at the partition's end. Brokers remove whole ledgers, so an acknowledgement that completes no ledger
needs only a recent probe. :meth:`Partition.ack_step` goes by the first matching row. ``expire`` is the
maximum time between the publish times of a message's first and last chunk, after which readers drop the
message; 0: it may become complete at any time.

    known                                                         step
    no entry was processed in this run                            NOTHING
    all processed entries are acknowledged                        NOTHING
    chunks were found, and ``expire`` is 0                        NOTHING
    chunks; the processed position's publish time is recorded     ACKNOWLEDGE, up to :meth:`settle`
    chunks; the processed position is the end, or its ledger      PROBE
    was not probed in the last second
    chunks, in all other cases                                    ACKNOWLEDGE, up to :meth:`settle`
    the tail has received all unacknowledged entries, or the      ACKNOWLEDGE
    last few of them
    the processed and the acknowledged position share a ledger,   ACKNOWLEDGE
    which has a later entry, and was probed in the last 10 s
    the processed position is in an older ledger than the last    WAIT
    message, and that ledger was probed in the last second
    the end has been processed for less than a second, and more   WAIT, for the tail
    triggers are expected soon
    else                                                          PROBE, because no later trigger may follow

PROBE becomes WAIT for a second after a failed probe, or for the probe's duration if that is longer. After
more failures in succession the wait is 2, 4, 8, then 10 times the duration.

:meth:`Partition.settle`, if chunks were found, returns the last processed position with one of these facts:

    a later position is processed, and was published more than ``expire`` later
    it is the end, and no entry followed for ``expire``

The first row compares publish times with each other, so the duration of batches makes no difference. The
second row uses the planner's clock, from the probe of the processed end until the last request for the end.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pulsar_spark.client import Calls, Consumer, Kind, LastMessageId, Tail, TopicEnd
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.broker_probe import KnownEntries

# Entries that are probed for chunks before the last of them is acknowledged. One entry does not suffice,
# because chunks of several producers may be interleaved.
PROBED_ENTRIES = 16
_PROBED_FOR = 10.0  # seconds for which a probe without chunks is valid
_DATED_FOR = 1.0  # seconds between two probes of a ledger for publish times, if chunks were found
# Seconds without a probe: while waiting for the tail, after a failed probe, or after one of an older ledger.
_PATIENCE = 1.0
# Maximum pause after a failed probe, as a multiple of its duration, because the query waits for probes.
# Pauses grow with each failure, because a single failure may be caused by an unload of the topic.
_MAX_REST = 10
# Seconds after an answer in which a partition's end is not requested again.
_KNOWN_FOR = 0.05
# Seconds without a new message before a tail is opened, because opening it costs a few requests.
_IDLE_AFTER = 0.25
# Minimum seconds after which the end is requested although the tail has received nothing.
_ASKED_ANYWAY = 10.0
_ASKED_ANYWAY_EACH = 0.5  # the same minimum in seconds, but for each partition of the query
_STEP = 5.0  # seconds; times of these requests are rounded up to multiples of it, to send many at once


class Life(Enum):
    """States of a partition after the subscription was opened; if several apply, the last listed counts."""

    OPEN = "micro-batches read it"
    HELD = "it is a segment that follows one which is not read to its end"
    SILENT = "its broker has not answered for a while"
    DONE = "it is a segment that is read to its final end"
    CLOSED = "the subscription was closed on it; another partition may have its name by now"


class AckStep(Enum):
    """The next step in acknowledging a partition."""

    NOTHING = "nothing is to be acknowledged"
    ACKNOWLEDGE = "it is acknowledged now"
    PROBE = "it is probed for chunks first"
    WAIT = "it is acknowledged later"


class _Probed(NamedTuple):
    """The ledger in which a partition was last probed for chunks, and the time of the probe."""

    ledger: int
    at: float


class _Dated(NamedTuple):
    """A processed position, the latest publish time up to it, and the monotonic time of its probe (s)."""

    position: MessageId
    time_ms: int
    since: float


@dataclass(slots=True)
class EndSchedule:
    """The times when one partition's end is requested. Pure; times are seconds of a monotonic clock.

    Attributes:
        known_until: time until which the last answer is used without a new request.
        idle_at: time when the partition counts as idle, unless a new message is received.
        ask_anyway_at: time when the end is requested although the tail has received nothing.
    """

    last: MessageId
    known_until: float
    idle_at: float
    ask_anyway_at: float = 0.0

    @classmethod
    def of(cls, last: MessageId, now: float) -> EndSchedule:
        """Returns the schedule after the broker's first answer; ``last``: the end in this answer."""
        return cls(last, now + _KNOWN_FOR, now + _IDLE_AFTER)

    def due_at(self, *, has_news: bool) -> float:
        """Returns the time of the next request. ``has_news``: there is no tail, or it has new entries."""
        return self.known_until if has_news else max(self.known_until, self.ask_anyway_at)

    def asked(self, now: float) -> None:
        """Records that the end was requested, whether or not the broker has answered."""
        self.known_until = now + _KNOWN_FOR

    def answered(self, last: MessageId, now: float) -> None:
        """Records the broker's answer. If ``last`` is new, the partition is not idle for a while."""
        if self.last != last:
            self.last, self.idle_at = last, now + _IDLE_AFTER

    def is_idle(self, now: float) -> bool:
        """Whether the partition had no new message for a while, so that a waiting reader saves requests."""
        return now >= self.idle_at

    def followed(self, now: float, partitions: int, number: int) -> None:
        """Sets the time of the next request, because the tail has reached the end.

        ``partitions``: number of partitions. ``number``: index of this one, which spreads requests over time.
        """
        interval = max(_ASKED_ANYWAY, _ASKED_ANYWAY_EACH * partitions)
        spread = 1 + number % partitions / partitions
        self.ask_anyway_at = math.ceil((now + interval * spread) / _STEP) * _STEP


@dataclass(slots=True, eq=False)
class Partition:
    """A partition while the subscription is open on it. A position stands for a message and all before it.

    Attributes:
        is_reported_late: whether the broker answers late, and a warning has reported this.
        start: position of the query's subscription when this run opened it.
        acknowledged: position up to which the partition is acknowledged, as far as this run knows.
        last: last visible message, a whole entry; ``MessageId.EARLIEST`` if there is none.
        position: position up to which Spark has checkpointed it as processed; None before the first trigger.
        backlog: number of entries in ``(position, last]`` at the last trigger; None if unknown.
        frozen_end: end of a run that reads only messages that existed at its start; None in other runs.
        is_set_back: whether the topic ends before the checkpointed position; then ``start`` replaces it.
        is_start_time_found: whether a message at or after the user's start time was found; then later batches
            are not searched. None: this run has not searched yet.
        time_begins: position before the first message at or after the start time, if this run found it.
        asked_at: time of the request that returned ``last``; the answer may be newer.
        asked: position up to which this run has sent acknowledgements, confirmed or not.
        asked_before: ``asked`` at the request of ``last``; the answer does not show later acknowledgements.
        goes_on: position directly before the next ledger, if the broker removed the ledger of ``position``.
        next_seen: first known message after ``position``; an earlier position if no message is known.
        tail: reader of new entries at the partition's end, while few entries arrive.
        is_queued: whether the end tracker's queue has the time of the next request for the end.
        is_behind: whether the last tail never received all entries up to the known end.
        is_blind: whether an answer showed new entries that the tail did not receive.
        hides_end: whether the answer "no message" may be wrong; then the next request searches for the end.
        known: entries after ``position`` that admission control has probed; None without entries, or during a
            probe.
        is_warned_of_chunks: whether a warning reported that the partition is not acknowledged any more.
    """

    topic: TopicName
    consumer: Consumer
    start: MessageId
    acknowledged: MessageId
    last: MessageId
    life: Life = Life.OPEN
    is_reported_late: bool = False
    position: MessageId | None = None
    planned: MessageId | None = None
    backlog: int | None = None
    frozen_end: MessageId | None = None
    is_set_back: bool = False
    is_start_time_found: bool | None = None
    time_begins: MessageId = MessageId.EARLIEST
    asked_at: float = 0.0
    asked: MessageId = MessageId.EARLIEST
    asked_before: MessageId = MessageId.EARLIEST
    goes_on: MessageId = MessageId.EARLIEST
    next_seen: MessageId = MessageId.EARLIEST
    topic_end: TopicEnd | None = None
    schedule: EndSchedule = field(init=False, repr=False)
    number: int = 0
    tail: Tail | None = None
    is_queued: bool = False
    is_behind: bool = False
    is_blind: bool = False
    has_failed: bool = False
    hides_end: bool = False
    known: KnownEntries | None = None
    is_warned_of_chunks: bool = False
    # Time of the last request for the last message, and the value of ``asked`` at that time.
    _request: tuple[float, MessageId] = (0.0, MessageId.EARLIEST)
    _counted: tuple[MessageId, MessageId] | None = None
    _probed: _Probed | None = None
    _probe_again_at: float = 0.0
    _failed_probes: int = 0  # failures since the last successful probe
    # The processed end that ``ack_step`` waits for the tail to receive, and the time when this wait began.
    _unseen: tuple[MessageId, float] | None = None
    # Processed positions to acknowledge later, in order; None until a chunk is found: no delay is needed.
    _held: deque[_Dated] | None = None

    @classmethod
    def opened(cls, topic: TopicName, consumer: Consumer, answer: LastMessageId) -> Partition:
        """Returns the state right after the subscription was opened."""
        mark = answer.mark_delete
        return cls(topic, consumer, mark, mark, visible_end(answer.last), asked=mark, asked_before=mark)

    def close(self, calls: Calls[Partition]) -> bool:
        """Drops pending calls; returns whether the consumer is closed later, when a pending request ends."""
        self.life = Life.CLOSED
        self.close_tail()
        self.close_known()
        then = {Kind.LAST_MESSAGE: lambda _: self.consumer.begin_close()}
        return Kind.LAST_MESSAGE in calls.leave(self, then)

    def requested(self, now: float) -> None:
        """Records the time of a request for the last message, and :attr:`asked` at that time."""
        self._request = now, self.asked

    def answered(self) -> None:
        """Sets ``asked_at`` and ``asked_before`` by the last request, whose answer is used from now on."""
        self.asked_at, self.asked_before = self._request

    def moved(self, mark_delete: MessageId) -> None:
        """Records that the subscription was moved to another position."""
        self.start = self.acknowledged = self.asked = self.asked_before = mark_delete

    def set_back(self, last: MessageId) -> None:
        """Records that the topic ends at ``last``, before the processed position; sets the position to it."""
        self.start = self.last = last
        # These positions are of the topic before it was recreated or restored.
        self.goes_on = self.next_seen = self.time_begins = MessageId.EARLIEST
        self.is_set_back = self.position is None
        if self.position is not None:
            self.position = last

    def take_up(self, checkpointed: MessageId | None) -> None:
        """Sets ``position`` at the beginning of a trigger; ``checkpointed``: None for a new partition."""
        is_new = checkpointed is None or self.is_set_back
        self.position = self.start if is_new else checkpointed
        self.is_set_back = False

    def see(self, message: MessageId) -> None:
        """Updates :attr:`next_seen` with a message that the partition has, or had."""
        position = self.position_or_start
        if message > position and (message < self.next_seen or self.next_seen <= position):
            self.next_seen = message

    @property
    def may_hide_end(self) -> bool:
        """Whether an answer "no message" may be wrong, because there was a message or the topic has ended."""
        tail = self.tail
        has_tail_seen = tail is not None and (tail.topic_end is not None or tail.newest.is_entry)
        has_had = self.last.is_entry or self.consumer.topic_end is not None or has_tail_seen
        return has_had and not self.hides_end

    @property
    def is_closed(self) -> bool:
        """Whether the subscription was closed on this partition."""
        return self.life is Life.CLOSED

    def hold(self, *, is_held: bool) -> None:
        """Records whether older segments must be read first."""
        if self.life in (Life.OPEN, Life.HELD):
            self.life = Life.HELD if is_held else Life.OPEN

    def be_silent(self, *, is_silent: bool) -> None:
        """Records whether the broker has not answered requests about this partition for a while."""
        if is_silent and self.life in (Life.OPEN, Life.HELD):
            self.life = Life.SILENT
        elif not is_silent and self.life is Life.SILENT:
            self.life = Life.OPEN

    @property
    def end(self) -> MessageId:
        """Returns the last message to read in this run: ``last``, but at most ``frozen_end``."""
        return self.last if self.frozen_end is None else min(self.last, self.frozen_end)

    @property
    def position_or_start(self) -> MessageId:
        """Returns the position; the start if the partition has no position yet."""
        return self.start if self.position is None else self.position

    @property
    def processed(self) -> MessageId | None:
        """Returns the last processed entry, at most the topic's last entry; None before the first trigger."""
        return None if self.position is None else min(self.position, self.last).last_whole_entry

    def count_backlog(self) -> bool:
        """Computes :attr:`backlog` from entry numbers; False if the broker must count it."""
        position, last = between = self._waiting
        count = last.entries_since(position) if position < last else 0
        if count is not None:
            self.backlog, self._counted = count, None
        elif self._counted != between:
            self.backlog = None
            return False
        return True

    def backlog_counted(self, count: int) -> None:
        """Stores the broker's count of entries after the acknowledged position as the backlog."""
        self.backlog = max(1, count)
        self._counted = self._waiting

    def entries_until(self, end: MessageId) -> int | None:
        """Returns the number of entries in ``(position, end]``; over several ledgers, :attr:`backlog`."""
        count = end.entries_since(self._waiting[0])
        return self.backlog if count is None else count

    @property
    def _waiting(self) -> tuple[MessageId, MessageId]:
        """Returns the last processed position, and the end of the topic."""
        return (MessageId.EARLIEST if self.position is None else self.position.last_whole_entry), self.last

    @property
    def is_settled(self) -> bool:
        """Whether all known entries and the last planned batch are processed and acknowledged."""
        done, (position, last) = self.processed, self._waiting
        is_done = done is not None and not self.is_unacknowledged(done)
        return is_done and position >= last and self.planned == self.position

    def is_unacknowledged(self, entry: MessageId) -> bool:
        """Whether a position is an entry, not (ledger, -1), and is not acknowledged yet."""
        return entry.is_entry and entry > self.acknowledged

    @property
    def has_chunks(self) -> bool:
        """Whether parts of chunked messages were found."""
        return self._held is not None

    def meet_chunks(self) -> None:
        """Records that a part of a chunked message was found; this delays later acknowledgements."""
        if self._held is None:
            self._held = deque()

    def ack_step(self, now: float, expire: float, *, is_polled: bool = False) -> AckStep:
        """Returns the next step in acknowledging processed entries, by the first table of the module.

        ``is_polled``: whether more triggers are expected soon.
        """
        done = self.processed
        if done is None or not self.is_unacknowledged(done) or (self.has_chunks and expire == 0):
            return AckStep.NOTHING
        if self.has_chunks:
            step = self._step_with_chunks(done, now)
        else:
            step = self._step_without_chunks(done, now, is_polled=is_polled)
        return AckStep.WAIT if step is AckStep.PROBE and now < self._probe_again_at else step

    def _step_with_chunks(self, done: MessageId, now: float) -> AckStep:
        if self._held and self._held[-1].position >= done:
            return AckStep.ACKNOWLEDGE
        is_due = done >= self.end or not self._is_probed(done, now, _DATED_FOR)
        return AckStep.PROBE if is_due else AckStep.ACKNOWLEDGE

    def _step_without_chunks(self, done: MessageId, now: float, *, is_polled: bool) -> AckStep:
        if self._is_seen(done):
            return AckStep.ACKNOWLEDGE
        if self._removes_nothing(done) and self._is_probed(done, now, _PROBED_FOR):
            return AckStep.ACKNOWLEDGE
        if done < self.end:
            waits = done.ledger < self.last.ledger and self._is_probed(done, now, _PATIENCE)
        else:
            if self._unseen is None or self._unseen[0] != done:
                self._unseen = done, now
            waits = is_polled and now < self._unseen[1] + _PATIENCE
        return AckStep.WAIT if waits else AckStep.PROBE

    def _removes_nothing(self, done: MessageId) -> bool:
        """Whether acknowledging up to ``done`` completes no ledger, so the broker removes no ledger."""
        return done.ledger == self.acknowledged.ledger == self.last.ledger and done < self.last

    def _is_seen(self, done: MessageId) -> bool:
        """Whether the tail has received all unacknowledged entries up to ``done``, or the last 16 of them."""
        if self.tail is None or self.tail.reached < done:
            return False
        after = self.tail.after
        is_near = after.ledger == done.ledger and done.entry - after.entry >= PROBED_ENTRIES
        return after <= self.acknowledged or is_near

    def _is_probed(self, done: MessageId, now: float, seconds: float) -> bool:
        """Whether the ledger of ``done`` was probed for chunks in the last ``seconds`` seconds."""
        probed = self._probed
        return probed is not None and probed.ledger == done.ledger and now < probed.at + seconds

    def follow(self, tail: Tail) -> bool:
        """Lets ``tail`` request entries up to the known end; False if the tail lacks too many or is lost."""
        end = self.schedule.last.whole_entry
        follows = tail.follow(end)
        if tail.has_chunks:
            self.meet_chunks()
        self.is_behind = self.is_behind and tail.reached < end
        return follows

    def close_tail(self) -> None:
        """Closes the tail (reader at the partition's end), if there is one."""
        if self.tail is not None:
            self.tail.close()
        self.tail, self.is_blind = None, False

    def close_known(self) -> None:
        """Drops the known entries, and closes their reader."""
        if self.known is not None:
            self.known.close()
        self.known = None

    @property
    def tail_start(self) -> MessageId:
        """Returns the position after which to open a tail; it also receives entries to check for chunks."""
        if self.is_behind:  # skips entries, because the last tail never reached the end
            return self.schedule.last.whole_entry
        if self.has_chunks or self.acknowledged >= self.last:
            return self.last
        return max(self.acknowledged, self.last.back(PROBED_ENTRIES))

    def probed(self, entry: MessageId, now: float) -> None:
        """Records that the entries up to ``entry`` were probed for chunks."""
        self._probed = _Probed(entry.ledger, now)
        self._failed_probes = 0

    def probe_failed(self, now: float, waited: float) -> None:
        """Records that a probe failed now, after ``waited`` seconds."""
        rest = min(2**self._failed_probes, _MAX_REST) * waited
        self._probe_again_at = now + max(_PATIENCE, rest)
        self._failed_probes += 1

    def dated(self, entry: MessageId, time_ms: int, now: float) -> None:
        """Records the publish time of a processed entry, if chunks were found.

        ``time_ms``: publish time of the entry in ms since 1970. Producers' clocks differ, so a position's
        recorded time is at least the time of the position before it.
        """
        assert self._held is not None
        latest = self._held[-1].time_ms if self._held else 0
        if self._held and time_ms <= latest:
            self._held.pop()  # has the same time as ``entry``, which replaces it
        self._held.append(_Dated(entry, max(latest, time_ms), now))

    def settle(self, expire: float) -> MessageId:
        """Returns the position up to which processed messages may be acknowledged; EARLIEST for none.

        ``expire``: seconds to wait for the rest of an incomplete message, by publish times. 0: no limit.
        """
        done, held = self.processed, self._held
        assert done is not None
        if held is None:
            return done
        settled = MessageId.EARLIEST
        if not held or expire == 0:
            return settled
        newest = held[-1]
        while newest.time_ms - held[0].time_ms > expire * 1000:
            settled = held.popleft().position
        if newest.position == done == self.last and self.asked_at - newest.since >= expire:
            settled = done
        return settled


def visible_end(last: MessageId) -> MessageId:
    """Returns the entry id of the last visible message; ``MessageId.EARLIEST`` if there is none."""
    return last.whole_entry if last.is_entry else MessageId.EARLIEST
