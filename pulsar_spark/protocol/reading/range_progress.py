"""RangeProgress: how far a range of a topic partition is read, and which part of it is lost. Pure.

A range is ``(start, end]``. Brokers do not report that a reader begins after deleted data, that a message TTL
or trimming has moved it, or that the rest of a range is never delivered (markers of transactions, aborted or
compacted messages). So each answer of the broker is judged:

    what happened                                       judged as
    the reader stands before a later ledger's first     it continues there
    it stands there, after ``begins``, or after an end  probe
    that was a visible message
    it stands at another entry after the range's start  as a gap: it was moved
    entries came, each directly after the one before    it continues, and at the end it is done
    something came after a gap                          see below; where the gap is empty it continues
    an entry after the end came, in the end's ledger    done: the end is compacted, or was never visible
    one in a later ledger, or nothing is left           done; loss where the end was a visible message
    nothing is left, and a message is known to follow   probe
    an entry that cannot be decoded                     it continues after that

A gap lies between the position and the next received entry, unless these are consecutive entries of one
ledger. The reader's mark-delete position, requested after that entry, judges it. The reader acknowledges
nothing while entries arrive, so its mark stays before the first visible entry that it received:

    mark                            judged as
    at the position or before it    empty: the reader was not moved over anything in this gap, or a later one
    in the gap                      the broker read over what is never delivered, or moved the reader: probe
    at what came, or after it       the broker moved the reader: read again from the position

A probe is a second reader that begins after the position:

    what it was given               judged as
    what came after the gap         empty
    anything else                   read again from the position
    and it begins in a later ledger than the position's: that one is gone. Loss, if something of the range was
    read, or as above when a reader begins: else what is gone was processed before, or gone before

Brokers also move a reader from the end of a stored ledger to the next one. So a ledger is gone only if a
reader that begins at the position, inclusive, begins in a later ledger, too. Ledgers are trimmed from the
oldest on, so a stored ledger proves that all later ones are stored. If a range is read again a few times in
vain, it is lost.
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
        begins: position after which the broker had everything when the range was planned; None: unknown.
        followed: whether the partition then had a visible message after the end.
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
        """How many entries are left, where the position is in the end's ledger; else None."""
        return self.end.entries_since(self.position)

    def opened(self, mark_delete: MessageId) -> bool:
        """Take the reader's position: brokers silently move a start that they no longer have.

        Returns whether messages before it seem to be lost, so that a second reader must probe.
        """
        if self._read_compacted or mark_delete.is_message:
            return False
        if self._is_late(mark_delete):
            return True
        self.position = max(self.position, mark_delete)
        return False

    def _is_late(self, begins: MessageId) -> bool:
        """Whether a reader that can only begin after ``begins`` misses messages."""
        is_after_end = self._visible and begins >= self.end.whole_entry
        return is_after_end or begins > max(self.position, self._begins)

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
            return Gap.UNKNOWN if self._followed else Gap.EMPTY
        has_read_over = not self._read_compacted and mark_delete >= self.end.whole_entry
        return Gap.UNKNOWN if has_read_over else None

    def judge_probe(self, begins: MessageId, first: MessageId | None, found: MessageId | None) -> ProbedGap:
        """Judge a gap by what a second reader was given after the position.

        Args:
            begins: the position after which it began, or begins at the position, inclusive.
            first: what it was given first; None where nothing came.
            found: what came after the gap; None where nothing came.
        """
        position, lost = self.position, None
        if not self._read_compacted and begins > position and begins.is_message:
            return ProbedGap(Gap.SKIPPED)  # it was moved, too
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
        """Note that the range is read again from the position; repeated in vain, the gap is a loss.

        ``found`` is what came after the gap; None where nothing came.
        """
        self._repeats += 1
        if self._repeats <= _MAX_REPEATS:
            return None
        lost_end = self.end if found is None else min(found.back(1), self.end)
        why = f"{self._repeats} readers did not receive them: a message TTL, or two clusters in service.url"
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
