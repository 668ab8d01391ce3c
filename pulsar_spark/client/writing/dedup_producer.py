"""DedupProducer: the producer of a task that may be run again, on one topic partition.

It finds the first entry of the micro-batch in the topic partition. It must not depend on rows, nor on their
comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.reading.stored_run import StoredRun, read_stored_run
from pulsar_spark.client.writing.dedup import DedupTask, PartitionRun
from pulsar_spark.client.writing.interceptors import OnReceipt
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.errors import OptionError, SendError, TerminatedError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.run_search import RunToFind
from pulsar_spark.protocol.replay.task_ids import IDS_PER_BATCH, TaskIds, first_sequence_id
from pulsar_spark.protocol.writing.batcher import Batch
from pulsar_spark.protocol.writing.pending import MemoryBudget, Outgoing
from pulsar_spark.protocol.writing.stored_ids import foreign_writes
from pulsar_spark.wire.columns.entry_messages import EncodedSingle
from pulsar_spark.wire.entry.origin import encode_origin

# Highest last id of a usable producer name. A higher id is from another program, and leaves too few ids.
_MAX_LAST_ID = (1 << 63) - 2 * IDS_PER_BATCH
_SPARE_NAMES = 10  # maximum other producer names that are tried if a name has no sequence ids left

# Maximum bytes in flight while stored entries are read, divided by the topic's partitions and by the number
# of topics that the task has opened so far.
_READ_BYTES = 16 << 20
# Minimum bytes in flight for one partition.
_MIN_WINDOW = 256 << 10

_log = logging.getLogger(__name__)


class DedupProducer(Producer):
    """A producer on one topic partition in one run of a task.

    Opening makes one attempt, and does not wait until the producer's name is free: if two running copies of a
    task waited, each could keep half of the names for ever. Call ``read_stored`` once all producers of the
    topic are open. Each later entry contains the id of the task's first entry in the micro-batch. So the
    producer waits for the receipt of the first entry before it sends a second one.

    ``partition`` is a partition of the topic, with its number from 0, or the topic itself. The name and the
    initial sequence id of the options are not used. ``on_receipt`` is not called for messages that are stored
    already. All other arguments are as for :class:`Producer`.

    Raises:
        BusyError: another copy of the task has the name.
        OptionError: deduplication is required, and disabled; raised after the first entry was sent.
    """

    def __init__(
        self,
        dedup: DedupTask,
        topic: TopicName,
        partition: TopicName,
        number: int,
        options: ProducerOptions,
        partitions: int,
        opening: Deadline,
        *,
        encryptor: Encryptor | None = None,
        on_receipt: OnReceipt | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self._dedup, self._name = dedup, topic
        self._run = run = dedup.run_of(topic)
        run.is_encrypted, run.schema = encryptor is not None, options.schema
        self._partition = at = run.partitions.get(partition) or PartitionRun(number, dedup.name)
        self._ids = TaskIds(dedup.secret, dedup.name, str(partition))
        self._window_bytes = max(_READ_BYTES // (partitions * max(1, len(dedup.topics))), _MIN_WINDOW)
        self._may_be_own = True
        self._awaits_first = False
        self._held: list[tuple[Callable[[Any], None], Sequence[Any]]] = []
        super().__init__(
            dedup.client,
            partition,
            replace(options, name=at.name, initial_sequence_id=None),
            partitions,
            first_sequence_id=self._ids.first(dedup.origin.batch),
            encryptor=encryptor,
            on_receipt=on_receipt,
            opening=opening,
            memory=memory,
        )
        self._newest_id = self.last_sequence_id  # highest id that earlier runs can have used
        self._has_read = False

    def read_stored(self) -> None:
        """Begins to read the messages that earlier runs have stored in the topic partition.

        Raises:
            SendError: another run has written since this run closed its previous producer.
            DuplicatesError: the task is strict, and stored messages cannot be compared.
            BrokerError: the stored messages cannot be read within the operation timeout.
        """
        partitions = self._run.partitions
        if self.topic not in partitions:
            self._read_first()
        elif self.last_sequence_id > self._partition.last_sequence_id:
            raise foreign_writes(str(self.topic), self._dedup.name)
        partitions[self.topic] = self._partition
        if self.last_sequence_id >= 0:
            self._dedup.proven(self.topic)
        self._has_read = True

    def send_batches(self, batches: Sequence[Batch]) -> None:
        """As :meth:`Producer.send_batches`, but entries after the first one wait for its receipt."""
        self._send_in_order(super().send_batches, batches)

    def send_singles(self, messages: Sequence[EncodedSingle]) -> None:
        """As :meth:`Producer.send_singles`, but entries after the first one wait for its receipt."""
        self._send_in_order(super().send_singles, messages)

    def release(self) -> None:
        """Waits for the receipt of the first entry, and then sends the entries that were held back."""
        if not self._awaits_first:
            return
        super().flush()
        if self.is_sealed:
            return  # ``settle`` returns the entries that were held back, for other segments
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

    def settle(self) -> list[Outgoing | Batch]:
        """As :meth:`Producer.settle`; also returns the entries that were held back."""
        waiting = [item for _, items in self._held for item in items]
        self._held = []
        open_batch = self.batcher.take()
        return [*super().settle(), *waiting, *open_batch]

    def flush(self) -> None:
        """Sends the entries that were held back, and waits until all entries are acknowledged."""
        self.release()
        super().flush()

    def close(self) -> None:
        """Closes without waiting for receipts; records the last sequence id, so a later write continues."""
        if self._has_read:
            self._partition.last_sequence_id = self.packer.next_sequence_id - 1
        super().close()

    def _send_in_order(self, send: Callable[[Any], None], items: Sequence[Any]) -> None:
        """Sends items; while the first entry is not acknowledged, holds back all but the first item."""
        self.release()
        if not len(items):
            return
        self._partition.has_sent = True
        self._sign()
        if self._awaits_first:  # the segment was sealed before the first entry was acknowledged
            self._held.append((send, items))
            return
        if self._partition.begin is not None and not self._dedup.must_prove(self.topic):
            send(items)
            return
        send(items[:1])
        self._awaits_first = True
        if len(items) > 1:
            self._held.append((send, items[1:]))

    def _sign(self) -> None:
        secret, topic, packer = self._dedup.secret, str(self.topic), self.packer
        origin = replace(self._dedup.origin, begin=self._partition.begin, is_again=self._run.is_replay)
        # The signature in the first entry's origin covers that entry's bytes; later entries share one origin.
        field = b"" if origin.begin is None else encode_origin(origin, secret, topic)
        packer.origin = lambda payload, metadata: (
            field or encode_origin(origin, secret, topic, payload, metadata)
        )

    def _read_first(self) -> None:
        dedup, partition = self._dedup, self._partition
        last_of_name = self._use_spare_names(self.last_sequence_id)
        if last_of_name >= 0:  # -1: nothing is stored under this name, so the previous name's id is kept
            self._newest_id = last_of_name
        last = self._newest_id
        self._may_be_own = self._ids.may_be_own(last)
        self.packer.next_sequence_id = self._ids.following(last_of_name, dedup.origin.batch)
        is_claimed = last >= first_sequence_id(dedup.origin.batch)
        partition.has_older = self._may_be_own and not is_claimed
        # Searches even if the last id is of an earlier micro-batch, because a restarted broker reads that id
        # from any program's last entry under the name, and other tasks may have stored rows.
        if is_claimed or dedup.may_be_replay:
            partition.stored = found = self._find(is_claimed=is_claimed)
            count = max(last, found.newest) - self._ids.first(dedup.origin.batch) + 1
            partition.claimed = max(min(count, IDS_PER_BATCH), 1)
            dedup.take_stored(self._name, self.topic, partition)

    def _use_spare_names(self, last: int) -> int:
        """Continues under another name if too few ids are left; returns the last id of the name in use.

        All runs of the task try the same names in the same order, so brokers admit one run at a time.
        """
        for number in range(_SPARE_NAMES):
            if last <= _MAX_LAST_ID:
                return last
            _log.warning("%s: somebody else has used the producer name %s", self.topic, self._partition.name)
            self._partition.name = self._dedup.spare_name(number)
            last = self.reopen(self._partition.name, self._ids.first(self._dedup.origin.batch))
        raise foreign_writes(str(self.topic), self._partition.name)

    def _find(self, *, is_claimed: bool) -> StoredRun:
        dedup, last = self._dedup, self._newest_id
        run = RunToFind(
            dedup.origin,
            dedup.secret,
            self._partition.name,
            last,
            is_claimed=is_claimed,
            may_be_replay=dedup.may_be_replay,
            may_be_own=self._may_be_own,
        )
        return read_stored_run(dedup.client, self.topic, run, dedup.decryptor, self._window_bytes)

    def _begin(self) -> MessageId | None:
        """Returns the id of the first entry that this producer has sent, which may be a first chunk."""
        if self.sent.first_id is not None:
            return self._writer.tally.first_entry
        # The receipt had no message id, because the entry was stored before a lost connection: search for it.
        found = self._find(is_claimed=True)
        found.close()
        return found.begin

    def _prove(self) -> None:
        """Proves that the broker deduplicates: it must know the sequence id of the acknowledged entry."""
        sent = self.packer.next_sequence_id - 1
        try:
            last = self.reopen(self._partition.name, sent + 1)
        except TerminatedError:
            if self.is_sealed:
                return  # deduplication is proven by the producers of the segments that replace this one
            raise
        if last > sent:  # another program has written under the name before it was opened again
            raise foreign_writes(str(self.topic), self._partition.name)
        if last < sent:
            raise OptionError(
                "delivery is effectively-once, but the broker has deduplication disabled. The first rows of "
                "the micro-batch are stored",
                topic=str(self.topic),
                advice="Enable it for the namespace: pulsar-admin namespaces set-deduplication --enable. The "
                "query then continues after these rows",
            )
        self._dedup.proven(self.topic)
