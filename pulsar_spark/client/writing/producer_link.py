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
from pulsar_spark.protocol.pending import Outgoing
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import Buffer, Frame

_CLOSE_TIMEOUT = 5.0

_ACCESS_MODES = {
    AccessMode.SHARED: pb.Shared,
    AccessMode.EXCLUSIVE: pb.Exclusive,
    AccessMode.WAIT_FOR_EXCLUSIVE: pb.WaitForExclusive,
    AccessMode.EXCLUSIVE_WITH_FENCING: pb.ExclusiveWithFencing,
}

# Bytes of an entry below which a copy is cheaper than a buffer of its own.
_SMALL = 4096

_log = logging.getLogger(__name__)


class LinkOwner(Protocol):
    """The producer, as the session's thread calls it."""

    topic: TopicName

    def on_frames(self, link: ProducerLink, frames: list[Frame]) -> None:
        """Frames for the producer have come."""

    def on_lost(self, link: ProducerLink, error: PulsarError) -> None:
        """The connection has ended."""


class ProducerLink:
    """One per connection and attempt, so that late frames of an older one do not reach the producer."""

    def __init__(self, session: Session, producer_id: int, owner: LinkOwner) -> None:
        self._session = session
        self._producer_id = producer_id
        self._owner = owner
        session.attach_producer(producer_id, self)

    def deliver(self, frames: list[Frame]) -> None:
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
        """Ask for PRODUCER_SUCCESS, which comes when it is this producer's turn."""
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
                ),
                deadline,
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

    def send(self, entries: Sequence[Outgoing]) -> None:
        """Put entries on the wire; raises the error by which the session has ended."""
        # Small entries are joined: the socket takes a few dozen buffers at a time.
        buffers: list[Buffer] = []
        small: list[Buffer] = []
        for entry in entries:
            frame = entry.frame(self._producer_id)
            if entry.size < _SMALL:
                small += frame
                continue
            if small:
                buffers.append(b"".join(small))
                small = []
            buffers += frame
        if small:
            buffers.append(b"".join(small))
        self._session.send(*buffers)

    def close(self) -> None:
        """Give the registration up; where the connection lives the broker may not know that it is lost."""
        self._session.detach_producer(self._producer_id)
        if self._session.error is None:
            try:
                self._session.request(
                    lambda request_id: commands.close_producer(request_id, self._producer_id),
                    Deadline(_CLOSE_TIMEOUT),
                )
            except PulsarError as error:
                _log.info("%s: the producer was closed without an answer: %s", self._owner.topic, error)
