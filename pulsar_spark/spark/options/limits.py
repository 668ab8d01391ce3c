"""Limits: what one micro-batch may hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one micro-batch may hold, and how long it may be waited for.

    Attributes:
        max_messages: the most messages, or None.
        max_bytes: the most bytes as stored, or None.
        min_messages: fewer are not worth a batch, or None.
        max_delay: seconds since the last batch after which fewer than ``min_messages`` are taken.
    """

    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_delay: float = 900.0

    @property
    def capped(self) -> bool:
        """Whether a batch has a largest size."""
        return self.max_messages is not None or self.max_bytes is not None
