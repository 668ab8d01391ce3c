"""Permits: how many messages the broker may still send to one reader, and when to grant more.

The broker counts messages but reads whole entries. It sends up to min(permits, 100) entries at a time, so a
balance may fall below zero by a batch or more. Then the broker sends nothing until FLOW raises the balance
above zero.
"""

from __future__ import annotations

# Entries requested before their size is known; the broker reads at most 5 MiB at once.
FIRST_ENTRIES = 16
# Maximum entries that the broker reads at once: its dispatcherMaxReadBatchSize.
_ENTRIES_A_READ = 100
# Maximum received, unread bytes, as a multiple of ``window_bytes``; above 1, as first entries may be large.
_WINDOWS_HELD = 6
# Maximum balance: the broker adds grants in 32 bits, and an overflow stalls the consumer for ever.
_MAX_BALANCE = 1 << 24
_MAX_GRANT = (1 << 30) - 1


class Permits:
    """The balance of one consumer: number of messages that the broker may still send.

    A grant raises the balance to the messages that have about ``window_bytes``, at most those that the range
    needs. Until sizes are known, it raises the balance to ``first_entries``. The consumer is moved past each
    corrupt entry, so the broker repeats messages in flight. Any producer can write many corrupt entries, so
    after a move the balance is at most ``first_entries`` plus twice the messages received since the move.
    """

    def __init__(self, window_bytes: int, first_entries: int = FIRST_ENTRIES) -> None:
        self._window_bytes = window_bytes
        self._first_entries = first_entries
        self._balance = 0
        self._messages = 0
        self._bytes = 0
        self._entries = 0
        self._since_moved: int | None = None  # messages received since the last move; None: not moved

    @property
    def max_bytes(self) -> int:
        """Maximum received bytes that wait to be read; exceeded only if messages suddenly get far larger."""
        return _WINDOWS_HELD * self._window_bytes

    @property
    def is_open(self) -> bool:
        """Whether the broker may send another entry before more permits are granted."""
        return self._balance > 0

    def used(self, messages: int, size: int, entries: int = 1) -> None:
        """Records received entries, with ``messages`` messages and ``size`` bytes as sent."""
        self._balance -= messages
        self._messages += max(1, messages)
        self._bytes += size
        self._entries += entries
        if self._since_moved is not None:
            self._since_moved += max(1, messages)

    def lost(self) -> None:
        """Records that the consumer was closed or lost, with its permits."""
        self._balance = 0

    def moved(self) -> None:
        """Records that the consumer will begin at another position."""
        self._since_moved = 0

    def grant(self, remaining_entries: int | None) -> int:
        """Returns the permits to send in FLOW now, and adds them to the balance; 0: send none.

        ``remaining_entries``: entries that the range still needs; None if unknown.
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
        # The broker reads at most one entry for each permit, and at most _ENTRIES_A_READ at once. Its last
        # read must not pass the range's end. So the balance covers the messages of all remaining entries
        # except _ENTRIES_A_READ, and has at least one permit for each remaining entry.
        ahead = (remaining_entries - _ENTRIES_A_READ) * self._messages // self._entries
        return min(window, max(remaining_entries, ahead))
