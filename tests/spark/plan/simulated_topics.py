"""Topics without a broker: what one would answer about made-up entries."""

from bisect import bisect_left, bisect_right
from itertools import accumulate

from pulsar_spark.client import EntryInfo, PendingCalls
from pulsar_spark.errors import DeadlineError, PulsarError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.plan.broker_probe import LedgerEnd


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
            EntryInfo(place, messages, size, 0, index if indexed else None, chunk, chunk)
            for (place, messages, size, chunk, _), index in zip(flat, indexes, strict=True)
        ]
        self.visible = [entry for entry, each in zip(self.entries, flat, strict=True) if each[-1]]
        self.ids = [each.id for each in self.visible]
        self.start = MessageId(10, -1)
        self.last = self.ids[-1] if self.ids else MessageId(10, -1)
        self.ledgers = {10 * n + 10: len(entries) for n, entries in enumerate(ledgers)}

    def between(self, start, end):
        """Visible entries in (start, end]; an entry that ``start`` lies within counts."""
        first = bisect_right(self.ids, MessageId(start.ledger, start.entry - (start.batch_index >= 0)))
        return self.visible[first : bisect_right(self.ids, end)]

    def backlog(self, start):
        """Entries after ``start``, visible or not."""
        return sum(each.id > start for each in self.entries)


class Broker:
    """Answers about partitions; what it is asked about ``broken`` ones fails with that error.

    Of those in ``silent_after`` it sends nothing after a position.
    """

    def __init__(self, partitions, broken=None):
        self.partitions = dict(partitions)
        self.broken = dict(broken or {})
        self.silent_after = {}
        self.open = self.opened = 0
        self.probes = 0
        self.scanned = 0
        self.rounds = 0

    def probe_entries(self, topic, after):
        if topic in self.broken:
            raise self.broken[topic]
        return _Reader(self, self.partitions[topic], topic, after)

    def probe_entry(self, topic, position):
        self.probes += 1
        partition = self.partitions[topic]
        return partition.visible[bisect_left(partition.ids, position)]

    def ledger_end(self, topic, position, last):
        assert position.ledger < last.ledger
        return LedgerEnd(self.partitions[topic].ledgers[position.ledger] - 1)


class _Reader:
    def __init__(self, broker, partition, topic, after):
        broker.open += 1
        broker.opened += 1
        self._broker, self._partition, self._topic = broker, partition, topic
        self._next = bisect_right(partition.ids, after)

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
            if entry.id > self._broker.silent_after.get(self._topic, end):
                if not found:
                    raise DeadlineError("late")
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


class CallsInTurn(PendingCalls):
    """Makes each call at once, without threads."""

    def run(self, calls, patience, begun=None, *, is_steady=False):
        results = {}
        for key, call in calls.items():
            try:
                results[key] = call()
            except PulsarError as error:
                results[key] = error
        return results
