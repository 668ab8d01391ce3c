"""PartitionState: what one run of a query knows of one topic partition, and what it may acknowledge. Pure.

Processed messages are acknowledged immediately, unless chunked messages are near: a batch may end inside
one, and its first chunks must stay until the batch that holds the last one has read them. If some were
ever met, each processed position is dated by the publish time of its entry, and acknowledged when no message
that begins before it may still complete. Where none was, an acknowledgement that lets the broker remove a
ledger needs to know that the last few entries up to it are no chunks: the partition's tail has seen them, or
they are probed. The broker removes whole ledgers, of which everything is acknowledged. So while a later entry
of the same ledger is known, an acknowledgement within that removes nothing.
:meth:`PartitionState.ack_step`; the first row that fits holds, and then the last one:

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

``expire`` is the longest time between the publishing of the first chunk of a message and that of its last,
over which readers give it up; with 0 messages complete at any time. :meth:`PartitionState.settle`, where
chunks were met:

    known of a processed position                                 it is
    messages complete at any time                                 held
    a later one is processed, dated more than ``expire`` after    settled
    it is the end, and nothing came after it for ``expire``       settled
    else                                                          held

A later position is processed by a batch that was planned later. How long batches take, or wait, makes no
difference: our own clock counts only for the silence of a partition, from when its end was processed to when
it was asked last.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pulsar_spark.client import LastMessageId
from pulsar_spark.ids import MessageId

# Entries up to an acknowledged one that are looked at for chunks: where several producers write chunks lie
# among other messages. And seconds for which it is good that there was none, and that an entry is dated.
PROBED_ENTRIES = 16
_PROBED_FOR = 10.0
_DATED_FOR = 1.0
# Seconds that a tail is waited for, between two probes of older ledgers, and after one that failed.
_PATIENCE = 1.0
# Maximum rest after a probe that failed, in multiples of the time that it took: the query waits for probes.
# Rests grow from one failure to the next, because a single one may come from an unload of the topic.
_MAX_REST = 10


class AckStep(Enum):
    """What comes next in acknowledging a partition."""

    NOTHING = "nothing is to be acknowledged"
    ACKNOWLEDGE = "it is acknowledged now"
    PROBE = "it is probed for chunks first"
    WAIT = "it is acknowledged later"


class Seen(NamedTuple):
    """All visible entries of a partition in ``(after, reached]`` were seen, and none was part of a chunk."""

    after: MessageId
    reached: MessageId


class _Probed(NamedTuple):
    """Where a partition was probed for chunks, and when."""

    ledger: int
    at: float


class _Dated(NamedTuple):
    """A processed position, the latest publish time up to it in ms since 1970, and when it was found out."""

    position: MessageId
    time_ms: int
    since: float


@dataclass(slots=True)
class PartitionState:
    """One partition; positions mean "taken up to here".

    Attributes:
        start: where the query's subscription stood when this run opened it.
        acknowledged: up to where this run has acknowledged it, or found it acknowledged.
        last: the last visible message, a whole entry; ``MessageId.EARLIEST`` where there is none.
        position: up to where Spark has checkpointed it as processed; None before the first trigger.
        planned: where the last planned batch ends; None before the first.
        backlog: entries in ``(position, last]``, as of the last trigger; None where it is not known.
        frozen_end: the end of a run that takes what there was when it began; None in other runs.
        is_set_back: whether the topic ends before the checkpoint: the next trigger begins at ``start``.
        is_start_time_found: whether the user's start time was found: later batches are not searched for it.
        asked_at: when ``last`` was asked for; the answer may be newer.
    """

    start: MessageId
    acknowledged: MessageId
    last: MessageId
    position: MessageId | None = None
    planned: MessageId | None = None
    backlog: int | None = None
    frozen_end: MessageId | None = None
    is_set_back: bool = False
    is_start_time_found: bool = False
    asked_at: float = 0.0
    _counted: tuple[MessageId, MessageId] | None = None
    _probed: _Probed | None = None
    _probe_again_at: float = 0.0
    _failed_probes: int = 0  # since the last that did not fail
    # The last entry that no tail had seen when it was to be acknowledged, and since when.
    _unseen: tuple[MessageId, float] | None = None
    # Processed positions that may not be acknowledged yet, in order; None while no chunk was met.
    _held: deque[_Dated] | None = None

    @classmethod
    def opened(cls, answer: LastMessageId) -> PartitionState:
        """The state when the subscription was opened."""
        return cls(answer.mark_delete, answer.mark_delete, visible_end(answer.last))

    def moved(self, mark_delete: MessageId) -> None:
        """Take in that the subscription was put to another position."""
        self.start = self.acknowledged = mark_delete

    def set_back(self, last: MessageId) -> None:
        """Take in that the topic ends before what was processed, and go on from its end."""
        self.start = self.last = last
        self.is_set_back = self.position is None
        if self.position is not None:
            self.position = last

    def take_up(self, checkpointed: MessageId | None) -> None:
        """Begin a trigger with what Spark has checkpointed; None for a partition that is new."""
        is_new = checkpointed is None or self.is_set_back
        self.position = self.start if is_new else checkpointed
        self.is_set_back = False

    @property
    def end(self) -> MessageId:
        """Where the partition ends for this run."""
        return self.last if self.frozen_end is None else min(self.last, self.frozen_end)

    @property
    def processed(self) -> MessageId | None:
        """The last entry that is processed and exists; a start that the user gave may lie after all."""
        return None if self.position is None else min(self.position, self.last).last_whole_entry

    def count_backlog(self) -> bool:
        """Count :attr:`backlog` by the numbers of entries; False where the broker has to count it anew."""
        position, last = between = self._waiting
        count = last.entries_since(position) if position < last else 0
        if count is not None:
            self.backlog = count
        elif self._counted != between:
            self.backlog = None
            return False
        return True

    def backlog_counted(self, count: int) -> None:
        """Take in how many entries the broker has after what is acknowledged."""
        self.backlog = max(1, count)
        self._counted = self._waiting

    def entries_until(self, end: MessageId) -> int | None:
        """The entries in ``(position, end]``, in another ledger those of the backlog; None: not known."""
        count = end.entries_since(self._waiting[0])
        return self.backlog if count is None else count

    @property
    def _waiting(self) -> tuple[MessageId, MessageId]:
        """The position after which nothing is processed, and the end of the topic."""
        return (MessageId.EARLIEST if self.position is None else self.position.last_whole_entry), self.last

    def is_unacknowledged(self, entry: MessageId) -> bool:
        """Whether an entry is to be acknowledged that was not."""
        return entry.is_message and entry > self.acknowledged

    @property
    def has_chunks(self) -> bool:
        """Whether parts of chunked messages were met."""
        return self._held is not None

    def meet_chunks(self) -> None:
        """Take in that a part of a chunked message was met: acknowledge late from now on."""
        if self._held is None:
            self._held = deque()

    def ack_step(
        self, now: float, expire: float, seen: Seen | None = None, *, is_polled: bool = False
    ) -> AckStep:
        """What comes next in acknowledging what is processed; see the table at the top.

        Args:
            now: seconds of a clock that never goes back.
            expire: as for :meth:`settle`.
            seen: by the partition's tail; None where there is none.
            is_polled: whether there will be other triggers soon.
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
        if done < self.last and done < self.end:
            waits = done.ledger < self.last.ledger and self._is_probed(done, now, _PATIENCE)
        else:
            if self._unseen is None or self._unseen[0] != done:
                self._unseen = done, now
            waits = is_polled and now < self._unseen[1] + _PATIENCE
        return AckStep.WAIT if waits else AckStep.PROBE

    def _removes_nothing(self, done: MessageId) -> bool:
        """Whether no ledger is acknowledged to its end with an entry that was not so before."""
        return done.ledger == self.acknowledged.ledger == self.last.ledger and done < self.last

    def _is_seen(self, done: MessageId, seen: Seen) -> bool:
        """Whether a tail has seen all that is not acknowledged up to an entry, or the last few."""
        if seen.reached < done:
            return False
        is_near = seen.after.ledger == done.ledger and done.entry - seen.after.entry >= PROBED_ENTRIES
        return seen.after <= self.acknowledged or is_near

    def _is_probed(self, done: MessageId, now: float, seconds: float) -> bool:
        """Whether a ledger was probed for chunks so lately."""
        probed = self._probed
        return probed is not None and probed.ledger == done.ledger and now < probed.at + seconds

    @property
    def tail_start(self) -> MessageId:
        """After which entry a tail is to begin, so that what it sees is enough to acknowledge the end."""
        if self.has_chunks or self.acknowledged >= self.last:
            return self.last
        return max(self.acknowledged, self.last.back(PROBED_ENTRIES))

    def probed(self, entry: MessageId, now: float) -> None:
        """Take in that the entries up to one were probed for chunks."""
        self._probed = _Probed(entry.ledger, now)
        self._failed_probes = 0

    def probe_failed(self, now: float, waited: float) -> None:
        """Take in that the entries could not be probed now, which was found out after ``waited`` seconds."""
        rest = min(2**self._failed_probes, _MAX_REST) * waited
        self._probe_again_at = now + max(_PATIENCE, rest)
        self._failed_probes += 1

    def dated(self, entry: MessageId, time_ms: int, now: float) -> None:
        """Take in when a processed entry was published, where chunks were met.

        Args:
            entry: the last that is processed.
            time_ms: its publish time in ms since 1970. Clocks of producers differ: a position counts as no
                older than those before it.
            now: seconds of a clock that never goes back.
        """
        assert self._held is not None
        latest = self._held[-1].time_ms if self._held else 0
        if self._held and time_ms <= latest:
            self._held.pop()  # both settle at the same time
        self._held.append(_Dated(entry, max(latest, time_ms), now))

    def settle(self, expire: float) -> MessageId:
        """Up to where it may be acknowledged; ``MessageId.EARLIEST`` for nothing. See the tables at the top.

        Args:
            expire: seconds for which an incomplete message is waited for, by publish times. 0: for ever.
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
    """The whole entry of the last visible message; ``MessageId.EARLIEST`` where there is none."""
    return last.whole_entry if last.is_message else MessageId.EARLIEST
