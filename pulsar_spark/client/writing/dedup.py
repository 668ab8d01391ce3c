"""DedupTask: which rows of a micro-batch are sent: each is stored once, however often its task is run.

A task has one producer name on each topic partition it writes to, so brokers admit one run of it at a time.
Each run reads what earlier runs have stored. Rows that are stored are not sent again (``StoredRows`` compares
them). Sequence ids only tell whether there is anything to read: those of a micro-batch begin at
its own number.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryptor
from pulsar_spark.client.reading.stored_run import StoredRun, stored_digests
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.errors import DuplicatesError, OptionError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.stored_rows import Rows, StoredRows, Words, extras_of, first_words
from pulsar_spark.protocol.writing.batcher import stable_order
from pulsar_spark.protocol.writing.routing import TaskPlace
from pulsar_spark.protocol.writing.sent_totals import SentTotals
from pulsar_spark.schema import Schema
from pulsar_spark.wire.columns.batches import encode_batch_messages
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.entry.origin import Origin

# Bytes of new rows that a strict task holds until it has found all stored rows.
_HELD_BYTES = 64 << 20

_log = logging.getLogger(__name__)

RoutedRows: TypeAlias = "tuple[MessageColumns, npt.NDArray[np.int32]]"


@dataclass(slots=True)
class PartitionRun:
    """A topic partition in this run of the task.

    Attributes:
        number: of the partition within the topic, from 0.
        name: of its producer.
        begin: id of the first entry that the task has stored there in the micro-batch; None if there is none.
        stored: what earlier runs have stored there.
        claimed: how many messages that are, at most, by the broker's last sequence id and those found.
        unread: how many messages may be stored that cannot be compared.
        last_sequence_id: that this run has sent, once its producer is closed.
        has_sent: whether this run has sent anything.
    """

    number: int
    name: str
    begin: MessageId | None = None
    stored: StoredRun = field(default_factory=StoredRun)
    claimed: int = 0
    unread: int = 0
    last_sequence_id: int = -1
    has_sent: bool = False


@dataclass(slots=True)
class TopicRun:
    """A topic in this run of the task.

    Attributes:
        stored: the rows that earlier runs have stored.
        rows: how many rows of this run have come.
        held: new rows of a strict task that wait until all stored ones were found, with their partitions.
        held_bytes: of the rows that came with them.
        others: first words of the digests of rows that other tasks have stored in earlier runs, sorted; None
            if they were not read.
        is_encrypted: whether its producers encrypt.
        schema: of its producers.
        partitions: those that were opened.
    """

    stored: StoredRows = field(default_factory=StoredRows)
    rows: int = 0
    held: list[RoutedRows] = field(default_factory=list)
    held_bytes: int = 0
    others: Words | None = None
    is_encrypted: bool = False
    schema: Schema | None = None
    partitions: dict[TopicName, PartitionRun] = field(default_factory=dict)

    @property
    def is_replay(self) -> bool:
        """Whether an earlier run has stored rows of the micro-batch in the topic, also another task's."""
        return any(each.stored.is_replay for each in self.partitions.values())


class Replay(NamedTuple):
    """What a task's run tells of the rows of a topic that earlier runs have stored.

    Attributes:
        missed: how many rows under its name it has not found.
        unread: how many messages may be stored under its name that cannot be compared.
        is_again: whether some stored rows were sent when others were stored.
    """

    missed: int
    unread: int
    is_again: bool


