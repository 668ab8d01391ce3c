"""What admission control and splitting ask about partitions: through the client, or the admin service."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from pulsar_spark.client import (
    Client,
    Deadline,
    EntryInfo,
    EntryProbe,
    ledger_end,
    position_before,
    probe_entry,
    run_all,
)
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan import known_entries
from pulsar_spark.spark.plan.ranges import Range
from pulsar_spark.spark.plan.splits import split

_log = logging.getLogger(__name__)

# Ledgers of one range that are asked about, to cut it at their ends; a longer range is cut in what is known.
_MOST_LEDGERS = 100


# Entries before an acknowledged one that are looked at for chunks, and seconds for which that is good.
_LOOKED_AT = 16
_LOOKED_AT_FOR = 1.0
# So much of them at once: chunks are large.
_AT_ONCE = 4
_AT_ONCE_BYTES = 1 << 20


class _LookedAt(NamedTuple):
    """Where and when a partition was looked at for chunks."""

    ledger: int
    good: Deadline

    def is_old(self, position: MessageId) -> bool:
        return position.ledger != self.ledger or self.good.passed


class BrokerProbe:
    """The broker as :class:`known_entries.Source`; a closed ledger is asked about once.

    Args:
        client: where to connect.
        admin_url: of the admin service, which knows all ledgers at once; None to do without.
        on_chunk: told of each partition in which a part of a chunked message is met.
    """

    def __init__(self, client: Client, admin_url: str | None, on_chunk: Callable[[TopicName], None]) -> None:
        self._client = client
        self._on_chunk = on_chunk
        self._admin = None if admin_url is None else client.admin(admin_url)
        self._ends: dict[tuple[TopicName, int], known_entries.LedgerEnd] = {}
        self._next: dict[tuple[TopicName, int], MessageId] = {}
        self._looked_at: dict[TopicName, _LookedAt] = {}

    def scout(self, topic: TopicName, behind: MessageId) -> known_entries.EntryReader:
        """Open a scout of the entries behind ``behind``."""
        return _Watched(EntryProbe(self._client, topic, behind), lambda: self._on_chunk(topic))

    def peek(self, topic: TopicName, position: MessageId) -> known_entries.Facts:
        """The first visible entry at or behind ``position``, which exists."""
        found = probe_entry(self._client, topic, position)
        if found.chunked:
            self._on_chunk(topic)
        return found

    def look_for_chunks(
        self, positions: Mapping[TopicName, MessageId], urgent: Container[TopicName]
    ) -> set[TopicName]:
        """Look whether chunked messages are about, before ``positions`` are acknowledged.

        An acknowledgement may have the broker drop the first chunks of a message that is not complete. So it
        looks at the last few entries: where several producers write, chunks lie among other messages.

        Args:
            positions: the last processed message of each partition where none was met yet.
            urgent: partitions that are to be looked at now; others once a second, and in each new ledger.

        Returns:
            The partitions that were looked at; what was found is told to ``on_chunk``.
        """
        due = [
            topic
            for topic, position in positions.items()
            if topic in urgent or topic not in self._looked_at or self._looked_at[topic].is_old(position)
        ]
        calls = [partial(self._look_for_chunks, topic, positions[topic]) for topic in due]
        looked_at = set()
        for topic, failure in zip(due, run_all(calls) if calls else (), strict=True):
            if isinstance(failure, PulsarError) and failure.is_passing:
                _log.info("the last messages of %s are looked at later: %s", topic, failure)
            else:
                looked_at.add(topic)
                self._looked_at[topic] = _LookedAt(positions[topic].ledger, Deadline(_LOOKED_AT_FOR))
        return looked_at

    def _look_for_chunks(self, topic: TopicName, position: MessageId) -> None:
        with EntryProbe(self._client, topic, self._back(topic, position, _LOOKED_AT)) as scout:
            while found := scout.read(_AT_ONCE, _AT_ONCE_BYTES, position):
                if any(entry.chunked for entry in found):
                    self._on_chunk(topic)
                    break

    def _back(self, topic: TopicName, position: MessageId, entries: int) -> MessageId:
        """The position so many entries before another, or the topic's beginning."""
        while position.entry + 1 < entries:
            before = position_before(self._client, topic, MessageId(position.ledger, 0))
            if before.ledger >= position.ledger:
                return MessageId(position.ledger, -1)
            entries -= position.entry + 1
            position = before
        return MessageId(position.ledger, position.entry - entries)

    def ledger_end(self, topic: TopicName, position: MessageId, last: MessageId) -> known_entries.LedgerEnd:
        """Where the ledger of ``position`` ends; it is an older one than that of ``last``."""
        known = self._ends.get((topic, position.ledger)) or self._told(topic, position.ledger)
        if known is None:
            entry, behind = ledger_end(self._client, topic, position, last)
            known = self._ends[topic, position.ledger] = known_entries.LedgerEnd(entry)
            if behind is not None:
                self._next[topic, position.ledger] = behind
        return known

    def ledger_ends(self, ranges: Iterable[Range]) -> dict[TopicName, list[MessageId]]:
        """The last entries of the ledgers that ranges leave behind them."""
        return {each.topic: self._ends_within(each) for each in ranges}

    def messages_per_entry(self, ranges: Iterable[Range]) -> dict[TopicName, float]:
        """What the first entry of each range holds: the same again when the range is planned again."""
        return {
            each.topic: float(self.peek(each.topic, each.start.last_whole_entry.next_entry).messages)
            for each in ranges
        }

    def _ends_within(self, each: Range) -> list[MessageId]:
        ends: list[MessageId] = []
        position = each.start.last_whole_entry
        while position.ledger < each.end.ledger and len(ends) < _MOST_LEDGERS:
            if position.ledger >= 0:
                ends.append(MessageId(position.ledger, self.ledger_end(each.topic, position, each.end).entry))
            following = self._next.get((each.topic, position.ledger))
            if following is None:
                break
            position = following
        return ends

    def _told(self, topic: TopicName, ledger: int) -> known_entries.LedgerEnd | None:
        """What the admin service knows; nothing where there is none, or it does not answer."""
        if self._admin is None:
            return None
        try:
            ledgers = self._admin.ledgers(topic)
        except PulsarError as error:
            _log.warning("admin.url is not used now: %s", error)
            return None
        for each, following in pairwise(ledgers):
            self._ends[topic, each.id] = known_entries.LedgerEnd(each.entries - 1, each.size)
            self._next[topic, each.id] = MessageId(following.id, -1)
        return self._ends.get((topic, ledger))


def cut(ranges: list[Range], options: SourceOptions, lookahead: BrokerProbe) -> list[Range]:
    """Several tasks for long ranges, as ``minPartitions`` and ``maxMessagesPerPartition`` ask for.

    The same again when the batch is planned again.
    """
    least, most = options.min_partitions, options.max_messages_per_partition
    if (least is None or least <= len(ranges)) and most is None:
        return ranges
    return split(
        ranges,
        min_partitions=least,
        max_messages=most,
        ledger_ends=lookahead.ledger_ends(ranges),
        messages_per_entry=None if most is None else lookahead.messages_per_entry(ranges),
    )


class _Watched:
    """A scout that tells of parts of chunked messages."""

    def __init__(self, scout: EntryProbe, on_chunk: Callable[[], None]) -> None:
        self._scout = scout
        self._on_chunk = on_chunk

    def read(self, messages: int, size: int, end: MessageId) -> Sequence[EntryInfo]:
        found = self._scout.read(messages, size, end)
        if any(entry.chunked for entry in found):
            self._on_chunk()
        return found

    def close(self) -> None:
        self._scout.close()
