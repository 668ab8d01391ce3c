"""OutgoingQueue: the order in which frames are sent on a connection.

A broker that throttles publishing reads a connection slowly, and many frames of producers wait here. Urgent
frames are sent before all waiting ones; the others keep their order. Frames are never interleaved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pulsar_spark.arrow.arrays import Buffer


class SendMark:
    """Shows how many of the groups that one sender has put were taken, to be written.

    The last one was ``taken_at``, in monotonic seconds; 0 if none was.
    """

    __slots__ = ("queued", "taken", "taken_at")

    def __init__(self) -> None:
        self.queued = 0
        self.taken = 0
        self.taken_at = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether a group was not taken yet."""
        return self.taken < self.queued


class OutgoingQueue:
    """Groups of whole frames, which may be in several buffers."""

    def __init__(self) -> None:
        self._urgent: list[Buffer] = []
        self._groups: deque[tuple[Sequence[Buffer], SendMark | None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._groups)

    def put(self, buffers: Sequence[Buffer], mark: SendMark | None = None) -> None:
        """Append a group; ``mark`` is updated when the group is taken."""
        if mark is not None:
            mark.queued += 1
        self._groups.append((buffers, mark))

    def put_urgent(self, frame: bytes) -> None:
        """Send a frame before all groups; none if the last one that waits is the same.

        So a peer that sends PINGs and does not read gets one PONG for all of them.
        """
        if self._urgent[-1:] != [frame]:
            self._urgent.append(frame)

    def take(self, count: int, size: int, now: float) -> list[Buffer]:
        """Take all that is urgent, then whole groups until there are ``count`` buffers or ``size`` bytes.

        What is taken no longer counts as waiting, so it should be sent soon. ``now`` is in monotonic seconds.
        """
        taken, self._urgent = self._urgent, []
        left = size - sum(map(len, taken))
        while self._groups and len(taken) < count and left > 0:
            buffers, mark = self._groups.popleft()
            taken += buffers
            left -= sum(map(len, buffers))
            if mark is not None:
                mark.taken += 1
                mark.taken_at = now
        return taken
