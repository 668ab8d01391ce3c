"""The driver's work after the tasks: commit, find duplicated rows, report; or abort."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from pulsar_spark.client import shared_client
from pulsar_spark.errors import PulsarError, SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.monitoring.driver_files import add_sink_topics
from pulsar_spark.spark.options.sink import SinkOptions
from pulsar_spark.spark.processes import is_first_to_say
from pulsar_spark.spark.sink.delivery import decide_dedup, log_protection, query_secret
from pulsar_spark.spark.sink.duplicates import find_duplicates
from pulsar_spark.spark.sink.micro_batch import count_write
from pulsar_spark.spark.sink.report import TaskReport, report_batch
from pulsar_spark.spark.sink.transactional import abort_batch, commit_batch, commit_once

_log = logging.getLogger(__name__)

CommitMessages = Sequence[WriterCommitMessage | None]


def finish_batch(options: SinkOptions, messages: CommitMessages, batch: int | None) -> None:
    """Finishes a write whose tasks have all succeeded: commits the transactions, and reports the rows.

    ``batch``: id of the micro-batch; None in a batch write. ``messages``: reports of the tasks.

    Raises:
        PulsarError: not all transactions are committed; or rows are duplicated, and the options make
            duplicates an error.
    """
    client, reports = shared_client(options.client), _reports(messages)
    query = next((each.query for each in reports if each.query is not None), None)
    if reports and query is None:  # an error with effectively-once; then no row is written
        decide_dedup(options.delivery, is_micro_batch=False, has_sequence_ids=False, has_initial_id=False)
    if options.transaction_timeout is not None:
        if batch is None:
            commit_once(client, reports, options.transaction_timeout)
        else:
            commit_batch(client, reports, batch, log_protection(options), options.transaction_timeout)
    twice: dict[TopicName, int] = {}
    if query is not None:
        twice = find_duplicates(client, reports, query_secret(query), strict=options.fail_on_duplicates)
    of_batch = next((each.micro_batch for each in reports), None)
    if of_batch is not None:
        try:
            count_write(*of_batch, options.topic)
        except SendError as error:
            if batch is None:
                raise
            _log.warning("each micro-batch is searched for rows of an earlier run: %s", error)
    warnings = {each.warning for each in reports if each.warning}
    for warning in sorted(warnings):
        if is_first_to_say(warning):
            _log.warning("%s", warning)
    if query is not None:
        topics = {topic for each in reports for topic in each.topics}
        add_sink_topics(query, options.client.service_url, topics)
    report_batch(reports, twice, batch, options.on_batch_written)


def fail_batch(options: SinkOptions, messages: CommitMessages, batch: int | None) -> None:
    """Aborts the transactions of the tasks that have succeeded, because the write has failed.

    Arguments as for :func:`finish_batch`; the report of a failed task is None. An error here is only logged,
    because raising it would hide the cause of the failed write in Spark.
    """
    if options.transaction_timeout is None:
        return
    number = -1 if batch is None else batch
    try:
        abort_batch(shared_client(options.client), _reports(messages), number, log_protection(options))
    except PulsarError as error:
        _log.warning("transactions of the failed write stay open until they time out: %s", error)


def _reports(messages: CommitMessages) -> list[TaskReport]:
    """Returns the reports of the tasks that have succeeded."""
    return [message for message in messages if isinstance(message, TaskReport)]
