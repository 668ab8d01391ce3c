"""KnownEntries: what admission control asks about a partition, and what it keeps of the answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pulsar_spark.client import EntryInfo
from pulsar_spark.errors import DeadlineError
from pulsar_spark.ids import MessageId, TopicName

# What is probed after a partition's position, entry by entry; the rest of its share is estimated.
SCAN_ENTRIES = 1000
SCAN_BYTES = 4 << 20


class LedgerEnd(NamedTuple):
    """Where a ledger ends.

    Attributes:
        entry: number of its last entry.
        size: bytes of all its entries, if the admin service gave them.
    """

    entry: int
    size: int | None = None


class EntryReader(Protocol):
    """Gives one partition's entries in order, from a position on; the client's EntryProbe."""

    def read(self, messages: int, size: int, end: MessageId) -> Sequence[EntryInfo]:
        """The next, until they hold so many messages or bytes, or reach ``end``; none if nothing is left.

        Raises:
            DeadlineError: it is not known what comes next. Another reader has to be opened.
        """

    def close(self) -> None:
        """Close it at the broker, too."""


class EntrySource(Protocol):
    """The broker, as admission control sees it. Its methods raise PulsarError."""

    def probe_entries(self, topic: TopicName, after: MessageId) -> EntryReader:
        """Open a reader of the entries after ``after``, a whole entry."""

    def probe_entry(self, topic: TopicName, position: MessageId) -> EntryInfo:
        """The first visible entry at or after ``position``, which exists."""

    def ledger_end(self, topic: TopicName, position: MessageId, last: MessageId) -> LedgerEnd:
        """Where the ledger of ``position`` ends; it is an older one than that of ``last``."""


def messages_in(entry: EntryInfo) -> int:
    """Messages that are complete with ``entry``: what counts for a limit of messages."""
    return 0 if entry.chunk else entry.messages


class KnownEntries:
    """The entries known after a partition's position, and the reader that finds more.

    Attributes:
        entries: what is known, without a gap from the position on.
        reached: up to here everything is known.
        is_late: whether the broker did not send what comes next in time. What is known is used then, and
            forgotten.
    """

    def __init__(self, source: EntrySource, topic: TopicName, start: MessageId) -> None:
        after = start.last_whole_entry
        self._reader = source.probe_entries(topic, after)
        self._after = after
        self.entries: list[EntryInfo] = []
        self.reached = after
        self.is_late = False

    def follow(self, start: MessageId) -> bool:
        """Drop what is before ``start``; False if it lies elsewhere than what is known, or that is late."""
        if self.is_late or not self._after <= start <= self.reached:
            return False
        self._after = max(self._after, start.last_whole_entry)
        self.entries = [entry for entry in self.entries if entry.id > start]
        return True

    @property
    def messages(self) -> int:
        """How many are complete within what is known."""
        return sum(map(messages_in, self.entries))

    @property
    def size(self) -> int:
        """Bytes of what is known."""
        return sum(entry.size for entry in self.entries)

    @property
    def is_full(self) -> bool:
        """Whether no more will be probed entry by entry."""
        return len(self.entries) >= SCAN_ENTRIES or self.size >= SCAN_BYTES

    def scan(self, messages: int | None, size: int | None, end: MessageId) -> None:
        """Probe until so much is known, or everything up to ``end``, or :attr:`is_full`.

        Each round asks for as many messages as the entries seen so far suggest: few rounds, little too much.

        Raises:
            DeadlineError: nothing is known, and the broker sends nothing.
        """
        while self.reached < end and not self.is_full and not self.is_late:
            count, known = self.messages, self.size
            if (messages is not None and count >= messages) or (size is not None and known >= size):
                return
            left = SCAN_ENTRIES - len(self.entries)
            held = sum(entry.messages for entry in self.entries)
            wanted = left * held // len(self.entries) if self.entries else left
            if messages is not None:
                # Chunks complete nothing: as many again as there were, not one a round.
                wanted = min(wanted, max(messages, held) - count)
            bytes_wanted = SCAN_BYTES - known if size is None else min(SCAN_BYTES, size) - known
            try:
                found = self._reader.read(wanted, max(1, bytes_wanted), end)
            except DeadlineError:
                self.is_late = True
                if not self.entries:
                    raise
                return
            self.entries.extend(found)
            self.reached = max(self.reached, found[-1].id if found else end)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
