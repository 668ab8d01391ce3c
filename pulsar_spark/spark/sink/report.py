"""What a batch has written: from the tasks to the driver's log and to a function of the user's."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from pulsar_spark.client import SentTotals
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.user_code import load
from pulsar_spark.spark.sink.delivery import DedupAttempt

_log = logging.getLogger(__name__)

# Topic partitions that are told one by one in a log line.
_TOLD = 30

# Numbers of a partition: itself, messages, bytes, and two message ids, each of three numbers.
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
        last_id: of the last message, likewise. Other producers' messages may lie between the two.
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
        topics: by their names without the partition, of each partition its numbers.
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
                known = (None, None) if first == _NO_ID else (first, last)
                topic = base if number < 0 else base.of_partition(number)
                found[topic] = SentTotals(messages, size, *known)
        return found


def add_up(parts: Iterable[Mapping[TopicName, SentTotals]]) -> dict[TopicName, SentTotals]:
    """What several writers have sent to each topic partition together."""
    total: dict[TopicName, SentTotals] = {}
    for part in parts:
        for topic, sent in part.items():
            before = total.get(topic, SentTotals())
            ids = [one for one in (before.first_id, sent.first_id) if one is not None]
            ends = [one for one in (before.last_id, sent.last_id) if one is not None]
            total[topic] = SentTotals(
                before.messages + sent.messages,
                before.bytes + sent.bytes,
                min(ids, default=None),
                max(ends, default=None),
            )
    return total


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
    total = add_up(message.sent for message in messages if isinstance(message, TaskReport))
    figures = [
        TopicPartitionMetrics(str(topic), sent.messages, sent.bytes, sent.first_id, sent.last_id)
        for topic, sent in sorted(total.items(), key=lambda each: (each[0].base, each[0].partition))
    ]
    if _log.isEnabledFor(logging.INFO):
        told = "".join(f"; {each}" for each in figures[:_TOLD])
        more = f"; and {len(figures) - _TOLD} more" if len(figures) > _TOLD else ""
        _log.info(
            "%s is written: %d messages, %d bytes to %d topic partitions%s%s",
            "the batch" if batch is None else f"micro-batch {batch}",
            sum(each.messages for each in figures),
            sum(each.bytes for each in figures),
            len(figures),
            told,
            more,
        )
    if callback is not None:
        try:
            load("onBatchWritten", callback)(batch, figures)
        except Exception:  # noqa: BLE001 - a user's code, and no reason to write the batch again
            _log.exception("onBatchWritten failed; the batch is written all the same")
