"""The readers that Spark calls, with Spark's method names; decisions are in :mod:`plan` and :mod:`row_plan`.

In a stream all methods except ``read`` run in one planner process for each run of a query. ``read`` runs in
worker processes on another copy of the reader, which has only the options and the input partition.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_spark.client import (
    Client,
    Entries,
    LostRange,
    Range,
    RangeEntries,
    now,
    prefetch,
    read_ranges,
    shared_client,
)
from pulsar_spark.errors import PulsarError, TopicNotFoundError
from pulsar_spark.spark.monitoring.driver_files import PlannerFile
from pulsar_spark.spark.options.connection import decryptor_of
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.batch import plan_read
from pulsar_spark.spark.plan.data_loss import LossReporter
from pulsar_spark.spark.plan.offsets import Json, OffsetCache
from pulsar_spark.spark.plan.ranges import Task, share_tasks
from pulsar_spark.spark.plan.stream import QueryPlanner
from pulsar_spark.spark.processes import prepare_worker, set_up_logs, warn_of_login
from pulsar_spark.spark.row_plan import RowPlan, plan_rows
from pulsar_spark.spark.rows.read import joined, record_batches
from pulsar_spark.spark.short_errors import short_errors, with_short_errors
from pulsar_spark.spark.spark_api import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

_log = logging.getLogger(__name__)

# Number in the ReadLimit for Spark, which requires one; the number is not used.
_LIMITED = 1


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming source. Later calls raise the constructor's errors, because Spark would replace them there.

    ``rows``: plan of rows that was made for the schema; None if Spark did not request the schema.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, rows: RowPlan | None = None) -> None:
        self._options = dict(options)
        self._started: QueryPlanner | None = None
        self._file = PlannerFile()
        self._offsets = OffsetCache()
        self._rows: RowPlan | PulsarError
        try:
            self._rows = plan_rows(parse_source(self._options, Mode.STREAM), rows, schema)
        except PulsarError as error:
            self._rows = error

    @short_errors
    def initialOffset(self) -> Json:  # noqa: N802
        """Returns the start of a new query; creates or opens its durable subscription.

        Spark calls it twice in a first batch.
        """
        return self._offsets.to_json(self._planner().initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns a placeholder for the user's limits, because a ReadLimit of Spark has only one limit.

        Spark passes the placeholder to ``latestOffset``, or ReadAllAvailable if no limit applies.
        """
        return ReadMaxRows(_LIMITED)

    @short_errors
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Returns the next end within the user's limits; ``start`` itself if there are no new messages.

        If Spark calls repeatedly, waits a moment for new entries, because waiting costs less than more calls
        and finds entries sooner.
        """
        return self._next_end(start, limited=not isinstance(limit, ReadAllAvailable))

    def _next_end(self, start: Json, *, limited: bool) -> Json:
        planner = self._planner()
        position = self._offsets.from_json(start)
        planner.await_news()
        end = planner.latest(position, limited=limited)
        return start if end is position else self._offsets.to_json(end)

    @short_errors
    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Returns the partitions' ends and backlogs; Spark shows them as ``latestOffset`` of the progress."""
        report = self._planner().report()
        self._file.write(report)
        return report

    @short_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fixes the end of the run at the present ends of the topics. Spark calls this method first."""
        self._planner().freeze()

    @short_errors
    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Returns the tasks for partitions with new messages. Spark may call it first after a restart."""
        begin = self._offsets.from_json(start)
        ranges = self._planner().ranges(begin, self._offsets.from_json(end))
        return _partitions(parse_source(self._options, Mode.STREAM), ranges)

    @short_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task: its ranges one after another, each in the order of messages."""
        return _read(parse_source(self._options, Mode.STREAM), self._planned_rows(), partition)

    @short_errors
    def commit(self, end: Json) -> None:
        """Repeats acknowledgements that failed in ``latestOffset``.

        ``end`` is not used, because ``latestOffset`` has already acknowledged the same offset, its ``start``.
        Topics in ``end`` may be deleted by now. Spark calls no ``commit`` for a run's last batch.
        """
        self._planner().commit()

    @short_errors
    def stop(self) -> None:
        """Closes the subscription."""
        if self._started is not None:
            # Spark closes the pipe and sends SIGTERM, in any order. SIGTERM must not interrupt the closing.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._file.remove()
            self._started.close()

    def _planner(self) -> QueryPlanner:
        if self._started is None:
            self._planned_rows()
            options = parse_source(self._options, Mode.STREAM)
            set_up_logs(options.log_level)
            warn_of_login(options.client)
            # Spark may send SIGTERM without calling stop(). The handler raises SystemExit, so the planner's
            # finally block runs.
            signal.signal(signal.SIGTERM, _exit)
            self._started = QueryPlanner(options)
        return self._started

    def _planned_rows(self) -> RowPlan:
        if isinstance(self._rows, PulsarError):
            raise self._rows
        return self._rows


class PulsarReader(DataSourceReader):
    """A batch source: the messages in the topics at planning. Arguments as in :class:`PulsarStreamReader`."""

    def __init__(self, options: Mapping[str, str], schema: StructType, rows: RowPlan | None = None) -> None:
        self._options = parse_source(options, Mode.BATCH)
        self._rows = plan_rows(self._options, rows, schema)

    @short_errors
    def partitions(self) -> list[InputPartition]:
        """Returns the tasks for topic partitions with messages. Spark requires a list, of any length."""
        set_up_logs(self._options.log_level)
        warn_of_login(self._options.client)
        return _partitions(self._options, plan_read(self._options))

    @short_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task; no rows for the partition that Spark makes if no task exists."""
        return _read(self._options, self._rows, partition)


