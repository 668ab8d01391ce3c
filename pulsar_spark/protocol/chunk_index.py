"""ChunkIndex: where chunked messages begin, as far back as one task has looked for their first chunks. Pure.

The last chunk of a message may come without the first ones: they lie further back, or they do not exist. What
a task has looked through for one message it knows for the next, so it goes back once however many there are:

    the message's first chunk         judged as
    is in the index                   it is read again from there
    is not, and the search has ended  its beginning is missing
    is not                            look further back

    what was looked through           the search
    ends at the topic's beginning     has ended
    begins with entries that are      has ended: a message whose chunks are further apart is given up
    older than a message may take
    are as many entries as a task     has ended
    may look through
    else                              goes on

The age of entries is judged by many neighbours, in the broker's order: a producer chooses the publish time
of its entry, so one time proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pulsar_spark.ids import MessageId

if TYPE_CHECKING:
    import numpy.typing as npt

# Maximum entries that one task looks through: a minute of 16,000 entries a second.
_MAX_ENTRIES = 1_000_000
# Maximum first chunks that are remembered.
_MAX_BEGINS = 10_000
# Entries at either end of what was looked through, whose medians tell how far apart they were published.
_NEIGHBOURS = 31


class ChunkIndex:
    """First chunks of one topic partition.

    Args:
        expire: seconds that a message may take to complete. 0: any time.

    Attributes:
        has_ended: whether the search backwards has ended.
    """

    def __init__(self, expire: float) -> None:
        self.has_ended = False
        self._expire = expire
        self._begins: dict[bytes, MessageId] = {}
        # Publish times of the entries looked through that are nearest to the range, and farthest from it.
        self._near = self._far = np.zeros(0, np.int64)
        self._count = 0

    def find(self, message: bytes) -> MessageId | None:
        """The last known first chunk of a message."""
        return self._begins.get(message)

    def begin(self, message: bytes, first: MessageId) -> None:
        """Add the next first chunk that was read; if there are too many, the oldest is forgotten."""
        self._begins.pop(message, None)
        self._begins[message] = first
        if len(self._begins) > _MAX_BEGINS:
            del self._begins[next(iter(self._begins))]

    def looked_through(
        self,
        begins: Mapping[bytes, MessageId],
        publish_times: npt.NDArray[np.int64],
        *,
        is_beginning: bool,
    ) -> None:
        """Add the entries directly before all known ones.

        Args:
            begins: its messages' first chunks; of one that begins several times the last.
            publish_times: int64[n], of its entries, in ms since 1970, in their order.
            is_beginning: whether the topic begins with it.
        """
        self._begins = {**begins, **self._begins}
        self._count += len(publish_times)
        if len(self._near) < _NEIGHBOURS:
            self._near = np.concatenate((publish_times, self._near))[-_NEIGHBOURS:]
        self._far = np.concatenate((publish_times[:_NEIGHBOURS], self._far))[:_NEIGHBOURS]
        self.has_ended = (
            is_beginning or self._count >= _MAX_ENTRIES or len(self._begins) > _MAX_BEGINS or self._is_old
        )

    @property
    def _is_old(self) -> bool:
        """Whether the search has come to entries that are older than a message may take."""
        if self._expire <= 0 or self._count < 2 * _NEIGHBOURS:
            return False
        return float(np.median(self._near) - np.median(self._far)) > self._expire * 1000
