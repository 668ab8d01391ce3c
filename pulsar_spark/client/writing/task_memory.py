"""TaskMemory: the memory budget of all producers of a task, whose windows change in several threads."""

from __future__ import annotations

import threading

from pulsar_spark.protocol.writing.pending import MemoryBudget


class TaskMemory(MemoryBudget):
    """Thread-safe; a limit that is read while another thread reports may be that of a moment before.

    Args:
        limit: bytes of unacknowledged messages, of all producers that share it.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._lock = threading.Lock()

    def report(self, before: int, now: int) -> None:
        """Note that a window, which held ``before`` bytes by its last report, holds ``now``."""
        with self._lock:
            super().report(before, now)
