"""What is promised of the rows that a task writes: each once where Spark names the micro-batch, or not.

Spark tells tasks the query and the number of the micro-batch by local properties, in a stream and in what
foreachBatch writes; they are its internals, and absent in a plain batch write.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark import TaskContext

from pulsar_spark.client import Client, DedupTask, last_sequence_id, run_all
from pulsar_spark.errors import OptionError, PulsarError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.parse import SinkOptions
from pulsar_spark.spark.options.parsers import Delivery
from pulsar_spark.spark.rows.metadata_columns import SEQUENCE_ID

# Numbers of tasks in a row that wrote nothing, at which no more are looked for.
_GAP = 4

_log = logging.getLogger(__name__)

# Query runs, of which this process has written a micro-batch; queries of which it has told what is promised.
_runs: set[str] = set()
_told: set[str | None] = set()


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The micro-batch that a task writes a part of.

    Attributes:
        query: id of the query, the same after a restart.
        run: id of its run.
        number: of the micro-batch.
        task: number of the Spark partition.
        retried: whether this task was tried before.
    """

    query: str
    run: str
    number: int
    task: int
    retried: bool

    @property
    def may_be_a_replay(self) -> bool:
        """Whether an earlier run of the task may have written something: true once a run and process."""
        is_first = self.run not in _runs
        _runs.add(self.run)
        return is_first or self.retried


@dataclass(frozen=True, slots=True)
class DedupAttempt:
    """What the driver must know of a micro-batch that may be a replay.

    Attributes:
        prefix: of the producers' names, before the number of the task.
        first_sequence_id: of the micro-batch.
        topics: that a task wrote to, without their partitions.
    """

    prefix: str
    first_sequence_id: int
    topics: frozenset[TopicName]


def micro_batch() -> MicroBatch | None:
    """The one that this task writes a part of; None in a plain batch write."""
    context = TaskContext.get()
    if context is None:
        return None
    query, number = (
        context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId")
    )
    if query is None or number is None:
        return None
    run = context.getLocalProperty("spark.jobGroup.id") or query
    return MicroBatch(query, run, int(number), context.partitionId(), context.attemptNumber() > 0)


def name_prefix(options: SinkOptions, batch: MicroBatch) -> str:
    """The name of a query's producers, without the number of the task."""
    return f"{options.producer.name or 'spark'}-{batch.query}"


def dedup_task(
    client: Client, options: SinkOptions, batch: MicroBatch | None, *, numbered: bool
) -> DedupTask | None:
    """What makes each row of this task be stored once; None where it is at least once.

    Args:
        client: where to connect.
        options: of the sink.
        batch: the micro-batch.
        numbered: whether rows have sequence ids of their own.

    Raises:
        OptionError: effectively-once is asked for, and this is no micro-batch, or rows have ids.
    """
    required = options.delivery is Delivery.EFFECTIVELY_ONCE
    # A mark is a digest of what is not to be read: it is not added to encrypted entries unasked.
    if not required and (options.delivery or numbered or options.encryption):
        return None
    if numbered:
        raise OptionError(
            f"delivery is effectively-once, and rows have {SEQUENCE_ID}, by which the broker deduplicates",
            advice="Leave one of them out",
        )
    if batch is None:
        if required:
            raise OptionError(
                "delivery is effectively-once, and a second run of a plain batch write is not known as one",
                advice="Write in a stream or in its foreachBatch, or set delivery=at-least-once",
            )
        return None
    name = f"{name_prefix(options, batch)}-{batch.task}"
    return DedupTask(client, name, batch.number, batch.task, required=required)


def log_guarantee(options: SinkOptions, batch: MicroBatch | None, once: DedupTask | None) -> None:
    """Log what is promised, once for each query in a process; to be called when all is written."""
    query = None if batch is None else batch.query
    if query in _told:
        return
    deduplicates = None
    if once is not None:
        try:
            deduplicates = once.deduplicates()
        except PulsarError as error:  # all is written: only what is told of it has to wait
            _log.info("query %s: not known yet whether the broker deduplicates: %s", query, error)
        if deduplicates is None:
            return
    _told.add(query)
    if deduplicates:
        _log.info("query %s: each row is written effectively once", query)
    elif once is None or batch is None:
        _log.info("rows are written at least once: delivery is so, or this is a plain batch write")
    else:
        _log.warning(
            "query %s: rows are written at least once, because the broker does not deduplicate. Enable "
            "deduplication for the namespace, or set delivery=at-least-once to say that this is meant",
            query,
        )


def warn_of_other_tasks(client: Client, attempts: Iterable[DedupAttempt | None], tasks: int) -> None:
    """Warn where a task with a higher number than there are now has written rows of the same micro-batch.

    Args:
        client: where to connect.
        attempts: of the tasks; None where it is certain that the micro-batch is no replay.
        tasks: how many there are now.
    """
    known = [attempt for attempt in attempts if attempt is not None]
    if not known:
        return
    one = known[0]
    try:
        topics = sorted(frozenset[TopicName]().union(*(attempt.topics for attempt in known)))
        partitions = [each for topic in topics for each in client.partitions(topic)]
        found = _other_tasks(client, one, partitions, tasks)
    except PulsarError as error:
        _log.warning("producers %s-*: not known whether other tasks have written: %s", one.prefix, error)
        return
    if found:
        _log.warning(
            "producers %s-*: this run of the micro-batch is not the same as the one before: it has %d tasks, "
            "and task %d has written rows of it. None is missing, and up to %d messages may be there twice",
            *(one.prefix, tasks, max(found), sum(found.values())),
        )


def _other_tasks(
    client: Client, attempt: DedupAttempt, partitions: Sequence[TopicName], number: int
) -> dict[int, int]:
    """How many messages of the micro-batch tasks from ``number`` on have stored."""
    found: dict[int, int] = {}
    unknown = 0
    while unknown < _GAP:
        name = f"{attempt.prefix}-{number}"
        calls = [partial(last_sequence_id, client, topic, name) for topic in partitions]
        last = []
        for answer in run_all(calls):
            if isinstance(answer, PulsarError):
                raise answer
            last.append(answer)
        unknown = 0 if max(last, default=-1) >= 0 else unknown + 1
        stored = sum(max(0, one - attempt.first_sequence_id + 1) for one in last)
        if stored:
            found[number] = stored
        number += 1
    return found
