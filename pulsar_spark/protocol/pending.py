"""PendingWindow: the entries of one producer that were sent and are not yet acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pulsar_spark.errors import ProtocolError, SendError
from pulsar_spark.ids import TxnId
from pulsar_spark.wire import commands
from pulsar_spark.wire.frames import Buffer, encode_command_head, is_intact


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One entry, ready to be framed for whichever connection it goes out on.

    Attributes:
        sequence_id: of its first message; SEND_RECEIPT names the entry by it.
        messages: how many it holds.
        head: checksum and metadata, as they precede the payload.
        payload: as it is stored.
        is_batch: whether its messages have an index in it each.
        transaction: that it belongs to; its metadata says so, too.
    """

    sequence_id: int
    messages: int
    head: bytes
    payload: Buffer
    is_batch: bool
    transaction: TxnId | None = None

    @property
    def size(self) -> int:
        """Bytes of the payload section."""
        return len(self.head) + len(self.payload)

    def frame(self, producer_id: int) -> tuple[Buffer, Buffer, Buffer]:
        """The SEND frame, in pieces."""
        command = commands.send(producer_id, self.sequence_id, self.messages, self.transaction)
        return encode_command_head(command, self.size), self.head, self.payload

    @property
    def intact(self) -> bool:
        """Whether the bytes still match their checksum."""
        return is_intact(self.head, self.payload)


class PendingWindow:
    """Entries in the order they were sent; what is in it goes out again, unchanged, after a reconnect.

    Args:
        topic: for error texts.
        max_messages: ``maxPendingMessages``; messages inside batches count one by one.
        max_bytes: ``memoryLimit``, bytes of payload sections.
        send_timeout: seconds from the moment an entry has found room to its receipt.
    """

    def __init__(self, topic: str, max_messages: int, max_bytes: int, send_timeout: float) -> None:
        self._topic = topic
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._send_timeout = send_timeout
        self._entries: deque[Outgoing] = deque()
        self._pushed_at: deque[float] = deque()
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._entries)

    def has_room(self, messages: int, size: int) -> bool:
        """Whether an entry may be sent now; one that is larger than the window waits until it is empty."""
        fits = self._messages + messages <= self._max_messages and self._bytes + size <= self._max_bytes
        return fits or not self._entries

    def push(self, outgoing: Outgoing, now: float) -> None:
        """Append an entry that is about to be sent; ``now`` is in monotonic seconds."""
        self._entries.append(outgoing)
        self._pushed_at.append(now)
        self._messages += outgoing.messages
        self._bytes += outgoing.size

    def acknowledged(self, sequence_id: int) -> Outgoing | None:
        """Take a SEND_RECEIPT and return its entry; None when that was acknowledged before.

        Raises:
            ProtocolError: a receipt for a newer entry than the oldest pending one: the connection lost one.
        """
        if not self._entries or sequence_id < self._entries[0].sequence_id:
            return None
        if sequence_id > self._entries[0].sequence_id:
            raise ProtocolError(
                f"a receipt for sequence id {sequence_id} came before that of {self._entries[0].sequence_id}",
                topic=self._topic,
            )
        entry = self._entries.popleft()
        self._pushed_at.popleft()
        self._messages -= entry.messages
        self._bytes -= entry.size
        return entry

    @property
    def due_at(self) -> float | None:
        """When the oldest entry's send timeout is over; None when nothing is pending."""
        return self._pushed_at[0] + self._send_timeout if self._pushed_at else None

    def timed_out(self, why: str) -> SendError:
        """Make the error for all pending entries."""
        return SendError(
            f"{self._messages} messages were not acknowledged within {self._send_timeout:g} s: {why}",
            topic=self._topic,
            advice="They may or may not be stored. Look at the broker's health, or raise sendTimeoutMs",
        )
