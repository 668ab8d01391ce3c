"""KnownBatch: entries that a process's tasks have found in a topic partition for a micro-batch. Pure."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.replay.run_search import OwnEntry, Unseen
from pulsar_spark.protocol.replay.stored_rows import Words

# The entries in ``(start, end]``.
Part: TypeAlias = tuple[MessageId, MessageId]


@dataclass(slots=True)
class KnownBatch:
    """The parts of a topic partition that the tasks have read, and the query's entries found there.

    Attributes:
        entries: read entries of the query; added with :meth:`add`.
        parts: read parts, in order, with gaps between them.
        has_read_end: whether a task, when it started, has read the topic partition's last entries.
        digests: for each row that earlier runs have stored, the first 8 bytes of its digest, and the number
            of the task that sent it; None if the rows were not read.
        copied_from: clusters in which the query wrote messages of the micro-batch that were copied here.
    """

    entries: list[OwnEntry] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    has_read_end: bool = False
    digests: tuple[Words, Ints] | None = None
    copied_from: set[str] = field(default_factory=set)
    _tasks: list[tuple[MessageId, int]] = field(default_factory=list)  # each entry's last id and task

    def add(self, entries: Sequence[OwnEntry]) -> None:
        """Adds entries that were read."""
        self.entries += entries
        self._tasks += ((each.newest or each.id, each.origin.task) for each in entries)
        self._tasks.sort()

    def has_read(self, start: MessageId, end: MessageId) -> None:
        """Records that all entries in ``(start, end]`` were read."""
        touched = [part for part in self.parts if start <= part[1] and part[0] <= end]
        apart = [part for part in self.parts if part not in touched]
        first = min([start, *(part[0] for part in touched)])
        last = max([end, *(part[1] for part in touched)])
        self.parts = sorted([*apart, (first, last)])

    def unread(self, start: MessageId, end: MessageId) -> list[Part]:
        """Returns the parts of ``(start, end]`` that were not read, in order."""
        gaps = []
        for first, last in self.parts:
            if start < min(first, end):
                gaps.append((start, min(first, end)))
            start = max(start, last)
        return [*gaps, (start, end)] if start < end else gaps

    def likely(self, unseen: Unseen, end: MessageId) -> Part | None:
        """Returns the unread part up to ``end`` that most likely has a task's entry; None if all was read.

        This part lies next to entries of tasks with near numbers, because Spark starts tasks in their order.
        """

        def distance(part: Part) -> int:
            at = bisect(self._tasks, (part[1], -1))
            tasks = [task for _, task in self._tasks[max(at - 1, 0) : at + 1]]
            return max(min(tasks) - unseen.task, unseen.task - max(tasks), 0)

        return min(self.unread(unseen.after, end), key=distance, default=None)
