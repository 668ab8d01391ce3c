"""Probes of a topic's entries: BrokerProbe asks brokers, KnownEntries keeps the entries after a position.

Admission control needs the messages and bytes of entries, and the ends of ledgers; splitting of ranges needs
the entries of ledgers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import EntryInfo, EntryProbe, Ledger, PlanningClient, Range
from pulsar_spark.errors import DeadlineError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.ranges import Track
from pulsar_spark.spark.plan.resolve import run_for_each

_log = logging.getLogger(__name__)

# Maximum entries and bytes that are probed one by one, of a partition and of all partitions. Others are only
# estimated, because a probe costs as much as reading the entry, and a single process sends all probes.
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
        """Returns the limit for each partition, if ``partitions`` partitions are probed."""
        return cls(
            max(1, min(SCAN_ENTRIES, SCAN_ENTRIES_IN_ALL // partitions)),
            max(1, min(SCAN_BYTES, SCAN_BYTES_IN_ALL // partitions)),
        )


class LedgerEnd(NamedTuple):
    """The end of a ledger.

    ``size``: bytes of all its entries; None if the admin service did not return them.
    """

    entry: int
    size: int | None = None


class BrokerProbe:
    """Probes for admission control, and a :class:`ranges.SplitSource`; requests each ledger's end once.

    Args:
        admin_url: URL of the admin service, which returns all ledgers in one request; None: do not use it.
        on_chunk: callback for each partition in which a part of a chunked message is found.
    """

    def __init__(
        self, client: PlanningClient, admin_url: str | None, on_chunk: Callable[[TopicName], None]
    ) -> None:
        self._client = client
        self._on_chunk = on_chunk
        self._admin = None if admin_url is None else client.admin(admin_url)
        self._ends: dict[tuple[TopicName, int], LedgerEnd] = {}

    def probe_entries(self, topic: TopicName, after: MessageId) -> _ChunkReporter:
        """Opens a reader of the entries after ``after``."""
        return _ChunkReporter(self._client.probe_entries(topic, after), lambda: self._on_chunk(topic))

    def probe_entry(self, topic: TopicName, position: MessageId) -> EntryInfo:
        """Returns the first visible entry at or after ``position``; such an entry must exist."""
        found = self._client.probe_entry(topic, position)
        if found.chunked:
            self._on_chunk(topic)
        return found

    def ledger_end(self, topic: TopicName, position: MessageId, last: MessageId) -> LedgerEnd:
        """Returns the end of the ledger of ``position``; ``last``: an entry in a newer ledger."""
        key = topic, position.ledger
        if key not in self._ends:
            self._ask_admin(topic)
        if key not in self._ends:
            self._ends[key] = LedgerEnd(self._client.ledger_end(topic, position, last))
        return self._ends[key]

    def tracks(self, ranges: Iterable[Range]) -> dict[TopicName, Track]:
        """Returns a :class:`Track` for each range, by topic, which numbers its entries across ledgers."""
        return run_for_each({each.topic: partial(self._track, each) for each in ranges})

    def find(self, offsets: Mapping[TopicName, tuple[Track, Sequence[int]]]) -> None:
        """Finds the ledgers of a track's entries by their numbers, by topic; adds their ends to the track."""
        run_for_each({topic: partial(self._find, topic, *wanted) for topic, wanted in offsets.items()})

    def messages_per_entry(self, ranges: Iterable[Range]) -> dict[TopicName, float]:
        """Estimates, by topic, the messages per entry: the number in the range's first entry.

        A repeated plan has the same estimate. A range of one entry cannot be split, and is left out.
        """

        def first_messages(each: Range) -> float:
            return float(self.probe_entry(each.topic, each.start.last_whole_entry.next_entry).messages)

        longer = [each for each in ranges if each.end.entries_since(each.start.last_whole_entry) != 1]
        return run_for_each({each.topic: partial(first_messages, each) for each in longer})

    def _track(self, each: Range) -> Track:
        start, end = each.start.last_whole_entry, each.end.whole_entry
        ledgers = self._ask_admin(each.topic)
        if ledgers:
            return Track.over(start, end, ledgers)
        return Track(start, end, self._client.count_entries(each.topic, end, start.next_entry)[1])

    def _find(self, topic: TopicName, track: Track, offsets: Sequence[int]) -> None:
        for offset in offsets:
            track.find(offset, partial(self._client.count_entries, topic, track.end))

    def _ask_admin(self, topic: TopicName) -> list[Ledger]:
        """Returns all ledgers from the admin service, and remembers them; none if it fails."""
        if self._admin is None or topic.is_segment:  # the admin service does not know segments
            return []
        try:
            ledgers = self._admin.ledgers(topic)
        except PulsarError as error:
            _log.warning("admin.url is not used at the moment: %s", error)
            return []
        self._ends |= {(topic, each.id): LedgerEnd(each.entries - 1, each.size) for each in ledgers[:-1]}
        return ledgers


class _ChunkReporter:
    def __init__(self, probe: EntryProbe, on_chunk: Callable[[], None]) -> None:
        self._probe = probe
        self._on_chunk = on_chunk

    def read(self, messages: int, size: int, end: MessageId) -> Sequence[EntryInfo]:
        found = self._probe.read(messages, size, end)
        if any(entry.chunked for entry in found):
            self._on_chunk()
        return found

    def close(self) -> None:
        self._probe.close()


def messages_in(entry: EntryInfo) -> int:
    """Returns the messages that ``entry`` completes, which count toward a limit of messages."""
    return 0 if entry.chunk else entry.messages


class KnownEntries:
    """The known entries after a partition's position, and the reader that finds more.

    Attributes:
        entries: the known entries, without a gap from the position on.
        reached: position up to which all entries are known.
        is_late: whether the broker did not send the next entry in time. Then the known entries are used once
            and dropped.
    """

    def __init__(self, source: BrokerProbe, topic: TopicName, start: MessageId) -> None:
        after = start.last_whole_entry
        self._reader = source.probe_entries(topic, after)
        self._after = after
        self.entries: list[EntryInfo] = []
        self.reached = after
        self.is_late = False
        self.limit = ScanLimit.of(1)

    def follow(self, start: MessageId) -> bool:
        """Drops entries up to ``start``; False if entries right after ``start`` are not known."""
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

        Raises DeadlineError: no entry is known, and the broker sends none.
        """
        while self.reached < end and not self.is_full and not self.is_late:
            count, known = self.messages, self.size
            if (messages is not None and count >= messages) or (size is not None and known >= size):
                return
            left = self.limit.entries - len(self.entries)
            held = sum(entry.messages for entry in self.entries)
            wanted = left * held // len(self.entries) if self.entries else left
            if messages is not None:
                # Known chunks complete no message, so the round requests at least as many more.
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
