"""Admission control: the end of each micro-batch, within the user's limits.

If the broker's answers for a partition are late, the partition is left out of the plan, and a later plan uses
the answers.

A limit is divided among partitions in proportion to their waiting entries; a partition's part is its share.
Each partition gets at least one entry, so that it progresses with any limit, and further entries only if they
fit its share. So a batch exceeds the limit by at most one entry per partition. The unused part of a share
goes to larger partitions. If more partitions wait than a batch may have messages, they take turns
(:func:`in_turn`). Entries are counted as follows:

    the first entries, up to a ScanLimit         exactly: each is probed (broker_probe.KnownEntries)
    later, for a limit of messages with          exactly: the end is searched by the difference of indexes
    the broker's message indexes
    later, for a limit of bytes, or no indexes   by an estimate from the probed entries

An estimated end never goes past the end of its ledger, and is always a visible message.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_right
from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

from pulsar_spark.client import Calls, EntryInfo, Kind
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import Limits
from pulsar_spark.spark.plan.broker_probe import BrokerProbe, KnownEntries, ScanLimit, messages_in
from pulsar_spark.spark.plan.partition import Partition

_log = logging.getLogger(__name__)

# Maximum probes to find, by message indexes, the last entry within a limit: interpolations (GUESSES), which
# usually succeed, then a bisection, which always succeeds.
GUESSES = 6
MAX_PROBES = GUESSES + 32

_Positions: TypeAlias = Mapping[Partition, MessageId]


class Room(NamedTuple):
    """A limit in messages and bytes, or the unused part of a limit; None: no limit."""

    messages: int | None
    size: int | None

    def part(self, weight: int, of: int) -> Room:
        """Returns a partition's share of this limit, ``weight / of``; negative if the limit was exceeded."""
        return Room(*(None if whole is None else whole * weight // of for whole in self))

    def less(self, messages: int, size: int) -> Room:
        """Returns the unused part of the limit after ``messages`` messages and ``size`` bytes."""
        return Room(
            None if self.messages is None else self.messages - messages,
            None if self.size is None else self.size - size,
        )

    def holds(self, messages: int, size: int) -> bool:
        """Whether ``messages`` messages and ``size`` bytes fit."""
        return (self.messages is None or messages <= self.messages) and (
            self.size is None or size <= self.size
        )


class Taken(NamedTuple):
    """The probed entries of a partition that a batch reads.

    Attributes:
        room: unused part of the share, for entries after the probed ones; None: the batch reads none.
    """

    end: MessageId
    messages: int
    size: int
    room: Room | None = None


class Admission:
    """Plans the ends of one query's micro-batches.

    ``failed``: partitions for which the broker has not answered, or not completely, in the last plan.
    """

    def __init__(self, limits: Limits, source: BrokerProbe, calls: Calls[Partition]) -> None:
        self._limits = limits
        self._source = source
        self._scans, self._searches = calls[Kind.ENTRIES], calls[Kind.SEARCH]
        self._since: float | None = None
        self._failure: PulsarError | None = None
        self._patience: float | None = None
        self._last_turn: TopicName | None = None
        self.failed: set[Partition] = set()

    def plan(
        self,
        starts: _Positions,
        ends: _Positions,
        backlogs: Mapping[Partition, int],
        now: float,
        *,
        available_now: bool = False,
        patience: float | None = None,
    ) -> dict[Partition, MessageId]:
        """Returns the ends of the next batch; ``starts`` if no batch is due yet.

        Args:
            ends: maximum end of each partition: its last visible message (whole entry), never before its
                start.
            backlogs: approximate number of entries between start and end, by which the limit is divided; a
                missing partition has 1.
            available_now: whether to ignore ``min_messages``.
            patience: seconds to wait for the next partition's complete answer; each answer restarts the wait.
                None: wait for all answers.

        A partition without an answer stays at its start, with a warning.

        Raises:
            PulsarError: the broker will never answer, for example about a deleted topic; or, with
                ``available_now``, no partition can advance, so the query would end as if all messages were
                read.
        """
        self._failure = None
        self.failed = set()
        self._since = now if self._since is None else self._since
        open_ = {each: max(1, backlogs.get(each, 1)) for each in ends if starts[each] < ends[each]}
        self._patience = patience
        self._forget(starts)
        if not open_:
            return dict(starts)
        due = (
            available_now or self._limits.min_messages is None or now - self._since >= self._limits.max_delay
        )
        if not due and not self._enough(starts, ends, open_):
            return dict(starts)
        planned = dict(starts if self._limits.is_capped else ends)
        count = self._limits.max_messages
        while open_ and planned == starts:
            # The first turn is random, because short runs must not always read the same partitions.
            named = {each.topic: each for each in open_}
            turn = in_turn(named, self._last_turn or random.choice([*named]), count)
            self._last_turn, count = turn[-1], None  # None: the second round plans all others
            planned = self._capped(starts, ends, {named[each]: open_.pop(named[each]) for each in turn})
            if not available_now:
                break  # the remaining partitions have the next turns
        if planned != starts:
            self._since = now
        elif available_now and self._failure is not None:
            raise self._failure
        return planned

    @property
    def is_busy(self) -> bool:
        """Whether requests are pending, so that a later plan may have more entries."""
        return bool(self._scans.busy or self._searches.busy)

    def _forget(self, starts: _Positions) -> None:
        """Drops probed entries up to ``starts``; drops all if the broker was late or the start was moved."""
        slow = self._scans.take()
        for partition, start in starts.items():
            known = partition.known
            if known is not None and (known.is_late or not known.follow(start)):
                partition.close_known()
        self._take_scans(slow, starts)

    def _enough(self, starts: _Positions, ends: _Positions, open_: Mapping[Partition, int]) -> bool:
        """Whether ``min_messages`` are waiting; an estimate if not all entries are probed."""
        wanted = self._limits.min_messages or 0
        found = 0.0
        for each, known in self._scan(starts, ends, dict.fromkeys(open_, Room(wanted, None))).items():
            found += known.messages
            if known.is_full and known.reached < ends[each]:
                unknown = max(0, open_[each] - len(known.entries))
                found += unknown * known.messages / len(known.entries)
        return found >= wanted

    def _capped(
        self, starts: _Positions, ends: _Positions, open_: Mapping[Partition, int]
    ) -> dict[Partition, MessageId]:
        left = Room(self._limits.max_messages, self._limits.max_bytes)
        weight = sum(open_.values())
        known = self._scan(starts, ends, {it: left.part(each, weight) for it, each in open_.items()})
        planned = dict(starts)
        further: dict[Partition, Room] = {}
        # Small partitions first, because the unused parts of their shares go to the larger partitions.
        for partition in sorted(known, key=lambda each: (open_[each], each.topic)):
            share = left.part(open_[partition], weight)
            weight -= open_[partition]
            taken = take(known[partition], share, ends[partition])
            planned[partition] = taken.end
            if taken.room is None:
                left = left.less(taken.messages, taken.size)
            else:
                further[partition] = taken.room
                left = left.less(share.messages or 0, share.size or 0)
        busy = self._searches.busy | self._searches.take().keys()  # drops late results: their limits are old
        calls = {
            partition: partial(beyond, self._source, partition.topic, known[partition], room, ends[partition])
            for partition, room in further.items()
            if partition not in busy
        }
        for partition, end in self._searches.run(calls, self._patience, is_steady=True).items():
            if isinstance(end, PulsarError):
                self._leave_out(end, partition)
            elif partition in calls:
                planned[partition] = end
        return planned

    def _scan(
        self, starts: _Positions, ends: _Positions, rooms: Mapping[Partition, Room]
    ) -> dict[Partition, KnownEntries]:
        """Probes each partition's entries up to its limit; leaves out partitions that fail or are slow."""
        limit, busy = ScanLimit.of(len(rooms)), self._scans.busy

        def scan(partition: Partition, known: KnownEntries | None) -> KnownEntries:
            known = known or KnownEntries(self._source, partition.topic, starts[partition])
            known.limit = limit
            messages, size = (None if part is None else max(1, part) for part in rooms[partition])
            try:
                known.scan(messages, size, ends[partition])
            except BaseException:
                known.close()
                raise
            return known

        calls = {}
        for partition in rooms:
            known = partition.known
            if partition not in busy and (known is None or not known.is_late):
                calls[partition] = partial(scan, partition, known)
                partition.known = None  # in use by the scan's thread, until ``_take_scans`` sets it again
        self._take_scans(self._scans.run(calls, self._patience, is_steady=True), starts)
        return {each: each.known for each in rooms if each.known is not None}

    def _take_scans(self, scans: Mapping[Partition, KnownEntries | PulsarError], starts: _Positions) -> None:
        """Stores the entries that scans have found after ``starts``; reports failures."""
        for partition, found in scans.items():
            if isinstance(found, PulsarError):
                continue
            # Useless entries: the partition was deleted, or its position moved back, since the scan began.
            if partition not in starts or not found.follow(starts[partition]):
                found.close()
                continue
            partition.known = found
            if found.is_late:
                self.failed.add(partition)
                _log.warning(
                    "%s: this micro-batch contains only the entries that the broker has sent in time",
                    partition.topic,
                )
        # Errors are raised last, so that the entries of the other scans are stored or closed first.
        for partition, found in scans.items():
            if isinstance(found, PulsarError):
                self._leave_out(found, partition)

    def _leave_out(self, error: PulsarError, partition: Partition) -> None:
        """Leaves a partition out of the plan if the broker may answer later; raises the error otherwise."""
        self._failure = error.located(str(partition.topic))
        if not error.is_passing:
            raise self._failure
        self.failed.add(partition)
        _log.warning("a partition is left out of this micro-batch: %s", self._failure)


def in_turn(topics: Collection[TopicName], before: TopicName, count: int | None) -> list[TopicName]:
    """Returns ``count`` partitions after ``before`` in cyclic order.

    Pass the last returned partition as ``before`` of the next call. So each partition has its turn before
    any has a second turn. ``count`` None: all partitions.
    """
    ordered = sorted(topics)
    first = bisect_right(ordered, before)
    return (ordered[first:] + ordered[:first])[:count]


def take(known: KnownEntries, share: Room, end: MessageId) -> Taken:
    """Returns the probed entries that fit into ``share``, a partition's part of the limit; at least one."""
    messages = size = 0
    last = None
    for entry in known.entries:
        if entry.id > end:
            break
        more, larger = messages + messages_in(entry), size + entry.size
        if last is not None and not share.holds(more, larger):
            return Taken(last, messages, size)
        last, messages, size = entry.id, more, larger
    if last is None or known.reached >= end:
        # No visible entry is left up to ``end``. The task checks whether one was lost.
        return Taken(end, messages, size)
    return Taken(last, messages, size, share.less(messages, size) if known.is_full else None)


def beyond(
    source: BrokerProbe, topic: TopicName, known: KnownEntries, room: Room, end: MessageId
) -> MessageId:
    """Returns the end of a batch in a partition whose probed entries all fit: the last probed entry or later.

    ``room``: unused part of the partition's share. With the broker's message indexes the end is searched;
    otherwise it is estimated from the mean of the probed entries, within the ledger of the last probed entry.
    """
    last = known.entries[-1]
    ledger, first = last.id.ledger, last.id.entry
    in_ledger = end.entry
    mean_size = known.size / len(known.entries)
    if ledger != end.ledger:
        in_ledger, total = source.ledger_end(topic, last.id, end)
        mean_size = mean_size if total is None else total / (in_ledger + 1)
    too_far = in_ledger + 1
    if room.size is not None:
        too_far = min(too_far, first + 1 + int(room.size / max(1.0, mean_size)))
    best = last
    each = max(1.0, known.messages) / len(known.entries)
    for turn in range(MAX_PROBES):
        target = too_far - 1
        if room.messages is not None:
            left = room.messages - (_messages_between(last, best) or 0)
            further = int(left / each) if turn < GUESSES else (too_far - best.id.entry) // 2
            if last.index is not None:
                further = max(1, further)
            target = min(target, best.id.entry + further)
        if target <= best.id.entry:
            break
        seen = source.probe_entry(topic, MessageId(ledger, target))
        if seen.id > end:
            return end
        count = _messages_between(last, seen)
        if room.messages is None or count is None:
            return seen.id
        if count > room.messages:
            too_far = target
            each = max(each, count / (target - first))
        elif seen.id.ledger != ledger or count == room.messages:
            return seen.id
        else:
            best = seen
            each = max(1.0, count / (seen.id.entry - first))
    return best.id


def _messages_between(first: EntryInfo, last: EntryInfo) -> int | None:
    """Returns the number of messages after ``first`` up to ``last``; None if the broker sends no indexes."""
    return None if first.index is None or last.index is None else last.index - first.index
