"""The delivery guarantee of a task's rows: effectively once if Spark numbers the micro-batch."""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Mapping
from enum import Enum, auto

from pulsar_spark.client import Client, Decryptor, DedupTask, Origin
from pulsar_spark.errors import OptionError, PulsarError, assert_never
from pulsar_spark.spark.options.connection import encryptor_of, own_decryptor
from pulsar_spark.spark.options.sink import Delivery, SinkOptions
from pulsar_spark.spark.processes import is_first_to_say
from pulsar_spark.spark.rows.schema import SEQUENCE_ID
from pulsar_spark.spark.sink.commit_log import LogProtection, QueryLog, log_topic, read_log_key
from pulsar_spark.spark.sink.micro_batch import MicroBatch, has_written_before, write_number

# Number of hexadecimal digits of the query id's hash in producer names.
_DIGITS = 16

_log = logging.getLogger(__name__)

# The warning about the delivery guarantee that the driver must log, by query id; None: no warning.
_warnings: dict[str | None, str | None] = {}


class Dedup(Enum):
    """A task's way to deduplicate its rows, see :func:`decide_dedup`."""

    NO = auto()
    WHERE_ENABLED = auto()
    REQUIRED = auto()


def decide_dedup(
    delivery: Delivery | None,
    *,
    is_micro_batch: bool,
    has_sequence_ids: bool,
    has_initial_id: bool,
) -> Dedup:
    """Decides how a task deduplicates its rows.

    ===============================  ============  ===========  ====================
    delivery                         micro-batch   row's ids    result
    ===============================  ============  ===========  ====================
    at-least-once, transactional     any           any          NO
    effectively-once                 any           yes          OptionError
    effectively-once                 no            no           OptionError
    effectively-once                 yes           no           REQUIRED
    not given                        no            any          NO
    not given                        yes           yes          NO
    not given                        yes           no           WHERE_ENABLED
    ===============================  ============  ===========  ====================

    REQUIRED fails if the broker has deduplication disabled; WHERE_ENABLED then writes at least once. If the
    user sets the initial sequence id, both become an OptionError, because the sink sets the sequence ids.
    """
    found = Dedup.NO
    match delivery:
        case Delivery.EFFECTIVELY_ONCE:
            found = Dedup.REQUIRED
            if has_sequence_ids:
                raise OptionError(
                    f"delivery=effectively-once cannot be used with a column {SEQUENCE_ID}: the sink sets "
                    "the sequence ids itself",
                    advice="Leave one of them out",
                )
            if not is_micro_batch:
                raise OptionError(
                    "delivery=effectively-once is not possible in a plain batch write: a second run of it "
                    "cannot be recognized",
                    advice="Write in a stream or in its foreachBatch, or set delivery=at-least-once",
                )
        case None:
            if is_micro_batch and not has_sequence_ids:
                found = Dedup.WHERE_ENABLED
        case Delivery.AT_LEAST_ONCE | Delivery.TRANSACTIONAL:
            pass
        case _:
            assert_never(delivery)
    if has_initial_id and found is not Dedup.NO:
        raise OptionError(
            "option initialSequenceId has no effect in a stream or in foreachBatch: the sequence ids come "
            "from the micro-batch, so that each row is written once",
            advice="Leave it out, or set delivery=at-least-once",
        )
    return found


def name_prefix(options: SinkOptions, batch: MicroBatch) -> str:
    """Returns the prefix of a query's producer names: the name without the number of the task.

    Every reader of the topic sees the names. So a name contains only a digest of the query's id, because the
    id is the secret that signs entries.
    """
    digest = hashlib.sha256(b"producer name " + batch.query.encode()).hexdigest()
    return f"{options.producer.name or 'spark'}-{digest[:_DIGITS]}"


def query_secret(query: str) -> bytes:
    """Returns the secret for signatures: a digest of the query's id, which only Spark knows."""
    return hashlib.sha256(b"origins " + query.encode()).digest()


