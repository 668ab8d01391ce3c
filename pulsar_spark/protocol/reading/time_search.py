"""Finds the first entry from a publish time on, by probing few entries of a topic partition. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from itertools import chain
from typing import NamedTuple, TypeAlias

from pulsar_spark.ids import MessageId


class TimedEntry(NamedTuple):
    """A whole entry, and its publish time in ms."""

    id: MessageId
    publish_time: int


Probe: TypeAlias = Callable[[MessageId], TimedEntry]
Read: TypeAlias = Callable[[MessageId], Generator[TimedEntry, None, None]]


def first_at(
    probe: Probe, read: Read, time_ms: int, margin_ms: int, first: MessageId, last: MessageId
) -> MessageId | None:
    """Returns the first entry published at ``time_ms`` or later; None if there is none.

    Publish times may decrease along the topic, because producers' clocks differ. If they decrease by at most
    ``margin_ms``, no entry after the wanted one is before ``time_ms - margin_ms``. So a binary search for
    that time ends at the wanted entry or before it, and reading on from there finds the wanted entry.

    Args:
        probe: function that returns the first entry at or after a position between ``first`` and ``last``;
            the position's ledger and entry need not exist.
        read: function that yields the entries after a position, up to ``last``, in order.
        time_ms: publish time in ms.
        margin_ms: maximum decrease of publish times.
        first: start of the search, inclusive.
        last: an existing entry, not before ``first``.
    """
    found = _first_late(probe, time_ms - margin_ms, first, last)
    if found is None:
        return None
    with closing(read(found.id)) as following:
        for entry in chain([found], following):
            if entry.publish_time >= time_ms:
                return entry.id
    return None


def _first_late(probe: Probe, time_ms: int, first: MessageId, last: MessageId) -> TimedEntry | None:
    """Returns an entry at or after ``time_ms`` whose predecessor is before; None if the last is before."""
    late = probe(last.whole_entry)
    if late.publish_time < time_ms:
        return None
    early = probe(first)
    if early.publish_time >= time_ms:
        return early
    # From here on, `early` is before the time, and `late` the first entry known at or after it.
    low, top = early.id.ledger, late.id.ledger + 1
    while top - low > 1:
        middle = (low + top) // 2
        found = probe(MessageId(middle, 0))
        if found.publish_time >= time_ms:
            top, late = middle, min(late, found)
        else:
            low, early = max(middle, found.id.ledger), max(early, found)
    return _first_after(probe, time_ms, early, late)


def _first_after(probe: Probe, time_ms: int, early: TimedEntry, late: TimedEntry) -> TimedEntry:
    """Returns the first such entry in the ledger of ``early``, or ``late``, maybe in a later ledger."""
    ledger, low = early.id.ledger, early.id.entry
    high = late.id.entry if late.id.ledger == ledger else None
    step = 1
    while high is None or high - low > 1:
        middle = low + step if high is None else (low + high) // 2
        found = probe(MessageId(ledger, middle))
        if found.publish_time >= time_ms:
            high, late = middle, min(late, found)
        else:
            low = max(middle, found.id.entry)
            step *= 2
    return late
