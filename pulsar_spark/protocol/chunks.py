"""Chunked messages: the bounds of their reassembly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLimits:
    """What incomplete chunked messages may cost, as in the Java consumer.

    Attributes:
        max_pending: messages in the making; over it the oldest is given up.
        expire: seconds after which an incomplete message is given up.
        auto_ack_oldest: whether the one given up over ``max_pending`` counts as processed.
    """

    max_pending: int = 10
    expire: float = 60.0
    auto_ack_oldest: bool = False