def _partitions(options: SourceOptions, ranges: Sequence[Range]) -> list[InputPartition]:
    tasks = share_tasks(
        ranges, min_tasks=options.min_partitions, max_messages=options.max_messages_per_partition
    )
    return [InputPartition(each) for each in tasks]


def _read(options: SourceOptions, rows: RowPlan, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    prepare_worker()
    set_up_logs(options.log_level)
    task: Task = partition.value or ()
    return with_short_errors(_prefetched(_task_batches(options, rows, task))) if task else iter(())


def _prefetched(batches: Generator[pa.RecordBatch, None, None]) -> Iterator[pa.RecordBatch]:
    # ``prefetch`` is closed first, because its thread may be using ``batches``.
    with closing(batches), closing(prefetch(batches)) as made:
        yield from made


def _task_batches(options: SourceOptions, rows: RowPlan, task: Task) -> Generator[pa.RecordBatch, None, None]:
    client = shared_client(options.client)
    losses = LossReporter(fail_on_data_loss=options.fail_on_data_loss)
    opened = read_ranges(
        client,
        task,
        poll_timeout=options.poll_timeout,
        fail_on_data_loss=options.fail_on_data_loss,
        read_compacted=options.read_compacted,
        chunks=options.chunks,
        decryptor=decryptor_of(options.decryption).for_task(),
    )
    batches_of = partial(
        record_batches,
        columns=rows.columns,
        max_rows=rows.max_rows,
        leave_out_corrupt=not options.fail_on_data_loss,
        max_message_size=client.max_message_size,
    )
    with closing(opened):
        ranges = (
            RangeEntries(each.topic, _until_deleted(each, entries, losses), each.start, each.end, each.copies)
            for each, entries in zip(task, opened, strict=True)
        )
        if rows.reader is None:
            yield from batches_of(ranges)
        else:
            # Ranges are decoded separately, because their schemas may differ. Record batches of short ranges
            # are small. They are joined, because each batch has a fixed cost.
            typed = _typed_batches(client, options, rows, task, ranges, batches_of, losses)
            yield from joined(typed) if len(task) > 1 else typed


def _typed_batches(
    client: Client,
    options: SourceOptions,
    rows: RowPlan,
    task: Task,
    ranges: Iterable[RangeEntries],
    batches_of: Callable[..., Iterator[pa.RecordBatch]],
    losses: LossReporter,
) -> Iterator[pa.RecordBatch]:
    for each, entries in zip(task, ranges, strict=True):
        values = rows.values(client, each.topic, options.values, ledger=each.end.ledger)
        try:
            yield from batches_of([entries], values=values)
        except TopicNotFoundError:  # from a request for a schema
            losses.lost(each.topic, _deleted(each))


def _until_deleted(asked: Range, entries: Iterator[Entries], losses: LossReporter) -> Iterator[Entries]:
    """Yields the entries. A topic that is deleted before or during the read is reported as data loss."""
    began, messages, size = now(), 0, 0
    is_logged = _log.isEnabledFor(logging.INFO)
    try:
        for each in entries:
            if is_logged:
                messages += int(np.maximum(each.messages, 1).sum())
                size += int(each.sizes.sum())
            yield each
    except TopicNotFoundError:
        losses.lost(asked.topic, _deleted(asked))
        return
    if is_logged:
        _log.info(
            "%s (%s, %s]: %d messages (%d bytes) in %.3f s",
            *(asked.topic, asked.start, asked.end, messages, size, now() - began),
        )


def _deleted(asked: Range) -> LostRange:
    return LostRange(asked.start, asked.end, "the topic was deleted")


def _exit(number: int, frame: FrameType | None) -> Any:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)
