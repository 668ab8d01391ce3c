"""A model of what may happen to the runs of a task, for random tests against the fake broker.

A topic gets the rows of one micro-batch from several runs of its task. Runs end early or crash; brokers
refuse entries, cut connections and lose receipts; two copies of the task run beside each other; Spark
repeats a stage without saying so; strangers write under the task's name. Then one run is left alone. All rows
must be there, and none twice.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pulsar_spark.client import (
    BatcherBuilder,
    Client,
    DedupTask,
    MessageColumns,
    ProducerOptions,
    TopicWriter,
)
from pulsar_spark.errors import BusyError, DuplicatesError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import decode_batches
from pulsar_spark.wire.entry.codecs import decompress
from pulsar_spark.wire.frames import encode_section_head
from tests.client.clients import client_of, producing
from tests.client.writing.told import new_origin, told
from tests.fake_broker import Action, FakeBroker, Held, cut, lose_answer, pass_on, refuses
from tests.fake_clients import Type
from tests.fake_topics import FakeEntry, FakeTopic, batch_section, section_of, split_section

SECRET = b"only the query knows this"
NAME = "spark-query-0"
BATCH = 5
FIRST = (BATCH + 1) << 32
_LIMIT = 1 << 24
_OWN_ID = "id that the query may have used"
_NUMBERS = itertools.count()
_FAULTS: list[Action] = [
    cut,
    lose_answer,
    refuses(pb.NotAllowedError),
    refuses(pb.PersistenceError),
    refuses(pb.ChecksumError),
    refuses(pb.ServiceNotReady),
]


@dataclass
class Outcome:
    """What became of a topic.

    Attributes:
        missing: rows that are not there.
        doubled: rows that are there more often than they should, without those that strangers wrote.
        told: messages of which it was said that they may be duplicated.
        is_refused: whether the last run was strict, and stopped because rows might be duplicated.
        events: what happened, and how often.
    """

    missing: Counter[bytes]
    doubled: Counter[bytes]
    told: int
    is_refused: bool = False
    events: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Raise AssertionError if a promise is not kept.

        Somebody who copies an origin to other rows, or uses an id that the query may have used, can stop a
        strict task, and cause a warning. Nobody can do more.
        """
        has_looked = any(event.startswith(("copied", "changed copy", _OWN_ID)) for event in self.events)
        assert not self.doubled, self
        if self.is_refused:
            assert has_looked, self
        else:
            assert not self.missing, self
            assert has_looked or not self.told, self


