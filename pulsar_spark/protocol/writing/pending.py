"""PendingWindow: the entries of one producer that were sent and are not yet acknowledged.

The windows of a task share a MemoryBudget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from pulsar_spark.errors import NotReadyError, ProtocolError, PulsarError, SendError, from_server
from pulsar_spark.protocol.writing.outgoing import EntryKind, Outgoing

_CHECKSUM_ERROR = 9

_CHUNK = EntryKind.CHUNK  # read with each entry: attributes of an enum take longer than globals


class SendTimeoutError(SendError):
    """The send timeout is over; the connection may have been at fault."""

    is_passing = True


class MemoryBudget:
    """Bytes that the pending windows of a task share in equal parts, so none waits for receipts of others.

    Threads that share one give it a lock.

    Attributes:
        part: maximum bytes of one window.
    """

    def __init__(self, limit: int, lock: AbstractContextManager[object] | None = None) -> None:
        self._limit = self.part = limit
        self._lock = lock or nullcontext()
        self._windows: dict[object, int] = {}

    def share(self, owner: object, windows: int) -> None:
        """Note how many windows an owner may open from now on; 0 once it has closed them."""
        with self._lock:
            self._windows.pop(owner, None)
            if windows:
                self._windows[owner] = windows
            self.part = max(1, self._limit // max(1, sum(self._windows.values())))


class PendingWindow:
    """Entries in the order they were sent; they are sent again after a reconnect.

    They are sent again unchanged, except chunks. The C++ client drops a message if one of its chunks is
    repeated, so a message whose last chunk is not acknowledged is sent again from its first chunk, as another
    message.

    It holds at most ``max_messages``, those inside batches one by one, and its part of the budget, in bytes
    of payload sections. A larger message is pending alone. ``send_timeout`` is in seconds; see ``due_at``.
    """

    def __init__(self, topic: str, max_messages: int, budget: MemoryBudget, send_timeout: float) -> None:
        self._topic = topic
        self.max_messages = max_messages
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

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._entries)

    @property
    def oldest(self) -> Outgoing | None:
        """The entry whose receipt must come next; None if nothing is pending."""
        return self._entries[0] if self._entries else None

    @property
    def max_bytes(self) -> int:
        """How many bytes it may hold now."""
        return self._budget.part

    @property
    def is_over(self) -> bool:
        """Whether it holds more than that."""
        return self._bytes > self.max_bytes

    def has_room(self, entry: Outgoing) -> bool:
        """Whether an entry may be sent now.

        An entry larger than the window waits until the window is empty. So does one whose sequence id is not
        above all pending ones: receipts name entries by growing ids, and a deduplicating broker cannot tell a
        duplicate from an entry that it is still storing.
        """
        if not self._entries:
            return True
        last = self._entries[-1]
        is_above = entry.sequence_id > last.highest_sequence_id
        if not is_above and not (last.kind is _CHUNK and entry.sequence_id >= last.sequence_id):
            return False
        return (
            self._messages + entry.messages <= self.max_messages
            and self._bytes + entry.size <= self.max_bytes
        )

    def push(self, outgoing: Outgoing, now: float) -> None:
        """Append what is about to be sent; ``now`` is in monotonic seconds."""
        self._entries.append(outgoing)
        self._pushed_at.append(now)
        self._messages += outgoing.messages
        self._bytes += outgoing.size

    def take_from(self, waiting: deque[Outgoing], now: float) -> list[Outgoing]:
        """Move entries out of ``waiting``, in order, while they have room; return those moved."""
        moved = []
        while waiting and self.has_room(waiting[0]):
            entry = waiting.popleft()
            self.push(entry, now)
            moved.append(entry)
        return moved

    def acknowledged(self, sequence_id: int) -> Outgoing | None:
        """Take a SEND_RECEIPT and return its entry; None if that was acknowledged before.

        Raises:
            ProtocolError: a receipt for a newer entry than the oldest pending one: the connection lost one.
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
        self._bytes -= oldest.size
        if oldest.kind is _CHUNK:
            self._partly.append(oldest)
        else:
            self._partly = []
            self._is_resend = False
        return oldest

    def lost(self) -> None:
        """Note that the registration has ended: pending entries must be sent again."""
        if self._is_resend:
            self._progress_at = self._progress_before
        self._progress_before = self._progress_at
        self._is_resend = bool(self._entries)

    def again(self, attempt: str, now: float) -> list[Outgoing]:
        """Return the pending entries in order, to be sent on a new connection.

        ``attempt`` is another one each time, for the names of chunked messages.
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

    def refused(self, code: int, message: str) -> PulsarError:
        """Make the error for a SEND_ERROR with its ServerError code and its text; look at entries' bytes."""
        if code != _CHECKSUM_ERROR:
            return from_server(code, message, topic=self._topic)
        if all(entry.intact for entry in self):
            return NotReadyError("an entry was damaged on the way to the broker")
        return SendError("an entry's bytes changed in memory before they were sent", topic=self._topic)

    def timed_out(self, why: str) -> SendError:
        """Make the error for all pending entries."""
        return SendTimeoutError(
            f"{self._messages} messages were not acknowledged within {self._send_timeout:g} s: {why}",
            topic=self._topic,
            advice="They may or may not be stored. Check the broker's health, or raise sendTimeoutMs",
        )
