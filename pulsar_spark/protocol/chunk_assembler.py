"""ChunkAssembler: assembles messages larger than the broker accepts from their chunks. Pure.

A message is identified by its uuid. Chunk 0 begins it (again, when a producer resends it from the start),
each chunk must follow the one before, the last one completes it. Chunks of several messages may be
interleaved.

No memory is allocated for a declared size: a message takes the memory of the chunks that have arrived, at
most its declared total, and at most ``max_pending`` messages are incomplete at once. Time is the publish time
of chunks, so each attempt at a range gives the same result, however slow its reader is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import Buffer

# How many finished messages are remembered, to tell a repeated chunk from a message without its beginning.
_MAX_FINISHED = 1000
# Bytes of a uuid that is remembered as it is: clients write a producer's name and a number.
_MAX_KEY = 64


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
    """A complete message: the id of its first chunk, and its whole payload as it was stored."""

    first: MessageId
    payload: memoryview


class Dropped(Enum):
    """Why a message was given up."""

    NO_BEGINNING = "its first chunk is missing"
    OUT_OF_ORDER = "a chunk is missing or contradicts the others"
    SIZE = "its chunks do not have the declared size"
    EXPIRED = "it was incomplete for longer than expireTimeOfIncompleteChunkedMessage"
    TOO_MANY = "more than maxPendingChunkedMessages were incomplete"


class _Incomplete:
    """A message of which chunks are missing."""

    __slots__ = ("chunks", "data", "first", "last", "opened", "total")

    def __init__(self, metadata: pb.MessageMetadata, first: MessageId, now: float) -> None:
        self.chunks = metadata.num_chunks_from_msg
        self.total = metadata.total_chunk_msg_size
        self.first = first
        self.opened = now
        self.last = -1
        # It grows with each chunk, and becomes the message without a copy.
        self.data = bytearray()


def message_key(metadata: pb.MessageMetadata) -> bytes:
    """The key of the message that a chunk belongs to: its uuid, or a digest of a long uuid."""
    uuid = metadata.uuid
    return uuid if len(uuid) <= _MAX_KEY else blake2b(uuid).digest()


def is_chunk(metadata: pb.MessageMetadata) -> bool:
    """Whether an entry holds a part of a message."""
    return metadata.num_chunks_from_msg > 1


class ChunkAssembler:
    """Assembles the chunked messages of one topic partition.

    Args:
        limits: bounds of incomplete messages.

    Attributes:
        dropped: how many messages were given up, by reason.
    """

    def __init__(self, limits: ChunkLimits) -> None:
        self.dropped: Counter[Dropped] = Counter()
        self._limits = limits
        self._open: dict[bytes, _Incomplete] = {}
        self._finished: dict[bytes, None] = {}

    @property
    def pending(self) -> int:
        """How many messages are incomplete."""
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """Bytes that have arrived of incomplete messages."""
        return sum(len(message.data) for message in self._open.values())

    def take(
        self, metadata: pb.MessageMetadata, payload: Buffer, message_id: MessageId, now: float
    ) -> Assembled | Dropped | None:
        """Add the next chunk of the topic; its bytes are copied.

        Args:
            metadata: of its entry; ``is_chunk`` holds.
            payload: its bytes as stored.
            message_id: of its entry.
            now: seconds, when it was published.

        Returns:
            The message that it completes; NO_BEGINNING where it is the last chunk of a message whose first
            one has not come: that may lie further back in the topic, so it is not counted yet; else None.
        """
        uuid, number = message_key(metadata), metadata.chunk_id
        message = self._open.get(uuid)
        if number == 0:
            message = self._begin(metadata, message_id, now)
        elif message is None:
            # Others may be ignored: when the last one comes, all are read again from the first on.
            is_last = number == metadata.num_chunks_from_msg - 1
            return Dropped.NO_BEGINNING if is_last and uuid not in self._finished else None
        if 0 <= number <= message.last:
            return None  # sent again after a reconnect
        problem = self._problem(message, metadata, len(payload), now)
        if problem is not None:
            self.drop(uuid, problem)
            return None
        message.data += payload
        message.last = number
        if number < message.chunks - 1:
            return None
        if len(message.data) != message.total:
            self.drop(uuid, Dropped.SIZE)
            return None
        self.finish(uuid)
        return Assembled(message.first, memoryview(message.data))

    def drop(self, uuid: bytes, why: Dropped) -> None:
        """Give a message up and count it; its chunks are ignored from now on, unless it begins again."""
        self.dropped[why] += 1
        self.finish(uuid)

    def finish(self, uuid: bytes) -> None:
        """Ignore the chunks of a message that is complete or given up, unless it begins again."""
        self._open.pop(uuid, None)
        self._finished.pop(uuid, None)
        self._finished[uuid] = None
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]

    def is_finished(self, uuid: bytes) -> bool:
        """Whether a message was complete or given up, and has not begun again; of the last 1000 of them."""
        return uuid in self._finished

    def _begin(self, metadata: pb.MessageMetadata, first: MessageId, now: float) -> _Incomplete:
        uuid = message_key(metadata)
        self._finished.pop(uuid, None)
        self._open.pop(uuid, None)  # so that it is the youngest again
        if 0 < self._limits.max_pending <= len(self._open):
            oldest = next(iter(self._open))
            if self._limits.auto_ack_oldest:
                self.drop(oldest, Dropped.TOO_MANY)
            else:
                del self._open[oldest]
        message = self._open[uuid] = _Incomplete(metadata, first, now)
        return message

    def _problem(
        self, message: _Incomplete, metadata: pb.MessageMetadata, size: int, now: float
    ) -> Dropped | None:
        number = metadata.chunk_id
        declared = (metadata.num_chunks_from_msg, metadata.total_chunk_msg_size)
        if not number == message.last + 1 < message.chunks or declared != (message.chunks, message.total):
            return Dropped.OUT_OF_ORDER
        if 0 < self._limits.expire < now - message.opened:
            return Dropped.EXPIRED
        return Dropped.SIZE if len(message.data) + size > message.total else None
