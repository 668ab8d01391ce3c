"""What a batch has written: from the tasks to the driver's log and to a function of the user's."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from pulsar_spark.client import SentTotals
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.user_code import load
from pulsar_spark.spark.sink.other_tasks import DedupAttempt

_log = logging.getLogger(__name__)

# Topic partitions that a log line names one by one.
_MAX_LISTED = 30

# A topic partition in a report: its number, messages, bytes, and the first and last message id, each three
# numbers.
_Numbers = tuple[int, int, int, int, int, int, int, int, int]
_NO_ID = MessageId(-1, -1)


@dataclass(frozen=True, slots=True)
class TopicPartitionMetrics:
    """What was written to one topic partition.

    Attributes:
        topic: its full name.
        messages: acknowledged, with those that the broker had stored before.
        bytes: of their entries as they are stored: metadata and compressed payloads.
        first_id: of the first message; None where none is known: the broker had all of them before.
        last_id: of the last message; None where ``first_id`` is. Other producers' messages may lie between.
    """

    topic: str
    messages: int
    bytes: int
    first_id: MessageId | None
    last_id: MessageId | None

    def __str__(self) -> str:
        where = "" if self.first_id is None else f" from {self.first_id} to {self.last_id}"
        return f"{self.topic}: {self.messages} messages, {self.bytes} bytes{where}"


@dataclass(frozen=True, slots=True)
class TaskReport(WriterCommitMessage):
    """What a task reports to the driver: small when it is pickled, some 50 bytes a topic partition.

    Attributes:
        topics: for each topic, by its name without the partition, the numbers of each partition.
        attempt: where the micro-batch may be a replay.
    """

    topics: dict[str, list[_Numbers]]
    attempt: DedupAttempt | None = None

    @classmethod
    def of(cls, sent: Mapping[TopicName, SentTotals], attempt: DedupAttempt | None = None) -> TaskReport:
        """The report of what was sent to each topic partition."""
        topics: dict[str, list[_Numbers]] = {}
        for topic, part in sent.items():
            first, last = part.first_id or _NO_ID, part.last_id or _NO_ID
            ids = first.ledger, first.entry, first.batch_index, last.ledger, last.entry, last.batch_index
            numbers = topic.partition, part.messages, part.bytes, *ids
            topics.setdefault(str(topic.base), []).append(numbers)
        return cls(topics, attempt)

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """What was sent to each topic partition."""
        found = {}
        for name, partitions in self.topics.items():
            base = TopicName.parse(name)
            for number, messages, size, *ids in partitions:
                first, last = MessageId(*ids[:3]), MessageId(*ids[3:])
                known_ids = (None, None) if first == _NO_ID else (first, last)
                topic = base if number < 0 else base.of_partition(number)
                found[topic] = SentTotals(messages, size, *known_ids)
        return found


def add_up(parts: Iterable[Mapping[TopicName, SentTotals]]) -> dict[TopicName, SentTotals]:
    """The sum of what several writers have sent, by topic partition."""
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
            )
    return total


def metrics_of(messages: Iterable[WriterCommitMessage | None]) -> list[TopicPartitionMetrics]:
    """What all tasks have written to each topic partition, in the order of topics and partitions.

    Args:
        messages: the tasks' reports; what is no :class:`TaskReport` counts as nothing.
    """
    total = add_up(message.sent for message in messages if isinstance(message, TaskReport))
    return [
        TopicPartitionMetrics(str(topic), sent.messages, sent.bytes, sent.first_id, sent.last_id)
        for topic, sent in sorted(total.items(), key=lambda each: (each[0].base, each[0].partition))
    ]


def report_batch(
    messages: Iterable[WriterCommitMessage | None], batch: int | None, callback: str | None
) -> None:
    """Log what all tasks have written, one line, and give it to the user's function.

    Args:
        messages: the tasks' reports.
        batch: the number of the micro-batch; None: of a batch write.
        callback: dotted name of a function that takes ``batch`` and a list of :class:`TopicPartitionMetrics`,
            by topic. An error in it is logged, and that is all: what is written stays written.
    """
    metrics = metrics_of(messages)
    if _log.isEnabledFor(logging.INFO):
        listed = "".join(f"; {each}" for each in metrics[:_MAX_LISTED])
        more = f"; and {len(metrics) - _MAX_LISTED} more" if len(metrics) > _MAX_LISTED else ""
        _log.info(
            "%s is written: %d messages, %d bytes to %d topic partitions%s%s",
            "the batch" if batch is None else f"micro-batch {batch}",
            sum(each.messages for each in metrics),
            sum(each.bytes for each in metrics),
            len(metrics),
            listed,
            more,
        )
    if callback is not None:
        try:
            load("onBatchWritten", callback)(batch, metrics)
        except Exception:  # noqa: BLE001 - a user's code, and no reason to write the batch again
            _log.exception("onBatchWritten failed; the batch is written all the same")
