"""Inbox: holds a consumer's messages between the session's thread and the consumer's own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pulsar_spark.errors import NotReadyError, PulsarError
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import Frame
from pulsar_spark.wire.messages import Messages, group_for_decoding


class Inbox:
    """Messages from the session's thread for a consumer: one per connection, which keeps old frames out.

    Args:
        on_arrival: called on the session's thread when something has come, or the consumer has ended; it must
            not block.
    """

    def __init__(self, on_arrival: Callable[[], object] | None = None) -> None:
        self._on_arrival = on_arrival
        self._messages: list[Messages] = []
        self._groups: deque[list[Messages]] = deque()  # of messages that came before those
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

    def take_group(self, timeout: float) -> list[Messages]:
        """Messages to decode together, after waiting for the first; empty if none came in time.

        Raises the error by which the consumer was lost once the messages before it are taken.
        """
        with self._changed:
            if not self._groups:
                self._changed.wait_for(lambda: self._messages or self._error is not None, timeout)
                if not self._messages and self._error is not None:
                    raise self._error
                self._groups.extend(group_for_decoding(self._messages))
                self._messages = []
            return self._groups.popleft() if self._groups else []

    @property
    def error(self) -> PulsarError | None:
        """The error by which the consumer was lost; None while it is open."""
        return self._error

    @property
    def holds_messages(self) -> bool:
        """Whether messages have come that were not taken."""
        return bool(self._groups or self._messages)

    @property
    def holds_groups(self) -> bool:
        """Whether messages are left of those that had come when a group was last taken."""
        return bool(self._groups)

    @property
    def newest(self) -> MessageId | None:
        """The last entry that has come and was not taken, or None."""
        with self._changed:
            waiting = self._messages or (self._groups[-1] if self._groups else [])
            last = waiting[-1] if waiting else None
        return None if last is None else MessageId(int(last.ledger[-1]), int(last.entry[-1]))

    def _report(self) -> None:
        if self._on_arrival is not None:
            self._on_arrival()