class Replays:
    """The runs of one task on one topic.

    Args:
        broker: that deduplicates.
        seed: of all that is random.
    """

    def __init__(self, broker: FakeBroker, seed: int) -> None:
        self._broker = broker
        self._chance = chance = random.Random(seed)
        self._topic = TopicName.parse(f"replays-{next(_NUMBERS)}")
        self._partitions = chance.choice([0, 0, 1, 2, 3, 5])
        broker.create(self._topic, self._partitions)
        self._is_strict = chance.random() < 0.3
        self._is_large = chance.random() < 0.1
        size = chance.choice([400, 900]) if self._is_large else chance.choice([1, 5, 30])
        count = chance.choice([1, 3, 10, 40, 120])
        values = range(count) if chance.random() < 0.7 else [chance.randrange(4) for _ in range(count)]
        self._rows = [b"%d." % value + b"." * size for value in values]
        self._keys = chance.choice([None, 1, 7])
        self._options = self._random_options()
        self._strange: set[tuple[str, MessageId]] = set()
        self._strangers = 0
        self._began_with: int | None = None  # partitions; None before the first run
        self.events: Counter[str] = Counter()

    def play(self) -> Outcome:
        """Let things happen, then run the task alone; give what is there at the end."""
        chance = self._chance
        if chance.random() < 0.7:
            before = [b"before %d" % number for number in range(chance.choice([1, 20]))]
            self._run(BATCH - 1, before, alone=True)
        elif chance.random() < 0.3:
            self._two_at_once()  # they prove that the topic deduplicates
        for _ in range(chance.choice([1, 1, 2, 4, 7])):
            if chance.random() < 0.35:
                self._stranger()
            self._options = self._random_options()
            if chance.random() < 0.1:
                chance.choice([self._two_copies, self._two_at_once])()
            else:
                self._run(BATCH, self._rows)
            if self._partitions and chance.random() < 0.1:
                self._partitions += 1
                self._broker.create(self._topic, self._partitions)
                self.events["partitions added"] += 1
        self._broker.script(Type.SEND, [])
        ended = self._run(BATCH, self._rows, alone=True)
        return Outcome(*self._difference(), ended or 0, is_refused=ended is None, events=self.events)

    # ---- runs

    def _run(self, batch: int, rows: Sequence[bytes], *, alone: bool = False) -> int | None:
        """One run; gives how many messages may be duplicated if it did not fail."""
        chance = self._chance
        end = len(rows) if alone or chance.random() < 0.5 else chance.randrange(len(rows) + 1)
        crashes = not alone and chance.random() < 0.3
        if not alone and chance.random() < 0.6:
            faults = [chance.choice(_FAULTS) if chance.random() < 0.2 else pass_on for _ in range(60)]
            self._broker.script(Type.SEND, faults)
        self.events["early end"] += end < len(rows) and not crashes
        task = self._task(batch)
        with client_of(self._broker, operation_timeout=5.0) as client:
            task.client = client
            try:
                with self._writer(client, task) as writer:
                    for block in self._blocks(rows[:end]):
                        writer.send(block)
                    if crashes:
                        self.events["crash"] += 1
                        return None
                    writer.flush()
                    task.finish()
                    return told((task, writer.sent))
            except DuplicatesError:
                self.events["refused as duplicates"] += 1
                return None
            except PulsarError as error:
                self.events[error.code] += 1
                if alone:
                    raise
                return None
            finally:
                task.close()

    def _two_copies(self) -> None:
        """A copy of the task loses its connection, another one runs, and then the first one goes on."""
        self.events["two copies"] += 1
        self._broker.script(Type.SEND, [])
        at = self._chance.randrange(len(self._rows) + 1)
        first = self._task(BATCH)
        with client_of(self._broker, operation_timeout=5.0) as client:
            first.client = client
            try:
                with self._writer(client, first) as writer:
                    for block in self._blocks(self._rows[:at]):
                        writer.send(block)
                    writer.flush()
                    for topic in self._names:
                        self._broker.close_all(topic)
                    self._run(BATCH, self._rows)
                    self._broker.script(Type.SEND, [])
                    for block in self._blocks(self._rows[at:]):
                        writer.send(block)
                    writer.flush()
            except PulsarError as error:
                self.events[f"copy: {error.code}"] += 1
            finally:
                first.close()

    def _two_at_once(self) -> None:
        """Two copies of the task; one waits at one of its registrations until the other one tries its own."""
        self.events["two copies at once"] += 1
        broker, held = self._broker, Held(self._broker)
        ended: list[PulsarError | None] = []
        count = max(1, self._partitions)
        at = self._chance.choice(
            [count, self._chance.randrange(count)]
        )  # that after all may be for the proof
        broker.script(Type.SEND, [])
        broker.script(Type.PRODUCER, [*[pass_on] * at, held])
        copies = [(self._task(BATCH), list(self._blocks(self._rows))) for _ in range(2)]
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(self._copy, *copies[0], ended)
            broker.wait_for(lambda: held.count or ended)
            broker.script(Type.PRODUCER, [])
            before = len(broker.seen(Type.PRODUCER))
            second = threads.submit(self._copy, *copies[1], ended)
            broker.wait_for(lambda: ended or len(broker.seen(Type.PRODUCER)) > before + 1)
            held.release()
            for each in (first, second):
                each.result()
        for error in filter(None, ended):
            self.events[f"copy: {error.code}"] += 1
            # Each waits for an id that somebody else may have used, in its turn.
            assert self.events[_OWN_ID] or not isinstance(error, BusyError), f"waited in vain: {error}"

    def _copy(self, task: DedupTask, blocks: list[MessageColumns], ended: list[PulsarError | None]) -> None:
        with client_of(self._broker, operation_timeout=5.0) as client:
            task.client = client
            error = None
            try:
                with self._writer(client, task) as writer:
                    for block in blocks:
                        writer.send(block)
                    writer.flush()
            except PulsarError as failed:
                error = failed
            finally:
                task.close()
        with self._broker.changed:
            ended.append(error)
            self._broker.changed.notify_all()

    def _task(self, batch: int) -> DedupTask:
        given: dict[str, Any] = {"required": self._chance.random() < 0.5, "strict": self._is_strict}
        if batch == BATCH:
            # Spark says so of a first run, and does not say that it repeats a stage. A stranger can hide rows
            # from such a run.
            is_first = self._began_with is None
            may_seem_first = is_first or (self._began_with == self._partitions and not self._strangers)
            seems_first = may_seem_first and self._chance.random() < (0.7 if is_first else 0.3)
            self._began_with = self._partitions if is_first else self._began_with
            self.events["no replay"] += is_first and seems_first
            self.events["stage repeated"] += seems_first and not is_first
            given["may_be_replay"] = not seems_first
        return DedupTask(None, NAME, new_origin(batch, 0, 0), SECRET, **given)

    def _writer(self, client: Client, task: DedupTask) -> TopicWriter:
        return TopicWriter(client, self._topic, self._options, dedup=task)

    def _random_options(self) -> ProducerOptions:
        chance = self._chance
        batching = not self._is_large and chance.random() < 0.7
        return producing(
            send_timeout=5.0,
            batching=batching,
            chunking=not batching,
            chunk_max_message_size=300,
            batching_max_messages=chance.choice([1, 2, 7, 1000]),
            batching_max_publish_delay=1000.0,
            batcher_builder=chance.choice(list(BatcherBuilder)),
            compression=chance.choice([pb.NONE, pb.LZ4, pb.ZLIB]),
        )

    def _blocks(self, rows: Sequence[bytes]) -> Iterator[MessageColumns]:
        at = 0
        while at < len(rows):
            block = rows[at : at + self._chance.choice([1, 5, 17, 1000])]
            at += len(block)
            keys = [None if self._keys is None else b"%d" % (len(value) % self._keys) for value in block]
            yield MessageColumns(value=pa.array(block, pa.binary()), key=pa.array(keys, pa.binary()))

    # ---- strangers

    def _stranger(self) -> None:
        """Somebody who may produce, and knows the task's name, the rows and all that is stored."""
        self._strangers += 1
        chance = self._chance
        topic = self._broker.topics[chance.choice(self._names)]
        own = [entry for entry in topic.entries if self._is_own(topic, entry)]
        rows = chance.sample(self._rows, chance.randrange(1, len(self._rows) + 1))
        kinds = ["entry of somebody else", "forged rows", "forged other rows"]
        if own:
            kinds += ["higher id", "copied entry", "changed copy of an entry"]
            kinds += ["copied origin", "copied origin, other rows"]
        kind = chance.choice(kinds)
        self.events[kind] += 1
        number = FIRST + chance.randrange(200)
        if kind == "entry of somebody else":
            self._write(topic, section_of(b"else", producer_name="else"))
        elif kind == "forged rows":
            self._write(topic, batch_section(rows, producer_name=NAME, sequence_id=number))
        elif kind == "forged other rows":
            self._write(topic, batch_section([b"x"] * len(rows), producer_name=NAME, sequence_id=number))
        elif kind == "copied entry":
            self._write(topic, chance.choice(own).section)
        elif kind == "changed copy of an entry":
            ids = [number, (1 << 63) - 2]
            field, value = chance.choice(
                [("sequence_id", chance.choice(ids)), ("partition_key", b"x"), ("chunk_id", None)]
            )
            self._write(topic, _changed(chance.choice(own), field, value))
        elif kind.startswith("copied origin"):
            values = rows if kind == "copied origin" else [b"x"]
            self._write(topic, _with_origin_of(chance.choice(own), values))
        if kind != "entry of somebody else":
            last = topic.stored_ids.get(NAME, -1)
            highest = (1 << 63) - 1
            used = chance.choice([number, (BATCH + 9) << 32, highest])
            if own and chance.random() < 0.01:  # seldom: each later run waits for its entry
                used = min(last + 10, highest)
                self.events[_OWN_ID] += 1
            with self._broker.changed:
                topic.stored_ids[NAME] = max(last, used)

    def _write(self, topic: FakeTopic, section: bytes) -> None:
        (place,) = self._broker.publish(topic.name, section)
        self._strange.add((topic.name, place))

    # ---- what is there

    @property
    def _names(self) -> list[str]:
        base = str(self._topic)
        return [name for name in self._broker.topics if name == base or name.startswith(f"{base}-partition-")]

    def _is_own(self, topic: FakeTopic, entry: FakeEntry) -> bool:
        return topic.is_visible(entry) and (topic.name, entry.id) not in self._strange

    def _difference(self) -> tuple[Counter[bytes], Counter[bytes]]:
        total: Counter[bytes] = Counter()
        own: Counter[bytes] = Counter()
        for name in self._names:
            topic = self._broker.topics[name]
            for is_own, values in _messages(topic, self._is_own):
                total.update(values)
                own.update(values if is_own else [])
        own = Counter({value: count for value, count in own.items() if not value.startswith(b"before")})
        rows = Counter(self._rows)
        return rows - total, own - rows


