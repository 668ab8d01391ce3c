"""ChunkAssembler: assembles messages larger than the broker accepts from their chunks. Pure.

Any producer of the topic may write any chunk, because the broker checks neither names nor uuids. So a message
is identified by producer name, uuid, number of chunks and total size. Its producer sends the chunks in order,
and after a reconnect some chunks again, with the same bytes:

    the next chunk                is added
    a chunk with the number and   was sent again; the id of the latest chunk 0 is the message's first id
    bytes of a received chunk
    a chunk with the number, but  is another candidate for this number: it is another producer's, or is from a
    not the bytes                 second attempt
    a chunk after the next one    is ignored: it is another producer's, or the next chunk is lost
    the last chunk                completes the message if only one combination of chunks has its total size

Clients write the same publish time and sequence id into all chunks of a message. So if a number has several
candidates, the ones with the last chunk's time and id are used, if there are any. If several combinations are
still possible, the message is given up. Chunks of several messages may be interleaved.

No memory is allocated for a declared size: a message uses the memory of its received chunks, at most twice
its declared total, and at most ``max_pending`` messages are incomplete at once. Messages expire by their
chunks' publish times, not by a clock, so each attempt at a range has the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from itertools import islice, product
from math import prod
from typing import NamedTuple, TypeAlias

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb

# Maximum finished messages whose keys are kept, so a repeated last chunk is not reported as NO_BEGINNING.
_MAX_FINISHED = 1000
# Publish time and sequence id of a chunk.
_Mark: TypeAlias = "tuple[int, int]"
# Maximum candidates for one chunk number, and maximum combinations of candidates tried for a message.
_MAX_CHOICES = 64
# Maximum chunks of one message that are compared, summed over all last chunks received for it.
_MAX_EFFORT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLimits:
    """Limits of incomplete messages; names and meaning as in the Java consumer.

    Attributes:
        max_pending: maximum messages at once (``maxPendingChunkedMessages``); another message removes the
            oldest. 0: any number.
        expire: maximum seconds between the publish times of a message's first and last chunk
            (``expireTimeOfIncompleteChunkedMessage``). 0: any time.
        auto_ack_oldest: whether a removed message is given up; else it is read again when its last chunk is
            received (``autoAckOldestChunkedMessageOnQueueFull``).
    """

    max_pending: int = 10
    expire: float = 60.0
    auto_ack_oldest: bool = False


class Assembled(NamedTuple):
    """A complete message.

    Attributes:
        first: id of its first chunk.
        is_odd: whether its chunks differ in publish time or sequence id, which no client's chunks do. Then a
            chunk may be another producer's, and the right chunk may lie before all received chunks.
    """

    first: MessageId
    payload: memoryview
    is_odd: bool = False


class Dropped(Enum):
    """Reason for giving up a message."""

    NO_BEGINNING = "its first chunk is missing"
    OUT_OF_ORDER = "a chunk is missing"
    SIZE = "its chunks do not have the declared size"
    CONTRADICTION = "another producer wrote a chunk of it, and nobody can tell which one"
    EXPIRED = "it was incomplete for longer than expireTimeOfIncompleteChunkedMessage"
    TOO_MANY = "more than maxPendingChunkedMessages were incomplete"


def message_key(metadata: pb.MessageMetadata) -> bytes:
    """Returns the key of a chunk's message: a digest of the fields that all its chunks have in common."""
    texts = (metadata.producer_name, metadata.uuid)
    common = (*map(len, texts), metadata.num_chunks_from_msg, metadata.total_chunk_msg_size)
    return blake2b(b"%d %d %d %d " % common + b"".join(texts), digest_size=16).digest()


def is_chunk(metadata: pb.MessageMetadata) -> bool:
    """Whether an entry is a chunk."""
    return metadata.num_chunks_from_msg > 1


