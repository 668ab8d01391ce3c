"""Reports of written rows: from tasks to the driver, and from there to its log and the user's function."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from pulsar_spark.client import Origin, Replay, SentTotals
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.spark.monitoring.driver_files import SinkTotals, add_sink_totals
from pulsar_spark.spark.options.user_code import load_function

_log = logging.getLogger(__name__)

# Maximum topic partitions that a log line lists one by one.
_MAX_LISTED = 30

# A topic partition in a report: ``TopicName.part``, messages, bytes, messages that an earlier run had stored,
# and the first and last message id as three numbers each.
_Numbers = tuple[str, int, int, int, int, int, int, int, int, int]
_NO_ID = MessageId(-1, -1)


@dataclass(frozen=True, slots=True)
class TopicPartitionMetrics:
    """Metrics of the rows written to one topic partition.

    Attributes:
        topic: full name of the topic partition.
        messages: acknowledged messages, including those that the broker had stored before.
        bytes: bytes of the messages' entries as stored at the broker: metadata and compressed payloads.
        first_id: id of the first message; None if unknown, because the broker had stored all messages before.
        last_id: id of the last message; None if ``first_id`` is None. Other producers' messages may lie
            between both.
        possible_duplicates: maximum number of duplicated messages; 0 unless an earlier run of the micro-batch
            has stored messages that differ, or that could not be compared.
    """

    topic: str
    messages: int
    bytes: int
    first_id: MessageId | None
    last_id: MessageId | None
    possible_duplicates: int = 0

    def __str__(self) -> str:
        where = "" if self.first_id is None else f" from {self.first_id} to {self.last_id}"
        return f"{self.topic}: {self.messages} messages, {self.bytes} bytes{where}"


@dataclass(frozen=True, slots=True)
class TaskReport(WriterCommitMessage):
    """A task's report to the driver. It is small when pickled: about 50 bytes per topic partition.

    Attributes:
        topics: ``_Numbers`` of each partition, by topic name without the partition.
        origin: numbers in the task's entries (batch, task, write, run); None without deduplication.
        replays: results for topics in which an earlier run has stored rows.
        query: id of the query; None in a plain batch write.
        warning: warning that the driver must log once.
        micro_batch: query, its run, and number of the micro-batch, if its writes are counted; otherwise None.
        log: topic of the query's log, if there are transactions; None in a batch write, which is never
            replayed.
        transaction: transaction with the task's rows; None without rows or transactions.
    """

    topics: dict[str, list[_Numbers]]
    origin: Origin | None = None
    replays: dict[TopicName, Replay] = field(default_factory=dict)
    query: str | None = None
    retries: int = 0
    warning: str | None = None
    micro_batch: tuple[str, str, int] | None = None
    log: TopicName | None = None
    transaction: TxnId | None = None

    @classmethod
    def of(
        cls, sent: Mapping[TopicName, SentTotals], query: str | None = None, retries: int = 0
    ) -> TaskReport:
        """Returns the report from the totals of each topic partition."""
        topics: dict[str, list[_Numbers]] = {}
        for topic, part in sent.items():
            first, last = part.first_id or _NO_ID, part.last_id or _NO_ID
            ids = first.ledger, first.entry, first.batch_index, last.ledger, last.entry, last.batch_index
            numbers = topic.part, part.messages, part.bytes, part.found, *ids
            topics.setdefault(str(topic.base), []).append(numbers)
        return cls(topics, query=query, retries=retries)

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """Returns the totals of each topic partition."""
        found = {}
        for name, partitions in self.topics.items():
            base = TopicName.parse(name, scalable=True)
            for part, messages, size, stored, *ids in partitions:
                first, last = MessageId(*ids[:3]), MessageId(*ids[3:])
                found[base.of_part(part)] = SentTotals(
                    messages,
                    size,
                    None if first == _NO_ID else first,
                    None if first == _NO_ID else last,
                    stored,
                )
        return found


def add_up(parts: Iterable[Mapping[TopicName, SentTotals]]) -> dict[TopicName, SentTotals]:
    """Adds up the totals of several writers, by topic partition."""
    total: dict[TopicName, SentTotals] = {}
    for part in parts:
        for topic, sent in part.items():
            others = total.get(topic, SentTotals())
            first_ids = [each for each in (others.first_id, sent.first_id) if each is not None]
            last_ids = [each for each in (others.last_id, sent.last_id) if each is not None]
            total[topic] = SentTotals(
                others.messages + sent.messages,
                others.bytes + sent.bytes,
                min(first_ids, default=None),
                max(last_ids, default=None),
                others.found + sent.found,
            )
    return total


def metrics_of(reports: Iterable[TaskReport], twice: Mapping[TopicName, int]) -> list[TopicPartitionMetrics]:
    """Returns the metrics of each topic partition over all tasks, in the order of topics and partitions.

    ``twice``: number of messages that may be duplicated, by topic partition.
    """
    total = add_up([*(report.sent for report in reports), dict.fromkeys(twice, SentTotals())])
    return [
        TopicPartitionMetrics(
            str(topic), sent.messages, sent.bytes, sent.first_id, sent.last_id, twice.get(topic, 0)
        )
        for topic, sent in sorted(total.items(), key=lambda each: (each[0].base, each[0].partition))
    ]


def report_batch(
    reports: Sequence[TaskReport],
    duplicates: Mapping[TopicName, int],
    batch: int | None,
    callback: str | None,
) -> None:
    """Logs the rows of all tasks, and reports them to the user's function and to the query's listener.

    ``batch``: id of the micro-batch; None in a batch write. ``callback``: dotted name of a function with the
    arguments ``batch`` and a list of :class:`TopicPartitionMetrics`, by topic. Its errors are only logged,
    because the rows are already written. ``duplicates``: possibly duplicated messages, by topic partition.
    """
    metrics = metrics_of(reports, duplicates)
    what = "the batch" if batch is None else f"micro-batch {batch}"
    total = SinkTotals(retries=sum(each.retries for each in reports))
    for each in metrics:
        total = total.plus(SinkTotals(each.messages, each.bytes, each.possible_duplicates))
    if _log.isEnabledFor(logging.INFO):
        _log.info(
            "%s is written: %d messages, %d bytes to %d topic partitions%s",
            *(what, total.messages, total.bytes, len(metrics)),
            "".join(f"; {each}" for each in _listed(list(map(str, metrics)))),
        )
    twice = [f"{each.topic}: {each.possible_duplicates}" for each in metrics if each.possible_duplicates]
    if twice:
        _log.warning(
            "%s ran before, and its rows differed or could not be compared: no row is missing, and up to %d "
            "messages may be duplicated (%s)",
            *(what, total.possible_duplicates, ", ".join(_listed(twice))),
        )
    query = next((each.query for each in reports if each.query is not None), None)
    if query is not None:
        add_sink_totals(query, total)
    if callback is not None:
        try:
            load_function("onBatchWritten", callback)(batch, metrics)
        except Exception:  # noqa: BLE001 - a user's code, and no reason to write the batch again
            _log.exception("onBatchWritten failed; the batch remains written")


def _listed(texts: Sequence[str]) -> Sequence[str]:
    left = len(texts) - _MAX_LISTED
    return texts if left <= 0 else [*texts[:_MAX_LISTED], f"and {left} more"]
