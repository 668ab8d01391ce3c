"""PartitionWriter: the rules of sending entries to one topic partition, until they are acknowledged.

It has the window of pending entries, and the entries that wait for room in the window. It uses no sockets,
threads or clocks: its owner sends the entries, and passes receipts and the time:

    Packer -> add, resume -> on the wire -> receipt

    ===========  ========================================================================================
    state        meaning
    ===========  ========================================================================================
    REGISTERING  new, or connecting: no entry is sent
    OPEN         registered with the broker: added entries are sent
    FULL         as OPEN, and entries wait for room in the window
    LOST         the registration has ended: no entry is sent, and receipts are ignored
    SEALED       the segment has ended: nothing is sent; ``settle`` returns the rows that are not stored, and
                 the owner sends them to other segments
    FAILED       rows may be missing: no entry can be added
    CLOSED       closed by the owner
    ===========  ========================================================================================

The effect of an input in each state. "-": none; the arrow points to the next state.

    ===========  =================  ==============================  =================  ==========  ========
    input        REGISTERING        OPEN, FULL                      LOST               FAILED      CLOSED
    ===========  =================  ==============================  =================  ==========  ========
    ended        -> SEALED          -> SEALED                       -> SEALED          -           -
    add, resume  into the window,   into the window and sent, as    into the window,   raises      raises
                 as there is room   there is room; -> FULL if some  as there is room
                                    wait, else -> OPEN
    receipt      -                  acknowledges the oldest entry;  -                  as before   -
                                    -> FAILED if the broker dropped                    the failure
                                    the entry and has not stored it
    refused,     -> LOST            -> LOST                         -                  receipts    -
    lost                                                                               are ignored
    registering  -                  -> REGISTERING                  -> REGISTERING     -           -
    resend       returns pending    not called                      returns nothing    not called  returns
                 entries; -> OPEN                                                                  nothing
                 or FULL
    next_step    REOPEN             WAIT                            REOPEN; -> FAILED  STOP        STOP
                                                                    if the loss is
                                                                    final
    give_up      -> FAILED          -> FAILED                       -> FAILED          -           -
    close        -> CLOSED          -> CLOSED                       -> CLOSED          -> CLOSED   -
    ===========  =================  ==============================  =================  ==========  ========

When the send timeout of the oldest pending entry has passed, ``next_step`` changes any of the first four
states to FAILED.

"ended" is a refusal, loss or failed registration of a segment that is terminated or deleted. For other topics
it is a final loss: to LOST, and by ``next_step`` to FAILED. In SEALED, added entries wait without a limit,
``next_step`` returns STOP, ``settle`` leads to CLOSED, and the other inputs, except close, have no effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from pulsar_spark.errors import (
    ClosedError,
    PulsarError,
    QueueFullError,
    TerminatedError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.packer import Packer
from pulsar_spark.protocol.writing.pending import EntryKind, Outgoing, PendingWindow
from pulsar_spark.protocol.writing.stored_ids import StoredIds, StoredProof
from pulsar_spark.wire import pulsar_pb2 as pb

# Errors by which brokers refuse entries for a segment that is terminated, and perhaps deleted.
_ENDED = (TerminatedError, TopicNotFoundError)

_BATCH, _CHUNK = EntryKind.BATCH, EntryKind.CHUNK  # globals, because access to an enum's attributes is slower


@dataclass(frozen=True, slots=True)
class SentTotals:
    """Messages that one topic partition has stored, counted by the broker's receipts.

    Attributes:
        messages: number of acknowledged messages, including messages that the broker had stored before.
        bytes: bytes of their stored entries: metadata and compressed payloads.
        first_id: id of the first message, or of its last chunk; None if the broker sent no id, because no
            message was sent, or all messages had been stored before.
        last_id: id of the last message; None like ``first_id``.
        found: number of these messages that an earlier run had stored.
    """

    messages: int = 0
    bytes: int = 0
    first_id: MessageId | None = None
    last_id: MessageId | None = None
    found: int = 0


class ReceiptTally:
    """Adds up receipts, without an object for each.

    Attributes:
        first_entry: id of the first stored entry or chunk; None if the broker sent no id.
    """

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0
        # Ledger id, entry id, index in the batch (-1: no batch) of the first and last stored message.
        self._first: tuple[int, int, int] | None = None
        self._last: tuple[int, int, int] | None = None
        self.first_entry: MessageId | None = None

    def add(self, entry: Outgoing, ledger: int, entry_id: int) -> None:
        """Adds the receipt for ``entry``; a negative ledger: the broker had stored the entry before."""
        self._bytes += entry.size
        if self.first_entry is None and ledger >= 0:
            self.first_entry = MessageId(ledger, entry_id)
        if entry.kind is _CHUNK:
            return
        self._messages += entry.messages
        if ledger >= 0:
            is_batch = entry.kind is _BATCH
            self._last = ledger, entry_id, entry.messages - 1 if is_batch else -1
            self._first = self._first or (ledger, entry_id, 0 if is_batch else -1)

    @property
    def sent(self) -> SentTotals:
        """Returns the sum of all receipts so far."""
        first, last = (None if each is None else MessageId(*each) for each in (self._first, self._last))
        return SentTotals(self._messages, self._bytes, first, last)


class WriterState(Enum):
    """State of sending; see the module's tables."""

    REGISTERING = auto()
    OPEN = auto()
    FULL = auto()
    LOST = auto()
    SEALED = auto()
    FAILED = auto()
    CLOSED = auto()


