"""Translation: the position where a query continues that has read a topic partition in another cluster. Pure.

A replicator copies the entries of its cluster in their order, each with its source position there. It may
repeat copies from an earlier entry on, in order. So after any copy of an entry up to a position, copies of
all later entries follow. A query that had read up to a position in the other cluster:

    this cluster's entries                      are
    copies of entries up to the position        left out, also if they arrive later: they were read there
    copies of later entries                     read
    own entries, copies of third clusters       read if they were published ``margin`` before the last copy
                                                that was read there, or later. They may be read again, because
                                                it is not known which of them had arrived there

Publish times of the last kind of entries decrease by at most ``margin``, and these entries arrive in the
other cluster within that time. Copies of the other cluster may arrive at any time.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Generator
from contextlib import closing
from typing import NamedTuple, TypeAlias

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.time_search import boundary, first_at
from pulsar_spark.protocol.reading.witness import Source, StoredEntry

# Yields the entries after a position, up to a fixed end, in order.
Read: TypeAlias = Callable[[MessageId], Generator[StoredEntry, None, None]]

_ALL = (-1, (1 << 31) - 1)
_NEVER = 1 << 63


class CopyRange(NamedTuple):
    """The copies to read, from a cluster where the query had read before.

    Attributes:
        cluster: name of that cluster.
        after: position up to which the query had read there.
        time_ms: publish time after which the query has read nothing there, because a rebuilt cluster uses the
            old positions again for later messages.
        up_to: last position to read; LATEST: all.
    """

    cluster: str
    after: MessageId
    time_ms: int
    up_to: MessageId = MessageId.LATEST

    def rows_of(self, source: Source | None, publish_time: int) -> tuple[int, int] | None:
        """Returns the messages of an entry to read: after one batch index, up to another.

        None: no message.
        """
        if source is None or source.cluster != self.cluster or source.position is None:
            return _ALL
        if publish_time > self.time_ms:
            return _ALL
        place, (first, last) = source.position, _ALL
        if place <= self.after.last_whole_entry or place > self.up_to.whole_entry:
            return None
        if place == self.after.whole_entry:
            first = self.after.batch_index
        if place == self.up_to.whole_entry and self.up_to.batch_index >= 0:
            last = self.up_to.batch_index
        return first, last


class Copied(NamedTuple):
    """The copies around a position of another cluster.

    Attributes:
        last_read: copy of the last entry up to the position; None if it is deleted, or has not arrived.
        next: copy of the next entry; None if it has not arrived.
    """

    last_read: StoredEntry | None
    next: StoredEntry | None

    @property
    def position(self) -> MessageId | None:
        """Returns the source position of ``last_read``; None if that is None."""
        return None if self.last_read is None else _position(self.last_read)

    def is_complete(self, position: MessageId) -> bool:
        """Whether all copies of entries after ``position`` are still stored."""
        if self.last_read is not None:
            return True
        if self.next is None:
            return not position.is_message
        return _position(self.next) == position.next_entry

    def has_arrived(self, position: MessageId) -> bool:
        """Whether all entries up to ``position``, an entry of that cluster, have been copied."""
        if self.next is not None:
            return True
        return self.position == position.whole_entry


class CopiedPartition:
    """A partition of this cluster, for a query that has read it in another cluster.

    Args:
        read: function that yields its entries, without corrupt entries.
        cluster: name of the other cluster.
        begin: position before the first entry.
        last: last entry; ``begin`` if there is none.
    """

    def __init__(self, read: Read, cluster: str, begin: MessageId, last: MessageId) -> None:
        self._begin = begin
        self._last = last
        self._cluster = cluster
        self._read = read
        self._copies = _Selected(read, self._is_copy, last)

    def around(self, position: MessageId) -> Copied:
        """Returns the copies around a position of the other cluster."""
        whole = position.whole_entry
        return self._boundary(lambda each: _position(each) > whole)

    def last_copy(self) -> StoredEntry | None:
        """Returns the copy of the last entry that has been copied."""
        return self._boundary(lambda each: isinstance(each, _End)).last_read

    def start_after(self, copied: Copied, margin_ms: int) -> MessageId:
        """Returns the position in this cluster after which the query continues.

        Args:
            copied: copies around the last position in the other cluster.
            margin_ms: see the module's text.
        """
        if copied.last_read is None:
            return self._begin
        last = copied.last_read.id
        others = _Selected(self._read, lambda each: not self._is_copy(each), last)
        time_ms = copied.last_read.publish_time - margin_ms
        first = first_at(others.probe, others.read, time_ms, margin_ms, self._begin.next_entry, last)
        return last.previous if first is None else min(first, last).previous

    def _boundary(self, is_late: Callable[[StoredEntry], bool]) -> Copied:
        if self._begin >= self._last:
            return Copied(None, None)
        early, late = boundary(self._copies.probe, is_late, self._begin.next_entry, self._last)
        return Copied(early, None if late is None or isinstance(late, _End) else late)

    def _is_copy(self, entry: StoredEntry) -> bool:
        source = entry.source
        return source is not None and source.cluster == self._cluster and source.position is not None


class _End(NamedTuple):
    """Represents the end after a partition's last entry."""

    id: MessageId
    publish_time: int = _NEVER
    source: Source | None = None


class _Selected:
    """The entries of a partition that fit; remembers probed entries, so that no part is read twice."""

    def __init__(self, read: Read, fits: Callable[[StoredEntry], bool], last: MessageId) -> None:
        self._read = read
        self._fits = fits
        self._last = last
        self._end = _End(last.next_entry)
        self._known: list[tuple[MessageId, StoredEntry]] = []  # entries found from these positions on

    def probe(self, position: MessageId) -> StoredEntry:
        """Returns the first selected entry at or after a position."""
        place = bisect_right(self._known, position, key=lambda each: each[0])
        if place and self._known[place - 1][1].id >= position:
            return self._known[place - 1][1]
        found: StoredEntry = self._end
        with closing(self._read(position.previous)) as entries:
            for each in entries:
                if place < len(self._known) and each.id >= self._known[place][0]:
                    found = self._known[place][1]
                    break
                if each.id > self._last:
                    break
                if self._fits(each):
                    found = each
                    break
        insort(self._known, (position, found), key=lambda each: each[0])
        return found

    def read(self, after: MessageId) -> Generator[StoredEntry, None, None]:
        """Yields the selected entries after a position."""
        with closing(self._read(after)) as entries:
            for each in entries:
                if each.id > self._last:
                    return
                if self._fits(each):
                    yield each


def _position(copy: StoredEntry) -> MessageId:
    """Returns the source position of a copy; LATEST for the end of the partition."""
    if copy.source is None or copy.source.position is None:
        return MessageId.LATEST
    return copy.source.position
