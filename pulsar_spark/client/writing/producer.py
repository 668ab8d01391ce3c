"""Producer: sends the entries of one topic partition, in order, within its pending window.

Callers block where the window is full; the session's thread only takes receipts. After a cut connection, a
restart or an unload the next call finds the broker again and sends what is pending once more, in order.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.pool import Purpose
from pulsar_spark.client.net.retry import retry
from pulsar_spark.client.reading.last_stored import find_last_stored
from pulsar_spark.client.writing.interceptors import OnReceipt
from pulsar_spark.client.writing.producer_link import ProducerLink
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.errors import (
    DeadlineError,
    NotReadyError,
    PulsarError,
    QueueFullError,
    SendError,
    from_server,
)
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.protocol.packer import Packer
from pulsar_spark.protocol.pending import Outgoing, PendingWindow
from pulsar_spark.protocol.receipts import ReceiptTally, SentTotals
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import Frame
from pulsar_spark.wire.singles import EncodedSingle

_CHECKSUM_ERROR = 9

# How much is made ready before it is put into the window.
_GROUP_SIZE = 1 << 20
_GROUP_ENTRIES = 500

_log = logging.getLogger(__name__)


class Producer:
    """A producer on one topic partition; calls must not overlap.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions; created as the broker's policy says.
        options: how to send.
        partitions: how many producers share the limits of the whole topic.
        first_sequence_id: of the first message; where more are stored under this name already, the next one
            is. None: the one behind the last that is stored.
        transaction: that all it sends belongs to.
        encryptor: of all payloads, or None.
        on_receipt: called in the session's thread with each entry and where it is stored; must not wait.

    Attributes:
        last_sequence_id: the last that the broker had stored under this name when the producer was first
            opened; -1 where it knew none, or does not deduplicate.
        transaction: that what is sent from now on belongs to, or None.

    Raises:
        BrokerError: the broker did not take the producer within the operation timeout.
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
        on_receipt: OnReceipt | None = None,
    ) -> None:
        self.topic = topic
        self._on_receipt = on_receipt
        self._client = client
        self._options = options
        self._is_encrypted = encryptor is not None
        self._name = options.name
        self._epoch = 0
        self._topic_epoch: int | None = None
        behind = -1 if options.initial_sequence_id is None else options.initial_sequence_id
        self._first_sequence_id = max(first_sequence_id or 0, behind + 1)
        self.last_sequence_id = -1
        self._acknowledged_to = -1
        most = min(options.max_pending_messages, options.max_pending_messages_across_partitions // partitions)
        self._window = PendingWindow(
            str(topic), max(1, most), options.memory_limit // partitions, options.send_timeout
        )
        self._tally = ReceiptTally()
        self._changed = threading.Condition()
        self._failure: PulsarError | None = None
        self._link: ProducerLink | None = None
        self._packer = Packer(
            str(topic),
            options.compression,
            chunking=options.chunking,
            chunk_max_message_size=options.chunk_max_message_size,
            encryption=encryptor,
        )
        self.transaction = transaction
        deadline = client.operation()
        retry(lambda: self._open(deadline), deadline)

    # ---- called by the owner

    @property
    def transaction(self) -> TxnId | None:
        """That what is sent from now on belongs to."""
        return self._packer.transaction

    @transaction.setter
    def transaction(self, transaction: TxnId | None) -> None:
        self._packer.transaction = transaction

    @property
    def max_batch_size(self) -> int:
        """The most bytes of a batch, before compression, that surely fit into an entry."""
        return self._packer.max_message_size - self._packer.room

    @property
    def sent(self) -> SentTotals:
        """What is acknowledged so far; after ``flush``, all that was sent."""
        with self._changed:
            return self._tally.sent

    @property
    def pending(self) -> list[Outgoing]:
        """What was sent and is not acknowledged, in order."""
        with self._changed:
            return list(self._window)

    def check_messages(self, body: memoryview, offsets: npt.NDArray[np.int64]) -> None:
        """Raise SendError where a message of those to be batched is too large; see ``Packer``."""
        self._packer.check_messages(body, offsets)

    def check_singles(self, messages: list[EncodedSingle]) -> None:
        """Raise SendError where a message is too large and is not to be sent in chunks."""
        self._packer.check_singles(messages)

    def send_batches(self, batches: Sequence[Batch]) -> None:
        """Send each batch as one entry.

        Raises:
            SendError: one is larger than the broker takes or was refused, or the send timeout is over.
            QueueFullError: there is no room and the caller does not want to wait.
        """
        now = int(time.time() * 1000)
        self._send(self._packer.batch(batch, now) for batch in batches)

    def send_singles(self, messages: Sequence[EncodedSingle]) -> None:
        """Send messages each as an entry of its own, or as several; raises what ``send_batches`` raises."""
        now = int(time.time() * 1000)
        self._send(self._packer.singles(messages, now))

    def flush(self) -> None:
        """Wait until everything is acknowledged; raises what ``send_batches`` raises."""
        with self._changed:
            self._wait_until(lambda: not self._window)

    def close(self) -> None:
        """Give the producer up without waiting for what is pending."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def mend(self) -> None:
        """Open the producer again if it was lost with entries pending: they must not time out unsent."""
        with self._changed:
            link = self._link
            due = self._window.due_at
            if self._failure is None and link is not None and link.error is not None and due is not None:
                self._recover(link.error, Deadline(max(0.0, due - time.monotonic())))

    def check(self) -> None:
        """Raise the error by which this producer has failed, if it has."""
        if self._failure is not None:
            raise self._failure

    # ---- called by the session's thread

    def on_frames(self, link: ProducerLink, frames: list[Frame]) -> None:
        """Take receipts; raises ProtocolError, which ends the session, when one is missing."""
        with self._changed:
            for frame in frames:
                if link is not self._link or link.error is not None:
                    break  # what follows an error is out of order; all that is pending is sent again
                command = frame.command
                if command.type == pb.BaseCommand.SEND_RECEIPT:
                    receipt = command.send_receipt
                    entry = self._window.acknowledged(receipt.sequence_id)
                    if entry is not None:
                        self._acknowledged_to = max(self._acknowledged_to, entry.highest_sequence_id)
                        self._tally.add(entry, receipt.message_id)
                        if self._on_receipt is not None:
                            self._on_receipt(entry, receipt.message_id)
                elif command.type == pb.BaseCommand.SEND_ERROR:
                    link.error = self._send_error(command.send_error)
                elif command.type == pb.BaseCommand.CLOSE_PRODUCER:
                    link.error = NotReadyError("the broker closed the producer")
            self._changed.notify_all()

    def on_lost(self, link: ProducerLink, error: PulsarError) -> None:
        """The connection has ended."""
        with self._changed:
            link.error = link.error or error
            self._changed.notify_all()

    # ---- inside

    def _send(self, entries: Iterator[Outgoing]) -> None:
        """Send entries as there is room, without making all of them first."""
        group: list[Outgoing] = []
        size = 0
        for entry in entries:
            group.append(entry)
            size += entry.size
            if size >= _GROUP_SIZE or len(group) >= _GROUP_ENTRIES:
                self._send_group(group)
                group, size = [], 0
        self._send_group(group)

    def _send_group(self, outgoing: Sequence[Outgoing]) -> None:
        """Put entries into the window as it has room, and on the wire in as few pieces as that allows."""
        position = 0
        while position < len(outgoing):
            with self._changed:
                self._wait_for_room(outgoing[position])
                first = position
                now = time.monotonic()
                while position < len(outgoing) and self._window.has_room(outgoing[position]):
                    self._window.push(outgoing[position], now)
                    position += 1
                link = self._link
            assert link is not None
            if link.error is not None:
                continue  # the next wait opens the producer again and sends what is in the window
            try:
                link.send(outgoing[first:position])
            except PulsarError as error:
                self.on_lost(link, error)

    def _wait_for_room(self, entry: Outgoing) -> None:
        if not self._options.block_if_queue_full and not self._window.has_room(entry):
            raise QueueFullError(
                "maxPendingMessages or memoryLimit is reached",
                topic=str(self.topic),
                advice="Raise them, or let sends wait with blockIfQueueFull=true",
            )
        self._wait_until(lambda: self._window.has_room(entry))

    def _wait_until(self, done: Callable[[], bool]) -> None:
        """Wait with the lock held; opens the producer again where it was lost."""
        while True:
            self.check()
            if done():
                return
            link, due = self._link, self._window.due_at
            assert link is not None
            assert due is not None  # an empty window is flushed, and has room
            left = due - time.monotonic()
            if left <= 0:
                self._failure = self._window.timed_out("no receipt came")
            elif link.error is not None:
                self._recover(link.error, Deadline(left))
            else:
                self._changed.wait(left)

    def _recover(self, error: PulsarError, deadline: Deadline) -> None:
        """Open the producer again and send what is pending; called and left with the lock held."""
        self._changed.release()
        try:
            if not error.retriable:
                raise error
            _log.info("%s: opening the producer again: %s", self.topic, error)
            retry(lambda: self._open(deadline), deadline)
        except PulsarError as final:
            in_time = not (final.retriable or isinstance(final, DeadlineError))
            self._failure = final.located(str(self.topic)) if in_time else self._window.timed_out(final.what)
        finally:
            self._changed.acquire()

    def _open(self, deadline: Deadline) -> None:
        """Find the broker, register there and send what is pending: one attempt."""
        if self._link is not None:
            self.close()
        session = self._client.locate(self.topic, Purpose.WRITE, deadline)
        # A new id each time: receipts for what was sent before must not be taken for those of the resend.
        link = ProducerLink(session, self._client.new_id(), self)
        with self._changed:
            self._link = link
        try:
            answer = link.register(
                self._options,
                self._name,
                self._epoch,
                self._topic_epoch,
                deadline,
                encrypted=self._is_encrypted,
            )
        except PulsarError as error:
            self.close()
            raise error.located(str(self.topic)) from error
        self._epoch += 1
        self._name = answer.producer_name
        self._topic_epoch = answer.topic_epoch if answer.HasField("topic_epoch") else None
        self._packer.producer_name = answer.producer_name
        self._packer.max_message_size = session.max_message_size
        if self._epoch == 1:
            self.last_sequence_id = answer.last_sequence_id
            self._packer.next_sequence_id = max(self._first_sequence_id, self.last_sequence_id + 1)
        if answer.last_sequence_id < 0:
            self._refuse_to_repeat()
        elif self._epoch > 1:
            self._check_stored(answer.last_sequence_id)
        with self._changed:
            self._packer.attempt = secrets.token_hex(4)
            pending = self._window.again(self._packer.attempt, time.monotonic())
        link.send(pending)

    def _check_stored(self, last: int) -> None:
        """Fail where what the broker has stored under this name does not come from here, or only in part.

        It would drop what is sent from now on, or again, as something that it has.
        """
        with self._changed:
            pending = list(self._window)
            sent = max([self._acknowledged_to, *(entry.highest_sequence_id for entry in pending)])
        cut = any(entry.sequence_id <= last < entry.highest_sequence_id for entry in pending)
        if last > max(sent, self.last_sequence_id) or cut:
            self.close()
            raise foreign_writes(self.topic, self._packer.producer_name)
        # A broker that restarts takes the first chunk of a message for all of it.
        in_doubt = any(entry.kind.is_chunk and entry.sequence_id == last for entry in pending)
        if in_doubt and find_last_stored(self._client, self.topic, self._packer.producer_name, last) is None:
            self.close()
            raise SendError(
                "the connection was lost within a message in chunks, and the broker would drop its end",
                topic=str(self.topic),
                advice="Let Spark try tasks again (spark.task.maxFailures)",
            )

    def _refuse_to_repeat(self) -> None:
        """Fail where what is pending may be stored already, in a transaction, and the broker cannot tell."""
        pending = sum(entry.messages for entry in self._window if entry.transaction is not None)
        if pending:
            self.close()
            raise SendError(
                f"the connection was lost with {pending} messages of a transaction unacknowledged; they may "
                "be stored, and nothing shows that the namespace deduplicates what is sent again",
                topic=str(self.topic),
                advice="Turn deduplication on there, or let Spark try tasks again (spark.task.maxFailures)",
            )

    def _send_error(self, error: pb.CommandSendError) -> PulsarError:
        if error.error == _CHECKSUM_ERROR:
            damaged = [entry for entry in self._window if not entry.intact]
            if not damaged:
                return NotReadyError("an entry was damaged on its way to the broker")
            return SendError(
                "an entry's bytes changed in memory before they were sent", topic=str(self.topic)
            )
        return from_server(error.error, error.message, topic=str(self.topic))


def foreign_writes(topic: TopicName, name: str) -> SendError:
    """The error of a producer under whose name somebody else has written meanwhile."""
    return SendError(
        f"somebody else, such as another run of this task, has written under the producer name {name}",
        topic=str(topic),
        advice="Let Spark try tasks again (spark.task.maxFailures), and give no two queries one producerName",
    )
