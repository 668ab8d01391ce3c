"""Limits: what one micro-batch may hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one micro-batch may hold, and how long one is waited for.

    Attributes:
        max_messages: the maximum number of messages, or None.
        max_bytes: the maximum number of bytes as stored, or None.
        min_messages: the number of messages that a batch waits for, or None.
        max_delay: seconds since the last batch after which fewer than ``min_messages`` are taken.
    """

    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_delay: float = 900.0

    @property
    def is_capped(self) -> bool:
        """Whether a batch has a maximum size."""
        return self.max_messages is not None or self.max_bytes is not None
