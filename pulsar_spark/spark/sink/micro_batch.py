"""The micro-batch of which a task writes a part.

Spark passes the query and the number of the micro-batch to tasks as local properties, in a stream and in
writes of foreachBatch. These properties are internals of Spark, and absent in a plain batch write.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of which a task writes a part.

    Attributes:
        query: id of the query; a restart does not change it.
        run: Spark's job group: id of the query's run, unless a foreachBatch function sets another, or none.
        number: number of the micro-batch.
        task: number of the Spark partition.
        is_retried: whether this task is a second or later attempt.
    """

    query: str
    run: str
    number: int
    task: int
    is_retried: bool


def micro_batch() -> MicroBatch | None:
    """Returns the micro-batch of which this task writes a part; None in a plain batch write."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    if query is None or number is None:
        return None
    run = context.getLocalProperty("spark.jobGroup.id") or ""
    return MicroBatch(query, run, int(number), context.partitionId(), context.attemptNumber() > 0)
