"""DedupProducer: a producer of a task that may be run again, on one topic partition.

Owns what is known of the topic partition in this run: where the micro-batch began, and what earlier runs have
stored. Must not know rows, nor how they are compared.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryptor, Encryptor
from pulsar_spark.client.reading.stored_run import RunToFind, StoredRun, read_stored_run
from pulsar_spark.client.writing.interceptors import OnReceipt
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.client.writing.task_memory import TaskMemory
from pulsar_spark.errors import DuplicatesError, OptionError, SendError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.stored_rows import StoredRows
from pulsar_spark.protocol.replay.task_ids import IDS_PER_BATCH, TaskIds, first_sequence_id
from pulsar_spark.protocol.writing.batcher import Batch
from pulsar_spark.protocol.writing.routing import TaskPlace
from pulsar_spark.protocol.writing.stored_check import foreign_writes
from pulsar_spark.schema import Schema
from pulsar_spark.wire.columns.singles import EncodedSingle
from pulsar_spark.wire.entry.origin import Origin, encode_origin

# Somebody else has used the producer's name if its last id is higher: no ids would be left for rows. This
# many other names are tried.
_MAX_LAST_ID = (1 << 63) - 2 * IDS_PER_BATCH
_SPARE_NAMES = 10

# Bytes of stored entries of a task's first topic that may be in flight from the broker: the n-th topic has
# the n-th part, all together a few times as many. And of a partition at least.
_READ_BYTES = 16 << 20
_MIN_WINDOW = 256 << 10

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PartitionRun:
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
class TopicRun:
    """A topic in this run of the task.

    Attributes:
        stored: the rows that earlier runs have stored.
        rows: how many rows of this run have come.
        new_rows: how many of them were not stored.
        is_encrypted: whether its producers encrypt.
        schema: of its producers.
        partitions: those that were opened.
    """

    stored: StoredRows = field(default_factory=StoredRows)
    rows: int = 0
    new_rows: int = 0
    is_encrypted: bool = False
    schema: Schema | None = None
    partitions: dict[TopicName, PartitionRun] = field(default_factory=dict)


class TaskRun:
    """One run of a task in one micro-batch, as all its producers know it.

    Args:
        client: where to connect.
        name: of its producers; no other task of any query may use it.
        origin: numbers of the micro-batch, from 0 to 2**31 - 2, of the task and of the write.
        secret: of the query, at most 64 bytes; entries are signed with it.
        required: whether a topic that does not deduplicate is an error.
        strict: whether it is an error if rows would be sent that may be stored already.
        may_be_replay: whether an earlier run may have written rows, as far as Spark tells.
        decryptor: of rows that earlier runs have encrypted.

    Attributes:
        topics: those that were opened, as they are written to.
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
        self.required = required
        self.strict = strict
        self.may_be_replay = may_be_replay
        self.decryptor = decryptor or Decryptor()
        self.topics: dict[TopicName, TopicRun] = {}
        self._known: set[TopicName] = set()

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

    def duplicates(self, topic: TopicName, text: str, what: str) -> DuplicatesError:
        """Make the error of a strict task; ``what`` becomes of its rows."""
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
        dedup: TaskRun,
        run: TopicRun,
        partition: PartitionRun,
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
        self._ids = TaskIds(dedup.secret, dedup.name, str(topic))
        self._window_bytes = max(_READ_BYTES // (partitions * max(1, len(dedup.topics))), _MIN_WINDOW)
        self._may_be_own = True
        self._awaits_first = False
        self._held: list[tuple[Callable[[Any], None], Sequence[Any]]] = []
        super().__init__(
            dedup.client,
            topic,
            replace(options, name=partition.name, initial_sequence_id=None),
            partitions,
            first_sequence_id=self._ids.first(dedup.origin.batch),
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
        partition.begin = partition.begin or self._begin()
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
        last_of_name = self._use_spare_names(last)
        self._may_be_own = self._ids.may_be_own(last_of_name)
        self._builder.packer.next_sequence_id = self._ids.following(last_of_name, dedup.origin.batch)
        is_first = not self._run.rows  # later, only partitions are opened that earlier runs did not have
        is_claimed = last >= first_sequence_id(dedup.origin.batch)
        if is_first and (is_claimed or (last < 0 and dedup.may_be_replay)):
            partition.stored = found = self._find(is_claimed=is_claimed)
            partition.begin = found.begin
            partition.claimed = max(min(last - self._ids.first(dedup.origin.batch) + 1, IDS_PER_BATCH), 1)
            dedup.may_be_replay |= found.begin is not None
            self._run.stored.add(partition.number, found.blocks)
            dedup.tell_unread(self.topic, partition)

    def _use_spare_names(self, last: int) -> int:
        """Continue under another name if no ids are left; return the last id of the name in use.

        All runs of the task use the same names in the same order, so brokers admit one of them at a time.
        """
        for number in range(_SPARE_NAMES):
            if last <= _MAX_LAST_ID:
                return last
            _log.warning("%s: somebody else has used the producer name %s", self.topic, self._partition.name)
            self._partition.name = self._dedup.spare_name(number)
            last = self.reopen(self._partition.name, self._ids.first(self._dedup.origin.batch))
        raise foreign_writes(str(self.topic), self._partition.name)

    def _find(self, *, is_claimed: bool) -> StoredRun:
        dedup = self._dedup
        run = RunToFind(
            dedup.origin,
            dedup.secret,
            self.last_sequence_id,
            is_claimed,
            dedup.may_be_replay,
            self._may_be_own,
        )
        return read_stored_run(dedup.client, self.topic, run, dedup.decryptor, self._window_bytes)

    def _begin(self) -> MessageId | None:
        """Where the first entry is that this producer has sent; of a message in chunks, its first chunk."""
        if self.sent.first_id is not None:
            return self.first_entry
        # The broker does not say where a message is that it had stored before the connection was lost.
        found = self._find(is_claimed=True)
        found.close()
        return found.begin

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
