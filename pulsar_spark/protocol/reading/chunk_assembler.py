"""ChunkAssembler: assembles messages larger than the broker accepts from their chunks. Pure.

Whoever may produce to the topic may write any chunk: the broker checks neither names nor uuids. So a message
is what its chunks agree on: producer name, uuid, number of chunks and total size. Its producer sends them in
order, and after a reconnect some of them again, each with the same bytes:

    the next chunk                is added
    one whose bytes are known     was sent again; the last chunk 0 is the message's first entry
    one of a known number with    is another choice for that number: a stranger's, or of a second attempt
    other bytes
    one that is further ahead     is ignored: it is a stranger's, or one between is lost
    the last chunk                completes the message if one choice of chunks, and no other, has its size

Of several chunks of one number those count that have the last one's publish time and sequence id, if there
are any: clients write the same into all chunks of a message. If several choices are left, nobody can tell
which is the producer's, and the message is given up. Chunks of several messages may be interleaved.

No memory is allocated for a declared size: a message takes the memory of the chunks that have arrived, at
most twice its declared total, and at most ``max_pending`` messages are incomplete at once. Time is the
publish time of chunks, so each attempt at a range gives the same result, however slow its reader is.
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

# How many finished messages are remembered, to tell a repeated chunk from a message without its beginning.
_MAX_FINISHED = 1000
# Publish time and sequence id of a chunk.
_Mark: TypeAlias = "tuple[int, int]"
# Choices of chunks that are compared with the total size.
_MAX_CHOICES = 64
# Chunks that are compared for last chunks of one message, if there are choices.
_MAX_EFFORT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLimits:
    """Bounds of incomplete messages; names and meaning are the Java consumer's.

    Attributes:
        max_pending: messages at the same time (``maxPendingChunkedMessages``); one more removes the oldest.
            0: any number.
        expire: seconds from the publishing of a message's first chunk to that of its last
            (``expireTimeOfIncompleteChunkedMessage``). 0: any time.
        auto_ack_oldest: whether the oldest that is removed is given up; else it is read again when its last
            chunk comes (``autoAckOldestChunkedMessageOnQueueFull``).
    """

    max_pending: int = 10
    expire: float = 60.0
    auto_ack_oldest: bool = False


class Assembled(NamedTuple):
    """A complete message.

    Attributes:
        first: the id of its first chunk.
        payload: the whole payload as it was stored.
        is_odd: whether its chunks differ in publish time or sequence id, which no client writes: one of them
            may be a stranger's, and the producer's own may lie before all that was taken.
    """

    first: MessageId
    payload: memoryview
    is_odd: bool = False


class Dropped(Enum):
    """Why a message was given up."""

    NO_BEGINNING = "its first chunk is missing"
    OUT_OF_ORDER = "a chunk is missing"
    SIZE = "its chunks do not have the declared size"
    CONTRADICTION = "another producer wrote a chunk of it, and nobody can tell which one"
    EXPIRED = "it was incomplete for longer than expireTimeOfIncompleteChunkedMessage"
    TOO_MANY = "more than maxPendingChunkedMessages were incomplete"


def message_key(metadata: pb.MessageMetadata) -> bytes:
    """The key of the message that a chunk belongs to: a digest of what all of its chunks have in common."""
    texts = (metadata.producer_name, metadata.uuid)
    common = (*map(len, texts), metadata.num_chunks_from_msg, metadata.total_chunk_msg_size)
    return blake2b(b"%d %d %d %d " % common + b"".join(texts), digest_size=16).digest()


def is_chunk(metadata: pb.MessageMetadata) -> bool:
    """Whether an entry holds a part of a message."""
    return metadata.num_chunks_from_msg > 1


def can_have_size(sizes: Iterable[Sequence[int]], total: int) -> bool:
    """Whether one of each of some sizes may have that sum; true where that is too much to find out."""
    several = [set(each) for each in sizes]
    left = total - sum(min(each) for each in several)
    more = [[size - min(each) for size in each] for each in several if len(each) > 1]
    return left >= 0 and (prod(map(len, more)) > _MAX_CHOICES or left in map(sum, product(*more)))


class _Piece:
    """A chunk, which may have come several times, last at ``place``.

    ``marks`` are publish times and sequence ids of its entries; not of more than a few.
    """

    __slots__ = ("marks", "payload", "place")

    def __init__(self, metadata: pb.MessageMetadata, payload: Buffer, place: MessageId) -> None:
        self.payload = bytes(payload)
        self.place = place
        self.marks: set[_Mark] = {(metadata.publish_time, metadata.sequence_id)}

    def again(self, other: _Piece) -> None:
        """Note that it has come once more."""
        self.place = other.place
        if len(self.marks) < _MAX_CHOICES:
            self.marks |= other.marks


class _Incomplete:
    """A message of which chunks are missing.

    Attributes:
        pieces: for each number from 0 on the chunks that have come, all different.
        size: of all of them, in bytes.
        choices: how many numbers have several.
        refused: publish times and sequence ids of chunks that there was no room for; not of all if many.
        opened: seconds, when chunk 0 was published.
        why: why its last chunk did not complete it; None: it has not come.
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
        """Add a chunk that has come before, contradicts others, or is the next."""
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
        """Complete it with the last chunk, or say why that is not possible."""
        pieces = self._chosen(last)
        if isinstance(pieces, Dropped):
            return pieces
        self.pieces.clear()
        first, is_odd, data = pieces[0].place, _are_odd(pieces), bytearray()
        pieces.reverse()
        while pieces:  # each is let go of when it is a part of the whole: that is never in memory twice
            data += pieces.pop().payload
        return Assembled(first, memoryview(data), is_odd)

    def _chosen(self, last: _Piece) -> list[_Piece] | Dropped:
        """One chunk of each number, the last one among them.

        Strangers can write any number of last chunks: each of a wrong size must cost next to nothing.
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
        # What was refused is a stranger's only if it differs from all that is taken.
        may_be_own = _are_odd(pieces) or last.marks & self.refused or len(self.refused) == _MAX_CHOICES
        return Dropped.CONTRADICTION if len(found) > 1 or (self.refused and may_be_own) else pieces


def _are_odd(pieces: list[_Piece]) -> bool:
    """Whether chunks have no publish time and sequence id that all of them have come with."""
    return not set.intersection(*(each.marks for each in pieces))


def _like(last: _Piece, pieces: list[_Piece]) -> list[_Piece]:
    """The pieces that were written together with the last one, if there are any; else all."""
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
        """How many messages were given up, or had a last chunk that did not complete them, by reason."""
        return self._dropped + Counter(each.why for each in self._open.values() if each.why is not None)

    @property
    def pending(self) -> int:
        """How many messages wait for their last chunk."""
        return sum(each.why is None for each in self._open.values())

    def take(
        self, metadata: pb.MessageMetadata, payload: Buffer, message_id: MessageId, now: float
    ) -> Assembled | Dropped | None:
        """Add the next chunk of the topic, published at ``now`` in seconds; its bytes are copied.

        Returns:
            The message that it completes; for a last chunk why it completes none: others may lie further back
            in the topic; else None. NO_BEGINNING is not counted yet.
        """
        key, number = message_key(metadata), metadata.chunk_id
        is_last = number == metadata.num_chunks_from_msg - 1
        if number == 0:
            self._begin(key, metadata, now)
        message = self._open.get(key)
        if message is None:
            # Others may be ignored: when the last one comes, all are read again from the first on.
            return Dropped.NO_BEGINNING if is_last and key not in self._finished else None
        if number < 0:  # one that is too high is out of order
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
            message.why = result  # and it stays: the last chunk may be a stranger's, too
            return result
        return None

    def count(self, why: Dropped) -> None:
        """Count a message that cannot be completed by a chunk that has come."""
        self._dropped[why] += 1

    def finish(self, key: bytes) -> None:
        """Ignore the chunks of a message that was complete or given up, unless it begins again."""
        self._open.pop(key, None)
        self._finished[key] = None
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]

    def _begin(self, key: bytes, metadata: pb.MessageMetadata, now: float) -> None:
        self._finished.pop(key, None)
        message = self._open.pop(key, None)  # so that it is the youngest again
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
        """Why a chunk cannot be one of a message."""
        if size > message.total:
            return Dropped.SIZE
        if number > len(message.pieces):
            return Dropped.OUT_OF_ORDER
        return Dropped.EXPIRED if 0 < self._limits.expire < now - message.opened else None
