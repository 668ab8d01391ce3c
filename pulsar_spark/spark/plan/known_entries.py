"""What admission control asks about a partition, through whom, and what it keeps of the answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pulsar_spark.ids import MessageId, TopicName

# What is looked at ahead of a partition's position, entry by entry; the rest of its share is estimated.
SCAN_ENTRIES = 1000
SCAN_BYTES = 4 << 20


class Facts(Protocol):
    """One visible entry; the client's EntryInfo."""

    @property
    def id(self) -> MessageId:
        """The whole entry."""

    @property
    def messages(self) -> int:
        """How many messages it holds, at least 1."""

    @property
    def size(self) -> int:
        """Bytes stored."""

    @property
    def index(self) -> int | None:
        """The broker's index of its last message, where the broker tells it."""

    @property
    def chunk(self) -> bool:
        """Whether it is a part of a chunked message that it does not complete."""


class LedgerEnd(NamedTuple):
    """Where a ledger ends.

    Attributes:
        entry: number of its last entry.
        size: bytes of all its entries, where the admin service told it.
    """

    entry: int
    size: int | None = None


class EntryReader(Protocol):
    """Facts of one partition's entries in order, from a position on."""

    def read(self, messages: int, size: int, end: MessageId) -> Sequence[Facts]:
        """The next, until they hold so many messages or bytes, or reach ``end``; none if nothing is left."""

    def close(self) -> None:
        """Let go of the broker's side."""


class Source(Protocol):
    """The broker, as admission control sees it. Its methods raise PulsarError."""

    def scout(self, topic: TopicName, behind: MessageId) -> EntryReader:
        """Open a scout of the entries behind ``behind``, a whole entry."""

    def peek(self, topic: TopicName, position: MessageId) -> Facts:
        """The first visible entry at or behind ``position``, which exists."""

    def ledger_end(self, topic: TopicName, position: MessageId, last: MessageId) -> LedgerEnd:
        """Where the ledger of ``position`` ends; it is an older one than that of ``last``."""


def messages_in(entry: Facts) -> int:
    """Messages that are complete with ``entry``: what it counts for a limit of messages."""
    return 0 if entry.chunk else entry.messages


class KnownEntries:
    """The entries known behind a partition's position, and the scout that finds more.

    Attributes:
        facts: what is known, without a gap from the position on.
        reached: up to here everything is known.
    """

    def __init__(self, source: Source, topic: TopicName, start: MessageId) -> None:
        behind = start.last_whole_entry
        self._scout = source.scout(topic, behind)
        self._behind = behind
        self.facts: list[Facts] = []
        self.reached = behind

    def follow(self, start: MessageId) -> bool:
        """Drop what ``start`` has taken; False if it lies elsewhere than what is known."""
        if not self._behind <= start <= self.reached:
            return False
        self._behind = max(self._behind, start.last_whole_entry)
        self.facts = [entry for entry in self.facts if entry.id > start]
        return True

    @property
    def messages(self) -> int:
        """How many are complete within what is known."""
        return sum(map(messages_in, self.facts))

    @property
    def size(self) -> int:
        """Bytes of what is known."""
        return sum(entry.size for entry in self.facts)

    @property
    def full(self) -> bool:
        """Whether no more will be looked at entry by entry."""
        return len(self.facts) >= SCAN_ENTRIES or self.size >= SCAN_BYTES

    def scan(self, messages: int | None, size: int | None, end: MessageId) -> None:
        """Find out more until so much is known, or everything up to ``end``, or it is enough.

        Each round asks for as many messages as the entries seen so far suggest: few rounds, little too much.
        """
        while self.reached < end and not self.full:
            count, known = self.messages, self.size
            if (messages is not None and count >= messages) or (size is not None and known >= size):
                return
            left = SCAN_ENTRIES - len(self.facts)
            held = sum(entry.messages for entry in self.facts)
            wanted = left * held // len(self.facts) if self.facts else left
            if messages is not None:
                # Chunks complete nothing: as many again as there were, not one a round.
                wanted = min(wanted, max(messages, held) - count)
            bytes_wanted = SCAN_BYTES - known if size is None else min(SCAN_BYTES, size) - known
            found = self._scout.read(wanted, max(1, bytes_wanted), end)
            self.facts.extend(found)
            self.reached = max(self.reached, found[-1].id if found else end)

    def close(self) -> None:
        """Let go of the scout."""
        self._scout.close()
