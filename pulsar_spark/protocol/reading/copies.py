"""Copies that a replicator made: finds where a query continues after it has moved to another cluster. Pure.

Message ids differ between clusters, and overlap by chance. A replicator copies the entries of its cluster in
their order, with publish times. A copy names its source: the cluster that first stored the entry, and the
entry's position there. A query keeps a witness, an entry that it has read. If the broker has another entry
at the witness's id, the query now reads another cluster.

A replicator may repeat copies from an earlier entry on, in order. So each copy of an entry is followed by
copies of all later entries. If a query had read the other cluster up to a position:

    entry of this cluster                       decision
    copy of an entry up to the position         left out, whenever it arrives: it was read there
    copy of a later entry                       read
    own entry, or copy from a third cluster     may have been read there. Left out if published more than
                                                ``margin`` before the newest copy that was read there;
                                                otherwise read, perhaps for the second time

This assumes that publish times of own entries and of a third cluster's copies decrease by at most ``margin``
along the topic, and that they reach the other cluster within ``margin``. Other copies may take any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator
from contextlib import closing
from itertools import takewhile
from typing import NamedTuple, Protocol, TypeAlias

from pulsar_spark.errors import OptionError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.time_search import Timed, boundary, first_at
from pulsar_spark.wire import pulsar_pb2 as pb

SOURCE_POSITION = "__MSG_PROP_REPL_SOURCE_POSITION"

_ALL = (-1, (1 << 31) - 1)


class Source(NamedTuple):
    """The cluster that first stored a copied entry, and the entry's position there (None if unknown)."""

    cluster: str
    position: MessageId | None


def source_of(metadata: pb.MessageMetadata) -> Source | None:
    """Returns the source of an entry; None if it is not a copy."""
    if not metadata.HasField("replicated_from"):
        return None
    position = None
    for each in metadata.properties:
        if str(each.key, errors="replace") == SOURCE_POSITION:
            try:
                position = MessageId.parse(str(each.value, errors="replace"))
            except OptionError:
                position = None
    return Source(str(metadata.replicated_from, errors="replace"), position)


class StoredEntry(Timed, Protocol):
    """The fields of an entry that this module uses."""

    @property
    def source(self) -> Source | None:
        """Returns the source of a copy; None for the cluster's own entries."""


# Yields the entries after a position, up to a fixed end, in order.
Read: TypeAlias = Callable[[MessageId], Generator[StoredEntry, None, None]]


class Witness(NamedTuple):
    """An entry that a query has read: its topic partition, entry id, publish time in ms, and source."""

    topic: TopicName
    id: MessageId
    publish_time: int
    source: Source | None = None

    @classmethod
    def of(cls, topic: TopicName, entry: StoredEntry) -> Witness:
        """Returns the witness for an entry."""
        return cls(topic, entry.id, entry.publish_time, entry.source)

    def is_at(self, found: StoredEntry | None) -> bool:
        """Whether ``found``, the entry stored at the witness's id, is the witness; None: none is stored."""
        return found is not None and self == Witness.of(self.topic, found)

    def is_copied_to(self, entry: StoredEntry | None) -> bool:
        """Whether an entry is a copy of this witness, whose ``source`` must be None (not itself a copy)."""
        return entry is not None and position_of(entry) == self.id and entry.publish_time == self.publish_time


class CopyRange(NamedTuple):
    """The copies to read, from a cluster where the query had read before.

    Attributes:
        cluster: name of that cluster.
        after: position up to which the query had read there.
        time_ms: latest publish time that the query has read there. Later copies are read at all positions,
            because a rebuilt cluster uses the old positions again.
        up_to: last position to read; LATEST: all.
    """

    cluster: str
    after: MessageId
    time_ms: int
    up_to: MessageId = MessageId.LATEST

    def rows_of(self, source: Source | None, publish_time: int) -> tuple[int, int] | None:
        """Returns (after, last): wanted batch indexes of an entry are in ``(after, last]``; None: none."""
        place = None if source is None or source.cluster != self.cluster else source.position
        if place is None or publish_time > self.time_ms:
            return _ALL
        if place <= self.after.last_whole_entry or place > self.up_to.whole_entry:
            return None
        after, last = _ALL
        if place == self.after.whole_entry:
            after = self.after.batch_index
        if place == self.up_to.whole_entry and self.up_to.batch_index >= 0:
            last = self.up_to.batch_index
        return after, last


