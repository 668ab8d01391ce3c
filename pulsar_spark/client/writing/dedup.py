"""DedupTask: producers that store each message of a micro-batch once, however often its task is run.

A task has one producer name on each topic partition it writes to, and numbers its messages from the number of
the micro-batch on, so a broker that deduplicates tells how many of them are stored (``last_sequence_id``).
What becomes of those is for :class:`~pulsar_spark.client.writing.dedup_replay.DedupReplay` to decide.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby, islice
from types import TracebackType

import numpy as np
import numpy.typing as npt

from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.reading.last_stored import find_last_stored
from pulsar_spark.client.writing.dedup_replay import IDS_PER_BATCH, DedupReplay, Item, Verdict
from pulsar_spark.client.writing.interceptors import OnReceipt
from pulsar_spark.client.writing.producer import Producer, foreign_writes
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.errors import AuthError, OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.protocol.pending import Outgoing
from pulsar_spark.protocol.receipts import SentTotals
from pulsar_spark.wire.dedup_mark import INVISIBLE, read_dedup_mark
from pulsar_spark.wire.singles import EncodedSingle

# Items that are sent at once when kept ones are released.
_GROUP = 100

_log = logging.getLogger(__name__)


class DedupTask:
    """What one run of a task sends in one micro-batch, over all its topics; a context manager.

    Args:
        client: where to connect.
        name: of its producers; no other task of any query may use it.
        batch: number of the micro-batch, from 0 to 2**31 - 2.
        task: number of the Spark partition; rows without a key begin at a partition that depends on it.
        required: whether a topic that does not deduplicate, or that cannot be read to compare, is an error.
    """

    def __init__(self, client: Client, name: str, batch: int, task: int, *, required: bool) -> None:
        self.client = client
        self.name = name
        self.task = task
        # The ids of batch 0 leave room before them, for the proof.
        self.first_sequence_id = (batch + 1) * IDS_PER_BATCH
        self.required = required
        self._replays: dict[TopicName, DedupReplay] = {}
        self._known: set[TopicName] = set()

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
        encryptor: Encryptor | None = None,
        on_receipt: OnReceipt | None = None,
    ) -> DedupProducer:
        """Open the producer of a topic partition, for the first time or to go on; raises what Producer does.

        It may take two operation timeouts where something is stored already.
        """
        replay = self._replays.get(topic)
        producer = DedupProducer(self, topic, options, partitions, replay, encryptor, on_receipt)
        self._replays[topic] = producer.replay
        if producer.last_sequence_id >= 0:
            self.proven(topic)
        return producer

    def must_prove(self, topic: TopicName) -> bool:
        """Whether it is still to be proven, before anything is sent, that a topic partition deduplicates."""
        return self.required and topic.base not in self._known

    def proven(self, topic: TopicName) -> None:
        """Take down that a topic partition deduplicates."""
        self._known.add(topic.base)

    @property
    def unfinished(self) -> set[TopicName]:
        """Topics without their partitions, of which not all that is stored has come again."""
        return {topic.base for topic, replay in self._replays.items() if replay.verdict is Verdict.OPEN}

    def deduplicates(self) -> bool | None:
        """Whether a topic that was written to deduplicates; None where none was. To be asked afterwards."""
        if self._known:
            return True
        sent = [topic for topic, replay in self._replays.items() if replay.messages]
        return last_sequence_id(self.client, sent[0], self.name) >= 0 if sent else None


class DedupProducer:
    """A producer on one topic partition, as :class:`Producer`, that leaves out what is stored already.

    Args:
        dedup: what the task sends.
        topic: one partition, or a topic without partitions.
        options: how to send; the name is not used.
        partitions: how many producers share the limits of the whole topic.
        replay: what was sent there in this run, where the producer was open before.
        encryptor: of all payloads, or None.
        on_receipt: as :class:`Producer` takes it; not called for what is left out.

    Attributes:
        replay: what is sent there in this run.
        last_sequence_id: the last that is stored under the task's name; -1 where the broker knew none.
    """

    def __init__(
        self,
        dedup: DedupTask,
        topic: TopicName,
        options: ProducerOptions,
        partitions: int,
        replay: DedupReplay | None,
        encryptor: Encryptor | None = None,
        on_receipt: OnReceipt | None = None,
    ) -> None:
        self.topic = topic
        self._on_receipt = on_receipt
        self._dedup = dedup
        self._options = options
        self._encryptor = encryptor
        self._partitions = partitions
        self._left_out = 0
        sent = 0 if replay is None else replay.messages
        self._producer = self._opened(dedup.name, dedup.first_sequence_id + sent)
        self.last_sequence_id = self._producer.last_sequence_id
        try:
            if replay is not None and replay.verdict is not Verdict.DIFFERENT:
                sent = max(replay.messages, replay.stored)
                self._check_alone(self.last_sequence_id, dedup.first_sequence_id + sent - 1)
            self.replay = self._compared() if replay is None else replay
            if self.replay.verdict is Verdict.DIFFERENT:
                self._rename()
        except BaseException:
            self._producer.close()  # else the next try would find the name taken
            raise

    @property
    def max_batch_size(self) -> int:
        """As :attr:`Producer.max_batch_size`."""
        return self._producer.max_batch_size

    @property
    def sent(self) -> SentTotals:
        """As :attr:`Producer.sent`, with the messages that were left out."""
        sent = self._producer.sent
        return replace(sent, messages=sent.messages + self._left_out)

    @property
    def pending(self) -> list[Outgoing]:
        """As :attr:`Producer.pending`."""
        return self._producer.pending

    def check_messages(self, body: memoryview, offsets: npt.NDArray[np.int64]) -> None:
        """As :meth:`Producer.check_messages`."""
        self._producer.check_messages(body, offsets)

    def check_singles(self, messages: list[EncodedSingle]) -> None:
        """As :meth:`Producer.check_singles`."""
        self._producer.check_singles(messages)

    def send_batches(self, batches: Sequence[Batch]) -> None:
        """As :meth:`Producer.send_batches`; what is stored already is left out."""
        self._send(batches)

    def send_singles(self, messages: Sequence[EncodedSingle]) -> None:
        """As :meth:`Producer.send_singles`; what is stored already is left out."""
        self._send(messages)

    def end(self) -> None:
        """Nothing more comes in this micro-batch: send what was left out for now, if it is still open."""
        before = self.replay.verdict
        items = self.replay.end()
        if before is not self.replay.verdict:
            self._differs(f"only {self.replay.messages} messages came again of {self.replay.stored} stored")
            self._pass_on(items)

    def flush(self) -> None:
        """As :meth:`Producer.flush`."""
        self._producer.flush()

    def close(self) -> None:
        """As :meth:`Producer.close`."""
        self._producer.close()

    def mend(self) -> None:
        """As :meth:`Producer.mend`."""
        self._producer.mend()

    def check(self) -> None:
        """As :meth:`Producer.check`."""
        self._producer.check()

    def _opened(self, name: str, first_sequence_id: int | None, *, proof: bool = False) -> Producer:
        return Producer(
            self._dedup.client,
            self.topic,
            replace(self._options, name=name, initial_sequence_id=None),  # the micro-batch gives the ids
            self._partitions,
            first_sequence_id=first_sequence_id,
            encryptor=self._encryptor,
            on_receipt=None if proof else self._on_receipt,
        )

    def _compared(self) -> DedupReplay:
        """See what is stored of this micro-batch."""
        last, first = self.last_sequence_id, self._dedup.first_sequence_id
        stored = max(0, last - first + 1)
        if stored == 0:
            return DedupReplay(0, None)
        if stored > IDS_PER_BATCH:
            self._warn("a later micro-batch is stored: the checkpoint was set back", "all of its messages")
            return DedupReplay(stored, None)
        why = "the entry that was stored last is not to be found; has the broker removed it?"
        try:
            entry = find_last_stored(self._dedup.client, self.topic, self._dedup.name, last)
        except AuthError as error:
            if self._dedup.required:
                raise
            entry, why = None, f"what is stored could not be compared: {error.what}"
        digest = None if entry is None else read_dedup_mark(entry.metadata)
        if digest is None:
            self._warn(why, f"up to {stored} messages")
        return DedupReplay(stored, digest)

    def _send(self, items: Sequence[Item]) -> None:
        before = self.replay.verdict
        taken = self.replay.take(items)
        if before is Verdict.OPEN and self.replay.verdict is Verdict.SAME:
            self._left_out = self.replay.stored
        elif before is Verdict.OPEN and self.replay.verdict is Verdict.DIFFERENT:
            self._differs(f"the first {self.replay.stored} messages are not those that are stored")
        self._pass_on(taken)

    def _pass_on(self, items: Iterable[Item]) -> None:
        """Send items of both kinds in their order; raises OptionError where the proof fails."""
        for kind, run in groupby(items, type):
            # Not before there is something to send: until then a topic would seem to end in a message.
            if self._dedup.must_prove(self.topic):
                self._prove()
            while group := list(islice(run, _GROUP)):
                if kind is Batch:
                    self._producer.send_batches(group)  # type: ignore[arg-type]  # grouped by type
                else:
                    self._producer.send_singles(group)  # type: ignore[arg-type]

    def _prove(self) -> None:
        """Prove that the topic deduplicates, by an entry that no consumer is ever given."""
        self._producer.close()
        first = self._dedup.first_sequence_id
        entry = self._opened(self._dedup.name, first - 1, proof=True)
        try:
            entry.send_singles([EncodedSingle(memoryview(INVISIBLE), memoryview(b""))])
            entry.flush()
        finally:
            entry.close()
        self._producer = self._opened(self._dedup.name, first)
        self._check_alone(self._producer.last_sequence_id, first - 1)
        if self._producer.last_sequence_id < 0:
            raise OptionError(
                "delivery is effectively-once, and the broker does not deduplicate",
                topic=str(self.topic),
                advice="Set it for the namespace: pulsar-admin namespaces set-deduplication --enable",
            )
        self._dedup.proven(self.topic)

    def _check_alone(self, last: int, known: int) -> None:
        """Fail where another run of the task has written since: ids would no longer stand for these rows."""
        if last > known:
            raise foreign_writes(self.topic, self._dedup.name)

    def _differs(self, why: str) -> None:
        self._warn(why, f"up to {self.replay.stored} messages")
        self._rename()

    def _rename(self) -> None:
        """Go on under a name of its own: nothing that is sent may be taken for what is stored."""
        self._producer.close()
        self._producer = self._opened(f"{self._dedup.name}-{uuid.uuid4().hex[:8]}", None)

    def _warn(self, why: str, what: str) -> None:
        _log.warning(
            "%s: producer %s: this run of the micro-batch is not known to be the same as the one before: %s. "
            "All of it is sent, none is missing, and %s may be there twice",
            *(self.topic, self._dedup.name, why, what),
        )


def last_sequence_id(client: Client, topic: TopicName, name: str) -> int:
    """The last sequence id that is stored under a producer's name; -1 where the broker knows none."""
    producer = Producer(client, topic, ProducerOptions(name=name), 1)
    producer.close()
    return producer.last_sequence_id
