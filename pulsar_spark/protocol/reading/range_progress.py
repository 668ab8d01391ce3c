"""Range, and RangeProgress: the position in a range, and the lost part of the range. Pure.

A range is ``(start, end]``. Brokers do not report that a reader begins after deleted data, that message TTL
or trimming has moved a reader, or that the rest of a range is invisible: never delivered, like transaction
markers, and aborted or compacted messages. So RangeProgress decides by the broker's answers:

    event                                               decision
    reader begins at a later ledger's start             continue there; but probe if that is after
                                                        ``Range.begins`` or a visible end
    reader begins at another entry after the start      gap: the reader was moved
    consecutive entries are received                    continue; done at the end
    an entry after a gap is received                    see below; continue if the gap is empty
    an entry after the end, in the end's ledger         done: the end is compacted, or was never visible
    an entry in a later ledger, or no message is left   done; loss if the end was a visible message
    no message is left, but a message follows the end   probe
    an entry that cannot be decoded                     continue after it

A gap lies between the position and the next received entry, unless these are consecutive entries of one
ledger. The reader's mark-delete position, requested after that entry, decides. The reader acknowledges
nothing while entries arrive, so this position stays before the first visible entry that it received:

    mark-delete position            decision
    at or before the position       empty: the broker has not moved the reader past the position
    in the gap                      the broker skipped invisible entries, or moved the reader: probe
    at or after the received entry  the broker moved the reader: read again from the position

A probe is a second reader that begins after the position:

    first entry of the probe        decision
    the entry after the gap         empty
    any other                       read again from the position

If the probe begins in a later ledger, the position's ledger was deleted. This is a loss if an entry of the
range was read before, or if the probe begins after ``Range.begins`` or a visible end. Otherwise the deleted
entries were processed, or had been deleted before the range was planned.

Brokers also move a reader from the end of a stored ledger to the next one. So a ledger is gone only if a
reader that begins at the position, inclusive, begins in a later ledger, too. Ledgers are trimmed from the
oldest on, so a stored ledger proves that all later ones are stored. If a few repeated reads of a range find
nothing, the range is lost.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.copies import CopyRange

if TYPE_CHECKING:
    import numpy.typing as npt

# Maximum attempts in a row to read a range again from the same position.
_MAX_REPEATS = 5


class Range(NamedTuple):
    """A range to read: the messages of a topic partition in ``(start, end]``.

    Attributes:
        topic: one partition, or a topic without partitions.
        start: position before the first message; it may be a message within a batch.
        end: last message, inclusive.
        visible: whether ``end`` was a visible message when the range was planned; its absence then is data
            loss. False for borders within a split range, and for ends from users, which may be markers,
            aborted, or after the end of their ledger.
        begins: position after which the broker had all messages when the range was planned; if a reader can
            only begin later, data is lost. None: unknown.
        followed: whether a visible message followed ``end`` when the range was planned.
        copies: limits of the copies to read if the query has moved here from a cluster; None: no limits.
    """

    topic: TopicName
    start: MessageId
    end: MessageId
    visible: bool = True
    begins: MessageId | None = None
    followed: bool = False
    copies: CopyRange | None = None


class LostRange(NamedTuple):
    """Lost messages in ``(start, end]``; ``end`` is None if unknown. ``why``: reason, for an error's text."""

    start: MessageId
    end: MessageId | None
    why: str

    def __str__(self) -> str:
        return f"({self.start}, {'the end' if self.end is None else self.end}]"


class Gap(Enum):
    """The possible states of the entries between the position and the next received entry."""

    EMPTY = auto()
    """The gap has no visible entry."""
    UNKNOWN = auto()
    """A second reader must probe the gap."""
    SKIPPED = auto()
    """The gap may have visible entries, so a new reader must begin after the position."""


class ProbedGap(NamedTuple):
    """The result of a probe. ``lost``: messages that the broker has deleted, or None."""

    gap: Gap
    lost: LostRange | None = None


