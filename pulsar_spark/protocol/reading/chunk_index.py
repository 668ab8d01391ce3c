"""ChunkIndex: positions of chunks in the searched part of a topic partition. Pure.

The last chunk of a message may be received without the other chunks, which lie further back, or do not
exist. The index keeps all chunks that a search has found, for later messages and ranges. So each entry is
searched once, even if many last chunks lack a first chunk:

    chunks of the message             decision
    all are in the index, and may     read the chunks at these positions
    have the total size
    not all, and the search ended     a chunk is missing
    not all                           search further back

    searched part                     search
    begins at the topic's start       ended
    begins with entries older than    ended: a message whose chunks are further apart is given up
    a message may span
    has as many entries as a task     ended
    may search
    any other                         continues

The age of entries is the median of many neighbours, because a producer chooses the publish time of its entry,
so one time proves nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.chunk_assembler import can_have_size

# Maximum entries that one task searches: one minute of a partition with 16,000 entries a second.
_MAX_ENTRIES = 1_000_000
# Number of entries at each end of the searched part; the median publish times of both ends are compared.
_NEIGHBOURS = 31
# Maximum messages for which the position is kept at which they were completed or given up (settled).
_MAX_SETTLED = 10_000
# Maximum chunks examined for all last chunks of one message; then the message is given up.
_MAX_EFFORT = 1_000_000
_READING = 200_000  # examined chunks counted when a message's chunks are read again

# One chunk: small, because there may be a million; aligned, because numpy copies unaligned columns.
_ROW = np.dtype(
    [("key", np.uint64), ("ledger", np.int64), ("entry", np.int64), ("number", np.int32), ("size", np.int64)],
    align=True,
)
_ROWS_AT_ONCE = 1000  # chunks sorted at once


class FoundChunk(NamedTuple):
    """A found chunk.

    Attributes:
        key: key of its message, see ``message_key``.
        size: bytes of its decrypted payload.
    """

    key: bytes
    place: MessageId
    number: int
    size: int


class ChunkIndex:
    """Chunks of one topic partition, after ``start``. A message may span ``expire`` seconds; 0: any.

    Attributes:
        low: position before the searched part.
        high: last position of the searched part.
        has_ended: whether no search further back is needed or allowed; see the module's second table.
    """

    def __init__(self, expire: float, start: MessageId) -> None:
        self.low = self.high = start
        self.has_ended = False
        self._expire = expire
        self._chunks = _Chunks()
        self._settled: OrderedDict[bytes, MessageId] = OrderedDict()
        self._efforts: dict[bytes, int] = {}
        # Publish times of the newest and of the oldest searched entries, at most _NEIGHBOURS of each.
        self._near = self._far = np.zeros(0, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return len(self._chunks)

    def add(self, chunk: FoundChunk) -> None:
        """Adds a read chunk if it lies after the searched part."""
        if chunk.place > self.high:
            self._chunks.add([chunk])

    def read_up_to(self, end: MessageId, publish_times: npt.NDArray[np.int64]) -> None:
        """Extends the searched part to ``end``; ``publish_times``: int64[n] in ms, of the last n entries."""
        if end > self.high:
            self.high = end
            self._near = np.concatenate((self._near, publish_times))[-_NEIGHBOURS:]
            self.has_ended = self.has_ended or self._is_old

    def searched(
        self,
        low: MessageId,
        chunks: Iterable[FoundChunk],
        publish_times: npt.NDArray[np.int64],
        *,
        is_beginning: bool,
    ) -> None:
        """Extends the searched part backwards to the entries after ``low``, and adds their chunks.

        ``publish_times``: times of the added entries, int64[n], in ms. ``is_beginning``: whether the topic
        begins with the added entries.
        """
        self._chunks.add(chunks)
        self.low = low
        self._count += len(publish_times)
        if len(self._near) < _NEIGHBOURS:
            self._near = np.concatenate((publish_times, self._near))[-_NEIGHBOURS:]
        self._far = np.concatenate((publish_times[:_NEIGHBOURS], self._far))[:_NEIGHBOURS]
        self.has_ended = is_beginning or self._count >= _MAX_ENTRIES or self._is_old

    def joined(self, older: ChunkIndex) -> None:
        """Adds the index of the part directly before this one."""
        self._chunks.join(older._chunks)
        for key, place in older._settled.items():
            self._settled.setdefault(key, place)
        self.low, self._far = older.low, older._far
        self._count += older._count
        self.has_ended = older.has_ended or self._is_old

    def settle(self, key: bytes, place: MessageId) -> None:
        """Ignores a message's chunks up to ``place``, the position where it was completed or given up."""
        self._efforts.pop(key, None)
        self._settled.pop(key, None)
        self._settled[key] = place
        if len(self._settled) > _MAX_SETTLED:
            self._settled.popitem(last=False)

    def failed(self, key: bytes, place: MessageId, *, was_read: bool) -> None:
        """Records that a last chunk at ``place`` did not complete a message; gives up after _MAX_EFFORT.

        Another producer may have written the last chunk, so the right one may follow. Other producers can
        write many last chunks, so there is a limit. ``was_read``: whether earlier chunks were read again.
        """
        if len(self._efforts) >= _MAX_SETTLED:
            self._efforts.clear()
        effort = _READING if was_read else len(self._between(key, place))
        self._efforts[key] = self._efforts.get(key, 0) + effort
        if self._efforts[key] >= _MAX_EFFORT:
            self.settle(key, place)

    def is_settled(self, key: bytes, place: MessageId) -> bool:
        """Whether a message was completed or given up before ``place``, with no chunk 0 in between."""
        return self._settled.get(key, place) < place and not self.has_beginning(key, place)

    def chunks_before(self, last: FoundChunk, chunks: int, total: int) -> list[MessageId] | None:
        """Returns the positions of a message's chunks in the index before its last chunk, in order.

        None if these chunks cannot complete a message of ``chunks`` chunks and ``total`` bytes.
        """
        rows = self._between(last.key, last.place)
        rows = rows[(rows["number"] >= 0) & (rows["number"] < chunks)]
        earlier = rows[rows["number"] < last.number]
        earlier = earlier[np.argsort(earlier["number"], kind="stable")]
        numbers, firsts = np.unique(earlier["number"], return_index=True)
        if len(numbers) != last.number:
            return None
        sizes = [some.tolist() for some in np.split(earlier["size"], firsts[1:])]
        if not can_have_size([*sizes, [last.size]], total):
            return None
        return [MessageId(*place) for place in rows[["ledger", "entry"]].tolist()]

    def has_beginning(self, key: bytes, place: MessageId) -> bool:
        """Whether the index has chunk 0 of a message before a position."""
        return 0 in self._between(key, place)["number"]

    def _between(self, key: bytes, place: MessageId) -> npt.NDArray[Any]:
        """Returns a message's chunks before ``place``, but none up to where it was completed or given up."""
        settled = self._settled.get(key, place)
        # Ignores a settled position at or after ``place``: it is from an earlier attempt to read the range.
        after = settled if settled < place else MessageId.EARLIEST
        return self._chunks.between(key, after, place)

    @property
    def _is_old(self) -> bool:
        """Whether the searched part spans more time than a message may."""
        if self._expire <= 0 or self._count < 2 * _NEIGHBOURS:
            return False
        return float(np.median(self._near) - np.median(self._far)) > self._expire * 1000