def dedup_task(
    client: Client,
    options: SinkOptions,
    batch: MicroBatch | None,
    writes: Mapping[str, str],
    *,
    has_sequence_ids: bool,
) -> DedupTask | None:
    """Returns the state of this task's deduplication; None if the task does not deduplicate.

    ``writes``: result of ``read_write_numbers``. Raises the errors of :func:`decide_dedup`.
    """
    decision = decide_dedup(
        options.delivery,
        is_micro_batch=batch is not None,
        has_sequence_ids=has_sequence_ids,
        has_initial_id=options.producer.initial_sequence_id is not None,
    )
    if batch is None or decision is Dedup.NO:
        return None
    write, run = write_number(writes, batch, options.topic), zlib.crc32(batch.run.encode()) >> 1
    return DedupTask(
        client,
        f"{name_prefix(options, batch)}-{batch.task}",
        Origin(batch.number, batch.task, write, run=run),
        query_secret(batch.query),
        required=decision is Dedup.REQUIRED,
        strict=options.fail_on_duplicates,
        may_be_replay=batch.is_retried or not has_written_before(writes, batch),
        decryptor=own_decryptor(options.encryption).for_task() if options.encryption else Decryptor(),
    )


def log_protection(options: SinkOptions) -> LogProtection:
    """Returns how records of the commit log of transactions are signed and encrypted; reads the key.

    Raises:
        OptionError: the key cannot be read, or the reader of the encryption keys cannot be loaded.
    """
    place, encryption = options.transaction_log_key, options.encryption
    return LogProtection(
        key=None if place is None else read_log_key(place),
        encryptor=None if encryption is None else encryptor_of(encryption),
    )


def query_log(options: SinkOptions, batch: MicroBatch | None, writes: Mapping[str, str]) -> QueryLog | None:
    """Returns the settings of the query's transaction log; None without transactions or a micro-batch.

    ``writes``: result of ``read_write_numbers``. Raises as ``log_protection``.
    """
    if options.transaction_timeout is None or batch is None:
        return None
    topic, protection = log_topic(options.topic, batch.query), log_protection(options)
    return QueryLog(topic, batch.number, protection, may_be_replay=not has_written_before(writes, batch))


def log_guarantee(options: SinkOptions, batch: MicroBatch | None, dedup: DedupTask | None) -> str | None:
    """Logs the delivery guarantee, once for each query on a machine. Call it after all rows are written.

    Returns a warning for the driver to log once for all tasks, or None.
    """
    query = None if batch is None else batch.query
    if query not in _warnings:
        promised = _promised(options, query, dedup)
        if promised is None:
            return None
        said, _warnings[query] = promised
        # A query's first process on a machine logs it. A batch write has no id, so each process logs it.
        if said and (query is None or is_first_to_say(f"what is promised of query {query}")):
            _log.info("%s", said)
    return _warnings[query]


def _promised(
    options: SinkOptions, query: str | None, dedup: DedupTask | None
) -> tuple[str | None, str | None] | None:
    """Returns the INFO and the WARNING about the delivery guarantee; None if it is not known yet."""
    if options.delivery is Delivery.TRANSACTIONAL:
        return _promised_in_transactions(options, query)
    if dedup is None:
        return (
            "rows are written at least once, because of delivery=at-least-once or because this is a plain "
            "batch write"
        ), None
    try:
        is_deduplicated = dedup.deduplicates()
    except PulsarError as error:  # not raised, because all rows are written; a later task asks again
        _log.info("query %s: not known yet whether the broker has deduplication enabled: %s", query, error)
        return None
    if is_deduplicated is None:
        return None
    if is_deduplicated:
        return f"query {query}: each row is written effectively once", None
    return (
        None,
        f"query {query}: rows are written at least once, because the broker has deduplication disabled. "
        "Enable deduplication for the namespace, or set delivery=at-least-once to accept duplicates",
    )


def _promised_in_transactions(options: SinkOptions, query: str | None) -> tuple[str, str | None]:
    if query is None:
        return "rows are written in transactions, at least once, because this is a plain batch write", None
    warning = None
    if options.transaction_log_key is None:
        warning = (
            f"query {query}: everybody who may produce to {log_topic(options.topic, query)} can make the "
            "query leave rows out or write them twice. Let only the query's role produce to it, or set "
            "transactionLogKey"
        )
    return f"query {query}: each row is written once, in transactions", warning