class RangeProgress:
    """The progress of reading one range.

    Args:
        visible, begins, followed: as in :class:`Range`.
        read_compacted: whether the compacted topic is read; then no missing entry counts as loss.

    Attributes:
        position: last entry that is read, lost, or known to be invisible, with all entries before it.
    """

    def __init__(
        self,
        start: MessageId,
        end: MessageId,
        *,
        visible: bool = True,
        begins: MessageId | None = None,
        followed: bool = False,
        read_compacted: bool = False,
    ) -> None:
        self.position = start
        self.end = end
        self._visible = visible and not read_compacted  # compaction may have removed the end
        self._begins = begins or MessageId.LATEST
        self._followed = followed and not read_compacted
        self._read_compacted = read_compacted
        self._has_read = False
        self._repeats = 0

    @property
    def is_done(self) -> bool:
        """Whether the range is read."""
        return self.position >= self.end

    @property
    def entries_left(self) -> int | None:
        """Number of entries left, if the position is in the end's ledger; else None."""
        return self.end.entries_since(self.position)

    def opened(self, mark_delete: MessageId) -> bool:
        """Continues where a new reader begins, because brokers silently move readers past deleted entries.

        ``mark_delete``: the new reader's mark-delete position. Returns whether messages before it seem to be
        lost; then the caller must probe.
        """
        if self._read_compacted or mark_delete.is_entry:
            return False
        if self._is_late(mark_delete):
            return True
        self.position = max(self.position, mark_delete)
        return False

    def _is_late(self, begins: MessageId) -> bool:
        """Whether a reader that begins after ``begins`` misses messages that existed when planning."""
        is_after_end = self._visible and begins >= self.end.whole_entry
        return is_after_end or begins > max(self.position, self._begins)

    def received(self, last: MessageId) -> None:
        """Records received entries of the range, up to ``last``, without gaps."""
        self.position = last
        self._has_read = True
        self._repeats = 0

    def first_gap(self, ledger: npt.NDArray[np.int64], entry: npt.NDArray[np.int64]) -> int:
        """Returns the index of the first entry that does not directly follow the entry before; n if all do.

        ``ledger``, ``entry``: ids of the next received entries, ascending, int64[n].
        """
        count, position = len(entry), self.position
        if not count or self._read_compacted:
            return count
        if not (ledger[0] == position.ledger and entry[0] == position.entry + 1):
            return 0
        if ledger[-1] == ledger[0] and entry[-1] - entry[0] == count - 1:
            return count
        follows = (ledger[1:] == ledger[0]) & (np.diff(entry) == 1)
        return 1 + int(np.argmin(follows))

    def judge_gap(self, mark_delete: MessageId, found: MessageId) -> Gap:
        """Judges the gap before ``found`` by the mark-delete position after the reader received ``found``."""
        if mark_delete <= self.position:
            return Gap.EMPTY
        return Gap.UNKNOWN if mark_delete < found else Gap.SKIPPED

    def judge_silence(self, last: MessageId, mark_delete: MessageId) -> Gap | None:
        """Judges the unread part of the range while no entry is received; None: wait for more entries.

        Args:
            last: last visible message of the partition.
            mark_delete: the reader's mark-delete position after it acknowledged ``position``. Brokers then
                move it past invisible entries, so it shows how far the broker has read.
        """
        if self._read_compacted and not last.is_entry:
            return Gap.UNKNOWN  # probe: the topic is empty, or the broker has not opened it yet
        if last.whole_entry <= self.position:
            return Gap.UNKNOWN if self._followed else Gap.EMPTY
        has_read_over = not self._read_compacted and mark_delete >= self.end.whole_entry
        return Gap.UNKNOWN if has_read_over else None

    def judge_probe(self, begins: MessageId, first: MessageId | None, found: MessageId | None) -> ProbedGap:
        """Judges a gap by the first entry of a second reader that begins after the position.

        Args:
            begins: mark-delete position of the second reader. If this was the start of a later ledger: the
                mark-delete position after a seek to ``position``, inclusive.
            first: first entry of the second reader; None: no entry.
            found: entry received after the gap; None: no entry.
        """
        position, lost = self.position, None
        if not self._read_compacted and begins > position and begins.is_entry:
            return ProbedGap(Gap.SKIPPED)  # the broker moved the probing reader, too: read again
        if not self._read_compacted and begins.ledger > position.ledger:
            is_lost = self._has_read or self._is_late(begins)
            self.position = min(begins, self.end)
            if is_lost:
                why = f"the broker deleted ledger {position.ledger} while it was read"
                if not self._has_read:
                    why = f"the remaining messages start after {begins}"
                if self._begins < begins:
                    position = max(position, self._begins)
                lost = LostRange(position, self.position, why)
        is_after_end = not self._followed if first is None else first > self.end.whole_entry
        is_empty = is_after_end if found is None else first == found
        return ProbedGap(Gap.EMPTY if is_empty else Gap.SKIPPED, lost)

    def repeat(self, found: MessageId | None) -> LostRange | None:
        """Counts an attempt to read again from the position; after too many, returns the lost part.

        ``found``: entry received after the gap; None: no entry.
        """
        self._repeats += 1
        if self._repeats <= _MAX_REPEATS:
            return None
        lost_end = self.end if found is None else min(found.back(1), self.end)
        why = f"{self._repeats} readers did not receive them: a message TTL, or two clusters in service.url"
        lost = LostRange(self.position, lost_end, why)
        self.received(lost_end)
        return lost

    def passed(self, found: MessageId | None) -> LostRange | None:
        """Ends the range; returns its unread part if it is lost. ``found``: entry received after it."""
        lost = None
        is_left = self._visible and self.position < self.end.whole_entry
        if is_left and (found is None or found.ledger != self.end.ledger):
            where = "the broker sent nothing more" if found is None else f"the broker sent {found}"
            lost = LostRange(self.position, self.end, f"after {self.position} {where}")
        self.position = self.end
        return lost

    def skip(self, corrupt: MessageId) -> None:
        """Continues after an entry of the range that cannot be decoded."""
        self.position = corrupt
