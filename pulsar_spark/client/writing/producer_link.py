"""ProducerLink: a producer's registration on one connection."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.session import Session
from pulsar_spark.client.writing.producer_options import AccessMode, ProducerOptions
from pulsar_spark.errors import BusyError, DeadlineError, NotReadyError, PulsarError, SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.outgoing import Outgoing, OutgoingRun
from pulsar_spark.protocol.outgoing_queue import SendMark
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import Buffer, Frame
from pulsar_spark.wire.receipts import Receipts

_CLOSE_TIMEOUT = 5.0

_ACCESS_MODES = {
    AccessMode.SHARED: pb.Shared,
    AccessMode.EXCLUSIVE: pb.Exclusive,
    AccessMode.WAIT_FOR_EXCLUSIVE: pb.WaitForExclusive,
    AccessMode.EXCLUSIVE_WITH_FENCING: pb.ExclusiveWithFencing,
}

# Bytes of an entry below which a copy is cheaper than a buffer of its own.
_SMALL = 4096

# Bytes of entries that are sent without urgent frames between them.
_GROUP_SIZE = 1 << 20

_log = logging.getLogger(__name__)


class LinkOwner(Protocol):
    """The producer, as the session's thread calls it."""

    topic: TopicName

    def on_frames(self, link: ProducerLink, frames: list[Frame | Receipts]) -> None:
        """Frames for the producer have come."""

    def on_lost(self, link: ProducerLink, error: PulsarError) -> None:
        """The connection has ended."""


class ProducerLink:
    """One per connection and attempt, so that late frames of an older one do not reach the producer."""

    def __init__(self, session: Session, producer_id: int, owner: LinkOwner) -> None:
        self._session = session
        self._mark = SendMark()
        self._producer_id = producer_id
        self._owner = owner
        session.attach_producer(producer_id, self)

    def deliver(self, frames: list[Frame | Receipts]) -> None:
        """For the session."""
        self._owner.on_frames(self, frames)

    def lost(self, error: PulsarError) -> None:
        """For the session."""
        self._owner.on_lost(self, error)

    def register(
        self,
        options: ProducerOptions,
        name: str | None,
        epoch: int,
        topic_epoch: int | None,
        deadline: Deadline,
        *,
        encrypted: bool,
    ) -> pb.CommandProducerSuccess:
        """Register the producer; PRODUCER_SUCCESS comes when it is this producer's turn."""
        try:
            return self._session.request(
                lambda request_id: commands.producer(
                    request_id,
                    self._producer_id,
                    str(self._owner.topic),
                    name,
                    epoch,
                    encrypted=encrypted,
                    access_mode=_ACCESS_MODES[options.access_mode],
                    topic_epoch=topic_epoch,
                    properties=options.properties,
                    schema=options.schema,
                ),
                deadline,
                is_urgent=True,
            ).producer_success
        except DeadlineError as error:
            if options.access_mode is not AccessMode.WAIT_FOR_EXCLUSIVE:
                raise
            raise BusyError(
                f"other producers did not leave the topic within {deadline.seconds:g} s",
                advice="Stop them, or raise pulsar.client.operationTimeoutMs",
            ) from error
        except SendError as error:
            # The broker may not have noticed yet that this producer's own connection is lost.
            if epoch and f"exclusive producer: {name} " in f"{error.what} ":
                raise NotReadyError(error.what) from error
            raise

    def send(self, entries: Sequence[Outgoing | OutgoingRun]) -> None:
        """Put entries on the wire; raises the error by which the session has ended."""
        # Small entries are joined: the socket takes a few dozen buffers at a time.
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
        """When the connection last took bytes that were sent here, or that were queued before them.

        In monotonic seconds; 0 if it took none. What is written since then may be on its way to the broker.
        """
        return self._session.written_at if self._mark.is_waiting else self._mark.taken_at

    def close(self) -> None:
        """Close the registration; if the connection is alive, the broker may not know that it is lost."""
        self._session.detach_producer(self._producer_id)
        if self._session.error is None:
            try:
                self._session.request(
                    lambda request_id: commands.close_producer(request_id, self._producer_id),
                    Deadline(_CLOSE_TIMEOUT),
                    is_urgent=not self._mark.is_waiting,  # an entry must not come after it
                )
            except PulsarError as error:
                _log.info(
                    "%s: the producer was closed without a response of the broker: %s",
                    self._owner.topic,
                    error,
                )
