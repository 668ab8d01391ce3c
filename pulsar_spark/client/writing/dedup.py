"""DedupTask: producers that store each row of a micro-batch once, however often its task is run.

A task has one producer name on each topic partition it writes to, so brokers admit one run of it at a time.
Each run reads what earlier runs have stored. Rows that are stored are not sent again (``StoredRows`` compares
them). Sequence ids only tell whether there is anything to read: those of a micro-batch begin at a number of
its own.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryptor, Encryptor
from pulsar_spark.client.reading.stored_run import RunToFind, StoredRun, read_stored_run
from pulsar_spark.client.writing.interceptors import OnReceipt
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.client.writing.task_memory import TaskMemory
from pulsar_spark.errors import DuplicatesError, OptionError, SendError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.protocol.key_groups import stable_order
from pulsar_spark.protocol.receipts import SentTotals
from pulsar_spark.protocol.replay.stored_rows import Flags, Rows, StoredRows, extras_of
from pulsar_spark.protocol.routing import TaskPlace
from pulsar_spark.protocol.stored_check import foreign_writes
from pulsar_spark.wire.batches import encode_batch_messages
from pulsar_spark.wire.message_columns import MessageColumns
from pulsar_spark.wire.origin import Origin, encode_origin
from pulsar_spark.wire.schemas.schema import Schema
from pulsar_spark.wire.singles import EncodedSingle

# Sequence ids between the first ones of two micro-batches.
IDS_PER_BATCH = 1 << 32

# Somebody else has used the producer's name if its last id is higher: no ids would be left for rows. So many
# other names are tried.
_MAX_LAST_ID = (1 << 63) - IDS_PER_BATCH
_SPARE_NAMES = 10

# Bytes of stored entries of a topic that may be in flight from the broker, and of a partition at least.
_READ_BYTES = 16 << 20
_MIN_WINDOW = 256 << 10

_DIFFERS = (
    "this run of the micro-batch differs from an earlier one: it lacks rows that are stored, and has others"
)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _PartitionRun:
    """A topic partition in this run of the task.

    Attributes:
        number: of the partition within the topic, from 0.
        name: of its producer.
        begin: id of the first entry that the task has stored there in the micro-batch; None if there is none.
        stored: what earlier runs have stored there.
        claimed: how many messages that are, at most, by the broker's last sequence id.
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
class _TopicRun:
    """A topic in this run of the task.

    Attributes:
        stored: the rows that earlier runs have stored.
        rows: how many rows of this run have come.
        new_rows: how many of them were not stored.
        partitions: those that were opened.
    """

    stored: StoredRows
    rows: int = 0
    new_rows: int = 0
    partitions: dict[TopicName, _PartitionRun] = field(default_factory=dict)


