"""RangeProgress: how far a range of a topic partition is read, and what of it is lost. Pure.

A range is ``(start, end]``. The broker says nothing when a reader begins where data is gone, or when what is
left of a range is never delivered (markers of transactions, aborted or compacted messages). So each of its
answers is judged:

    what happened                                       judged as
    the reader stands after the range's start           it goes on from there; loss where ``begins`` proves it
    it stands at or after the end, a visible message    loss of the whole range
    entries came                                        it goes on, and at the end it is done
    entries came in a later ledger, with ``begins``     ask what lies before them; loss if a ledger has gone
    an entry after the end came, in the end's ledger    done: the end is compacted, or was never visible
    one in a later ledger, or nothing is left           done; loss where the end was a visible message
    an entry that cannot be decoded                     it goes on after that

With ``begins`` nothing holds the data while it is read (a batch read). Ledgers are trimmed from the oldest
on: where a ledger is still there, so is everything after it.
"""

from __future__ import annotations

from typing import NamedTuple

from pulsar_spark.ids import MessageId


class LostRange(NamedTuple):
    """Messages in ``(start, end]`` that are gone.

    Attributes:
        start: the last position before them.
        end: the last of them; None where that is not known.
        why: how it is known, as an end of a sentence.
    """

    start: MessageId
    end: MessageId | None
    why: str

    def __str__(self) -> str:
        return f"({self.start}, {'the end' if self.end is None else self.end}]"


class AskBefore(NamedTuple):
    """A question to the broker: which entry lies directly before ``position``?"""

    position: MessageId


class RangeProgress:
    """One range being read.

    Args:
        start: the last entry taken before.
        end: the last entry wanted.
        visible: whether the end was a visible message when the range was planned.
        begins: where nothing holds the data: the position before the first entry that the broker had when
            the range was planned; else None.
        read_compacted: whether what compaction left is read, where nothing that is missing counts as loss.

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
        # Compaction may have taken the end away, and may still have what was trimmed.
        self._visible = visible and not read_compacted
        self._begins = None if read_compacted else begins
        self._read_compacted = read_compacted
        # Nothing was trimmed between the range's start and this ledger, as far as was asked.
        self._held_ledger = start.ledger
        # What is read once the question that is asked has its answer.
        self._pending: MessageId | None = None

    @property
    def is_done(self) -> bool:
        """Whether the range is read."""
        return self.position >= self.end

    @property
    def entries_left(self) -> int | None:
        """How many entries are left, where the position is in the end's ledger; else None."""
        return self.end.entries_since(self.position)

    def opened(self, mark_delete: MessageId) -> LostRange | None:
        """Take in where the reader stands: brokers move a start that they no longer have, and say nothing."""
        if self._read_compacted:
            return None
        start, self.position = self.position, max(self.position, mark_delete)
        self._held_ledger = mark_delete.ledger
        why = f"what it has begins behind {mark_delete}"
        if self._begins is not None and mark_delete > max(start, self._begins):
            return LostRange(max(start, self._begins), min(mark_delete, self.end), why)
        if self._visible and mark_delete >= self.end.whole_entry:
            return LostRange(start, self.end, why)
        return None

    def came(self, last: MessageId) -> AskBefore | None:
        """Take in that entries within the range came, up to ``last``."""
        return self._move(last.ledger, last)

    def passed(self, found: MessageId | None) -> AskBefore | LostRange | None:
        """Take in that nothing more of the range will come; ``found`` is the entry after it that came."""
        if found is not None and found.ledger == self.end.ledger:
            self.position = self.end
            return None
        if not self._visible:
            return self._move(self.end.ledger, self.end)
        where = "nothing more came" if found is None else f"it sent {found}"
        lost = LostRange(self.position, self.end, f"behind {self.position} {where}")
        self.position = self.end
        return lost

    def answered(self, before: MessageId) -> LostRange | None:
        """Take in the answer to :class:`AskBefore`."""
        assert self._pending is not None
        reached, self._pending = self._pending, None
        held, start = self._held_ledger, self.position
        self._held_ledger, self.position = reached.ledger, reached
        if before.ledger == held:
            return None
        return LostRange(start, reached.ledger_start, f"ledger {held} was removed while it was read")

    def is_exhausted(self, last: MessageId, mark_delete: MessageId) -> bool:
        """Whether what is left of the range will never be delivered.

        Args:
            last: the last visible message of the partition.
            mark_delete: of the reader, when it has acknowledged ``position``. Brokers acknowledge by
                themselves what they read over and do not deliver, so it shows how far they have read.
        """
        has_read_over = not self._read_compacted and mark_delete >= self.end.whole_entry
        return has_read_over or last.whole_entry <= self.position

    def skip(self, corrupt: MessageId) -> None:
        """Go on after an entry within the range that cannot be decoded."""
        self.position = corrupt

    def _move(self, ledger: int, position: MessageId) -> AskBefore | None:
        if self._begins is not None and ledger > self.position.ledger:
            self._pending = position
            return AskBefore(MessageId(self._held_ledger, 1))
        self._held_ledger, self.position = ledger, position
        return None
