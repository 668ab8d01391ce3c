"""KnownEntries: the entries of a partition that admission control has probed, and keeps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pulsar_spark.client import EntryInfo
from pulsar_spark.errors import DeadlineError
from pulsar_spark.ids import MessageId, TopicName

# Maximum entries, and bytes, that are probed one by one after a position: of a partition, and of all
# partitions, because a probe costs as much as reading, in the planner's one process. The rest of a share is
# estimated.
SCAN_ENTRIES = 1000
SCAN_BYTES = 4 << 20
SCAN_ENTRIES_IN_ALL = 16_000
SCAN_BYTES_IN_ALL = 64 << 20


class ScanLimit(NamedTuple):
    """Maximum entries and bytes of one partition that are probed one by one."""

    entries: int
    size: int

    @classmethod
    def of(cls, partitions: int) -> ScanLimit:
        """Returns the limit of each of ``partitions`` partitions."""
        return cls(
            max(1, min(SCAN_ENTRIES, SCAN_ENTRIES_IN_ALL // partitions)),
            max(1, min(SCAN_BYTES, SCAN_BYTES_IN_ALL // partitions)),
        )


class LedgerEnd(NamedTuple):
    """The end of a ledger.

    Attributes:
        entry: number of its last entry.
        size: bytes of all its entries; None if the admin service did not return them.
    """

    entry: int
    size: int | None = None


class EntryReader(Protocol):
    """Reads one partition's entries in order, from a position on. The client's EntryProbe implements it."""

    def read(self, messages: int, size: int, end: MessageId) -> Sequence[EntryInfo]:
        """Returns the next entries, up to this number of messages or bytes, or ``end``; empty at the end.

        Raises:
            DeadlineError: the next entry was not received in time. Another reader must be opened.
        """

    def close(self) -> None:
        """Closes the reader, also at the broker."""


class EntrySource(Protocol):
    """The broker's answers for admission control. Its methods raise PulsarError."""

    def probe_entries(self, topic: TopicName, after: MessageId) -> EntryReader:
        """Opens a reader of the entries after ``after``, which is a whole entry."""

    def probe_entry(self, topic: TopicName, position: MessageId) -> EntryInfo:
        """Returns the first visible entry at or after ``position``; such an entry must exist."""

    def ledger_end(self, topic: TopicName, position: MessageId, last: MessageId) -> LedgerEnd:
        """Returns the end of the ledger of ``position``, which is older than the ledger of ``last``."""


def messages_in(entry: EntryInfo) -> int:
    """Returns the messages that ``entry`` completes, which count toward a limit of messages."""
    return 0 if entry.chunk else entry.messages


class KnownEntries:
    """The known entries after a partition's position, and the reader that finds more.

    Attributes:
        entries: the known entries, without a gap from the position on.
        reached: position up to which all entries are known.
        is_late: whether the broker did not send the next entry in time. The known entries are then used and
            forgotten.
        limit: maximum entries and bytes that are probed one by one.
    """

    def __init__(self, source: EntrySource, topic: TopicName, start: MessageId) -> None:
        after = start.last_whole_entry
        self._reader = source.probe_entries(topic, after)
        self._after = after
        self.entries: list[EntryInfo] = []
        self.reached = after
        self.is_late = False
        self.limit = ScanLimit.of(1)

    def follow(self, start: MessageId) -> bool:
        """Drops entries up to ``start``; False if ``start`` is not among the known positions."""
        if not self._after <= start <= self.reached:
            return False
        self._after = max(self._after, start.last_whole_entry)
        self.entries = [entry for entry in self.entries if entry.id > start]
        return True

    @property
    def messages(self) -> int:
        """Returns the messages that the known entries complete."""
        return sum(map(messages_in, self.entries))

    @property
    def size(self) -> int:
        """Returns the bytes of the known entries."""
        return sum(entry.size for entry in self.entries)

    @property
    def is_full(self) -> bool:
        """Whether the limit of probed entries is reached."""
        return len(self.entries) >= self.limit.entries or self.size >= self.limit.size

    def scan(self, messages: int | None, size: int | None, end: MessageId) -> None:
        """Probes until ``messages``, ``size`` or all entries up to ``end`` are known, or :attr:`is_full`.

        Each round requests a number of messages estimated from the entries so far, to need few rounds and few
        surplus entries.

        Raises:
            DeadlineError: no entry is known, and the broker sends none.
        """
        while self.reached < end and not self.is_full and not self.is_late:
            count, known = self.messages, self.size
            if (messages is not None and count >= messages) or (size is not None and known >= size):
                return
            left = self.limit.entries - len(self.entries)
            held = sum(entry.messages for entry in self.entries)
            wanted = left * held // len(self.entries) if self.entries else left
            if messages is not None:
                # Chunks complete no message, so request as many again as there were, not one per round.
                wanted = min(wanted, max(messages, held) - count)
            bytes_wanted = (self.limit.size if size is None else min(self.limit.size, size)) - known
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
        """Closes the reader."""
        self._reader.close()
