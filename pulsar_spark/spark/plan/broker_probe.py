"""BrokerProbe: the broker's answers for admission control and splitting. It remembers the ends of ledgers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from pulsar_spark.client import EntryInfo, EntryProbe, Ledger, PlanningClient
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.known_entries import LedgerEnd
from pulsar_spark.spark.plan.ranges import Range, Track
from pulsar_spark.spark.plan.resolve import run_for_each

_log = logging.getLogger(__name__)


class BrokerProbe:
    """A :class:`known_entries.EntrySource` and a :class:`ranges.SplitSource`; requests each ledger once.

    Args:
        client: client of the cluster.
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
        """Returns the end of the ledger of ``position``, which is older than the ledger of ``last``."""
        key = topic, position.ledger
        if key not in self._ends:
            self._ask_admin(topic)
        if key not in self._ends:
            self._ends[key] = LedgerEnd(self._client.ledger_end(topic, position, last))
        return self._ends[key]

    def tracks(self, ranges: Iterable[Range]) -> dict[TopicName, Track]:
        """Returns the tracks of ranges over several ledgers, from the admin service or from brokers."""
        return run_for_each({each.topic: partial(self._track, each) for each in ranges})

    def find(self, offsets: Mapping[TopicName, tuple[Track, Sequence[int]]]) -> None:
        """Finds the ledgers of entries, by topic."""
        run_for_each({topic: partial(self._find, topic, *wanted) for topic, wanted in offsets.items()})

    def messages_per_entry(self, ranges: Iterable[Range]) -> dict[TopicName, float]:
        """Returns the messages in the first entry of each range; the same if the range is planned again.

        A range of one entry cannot be split, and is left out.
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
    """An :class:`EntryProbe` that reports parts of chunked messages."""

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
