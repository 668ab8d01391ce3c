"""PendingWindow: the entries of one producer that were sent and are not yet acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from pulsar_spark.errors import ProtocolError, SendError
from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.memory_budget import MemoryBudget
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import Buffer, encode_command_head, is_intact, metadata_of_head


class EntryKind(Enum):
    """What an entry holds."""

    BATCH = "batch"
    SINGLE = "single"
    CHUNK = "chunk"
    LAST_CHUNK = "last chunk"

    @property
    def is_chunk(self) -> bool:
        """Whether it is a part of a message."""
        return self in (EntryKind.CHUNK, EntryKind.LAST_CHUNK)


# Read with each entry: attributes of an enum take longer than globals.
_CHUNK, _LAST_CHUNK = EntryKind.CHUNK, EntryKind.LAST_CHUNK


@dataclass(slots=True, eq=False)
class Outgoing:
    """One entry, ready to be framed for any connection.

    Attributes:
        sequence_id: of its first message; SEND_RECEIPT names the entry by it.
        highest_sequence_id: of its last message.
        messages: how many it holds; a chunk counts as one.
        head: checksum and metadata, as they precede the payload.
        payload: as it is stored.
        kind: what it holds.
        transaction: that it belongs to, as its metadata also says; None for none.
        message: that it is a chunk of, or None.
        size: bytes of the payload section.
    """

    sequence_id: int
    highest_sequence_id: int
    messages: int
    head: bytes
    payload: Buffer
    kind: EntryKind
    transaction: TxnId | None = None
    message: ChunkedMessage | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.head) + len(self.payload)

    def put_head(self, head: bytes) -> None:
        """Replace the checksum and metadata."""
        self.head = head
        self.size = len(head) + len(self.payload)

    def frame(self, producer_id: int) -> tuple[Buffer, Buffer, Buffer]:
        """The SEND frame: command, head and payload, to be sent one after the other."""
        ids = self.sequence_id, self.highest_sequence_id
        is_chunk = self.kind is _CHUNK or self.kind is _LAST_CHUNK
        if self.transaction is None and not is_chunk:
            return commands.send_head(producer_id, ids, self.messages, self.size), self.head, self.payload
        command = commands.send(producer_id, ids, self.messages, self.transaction, is_chunk=is_chunk)
        return encode_command_head(command, self.size), self.head, self.payload

    @property
    def metadata(self) -> pb.MessageMetadata:
        """As it was sent last."""
        return metadata_of_head(self.head)

    @property
    def intact(self) -> bool:
        """Whether the bytes still match their checksum."""
        return is_intact(self.head, self.payload)


class ChunkedMessage(Protocol):
    """A message that is sent in chunks."""

    def rename(self, attempt: str) -> None:
        """Give all its chunks the name of another attempt, also those not sent yet."""


class PendingWindow:
    """Entries in the order they were sent; they are sent again after a reconnect.

    They are sent again unchanged, except chunks. The C++ client drops a message if one of its chunks comes
    twice, so a message whose last chunk is not acknowledged is sent again from its first chunk, as another
    message.

    Args:
        topic: for error texts.
        max_messages: ``maxPendingMessages``; messages inside batches count one by one.
        budget: of bytes of payload sections, ``memoryLimit``; shared with other windows. ``report`` and
            pushed entries update it.
        send_timeout: seconds without a sign of progress in which the oldest entry's receipt must come; see
            ``due_at``.
    """

    def __init__(self, topic: str, max_messages: int, budget: MemoryBudget, send_timeout: float) -> None:
        self._topic = topic
        self._max_messages = max_messages
        self._budget = budget
        self._send_timeout = send_timeout
        self._entries: deque[Outgoing] = deque()
        self._pushed_at: deque[float] = deque()
        self._partly: list[Outgoing] = []  # acknowledged chunks of a message whose last chunk is not
        self._messages = 0
        self._bytes = 0
        self._progress_at = 0.0
        self._progress_before = 0.0  # without that of the resend
        self._is_resend = False  # since the last receipt
        self._reported = 0  # bytes, as last reported to the budget

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._entries)

    @property
    def oldest(self) -> Outgoing | None:
        """The entry whose receipt must come next; None if nothing is pending."""
        return self._entries[0] if self._entries else None

    def has_room(self, entry: Outgoing) -> bool:
        """Whether an entry may be sent now.

        An entry larger than the window waits until the window is empty. So does one whose sequence id is not
        above all pending ones: receipts name entries by growing ids, and a deduplicating broker cannot tell a
        duplicate from an entry that it is still storing.
        """
        return self._has_room(entry, entry.size, self._budget.max_bytes(self._reported))

    def _has_room(self, entry: Outgoing, size: int, max_bytes: int) -> bool:
        if not self._entries:
            return True
        if self._messages + entry.messages > self._max_messages or self._bytes + size > max_bytes:
            return False
        last = self._entries[-1]
        if last.kind is _CHUNK:
            return entry.sequence_id >= last.sequence_id
        return entry.sequence_id > last.highest_sequence_id

    def push(self, outgoing: Outgoing, now: float) -> None:
        """Append an entry that is about to be sent; ``now`` is in monotonic seconds."""
        self._push(outgoing, outgoing.size, now)

    def _push(self, outgoing: Outgoing, size: int, now: float) -> None:
        self._entries.append(outgoing)
        self._pushed_at.append(now)
        self._messages += outgoing.messages
        self._bytes += size

    def take_from(self, waiting: deque[Outgoing], now: float) -> list[Outgoing]:
        """Move entries out of ``waiting``, in order, while they have room; return those moved."""
        moved = []
        self.report()
        max_bytes = self._budget.max_bytes(self._reported)
        while waiting:
            entry = waiting[0]
            size = entry.size
            if not self._has_room(entry, size, max_bytes):
                break
            self._push(entry, size, now)
            moved.append(waiting.popleft())
        self.report()
        return moved

    def report(self) -> None:
        """Tell the budget what is pending."""
        if self._bytes != self._reported:
            self._budget.report(self._reported, self._bytes)
            self._reported = self._bytes

    def release(self) -> None:
        """Give the bytes of pending entries back to the budget; nothing more is sent."""
        self._budget.report(self._reported, 0)
        self._reported = 0

    def acknowledged(self, sequence_id: int) -> Outgoing | None:
        """Take a SEND_RECEIPT and return its entry; None if that was acknowledged before.

        Raises:
            ProtocolError: a receipt for a newer entry than the oldest pending one: the connection lost one.
        """
        entries = self._entries
        if not entries or sequence_id < entries[0].sequence_id:
            return None
        entry = entries[0]
        if sequence_id > entry.sequence_id:
            raise ProtocolError(
                f"a receipt for sequence id {sequence_id} came before that of {entry.sequence_id}",
                topic=self._topic,
            )
        entries.popleft()
        self._pushed_at.popleft()
        self._messages -= entry.messages
        self._bytes -= entry.size
        if entry.kind is _CHUNK:
            self._partly.append(entry)
        else:
            self._partly = []
            self._is_resend = False
        return entry

    def lost(self) -> None:
        """Note that the registration has ended: pending entries must be sent again."""
        if self._is_resend:
            self._progress_at = self._progress_before
        self._progress_before = self._progress_at
        self._is_resend = bool(self._entries)

    def again(self, attempt: str, now: float) -> list[Outgoing]:
        """Return the pending entries in order, to be sent on a new connection.

        Args:
            attempt: another one each time, for the names of chunked messages.
            now: in monotonic seconds.
        """
        since = self._pushed_at[0] if self._pushed_at else now
        for entry in reversed(self._partly):
            self._entries.appendleft(entry)
            self._pushed_at.appendleft(since)
            self._messages += entry.messages
            self._bytes += entry.size
        self._partly = []
        for message in {id(entry.message): entry.message for entry in self._entries}.values():
            if message is not None:
                message.rename(attempt)
        return list(self._entries)

    @property
    def due_at(self) -> float | None:
        """When the oldest entry's send timeout ends; None if nothing is pending.

        It begins when the entry is pushed, and again at each sign of progress: if a broker throttles, pending
        entries may take much longer than the timeout. A resend must bring receipts. Its other signs no longer
        count when it is also lost: else a broker that refuses each resend would be tried for ever.

            =======================================================  ======================================
            sign of progress                                         counts
            =======================================================  ======================================
            receipt; ``begin_anew``                                  always
            bytes on their way, or the receipt of a chunk that is    always
            not the last one, before anything was sent again
            the same of a resend, before its first receipt           until that registration is lost
            =======================================================  ======================================
        """
        if not self._pushed_at:
            return None
        return max(self._pushed_at[0], self._progress_at) + self._send_timeout

    def progress(self, at: float) -> None:
        """Note when there was a sign of progress, in monotonic seconds; see ``due_at``."""
        self._progress_at = max(self._progress_at, at)

    def begin_anew(self, now: float) -> None:
        """Start the send timeout again: finding that the pending entries are stored took long."""
        self._progress_at = self._progress_before = now

    def timed_out(self, why: str) -> SendError:
        """Make the error for all pending entries."""
        return SendError(
            f"{self._messages} messages were not acknowledged within {self._send_timeout:g} s: {why}",
            topic=self._topic,
            advice="They may or may not be stored. Check the broker's health, or raise sendTimeoutMs",
        )
