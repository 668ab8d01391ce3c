"""CopySearch: finds the copies of entries that a task has stored in another cluster.

Replication drops origins, and keeps producer names and sequence ids.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.replay.task_ids import TaskIds, first_sequence_id
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import EntryField


class CopySearch:
    """The search for copies of a task's entries of one micro-batch, backwards from a topic partition's end.

    Args:
        name: name of the task's producer.
        ids: sequence ids of the producer on the topic partition.
        batch: number of the micro-batch.

    Attributes:
        begin: id of the first copy; None if there is none.
        end: id of the last copy.
        copied_from: names of the clusters.
    """

    is_newest_known = True  # the replicator may be hours late
    is_newest_expected = False
    jump = unseen = None

    def __init__(self, name: str, ids: TaskIds, batch: int) -> None:
        self._name = name.encode()
        self._query = name.rpartition("-")[0].encode() + b"-"
        self._own = ids.own(batch)
        self._first_of_batch = first_sequence_id(batch)
        self._has_older = False
        self.begin: MessageId | None = None
        self.end = MessageId.EARLIEST
        self.copied_from: set[str] = set()

    @property
    def is_passed(self) -> bool:
        """Whether entries further back need not be read, because one is of an earlier micro-batch."""
        return self._has_older

    def take(self, entries: Entries) -> bool:
        """Takes entries, each once; returns False, because no entry restarts the timeout."""
        names = entries.texts(EntryField.PRODUCER_NAME)
        is_older = pc.starts_with(names, self._query).fill_null(False).to_numpy(zero_copy_only=False)
        self._has_older |= bool((is_older & (_last_ids(entries) < self._first_of_batch)).any())
        for row in np.flatnonzero(self.wanted(entries)).tolist():
            entry = entries.one(row)
            found = MessageId(entry.ledger, entry.entry)
            self.begin = found if self.begin is None else min(self.begin, found)
            self.end = max(self.end, found)
            self.copied_from.add(str(entry.metadata.replicated_from, errors="replace"))
        return False

    def wanted(self, entries: Entries) -> Flags:
        """Returns flags of the copies, bool[n]."""
        names, last = entries.texts(EntryField.PRODUCER_NAME), _last_ids(entries)
        is_named = pc.equal(names, self._name).fill_null(False).to_numpy(zero_copy_only=False)
        flags: Flags = is_named & entries.copied & (last >= self._own.start) & (last < self._own.stop)
        return flags


def _last_ids(entries: Entries) -> Ints:
    ids: Ints = entries.sequence_id + np.maximum(entries.messages, 1) - 1
    return ids
