"""Permits: how many messages the broker may still send to one reader, and when to grant more.

The broker counts messages but reads whole entries: it sends up to min(permits, 100) entries at a time, so a
balance may go below zero by a batch or more, and nothing comes until FLOW brings it above zero again.
"""

from __future__ import annotations

# Entries requested before their size is known; the broker itself reads no more than 5 MiB at once.
FIRST_ENTRIES = 16
# Maximum entries that the broker reads at once: its dispatcherMaxReadBatchSize.
_ENTRIES_A_READ = 100
# Windows of bytes that may wait for a consumer: its first entries may be of the default maximum size.
_WINDOWS_HELD = 6
# The broker adds grants in 32 bits; an overflow stalls the consumer for ever.
_MAX_BALANCE = 1 << 24
_MAX_GRANT = (1 << 30) - 1


class Permits:
    """The balance of one consumer, refilled to what about ``window_bytes`` hold and the range still needs.

    So much may be in flight or in the queue; ``first_entries`` are requested before their size is known. What
    is in flight when the consumer is moved is sent again. After a move at most that number of messages and
    twice what has come since are in flight: whoever may produce can write many entries that are skipped.
    """

    def __init__(self, window_bytes: int, first_entries: int = FIRST_ENTRIES) -> None:
        self._window_bytes = window_bytes
        self._first_entries = first_entries
        self._balance = 0
        self._messages = 0
        self._bytes = 0
        self._entries = 0
        self._since_moved: int | None = None  # messages; None: it was not moved

    @property
    def max_bytes(self) -> int:
        """Bytes that may wait for the consumer; more come where messages are far larger than before."""
        return _WINDOWS_HELD * self._window_bytes

    @property
    def is_open(self) -> bool:
        """Whether the broker may send another entry before more is granted."""
        return self._balance > 0

    def used(self, messages: int, size: int, entries: int = 1) -> None:
        """Note that entries have come, with ``messages`` messages and ``size`` bytes as sent."""
        self._balance -= messages
        self._messages += max(1, messages)
        self._bytes += size
        self._entries += entries
        if self._since_moved is not None:
            self._since_moved += max(1, messages)

    def lost(self) -> None:
        """Note that the consumer was closed or lost, and its permits with it."""
        self._balance = 0

    def moved(self) -> None:
        """Note that the consumer will begin again elsewhere."""
        self._since_moved = 0

    def grant(self, remaining_entries: int | None) -> int:
        """Return the permits to send in FLOW now, 0 for none; they count as granted.

        ``remaining_entries`` are those that the range still needs; None where it is not known.
        """
        target = self._target(remaining_entries)
        if self._balance > target // 2:
            return 0
        granted = min(target - self._balance, _MAX_GRANT)
        self._balance += granted
        return granted

    def _target(self, remaining_entries: int | None) -> int:
        if self._entries == 0:
            first = self._first_entries
            return first if remaining_entries is None else min(first, remaining_entries)
        window = min(_MAX_BALANCE, max(1, self._window_bytes * self._messages // max(1, self._bytes)))
        if self._since_moved is not None:
            window = min(window, self._first_entries + 2 * self._since_moved)
        if remaining_entries is None:
            return window
        # Near the end one permit an entry: the broker reads no more entries than it holds permits. Before
        # that, enough messages that with the last read it sends no entry after the end.
        ahead = (remaining_entries - _ENTRIES_A_READ) * self._messages // self._entries
        return min(window, max(remaining_entries, ahead))
