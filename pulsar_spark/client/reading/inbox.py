"""Inbox: holds a consumer's messages between the session's thread and the consumer's own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pulsar_spark.errors import NotReadyError, PulsarError
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import Frame
from pulsar_spark.wire.messages import Messages


class Inbox:
    """Messages from the session's thread for a consumer: one per connection, which keeps old frames out.

    Args:
        on_arrival: called on the session's thread when something has come, or the consumer has ended; it must
            not block.
    """

    def __init__(self, on_arrival: Callable[[], object] | None = None) -> None:
        self._on_arrival = on_arrival
        self._messages: list[Messages] = []
        self._changed = threading.Condition()
        self._error: PulsarError | None = None

    def deliver(self, frames: list[Frame | Messages]) -> None:
        """Add frames that have come."""
        with self._changed:
            for frame in frames:
                if isinstance(frame, Messages):
                    self._messages.append(frame)
                elif frame.command.type == pb.BaseCommand.CLOSE_CONSUMER:
                    self._error = NotReadyError("the broker closed the consumer")
            self._changed.notify()
        self._report()

    def lost(self, error: PulsarError) -> None:
        """The consumer has ended."""
        with self._changed:
            self._error = error
            self._changed.notify()
        self._report()

    def take(self, timeout: float) -> list[Messages]:
        """All messages that have come, after waiting for the first; empty if none came in time.

        Raises the error by which the consumer was lost once the messages before it are taken.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._error is not None, timeout)
            messages, self._messages = self._messages, []
            if not messages and self._error is not None:
                raise self._error
            return messages

    @property
    def error(self) -> PulsarError | None:
        """The error by which the consumer was lost; None while it is open."""
        return self._error

    @property
    def holds_messages(self) -> bool:
        """Whether messages have come that were not taken."""
        return bool(self._messages)

    @property
    def newest(self) -> MessageId | None:
        """The last entry that has come and was not taken, or None."""
        messages = self._messages
        return MessageId(int(messages[-1].ledger[-1]), int(messages[-1].entry[-1])) if messages else None

    def _report(self) -> None:
        if self._on_arrival is not None:
            self._on_arrival()
