"""The writers that Spark calls: ``write`` returns when brokers have acknowledged every row.

A failed task is run again by Spark and an unfinished micro-batch by the next run of the query; what that
means for rows that are stored already is in ``delivery``. A writer is pickled to the tasks; ``write`` runs in
worker processes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pulsar_spark.client import (
    Client,
    Transaction,
    UserCode,
    shared_client,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.encryption import encryptor_of
from pulsar_spark.spark.options.parse import SinkOptions
from pulsar_spark.spark.options.user_code import load
from pulsar_spark.spark.plan.topics import check_reachable
from pulsar_spark.spark.rows.metadata_columns import SEQUENCE_ID
from pulsar_spark.spark.rows.write import MessageShape, message_shape
from pulsar_spark.spark.sink.commit_log import log_topic
from pulsar_spark.spark.sink.delivery import (
    DedupAttempt,
    dedup_task,
    log_guarantee,
    micro_batch,
    name_prefix,
    warn_of_other_tasks,
)
from pulsar_spark.spark.sink.report import TaskReport, report_batch
from pulsar_spark.spark.sink.topic_writers import TopicWriters
from pulsar_spark.spark.sink.transactional import (
    TransactionalTaskReport,
    abort_batch,
    commit_batch,
    commit_once,
    write_in_transaction,
)

_log = logging.getLogger(__name__)


class PulsarWriter(DataSourceArrowWriter):
    """A batch sink; made on the driver, where a bad address is found before any task runs."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten", advice='Write with .mode("append")')
        self._options = options
        self._shape = _shape(schema, options)
        check_reachable(options.client)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one Spark partition."""
        return _write(self._options, self._shape, iterator, log=None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have succeeded: commit their transactions, and tell what is written."""
        if self._options.transaction_timeout is not None:
            commit_once(shared_client(self._options.client), messages)
        _warn_of_other_tasks(self._options, messages)
        report_batch(_reports(messages), None, self._options.on_batch_written)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The write has failed: abort the transactions of the tasks that have succeeded."""
        if self._options.transaction_timeout is not None:
            abort_batch(shared_client(self._options.client), messages, -1)


class PulsarStreamWriter(DataSourceStreamArrowWriter):
    """A streaming sink, made by Spark for each micro-batch; in complete mode each sends the whole result."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._shape = _shape(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one Spark partition of a micro-batch."""
        # Later batches wait for a broker that restarts; the first one tells soon of a wrong address.
        batch = micro_batch()
        if batch is None or batch.number == 0:
            check_reachable(self._options.client)
        log = None if batch is None else log_topic(self._options.topic, batch.query)
        return _write(self._options, self._shape, iterator, log)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks have succeeded: commit their transactions, and tell what is written."""
        if self._options.transaction_timeout is not None:
            commit_batch(shared_client(self._options.client), messages, batchId)
        _warn_of_other_tasks(self._options, messages)
        report_batch(_reports(messages), batchId, self._options.on_batch_written)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The micro-batch has failed: abort the transactions of the tasks that have succeeded."""
        if self._options.transaction_timeout is not None:
            abort_batch(shared_client(self._options.client), messages, batchId)


def _warn_of_other_tasks(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    attempts = [message.attempt for message in messages if isinstance(message, TaskReport)]
    warn_of_other_tasks(shared_client(options.client), attempts, len(messages))


def _reports(messages: list[WriterCommitMessage | None]) -> list[WriterCommitMessage | None]:
    return [each.written if isinstance(each, TransactionalTaskReport) else each for each in messages]


def _shape(schema: StructType, options: SinkOptions) -> MessageShape:
    if options.on_batch_written is not None:
        load("onBatchWritten", options.on_batch_written)
    shape = message_shape(schema, options.topic, upsert=options.upsert)
    if shape.ignored:
        _warn_of_ignored(shape.ignored)
    return shape


@lru_cache(maxsize=100)
def _warn_of_ignored(names: tuple[str, ...]) -> None:
    """DedupTask for each set of columns in a process: a streaming query makes a writer for each batch."""
    _log.warning("not written, because only the source makes these columns: %s", ", ".join(names))


def _write(
    options: SinkOptions, shape: MessageShape, batches: Iterator[pa.RecordBatch], log: TopicName | None
) -> WriterCommitMessage:
    client = shared_client(options.client)

    def write(batches: Iterator[pa.RecordBatch], transaction: Transaction | None) -> TaskReport:
        return _send(client, options, shape, batches, transaction)

    if options.transaction_timeout is None:
        return write(batches, None)
    return write_in_transaction(client, log, options.transaction_timeout, batches, write)


def _send(
    client: Client,
    options: SinkOptions,
    shape: MessageShape,
    batches: Iterator[pa.RecordBatch],
    transaction: Transaction | None,
) -> TaskReport:
    producer = options.producer
    context = TaskContext.get()
    if producer.name is not None and context is not None:
        producer = replace(producer, name=f"{producer.name}-{context.partitionId()}")
    micro = micro_batch()
    once = dedup_task(client, options, micro, numbered=SEQUENCE_ID in shape.reserved)
    code = UserCode(
        router=None if options.router is None else load("messageRouter", options.router),
        encryptor=None if options.encryption is None else encryptor_of(options.encryption),
        interceptors=[load("interceptors", name)() for name in options.interceptors],
    )
    attempt = None
    with once or nullcontext():
        with TopicWriters(client, producer, transaction=transaction, once=once, code=code) as writers:
            for batch in batches:
                for topic, columns in shape.messages(batch):
                    writers.of(topic).send(columns)
            if once is not None and micro is not None and micro.may_be_a_replay:
                # An earlier run may have written to it, though this one has no rows.
                if options.topic is not None:
                    writers.of(options.topic)
                topics = frozenset(writers.topics)
                attempt = DedupAttempt(name_prefix(options, micro), once.first_sequence_id, topics)
            writers.finish()
        log_guarantee(options, micro, once)
    return TaskReport.of(writers.sent, attempt)
