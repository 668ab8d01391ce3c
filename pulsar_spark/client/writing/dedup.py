"""DedupTask: producers that store each message of a micro-batch once, however often its task is run.

A task has one producer name on each topic partition it writes to, and its sequence ids begin at a number that
the micro-batch gives. So a broker that deduplicates says how many of them are stored (``last_sequence_id``).
What becomes of those is decided by :class:`~pulsar_spark.protocol.dedup_replay.DedupReplay`.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby, islice
from types import TracebackType

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.reading.last_stored import find_last_stored
from pulsar_spark.client.writing.interceptors import OnReceipt
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.client.writing.spool import FileSpool
from pulsar_spark.client.writing.task_memory import TaskMemory
from pulsar_spark.errors import AuthError, DuplicatesError, OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.protocol.dedup_replay import (
    IDS_PER_BATCH,
    DedupReplay,
    Item,
    StoredRun,
    Verdict,
    count_stored,
    has_digest,
    judge_stored_run,
)
from pulsar_spark.protocol.key_groups import RunEnds
from pulsar_spark.protocol.receipts import SentTotals
from pulsar_spark.protocol.routing import TaskPlace
from pulsar_spark.protocol.stored_check import foreign_writes
from pulsar_spark.wire.dedup_mark import INVISIBLE, read_dedup_mark, read_run_ends
from pulsar_spark.wire.schemas.schema import Schema
from pulsar_spark.wire.schemas.wire_schema import from_wire_version
from pulsar_spark.wire.singles import EncodedSingle

# Items sent in one call when those held back are released.
_GROUP = 100

_log = logging.getLogger(__name__)


class DedupTask:
    """The messages of one run of a task in one micro-batch, for all its topics; a context manager.

    Args:
        client: where to connect.
        name: of its producers; no other task of any query may use it.
        batch: number of the micro-batch, from 0 to 2**31 - 2.
        task: number of the Spark partition; rows without a key begin at a partition that depends on both.
        required: whether a topic that does not deduplicate, or cannot be read to compare, is an error.
        strict: whether it is also an error if rows would be sent that may be stored already.
    """

    def __init__(
        self, client: Client, name: str, batch: int, task: int, *, required: bool, strict: bool = False
    ) -> None:
        self.client = client
        self.name = name
        self.place = TaskPlace(batch, task)
        # Batch 0 also has an id before its first one, which the proof of deduplication uses.
        self.first_sequence_id = (batch + 1) * IDS_PER_BATCH
        self.required = required
        self.strict = strict
        self._replays: dict[TopicName, DedupReplay] = {}
        self._known: set[TopicName] = set()
        self._run_ends: dict[TopicName, RunEnds] = {}
        self.adding = threading.Lock()  # of ends of runs, as several partitions are opened at once
        self._is_encrypted = False
        self._schemas: dict[TopicName, Schema | None] = {}
        self._stored_versions: dict[TopicName, int] = {}

    def __enter__(self) -> DedupTask:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for replay in self._replays.values():
            replay.close()

    def open(
        self,
        topic: TopicName,
        options: ProducerOptions,
        partitions: int,
        *,
        memory: TaskMemory | None = None,
        encryptor: Encryptor | None = None,
        on_receipt: OnReceipt | None = None,
        run_ends: RunEnds | None = None,
    ) -> DedupProducer:
        """Open the producer of a topic partition, for the first time or again; raises as ``Producer``.

        It may take two operation timeouts if messages are stored already. Producers of several partitions may
        be opened in parallel.
        """
        self._is_encrypted = encryptor is not None
        self._schemas[topic] = options.schema
        replay = self._replays.get(topic)
        producer = DedupProducer(
            self, topic, options, partitions, replay, memory, encryptor, on_receipt, run_ends
        )
        self._replays[topic] = producer.replay
        if producer.stored_version is not None:
            self._stored_versions[topic] = producer.stored_version
        if producer.last_sequence_id >= 0:
            self.proven(topic)
        return producer

    def must_prove(self, topic: TopicName) -> bool:
        """Whether it must still be proven, before anything is sent, that a topic partition deduplicates."""
        return self.required and topic.base not in self._known

    def proven(self, topic: TopicName) -> None:
        """Note that a topic partition deduplicates."""
        self._known.add(topic.base)

    def run_ends(self, topic: TopicName) -> RunEnds:
        """Where runs have ended, by numbers of the rows of a topic as it is written to."""
        return self._run_ends.setdefault(topic, RunEnds())

    def stored_version(self, topic: TopicName) -> int | None:
        """The schema version that an earlier run wrote a topic's rows with; None if it is not known.

        Call it after the producers of the topic were opened. It is that of the first partition that has rows.
        """
        versions = self._stored_versions
        found = [partition for partition in versions if partition.base == topic.base]
        return versions[min(found, key=lambda partition: partition.partition)] if found else None

    @property
    def unfinished(self) -> set[TopicName]:
        """Topics, without their partitions, of which fewer messages have come than are stored."""
        return {topic.base for topic, replay in self._replays.items() if replay.verdict is Verdict.OPEN}

    def deduplicates(self) -> bool | None:
        """Whether the topics written to deduplicate; None if none was written to. Call it after writing."""
        if self._known:
            return True
        sent = [topic for topic, replay in self._replays.items() if replay.messages]
        if not sent:
            return None
        last = last_sequence_id(
            self.client,
            sent[0],
            self.name,
            is_encrypted=self._is_encrypted,
            schema=self._schemas[sent[0]],
        )
        return last >= 0


class DedupProducer(Producer):
    """A producer on one topic partition that leaves out what an earlier run of its task has stored.

    Args:
        dedup: the task.
        topic: one partition, or a topic without partitions.
        options: how to send; the name and the initial sequence id are not used.
        partitions: how many producers share the topic's limit of unacknowledged messages.
        replay: what was sent there in this run, if the producer was open before, else None.
        memory: as :class:`Producer` takes it.
        encryptor: of all payloads, or None.
        on_receipt: as :class:`Producer` takes it; not called for messages that are left out.
        run_ends: those that are stored are added to, and that marks say; None for none.

    Attributes:
        replay: what is sent there in this run.
        last_sequence_id: the last that is stored under the task's name; -1 if the broker knew none.
        stored_version: the version of the schema that an earlier run of the micro-batch wrote by; None if
            there was none, if it wrote without a schema, or this is not known.

    Raises:
        SendError: another run of the task has written meanwhile.
        DuplicatesError: the task is strict, and the stored messages cannot be compared. Other calls raise it
            if the rows differ from the stored ones; none of them is sent.
    """

    def __init__(
        self,
        dedup: DedupTask,
        topic: TopicName,
        options: ProducerOptions,
        partitions: int,
        replay: DedupReplay | None,
        memory: TaskMemory | None = None,
        encryptor: Encryptor | None = None,
        on_receipt: OnReceipt | None = None,
        run_ends: RunEnds | None = None,
    ) -> None:
        self._dedup = dedup
        self._run_ends = run_ends or RunEnds()
        self._partitions = partitions
        self._encryptor = encryptor
        self._left_out = 0
        self.stored_version: int | None = None
        self._possible_duplicates = 0
        super().__init__(
            dedup.client,
            topic,
            replace(options, name=dedup.name, initial_sequence_id=None),
            partitions,
            first_sequence_id=dedup.first_sequence_id + (0 if replay is None else replay.messages),
            encryptor=encryptor,
            on_receipt=on_receipt,
            memory=memory,
        )
        try:
            if replay is not None and replay.is_foreign(self.last_sequence_id, dedup.first_sequence_id):
                raise foreign_writes(str(topic), dedup.name)
            self.replay = self._new_replay() if replay is None else replay
            if self.replay.verdict is Verdict.DIFFERENT:
                self._rename()
        except BaseException:
            self.close()  # else the next try would find the name taken
            raise

    @property
    def sent(self) -> SentTotals:
        """As :attr:`Producer.sent`, with messages that were left out and those that may be duplicated."""
        sent = super().sent
        twice = sent.messages if self.replay.is_later else self._possible_duplicates
        return replace(sent, messages=sent.messages + self._left_out, possible_duplicates=twice)

    def send_batches(self, batches: Sequence[Batch]) -> None:
        """As :meth:`Producer.send_batches`; what is stored already is left out."""
        self._replay(batches)

    def send_singles(self, messages: Sequence[EncodedSingle]) -> None:
        """As :meth:`Producer.send_singles`; what is stored already is left out."""
        self._replay(messages)

    def end(self) -> None:
        """Note that no more messages come in this micro-batch; send those held back."""
        before = self.replay.verdict
        items = self.replay.end()
        if before is not self.replay.verdict:
            self._differs(f"it has only {self.replay.messages} messages, but {self.replay.stored} are stored")
            self._pass_on(items)

    def _new_replay(self) -> DedupReplay:
        """Find the stored messages of this micro-batch, and warn if they cannot be compared."""
        stored = count_stored(self.last_sequence_id, self._dedup.first_sequence_id)
        digest, why = self._stored_digest() if has_digest(stored) else (None, "")
        run = judge_stored_run(stored, digest)
        if run is StoredRun.LATER:
            self._report(
                "a later micro-batch is already stored, so the checkpoint was set back", "all its messages"
            )
        elif run is StoredRun.UNREADABLE:
            self._report(why, f"up to {stored} messages")
            self._possible_duplicates = stored
        return DedupReplay(stored, digest, FileSpool(), self._run_ends.known)

    def _stored_digest(self) -> tuple[bytes | None, str]:
        """The digest of the stored messages; if it could not be read: None, and the reason."""
        why = "the last stored entry was not found; the broker may have removed it"
        try:
            entry = find_last_stored(self._dedup.client, self.topic, self._dedup.name, self.last_sequence_id)
        except AuthError as error:
            if self._dedup.required:
                raise
            return None, f"the stored messages could not be compared: {error.what}"
        if entry is None:
            return None, why
        self.stored_version = from_wire_version(entry.metadata.schema_version)
        with self._dedup.adding:
            self._run_ends.add(read_run_ends(entry.metadata))
        return read_dedup_mark(entry.metadata), why

    def _replay(self, items: Sequence[Item]) -> None:
        before = self.replay.verdict
        taken = self.replay.take(items)
        if before is Verdict.OPEN and self.replay.verdict is Verdict.SAME:
            self._left_out = self.replay.stored
        elif before is Verdict.OPEN and self.replay.verdict is Verdict.DIFFERENT:
            self._differs(f"its first {self.replay.stored} messages differ from the stored ones")
        self._pass_on(taken)

    def _pass_on(self, items: Iterable[Item]) -> None:
        """Send items of both kinds in their order; raises OptionError if the proof fails."""
        for kind, run in groupby(items, type):
            # Not before there is something to send: until then a topic would seem to end in a message.
            if self._dedup.must_prove(self.topic):
                self._prove()
            while group := list(islice(run, _GROUP)):
                if kind is Batch:
                    super().send_batches(group)  # type: ignore[arg-type]  # grouped by type
                else:
                    super().send_singles(group)  # type: ignore[arg-type]

    def _prove(self) -> None:
        """Prove that the topic deduplicates, by an entry that no consumer is ever given.

        The entry has the id before the micro-batch's first one, and a producer of its own, so that it is
        neither counted nor reported as a row. A broker that deduplicates then knows that id.
        """
        name, first = self._dedup.name, self._dedup.first_sequence_id
        self._drop_link()
        proof = Producer(
            self._dedup.client,
            self.topic,
            self._options,
            self._partitions,
            first_sequence_id=first - 1,
            encryptor=self._encryptor,
        )
        try:
            proof.send_singles([EncodedSingle(memoryview(INVISIBLE), memoryview(b""))])
            proof.flush()
        finally:
            proof.close()
        last = self.reopen(name, first)
        if last >= first:
            raise foreign_writes(str(self.topic), name)
        if last < 0:
            raise OptionError(
                "delivery is effectively-once, but the broker has deduplication disabled",
                topic=str(self.topic),
                advice="Enable it for the namespace: pulsar-admin namespaces set-deduplication --enable",
            )
        self._dedup.proven(self.topic)

    def _differs(self, why: str) -> None:
        self._report(why, f"up to {self.replay.stored} messages")
        self._possible_duplicates = self.replay.stored
        self._rename()

    def _rename(self) -> None:
        """Continue under another name, so that the broker cannot take new messages for stored ones."""
        self.reopen(f"{self._dedup.name}-{uuid.uuid4().hex[:8]}", 0)

    def _report(self, why: str, what: str) -> None:
        """Warn about messages that may be duplicated, or refuse to send them."""
        text = (
            f"producer {self._dedup.name}: this run of the micro-batch may differ from the earlier one: {why}"
        )
        if self._dedup.strict:
            raise DuplicatesError(f"{text}. None of its rows is sent", topic=str(self.topic))
        _log.warning(
            "%s: %s. All rows are sent, no row is missing, and %s may be duplicated", self.topic, text, what
        )


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
