"""CopySearch: finds the copies of entries that a task has stored in another cluster.

Replication drops origins, the signed fields by which a query's entries are found. It keeps producer names
and sequence ids, so copies are found by these.
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

    Attributes:
        begin: id of the first copy; None if there is none.
        end: id of the last copy.
        copied_from: names of the clusters in which the query wrote the copied messages.
        is_passed: whether entries further back need not be read: a copy of an earlier micro-batch was found.
    """

    is_newest_known = True  # the search waits for no copy, because replicators may be hours late
    is_newest_expected = is_passed = False
    jump = unseen = None

    def __init__(self, run: RunToFind, topic: TopicName) -> None:
        self._run, self._topic = run, topic
        self._own = TaskIds(run.secret, run.name, str(topic)).own(run.origin.batch)
        self.begin: MessageId | None = None
        self.end = MessageId.EARLIEST
        self.copied_from: set[str] = set()

    def take(self, entries: Entries) -> bool:
        """Processes entries, each only once; returns False: ``search_back`` must not restart its timeout."""
        is_older = entries.last_sequence_id < first_sequence_id(self._run.origin.batch)
        self.is_passed |= bool((is_older & _are_of_query(entries, self._run)).any())
        self.copied_from |= copied_from(entries, self._run, self._topic)
        for row in np.flatnonzero(self.wanted(entries)).tolist():
            found = entries.id_of(row)
            self.begin = found if self.begin is None else min(self.begin, found)
            self.end = max(self.end, found)
        return False

    def wanted(self, entries: Entries) -> Flags:
        """Returns whether each entry is a copy of one of the task's entries, bool[n]."""
        names, last = entries.texts(EntryField.PRODUCER_NAME), entries.last_sequence_id
        is_named = np.asarray(pc.equal(names, self._run.name.encode()))
        flags: Flags = is_named & entries.copied & (last >= self._own.start) & (last < self._own.stop)
        return flags


def copied_from(entries: Entries, run: RunToFind, topic: TopicName) -> set[str]:
    """Returns the other clusters in which any task of the query has written messages of the micro-batch."""
    found: set[str] = set()
    if not entries.copied.any():  # the usual case; returns early to save time
        return found
    last = entries.last_sequence_id
    for row in np.flatnonzero(entries.copied & _are_of_query(entries, run)).tolist():
        metadata = entries.metadata(row)
        ids = TaskIds(run.secret, str(metadata.producer_name, errors="replace"), str(topic))
        if int(last[row]) in ids.own(run.origin.batch):
            found.add(str(metadata.replicated_from, errors="replace"))
    return found


def _are_of_query(entries: Entries, run: RunToFind) -> Flags:
    """Returns whether the producer of each entry is named like a task of the run's query, bool[n]."""
    names, query = entries.texts(EntryField.PRODUCER_NAME), run.name.rpartition("-")[0].encode() + b"-"
    return np.asarray(pc.starts_with(names, query))
