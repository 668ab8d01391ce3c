"""DedupTask: chooses the rows of a micro-batch to send, so that all runs of a task store each row once.

A run is one execution of a Spark task for a micro-batch. All runs use one producer name on a topic partition,
so brokers admit one run at a time. Each run reads the rows that earlier runs have stored, and does not send
them again (``StoredRows`` compares them). Sequence ids only show whether there are rows to read, because each
micro-batch has another first id.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryptor
from pulsar_spark.client.reading.stored_run import StoredRun, stored_digests
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.errors import DuplicatesError, OptionError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.stored_rows import Rows, StoredRows, Words, extras_of, first_words
from pulsar_spark.protocol.replay.task_ids import IDS_PER_BATCH
from pulsar_spark.protocol.writing.batcher import stable_order
from pulsar_spark.protocol.writing.partition_writer import SentTotals
from pulsar_spark.protocol.writing.routing import Partitions, TaskPlace
from pulsar_spark.schema import Schema
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages
from pulsar_spark.wire.columns.message_columns import EncodedKeys, MessageColumns
from pulsar_spark.wire.entry.origin import Origin

# Maximum bytes of new rows that a strict task (see ``DedupTask``) holds until it has found all stored rows.
_HELD_BYTES = 64 << 20

_log = logging.getLogger(__name__)


class RoutedRows(NamedTuple):
    """n rows of one topic.

    Attributes:
        columns: the rows.
        keys: encoded keys of the rows.
        partitions: partition of each row, int32[n].
        hashes: bucket hash of each row of a scalable topic, uint32[n]; None for other topics.
    """

    columns: MessageColumns
    keys: EncodedKeys
    partitions: Partitions
    hashes: npt.NDArray[np.uint32] | None = None

    def take(self, rows: Ints) -> RoutedRows:
        """Returns the rows at the given indexes, in that order."""
        hashes = None if self.hashes is None else self.hashes[rows]
        columns, keys = self.columns.take(pa.array(rows)), self.keys.take(rows)
        return RoutedRows(columns, keys, self.partitions[rows], hashes)


@dataclass(slots=True)
class PartitionRun:
    """A topic partition or segment in this run of the task.

    Attributes:
        number: number of the partition within the topic, from 0, or index of the segment in ``names``.
        name: name of its producer.
        begin: id of the first entry that the task has stored in the micro-batch; None if there is none.
        stored: messages that earlier runs have stored.
        claimed: maximum number of stored messages, by the broker's last sequence id and the found entries.
        unread: number of stored messages that cannot be compared.
        last_sequence_id: last sequence id of this run, once its producer is closed.
        has_sent: whether this run has sent a message.
        has_older: whether the query has written an earlier micro-batch to the partition.
    """

    number: int
    name: str
    begin: MessageId | None = None
    stored: StoredRun = field(default_factory=StoredRun)
    claimed: int = 0
    unread: int = 0
    last_sequence_id: int = -1
    has_sent: bool = False
    has_older: bool = False


@dataclass(slots=True)
class TopicRun:
    """A topic in this run of the task.

    Attributes:
        stored: rows that earlier runs have stored.
        rows: number of rows that this run has received.
        held: new rows of a strict task, which wait until it has found all stored rows.
        held_bytes: encoded bytes of the record batches from which rows are held.
        others: first 8 bytes of the digest of each row that other tasks have stored in earlier runs, sorted;
            None if these rows were not read.
        is_encrypted: whether the topic's producers encrypt.
        schema: schema of its producers.
        partitions: opened or searched partitions.
        names: segments of a scalable topic; the index of a segment never changes. Empty for other topics.
        epoch: version of the topic's layout of segments before this run received its first row.
        since: first version of the layout that this process saw in the previous micro-batch; -1: unknown.
    """

    stored: StoredRows = field(default_factory=StoredRows)
    rows: int = 0
    held: list[RoutedRows] = field(default_factory=list)
    held_bytes: int = 0
    others: Words | None = None
    is_encrypted: bool = False
    schema: Schema | None = None
    partitions: dict[TopicName, PartitionRun] = field(default_factory=dict)
    names: list[TopicName] = field(default_factory=list)
    epoch: int = 0
    since: int = -1

    @property
    def is_replay(self) -> bool:
        """Whether an earlier run has stored rows of the micro-batch in the topic, by this task or another."""
        return any(each.stored.is_replay for each in self.partitions.values())

    @property
    def not_empty(self) -> list[TopicName]:
        """Returns the partitions that may have stored rows: all but empty sealed segments."""
        return [name for name, each in self.partitions.items() if not each.stored.is_empty]


class Replay(NamedTuple):
    """Figures of a task's run about the rows of a topic that earlier runs have stored.

    Attributes:
        missed: number of stored rows of the task that this run does not have.
        unread: number of stored messages of the task that cannot be compared.
        is_again: whether an earlier run that stored rows of the topic had itself found a still earlier run.
        segments: searched segments of a scalable topic, without empty sealed ones.
    """

    missed: int
    unread: int
    is_again: bool
    segments: Sequence[TopicName] = ()


@dataclass(slots=True, eq=False)
class DedupTask:
    """The rows of one run of a task in one micro-batch, for all its topics.

    Attributes:
        client: client of the cluster.
        name: name of its producers; no other task of any query may use it.
        origin: numbers of the micro-batch (0 to 2**31 - 2), the task, the write and the run.
        secret: secret of the query that signs entries, at most 64 bytes.
        required: whether a topic without deduplication at the broker is an error.
        strict: whether it is an error if rows to send may be stored already.
        may_be_replay: whether an earlier run may have written rows, by Spark's report or by found rows.
        decryptor: decryptor of rows that earlier runs have encrypted.
        topics: opened topics, by the names that rows use.
        warning: warning that the driver must log once, or None.
    """

    client: Client
    name: str
    origin: Origin
    secret: bytes = field(repr=False)
    _: KW_ONLY
    required: bool
    strict: bool = False
    may_be_replay: bool = True
    decryptor: Decryptor = field(default_factory=Decryptor)
    topics: dict[TopicName, TopicRun] = field(default_factory=dict, init=False)
    warning: str | None = field(default=None, init=False)
    _known: set[TopicName] = field(default_factory=set, init=False)
    _by_base: dict[TopicName, TopicName] = field(default_factory=dict, init=False)
    _warned: set[str] = field(default_factory=set, init=False)

    @property
    def place(self) -> TaskPlace:
        """Returns numbers of micro-batch and task, which determine the partitions of rows without keys."""
        return TaskPlace(self.origin.batch, self.origin.task)

    def check_name(self, topic: TopicName) -> None:
        """Raises OptionError if rows name a topic and also its partition: they share a producer name."""
        other = self._by_base.setdefault(topic.base, topic)
        if other != topic and topic.base in (topic, other):
            raise OptionError(
                f"rows of one task name the topic {topic.base} and also one of its partitions",
                topic=str(topic),
                advice="Name either the topic or its partitions in __topic, or set delivery=at-least-once",
            )

    def opens_all(self, topic: TopicName) -> bool:
        """Whether to open the producers of all partitions, and so search partitions without rows of this run.

        True in a possible replay, for a strict task, and after the first rows of this run. Spark does not
        report that it repeats a stage, so any run may be a replay.
        """
        return self.may_be_replay or self.strict or self.run_of(topic).rows > 0

    def take_stored(self, topic: TopicName, name: TopicName, partition: PartitionRun) -> None:
        """Adds a searched topic partition or segment, with the stored rows that were found there.

        Raises:
            DuplicatesError: the task is strict, and stored messages cannot be compared.
        """
        run, found = self.run_of(topic), partition.stored
        run.partitions[name] = partition
        if found.is_late:
            self.record_late(name)
        partition.begin = found.begin
        partition.has_older |= found.has_older
        self.may_be_replay |= found.begin is not None
        run.stored.add(partition.number, found.blocks)
        self.warn_unread(name, partition)

    def must_prove(self, topic: TopicName) -> bool:
        """Whether the broker must deduplicate the topic, and this is not proven yet."""
        return self.required and topic.base not in self._known

    def proven(self, topic: TopicName) -> None:
        """Records that brokers deduplicate the topic, as one of its partitions has proven."""
        self._known.add(topic.base)

    def spare_name(self, number: int) -> str:
        """Returns another producer name, which other programs cannot guess; ``number`` from 0."""
        text = f"{self.name} {self.origin.batch} {number}".encode()
        return f"{self.name}-{hashlib.blake2b(text, key=self.secret, digest_size=6).hexdigest()}"

    def warn_unread(self, topic: TopicName, partition: PartitionRun) -> None:
        """Warns if stored messages cannot be read; raises DuplicatesError if the task is strict."""
        stored = partition.stored
        if not (stored.copied_from or stored.unread) or partition.unread:
            return
        if stored.copied_from:
            partition.unread = IDS_PER_BATCH  # the maximum, because more copies may arrive later
            clusters = ", ".join(stored.copied_from)
            text = (
                f"the query has written the micro-batch in cluster {clusters} before. Rows that equal copies "
                "are left out, and others may be copied later. Finish a micro-batch before the query moves"
            )
        else:
            partition.unread = partition.claimed
            limit = "" if partition.unread == IDS_PER_BATCH else f"up to {partition.unread} "
            text = (
                f"{limit}messages that earlier runs of the micro-batch have stored cannot be compared: "
                f"{stored.unread}"
            )
        if self.strict:
            raise self.duplicates(topic, text, "No row is sent")
        if text not in self._warned:  # once, because thousands of old segments may have the same reason
            self._warned.add(text)
            _log.warning(
                "%s: producer %s: %s. No row is missing, and these messages may be duplicated",
                *(topic, self.name, text),
            )

    def record_late(self, topic: TopicName) -> None:
        """Records that a later micro-batch is already written; raises DuplicatesError for a strict task."""
        text = (
            f"micro-batch {self.origin.batch} is written after a later one: the checkpoint was set back or "
            "copied. Rows that equal stored ones are left out"
        )
        if self.strict:
            raise self.duplicates(topic, text, "No row is sent")
        self.warning = f"producers {self.name.rpartition('-')[0]}-*: {text}, and others may be duplicated"

    def duplicates(self, topic: TopicName, text: str, what: str) -> DuplicatesError:
        """Returns a strict task's error; ``text``: reason; ``what``: sentence about the rows not sent."""
        return DuplicatesError(f"producer {self.name}: {text}. {what}", topic=str(topic))

    def stored_version(self, topic: TopicName) -> int | None:
        """Returns the schema version of a topic's rows from an earlier run; None if unknown.

        Call it after the producers of the topic were opened. Partitions may differ; the first one decides.
        """
        partitions = sorted(self.run_of(topic).partitions.values(), key=lambda each: each.number)
        versions = (each.stored.version for each in partitions)
        return next((version for version in versions if version is not None), None)

    def to_send(self, topic: TopicName, rows: RoutedRows, version: int | None) -> list[RoutedRows]:
        """Returns the rows of a topic to send now; leaves out rows that an earlier run has stored.

        A strict task sends nothing before it has found all rows that are stored under its name. ``version``:
        number of the rows' schema version; None without a schema.

        Raises:
            DuplicatesError: the task is strict, and the rows differ from those of an earlier run.
        """
        columns, partitions = rows.columns, rows.partitions
        run = self.run_of(topic)
        run.rows += len(columns)
        if not run.stored.has_more and not (self.strict and run.is_replay):
            return [rows]
        order = stable_order(partitions)
        deliver_at = np.full(len(columns), -1)
        if columns.deliver_at is not None:
            deliver_at = columns.deliver_at.fill_null(-1).to_numpy()[order]
        extras = extras_of(np.full(len(columns), -1 if version is None else version), deliver_at)
        bounds = np.searchsorted(partitions[order], np.arange(partitions.max(initial=-1) + 2)).tolist()
        encoded = Rows(encode_batch_messages(columns, order=order), extras)
        is_new = ~run.stored.take(encoded, bounds)
        for each, partition in run.partitions.items():
            self.warn_unread(each, partition)
        found = rows.take(np.sort(order[is_new]))
        if not self.strict:
            return [found]
        if len(found.partitions):
            self._check_others(topic, run, first_words(encoded)[is_new])
            run.held.append(found)
            run.held_bytes += len(encoded.encoded.buffer)
        if run.stored.has_more:
            if run.held_bytes > _HELD_BYTES:
                self._check_held(topic)
            return []
        held, run.held, run.held_bytes = run.held, [], 0
        return held

    def _check_held(self, topic: TopicName) -> None:
        if self.run_of(topic).held:
            text = "this run differs from an earlier one of the micro-batch: it lacks rows and has others"
            raise self.duplicates(topic, text, "None of these rows is sent")

    def _check_others(self, topic: TopicName, run: TopicRun, words: Words) -> None:
        """Raises DuplicatesError if another task stored a row; ``words``: first 8 bytes of rows' digests."""
        if run.others is None:
            found = [np.zeros(0, np.uint64)]
            for name in run.not_empty:
                stored, tasks = stored_digests(self.client, name, self.secret, self.origin, self.decryptor)
                found.append(stored[tasks != self.origin.task])
            run.others = np.sort(np.concatenate(found))
        at = np.searchsorted(run.others, words)
        if (at < np.searchsorted(run.others, words, "right")).any():
            text = "another task has stored equal rows in an earlier run of the micro-batch"
            raise self.duplicates(topic, text, "None of these rows is sent")

    def finish(self) -> None:
        """Reads the remaining stored rows; call it after the last rows of this run.

        Raises:
            DuplicatesError: the task is strict, and new rows still wait for stored rows, or stored messages
                cannot be compared.
        """
        for topic in self.topics:
            self._check_held(topic)
            self.leave(topic)

    def leave(self, topic: TopicName) -> None:
        """Reads a topic's remaining stored rows, so that no consumer stays open after its writer.

        Raises:
            DuplicatesError: the task is strict, and stored messages cannot be compared.
        """
        run = self.run_of(topic)
        run.stored.read_rest()
        for each, partition in run.partitions.items():
            self.warn_unread(each, partition)

    def close(self) -> None:
        """Stops reading stored rows."""
        for run in self.topics.values():
            run.stored.close()

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """Returns each partition's totals of rows that count as sent, because earlier runs stored them."""
        totals = {}
        for run in self.topics.values():
            found = run.stored.found()
            for topic, partition in run.partitions.items():
                count = found[partition.number]
                if count:
                    totals[topic] = SentTotals(count, found=count)
        return totals

    @property
    def replays(self) -> dict[TopicName, Replay]:
        """Returns the figures of topics in which earlier runs have stored rows; call it after ``finish``."""
        return {
            topic: Replay(
                run.stored.missed(),
                sum(each.unread for each in run.partitions.values()),
                any(each.stored.is_again for each in run.partitions.values()),
                run.not_empty if run.names else (),
            )
            for topic, run in self.topics.items()
            if run.is_replay or any(each.unread for each in run.partitions.values())
        }

    def deduplicates(self) -> bool | None:
        """Whether brokers deduplicate the written topics; None if none was written. Call it after writing."""
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

    def run_of(self, topic: TopicName) -> TopicRun:
        """Returns the ``TopicRun`` of a topic, made at the first call; ``topic``: its name in the rows."""
        return self.topics.setdefault(topic, TopicRun())


def last_sequence_id(
    client: Client, topic: TopicName, name: str, *, is_encrypted: bool, schema: Schema | None = None
) -> int:
    """Returns the last sequence id that is stored under a producer's name; -1 if the broker knows none.

    The producer must not be open. Schema and encryption are needed if the namespace requires them; no key is
    needed here.

    Raises:
        BrokerError: no broker answered within the operation timeout.
    """
    options = ProducerOptions(name=name, schema=schema)
    producer = Producer(client, topic, options, 1, is_encrypted=is_encrypted)
    producer.close()
    return producer.last_sequence_id
