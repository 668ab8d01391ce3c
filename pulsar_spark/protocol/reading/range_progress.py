"""RangeProgress: how far a range of a topic partition is read, and which part of it is lost. Pure.

A range is ``(start, end]``. Brokers do not report when a reader begins at deleted data, when they move a
reader over messages (a message TTL, trimming: readers hold nothing), or when what is left of a range is never
delivered (markers of transactions, aborted or compacted messages). So each of its answers is judged:

    what happened                                       judged as
    the reader stands before a later ledger's first     it continues there; loss where ``begins`` proves it
    it stands there, after the end, a visible message   loss of the whole range
    it stands at another entry after the range's start  as a gap: it was moved
    entries came, each directly after the one before    it continues, and at the end it is done
    something came after a gap                          see below; where the gap is empty it continues
    an entry after the end came, in the end's ledger    done: the end is compacted, or was never visible
    one in a later ledger, or nothing is left           done; loss where the end was a visible message
    an entry that cannot be decoded                     it continues after that

A gap is anything between the position and what came next but consecutive entries of one ledger. It is judged
by the reader's mark-delete position, asked for when the entry after the gap has come. A reader acknowledges
nothing while entries come, so its mark stays before the first visible entry that it was given:

    mark                            judged as
    at the position or before it    empty: the reader was not moved over anything in this gap, or a later one
    in the gap                      the broker read over what is never delivered, or moved the reader: probe
    at what came, or after it       the broker moved the reader: read again from the position

A probe is a second reader that begins after the position:

    what it was given               judged as
    what came after the gap         empty
    anything else                   read again from the position
    and it begins in a later ledger than the position's: that one is gone. Loss, unless nothing of the range
    was read yet, something holds the data, and the end is left: then what is gone was processed before

If a range is read again a few times in vain, it is lost.

With ``begins`` nothing holds the data while it is read (a batch read). Ledgers are trimmed from the oldest
on: where a ledger is still there, so is everything after it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulsar_spark.ids import MessageId

if TYPE_CHECKING:
    import numpy.typing as npt

# How often in a row a range is read again from the same position.
_MAX_REPEATS = 5


class LostRange(NamedTuple):
    """Messages in ``(start, end]`` that are gone; the end is None if unknown. ``why`` ends a sentence."""

    start: MessageId
    end: MessageId | None
    why: str

    def __str__(self) -> str:
        return f"({self.start}, {'the end' if self.end is None else self.end}]"


class Gap(Enum):
    """What is known of the entries between the position and what came next."""

    EMPTY = auto()
    """No visible entry is there."""
    UNKNOWN = auto()
    """A second reader must probe there."""
    SKIPPED = auto()
    """There is something, or may be: a new reader must begin after the position."""


class ProbedGap(NamedTuple):
    """What a second reader found out about a gap, and the loss before that."""

    gap: Gap
    lost: LostRange | None = None


class RangeProgress:
    """One range being read.

    Args:
        start: the last entry taken before.
        end: the last entry wanted.
        visible: whether the end was a visible message when the range was planned.
        begins: if nothing holds the data: the position before the first entry that the broker had when
            the range was planned; else None.
        read_compacted: whether the compacted topic is read; then nothing that is missing counts as loss.

    Attributes:
        position: up to here everything is read, or is known to be gone or never to come.
        end: as given.
    """

    def __init__(
        self,
        start: MessageId,
        end: MessageId,
        *,
        visible: bool = True,
        begins: MessageId | None = None,
        read_compacted: bool = False,
    ) -> None:
        self.position = start
        self.end = end
        self._visible = visible and not read_compacted  # compaction may have removed the end
        self._begins = begins
        self._read_compacted = read_compacted
        self._has_read = False
        self._repeats = 0

    @property
    def is_done(self) -> bool:
        """Whether the range is read."""
        return self.position >= self.end

    @property
    def entries_left(self) -> int | None:
        """How many entries are left, where the position is in the end's ledger; else None."""
        return self.end.entries_since(self.position)

    def opened(self, mark_delete: MessageId) -> LostRange | None:
        """Take the reader's position: brokers silently move a start that they no longer have."""
        if self._read_compacted or mark_delete.is_message:
            return None
        start, self.position = self.position, max(self.position, mark_delete)
        why = f"the remaining messages start after {mark_delete}"
        if self._begins is not None and mark_delete > max(start, self._begins):
            return LostRange(max(start, self._begins), min(mark_delete, self.end), why)
        if self._visible and mark_delete >= self.end.whole_entry:
            return LostRange(start, self.end, why)
        return None

    def came(self, last: MessageId) -> None:
        """Note that entries within the range came, up to ``last``, with nothing missing among them."""
        self.position = last
        self._has_read = True
        self._repeats = 0

    def first_gap(self, ledger: npt.NDArray[np.int64], entry: npt.NDArray[np.int64]) -> int:
        """The row of the first entry that does not directly follow the one before it; n where all do.

        ``ledger`` and ``entry``, int64[n], are those of the entries that came next; both ascend together.
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
        """Judge the gap after the position, and those after it, by the mark when ``found`` had come."""
        if mark_delete <= self.position:
            return Gap.EMPTY
        return Gap.UNKNOWN if mark_delete < found else Gap.SKIPPED

    def judge_silence(self, last: MessageId, mark_delete: MessageId) -> Gap | None:
        """Judge what is left of the range when nothing comes; None where it may still come.

        Args:
            last: the last visible message of the partition.
            mark_delete: of the reader, when it has acknowledged ``position``. Brokers acknowledge by
                themselves what they read over and do not deliver, so it shows how far they have read.
        """
        if self._read_compacted and not last.is_message:
            return Gap.UNKNOWN  # nothing is kept; or the broker has not yet opened what is
        if last.whole_entry <= self.position:
            return Gap.EMPTY
        has_read_over = not self._read_compacted and mark_delete >= self.end.whole_entry
        return Gap.UNKNOWN if has_read_over else None

    def judge_probe(self, begins: MessageId, first: MessageId | None, found: MessageId | None) -> ProbedGap:
        """Judge a gap by what a second reader was given after the position.

        Args:
            begins: the position after which it began.
            first: what it was given first; None where nothing came.
            found: what came after the gap; None where nothing came.
        """
        position, lost = self.position, None
        if not self._read_compacted and begins > position and begins.is_message:
            return ProbedGap(Gap.SKIPPED)  # it was moved, too
        if not self._read_compacted and begins.ledger > position.ledger:
            self.position = min(begins, self.end)
            is_all_gone = self._visible and begins >= self.end.whole_entry
            is_unheld = self._begins is not None and begins > max(position, self._begins)
            if self._has_read or is_all_gone or is_unheld:
                why = f"the broker deleted ledger {position.ledger} while it was read"
                lost = LostRange(position, self.position, why)
        is_after_end = first is None or first > self.end.whole_entry
        is_empty = first == found or (found is None and is_after_end)
        return ProbedGap(Gap.EMPTY if is_empty else Gap.SKIPPED, lost)

    def repeat(self, found: MessageId | None) -> LostRange | None:
        """Note that the range is read again from the position; repeated in vain, the gap is a loss.

        ``found`` is what came after the gap; None where nothing came.
        """
        self._repeats += 1
        if self._repeats <= _MAX_REPEATS:
            return None
        lost_end = self.end if found is None else min(found.back(1), self.end)
        why = f"the broker moved {self._repeats} readers past them, as with a message TTL"
        lost = LostRange(self.position, lost_end, why)
        self.came(lost_end)
        return lost

    def passed(self, found: MessageId | None) -> LostRange | None:
        """Note that nothing more of the range will come; ``found`` is the entry after it that came."""
        lost = None
        is_left = self._visible and self.position < self.end.whole_entry
        if is_left and (found is None or found.ledger != self.end.ledger):
            where = "the broker sent nothing more" if found is None else f"the broker sent {found}"
            lost = LostRange(self.position, self.end, f"after {self.position} {where}")
        self.position = self.end
        return lost

    def skip(self, corrupt: MessageId) -> None:
        """Go on after an entry within the range that cannot be decoded."""
        self.position = corrupt
