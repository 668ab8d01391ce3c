"""Partition: one run's knowledge of a topic partition, and the rule of its acknowledgements.

Processed messages are acknowledged immediately, unless chunked messages are near: a batch may end inside one,
whose first chunks must stay stored until a later batch has read them. If chunks were ever found, each
processed position is dated by the publish time of its entry, and acknowledged when no message that begins
before it can still become complete. If none were found, the last few entries are checked for chunks, by the
tail or by probes, before an acknowledgement that lets the broker remove a ledger. Brokers remove whole
ledgers, so while a later entry of the same ledger is known, an acknowledgement removes nothing.
:meth:`Partition.ack_step`; the first matching row applies, otherwise the last one:

    known                                                         step
    nothing is processed by this run, as far as it knows          NOTHING
    nothing is processed that is not acknowledged                 NOTHING
    chunks were met, and messages complete at any time            NOTHING
    chunks were met, and what is processed is dated               ACKNOWLEDGE, what :meth:`settle` gives
    chunks were met; all is read up to the end, or it was never   PROBE
    probed, or in another ledger, or a second ago
    chunks were met                                               ACKNOWLEDGE, what :meth:`settle` gives
    the tail has seen all that is not acknowledged, or the last   ACKNOWLEDGE
    few entries
    it lies in the ledger of what is acknowledged, where a later  ACKNOWLEDGE
    entry is known, and that was probed in the last 10 s
    it is in an older ledger than the last message, and that was  WAIT
    probed in the last second
    it is the last message for less than a second, and there      WAIT, for the tail
    will be other triggers soon
    else                                                          PROBE: there may be no later occasion
    PROBE by these rows, but a probe failed lately: less than a   WAIT
    second ago, or than the time that it took, twice, four times
    and at most ten times that time if those before failed, too

``expire`` is the maximum time between the publish times of a message's first and last chunk, after which
readers give the message up; with 0 messages may complete at any time. :meth:`Partition.settle`, if
chunks were found:

    known of a processed position                                 it is
    messages complete at any time                                 held
    a later one is processed, dated more than ``expire`` after    settled
    it is the end, and nothing came after it for ``expire``       settled
    else                                                          held

Publish times are compared with each other, so the duration of batches makes no difference. The planner's
clock counts only for the silence of a partition: from when its end was processed until it was last requested.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pulsar_spark.client import Calls, Consumer, Kind, LastMessageId, Tail, TopicEnd
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.known_entries import KnownEntries
from pulsar_spark.spark.plan.timing import EndSchedule

# Entries up to an acknowledged one that are probed for chunks: if several producers write, chunks lie among
# other messages. Then the seconds for which a probe without chunks is valid, and for which an entry's date
# is.
PROBED_ENTRIES = 16
_PROBED_FOR = 10.0
_DATED_FOR = 1.0
# Seconds to wait for a tail, between two probes of older ledgers, and after a failed probe.
_PATIENCE = 1.0
# Maximum rest after a failed probe, as a multiple of its duration, because the query waits for probes. Rests
# grow from one failure to the next, because a single failure may come from an unload of the topic.
_MAX_REST = 10


class Life(Enum):
    """The life of a partition, from the opening of the subscription to its end; the later member wins."""

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


class Seen(NamedTuple):
    """All visible entries of a partition in ``(after, reached]`` were seen, and none was part of a chunk."""

    after: MessageId
    reached: MessageId


class _Probed(NamedTuple):
    """The entry up to which a partition was probed for chunks, and when."""

    ledger: int
    at: float


class _Dated(NamedTuple):
    """A processed position, the latest publish time up to it in ms since 1970, and when it was found out."""

    position: MessageId
    time_ms: int
    since: float


@dataclass(slots=True, eq=False)
class Partition:
    """A partition while the subscription is open on it; a position means that everything up to it is taken.

    Attributes:
        topic: name of the partition.
        consumer: consumer of the query's subscription.
        life: stage of its life.
        is_told_late: whether a warning said that it does not answer promptly, and it does not yet.
        start: position of the query's subscription when this run opened it.
        acknowledged: position up to which this run has acknowledged the partition, or found it acknowledged.
        last: last visible message, a whole entry; ``MessageId.EARLIEST`` if there is none.
        position: position up to which Spark has checkpointed it as processed; None before the first trigger.
        planned: end of the last planned batch; None before the first.
        backlog: number of entries in ``(position, last]`` at the last trigger; None if unknown.
        frozen_end: end of a run that reads only what existed when it began; None in other runs.
        is_set_back: whether the topic ends before the checkpoint; the next trigger then begins at ``start``.
        is_start_time_found: whether the user's start time was found; later batches are then not searched for
            it. None: this run has not searched yet.
        asked_at: when ``last`` was requested; the answer may be newer.
        asked: position up to which this run has sent acknowledgements, confirmed or not.
        asked_before: ``asked`` when ``last`` was requested; the answer does not show later acknowledgements.
        goes_on: where the broker removed the ledger of ``position``, because all of that was acknowledged:
            the position before the next ledger.
        topic_end: why nothing more will come; None: more may come.
        next_seen: the first message after ``position`` that was seen; a position before that if none was.
        schedule: the times when its end is requested.
        number: number of the partition, in the order in which partitions were opened.
        tail: reader that waits for new entries; None if it has none.
        is_queued: whether its next request waits in the queue by time.
        is_behind: whether its tail, or its previous tail, never reached a known end.
        is_blind: whether an answer showed new entries that its tail did not.
        has_failed: whether the last request for its end failed.
        known: entries after ``position`` that admission control has probed; None if none are, or just now.
        is_warned_of_chunks: whether a warning said that it is not acknowledged any more.
    """

    topic: TopicName
    consumer: Consumer
    start: MessageId
    acknowledged: MessageId
    last: MessageId
    life: Life = Life.OPEN
    is_told_late: bool = False
    position: MessageId | None = None
    planned: MessageId | None = None
    backlog: int | None = None
    frozen_end: MessageId | None = None
    is_set_back: bool = False
    is_start_time_found: bool | None = None
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
    known: KnownEntries | None = None
    is_warned_of_chunks: bool = False
    # When the last message was requested, and up to where acknowledgements had been sent.
    _request: tuple[float, MessageId] = (0.0, MessageId.EARLIEST)
    _counted: tuple[MessageId, MessageId] | None = None
    _probed: _Probed | None = None
    _probe_again_at: float = 0.0
    _failed_probes: int = 0  # failures since the last successful probe
    # The last entry that was to be acknowledged before a tail had seen it, and since when.
    _unseen: tuple[MessageId, float] | None = None
    # Processed positions that may not be acknowledged yet, in order; None until a chunk is found.
    _held: deque[_Dated] | None = None

    @classmethod
    def opened(cls, topic: TopicName, consumer: Consumer, answer: LastMessageId) -> Partition:
        """The state right after the subscription was opened."""
        mark = answer.mark_delete
        return cls(topic, consumer, mark, mark, visible_end(answer.last), asked=mark, asked_before=mark)

    def close(self, calls: Calls[Partition]) -> bool:
        """Drop all that is pending; True if its consumer is closed when a request has ended."""
        self.life = Life.CLOSED
        self.close_tail()
        self.close_known()
        then = {Kind.LAST_MESSAGE: lambda _: self.consumer.begin_close()}
        return Kind.LAST_MESSAGE in calls.leave(self, then)

    def requested(self, now: float) -> None:
        """Note that the last message is requested now. It may have changed when the answer comes."""
        self._request = now, self.asked

    def answered(self) -> None:
        """Note that the answer to the last request is used now."""
        self.asked_at, self.asked_before = self._request

    def moved(self, mark_delete: MessageId) -> None:
        """Note that the subscription was moved to another position."""
        self.start = self.acknowledged = self.asked = self.asked_before = mark_delete

    def set_back(self, last: MessageId) -> None:
        """Note that the topic ends before the processed position, and continue from its end."""
        self.start = self.last = last
        # What was known of the other log says nothing of this one.
        self.goes_on = self.next_seen = MessageId.EARLIEST
        self.is_set_back = self.position is None
        if self.position is not None:
            self.position = last

    def take_up(self, checkpointed: MessageId | None) -> None:
        """Begin a trigger with the position that Spark has checkpointed; None for a new partition."""
        is_new = checkpointed is None or self.is_set_back
        self.position = self.start if is_new else checkpointed
        self.is_set_back = False

    def see(self, message: MessageId) -> None:
        """Note a message that the partition has, or had."""
        position = self.position_or_start
        if message > position and (message < self.next_seen or self.next_seen <= position):
            self.next_seen = message

    @property
    def is_closed(self) -> bool:
        """Whether the subscription was closed on it."""
        return self.life is Life.CLOSED

    def hold(self, *, is_held: bool) -> None:
        """Note whether older segments must be read first."""
        if self.life in (Life.OPEN, Life.HELD):
            self.life = Life.HELD if is_held else Life.OPEN

    def be_silent(self, *, is_silent: bool) -> None:
        """Note whether its broker is silent."""
        if is_silent and self.life in (Life.OPEN, Life.HELD):
            self.life = Life.SILENT
        elif not is_silent and self.life is Life.SILENT:
            self.life = Life.OPEN

    @property
    def end(self) -> MessageId:
        """The end of the partition in this run."""
        return self.last if self.frozen_end is None else min(self.last, self.frozen_end)

    @property
    def position_or_start(self) -> MessageId:
        """The position, or the start of a partition that has none yet."""
        return self.start if self.position is None else self.position

    @property
    def processed(self) -> MessageId | None:
        """The last entry that is processed and exists; the user's start may lie after all entries."""
        return None if self.position is None else min(self.position, self.last).last_whole_entry

    def count_backlog(self) -> bool:
        """Compute :attr:`backlog` from entry numbers; False if the broker must count it again."""
        position, last = between = self._waiting
        count = last.entries_since(position) if position < last else 0
        if count is not None:
            self.backlog, self._counted = count, None
        elif self._counted != between:
            self.backlog = None
            return False
        return True

    def backlog_counted(self, count: int) -> None:
        """Note how many entries the broker has after the acknowledged position."""
        self.backlog = max(1, count)
        self._counted = self._waiting

    def entries_until(self, end: MessageId) -> int | None:
        """The number of entries in ``(position, end]``; across ledgers the backlog. None if unknown."""
        count = end.entries_since(self._waiting[0])
        return self.backlog if count is None else count

    @property
    def _waiting(self) -> tuple[MessageId, MessageId]:
        """The position after which nothing is processed, and the end of the topic."""
        return (MessageId.EARLIEST if self.position is None else self.position.last_whole_entry), self.last

    @property
    def is_settled(self) -> bool:
        """Whether all that is known of it is processed and acknowledged, and no micro-batch has more."""
        done, (position, last) = self.processed, self._waiting
        is_done = done is not None and not self.is_unacknowledged(done)
        return is_done and position >= last and self.planned == self.position

    def is_unacknowledged(self, entry: MessageId) -> bool:
        """Whether an entry may be acknowledged and was not yet."""
        return entry.is_message and entry > self.acknowledged

    @property
    def has_chunks(self) -> bool:
        """Whether parts of chunked messages were found."""
        return self._held is not None

    def meet_chunks(self) -> None:
        """Note that a part of a chunked message was found: acknowledge late from now on."""
        if self._held is None:
            self._held = deque()

    def ack_step(
        self, now: float, expire: float, seen: Seen | None = None, *, is_polled: bool = False
    ) -> AckStep:
        """The next step in acknowledging processed entries; see the table at the top.

        Args:
            now: time in seconds of a monotonic clock.
            expire: same as in :meth:`settle`.
            seen: entries that the partition's tail has seen; None if it has no tail.
            is_polled: whether more triggers are expected soon.
        """
        done = self.processed
        if done is None or not self.is_unacknowledged(done) or (self.has_chunks and expire == 0):
            return AckStep.NOTHING
        if self.has_chunks:
            step = self._step_with_chunks(done, now)
        else:
            step = self._step_without_chunks(done, now, seen, is_polled=is_polled)
        return AckStep.WAIT if step is AckStep.PROBE and now < self._probe_again_at else step

    def _step_with_chunks(self, done: MessageId, now: float) -> AckStep:
        if self._held and self._held[-1].position >= done:
            return AckStep.ACKNOWLEDGE
        is_due = done >= self.end or not self._is_probed(done, now, _DATED_FOR)
        return AckStep.PROBE if is_due else AckStep.ACKNOWLEDGE

    def _step_without_chunks(
        self, done: MessageId, now: float, seen: Seen | None, *, is_polled: bool
    ) -> AckStep:
        if seen is not None and self._is_seen(done, seen):
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
        """Whether acknowledging up to ``done`` completes no ledger, so that the broker removes none."""
        return done.ledger == self.acknowledged.ledger == self.last.ledger and done < self.last

    def _is_seen(self, done: MessageId, seen: Seen) -> bool:
        """Whether a tail has seen all unacknowledged entries up to ``done``, or the last few of them."""
        if seen.reached < done:
            return False
        is_near = seen.after.ledger == done.ledger and done.entry - seen.after.entry >= PROBED_ENTRIES
        return seen.after <= self.acknowledged or is_near

    def _is_probed(self, done: MessageId, now: float, seconds: float) -> bool:
        """Whether a ledger was probed for chunks in the last ``seconds`` seconds."""
        probed = self._probed
        return probed is not None and probed.ledger == done.ledger and now < probed.at + seconds

    @property
    def seen(self) -> Seen | None:
        """The entries that the tail has seen; None without a tail."""
        return None if self.tail is None else Seen(self.tail.after, self.tail.reached)

    def follow(self, tail: Tail) -> bool:
        """Let a tail see the entries up to the known end; False if it cannot."""
        end = self.schedule.last.whole_entry
        follows = tail.follow(end)
        if tail.has_chunks:
            self.meet_chunks()
        self.is_behind = self.is_behind and tail.reached < end
        return follows

    def close_tail(self) -> None:
        """Close the tail, if there is one."""
        if self.tail is not None:
            self.tail.close()
        self.tail, self.is_blind = None, False

    def close_known(self) -> None:
        """Forget the known entries, and close their reader."""
        if self.known is not None:
            self.known.close()
        self.known = None

    @property
    def tail_start(self) -> MessageId:
        """The entry after which a tail begins, so that it sees enough to acknowledge the end."""
        if self.is_behind:  # the next tail could not see either what was too large for the last one
            return self.schedule.last.whole_entry
        if self.has_chunks or self.acknowledged >= self.last:
            return self.last
        return max(self.acknowledged, self.last.back(PROBED_ENTRIES))

    def probed(self, entry: MessageId, now: float) -> None:
        """Note that the entries up to ``entry`` were probed for chunks."""
        self._probed = _Probed(entry.ledger, now)
        self._failed_probes = 0

    def probe_failed(self, now: float, waited: float) -> None:
        """Note that a probe failed now, after ``waited`` seconds."""
        rest = min(2**self._failed_probes, _MAX_REST) * waited
        self._probe_again_at = now + max(_PATIENCE, rest)
        self._failed_probes += 1

    def dated(self, entry: MessageId, time_ms: int, now: float) -> None:
        """Note the publish time of a processed entry, if chunks were found.

        Args:
            entry: last processed entry.
            time_ms: its publish time in ms since 1970. Clocks of producers differ, so a position never counts
                as older than those before it.
            now: time in seconds of a monotonic clock.
        """
        assert self._held is not None
        latest = self._held[-1].time_ms if self._held else 0
        if self._held and time_ms <= latest:
            self._held.pop()  # both become settled at the same time
        self._held.append(_Dated(entry, max(latest, time_ms), now))

    def settle(self, expire: float) -> MessageId:
        """The position up to which to acknowledge; ``MessageId.EARLIEST`` for none. See the tables above.

        Args:
            expire: seconds to wait for the rest of an incomplete message, by publish times. 0: no limit.
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
    """The whole entry of the last visible message; ``MessageId.EARLIEST`` if there is none."""
    return last.whole_entry if last.is_message else MessageId.EARLIEST
