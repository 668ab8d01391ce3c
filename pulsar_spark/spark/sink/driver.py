"""The driver's work after the tasks: commit, find duplicated rows, report; or abort."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial

from pyspark.sql.datasource import WriterCommitMessage

from pulsar_spark.client import (
    Client,
    Origin,
    Replay,
    SentTotals,
    find_stored_batch,
    possible_duplicates,
    run_all,
    shared_client,
)
from pulsar_spark.errors import DuplicatesError, PulsarError, SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.monitoring.driver_files import add_sink_topics
from pulsar_spark.spark.options.sink import SinkOptions
from pulsar_spark.spark.processes import is_first_to_say
from pulsar_spark.spark.sink.delivery import decide_dedup, log_protection, query_secret
from pulsar_spark.spark.sink.micro_batch import count_write
from pulsar_spark.spark.sink.report import TaskReport, add_up, report_batch
from pulsar_spark.spark.sink.transactional import abort_batch, commit_batch, commit_once

_log = logging.getLogger(__name__)

CommitMessages = Sequence[WriterCommitMessage | None]


def finish_batch(options: SinkOptions, messages: CommitMessages, batch: int | None) -> None:
    """Finishes a write whose tasks have all succeeded: commits the transactions, and reports the rows.

    ``batch``: id of the micro-batch; None in a batch write. ``messages``: reports of the tasks.

    Raises PulsarError: not all transactions are committed; or rows are duplicated, and the options make
    duplicates an error.
    """
    client, reports = shared_client(options.client), _reports(messages)
    query = next((each.query for each in reports if each.query is not None), None)
    if reports and query is None:  # without a query, effectively-once is an error; nothing is written
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
    return [message for message in messages if isinstance(message, TaskReport)]


def find_duplicates(
    client: Client, reports: Sequence[TaskReport], secret: bytes, *, strict: bool
) -> dict[TopicName, int]:
    """Counts the messages that may be duplicated (upper bound); call it after all tasks have ended.

    Rows may have moved to other tasks, and an earlier run may have had more tasks. So if a task has found
    rows of an earlier run in a topic, and the new rows may differ, all tasks' earlier rows are counted there.

    Args:
        strict: whether possible duplicates raise DuplicatesError, and a failed count raises PulsarError; else
            both are warnings.

    Returns:
        Number of messages by topic partition; partitions without any are left out.
    """
    twice: dict[TopicName, int] = {}
    totals: dict[TopicName, dict[TopicName, SentTotals]] = defaultdict(dict)
    all_totals = add_up(report.sent for report in reports)
    for name, of_name in all_totals.items():
        totals[name.base][name] = of_name
    replays: dict[TopicName, list[Replay]] = defaultdict(list)
    for report in reports:
        for topic, replay in report.replays.items():
            replays[topic].append(replay)
    origin = next((each.origin for each in reports if each.origin is not None), None)
    for topic in sorted(replays):
        own = totals[topic.base]
        total = own if topic == topic.base else {name: own[name] for name in [topic] if name in own}
        # The segments of a migrated topic include its classic partitions.
        segments = {segment for each in replays[topic] for segment in each.segments}
        total = total | {name: all_totals[name] for name in segments & all_totals.keys()}
        sent = {name: each.messages - each.found for name, each in total.items()}
        found = {name: each.found for name, each in total.items()}
        new = sum(sent.values())
        if origin is None or not (new or any(each.missed or each.is_again for each in replays[topic])):
            continue
        stored, error = _stored(client, topic, sorted(segments), secret, origin)
        if error is not None:
            if strict:
                raise error
            _log.warning("%s: not known how many messages earlier runs have stored: %s", topic, error)
        by_run = sum(stored.values(), Counter[int]())
        count = possible_duplicates(by_run, origin.run, new, sum(found.values()))
        unread = sum(each.unread for each in replays[topic])
        count = max(count, new if error is not None else min(unread, new))
        # A partition has at most as many duplicates as messages that this run has neither sent nor found.
        for name, each in stored.items():
            twice[name] = min(count, max(each.total() - sent.get(name, 0) - found.get(name, 0), 0))
            count -= twice[name]
        twice[topic] = twice.get(topic, 0) + count
    twice = {topic: count for topic, count in twice.items() if count}
    if strict and twice:
        raise DuplicatesError(
            "this run of the micro-batch differs from an earlier one, or its rows went to other tasks. All "
            f"rows are written, and up to {sum(twice.values())} messages are duplicated",
            topic=", ".join(map(str, sorted(twice))),
        )
    return twice


def _stored(
    client: Client, topic: TopicName, segments: Sequence[TopicName], secret: bytes, origin: Origin
) -> tuple[dict[TopicName, Counter[int]], PulsarError | None]:
    """Returns the counts of a micro-batch's stored messages, by partition and run; and an error or None.

    With an error, the counts lack messages. ``segments``: segments to search; none: the topic's partitions.
    """
    try:
        names = segments or client.partitions(topic)
    except PulsarError as error:
        return {}, error
    found = run_all([partial(find_stored_batch, client, name, secret, origin) for name in names])
    errors = [each for each in found if isinstance(each, PulsarError)]
    stored = {
        name: each.stored
        for name, each in zip(names, found, strict=True)
        if not isinstance(each, PulsarError)
    }
    return stored, next(iter(errors), None)
