"""The micro-batch that a task writes a part of, as Spark names it.

Spark tells tasks the query and the number of the micro-batch by local properties, in a stream and in what
foreachBatch writes; they are its internals, and absent in a plain batch write.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

# The first micro-batch that this process has written a part of, by run of a query. Processes outlive runs.
_first_batches: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The micro-batch that a task writes a part of.

    Attributes:
        query: id of the query, the same after a restart.
        run: id of its run.
        number: of the micro-batch.
        task: number of the Spark partition.
        is_retried: whether this task was tried before.
    """

    query: str
    run: str
    number: int
    task: int
    is_retried: bool

    def is_possible_replay(self) -> bool:
        """Whether an earlier run of the micro-batch may have written something.

        True if the task was tried before, and for all tasks of the first micro-batch of a run in this
        process: only the first one of a run can be a replay.
        """
        return self.number <= _first_batches.setdefault(self.run, self.number) or self.is_retried


def micro_batch() -> MicroBatch | None:
    """The one that this task writes a part of; None in a plain batch write."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    if query is None or number is None:
        return None
    run = context.getLocalProperty("spark.jobGroup.id") or query
    return MicroBatch(query, run, int(number), context.partitionId(), context.attemptNumber() > 0)
