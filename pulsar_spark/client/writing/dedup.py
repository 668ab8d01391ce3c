"""DedupTask: producers that store each row of a micro-batch once, however often its task is run.

A task has one producer name on each topic partition it writes to, so brokers admit one run of it at a time.
Each run reads what earlier runs have stored. Rows that are stored are not sent again (``StoredRows`` compares
them). Sequence ids only tell whether there is anything to read: those of a micro-batch begin at
its own number.
"""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Flags
from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.writing.dedup_producer import DedupProducer, PartitionRun, TaskRun, TopicRun
from pulsar_spark.client.writing.interceptors import OnReceipt
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.client.writing.task_memory import TaskMemory
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.replay.stored_rows import Rows, extras_of
from pulsar_spark.protocol.writing.key_groups import stable_order
from pulsar_spark.protocol.writing.receipts import SentTotals
from pulsar_spark.schema import Schema
from pulsar_spark.wire.columns.batches import encode_batch_messages
from pulsar_spark.wire.columns.message_columns import MessageColumns

_DIFFERS = (
    "this run of the micro-batch differs from an earlier one: it lacks rows that are stored, and has others"
)

_log = logging.getLogger(__name__)


class DedupTask(TaskRun):
    """The rows of one run of a task in one micro-batch, for all its topics; see ``TaskRun``."""

    def open(
        self,
        topic: TopicName,
        partition: TopicName,
        number: int,
        options: ProducerOptions,
        partitions: int,
        *,
        memory: TaskMemory | None = None,
        encryptor: Encryptor | None = None,
        on_receipt: OnReceipt | None = None,
    ) -> DedupProducer:
        """Open the producer of a topic partition, for the first time or again; raises as ``DedupProducer``.

        If messages are stored already, it begins to read them. Producers of several partitions may be opened
        in parallel. The other arguments are those of ``DedupProducer``.

        Args:
            topic: as it is written to, with or without partitions.
            partition: one partition of it, or the topic itself.
            number: of the partition within the topic, from 0.
            options: how to send.
            partitions: how many the topic has.
            memory: see above.
            encryptor: see above.
            on_receipt: see above.
        """
        run = self._run_of(topic)
        run.is_encrypted, run.schema = encryptor is not None, options.schema
        at = run.partitions.get(partition) or PartitionRun(number, self.name)
        producer = DedupProducer(self, run, at, partition, options, partitions, memory, encryptor, on_receipt)
        run.partitions[partition] = at
        if producer.last_sequence_id >= 0:
            self.proven(partition)
        return producer

    def stored_version(self, topic: TopicName) -> int | None:
        """The schema version that an earlier run wrote a topic's rows with; None if it is not known.

        Call it after the producers of the topic were opened. It is that of the first partition that has rows.
        """
        partitions = sorted(self._run_of(topic).partitions.values(), key=lambda each: each.number)
        versions = (each.stored.version for each in partitions)
        return next((version for version in versions if version is not None), None)

    def new_rows(
        self,
        topic: TopicName,
        columns: MessageColumns,
        partitions: npt.NDArray[np.int32],
        version: int | None,
    ) -> Flags | None:
        """Which rows of a topic are to be sent, bool[n]: those that no earlier run has stored; None for all.

        Args:
            topic: as it is written to.
            columns: the next n rows of the topic.
            partitions: int32[n], the partition of each.
            version: number of the schema version that they are sent with; None without a schema.

        Raises:
            DuplicatesError: the task is strict, and the rows differ from those of an earlier run.
        """
        run = self._run_of(topic)
        run.rows += len(columns)
        if not run.stored.has_more:
            run.new_rows += len(columns)
            return None
        order = stable_order(partitions)
        deliver_at = np.full(len(columns), -1)
        if columns.deliver_at is not None:
            deliver_at = columns.deliver_at.fill_null(-1).to_numpy()[order]
        extras = extras_of(np.full(len(columns), -1 if version is None else version), deliver_at)
        bounds = np.searchsorted(partitions[order], np.arange(len(run.partitions) + 1)).tolist()
        rows = Rows(encode_batch_messages(columns, order=order), extras)
        is_new = np.empty(len(columns), np.bool_)
        is_new[order] = ~run.stored.take(rows, bounds)
        for each, partition in run.partitions.items():
            self.tell_unread(each, partition)
        if self.strict and is_new.any() and run.stored.differing(run.rows):
            raise self.duplicates(topic, _DIFFERS, "No more rows are sent")
        run.new_rows += int(np.count_nonzero(is_new))
        return is_new

    def finish(self) -> None:
        """Warn of rows that may be duplicated; no more rows come in this run."""
        for topic, run in self.topics.items():
            count = run.stored.differing(run.rows).total() if run.new_rows else 0
            if count:
                _log.warning(
                    "%s: producer %s: %s. No row is missing, and up to %d messages may be duplicated",
                    *(topic, self.name, _DIFFERS, count),
                )

    def leave(self, topic: TopicName) -> None:
        """Read all that is stored of a topic, so that no consumer stays open while its writer is closed.

        Raises:
            DuplicatesError: the task is strict, and stored messages cannot be compared.
        """
        run = self._run_of(topic)
        run.stored.read_rest()
        for each, partition in run.partitions.items():
            self.tell_unread(each, partition)

    def close(self) -> None:
        """Stop reading what is stored."""
        for run in self.topics.values():
            run.stored.close()

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """What earlier runs have stored of this run's rows, and what may be duplicated."""
        totals = {}
        for run in self.topics.values():
            found, missed = run.stored.found(), run.stored.missed(run.rows)
            for topic, partition in run.partitions.items():
                stored = found[partition.number]
                twice = missed[partition.number] + partition.unread if run.new_rows else 0
                if stored or twice:
                    totals[topic] = SentTotals(stored, possible_duplicates=twice)
        return totals

    def deduplicates(self) -> bool | None:
        """Whether the topics written to deduplicate; None if none was written to. Call it after writing."""
        if self._known:
            return True
        sent = (
            (topic, run)
            for run in self.topics.values()
            for topic, partition in run.partitions.items()
            if partition.has_sent
        )
        topic, run = next(sent, (None, None))
        if topic is None or run is None:
            return None
        name, encrypted = self.name, run.is_encrypted
        return last_sequence_id(self.client, topic, name, is_encrypted=encrypted, schema=run.schema) >= 0

    def _run_of(self, topic: TopicName) -> TopicRun:
        return self.topics.setdefault(topic, TopicRun())


def last_sequence_id(
    client: Client, topic: TopicName, name: str, *, is_encrypted: bool, schema: Schema | None = None
) -> int:
    """The last sequence id that is stored under a producer's name; -1 if the broker knows none.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions.
        name: of the producer, which must not be open.
        is_encrypted: whether the producer encrypts; no key is needed here.
        schema: of the producer; a namespace may take none without it.

    Raises:
        BrokerError: it cannot be found out within the operation timeout.
    """
    options = ProducerOptions(name=name, schema=schema)
    producer = Producer(client, topic, options, 1, is_encrypted=is_encrypted)
    producer.close()
    return producer.last_sequence_id
