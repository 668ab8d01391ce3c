"""The micro-batch of which a task writes a part, and the numbers of the writes in a micro-batch.

Spark passes the query and the number of the micro-batch to tasks as local properties, in a stream and in
writes of foreachBatch. These properties are internals of Spark, and absent in a plain batch write.

A foreachBatch may write to a topic several times, so its writes have numbers. A replayed write must have the
same number as before, and other writes must have other numbers. So the driver counts the committed writes to
each topic, from 0 in each run of the query. If rows name their topics, a write may go to any topic, so its
number is one that no topic has had yet. Spark's job group identifies the run. If a function sets its own job
group, the count continues over runs.

In streams, writes are counted to see whether a micro-batch may be a replay. Only the first micro-batch of a
run can be a replay. It is not the first if the run has counted a write of an earlier one. If Spark repeats a
whole stage, its tasks look like first attempts. Then the broker's last sequence ids show the repetition.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark import TaskContext

from pulsar_spark.errors import SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.monitoring.driver_files import DriverFiles

_files = DriverFiles("pulsar_spark_writes")


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of which a task writes a part.

    Attributes:
        query: id of the query; a restart does not change it.
        run: Spark's job group: id of the query's run, unless a foreachBatch function sets another, or none.
        task: number of the Spark partition.
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


def read_write_numbers() -> dict[str, str]:
    """Returns the driver's counts of writes, by query, for :func:`write_number`. Call it on the driver.

    Raises SendError: a count cannot be read, so the next write could get the number of an earlier one.
    """
    try:
        return dict(_files.read_all(_files.path()))
    except RuntimeError:
        return {}  # outside of Spark's processes, where nothing was counted
    except OSError as error:
        raise SendError(
            f"the writes of the micro-batch are not known: {error}",
            advice="Let the driver read its folder for the application, and start the query again",
        ) from error


def write_number(counted: Mapping[str, str], batch: MicroBatch, topic: TopicName | None) -> int:
    """Returns the number of the next write of a micro-batch to a topic.

    ``counted``: result of ``read_write_numbers`` at the start of the write. ``topic`` None: rows name their
    topics.
    """
    return _next(_numbers(counted.get(batch.query), batch.run, batch.number), topic)


def has_written_before(counted: Mapping[str, str], batch: MicroBatch) -> bool:
    """Whether the micro-batch's run has committed writes of earlier micro-batches; False if unknown.

    ``counted``: as for ``write_number``.
    """
    return _first_batch(counted.get(batch.query), batch.run, batch.number) < batch.number


def count_write(query: str, run: str, batch: int, topic: TopicName | None) -> None:
    """Counts a committed write; other processes may count writes of the query at the same time.

    Raises SendError: the write cannot be counted, so the next write would get the same number.
    """
    try:
        with _files.locked():
            counted = _files.read(query)
            numbers, first = _numbers(counted, run, batch), _first_batch(counted, run, batch)
            numbers[str(topic)] = _next(numbers, topic) + 1
            _files.write(query, json.dumps([run, batch, numbers, first]))
    except (OSError, RuntimeError) as error:
        raise SendError(
            f"the rows are written, but the write could not be counted: {error}",
            topic=str(topic),
            advice="Make room on the driver's disk, and start the query again: it will find these rows",
        ) from error


def _numbers(text: str | None, run: str, batch: int) -> dict[str, int]:
    counted_run, counted_batch, numbers, _ = ("", -1, {}, -1) if text is None else json.loads(text)
    is_other_run = counted_run != run and _is_run_id(counted_run) and _is_run_id(run)
    return {} if counted_batch != batch or is_other_run else dict(numbers)


def _first_batch(text: str | None, run: str, batch: int) -> int:
    """Returns the number of the first micro-batch that the run has counted; ``batch`` if there is none."""
    counted_run, _, _, first = (run, -1, {}, batch) if text is None else json.loads(text)
    return first if counted_run == run and _is_run_id(run) else batch


def _next(numbers: Mapping[str, int], topic: TopicName | None) -> int:
    """Returns the next number: the maximum count of topics that may share partitions with ``topic``."""
    if topic is None:
        return max(numbers.values(), default=0)
    same, parts = {str(None), str(topic), str(topic.base)}, f"{topic.base}-partition-"
    is_whole = topic == topic.base
    return max(
        (count for name, count in numbers.items() if name in same or (is_whole and name.startswith(parts))),
        default=0,
    )


def _is_run_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
