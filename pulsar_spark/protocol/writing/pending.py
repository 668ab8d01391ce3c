"""Entries that are ready to be sent, the chunks of one message, and the window of unacknowledged entries.

PendingWindow has a producer's sent, unacknowledged entries. The windows of a task share a MemoryBudget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.errors import NotReadyError, ProtocolError, PulsarError, SendError, from_server
from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.writing.batcher import Batch
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import EncodedSingle
from pulsar_spark.wire.entry.encode_metadata import chunk_fields
from pulsar_spark.wire.frames import encode_command, encode_section_head, is_intact, metadata_of_head

_CHECKSUM_ERROR = 9


class EntryKind(Enum):
    """The content of an entry."""

    BATCH = "batch"
    SINGLE = "single"
    CHUNK = "chunk"
    LAST_CHUNK = "last chunk"

    @property
    def is_chunk(self) -> bool:
        """Whether the entry is a part of a message."""
        return self in (EntryKind.CHUNK, EntryKind.LAST_CHUNK)


# Globals, because reading an attribute of an enum takes longer.
_CHUNK, _LAST_CHUNK = EntryKind.CHUNK, EntryKind.LAST_CHUNK


@dataclass(slots=True, eq=False)
class Outgoing:
    """One entry, ready to be framed for any connection.

    Attributes:
        sequence_id: id of its first message, and of the entry in SEND_RECEIPT.
        highest_sequence_id: id of its last message.
        messages: number of messages; a chunk counts as one.
        head: checksum and metadata, which precede the payload in the frame.
        transaction: its transaction, as in its metadata; None for none.
        message: the message of a chunk, or None.
        rows: the entry's rows, to send them to another segment if this one is sealed before they are stored.
            Of all chunks of a message, only the last one has them. None: the topic has no segments.
        size: bytes of the payload section.
        held: bytes in memory, including ``rows``.
    """

    sequence_id: int
    highest_sequence_id: int
    messages: int
    head: bytes
    payload: Buffer
    kind: EntryKind
    transaction: TxnId | None = None
    message: SplitMessage | None = None
    rows: Batch | EncodedSingle | None = field(default=None, init=False)
    size: int = field(init=False)
    held: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.held = len(self.head) + len(self.payload)

    def keep(self, rows: Batch | EncodedSingle, size: int) -> None:
        """Keeps the entry's rows, which use ``size`` bytes of memory in addition to the payload's."""
        self.rows = rows
        self.held += size

    def put_head(self, head: bytes) -> None:
        """Replaces the checksum and metadata."""
        before, self.head = len(self.head), head
        self.size += len(head) - before
        self.held += len(head) - before

    def frame(self, producer_id: int) -> tuple[Buffer, Buffer, Buffer]:
        """Returns the SEND frame: command, head and payload."""
        ids = self.sequence_id, self.highest_sequence_id
        is_chunk = self.kind is _CHUNK or self.kind is _LAST_CHUNK
        if self.transaction is None and not is_chunk:
            return commands.send_head(producer_id, ids, self.messages, self.size), self.head, self.payload
        command = commands.send(producer_id, ids, self.messages, self.transaction, is_chunk=is_chunk)
        return encode_command(command, self.size), self.head, self.payload

    @property
    def metadata(self) -> pb.MessageMetadata:
        """Parses the metadata in ``head``."""
        return metadata_of_head(self.head)

    @property
    def intact(self) -> bool:
        """Whether the bytes still match their checksum."""
        return is_intact(self.head, self.payload)


class SplitMessage:
    """One message in chunks, which all have its metadata.

    Readers identify the chunks by a common uuid, made from name and attempt. A uuid must not be used again
    after a chunk was sent, because readers drop a message if they receive one of its chunks twice.

    Args:
        name: name of the message within its topic.
        attempt: name of this attempt to send it; all attempts have names of one length.
        sequence_ids: first and highest sequence id of each entry, both the message's id.
        payload: payload of the message, already compressed.
        max_size: maximum bytes of a chunk's metadata and payload before encryption.
        seal: function that encrypts a part; returns metadata fields for its entry, and the encrypted part.

    Attributes:
        entries: chunks in their order; unencrypted payloads are views.

    Raises:
        ValueError: the metadata leaves no room for a payload.
    """

    def __init__(
        self,
        name: str,
        attempt: str,
        sequence_ids: tuple[int, int],
        metadata: bytes,
        payload: Buffer,
        max_size: int,
        transaction: TxnId | None = None,
        seal: Callable[[Buffer], tuple[bytes, Buffer]] | None = None,
    ) -> None:
        self._name = name
        self._metadata = metadata
        self._total = total = len(payload)
        room = max_size - len(metadata) - len(chunk_fields(f"{name}-{attempt}", total, total, total))
        if room <= 0:
            raise ValueError(f"{max_size} bytes are too few for a chunk")
        parts: list[Buffer] = [memoryview(payload)[start : start + room] for start in range(0, total, room)]
        self._own = [b""] * len(parts)
        if seal is not None:
            sealed = [seal(part) for part in parts]
            self._own, parts = [fields for fields, _ in sealed], [part for _, part in sealed]
        kinds = [EntryKind.CHUNK] * (len(parts) - 1) + [EntryKind.LAST_CHUNK]
        self.entries = [
            Outgoing(*sequence_ids, 1, b"", part, kind, transaction, self)
            for part, kind in zip(parts, kinds, strict=True)
        ]
        self.rename(attempt)

    def rename(self, attempt: str) -> None:
        """Sets the name of another attempt, which readers treat as another message."""
        for number, entry in enumerate(self.entries):
            fields = chunk_fields(f"{self._name}-{attempt}", number, len(self.entries), self._total)
            entry.put_head(encode_section_head(self._metadata + fields + self._own[number], entry.payload))


class SendTimeoutError(SendError):
    """The send timeout is over. The connection may be the cause, so a retry may help."""

    is_passing = True


class MemoryBudget:
    """Bytes that a task's PendingWindows share in equal parts, so no window waits for another's receipts.

    ``limit``: total bytes. ``lock``: needed if several threads use the budget.

    Attributes:
        part: maximum bytes of one window.
    """

    def __init__(self, limit: int, lock: AbstractContextManager[object] | None = None) -> None:
        self._limit = self.part = limit
        self._lock = lock or nullcontext()
        self._windows: dict[object, int] = {}

    def share(self, owner: object, windows: int) -> None:
        """Sets how many windows ``owner`` may open, and updates ``part``; 0: the owner closed its windows."""
        with self._lock:
            self._windows.pop(owner, None)
            if windows:
                self._windows[owner] = windows
            self.part = max(1, self._limit // max(1, sum(self._windows.values())))


class PendingWindow:
    """Entries in the order of sending, which are sent again after a reconnect.

    All entries but chunks are sent again unchanged. The C++ client drops a message if one of its chunks is
    repeated, so a message whose last chunk is not acknowledged is sent again from its first chunk, as another
    message.

    The limits are ``max_messages``, counting messages in batches, and the window's part of the budget, in
    bytes of entries. An entry above a limit is sent alone. ``send_timeout``: seconds; see ``due_at``.
    """

    def __init__(self, topic: str, max_messages: int, budget: MemoryBudget, send_timeout: float) -> None:
        self._topic = topic
        self.max_messages = max_messages
        self._budget = budget
        self._send_timeout = send_timeout
        self._entries: deque[Outgoing] = deque()
        self._pushed_at: deque[float] = deque()
        self._partly: list[Outgoing] = []  # acknowledged chunks of a pending message
        self._messages = 0
        self._bytes = 0
        self._progress_at = 0.0
        self._progress_before = 0.0  # monotonic seconds of the last progress before the resend
        self._is_resend = False  # whether a resend has begun, and no whole message was acknowledged since

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._entries)

    @property
    def oldest(self) -> Outgoing | None:
        """Returns the entry whose receipt must be next; None if nothing is pending."""
        return self._entries[0] if self._entries else None

    @property
    def max_bytes(self) -> int:
        """Maximum bytes of pending entries: the window's present part of the budget."""
        return self._budget.part

    @property
    def is_over(self) -> bool:
        """Whether the pending entries have more than ``max_bytes``."""
        return self._bytes > self.max_bytes

    def has_room(self, entry: Outgoing) -> bool:
        """Whether an entry may be sent now.

        An entry larger than the window waits until the window is empty. So does an entry whose sequence id is
        not above all pending ids: receipts are matched by ascending ids, and a deduplicating broker refuses
        such an id while it stores the pending entries.
        """
        if not self._entries:
            return True
        last = self._entries[-1]
        is_above = entry.sequence_id > last.highest_sequence_id
        if not is_above and not (last.kind is _CHUNK and entry.sequence_id >= last.sequence_id):
            return False
        return (
            self._messages + entry.messages <= self.max_messages
            and self._bytes + entry.held <= self.max_bytes
        )

    def push(self, outgoing: Outgoing, now: float) -> None:
        """Appends an entry that will be sent now; ``now``: monotonic seconds."""
        self._entries.append(outgoing)
        self._pushed_at.append(now)
        self._messages += outgoing.messages
        self._bytes += outgoing.held

    def take_from(self, waiting: deque[Outgoing], now: float) -> list[Outgoing]:
        """Moves entries from ``waiting`` into the window, in order, while they fit; returns these entries."""
        moved = []
        while waiting and self.has_room(waiting[0]):
            entry = waiting.popleft()
            self.push(entry, now)
            moved.append(entry)
        return moved

    def acknowledged(self, sequence_id: int) -> Outgoing | None:
        """Processes a SEND_RECEIPT; returns its entry, or None if the entry was acknowledged before.

        Raises:
            ProtocolError: the receipt is for a newer entry than the oldest: the connection lost a receipt.
        """
        entries = self._entries
        if not entries or sequence_id < entries[0].sequence_id:
            return None
        oldest = entries[0]
        if sequence_id > oldest.sequence_id:
            raise ProtocolError(
                f"a receipt for sequence id {sequence_id} came before that of {oldest.sequence_id}",
                topic=self._topic,
            )
        entries.popleft()
        self._pushed_at.popleft()
        self._messages -= oldest.messages
        self._bytes -= oldest.held
        if oldest.kind is _CHUNK:
            self._partly.append(oldest)
        else:
            self._partly = []
            self._is_resend = False
        return oldest

    def take_all(self) -> list[Outgoing]:
        """Removes and returns all pending entries, which this producer can no longer send."""
        entries = list(self._entries)
        for each in (self._entries, self._pushed_at, self._partly):
            each.clear()
        self._messages = self._bytes = 0
        return entries

    def lost(self) -> None:
        """Records that the registration has ended, so that pending entries must be sent again."""
        if self._is_resend:
            self._progress_at = self._progress_before
        self._progress_before = self._progress_at
        self._is_resend = bool(self._entries)

    def again(self, attempt: str, now: float) -> list[Outgoing]:
        """Returns the pending entries in order, to be sent on a new connection.

        ``attempt`` differs for each call, and becomes part of chunked messages' names.
        """
        since = self._pushed_at[0] if self._pushed_at else now
        for entry in reversed(self._partly):
            self._entries.appendleft(entry)
            self._pushed_at.appendleft(since)
            self._messages += entry.messages
            self._bytes += entry.held
        self._partly = []
        for message in {id(entry.message): entry.message for entry in self._entries}.values():
            if message is not None:
                message.rename(attempt)
        return list(self._entries)

    @property
    def due_at(self) -> float | None:
        """Returns the end of the oldest entry's send timeout; None if nothing is pending.

        The timeout starts when the entry is pushed. Each sign of progress restarts it, because a throttling
        broker may leave entries pending for much longer. A resend lasts from the end of a registration with
        pending entries until the receipt of a whole message; it must not be repeated for ever.

            =====================================================  =======================================
            sign of progress                                       restarts the timeout
            =====================================================  =======================================
            receipt of a whole message; ``begin_anew``             always
            sent bytes, or receipt of a chunk before the last      always outside a resend; within one, not
                                                                   if the resend loses its registration
            =====================================================  =======================================
        """
        if not self._pushed_at:
            return None
        return max(self._pushed_at[0], self._progress_at) + self._send_timeout

    def progress(self, at: float) -> None:
        """Records a sign of progress at a time in monotonic seconds; see ``due_at``."""
        self._progress_at = max(self._progress_at, at)

    def begin_anew(self, now: float) -> None:
        """Restarts the send timeout at ``now``, because the search for stored entries used it up."""
        self._progress_at = self._progress_before = now

    def refused(self, code: int, message: str) -> PulsarError:
        """Returns the error for a SEND_ERROR; after a checksum error, checks if bytes changed in memory."""
        if code != _CHECKSUM_ERROR:
            return from_server(code, message, topic=self._topic)
        if all(entry.intact for entry in self):
            return NotReadyError("an entry was damaged on the way to the broker")
        return SendError("an entry's bytes changed in memory before they were sent", topic=self._topic)

    def timed_out(self, why: str) -> SendError:
        """Returns the error for all pending entries."""
        return SendTimeoutError(
            f"{self._messages} messages were not acknowledged within {self._send_timeout:g} s: {why}",
            topic=self._topic,
            advice="They may or may not be stored. Check the broker's health, or raise sendTimeoutMs",
        )
