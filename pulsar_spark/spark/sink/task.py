"""The work of one Spark task: sends its rows, in a transaction or deduplicated, and reports the totals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pulsar_spark.client import (
    IN_PARALLEL,
    Client,
    ProducerOptions,
    SegmentWriter,
    SentTotals,
    TaskPlace,
    TopicWriter,
    Transaction,
    UserCode,
    VersionedSchema,
    now,
    retry_count,
    shared_client,
    task_memory,
)
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.connection import encryptor_of
from pulsar_spark.spark.options.sink import Delivery, SinkOptions
from pulsar_spark.spark.options.user_code import load_class, load_function
from pulsar_spark.spark.processes import prepare_worker
from pulsar_spark.spark.rows.read import joined
from pulsar_spark.spark.rows.schema import SEQUENCE_ID
from pulsar_spark.spark.rows.write import MessageShape
from pulsar_spark.spark.sink.commit_log import QueryLog
from pulsar_spark.spark.sink.delivery import dedup_task, log_guarantee
from pulsar_spark.spark.sink.micro_batch import micro_batch
from pulsar_spark.spark.sink.report import TaskReport
from pulsar_spark.spark.sink.topic_encoders import topic_encoders, warn_of_bytes
from pulsar_spark.spark.sink.topic_writers import TopicWriters
from pulsar_spark.spark.sink.transactional import write_in_transaction

_log = logging.getLogger(__name__)


def write_task(
    options: SinkOptions,
    shape: MessageShape,
    schemas: Mapping[TopicName, VersionedSchema],
    batches: Iterator[pa.RecordBatch],
    log: QueryLog | None,
    writes: Mapping[str, str],
) -> WriterCommitMessage:
    """Sends the rows of one Spark partition; returns after the brokers have acknowledged all rows.

    ``schemas``: schemas that the driver has chosen, by topic. ``writes``: result of ``read_write_numbers``.
    ``log``: the query's commit log if there are transactions; None in a batch write.

    Raises:
        PulsarError: not all rows are acknowledged.
    """
    prepare_worker()
    if options.delivery is Delivery.EFFECTIVELY_ONCE and micro_batch() is None:
        return TaskReport({})  # finish_batch raises the error, because Spark would repeat a failed task
    client = shared_client(options.client)
    if options.transaction_timeout is None:
        return _send(client, options, shape, schemas, batches, None, writes)
    report = write_in_transaction(
        client,
        log,
        options.transaction_timeout,
        batches,
        lambda batches, transaction: _send(client, options, shape, schemas, batches, transaction, writes),
    )
    micro = None if log is None else micro_batch()
    if micro is None:
        return report
    # The driver counts a write with ``micro_batch``, so later micro-batches of the run do not read the log.
    return replace(report, micro_batch=(micro.query, micro.run, micro.number))


def _send(
    client: Client,
    options: SinkOptions,
    shape: MessageShape,
    schemas: Mapping[TopicName, VersionedSchema],
    batches: Iterator[pa.RecordBatch],
    transaction: Transaction | None,
    writes: Mapping[str, str],
) -> TaskReport:
    micro, retries_before = micro_batch(), retry_count()
    dedup = dedup_task(client, options, micro, writes, has_sequence_ids=SEQUENCE_ID in shape.reserved)
    producer, code = _producer_options(options, transaction), _user_code(options)
    chosen = topic_encoders(client, options, shape, schemas)
    began = now()
    memory = task_memory(producer)

    def open_writer(topic: TopicName, options: ProducerOptions) -> TopicWriter:
        kind = SegmentWriter if topic.is_scalable else TopicWriter
        return kind(
            client,
            topic,
            options,
            transaction=transaction,
            dedup=dedup,
            place=None if micro is None else TaskPlace(micro.number, micro.task),
            code=code,
            memory=memory,
        )

    schema_of = None if chosen is None else chosen.schema
    in_parallel = 1 if code.router is not None or code.interceptors else IN_PARALLEL
    with TopicWriters(
        open_writer, producer, in_parallel=in_parallel, dedup=dedup, schema_of=schema_of
    ) as writers:
        if chosen is not None and dedup is not None:
            chosen.follow(client, writers, dedup)
        for batch in joined(batches) if _may_join(shape, producer, code) else batches:
            messages = shape.messages(batch, chosen)
            while some := list(islice(messages, writers.in_parallel)):
                writers.send(some)
        if dedup is not None and dedup.may_be_replay and options.topic is not None:
            writers.of(options.topic)  # even without rows, because an earlier run may have written some
        writers.finish()
    if chosen is None and writers.topics:
        warn_of_bytes(client, next(iter(writers.topics)))
    guarantee = log_guarantee(options, micro, dedup)
    _log_sent(writers.sent, now() - began)
    # Not None if the task deduplicates, because the driver must count the write in this case.
    of_batch = None if micro is None or dedup is None else (micro.query, micro.run, micro.number)
    query = None if micro is None else micro.query
    report = TaskReport.of(writers.sent, query, retry_count() - retries_before)
    if dedup is not None:
        report = replace(report, origin=dedup.origin, replays=dedup.replays)
    return replace(report, warning=(dedup and dedup.warning) or guarantee, micro_batch=of_batch)


def _log_sent(sent: Mapping[TopicName, SentTotals], seconds: float) -> None:
    messages, size = sum(each.messages for each in sent.values()), sum(each.bytes for each in sent.values())
    _log.info(
        "%d messages (%d bytes) are stored in %d topic partitions after %.3f s",
        *(messages, size, len(sent), seconds),
    )


def _producer_options(options: SinkOptions, transaction: Transaction | None) -> ProducerOptions:
    """Returns the options of this task's producers. A name from the user is made unique to the task.

    In a transaction the name is unique to the transaction, too. Otherwise a broker with deduplication could
    drop messages as duplicates of an earlier transaction's. The sink could not detect this, because it cannot
    compare rows in transactions.
    """
    producer, context = options.producer, TaskContext.get()
    if producer.name is None:
        return producer
    parts = [producer.name]
    if context is not None:
        parts.append(str(context.partitionId()))
    if transaction is not None:
        parts += map(str, transaction.id)
    return replace(producer, name="-".join(parts))


def _may_join(shape: MessageShape, producer: ProducerOptions, code: UserCode) -> bool:
    """Whether record batches may be joined: no user code sees them, and a full queue is not an error.

    Record batches are not joined with key-based batching, because the producer itself collects rows.
    """
    is_seen = code.router is not None or bool(code.interceptors) or not producer.block_if_queue_full
    return shape.allows_joined_batches and not is_seen and not producer.is_key_based


def load_user_code(options: SinkOptions) -> tuple[Callable[..., Any] | None, list[type[Any]]]:
    """Imports the router and the classes of the interceptors; raises OptionError for a missing name."""
    router = None if options.router is None else load_function("messageRouter", options.router)
    methods = ("before_send", "on_send_acknowledgement")
    return router, [load_class("interceptors", name, *methods) for name in options.interceptors]


def _user_code(options: SinkOptions) -> UserCode:
    router, interceptors = load_user_code(options)
    return UserCode(
        router=router,
        encryptor=None if options.encryption is None else encryptor_of(options.encryption),
        interceptors=[made() for made in interceptors],
    )