class _Chunks:
    """Chunks in blocks that are sorted by key and position, each at least twice as large as the next."""

    def __init__(self) -> None:
        self._blocks: list[npt.NDArray[Any]] = []
        self._new: list[tuple[int, int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._new) + sum(map(len, self._blocks))

    def add(self, chunks: Iterable[FoundChunk]) -> None:
        for key, place, number, size in chunks:
            self._new.append((_short(key), place.ledger, place.entry, number, size))
            if len(self._new) >= _ROWS_AT_ONCE:
                self._sort()

    def join(self, others: _Chunks) -> None:
        others._sort()
        for block in others._blocks:
            self._put(block)

    def between(self, key: bytes, after: MessageId, before: MessageId) -> npt.NDArray[Any]:
        """Returns the chunks of a message between two positions, in the order of the topic."""
        self._sort()
        found = [np.zeros(0, _ROW)]
        for block in self._blocks:
            rows = _equal(block, "key", np.uint64(_short(key)))
            found.append(rows[_count_before(rows, after.next_entry) : _count_before(rows, before)])
        return _in_order(np.concatenate(found))

    def _sort(self) -> None:
        if self._new:
            block = np.array(self._new, _ROW)
            self._new = []
            self._put(_in_order(block))

    def _put(self, block: npt.NDArray[Any]) -> None:
        while self._blocks and len(self._blocks[-1]) < 2 * len(block):
            block = _in_order(np.concatenate((self._blocks.pop(), block)))
        self._blocks.append(block)


def _short(key: bytes) -> int:
    return int.from_bytes(key[:8], "little")


def _in_order(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return rows[np.lexsort((rows["entry"], rows["ledger"], rows["key"]))]


def _equal(rows: npt.NDArray[Any], field: str, value: np.integer[Any]) -> npt.NDArray[Any]:
    """Returns the rows with a value in ``field``; the rows are sorted by it."""
    return rows[np.searchsorted(rows[field], value) : np.searchsorted(rows[field], value, "right")]


def _count_before(rows: npt.NDArray[Any], place: MessageId) -> int:
    ledger = np.int64(place.ledger)
    earlier = int(np.searchsorted(rows["ledger"], ledger))
    return earlier + int(np.searchsorted(_equal(rows, "ledger", ledger)["entry"], np.int64(place.entry)))
