"""ProducerLink: a producer's registration on one connection."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.session import CLOSE_TIMEOUT, Session
from pulsar_spark.client.writing.producer_options import AccessMode, ProducerOptions
from pulsar_spark.errors import BusyError, ClosedError, DeadlineError, NotReadyError, PulsarError, SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.connection import Role, SendMark
from pulsar_spark.protocol.writing.partition_writer import PartitionWriter
from pulsar_spark.protocol.writing.pending import Outgoing
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frame_runs import Receipts
from pulsar_spark.wire.frames import Frame

_ACCESS_MODES = {
    AccessMode.SHARED: pb.Shared,
    AccessMode.EXCLUSIVE: pb.Exclusive,
    AccessMode.WAIT_FOR_EXCLUSIVE: pb.WaitForExclusive,
    AccessMode.EXCLUSIVE_WITH_FENCING: pb.ExclusiveWithFencing,
}

# Entries of fewer bytes are copied, because a copy is cheaper than a separate buffer.
_SMALL = 4096

# Bytes of entries that are queued as one group: urgent frames are sent between groups, not within one.
_GROUP_SIZE = 1 << 20

_log = logging.getLogger(__name__)


class LinkOwner(Protocol):
    """The methods of the producer that the session's thread calls."""

    topic: TopicName

    @property
    def awaits_receipts(self) -> bool:
        """Whether the producer awaits receipts; see ``Handler``."""

    def on_frames(self, link: ProducerLink, frames: list[Frame | Receipts]) -> None:
        """Processes frames for the producer."""

    def on_lost(self, link: ProducerLink, error: PulsarError) -> None:
        """Records that the connection has ended."""


class ProducerLink:
    """One registration. Reopening a producer makes a new link, so late frames of the old one are ignored."""

    def __init__(self, session: Session, producer_id: int, owner: LinkOwner) -> None:
        self._session = session
        self._mark = SendMark()
        self._producer_id = producer_id
        self._owner = owner
        self._closing: Future[pb.BaseCommand] | None = None
        self._sending = threading.Lock()  # no entry may be sent after the close
        session.attach(Role.PRODUCER, producer_id, self)

    @property
    def awaits_receipts(self) -> bool:
        """Whether the producer awaits receipts; see ``Handler``."""
        return self._owner.awaits_receipts

    def deliver(self, frames: list[Frame | Receipts]) -> None:
        """Passes frames for this registration to the producer."""
        self._owner.on_frames(self, frames)

    def lost(self, error: PulsarError) -> None:
        """Reports the end of the connection to the producer."""
        self._owner.on_lost(self, error)

    def register(
        self, options: ProducerOptions, writer: PartitionWriter, deadline: Deadline, *, encrypted: bool
    ) -> pb.CommandProducerSuccess:
        """Registers the producer; with WAIT_FOR_EXCLUSIVE waits until other producers have left."""
        with self._sending:
            if self._closing is not None:
                raise ClosedError("this producer has been closed")
            answer = self._session.ask(
                lambda request_id: commands.producer(
                    request_id,
                    self._producer_id,
                    str(self._owner.topic),
                    writer.name,
                    writer.epoch,
                    encrypted=encrypted,
                    access_mode=_ACCESS_MODES[options.access_mode],
                    topic_epoch=writer.topic_epoch,
                    properties=options.properties,
                    schema=options.schema,
                ),
                deadline.left,
                is_urgent=True,
            )
        try:
            return answer.result().producer_success
        except DeadlineError as error:
            if options.access_mode is not AccessMode.WAIT_FOR_EXCLUSIVE:
                raise
            raise BusyError(
                f"other producers did not leave the topic within {deadline.seconds:g} s",
                advice="Stop them, or raise pulsar.client.operationTimeoutMs",
            ) from error
        except SendError as error:
            # The exclusive producer may be this one: the broker may not have noticed its lost connection.
            if writer.epoch and f"exclusive producer: {writer.name} " in f"{error.what} ":
                raise NotReadyError(error.what) from error
            raise

    def send(self, entries: Sequence[Outgoing]) -> None:
        """Sends entries, none after ``begin_close``; raises the error that ended the session."""
        with self._sending:
            if self._closing is None:
                self._send(entries)
                if entries and not self._owner.awaits_receipts:
                    self._session.ping()

    def _send(self, entries: Sequence[Outgoing]) -> None:
        # Small entries are joined, because the socket accepts a few dozen buffers at a time.
        buffers: list[Buffer] = []
        small: list[Buffer] = []
        size = 0
        for entry in entries:
            frame = entry.frame(self._producer_id)
            entry_size = entry.size
            size += entry_size
            is_small = entry_size < _SMALL
            if is_small:
                small += frame
            if small and (not is_small or size >= _GROUP_SIZE):
                buffers.append(b"".join(small))
                small = []
            if not is_small:
                buffers += frame
            if size >= _GROUP_SIZE:
                self._session.send(*buffers, mark=self._mark)
                buffers, size = [], 0
        if small:
            buffers.append(b"".join(small))
        if buffers:
            self._session.send(*buffers, mark=self._mark)

    @property
    def progress_at(self) -> float:
        """Returns when the socket last accepted bytes of this link, in monotonic seconds; 0: never.

        While entries of this link wait in the queue, bytes of other links count, too.
        """
        return self._session.written_at if self._mark.is_waiting else self._mark.taken_at

    def begin_close(self) -> None:
        """Asks the broker to close the registration; ``close`` waits for the answer.

        The request is sent even if the registration counts as lost, because the broker may still have it.
        """
        self._session.detach(Role.PRODUCER, self._producer_id)
        with self._sending:
            if self._closing is not None:
                return
            try:
                self._closing = self._session.ask(
                    lambda request_id: commands.close_producer(request_id, self._producer_id),
                    CLOSE_TIMEOUT,
                    is_urgent=not self._mark.is_waiting,  # waiting entries must be sent before the command
                )
            except PulsarError as error:
                self._closing = Future()
                self._closing.set_exception(error)

    def close(self) -> None:
        """Closes the registration, and waits at most ``CLOSE_TIMEOUT`` for the broker's answer."""
        self.begin_close()
        assert self._closing is not None
        error = self._closing.exception()
        if error is not None and self._session.error is None:
            _log.info(
                "%s: the producer was closed without a response of the broker: %s", self._owner.topic, error
            )