def _messages(topic: FakeTopic, is_own: Any) -> Iterator[tuple[bool, list[bytes]]]:
    """The values of each entry, of a message in chunks those of all of them, as readers put them together."""
    chunks: dict[bytes, bytes] = {}
    for entry in topic.readable:
        if not topic.is_visible(entry):
            continue
        metadata, payload = split_section(entry.section)
        if metadata.num_chunks_from_msg > 1:
            whole = b"" if metadata.chunk_id == 0 else chunks.get(metadata.uuid, b"")
            payload = chunks[metadata.uuid] = whole + payload
            is_last = metadata.chunk_id + 1 == metadata.num_chunks_from_msg
            if not is_last or len(payload) != metadata.total_chunk_msg_size:
                continue
        plain = bytes(decompress(metadata.compression, payload, metadata.uncompressed_size, _LIMIT))
        if metadata.HasField("num_messages_in_batch"):
            columns = decode_batches([plain], [metadata.num_messages_in_batch]).columns
            yield is_own(topic, entry), columns.value.to_pylist()
        else:
            yield is_own(topic, entry), [plain]


def _changed(entry: FakeEntry, field: str, value: Any) -> bytes:
    """An entry of the query with another value of one field; without the id of a chunk it is no chunk."""
    metadata, payload = split_section(entry.section)
    if value is None:
        metadata.ClearField("num_chunks_from_msg")
        metadata.ClearField(field)
    else:
        setattr(metadata, field, value)
    return encode_section_head(metadata.SerializeToString(), payload) + payload


def _with_origin_of(entry: FakeEntry, values: Sequence[bytes]) -> bytes:
    """A batch of other values, with the origin that stands in an entry of the query."""
    metadata, _ = split_section(entry.section)
    for name in ("compression", "uncompressed_size", "uuid", "chunk_id", "num_chunks_from_msg"):
        metadata.ClearField(name)
    metadata.ClearField("total_chunk_msg_size")
    metadata.num_messages_in_batch = len(values)
    _, payload = split_section(batch_section(values))
    return encode_section_head(metadata.SerializeToString(), payload) + payload
