"""SentTotals: what a producer's receipts add up to."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.outgoing import EntryKind, Outgoing, OutgoingRun

# Asked for with each receipt: attributes of an enum take longer than globals.
_BATCH, _CHUNK = EntryKind.BATCH, EntryKind.CHUNK


@dataclass(frozen=True, slots=True)
class SentTotals:
    """What one topic partition has stored for certain, by its receipts.

    Attributes:
        messages: acknowledged, with those that the broker had stored before.
        bytes: of their entries as they are stored: metadata and compressed payloads.
        first_id: of the first message, for chunks of its last one; None if the broker gave none: nothing was
            sent, or all of it had been stored before.
        last_id: of the last message, None as with ``first_id``.
        found: messages among them that an earlier run of the same work had stored.
    """

    messages: int = 0
    bytes: int = 0
    first_id: MessageId | None = None
    last_id: MessageId | None = None
    found: int = 0


class ReceiptTally:
    """Adds up receipts, without an object for each.

    Attributes:
        first_entry: id of the first entry that was stored, chunks too; None if the broker gave none.
    """

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0
        # Ledger id, entry id, index in the batch or -1.
        self._first: tuple[int, int, int] | None = None
        self._last: tuple[int, int, int] | None = None
        self.first_entry: MessageId | None = None

    def add(self, entry: Outgoing, ledger: int, entry_id: int) -> None:
        """Add the receipt for ``entry``; a negative ledger means that the broker had it already."""
        self._bytes += entry.size
        if self.first_entry is None and ledger >= 0:
            self.first_entry = MessageId(ledger, entry_id)
        if entry.kind is _CHUNK:
            return
        self._messages += entry.messages
        if ledger >= 0:
            is_batch = entry.kind is _BATCH
            self._last = ledger, entry_id, entry.messages - 1 if is_batch else -1
            self._first = self._first or (ledger, entry_id, 0 if is_batch else -1)

    def add_run(self, run: OutgoingRun, first: tuple[int, int], last: tuple[int, int]) -> None:
        """Add the receipts for ``run``, all of it stored; ledger and entry id of its first and last entry."""
        self._bytes += run.size
        self._messages += run.messages
        self._first = self._first or (*first, -1)
        self.first_entry = self.first_entry or MessageId(*first)
        self._last = *last, -1

    @property
    def sent(self) -> SentTotals:
        """All receipts so far."""
        first, last = (None if each is None else MessageId(*each) for each in (self._first, self._last))
        return SentTotals(self._messages, self._bytes, first, last)
