"""ChunkAssembler: puts messages larger than the broker takes together from their chunks.

A message is known by its uuid. Chunk 0 opens it (again, when a producer resends it from the start), each next
chunk must follow the last, the last one completes it. Chunks of several messages may lie mixed in a topic.

Nothing is allocated by a declared size: a message takes the memory of what has arrived of it, at most its
declared total, and at most ``max_pending`` messages are in the making. Time is the time of the log, that is
when chunks were published, so that each attempt at a range gives the same, however slow its reader is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import Buffer

# So many finished messages are remembered, to tell a repeated chunk from a message without beginning.
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLimits:
    """Bounds of what is in the making; names and meaning are the Java consumer's.

    Attributes:
        max_pending: messages at the same time (``maxPendingChunkedMessages``); over it the oldest goes.
            0: any number.
        expire: seconds from the publishing of a message's first chunk to that of its last
            (``expireTimeOfIncompleteChunkedMessage``). 0: any time.
        auto_ack_oldest: whether the oldest that goes is given up; else it is read again when its end comes
            (``autoAckOldestChunkedMessageOnQueueFull``).
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

    NO_BEGINNING = "its beginning is missing"
    OUT_OF_ORDER = "a chunk is missing or contradicts the others"
    SIZE = "its chunks are not as large as they declare"
    EXPIRED = "it took longer than expireTimeOfIncompleteChunkedMessage"
    TOO_MANY = "more than maxPendingChunkedMessages were in the making"


class _Context:
    """A message in the making."""

    __slots__ = ("chunks", "data", "first", "last", "opened", "total")

    def __init__(self, metadata: pb.MessageMetadata, first: MessageId, now: float) -> None:
        self.chunks = metadata.num_chunks_from_msg
        self.total = metadata.total_chunk_msg_size
        self.first = first
        self.opened = now
        self.last = -1
        # It grows with what arrives, and becomes the message as it is: nothing is joined in the end.
        self.data = bytearray()


def is_chunk(metadata: pb.MessageMetadata) -> bool:
    """Whether an entry holds a part of a message."""
    return metadata.num_chunks_from_msg > 1


class ChunkAssembler:
    """Puts the chunked messages of one topic partition together.

    Args:
        limits: bounds of what is in the making.
    """

    def __init__(self, limits: ChunkLimits) -> None:
        self.dropped: Counter[Dropped] = Counter()
        self._limits = limits
        self._open: dict[str, _Context] = {}
        self._finished: dict[str, None] = {}

    @property
    def pending(self) -> int:
        """How many messages are in the making."""
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """Bytes that have arrived of the messages in the making."""
        return sum(len(context.data) for context in self._open.values())

    def take(
        self, metadata: pb.MessageMetadata, payload: Buffer, message_id: MessageId, now: float
    ) -> Assembled | Dropped | None:
        """Take the next chunk of the topic in; its bytes are copied.

        Args:
            metadata: of its entry; ``is_chunk`` holds.
            payload: its bytes as stored.
            message_id: of its entry.
            now: seconds, when it was published.

        Returns:
            The message that it completes; NO_BEGINNING where it is the last of a message whose first one
            has not come: it may lie further back in the topic, and is not counted yet; None otherwise.
        """
        uuid, number = metadata.uuid, metadata.chunk_id
        context = self._open.get(uuid)
        if number == 0:
            context = self._begin(metadata, message_id, now)
        elif context is None:
            # Those in the middle may be ignored: where the last comes too, all are read from the first on.
            is_last = number == metadata.num_chunks_from_msg - 1
            return Dropped.NO_BEGINNING if is_last and uuid not in self._finished else None
        if 0 <= number <= context.last:
            return None  # sent again after a reconnect
        problem = self._problem(context, metadata, len(payload), now)
        if problem is not None:
            self.drop(uuid, problem)
            return None
        context.data += payload
        context.last = number
        if number < context.chunks - 1:
            return None
        if len(context.data) != context.total:
            self.drop(uuid, Dropped.SIZE)
            return None
        self.finish(uuid)
        return Assembled(context.first, memoryview(context.data))

    def drop(self, uuid: str, why: Dropped) -> None:
        """Give a message up and count it; its chunks are ignored from now on, unless it begins again."""
        self.dropped[why] += 1
        self.finish(uuid)

    def finish(self, uuid: str) -> None:
        """Ignore the chunks of a message that is complete or given up, unless it begins again."""
        self._open.pop(uuid, None)
        self._finished.pop(uuid, None)
        self._finished[uuid] = None
        if len(self._finished) > _REMEMBERED:
            del self._finished[next(iter(self._finished))]

    def is_finished(self, uuid: str) -> bool:
        """Whether a message was complete or given up, and has not begun again since; a few are remembered."""
        return uuid in self._finished

    def _begin(self, metadata: pb.MessageMetadata, first: MessageId, now: float) -> _Context:
        uuid = metadata.uuid
        self._finished.pop(uuid, None)
        self._open.pop(uuid, None)  # so that it is the youngest again
        if 0 < self._limits.max_pending <= len(self._open):
            oldest = next(iter(self._open))
            if self._limits.auto_ack_oldest:
                self.drop(oldest, Dropped.TOO_MANY)
            else:
                del self._open[oldest]
        context = self._open[uuid] = _Context(metadata, first, now)
        return context

    def _problem(
        self, context: _Context, metadata: pb.MessageMetadata, size: int, now: float
    ) -> Dropped | None:
        number = metadata.chunk_id
        declared = (metadata.num_chunks_from_msg, metadata.total_chunk_msg_size)
        if not number == context.last + 1 < context.chunks or declared != (context.chunks, context.total):
            return Dropped.OUT_OF_ORDER
        if 0 < self._limits.expire < now - context.opened:
            return Dropped.EXPIRED
        return Dropped.SIZE if len(context.data) + size > context.total else None