def can_have_size(sizes: Iterable[Sequence[int]], total: int) -> bool:
    """Whether one size from each set may sum to ``total``; True if there are too many combinations to try."""
    several = [set(each) for each in sizes]
    left = total - sum(min(each) for each in several)
    more = [[size - min(each) for size in each] for each in several if len(each) > 1]
    return left >= 0 and (prod(map(len, more)) > _MAX_CHOICES or left in map(sum, product(*more)))


class _Piece:
    """A chunk, stored in one or more entries; ``place``: last entry's id; ``marks``: _Mark of each entry."""

    __slots__ = ("marks", "payload", "place")

    def __init__(self, metadata: pb.MessageMetadata, payload: Buffer, place: MessageId) -> None:
        self.payload = bytes(payload)
        self.place = place
        self.marks: set[_Mark] = {(metadata.publish_time, metadata.sequence_id)}

    def again(self, other: _Piece) -> None:
        """Records that another entry contains the same chunk."""
        self.place = other.place
        if len(self.marks) < _MAX_CHOICES:
            self.marks |= other.marks


class _Incomplete:
    """A message with missing chunks.

    Attributes:
        pieces: candidates of each chunk number, from 0 on.
        choices: number of chunk numbers with several candidates.
        refused: publish times and sequence ids of chunks that were not kept, because of a limit.
        opened: latest publish time of chunk 0, in seconds.
        why: reason that a last chunk did not complete the message; None: no last chunk was received.
    """

    __slots__ = ("choices", "effort", "opened", "pieces", "refused", "size", "total", "why")

    def __init__(self, metadata: pb.MessageMetadata, now: float) -> None:
        self.total = metadata.total_chunk_msg_size
        self.opened = now
        self.pieces: list[list[_Piece]] = []
        self.size = 0
        self.choices = 0
        self.effort = 0
        self.refused: set[_Mark] = set()
        self.why: Dropped | None = None

    def add(self, number: int, piece: _Piece) -> None:
        """Adds the next chunk, another candidate for an earlier number, or a chunk that was sent again."""
        if number == len(self.pieces):
            self.pieces.append([])
        others = self.pieces[number]
        known = next((other for other in others if other.payload == piece.payload), None)
        if known is not None:
            known.again(piece)
        elif self.size + len(piece.payload) <= 2 * self.total and len(others) < _MAX_CHOICES:
            others.append(piece)
            self.size += len(piece.payload)
            self.choices += len(others) == 2
        elif len(self.refused) < _MAX_CHOICES:
            self.refused |= piece.marks

    def complete(self, last: _Piece) -> Assembled | Dropped:
        """Completes the message with the last chunk, or returns the reason that this fails."""
        pieces = self._chosen(last)
        if isinstance(pieces, Dropped):
            return pieces
        self.pieces.clear()
        first, is_odd, data = pieces[0].place, not _share_mark(pieces), bytearray()
        pieces.reverse()
        while pieces:  # each piece is freed once copied, so the message is never in memory twice
            data += pieces.pop().payload
        return Assembled(first, memoryview(data), is_odd)

    def _chosen(self, last: _Piece) -> list[_Piece] | Dropped:
        """Returns one chunk for each number; or the reason that no choice, or more than one, is possible.

        Other producers can write many last chunks, so a last chunk of a wrong size must cost almost nothing.
        """
        rest = self.total - len(last.payload)
        if not self.choices and self.size != rest:
            return Dropped.CONTRADICTION if self.refused else Dropped.SIZE
        if self.effort > _MAX_EFFORT:
            return Dropped.CONTRADICTION
        self.effort += len(self.pieces)
        choices = [_like(last, some) if len(some) > 1 else some for some in self.pieces]
        if prod(map(len, choices)) > _MAX_CHOICES:
            return Dropped.CONTRADICTION
        fitting = (some for some in product(*choices) if sum(len(each.payload) for each in some) == rest)
        found = list(islice(fitting, 2))
        if not found:
            return Dropped.CONTRADICTION if self.refused else Dropped.SIZE
        pieces = [*found[0], last]
        # A chunk that was not kept may be right, unless the chosen chunks share a time and id that it lacks.
        may_be_own = not _share_mark(pieces) or last.marks & self.refused or len(self.refused) == _MAX_CHOICES
        return Dropped.CONTRADICTION if len(found) > 1 or (self.refused and may_be_own) else pieces