@dataclass(slots=True, eq=False)
class DedupTask:
    """The rows of one run of a task in one micro-batch, for all its topics.

    Attributes:
        client: where to connect.
        name: of its producers; no other task of any query may use it.
        origin: numbers of the micro-batch, from 0 to 2**31 - 2, of the task, the write and the run.
        secret: of the query, at most 64 bytes; entries are signed with it.
        required: whether a topic that does not deduplicate is an error.
        strict: whether it is an error if rows would be sent that may be stored already.
        may_be_replay: whether an earlier run may have written rows, as far as Spark tells.
        decryptor: of rows that earlier runs have encrypted.
        topics: those that were opened, as they are written to.
        warning: that the driver must log once; None if there is none.
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

    @property
    def place(self) -> TaskPlace:
        """What the task writes, by which rows without keys are spread."""
        return TaskPlace(self.origin.batch, self.origin.task)

    def check_name(self, topic: TopicName) -> None:
        """Raise OptionError if rows name a topic and one of its partitions: a task has one name there."""
        other = self._by_base.setdefault(topic.base, topic)
        if other != topic and topic.base in (topic, other):
            raise OptionError(
                f"rows of one task name the topic {topic.base} and also one of its partitions",
                topic=str(topic),
                advice="Name either the topic or its partitions in __topic, or set delivery=at-least-once",
            )

    def opens_all(self, topic: TopicName) -> bool:
        """Whether producers are opened also without rows, to find what earlier runs have stored anywhere.

        Spark does not report that it repeats a stage. Then the first rows of a task look for their copies in
        their own partitions only, and later rows in all partitions.
        """
        return self.may_be_replay or self.strict or self.run_of(topic).rows > 0

    def must_prove(self, topic: TopicName) -> bool:
        """Whether it must still be proven that a topic partition deduplicates."""
        return self.required and topic.base not in self._known

    def proven(self, topic: TopicName) -> None:
        """Note that a topic partition deduplicates."""
        self._known.add(topic.base)

    def spare_name(self, number: int) -> str:
        """A name for producers that nobody can know before it is used."""
        text = f"{self.name} {self.origin.batch} {number}".encode()
        return f"{self.name}-{hashlib.blake2b(text, key=self.secret, digest_size=6).hexdigest()}"

    def tell_unread(self, topic: TopicName, partition: PartitionRun) -> None:
        """Warn, or raise DuplicatesError if the task is strict, if stored messages cannot be read."""
        if partition.stored.unread is None or partition.unread:
            return
        partition.unread = partition.claimed
        text = (
            f"up to {partition.unread} messages that earlier runs of the micro-batch have stored cannot be "
            f"compared: {partition.stored.unread}"
        )
        if self.strict:
            raise self.duplicates(topic, text, "No row is sent")
        _log.warning(
            "%s: producer %s: %s. No row is missing, and these messages may be duplicated",
            *(topic, self.name, text),
        )

    def tell_late(self, topic: TopicName) -> None:
        """Note, or raise DuplicatesError if the task is strict, that a later micro-batch is written."""
        text = (
            f"micro-batch {self.origin.batch} is written after a later one: the checkpoint was set back or "
            "copied. Rows that equal stored ones are left out"
        )
        if self.strict:
            raise self.duplicates(topic, text, "No row is sent")
        self.warning = f"producers {self.name.rpartition('-')[0]}-*: {text}, and others may be duplicated"

    def duplicates(self, topic: TopicName, text: str, what: str) -> DuplicatesError:
        """Make the error of a strict task; ``what`` becomes of its rows."""
        return DuplicatesError(f"producer {self.name}: {text}. {what}", topic=str(topic))

    def stored_version(self, topic: TopicName) -> int | None:
        """The schema version that an earlier run wrote a topic's rows with; None if it is not known.

        Call it after the producers of the topic were opened. It is that of the first partition that has rows.
        """
        partitions = sorted(self.run_of(topic).partitions.values(), key=lambda each: each.number)
        versions = (each.stored.version for each in partitions)
        return next((version for version in versions if version is not None), None)

    def to_send(self, topic: TopicName, rows: RoutedRows, version: int | None) -> list[RoutedRows]:
        """Which of the next rows of a topic are sent now: those that no earlier run has stored.

        A strict task sends none before it has found all rows that are stored under its name. ``version`` is
        the number of the schema version that the rows are sent with, None without a schema.

        Raises:
            DuplicatesError: the task is strict, and the rows differ from those of an earlier run.
        """
        columns, partitions = rows
        run = self.run_of(topic)
        run.rows += len(columns)
        if not run.stored.has_more and not (self.strict and run.is_replay):
            return [rows]
        order = stable_order(partitions)
        deliver_at = np.full(len(columns), -1)
        if columns.deliver_at is not None:
            deliver_at = columns.deliver_at.fill_null(-1).to_numpy()[order]
        extras = extras_of(np.full(len(columns), -1 if version is None else version), deliver_at)
        bounds = np.searchsorted(partitions[order], np.arange(len(run.partitions) + 1)).tolist()
        encoded = Rows(encode_batch_messages(columns, order=order), extras)
        is_new = ~run.stored.take(encoded, bounds)
        for each, partition in run.partitions.items():
            self.tell_unread(each, partition)
        new = np.sort(order[is_new])
        found = columns.take(pa.array(new)), partitions[new]
        if not self.strict:
            return [found]
        if len(new):
            self._check_others(topic, run, first_words(encoded)[is_new])
            run.held.append(found)
            run.held_bytes += len(encoded.encoded.buffer)
        if run.stored.has_more:
            if run.held_bytes > _HELD_BYTES:
                self.check_held(topic)
            return []
        held, run.held, run.held_bytes = run.held, [], 0
        return held

    def check_held(self, topic: TopicName) -> None:
        """Raise DuplicatesError if new rows wait for stored ones to be found; call it when no more come."""
        if self.run_of(topic).held:
            text = "this run differs from an earlier one of the micro-batch: it lacks rows and has others"
            raise self.duplicates(topic, text, "None of these rows is sent")

    def _check_others(self, topic: TopicName, run: TopicRun, words: Words) -> None:
        """Raise DuplicatesError if another task has stored one of some rows, by words of their digests."""
        if run.others is None:
            found = [np.zeros(0, np.uint64)]
            for name in run.partitions:
                stored, tasks = stored_digests(self.client, name, self.secret, self.origin, self.decryptor)
                found.append(stored[tasks != self.origin.task])
            run.others = np.sort(np.concatenate(found))
        at = np.searchsorted(run.others, words)
        if (at < np.searchsorted(run.others, words, "right")).any():
            text = "another task has stored equal rows in an earlier run of the micro-batch"
            raise self.duplicates(topic, text, "None of these rows is sent")

    def finish(self) -> None:
        """Read what is left of the stored rows; no more rows come in this run."""
        for topic in self.topics:
            self.leave(topic)

    def leave(self, topic: TopicName) -> None:
        """Read all that is stored of a topic, so that no consumer stays open while its writer is closed.

        Raises:
            DuplicatesError: the task is strict, and stored messages cannot be compared.
        """
        run = self.run_of(topic)
        run.stored.read_rest()
        for each, partition in run.partitions.items():
            self.tell_unread(each, partition)

    def close(self) -> None:
        """Stop reading what is stored."""
        for run in self.topics.values():
            run.stored.close()

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """What earlier runs have stored of this run's rows."""
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
        """What this run tells of topics in which earlier runs have stored rows; call it after ``finish``."""
        return {
            topic: Replay(
                run.stored.missed(),
                sum(each.unread for each in run.partitions.values()),
                any(each.stored.is_again for each in run.partitions.values()),
            )
            for topic, run in self.topics.items()
            if run.is_replay or any(each.unread for each in run.partitions.values())
        }

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

    def run_of(self, topic: TopicName) -> TopicRun:
        """What is known of a topic, as it is written to."""
        return self.topics.setdefault(topic, TopicRun())


def last_sequence_id(
    client: Client, topic: TopicName, name: str, *, is_encrypted: bool, schema: Schema | None = None
) -> int:
    """The last sequence id that is stored under a producer's name; -1 if the broker knows none.

    The producer must not be open. A namespace may take none without its schema, or none that does not
    encrypt; no key is needed here.

    Raises:
        BrokerError: it cannot be found out within the operation timeout.
    """
    options = ProducerOptions(name=name, schema=schema)
    producer = Producer(client, topic, options, 1, is_encrypted=is_encrypted)
    producer.close()
    return producer.last_sequence_id