class DedupTask:
    """The rows of one run of a task in one micro-batch, for all its topics.

    Args:
        client: where to connect.
        name: of its producers; no other task of any query may use it.
        origin: numbers of the micro-batch, from 0 to 2**31 - 2, of the task and of the write.
        secret: of the query, at most 64 bytes; entries are signed with it.
        required: whether a topic that does not deduplicate is an error.
        strict: whether it is an error if rows would be sent that may be stored already.
        may_be_replay: whether an earlier run may have written rows, as far as Spark tells.
        decryptor: of rows that earlier runs have encrypted.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        origin: Origin,
        secret: bytes,
        *,
        required: bool,
        strict: bool = False,
        may_be_replay: bool = True,
        decryptor: Decryptor | None = None,
    ) -> None:
        self.client = client
        self.name = name
        self.origin = origin
        self.secret = secret
        self.place = TaskPlace(origin.batch, origin.task)
        self.first_sequence_id = first_sequence_id(origin.batch)
        self.required = required
        self.strict = strict
        self.may_be_replay = may_be_replay
        self.decryptor = decryptor or Decryptor()
        self._known: set[TopicName] = set()
        self._topics: dict[TopicName, _TopicRun] = {}
        self._is_encrypted = False
        self._schema: Schema | None = None

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
        in parallel.

        Args:
            topic: as it is written to, with or without partitions.
            partition: one partition of it, or the topic itself.
            number: of the partition within the topic, from 0.
            options: as of ``DedupProducer``.
            partitions: as of ``DedupProducer``.
            memory: as of ``DedupProducer``.
            encryptor: as of ``DedupProducer``.
            on_receipt: as of ``DedupProducer``.
        """
        self._is_encrypted, self._schema = encryptor is not None, options.schema
        run = self._run_of(topic)
        at = run.partitions.get(partition) or _PartitionRun(number, self.name)
        producer = DedupProducer(self, run, at, partition, options, partitions, memory, encryptor, on_receipt)
        run.partitions[partition] = at
        if producer.last_sequence_id >= 0:
            self.proven(partition)
        return producer

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
            raise self._duplicates(topic, _DIFFERS, "No more rows are sent")
        run.new_rows += int(np.count_nonzero(is_new))
        return is_new

    def finish(self) -> None:
        """Warn of rows that may be duplicated; no more rows come in this run."""
        for topic, run in self._topics.items():
            count = run.stored.differing(run.rows).total() if run.new_rows else 0
            if count:
                _log.warning(
                    "%s: producer %s: %s. No row is missing, and up to %d messages may be duplicated",
                    *(topic, self.name, _DIFFERS, count),
                )

    def close(self) -> None:
        """Stop reading what is stored."""
        for run in self._topics.values():
            run.stored.close()

    def tell_unread(self, topic: TopicName, partition: _PartitionRun) -> None:
        """Warn, or raise DuplicatesError if the task is strict, if stored messages cannot be read."""
        if partition.stored.unread is None or partition.unread:
            return
        partition.unread = partition.claimed
        text = (
            f"up to {partition.unread} messages that earlier runs of the micro-batch have stored cannot be "
            f"compared: {partition.stored.unread}"
        )
        if self.strict:
            raise self._duplicates(topic, text, "No row is sent")
        _log.warning(
            "%s: producer %s: %s. No row is missing, and these messages may be duplicated",
            *(topic, self.name, text),
        )

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """What earlier runs have stored of this run's rows, and what may be duplicated."""
        totals = {}
        for run in self._topics.values():
            found, differing = run.stored.found(), run.stored.differing(run.rows)
            for topic, partition in run.partitions.items():
                stored = found[partition.number]
                twice = differing[partition.number] + partition.unread if run.new_rows else 0
                if stored or twice:
                    totals[topic] = SentTotals(stored, possible_duplicates=twice)
        return totals

    def deduplicates(self) -> bool | None:
        """Whether the topics written to deduplicate; None if none was written to. Call it after writing."""
        if self._known:
            return True
        sent = [
            topic
            for run in self._topics.values()
            for topic, partition in run.partitions.items()
            if partition.has_sent
        ]
        if not sent:
            return None
        last = last_sequence_id(
            self.client, sent[0], self.name, is_encrypted=self._is_encrypted, schema=self._schema
        )
        return last >= 0

    def _run_of(self, topic: TopicName) -> _TopicRun:
        return self._topics.setdefault(topic, _TopicRun(StoredRows()))

    def _duplicates(self, topic: TopicName, text: str, what: str) -> DuplicatesError:
        return DuplicatesError(f"producer {self.name}: {text}. {what}", topic=str(topic))


