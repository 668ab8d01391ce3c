"""Producer: sends the entries of one topic partition, in order, within limits for unacknowledged messages.

The :class:`Packer` makes the entries; the :class:`PartitionWriter` decides which entries are sent, sent again
or refused. This module owns the connection, the lock, waiting and retries. Callers block while a limit is
reached; the session's thread only processes receipts. After a lost connection, a broker restart or a topic
unload, the next call finds the broker again and resends the pending entries.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.net.deadline import Deadline, epoch_ms, retry, retry_attempts, wait_to_reopen
from pulsar_spark.client.net.session import Purpose, Session
from pulsar_spark.client.reading.backward_search import find_in_sealed, find_stored
from pulsar_spark.client.writing.interceptors import OnReceipt
from pulsar_spark.client.writing.producer_link import ProducerLink
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.errors import AuthError, NotReadyError, PulsarError, assert_never
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.protocol.pauses import Reopening
from pulsar_spark.protocol.writing.batcher import Batch, Batcher
from pulsar_spark.protocol.writing.packer import Packer
from pulsar_spark.protocol.writing.partition_writer import PartitionWriter, SentTotals, Step, WriterState
from pulsar_spark.protocol.writing.pending import MemoryBudget, Outgoing, PendingWindow
from pulsar_spark.protocol.writing.routing import Words
from pulsar_spark.protocol.writing.stored_ids import StoredIds, StoredProof
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import EncodedSingle
from pulsar_spark.wire.frame_runs import Receipts
from pulsar_spark.wire.frames import Frame
from pulsar_spark.wire.wire_values import from_wire_version

_GROUP_SIZE = 1 << 20  # bytes of entries that are made at a time, then sent in one call
_GROUP_ENTRIES = 500  # maximum entries that are made at a time

_log = logging.getLogger(__name__)


class Producer:
    """A producer on one topic partition; calls must not overlap.

    Args:
        topic: one partition, or a topic without partitions; the broker creates a missing topic if its
            auto-creation policy allows this.
        partitions: number of producers that share the topic's limit of unacknowledged messages.
        first_sequence_id: sequence id of the first message, unless the broker has stored this id or a higher
            id under the name. Then, or if None, the first message has the id after the last stored id.
        is_encrypted: whether to register as encrypted even without an encryptor, if the namespace requires
            this and no messages are sent.
        on_receipt: function that receives each entry and its id on the session's thread; the id is None if
            the entry was stored before. It must not block.
        may_repeat: whether messages may be stored twice after a lost connection. If not, it is an error if
            the broker may have stored unacknowledged messages of a transaction. And if ``options`` has a
            name, entries that the broker reports as stored are read and compared with the sent entries. This
            needs the permission ``consume``.
        opening: deadline of the only attempt to open; the caller may retry. None: the constructor retries
            until the operation timeout.
        memory: memory budget that the task's producers share; None: the limit of the options, not shared.

    Attributes:
        packer: maker of the entries, which checks sizes; its ``transaction`` applies to the next messages.
        last_sequence_id: last sequence id that the broker had stored under this name when the producer was
            first opened; -1 if it knew none, or does not deduplicate.
        schema_version: number of the options' schema at the broker; None without a schema.

    Raises:
        BrokerError: the broker did not accept the producer within the operation timeout.
        SchemaError: the broker refused the options' schema.
        CryptoError: a key to encrypt with is missing.
    """

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        options: ProducerOptions,
        partitions: int,
        *,
        first_sequence_id: int | None = None,
        transaction: TxnId | None = None,
        encryptor: Encryptor | None = None,
        is_encrypted: bool = False,
        on_receipt: OnReceipt | None = None,
        may_repeat: bool = False,
        opening: Deadline | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.topic = topic
        self.schema_version: int | None = None
        self._on_receipt = on_receipt
        self._client = client
        self._options = options
        self._is_encrypted = is_encrypted or encryptor is not None
        self._changed = threading.Condition()
        self._link: ProducerLink | None = None
        self._reopening = Reopening()
        self._is_fitted = False
        after = -1 if options.initial_sequence_id is None else options.initial_sequence_id
        max_pending = options.max_pending_messages_across_partitions // partitions
        self.packer = Packer(
            str(topic),
            options.compression,
            chunking=options.chunking,
            chunk_max_message_size=options.chunk_max_message_size,
            encryption=encryptor,
            key_based=options.is_key_based,
            keeps_rows=topic.is_segment,
        )
        self.packer.transaction = transaction
        self.batcher = Batcher(
            options.batching_max_messages, options.batching_max_bytes, options.batching_max_publish_delay
        )
        self._writer = PartitionWriter(
            str(topic),
            self.packer,
            PendingWindow(
                str(topic),
                max(1, min(options.max_pending_messages, max_pending)),
                memory or task_memory(options),
                options.send_timeout,
            ),
            StoredIds(
                str(topic),
                # Other programs may also use a name from the options, but never a name that a broker chose.
                is_shared_name=not may_repeat and options.name is not None,
                may_repeat=may_repeat,
            ),
            name=options.name,
            first_sequence_id=max(first_sequence_id or 0, after + 1),
            blocks_if_full=options.block_if_queue_full,
            is_segment=topic.is_segment,
        )
        if opening is None:
            self._open_in_time()
        else:
            self._open(opening)
        self.last_sequence_id = self._writer.last_sequence_id

    # ---- called by the thread that sends

    @property
    def topic_epoch(self) -> int | None:
        """Returns the number of earlier exclusive producers; None if this producer is not exclusive."""
        return self._writer.topic_epoch

    @property
    def sent(self) -> SentTotals:
        """Returns the totals of the acknowledged messages; after ``flush``, of all messages."""
        with self._changed:
            return self._writer.tally.sent

    @property
    def is_sealed(self) -> bool:
        """Whether the segment was sealed; call ``settle`` when the topic's layout shows this, too."""
        return self._writer.state is WriterState.SEALED

    @property
    def pending(self) -> list[Outgoing]:
        """Returns the entries that were sent and not acknowledged, in order."""
        with self._changed:
            return list(self._writer.window)

    def send_rows(
        self,
        body: memoryview,
        offsets: Ints,
        *,
        sequence_ids: Ints | None = None,
        groups: Ints | None = None,
        hashes: Words | None = None,
    ) -> None:
        """Adds encoded rows to the open batch, and sends each batch that reaches a limit.

        Args:
            body: rows as messages of a batch, the i-th at ``body[offsets[i]:offsets[i + 1]]``; not copied.
            sequence_ids: sequence ids of the rows, int64[n], ascending; None: the producer's next ids.
            groups: first row of each group, int64[g], ascending from 0. No batch has rows of two groups, and
                no batch stays open. None: the last batch stays open.
            hashes: bucket hashes of the rows of a segment, uint32[n], or None.

        Raises:
            SendError: a batch is larger than the broker accepts or was refused, or the send timeout is over.
            QueueFullError: too many messages are pending, and ``block_if_queue_full`` is false.
        """
        if groups is None:
            self.send_batches(self.batcher.add(body, offsets, time.monotonic(), sequence_ids, hashes))
        else:
            self.send_batches(self.batcher.add_groups(body, offsets, groups, hashes))

    def send_open_batch(self) -> None:
        """Sends the open batch, if there is one; raises as ``send_rows``."""
        batches = self.batcher.take()
        if batches:
            self.send_batches(batches)

    def send_batches(self, batches: Sequence[Batch]) -> None:
        """Sends each batch as one entry; raises as ``send_rows``."""
        publish_time = epoch_ms()
        self._send(self.packer.batch(batch, publish_time) for batch in batches)

    def send_singles(self, messages: Sequence[EncodedSingle]) -> None:
        """Sends each message as its own entry, or in chunks; raises as ``send_rows``."""
        self._send(self.packer.singles(messages, epoch_ms()))

    def flush(self) -> None:
        """Waits until all entries are acknowledged; raises as ``send_rows``."""
        with self._changed:
            self._wait_until(lambda: not self._writer.window)

    def fit(self) -> None:
        """Waits for receipts until the pending entries fit into this producer's share of the budget."""
        batches = self._fit_batches()
        if batches:
            self.send_batches(batches)
        with self._changed:
            self._wait_until(lambda: not self._writer.window.is_over)

    def _fit_batches(self) -> list[Batch]:
        packer, window = self.packer, self._writer.window
        max_bytes = packer.shared_size(min(packer.max_message_size, window.max_bytes))
        return self.batcher.fit(max_bytes, window.max_messages)

    def settle(self) -> list[Outgoing | Batch]:
        """Closes the producer of a sealed segment; returns entries that are not stored, and the open batch.

        Waits for receipts until the broker refuses this producer. Then it searches the segment, which gets no
        more entries, for entries without a receipt. Raises SendError if neither receipts nor a refusal are
        received within the send timeout.
        """
        with self._changed:
            self._wait_until(lambda: not self._writer.window)
            stored, proof = self._writer.proven, self._writer.proof
        if proof is not None:
            stored |= find_in_sealed(self._client, self.topic, proof)
        if self._on_receipt is not None:
            for entry, place in stored.items():
                self._on_receipt(entry, place)
        with self._changed:
            unstored = self._writer.settle(stored)
        self.close()
        return [*unstored, *self.batcher.take()]

    def reopen(self, name: str, first_sequence_id: int) -> int:
        """Continues under another name or with other sequence ids; nothing may be pending.

        Returns the last sequence id that the broker has stored under the name; -1 if it knows none. Raises
        BrokerError if the broker does not accept the producer within the operation timeout.
        """
        self._drop_link()
        self._reopening.reset()
        self._writer.restart(name, first_sequence_id)
        self._open_in_time()
        return self._writer.last_sequence_id

    def begin_close(self) -> None:
        """Begins to close without waiting for receipts or the broker; call ``close`` afterwards."""
        with self._changed:
            is_first = self._writer.state is not WriterState.CLOSED
            self._writer.close()
            link = self._link
            self._changed.notify_all()
        if link is not None:
            link.begin_close()
        if is_first and self._writer.dropped:
            _log.warning(
                "%s: the broker has dropped %d messages of producer %s: their sequence ids are not above %d, "
                "which it had stored last under this name when the task began. Messages that an earlier run "
                "did not store by these ids are not in the topic",
                *(self.topic, self._writer.dropped, self._writer.name, self._writer.last_sequence_id),
            )

    def close(self) -> None:
        """Closes without waiting for receipts."""
        self.begin_close()
        self._drop_link()

    def reopen_lost(self) -> None:
        """Opens a lost producer again if entries are pending, so that they are sent before their timeout."""
        with self._changed:
            if self._writer.needs_reopening and self._writer.next_step(time.monotonic()) is Step.REOPEN:
                self._reopen()

    def check(self) -> None:
        """Raises the error by which this producer has failed, if any."""
        self._writer.check()

    # ---- called by the session's thread

    @property
    def awaits_receipts(self) -> bool:
        """Whether entries are pending, so the session must not end because of silence."""
        return bool(self._writer.window)

    def on_frames(self, link: ProducerLink, frames: list[Frame | Receipts]) -> None:
        """Processes receipts; raises ProtocolError, which ends the session, if a receipt is missing."""
        with self._changed:
            if link is not self._link:
                return  # all pending entries are sent again on another link
            writer = self._writer
            has_receipts = False
            for frame in frames:
                if isinstance(frame, Receipts):
                    has_receipts |= self._take_receipts(frame)
                    continue
                command = frame.command
                if command.type == pb.BaseCommand.SEND_ERROR:
                    writer.progress(link.progress_at)
                    refusal = command.send_error
                    writer.refused(refusal.sequence_id, refusal.error, refusal.message)
                elif command.type == pb.BaseCommand.CLOSE_PRODUCER:
                    writer.progress(link.progress_at)
                    writer.lost(NotReadyError("the broker closed the producer"))
            if has_receipts:
                self._reopening.yielded()
                writer.window.progress(time.monotonic())
            self._changed.notify_all()

    def _take_receipts(self, receipts: Receipts) -> bool:
        has_acknowledged = False
        for sequence_id, ledger, entry_id in zip(*receipts[1:], strict=True):
            entry = self._writer.receipt(sequence_id, ledger, entry_id)
            if entry is None:
                continue
            has_acknowledged = True
            if self._on_receipt is not None:
                self._on_receipt(entry, None if ledger < 0 else MessageId(ledger, entry_id))
        return has_acknowledged

    def on_lost(self, link: ProducerLink, error: PulsarError) -> None:
        """Records that the connection has ended."""
        with self._changed:
            if link is self._link:
                self._writer.progress(link.progress_at)
                self._writer.lost(error)
            self._changed.notify_all()

    # ---- inside

    def _send(self, entries: Iterator[Outgoing]) -> None:
        """Sends entries in groups, without making all of them first."""
        group: list[Outgoing] = []
        size = 0
        for entry in entries:
            group.append(entry)
            size += entry.size
            if size >= _GROUP_SIZE or len(group) >= _GROUP_ENTRIES:
                self._send_group(group)
                group, size = [], 0
        if group:
            self._send_group(group)

    def _send_group(self, group: list[Outgoing]) -> None:
        """Adds entries to the pending window, waits while it is full, and sends them in few writes."""
        with self._changed:
            outgoing, link = self._writer.add(group, time.monotonic()), self._link
        while True:
            if outgoing and link is not None:
                try:
                    link.send(outgoing)
                except PulsarError as error:
                    self.on_lost(link, error)
            if not self._writer.has_waiting or self.is_sealed:
                return
            with self._changed:
                self._writer.check_room()
                self._wait_until(lambda: self._writer.can_resume)
                outgoing, link = self._writer.resume(time.monotonic()), self._link

    def _wait_until(self, is_done: Callable[[], bool]) -> None:
        """Waits with the lock held; opens a lost producer again."""
        while True:
            self._writer.check()
            if is_done() or self.is_sealed:
                return
            if self._link is not None:
                self._writer.progress(self._link.progress_at)
            now = time.monotonic()
            step, due = self._writer.next_step(now), self._writer.window.due_at
            match step:
                case Step.REOPEN:
                    self._reopen()
                case Step.WAIT:
                    self._changed.wait(None if due is None else due - now)
                case Step.STOP:
                    pass
                case _:
                    assert_never(step)

    def _reopen(self) -> None:
        """Opens the producer again and sends the pending entries; call it with the lock held."""
        due = self._writer.window.due_at
        assert due is not None  # callers wait only while an entry is pending
        loss = self._writer.loss
        failed: PulsarError | None = None
        self._changed.release()
        try:
            _log.info("%s: opening the producer again: %s", self.topic, loss)
            deadline = Deadline(max(0.0, due - time.monotonic()))
            retry_attempts(self._open, deadline, self._client.options.operation_timeout)
        except PulsarError as error:
            failed = error
        finally:
            self._changed.acquire()
        # If the send timeout was restarted during the attempts, the caller tries again.
        due_now = self._writer.window.due_at
        if failed is not None and (not failed.is_passing or due_now is None or due_now <= due):
            self._writer.give_up(failed)

    def _open_in_time(self) -> None:
        deadline = self._client.operation()
        retry(lambda: self._open(deadline), deadline)

    def _open(self, deadline: Deadline) -> None:
        self._writer.check()  # raises an error if another thread has closed this producer
        self._drop_link()
        wait_to_reopen(self._reopening, deadline, "the producer")
        session = self._locate(deadline)
        with self._changed:
            self._writer.check()
            # A new id each time, so that old receipts are not mistaken for receipts of the resend.
            link = self._link = ProducerLink(session, self._client.new_id(), self)
            self._writer.registering()
        try:
            self._register(link, session.max_message_size, deadline)
        except PulsarError as error:
            with self._changed:
                self._writer.lost(error)
            self._drop_link()
            raise

    def _locate(self, deadline: Deadline) -> Session:
        return self._client.locate(self.topic, Purpose.WRITE, deadline)

    def _register(self, link: ProducerLink, max_message_size: int, deadline: Deadline) -> None:
        writer, encrypted = self._writer, self._is_encrypted
        try:
            answer = link.register(self._options, writer, deadline, encrypted=encrypted)
        except PulsarError as error:
            raise error.located(str(self.topic)) from error
        proof = writer.registered(answer, max_message_size)
        if not self._is_fitted:  # only once, so that resending pending entries needs no encryption keys
            self._fit_batches()
            self._is_fitted = True
        self.schema_version = from_wire_version(answer.schema_version)
        if proof is not None:
            self._find_stored(proof)
        with self._changed:
            # Called before ``send``, because receipts of the resent entries may arrive before it returns.
            self._reopening.opened(time.monotonic())
            outgoing = writer.resend(secrets.token_hex(4), time.monotonic())
        link.send(outgoing)

    def _find_stored(self, proof: StoredProof) -> None:
        try:
            find_stored(self._client, self.topic, proof)
        except AuthError as error:
            raise AuthError(
                "the connection was lost, and the messages that were sent before cannot be compared with "
                f"those stored under the producer name {proof.producer_name}: {error.what}",
                topic=str(self.topic),
                advice="Grant the role the permission consume on the topic, or set "
                "delivery=at-least-once and leave producerName out",
            ) from error

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def task_memory(options: ProducerOptions) -> MemoryBudget:
    """Returns a new memory budget for all producers of a task; thread-safe."""
    return MemoryBudget(options.memory_limit, threading.Lock())