class Copied(NamedTuple):
    """The copies around a position of another cluster.

    Attributes:
        last_read: copy of the last entry up to the position; None if it is deleted, or has not arrived.
        next: first copy of an entry after the position; None if none has arrived.
    """

    last_read: StoredEntry | None
    next: StoredEntry | None

    def is_complete(self, position: MessageId) -> bool:
        """Whether no copy of an entry after ``position`` has been deleted here."""
        if self.last_read is not None:
            return True
        first = position_of(self.next)
        if first is None:
            return not position.is_entry
        # ``next`` must copy the entry directly after ``position``; if none was read, a ledger's first entry.
        return first == (position.next_entry if position.ledger >= 0 else first.ledger_start.next_entry)

    def has_arrived(self, position: MessageId) -> bool:
        """Whether all of the other cluster's entries up to the one at ``position`` have been copied here."""
        return self.next is not None or position_of(self.last_read) == position.whole_entry


class CopiedPartition:
    """A partition of this cluster, for a query that has read it in another cluster.

    Args:
        read: function that yields its entries, without corrupt entries.
        cluster: name of the other cluster.
        begin: position before the first entry.
        last: last entry; ``begin`` if there is none.
    """

    def __init__(self, read: Read, cluster: str, begin: MessageId, last: MessageId) -> None:
        self._read, self._cluster = read, cluster
        self._begin, self._last = begin, last
        self._copies = _Selected(read, self._is_copy, last)

    def around(self, position: MessageId) -> Copied:
        """Returns the copies around a position of the other cluster; for LATEST, only the last copy."""
        if self._begin >= self._last:
            return Copied(None, None)
        end, whole = self._copies.end, position.whole_entry

        def is_late(each: StoredEntry) -> bool:
            return each is end or (position_of(each) or MessageId.LATEST) > whole

        early, late = boundary(self._copies.probe, is_late, self._begin.next_entry, self._last)
        return Copied(early, None if late is end else late)

    def start_after(self, copied: Copied, margin_ms: int) -> MessageId:
        """Returns the position after which the query continues.

        ``copied``: result of ``around`` for the position up to which the query read in the other cluster.
        """
        if copied.last_read is None:
            return self._begin
        last = copied.last_read.id
        others = _Selected(self._read, lambda each: not self._is_copy(each), last)
        time_ms = copied.last_read.publish_time - margin_ms
        first = first_at(others.probe, others.read, time_ms, margin_ms, self._begin.next_entry, last)
        return last.previous if first is None else min(first, last).previous

    def _is_copy(self, entry: StoredEntry) -> bool:
        source = entry.source
        return source is not None and source.cluster == self._cluster and source.position is not None


class _End(NamedTuple):
    """Sentinel after a partition's last entry."""

    id: MessageId
    publish_time: int = 1 << 63
    source: Source | None = None


class _Selected:
    """The entries up to ``last`` that ``fits`` selects; remembers probes, so that no part is read twice."""

    def __init__(self, read: Read, fits: Callable[[StoredEntry], bool], last: MessageId) -> None:
        self._read, self._fits = read, fits
        self.end: StoredEntry = _End(last.next_entry)
        # Probed positions, ascending, each with the first selected entry at or after it.
        self._known: list[tuple[MessageId, StoredEntry]] = [(self.end.id, self.end)]

    def probe(self, position: MessageId) -> StoredEntry:
        """Returns the first selected entry at or after a position."""
        place = bisect_right(self._known, position, key=lambda each: each[0])
        if place and self._known[place - 1][1].id >= position:
            return self._known[place - 1][1]
        until, found = self._known[place]
        with closing(self.read(position.previous, until)) as entries:
            found = next(entries, found)
        self._known.insert(place, (position, found))
        return found

    def read(self, after: MessageId, until: MessageId | None = None) -> Generator[StoredEntry, None, None]:
        """Yields the selected entries after a position, and before ``until``."""
        end = until or self.end.id
        with closing(self._read(after)) as entries:
            yield from filter(self._fits, takewhile(lambda each: each.id < end, entries))


def position_of(entry: StoredEntry | None) -> MessageId | None:
    """Returns the source position of a copy; None for any other entry."""
    return None if entry is None or entry.source is None else entry.source.position
