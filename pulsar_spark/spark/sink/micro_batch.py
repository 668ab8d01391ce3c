"""The micro-batch of which a task writes a part, as Spark names it.

Spark gives tasks the query and the number of the micro-batch as local properties, in a stream and in writes
of foreachBatch. They are internals of Spark, and absent in a plain batch write.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

# The first micro-batch that this process wrote a part of, by run of a query. A process may outlive runs.
_first_batches: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What a task writes a part of.

    Attributes:
        query: id of the query; a restart does not change it.
        run: id of the query's run.
        number: number of the micro-batch.
        task: number of the Spark partition.
        is_retried: whether this task is a second or later attempt.
    """

    query: str
    run: str
    number: int
    task: int
    is_retried: bool

    def is_possible_replay(self, *, is_later: bool) -> bool:
        """Whether an earlier attempt of the micro-batch may have written rows.

        It is true if the task was tried before, and for all tasks of a run's first micro-batch in this
        process, unless it is known to be a later one of the run: only the first one can be a replay.
        """
        is_first = self.number <= _first_batches.setdefault(self.run, self.number)
        return (is_first and not is_later) or self.is_retried


def micro_batch() -> MicroBatch | None:
    """The micro-batch of which this task writes a part; None in a plain batch write."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    if query is None or number is None:
        return None
    run = context.getLocalProperty("spark.jobGroup.id") or query
    return MicroBatch(query, run, int(number), context.partitionId(), context.attemptNumber() > 0)
