"""SentTotals: the sum of a producer's receipts."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.outgoing import EntryKind, Outgoing

# Globals, because attributes of an enum take longer.
_BATCH, _CHUNK = EntryKind.BATCH, EntryKind.CHUNK


@dataclass(frozen=True, slots=True)
class SentTotals:
    """Messages that one topic partition has surely stored, by its receipts.

    Attributes:
        messages: number of acknowledged messages, with messages that the broker had stored before.
        bytes: bytes of their stored entries: metadata and compressed payloads.
        first_id: id of the first message (of its last chunk); None if the broker sent no id, because no
            message was sent, or all messages had been stored before.
        last_id: id of the last message; None like ``first_id``.
        found: number of these messages that an earlier run of the same work had stored.
    """

    messages: int = 0
    bytes: int = 0
    first_id: MessageId | None = None
    last_id: MessageId | None = None
    found: int = 0


class ReceiptTally:
    """Adds up receipts, without an object for each.

    Attributes:
        first_entry: id of the first stored entry or chunk; None if the broker sent no id.
    """

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0
        # Ledger id, entry id, index in the batch or -1.
        self._first: tuple[int, int, int] | None = None
        self._last: tuple[int, int, int] | None = None
        self.first_entry: MessageId | None = None

    def add(self, entry: Outgoing, ledger: int, entry_id: int) -> None:
        """Adds the receipt for ``entry``; a negative ledger: the broker had stored the entry before."""
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

    @property
    def sent(self) -> SentTotals:
        """Returns the sum of all receipts so far."""
        first, last = (None if each is None else MessageId(*each) for each in (self._first, self._last))
        return SentTotals(self._messages, self._bytes, first, last)
