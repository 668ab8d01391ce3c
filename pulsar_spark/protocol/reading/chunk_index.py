"""ChunkIndex: where chunks lie, as far as a process has looked through a topic partition. Pure.

The last chunk of a message may come without the others: they lie further back, or they do not exist. What was
looked through for one message is known for the next, in this range and in the ranges after it; so entries are
looked through once, however many last chunks lack a first one:

    the message's chunks              judged as
    are in the index, all of them,    they are read again from there
    and may have its total size
    are not, and the search has       a chunk is missing
    ended
    are not                           look further back

    what was looked through           the search
    ends at the topic's beginning     has ended
    begins with entries that are      has ended: a message whose chunks are further apart is given up
    older than a message may take
    are as many entries as a task     has ended
    may look through
    else                              continues

The age of entries is judged by many neighbours, in the broker's order: a producer chooses the publish time
of its entry, so one time proves nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.chunk_assembler import can_have_size

if TYPE_CHECKING:
    import numpy.typing as npt

# Maximum entries that one task looks through: a minute of 16,000 entries a second.
_MAX_ENTRIES = 1_000_000
# Entries at either end of what was looked through, whose medians tell how far apart they were published.
_NEIGHBOURS = 31
# Messages of which is known that they were complete, or given up, at a position.
_MAX_SETTLED = 10_000
# Last chunks of one message that did not complete it, after which no more are tried.
_MAX_FAILURES = 5

# A chunk in little memory: there may be a million.
_ROW = np.dtype(
    [("key", np.uint64), ("ledger", np.int64), ("entry", np.int64), ("number", np.int32), ("size", np.int64)]
)
_ROWS_AT_ONCE = 1000  # chunks that are put in order together


class FoundChunk(NamedTuple):
    """A chunk that was found.

    Attributes:
        key: of its message, see ``message_key``.
        place: of its entry.
        number: from 0 on.
        size: of its payload in bytes, decrypted.
    """

    key: bytes
    place: MessageId
    number: int
    size: int


class ChunkIndex:
    """Chunks of one topic partition, after ``start``. A message may take ``expire`` seconds; 0: any time.

    Attributes:
        low: all after this position was looked through.
        high: all up to this position was looked through.
        has_ended: whether the search backwards has ended.
    """

    def __init__(self, expire: float, start: MessageId) -> None:
        self.low = self.high = start
        self.has_ended = False
        self._expire = expire
        self._chunks = _Chunks()
        self._settled: OrderedDict[bytes, MessageId] = OrderedDict()
        self._failures: dict[bytes, int] = {}
        # Publish times of the entries looked through that are newest, and oldest.
        self._near = self._far = np.zeros(0, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return len(self._chunks)

    def add(self, chunk: FoundChunk) -> None:
        """Add a chunk that was read, if it lies after all that was looked through."""
        if chunk.place > self.high:
            self._chunks.add([chunk])

    def read_up_to(self, end: MessageId, publish_times: npt.NDArray[np.int64]) -> None:
        """All entries up to a position were read; the last ones have ``publish_times``, int64[n], in ms."""
        if end > self.high:
            self.high = end
            self._near = np.concatenate((self._near, publish_times))[-_NEIGHBOURS:]
            self.has_ended = self.has_ended or self._is_old

    def looked_through(
        self,
        low: MessageId,
        chunks: Iterable[FoundChunk],
        publish_times: npt.NDArray[np.int64],
        *,
        is_beginning: bool,
    ) -> None:
        """Add the entries directly before all known ones; the position ``low`` is before them.

        ``publish_times``, int64[n], are in ms, in their order. ``is_beginning``: the topic begins with them.
        """
        self._chunks.add(chunks)
        self.low = low
        self._count += len(publish_times)
        if len(self._near) < _NEIGHBOURS:
            self._near = np.concatenate((publish_times, self._near))[-_NEIGHBOURS:]
        self._far = np.concatenate((publish_times[:_NEIGHBOURS], self._far))[:_NEIGHBOURS]
        self.has_ended = is_beginning or self._count >= _MAX_ENTRIES or self._is_old

    def joined(self, older: ChunkIndex) -> None:
        """Add what another index knows, which ends where this one begins."""
        self._chunks.join(older._chunks)
        for key, place in older._settled.items():
            self._settled.setdefault(key, place)
        self.low, self._far = older.low, older._far
        self._count += older._count
        self.has_ended = older.has_ended or self._is_old

    def settle(self, key: bytes, place: MessageId) -> None:
        """Forget the chunks of a message up to a position: it was complete there, or given up."""
        self._failures.pop(key, None)
        self._settled.pop(key, None)
        self._settled[key] = place
        if len(self._settled) > _MAX_SETTLED:
            self._settled.popitem(last=False)

    def failed(self, key: bytes, place: MessageId) -> None:
        """Note that a last chunk at a position did not complete a message.

        It may be a stranger's, and the right one may come; but strangers can write many.
        """
        if len(self._failures) >= _MAX_SETTLED:
            self._failures.clear()
        self._failures[key] = self._failures.get(key, 0) + 1
        if self._failures[key] >= _MAX_FAILURES:
            self.settle(key, place)

    def is_settled(self, key: bytes, place: MessageId) -> bool:
        """Whether a last chunk repeats that of a message that was settled, and has not begun again."""
        is_after = self._settled.get(key, place) < place
        return is_after and 0 not in self._between(key, place)["number"]

    def chunks_before(self, last: FoundChunk, chunks: int, total: int) -> list[MessageId] | None:
        """Where those chunks of a message lie that are known before the last one, in order.

        None where they cannot be its chunks: it has ``chunks`` chunks, and ``total`` bytes.
        """
        rows = self._between(last.key, last.place)
        rows = rows[(rows["number"] >= 0) & (rows["number"] < chunks)]
        earlier = rows[rows["number"] < last.number]
        numbers = np.unique(earlier["number"])
        if len(numbers) != last.number:
            return None
        sizes = [np.unique(earlier["size"][earlier["number"] == number]).tolist() for number in numbers]
        if not can_have_size([*sizes, [last.size]], total):
            return None
        return [MessageId(*place) for place in rows[["ledger", "entry"]].tolist()]

    def has_beginning(self, key: bytes, place: MessageId) -> bool:
        """Whether chunk 0 of a message is known before a position."""
        return 0 in self._between(key, place)["number"]

    def _between(self, key: bytes, place: MessageId) -> npt.NDArray[Any]:
        """The chunks of a message before a position, and after the one where it was settled; in order."""
        rows = self._chunks.of(key)
        wanted = _is_before(rows, place)
        settled = self._settled.get(key)
        if settled is not None and settled < place:  # else it was settled when the range was read before
            wanted &= ~_is_before(rows, settled.next_entry)
        return rows[wanted]

    @property
    def _is_old(self) -> bool:
        """Whether the search has come to entries that are older than a message may take."""
        if self._expire <= 0 or self._count < 2 * _NEIGHBOURS:
            return False
        return float(np.median(self._near) - np.median(self._far)) > self._expire * 1000


class _Chunks:
    """Any number of chunks, found by their key.

    They lie in blocks that are sorted by key, each at least twice as large as the next.
    """

    def __init__(self) -> None:
        self._blocks: list[npt.NDArray[Any]] = []
        self._new: list[tuple[int, int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._new) + sum(map(len, self._blocks))

    def add(self, chunks: Iterable[FoundChunk]) -> None:
        """Add some, of any positions."""
        for key, place, number, size in chunks:
            self._new.append((_short(key), place.ledger, place.entry, number, size))
            if len(self._new) >= _ROWS_AT_ONCE:
                self._sort()

    def join(self, others: _Chunks) -> None:
        """Add all of others."""
        others._sort()
        for block in others._blocks:
            self._put(block)

    def of(self, key: bytes) -> npt.NDArray[Any]:
        """The chunks of a message, in the order of the topic."""
        self._sort()
        short = np.uint64(_short(key))
        found = [
            block[np.searchsorted(block["key"], short) : np.searchsorted(block["key"], short, "right")]
            for block in self._blocks
        ]
        rows = np.concatenate([np.zeros(0, _ROW), *found])
        return rows[np.lexsort((rows["entry"], rows["ledger"]))]

    def _sort(self) -> None:
        if self._new:
            block = np.array(self._new, _ROW)
            self._new = []
            self._put(block[np.argsort(block["key"])])

    def _put(self, block: npt.NDArray[Any]) -> None:
        while self._blocks and len(self._blocks[-1]) < 2 * len(block):
            block = np.concatenate((self._blocks.pop(), block))
            block = block[np.argsort(block["key"])]
        self._blocks.append(block)


def _short(key: bytes) -> int:
    return int.from_bytes(key[:8], "little")


def _is_before(rows: npt.NDArray[Any], place: MessageId) -> npt.NDArray[np.bool_]:
    before: npt.NDArray[np.bool_] = (rows["ledger"] < place.ledger) | (
        (rows["ledger"] == place.ledger) & (rows["entry"] < place.entry)
    )
    return before
