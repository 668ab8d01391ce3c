"""The writers that Spark calls: ``write`` returns when brokers have acknowledged every row.

Spark runs a failed task again, and the next run of the query runs an unfinished micro-batch again;
``sink/delivery`` decides how rows that are already stored are treated. A writer is pickled to the tasks, with
the schema that the driver has chosen; ``write`` runs in worker processes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pulsar_spark.client import check_reachable, impatient_client, shared_client
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.connection import check_key_reader
from pulsar_spark.spark.options.sink import SinkOptions
from pulsar_spark.spark.options.user_code import load_function
from pulsar_spark.spark.processes import is_first_to_say, set_up_logs, warn_of_login
from pulsar_spark.spark.rows.schema import SEQUENCE_ID, ValueFormat
from pulsar_spark.spark.rows.write import MessageShape, message_shape
from pulsar_spark.spark.short_errors import short_errors
from pulsar_spark.spark.sink.delivery import decide_dedup, query_log
from pulsar_spark.spark.sink.driver import fail_batch, finish_batch
from pulsar_spark.spark.sink.micro_batch import micro_batch, read_write_numbers
from pulsar_spark.spark.sink.task import load_user_code, write_task
from pulsar_spark.spark.sink.topic_encoders import pinned_schemas, with_schemas
from pulsar_spark.spark.spark_api import DataSourceStreamArrowWriter

_log = logging.getLogger(__name__)


class _Writer:
    """Base of the batch and streaming writers; the constructor runs on the driver and checks the columns."""

    def __init__(self, options: SinkOptions, schema: StructType, *, is_batch: bool) -> None:
        set_up_logs(options.log_level)
        warn_of_login(options.client, options.transaction_log_key)
        latest = None
        if options.values.format is not ValueFormat.RAW:
            given = options.client
            with impatient_client(given) if is_batch else nullcontext(shared_client(given)) as client:
                options, latest = with_schemas(options, client)
        self._options = options
        self._shape = _shape(schema, options)
        if is_batch:
            check_reachable(options.client)
        self._schemas = pinned_schemas(options, self._shape, latest)
        self._writes = read_write_numbers()

    @short_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803
        """Commits the transactions of all tasks, which have all succeeded, and reports the rows."""
        set_up_logs(self._options.log_level)
        finish_batch(self._options, messages, batchId)

    @short_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803
        """Aborts the transactions of the tasks that have succeeded, because the write has failed."""
        set_up_logs(self._options.log_level)
        fail_batch(self._options, messages, batchId)


class PulsarWriter(_Writer, DataSourceArrowWriter):
    """A batch sink; the constructor fails if no broker is reachable, before any task runs."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten", advice='Write with .mode("append")')
        super().__init__(options, schema, is_batch=True)

    @short_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Sends the rows of one Spark partition."""
        set_up_logs(self._options.log_level)
        return write_task(self._options, self._shape, self._schemas, iterator, None, self._writes)


class PulsarStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A streaming sink; Spark makes one for each micro-batch. In complete mode it sends the whole result."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema, is_batch=False)

    @short_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Sends the rows of one Spark partition of a micro-batch."""
        set_up_logs(self._options.log_level)
        # Batch 0 fails early if no broker is reachable; later ones wait, because brokers may be restarting.
        batch = micro_batch()
        if batch is None or batch.number == 0:
            check_reachable(self._options.client)
        log = query_log(self._options, batch, self._writes)
        return write_task(self._options, self._shape, self._schemas, iterator, log, self._writes)


def _shape(schema: StructType, options: SinkOptions) -> MessageShape:
    if options.on_batch_written is not None:
        load_function("onBatchWritten", options.on_batch_written)
    load_user_code(options)
    if options.encryption is not None:
        check_key_reader(options.encryption.key_reader)
    shape = message_shape(schema, options.topic, upsert=options.upsert, values=options.values)
    has_ids = SEQUENCE_ID in shape.reserved
    decide_dedup(options.delivery, is_micro_batch=True, has_sequence_ids=has_ids, has_initial_id=False)
    if shape.ignored:
        _warn_of_ignored(shape.ignored)
    return shape


@lru_cache(maxsize=100)
def _warn_of_ignored(names: tuple[str, ...]) -> None:
    """Warns of these columns once per application, although Spark makes a new writer for each micro-batch."""
    if not is_first_to_say(f"not written: {names}"):
        return
    _log.warning("columns that only the source has are not written: %s", ", ".join(names))
