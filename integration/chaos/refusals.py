"""A broker that refuses some entries for a while: a topic policy limits their size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from integration.broker import Admin

REFUSALS = "refusals"


@contextmanager
def refusing(admin: Admin, topics: Sequence[str], size: int) -> Iterator[None]:
    """Let the broker refuse entries of more than ``size`` bytes, and store smaller later ones."""
    try:
        for topic in topics:
            admin.set_max_message_size(topic, size)
        yield
    finally:
        for topic in topics:
            admin.set_max_message_size(topic, None)