def _share_mark(pieces: list[_Piece]) -> bool:
    """Whether all chunks have a publish time and sequence id in common."""
    return bool(set.intersection(*(each.marks for each in pieces)))


def _like(last: _Piece, pieces: list[_Piece]) -> list[_Piece]:
    """Returns the chunks that share a publish time and sequence id with the last one; all if none does."""
    return [each for each in pieces if each.marks & last.marks] or pieces


class ChunkAssembler:
    """Assembles the chunked messages of one topic partition."""

    def __init__(self, limits: ChunkLimits) -> None:
        self._dropped: Counter[Dropped] = Counter()
        self._limits = limits
        self._open: dict[bytes, _Incomplete] = {}
        self._finished: dict[bytes, None] = {}

    @property
    def dropped(self) -> Counter[Dropped]:
        """Number of messages, by reason, that were given up or that a last chunk did not complete."""
        return self._dropped + Counter(each.why for each in self._open.values() if each.why is not None)

    @property
    def pending(self) -> int:
        """Number of messages that wait for their last chunk."""
        return sum(each.why is None for each in self._open.values())

    def take(
        self, metadata: pb.MessageMetadata, payload: Buffer, message_id: MessageId, now: float
    ) -> Assembled | Dropped | None:
        """Adds the next chunk of the topic, published at ``now`` in seconds; its bytes are copied.

        Returns:
            The completed message; the reason that a last chunk did not complete one, so the caller may search
            for earlier chunks; None otherwise. NO_BEGINNING is not counted here: the caller calls ``count``.
        """
        key, number = message_key(metadata), metadata.chunk_id
        is_last = number == metadata.num_chunks_from_msg - 1
        if number == 0:
            self._begin(key, metadata, now)
        message = self._open.get(key)
        if message is None:
            # Reported for the last chunk only, because one search then finds all chunks of the message.
            return Dropped.NO_BEGINNING if is_last and key not in self._finished else None
        if number < 0:  # ignored; ``_problem`` handles numbers that are too high
            return None
        result: Assembled | Dropped | None = self._problem(message, number, len(payload), now)
        if result is None:
            piece = _Piece(metadata, payload, message_id)
            if not is_last:
                message.add(number, piece)
                return None
            result = message.complete(piece)
        if isinstance(result, Assembled):
            self.finish(key)
            return result
        if is_last:
            message.why = result  # the message stays, because the last chunk may be another producer's
            return result
        return None

    def count(self, why: Dropped) -> None:
        """Counts a message that its last chunk cannot complete."""
        self._dropped[why] += 1

    def finish(self, key: bytes) -> None:
        """Ends a complete or given up message: its further chunks are ignored until chunk 0 is received."""
        self._open.pop(key, None)
        self._finished[key] = None
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]

    def _begin(self, key: bytes, metadata: pb.MessageMetadata, now: float) -> None:
        self._finished.pop(key, None)
        message = self._open.pop(key, None)  # because a message inserted again is the newest
        if message is None:
            message = _Incomplete(metadata, now)
            if 0 < self._limits.max_pending <= len(self._open):
                self._remove_oldest()
        message.opened = max(message.opened, now)
        self._open[key] = message

    def _remove_oldest(self) -> None:
        oldest = next(iter(self._open))
        message = self._open.pop(oldest)
        if self._limits.auto_ack_oldest:
            self.finish(oldest)
            self.count(message.why or Dropped.TOO_MANY)
        elif message.why is not None:
            self.count(message.why)

    def _problem(self, message: _Incomplete, number: int, size: int, now: float) -> Dropped | None:
        """Returns the reason that a chunk does not belong to a message; None if it may belong."""
        if size > message.total:
            return Dropped.SIZE
        if number > len(message.pieces):
            return Dropped.OUT_OF_ORDER
        return Dropped.EXPIRED if 0 < self._limits.expire < now - message.opened else None
