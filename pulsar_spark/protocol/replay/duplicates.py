"""The number of rows of a micro-batch that may be in a topic twice, after all its tasks have ended.

A run lasts from a start of the query to its end. Rows that earlier runs have stored, and this run has found
again, are not duplicated. Stored rows that it has not found may equal rows sent by this run or another run.

    ====================================  ========================================================
    earlier runs' rows, not found again   maximum of duplicated rows
    ====================================  ========================================================
    none                                  0
    of one run; this run sent no rows     0: the earlier run had rows that this run does not have
    any other                             the smaller of two counts: the rows not found again; and the rows
                                          of all runs, except those of the earlier run with most rows
    ====================================  ========================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.replay.run_search import COPIES, OwnEntry
from pulsar_spark.wire.entry.origin import Origin


def possible_duplicates(stored: Counter[int], run: int, sent: int, found: int) -> int:
    """Returns the maximum number of duplicated messages.

    Args:
        stored: number of stored messages of the micro-batch, by number of the run.
        run: number of this run.
        sent: number of messages sent by this run's tasks, each in its last attempt.
        found: number of stored messages that this run has found again, so it did not send them.
    """
    earlier = stored - Counter({run: sent})
    others = sent + earlier.total() - max(earlier.values(), default=0)
    return max(0, min(earlier.total() - found, others))


class BatchSearch:
    """The search for all entries of a micro-batch in a topic partition, backwards from its end.

    Args:
        batch: any origin that has the micro-batch and write to search for.

    Attributes:
        stored: number of found messages, by number of the run.
        begin: id of the first entry; None if there is none.
        end: id of the last entry.
    """

    is_newest_known = True  # earlier runs have ended, so no newer entry appears
    is_newest_expected = False
    jump = unseen = None

    def __init__(self, batch: Origin) -> None:
        self._batch = batch
        self._oldest = MessageId.LATEST
        self._older = 0
        self.stored: Counter[int] = Counter()
        self.begin: MessageId | None = None
        self.end = MessageId.EARLIEST

    @property
    def is_passed(self) -> bool:
        """Whether the search has passed the micro-batch, so entries further back need not be read.

        One entry of an earlier micro-batch before ``begin`` proves this. If ``begin`` is None, more than
        ``COPIES`` are needed, because another program may have copied a few to the end.
        """
        return self._oldest < self.begin if self.begin is not None else self._older > COPIES

    def take(self, entries: Collection[OwnEntry]) -> bool:
        """Adds entries of the query, each once; returns whether any belongs to the micro-batch."""
        batch = self._batch
        for entry in entries:
            origin = entry.origin
            if origin.when < batch.when:
                self._oldest = min(self._oldest, entry.id)
                self._older += 1
            elif origin.when == batch.when:
                self.stored[origin.run] += entry.messages
                self.begin = entry.id if self.begin is None else min(self.begin, entry.id)
                self.end = max(self.end, entry.newest or entry.id)
        return any(entry.origin.when == batch.when for entry in entries)