class DedupProducer(Producer):
    """A producer on one topic partition in one run of a task.

    It reads what earlier runs have stored there. Its entries say who wrote them, and where the micro-batch
    began. To know that, it waits for the receipt of the first entry before it sends a second one.

    Args:
        dedup: the task.
        run: its topic.
        partition: what is known of the partition.
        topic: one partition, or a topic without partitions.
        options: how to send; the name and the initial sequence id are not used.
        partitions: how many producers share the topic's limit of unacknowledged messages.
        memory: as :class:`Producer` takes it.
        encryptor: of all payloads, or None.
        on_receipt: as :class:`Producer` takes it; not called for messages that are stored already.

    Raises:
        SendError: another run of the task has written meanwhile.
        DuplicatesError: the task is strict, and stored messages cannot be compared.
        OptionError: with the first entry that is sent: deduplication is required, and disabled.
    """

    def __init__(
        self,
        dedup: DedupTask,
        run: _TopicRun,
        partition: _PartitionRun,
        topic: TopicName,
        options: ProducerOptions,
        partitions: int,
        memory: TaskMemory | None = None,
        encryptor: Encryptor | None = None,
        on_receipt: OnReceipt | None = None,
    ) -> None:
        self._dedup = dedup
        self._run = run
        self._partition = partition
        self._window_bytes = max(_READ_BYTES // partitions, _MIN_WINDOW)
        self._awaits_first = False
        self._held: list[tuple[Callable[[Any], None], Sequence[Any]]] = []
        super().__init__(
            dedup.client,
            topic,
            replace(options, name=partition.name, initial_sequence_id=None),
            partitions,
            first_sequence_id=dedup.first_sequence_id,
            encryptor=encryptor,
            on_receipt=on_receipt,
            memory=memory,
        )
        try:
            if topic not in run.partitions:
                self._read_stored()
            elif self.last_sequence_id > partition.last_sequence_id:
                raise foreign_writes(str(topic), dedup.name)
        except BaseException:
            super().close()  # else the next try would find the name taken
            raise

    def send_batches(self, batches: Sequence[Batch]) -> None:
        """As :meth:`Producer.send_batches`."""
        self._send_in_order(super().send_batches, batches)

    def send_singles(self, messages: Sequence[EncodedSingle]) -> None:
        """As :meth:`Producer.send_singles`."""
        self._send_in_order(super().send_singles, messages)

    def release(self) -> None:
        """Wait for the receipt of the first entry, and send what waits for it."""
        if not self._awaits_first:
            return
        super().flush()
        self._awaits_first = False
        partition = self._partition
        # The broker does not say where an entry is that it had stored before the connection was lost.
        partition.begin = partition.begin or self.sent.first_id or self._find(is_claimed=True).begin
        if partition.begin is None:
            raise SendError("the broker has acknowledged an entry that is not stored", topic=str(self.topic))
        if self._dedup.must_prove(self.topic):
            self._prove()
        held, self._held = self._held, []
        for send, items in held:
            self._sign()
            send(items)

    def flush(self) -> None:
        """As :meth:`Producer.flush`."""
        self.release()
        super().flush()

    def close(self) -> None:
        """As :meth:`Producer.close`."""
        self._partition.last_sequence_id = self._builder.packer.next_sequence_id - 1
        super().close()

    def _send_in_order(self, send: Callable[[Any], None], items: Sequence[Any]) -> None:
        """Send items of one kind. After the first entry, the others wait for the next call."""
        self.release()
        if not len(items):
            return
        self._partition.has_sent = True
        self._sign()
        if self._partition.begin is not None and not self._dedup.must_prove(self.topic):
            send(items)
            return
        send(items[:1])
        self._awaits_first = True
        if len(items) > 1:
            self._held.append((send, items[1:]))

    def _sign(self) -> None:
        """Let the entries that are packed next say where they come from."""
        secret, topic, packer = self._dedup.secret, str(self.topic), self._builder.packer
        origin = replace(self._dedup.origin, begin=self._partition.begin, rows=self._run.rows)
        packer.is_origin_alike = origin.begin is not None
        field = encode_origin(origin, secret, topic) if packer.is_origin_alike else b""
        packer.origin = lambda payload: field or encode_origin(origin, secret, topic, payload)

    def _read_stored(self) -> None:
        """Begin to read the stored messages of this micro-batch, if there may be any."""
        dedup, partition, last = self._dedup, self._partition, self.last_sequence_id
        self._use_spare_names(last)
        is_first = not self._run.rows  # later, only partitions are opened that earlier runs did not have
        is_claimed = last >= dedup.first_sequence_id
        if is_first and (is_claimed or (last < 0 and dedup.may_be_replay)):
            partition.stored = found = self._find(is_claimed=is_claimed)
            partition.begin = found.begin
            partition.claimed = max(min(last - dedup.first_sequence_id + 1, IDS_PER_BATCH), 1)
            dedup.may_be_replay |= found.begin is not None
            self._run.stored.add(partition.number, found.blocks)
            dedup.tell_unread(self.topic, partition)

    def _use_spare_names(self, last: int) -> None:
        """Continue under another name if no ids are left.

        All runs of the task use the same names in the same order, so brokers admit one of them at a time.
        """
        for number in range(_SPARE_NAMES):
            if last <= _MAX_LAST_ID:
                return
            _log.warning("%s: somebody else has used the producer name %s", self.topic, self._partition.name)
            self._partition.name = self._dedup.spare_name(number)
            last = self.reopen(self._partition.name, self._dedup.first_sequence_id)
        raise foreign_writes(str(self.topic), self._partition.name)

    def _find(self, *, is_claimed: bool) -> StoredRun:
        dedup = self._dedup
        run = RunToFind(dedup.origin, dedup.secret, self.last_sequence_id, is_claimed, dedup.may_be_replay)
        return read_stored_run(dedup.client, self.topic, run, dedup.decryptor, self._window_bytes)

    def _prove(self) -> None:
        """Prove that the broker deduplicates: it knows the id of the entry that it has acknowledged."""
        following = self._builder.packer.next_sequence_id
        if self.reopen(self._partition.name, following) < following - 1:
            raise OptionError(
                "delivery is effectively-once, but the broker has deduplication disabled. The first rows of "
                "the micro-batch are stored",
                topic=str(self.topic),
                advice="Enable it for the namespace: pulsar-admin namespaces set-deduplication --enable. The "
                "query then continues after these rows",
            )
        self._dedup.proven(self.topic)


def first_sequence_id(batch: int) -> int:
    """The first sequence id of a micro-batch under the name of each of its tasks."""
    return (batch + 1) * IDS_PER_BATCH


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
