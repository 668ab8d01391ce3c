"""CopySearch: finds the copies of entries that a task has stored in another cluster.

Replication drops origins, and keeps producer names and sequence ids.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Flags
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.run_search import RunToFind
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
        self._name = name
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
        is_older = entries.last_sequence_id < self._first_of_batch
        self._has_older |= bool((is_older & _are_of_query(entries, self._name)).any())
        for row in np.flatnonzero(self.wanted(entries)).tolist():
            entry = entries.one(row)
            found = MessageId(entry.ledger, entry.entry)
            self.begin = found if self.begin is None else min(self.begin, found)
            self.end = max(self.end, found)
            self.copied_from.add(str(entry.metadata.replicated_from, errors="replace"))
        return False

    def wanted(self, entries: Entries) -> Flags:
        """Returns flags of the copies, bool[n]."""
        names, last = entries.texts(EntryField.PRODUCER_NAME), entries.last_sequence_id
        is_named = pc.equal(names, self._name.encode()).fill_null(False).to_numpy(zero_copy_only=False)
        flags: Flags = is_named & entries.copied & (last >= self._own.start) & (last < self._own.stop)
        return flags


def copied_from(entries: Entries, run: RunToFind, topic: TopicName) -> set[str]:
    """Returns the other clusters in which any task of the query has written messages of the micro-batch."""
    found: set[str] = set()
    is_copied = entries.copied
    if not is_copied.any():  # most topics have no copies, and each search for stored rows asks
        return found
    last = entries.last_sequence_id
    for row in np.flatnonzero(is_copied & _are_of_query(entries, run.name)).tolist():
        metadata = entries.one(row).metadata
        ids = TaskIds(run.secret, str(metadata.producer_name, errors="replace"), str(topic))
        if int(last[row]) in ids.own(run.origin.batch):
            found.add(str(metadata.replicated_from, errors="replace"))
    return found


def _are_of_query(entries: Entries, name: str) -> Flags:
    """Returns flags of the entries by any task of the query whose task has the producer ``name``, bool[n]."""
    names, query = entries.texts(EntryField.PRODUCER_NAME), name.rpartition("-")[0].encode() + b"-"
    flags: Flags = pc.starts_with(names, query).fill_null(False).to_numpy(zero_copy_only=False)
    return flags
