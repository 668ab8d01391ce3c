"""How many rows of a micro-batch may be in a topic twice, when all its tasks have come to their end.

All that the runs of the query have stored of the micro-batch is counted, by any task. What this run has found
of it is not duplicated. What it has not found may be the same rows as others: those that this run has sent,
and those that another earlier run has sent.

    ====================================  ======================================================
    stored by earlier runs and not found  may be duplicated
    ====================================  ======================================================
    none                                  none
    some, and all rows are of one run     none: the earlier run had rows that this one has not
    some, and others were sent            at most as many as the others
    ====================================  ======================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.replay.run_search import OwnEntry
from pulsar_spark.wire.entry.origin import Origin

# Entries of earlier micro-batches after which none of this one is expected further back.
_COPIES = 10


def possible_duplicates(stored: Counter[int], run: int, sent: int, found: int) -> int:
    """How many messages may be duplicated, at most.

    Args:
        stored: messages of the micro-batch that are stored, by number of the run.
        run: number of this run.
        sent: messages that the tasks of this run have sent, each task in its last attempt.
        found: messages of other runs, and of other attempts, that this run has found again.
    """
    earlier = stored - Counter({run: sent})
    others = sent + earlier.total() - max(earlier.values(), default=0)
    return max(0, min(earlier.total() - found, others))


class BatchSearch:
    """The search for all entries of a micro-batch in a topic partition, backwards from its end.

    Args:
        batch: an origin of the micro-batch.

    Attributes:
        stored: messages that were found, by number of the run.
        begin: id of the first entry; None if there is none.
        end: id of the last entry.
    """

    is_newest_known = True  # what earlier runs have stored was there before
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
        """Whether entries further back need not be read: the query wrote older ones before the micro-batch.

        Somebody may have copied an older entry to where the topic partition ends. So where nothing of the
        micro-batch was found, some more entries are read.
        """
        return self._oldest < self.begin if self.begin is not None else self._older > _COPIES

    def take(self, entries: Collection[OwnEntry]) -> bool:
        """Take entries of the query, each once; return whether any is of the micro-batch."""
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