class Step(Enum):
    """The next step of the writer's owner while it waits for room in the window, or for receipts."""

    WAIT = auto()  # wait for a receipt, at most until ``window.due_at``
    REOPEN = auto()  # try to register again, at most until ``window.due_at``
    STOP = auto()  # send no more: ``check`` raises an error, or the segment is sealed


class PartitionWriter:
    """The entries of one producer on one topic partition, from the packer to their receipts.

    Calls must not overlap, with one exception: while one thread uses the packer or calls ``registered``,
    another thread may pass receipts, refusals and losses. Times are in monotonic seconds.

    The first message has ``first_sequence_id``, or the id after the last stored id, if higher. Without
    ``blocks_if_full``, ``check_room`` raises QueueFullError if the window of pending entries is full.
    ``is_segment``: whether the topic partition is a segment, whose termination or deletion is no failure.

    Attributes:
        packer: numbers and packs the entries, by the broker's answers to registrations.
        loss: reason of the lost registration; None if it is not lost.
        name: producer name; None: the broker chooses, and its answer sets the name.
        epoch: number of registrations under this name.
        topic_epoch: value in the broker's last answer, repeated at the next registration.
        last_sequence_id: last id that the broker had stored under this name at the first registration; -1 if
            it knew none, or does not deduplicate.
        dropped: number of messages that the broker has dropped, because their rows' ids are not above
            ``last_sequence_id``.
    """

    def __init__(
        self,
        topic: str,
        packer: Packer,
        window: PendingWindow,
        stored: StoredIds,
        *,
        name: str | None = None,
        first_sequence_id: int = 0,
        blocks_if_full: bool = True,
        is_segment: bool = False,
    ) -> None:
        self._topic = topic
        self.packer = packer
        self._blocks_if_full = blocks_if_full
        self._is_segment = is_segment
        self._is_sealed = False
        self.window = window
        self._stored = stored
        self._waiting: deque[Outgoing] = deque()
        self.tally = ReceiptTally()
        self.dropped = 0
        self._is_closed = False
        self.loss: PulsarError | None = None
        self._failure: PulsarError | None = None
        self.restart(name, first_sequence_id)

    def restart(self, name: str | None, first_sequence_id: int) -> None:
        """Sets another name or other sequence ids. No entry may be pending, or wait for the window."""
        assert not self.window, "entries of the other name are pending"
        self.name = name
        self.epoch = 0
        self.topic_epoch: int | None = None
        self.last_sequence_id = -1
        self._first_sequence_id = first_sequence_id
        self._stored.restart()
        self._is_connected = False

    # ---- entries into the window

    def add(self, entries: Sequence[Outgoing], now: float) -> list[Outgoing]:
        """Adds entries in order; returns the entries to send now.

        Entries that do not fit into the window of pending entries wait for ``resume``. Entries that enter it
        while the registration is lost are returned by ``resend``.

        Raises:
            PulsarError: the failure, or that the producer is closed.
        """
        self.check()
        self._waiting.extend(entries)
        return self.resume(now)

    def resume(self, now: float) -> list[Outgoing]:
        """Moves waiting entries that fit into the window of pending ones; returns and raises like ``add``."""
        self.check()
        moved = [] if self._is_sealed else self.window.take_from(self._waiting, now)
        return moved if self._is_connected else []

    @property
    def has_waiting(self) -> bool:
        """Whether entries wait for room in the window of pending entries, or for ``resume``."""
        return bool(self._waiting)

    @property
    def can_resume(self) -> bool:
        """Whether the oldest waiting entry fits into the window of pending entries now."""
        return bool(self._waiting) and self.window.has_room(self._waiting[0])

    def check_room(self) -> None:
        """Without ``blocks_if_full``: if entries must wait for room, drops them and raises QueueFullError."""
        if self._waiting and not self._blocks_if_full and not self.can_resume:
            self._waiting.clear()
            raise QueueFullError(
                "maxPendingMessages or memoryLimit is reached",
                topic=self._topic,
                advice="Raise these limits, or let sends wait with blockIfQueueFull=true",
            )

    # ---- receipts and losses

    def receipt(self, sequence_id: int, ledger: int, entry_id: int) -> Outgoing | None:
        """Processes a SEND_RECEIPT; returns the acknowledged entry, or None if the receipt is too late.

        A negative ledger id means that the broker has dropped the entry as a duplicate. It is one if the
        broker had stored the id before the registration, and has sent no receipt for it since. Otherwise
        other rows have the id, so new rows were dropped, and the writer fails.

        Raises:
            ProtocolError: the receipt is for a newer entry than the oldest: the connection lost a receipt.
        """
        if not self._is_connected:
            return None
        stored = self._stored
        if ledger < 0:
            failure = stored.judge_drop(sequence_id, self.window.oldest)
            if failure is not None:
                self._failure = failure
                self._is_connected = False
                return None
        entry = self.window.acknowledged(sequence_id)
        if entry is not None:
            if entry.highest_sequence_id > stored.acknowledged_to and entry.kind is not _CHUNK:
                stored.acknowledged_to = entry.highest_sequence_id
            self.tally.add(entry, ledger, entry_id)
            if ledger < 0 and sequence_id <= self.last_sequence_id:
                self.dropped += entry.messages
        return entry

    def progress(self, at: float) -> None:
        """Records the time at which bytes of this producer's entries, or bytes queued before them, were sent.

        Bytes of a lost connection do not count.
        """
        if self._is_connected:
            self.window.progress(at)

    def refused(self, sequence_id: int, code: int, message: str) -> None:
        """Processes a SEND_ERROR: all pending entries must be sent again, if a retry can help."""
        self._stored.refused(sequence_id, code, message)
        self.lost(self.window.refused(code, message))

    def lost(self, error: PulsarError) -> None:
        """Records the end of the registration; the first error counts."""
        if self._is_connected:
            self.window.lost()
        self._is_connected = False
        self.loss = self.loss or error
        self._is_sealed |= self._is_segment and isinstance(error, _ENDED)

    # ---- registrations

    def registering(self) -> None:
        """Begins a registration on a new connection. Do not pass events of older connections after this."""
        self._is_connected = False
        self.loss = None

    def registered(self, answer: pb.CommandProducerSuccess, max_message_size: int) -> StoredProof | None:
        """Processes the answer to a registration; ``max_message_size``: the broker's limit in bytes.

        Returns:
            A proof, to which the owner passes the topic's entries before ``resend``; None: none is needed.

        Raises:
            SendError: pending messages, if sent again, would be dropped, or could be stored twice.
        """
        name, last = answer.producer_name, answer.last_sequence_id
        self.name, self.topic_epoch = name, answer.topic_epoch if answer.HasField("topic_epoch") else None
        self.epoch += 1
        if self.epoch == 1:
            self.last_sequence_id = last
            self.packer.number_from(self._first_sequence_id, last)
        if self.packer.registered(name, max_message_size, answer.schema_version):
            self._stored.version_changed((*self.window, *self._waiting))
        return self._stored.registered(name, last, self.last_sequence_id, list(self.window))

    def resend(self, attempt: str, now: float) -> list[Outgoing]:
        """Returns all pending entries in order, to be sent first on the new connection.

        Returns no entries if the connection is already lost again. ``attempt`` differs for each call, and
        becomes part of chunked messages' names.

        Raises:
            SchemaError: an entry that would be stored now has an old schema version.
            SendError: an entry that the broker would drop was not found in the topic.
            NotReadyError: the search of the topic timed out before all entries were found.
        """
        if self._stored.take_proof():
            self.window.begin_anew(now)
        self._stored.check_versions((*self.window, *self._waiting))
        # Set even if the connection is lost again: messages split from now on need an attempt of full length.
        self.packer.attempt = attempt
        if self.loss is not None or self._is_closed:
            return []
        self._is_connected = True
        return self.window.again(attempt, now)

    # ---- time and failure

    @property
    def state(self) -> WriterState:
        """Returns the state, by the module's first table."""
        if self._is_closed:
            return WriterState.CLOSED
        if self._failure is not None:
            return WriterState.FAILED
        if self._is_sealed:
            return WriterState.SEALED
        if not self._is_connected:
            return WriterState.REGISTERING if self.loss is None else WriterState.LOST
        return WriterState.FULL if self._waiting else WriterState.OPEN

    def next_step(self, now: float) -> Step:
        """Returns the next step while entries are waiting or pending; changes to FAILED after a timeout."""
        if self.state in (WriterState.SEALED, WriterState.FAILED, WriterState.CLOSED):
            return Step.STOP
        due = self.window.due_at
        if due is not None and due <= now:
            self._failure = self.window.timed_out("no acknowledgement was received")
            return Step.STOP
        if self._is_connected:
            return Step.WAIT
        if self.loss is not None and not self.loss.is_passing:
            self.give_up(self.loss)
            return Step.STOP
        return Step.REOPEN

    @property
    def needs_reopening(self) -> bool:
        """Whether to register again now: entries are pending, and time out unless they are sent again."""
        return self.state is WriterState.LOST and bool(self.window)

    def give_up(self, error: PulsarError) -> None:
        """Fails with ``error`` if no retry can help, else with a timeout error; seals an ended segment."""
        if self._is_segment and isinstance(error, _ENDED):
            self.lost(error)
        elif self._failure is None and not (self._is_sealed or self._is_closed):
            is_final = not error.is_passing
            self._failure = error.located(self._topic) if is_final else self.window.timed_out(error.what)

    @property
    def proof(self) -> StoredProof | None:
        """Returns a proof for a sealed segment's pending entries that are not ``proven``; None if all are."""
        proven = self.proven
        in_doubt = [each for each in self.window if each not in proven]
        if not in_doubt:
            return None
        return StoredProof(
            self._topic,
            self.name or "",
            in_doubt,
            is_sent_once=self.epoch == 1,
            after=self.tally.sent.last_id,
        )

    @property
    def proven(self) -> dict[Outgoing, MessageId | None]:
        """Returns pending entries that were proven to be stored before the last resend; values: None, no id.

        A new search could not find the chunks among them, because chunks are resent with another uuid.
        """
        stored_to = self._stored.stored_to
        return {each: None for each in self.window if each.highest_sequence_id <= stored_to}

    def settle(self, stored: Mapping[Outgoing, MessageId | None]) -> list[Outgoing]:
        """Closes the writer of a sealed segment; ``stored``: the stored pending entries, with ids if known.

        Returns:
            The entries with rows that are not stored, in order.
        """
        assert self._is_sealed or not self.window, "receipts may follow"
        for entry, place in stored.items():
            self.tally.add(entry, *((-1, -1) if place is None else (place.ledger, place.entry)))
        entries = [*self.window.take_all(), *self._waiting]
        self._waiting.clear()
        self.close()
        return [entry for entry in entries if entry not in stored and entry.rows is not None]

    def close(self) -> None:
        """Closes the writer: no entry can be added or acknowledged any more."""
        self._is_closed = True
        self._is_connected = False

    def check(self) -> None:
        """Raises the failure, or ClosedError after ``close``."""
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise ClosedError("this producer has been closed", topic=self._topic)
