"""Finds the first entry from a publish time on, by probing few entries of a topic partition. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from itertools import chain
from typing import NamedTuple, TypeAlias

from pulsar_spark.ids import MessageId


class TimedEntry(NamedTuple):
    """A whole entry, and when it was published, in ms."""

    id: MessageId
    publish_time: int


Probe: TypeAlias = Callable[[MessageId], TimedEntry]
Read: TypeAlias = Callable[[MessageId], Generator[TimedEntry, None, None]]


def first_at(
    probe: Probe, read: Read, time_ms: int, margin_ms: int, first: MessageId, last: MessageId
) -> MessageId | None:
    """The first entry published at ``time_ms`` or later; None if there is none.

    Publish times may go back along the topic, because producers' clocks differ. If they go back by at most
    ``margin_ms``, no entry after the wanted one is before ``time_ms - margin_ms``. So a binary search for
    that time ends at the wanted entry or before it, and reading on from there finds the wanted entry.

    Args:
        probe: gives the first entry at or after a position, which may name a ledger or an entry that does not
            exist. It begins at ``first``; nothing after ``last`` is probed.
        read: gives the entries after a position, up to ``last``, in order.
        time_ms: publish time in ms.
        margin_ms: maximum by which publish times go back.
        first: where to begin, inclusive.
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
    """An entry at or after ``time_ms`` with a predecessor before it; None if the last entry is before it."""
    late = probe(last.whole_entry)
    if late.publish_time < time_ms:
        return None
    early = probe(first)
    if early.publish_time >= time_ms:
        return early
    # From here on `early` is before the time, and `late` is the first that is known not to be.
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
    """The first one in the ledger of ``early``, or ``late``, which may be in a later ledger."""
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
