"""Topics without a broker: what one would answer about made-up entries."""

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import NamedTuple

from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.plan.known_entries import LedgerEnd


class Entry(NamedTuple):
    """An entry's facts, and whether readers see it (no marker, not aborted)."""

    id: MessageId
    messages: int
    size: int
    index: int | None  # type: ignore[assignment]  # a tuple has a method of that name, which is not used
    chunk: bool
    visible: bool


class Partition:
    """Ledgers 10, 20, ... of entries ``(messages, size, chunk, visible)``; the last one is visible."""

    def __init__(self, ledgers, *, indexed=False):
        flat = [
            (MessageId(10 * n + 10, e), *each)
            for n, entries in enumerate(ledgers)
            for e, each in enumerate(entries)
        ]
        indexes = accumulate((each[1] for each in flat), initial=-1)
        next(indexes)
        self.entries = [
            Entry(place, messages, size, index if indexed else None, chunk, visible)
            for (place, messages, size, chunk, visible), index in zip(flat, indexes, strict=True)
        ]
        self.visible = [each for each in self.entries if each.visible]
        self.ids = [each.id for each in self.visible]
        self.start = MessageId(10, -1)
        self.last = self.ids[-1] if self.ids else MessageId(10, -1)
        self.ledgers = {10 * n + 10: len(entries) for n, entries in enumerate(ledgers)}

    def between(self, start, end):
        """Visible entries in (start, end]; an entry that ``start`` lies within counts."""
        first = bisect_right(self.ids, MessageId(start.ledger, start.entry - (start.batch_index >= 0)))
        return self.visible[first : bisect_right(self.ids, end)]

    def backlog(self, start):
        """Entries behind ``start``, seen or not."""
        return sum(each.id > start for each in self.entries)


class Broker:
    """Answers about partitions; what it is asked about ``broken`` ones fails with that error."""

    def __init__(self, partitions, broken=None):
        self.partitions = dict(partitions)
        self.broken = dict(broken or {})
        self.open = 0
        self.peeks = 0
        self.scanned = 0
        self.rounds = 0

    def scout(self, topic, behind):
        if topic in self.broken:
            raise self.broken[topic]
        return _Scout(self, self.partitions[topic], topic, behind)

    def peek(self, topic, position):
        self.peeks += 1
        partition = self.partitions[topic]
        return partition.visible[bisect_left(partition.ids, position)]

    def ledger_end(self, topic, position, last):
        assert position.ledger < last.ledger
        return LedgerEnd(self.partitions[topic].ledgers[position.ledger] - 1)


class _Scout:
    def __init__(self, broker, partition, topic, behind):
        broker.open += 1
        self._broker, self._partition, self._topic = broker, partition, topic
        self._next = bisect_right(partition.ids, behind)

    def read(self, messages, size, end):
        assert messages > 0
        assert size > 0
        if self._topic in self._broker.broken:
            raise self._broker.broken[self._topic]
        found = []
        while messages > 0 and size > 0 and self._next < len(self._partition.visible):
            entry = self._partition.visible[self._next]
            if entry.id > end:
                break
            found.append(entry)
            self._next += 1
            messages -= entry.messages
            size -= entry.size
        self._broker.rounds += 1
        self._broker.scanned += len(found)
        return found

    def close(self):
        self._broker.open -= 1


def one_by_one(calls):
    """What the client's ``together`` does, without threads."""
    results = []
    for call in calls:
        try:
            results.append(call())
        except PulsarError as error:
            results.append(error)
    return results
