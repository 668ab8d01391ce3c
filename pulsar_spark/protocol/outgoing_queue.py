"""OutgoingQueue: the order in which frames are sent on a connection.

A broker that throttles publishing reads a connection slowly. Then frames of producers wait here. Urgent
frames are sent first; other frames keep their order. Frames are never interleaved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pulsar_spark.arrow.arrays import Buffer


class SendMark:
    """Counts one sender's groups: all ``queued``, and the ones ``taken`` to be sent, last at ``taken_at``."""

    __slots__ = ("queued", "taken", "taken_at")

    def __init__(self) -> None:
        self.queued = 0
        self.taken = 0
        self.taken_at = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether a group waits."""
        return self.taken < self.queued


class OutgoingQueue:
    """Queue of groups of frames; each group is in one or more buffers."""

    def __init__(self) -> None:
        self._urgent: list[Buffer] = []
        self._groups: deque[tuple[Sequence[Buffer], SendMark | None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._groups)

    def put(self, buffers: Sequence[Buffer], mark: SendMark | None = None) -> None:
        """Appends a group; ``mark`` is updated when the group is taken."""
        if mark is not None:
            mark.queued += 1
        self._groups.append((buffers, mark))

    def put_urgent(self, frame: bytes) -> None:
        """Puts a frame before all groups, unless it equals the last waiting urgent frame.

        So a peer that sends PINGs and does not read gets one PONG for all PINGs.
        """
        if self._urgent[-1:] != [frame]:
            self._urgent.append(frame)

    def take(self, count: int, size: int, now: float) -> list[Buffer]:
        """Takes all urgent frames, then whole groups up to about ``count`` buffers or ``size`` bytes.

        Taken groups should be sent soon. ``now``: monotonic seconds, for ``SendMark.taken_at``.
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
