"""Inbox: passes a consumer's messages from the session's thread to the consumer's thread.

Permits limit the number of messages and not their bytes: later messages may be larger, and an entry that
claims a negative number of messages adds permits. So a full inbox closes the consumer, which then subscribes
again, starting after the last returned message.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum

from pulsar_spark.errors import NotReadyError, PulsarError
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frame_runs import Messages, group_for_decoding
from pulsar_spark.wire.frames import Frame


class TopicEnd(Enum):
    """Reasons why a topic gets no more messages; error texts end with the value."""

    TERMINATED = "it was terminated, and everything in it is acknowledged"
    MIGRATED = "it was migrated to another cluster"


_ENDS: dict[int, TopicEnd] = {
    pb.BaseCommand.REACHED_END_OF_TOPIC: TopicEnd.TERMINATED,
    pb.BaseCommand.TOPIC_MIGRATED: TopicEnd.MIGRATED,
}


class Inbox:
    """Received messages of one SUBSCRIBE. A new SUBSCRIBE has a new inbox, so late frames are ignored.

    Both callbacks (``on_arrival``, ``on_full``) run on the session's thread, so they must not block.

    Args:
        on_arrival: function that is called when frames are received, or the consumer has ended.
        max_bytes: limit of the bytes of held messages. Messages are accepted while fewer bytes are held, so
            the last accepted messages may exceed the limit.
        on_full: function that is called once when the inbox is full.

    Attributes:
        topic_end: the broker's reason why the topic gets no more messages, or None.
        error: error that ended the consumer; None while it is open.
    """

    awaits_receipts = False

    def __init__(
        self,
        on_arrival: Callable[[], object] | None = None,
        max_bytes: int = 1 << 62,
        on_full: Callable[[], object] | None = None,
    ) -> None:
        self._on_arrival = on_arrival
        self._max_bytes = max_bytes
        self._on_full = on_full
        self.topic_end: TopicEnd | None = None
        self._is_full = False
        self._messages: list[Messages] = []
        self._groups: deque[list[Messages]] = deque()  # messages received before ``_messages``
        self._bytes = self._group_bytes = 0  # bytes of ``_messages``, and of ``_groups``
        self._changed = threading.Condition()
        self.error: PulsarError | None = None

    def deliver(self, frames: list[Frame | Messages]) -> None:
        """Adds received frames; after the inbox was full, drops all frames."""
        if self._is_full:
            return
        with self._changed:
            for frame in frames:
                if isinstance(frame, Messages):
                    self._take_in(frame)
                elif frame.command.type == pb.BaseCommand.CLOSE_CONSUMER:
                    self.error = NotReadyError("the broker closed the consumer")
                else:
                    self.topic_end = _ENDS.get(frame.command.type, self.topic_end)
            self._changed.notify()
        if self._is_full and self._on_full is not None:
            self._on_full()
        self._report()

    def lost(self, error: PulsarError) -> None:
        """Records that the consumer has ended."""
        with self._changed:
            self.error = error
            self._changed.notify()
        self._report()

    def take_group(self, timeout: float) -> list[Messages]:
        """Waits for a message; returns messages to decode in one call, or none after ``timeout`` seconds.

        If the consumer has ended, raises its error once all received messages were returned.
        """
        with self._changed:
            if not self._groups:
                self._changed.wait_for(lambda: self._messages or self.error is not None, timeout)
                if not self._messages and self.error is not None:
                    raise self.error
                self._groups.extend(group_for_decoding(self._messages))
                self._messages = []
                self._group_bytes, self._bytes = self._bytes, 0
            if not self._groups:
                return []
            group = self._groups.popleft()
            self._group_bytes -= sum(int(each.end[-1] - each.at[0]) for each in group)
            return group

    @property
    def holds_messages(self) -> bool:
        """Whether there are received messages that ``take_group`` has not returned."""
        return bool(self._groups or self._messages)

    @property
    def holds_groups(self) -> bool:
        """Whether ``take_group`` has yet to return messages that were received before its last wait ended."""
        return bool(self._groups)

    @property
    def bytes(self) -> int:
        """Returns the bytes of received messages that ``take_group`` has not returned."""
        return self._bytes + self._group_bytes

    @property
    def newest(self) -> MessageId | None:
        """Returns the id of the last received entry that ``take_group`` has not returned, or None."""
        with self._changed:
            waiting = self._messages or (self._groups[-1] if self._groups else [])
            last = waiting[-1] if waiting else None
        return None if last is None else MessageId(int(last.ledger[-1]), int(last.entry[-1]))

    def _take_in(self, messages: Messages) -> None:
        if self.bytes >= self._max_bytes:
            self._is_full = True
            self.error = self.error or NotReadyError(
                f"more than {self._max_bytes} bytes of messages wait for the reader"
            )
            return
        # Messages of one read share a block of bytes, which is counted once and freed with the last message.
        if not self._messages or messages.data is not self._messages[-1].data:
            self._bytes += len(messages.data)
        self._messages.append(messages)

    def _report(self) -> None:
        if self._on_arrival is not None:
            self._on_arrival()
