"""BrokerProbe: the broker, as admission control and splitting see it. It remembers where ledgers end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

from pulsar_spark.client import EntryInfo, EntryProbe, PlanningClient
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.known_entries import LedgerEnd
from pulsar_spark.spark.plan.ranges import Range
from pulsar_spark.spark.plan.resolve import run_for_each

_log = logging.getLogger(__name__)

# Maximum ledgers of one range whose ends are requested, to cut the range there. For more, only known ends are
# used.
_MAX_LEDGERS = 100


class BrokerProbe:
    """A :class:`known_entries.EntrySource` and a :class:`ranges.SplitSource`; requests each ledger once.

    Args:
        client: client of the cluster.
        admin_url: URL of the admin service, which returns all ledgers in one request; None: do not use it.
        on_chunk: called with each partition in which a part of a chunked message is found.
    """

    def __init__(
        self, client: PlanningClient, admin_url: str | None, on_chunk: Callable[[TopicName], None]
    ) -> None:
        self._client = client
        self._on_chunk = on_chunk
        self._admin = None if admin_url is None else client.admin(admin_url)
        self._ends: dict[tuple[TopicName, int], LedgerEnd] = {}
        self._next: dict[tuple[TopicName, int], MessageId] = {}

    def probe_entries(self, topic: TopicName, after: MessageId) -> _ChunkReporter:
        """Open a reader of the entries after ``after``."""
        return _ChunkReporter(self._client.probe_entries(topic, after), lambda: self._on_chunk(topic))

    def probe_entry(self, topic: TopicName, position: MessageId) -> EntryInfo:
        """The first visible entry at or after ``position``; there must be one."""
        found = self._client.probe_entry(topic, position)
        if found.chunked:
            self._on_chunk(topic)
        return found

    def ledger_end(self, topic: TopicName, position: MessageId, last: MessageId) -> LedgerEnd:
        """The end of the ledger of ``position``, which is older than the ledger of ``last``."""
        known = self._ends.get((topic, position.ledger)) or self._ask_admin(topic, position.ledger)
        if known is None:
            entry, following = self._client.ledger_end(topic, position, last)
            known = self._ends[topic, position.ledger] = LedgerEnd(entry)
            if following is not None:
                self._next[topic, position.ledger] = following
        return known

    def ledger_ends(self, ranges: Iterable[Range]) -> dict[TopicName, list[MessageId]]:
        """The last entries of ledgers that end within each range, by topic, as far as they are known."""
        across = [each for each in ranges if each.start.ledger < each.end.ledger]
        return run_for_each({each.topic: partial(self._ends_within, each) for each in across})

    def messages_per_entry(self, ranges: Iterable[Range]) -> dict[TopicName, float]:
        """The messages in the first entry of each range; the same result if the range is planned again.

        A range of one entry cannot be split, and is left out.
        """

        def first_messages(each: Range) -> float:
            return float(self.probe_entry(each.topic, each.start.last_whole_entry.next_entry).messages)

        longer = [each for each in ranges if each.end.entries_since(each.start.last_whole_entry) != 1]
        return run_for_each({each.topic: partial(first_messages, each) for each in longer})

    def _ends_within(self, each: Range) -> list[MessageId]:
        ends: list[MessageId] = []
        position = each.start.last_whole_entry
        while 0 <= position.ledger < each.end.ledger and len(ends) < _MAX_LEDGERS:
            ends.append(MessageId(position.ledger, self.ledger_end(each.topic, position, each.end).entry))
            following = self._next.get((each.topic, position.ledger))
            if following is None:
                break
            position = following
        return ends

    def _ask_admin(self, topic: TopicName, ledger: int) -> LedgerEnd | None:
        """The ledger's end from the admin service; None if it does not know it, or does not answer."""
        if self._admin is None or topic.is_segment:  # of those it does not know
            return None
        try:
            ledgers = self._admin.ledgers(topic)
        except PulsarError as error:
            _log.warning("admin.url is not used at the moment: %s", error)
            return None
        for each, following in pairwise(ledgers):
            self._ends[topic, each.id] = LedgerEnd(each.entries - 1, each.size)
            self._next[topic, each.id] = MessageId(following.id, -1)
        return self._ends.get((topic, ledger))


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
