"""MemoryBudget: bytes that the pending windows of a task share.

Windows report what they hold. How much each may hold follows from that:

    =========================================  ======================================================
    a window that holds                        may grow to
    =========================================  ======================================================
    nothing                                    one entry in any case, so that no producer waits for
                                               receipts of others; more as below
    anything, or nothing                       an equal part of the limit: the windows that hold
                                               something count, and this one
    the same, while others hold more than      what the others leave of the limit
    their parts
    =========================================  ======================================================

A window may hold more than its part after others have come. It then drains to its part.
"""

from __future__ import annotations


class MemoryBudget:
    """Not thread-safe: threads that share one must guard ``report``.

    Args:
        limit: bytes of all windows in sum. One entry of each window may exceed it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._users = 0

    def report(self, before: int, now: int) -> None:
        """Note that a window, which held ``before`` bytes by its last report, holds ``now``."""
        self._held += now - before
        self._users += bool(now) - bool(before)

    def max_bytes(self, held: int) -> int:
        """How many bytes a window may hold that holds ``held`` by its last report."""
        users = self._users + (not held)
        return min(self._limit // max(1, users), self._limit - self._held + held)
