"""Searches a topic partition with few probes, for example for a publish time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from itertools import chain
from typing import Protocol, TypeAlias, TypeVar

from pulsar_spark.ids import MessageId


class Placed(Protocol):
    """An entry that a probe finds."""

    @property
    def id(self) -> MessageId:
        """Returns the position of the whole entry."""


E = TypeVar("E", bound=Placed)


class Timed(Placed, Protocol):
    """An entry with its publish time."""

    @property
    def publish_time(self) -> int:
        """Returns the publish time in ms since 1970."""


Probe: TypeAlias = Callable[[MessageId], Timed]
Read: TypeAlias = Callable[[MessageId], Generator[Timed, None, None]]


def first_at(
    probe: Probe, read: Read, time_ms: int, margin_ms: int, first: MessageId, last: MessageId
) -> MessageId | None:
    """Returns the first entry published at ``time_ms`` or later; None if there is none.

    Publish times may decrease along the topic, because producers' clocks differ. If they decrease by at most
    ``margin_ms``, no entry after the wanted one has a time before ``time_ms - margin_ms``. So a binary search
    for that time ends at the wanted entry or before it, and reading from there finds the wanted entry.

    Args:
        probe: function that returns the first entry at or after a position between ``first`` and ``last``;
            the position's ledger and entry need not exist.
        read: function that yields the entries after a position, up to ``last``, in order.
        first: start of the search, inclusive.
        last: an existing entry, not before ``first``.
    """
    _, found = boundary(probe, lambda each: each.publish_time >= time_ms - margin_ms, first, last)
    if found is None:
        return None
    with closing(read(found.id)) as following:
        for entry in chain([found], following):
            if entry.publish_time >= time_ms:
                return entry.id
    return None


def boundary(
    probe: Callable[[MessageId], E], is_late: Callable[[E], bool], first: MessageId, last: MessageId
) -> tuple[E | None, E | None]:
    """Returns the last early entry and the first late entry, by a binary search; None for a missing entry.

    If early entries follow late ones, the result may be any early entry with a late successor.

    Args:
        probe: function that returns the first entry at or after a position.
        is_late: function that returns whether an entry is late; all other entries are early.
        first: start of the search, inclusive.
        last: end of the search, not before ``first``; the probe finds an entry there.
    """
    late = probe(last.whole_entry)
    if not is_late(late):
        return late, None
    early = probe(first)
    if is_late(early):
        return None, early
    # From here on, `late` is the first known late entry.
    low, top = early.id.ledger, late.id.ledger + 1
    while top - low > 1:
        middle = (low + top) // 2
        found = probe(MessageId(middle, 0))
        if is_late(found):
            top, late = middle, min(late, found, key=lambda each: each.id)
        else:
            low, early = max(middle, found.id.ledger), found
    return _within(probe, is_late, early, late)


def _within(probe: Callable[[MessageId], E], is_late: Callable[[E], bool], early: E, late: E) -> tuple[E, E]:
    """Returns the last early entry in the ledger of ``early``, and the late entry after it, in any ledger."""
    ledger = early.id.ledger
    high = late.id.entry if late.id.ledger == ledger else None
    step = 1
    while high is None or high - early.id.entry > 1:
        low = early.id.entry
        middle = low + step if high is None else (low + high) // 2
        found = probe(MessageId(ledger, middle))
        if is_late(found):
            high, late = middle, min(late, found, key=lambda each: each.id)
        else:
            early = found
            step *= 2
    return early, late
