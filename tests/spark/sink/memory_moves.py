"""The model of moving rows without a broker: topics are lists, and what is decided is decided by the sink.

So thousands of topics take minutes. A writer here opens, sends and reads as ``DedupProducer`` and
``TopicWriter`` do; which rows are sent, refused and told is up to the code that they use.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.client import DedupTask, MessageColumns, ProducerOptions, SentTotals
from pulsar_spark.client.reading.stored_run import StoredRun
from pulsar_spark.client.writing import dedup
from pulsar_spark.client.writing.dedup import PartitionRun, RoutedRows
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.duplicates import BatchSearch
from pulsar_spark.protocol.replay.run_search import OwnEntry, RunSearch, RunToFind
from pulsar_spark.protocol.replay.stored_rows import Rows, Words, extras_of, first_words
from pulsar_spark.protocol.replay.task_ids import TaskIds, first_sequence_id
from pulsar_spark.spark.sink import driver
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages
from pulsar_spark.wire.columns.message_columns import encode_keys
from pulsar_spark.wire.entry.origin import Origin
from tests.client.clients import columns
from tests.spark.sink.moves import Moves, Outcome

_LOOK = 64  # entries that are read where the broker does not know of rows


@dataclass
class Place:
    """A topic partition: its entries, of which others' have no origin, and the last id of each producer."""

    entries: list[tuple[OwnEntry | None, list[bytes]]] = field(default_factory=list)
    last_ids: dict[str, int] = field(default_factory=dict)

    @property
    def values(self) -> list[bytes]:
        return [value for _, values in self.entries for value in values]


class Memory(AbstractContextManager["Memory"]):
    """A broker and a client of it."""

    def __init__(self) -> None:
        self.topics: dict[str, Place] = defaultdict(Place)
        self._partitions: dict[TopicName, int] = {}

    def __exit__(self, *error: object) -> None:
        pass

    def create(self, topic: TopicName, partitions: int) -> None:
        self._partitions[topic] = partitions

    def publish(self, topic: TopicName, section: bytes) -> None:
        self.topics[str(topic)].entries.append((None, [b"else"]))

    def partitions(self, topic: TopicName) -> list[TopicName]:
        count = self._partitions[topic]
        return [topic.of_partition(number) for number in range(count)] if count else [topic]


class MemoryWriter(AbstractContextManager["MemoryWriter"]):
    """Writes the rows of a task; open batches are lost without ``flush``."""

    def __init__(self, memory: Memory, topic: TopicName, task: DedupTask, options: ProducerOptions) -> None:
        self._topic, self._task, self._size = topic, task, options.batching_max_messages
        self._names = memory.partitions(topic)
        self._places = [memory.topics[str(name)] for name in self._names]
        self._open_rows: list[list[bytes]] = [[] for _ in self._names]
        self._next_id = list(map(self._read_stored, range(len(self._names))))
        self._count = 0
        self.sent: dict[TopicName, SentTotals] = {}

    def __exit__(self, *error: object) -> None:
        pass

    def send(self, rows: MessageColumns) -> None:
        at = (np.arange(len(rows)) + self._count).astype(np.int32) % len(self._names)
        self._count += len(rows)
        routed = RoutedRows(rows, encode_keys(rows.key), at)
        for some, _, partitions, _ in self._task.to_send(self._topic, routed, None):
            for value, number in zip(some.value.to_pylist(), partitions.tolist(), strict=True):
                self._open_rows[number].append(value)
                if len(self._open_rows[number]) == self._size:
                    self._write(number)

    def flush(self) -> None:
        for number in range(len(self._names)):
            self._write(number)

    def _read_stored(self, number: int) -> int:
        task, place, name = self._task, self._places[number], self._names[number]
        ids, last = TaskIds(task.secret, task.name, str(name)), place.last_ids.get(task.name, -1)
        is_claimed = last >= first_sequence_id(task.origin.batch)
        search = RunSearch(RunToFind(task.origin, task.secret, task.name, last, is_claimed))
        for entry, _ in reversed(place.entries[0 if is_claimed else -_LOOK :]):
            if entry is not None:
                search.take([entry])
            if search.is_passed:
                break
        assert is_claimed == (search.begin is not None)
        own = [
            rows_of(tuple(values)) for entry, values in place.entries if entry and search.is_own(entry.origin)
        ]
        stored = StoredRun(search.begin, is_replay=search.is_replay, is_again=search.is_again)
        run = task.run_of(self._topic)
        run.partitions[name] = PartitionRun(number, task.name, search.begin, stored)
        run.stored.add(number, iter(own))
        return ids.following(last, task.origin.batch)

    def _write(self, number: int) -> None:
        values, self._open_rows[number] = self._open_rows[number], []
        if not values:
            return
        task, place, name = self._task, self._places[number], self._names[number]
        run = task.run_of(self._topic)
        partition = run.partitions[name]
        origin = replace(task.origin, begin=partition.begin, is_again=run.is_replay)
        here = MessageId(1, len(place.entries))
        partition.begin = partition.begin or here
        self._next_id[number] += len(values)
        place.last_ids[task.name] = last = self._next_id[number] - 1
        place.entries.append((OwnEntry(here, origin, task.name, last, messages=len(values)), values))
        before = self.sent.get(name, SentTotals())
        self.sent[name] = SentTotals(before.messages + len(values))


@lru_cache(1000)
def rows_of(values: tuple[bytes, ...]) -> Rows:
    nothing = np.full(len(values), -1)
    return Rows(encode_batch_messages(columns(values)), extras_of(nothing, nothing))


@lru_cache(1000)
def words_of(values: tuple[bytes, ...]) -> Words:
    return first_words(rows_of(values))


def find(memory: Memory, topic: TopicName, secret: bytes, batch: Origin) -> BatchSearch:
    """What ``find_stored_batch`` finds."""
    search = BatchSearch(batch)
    search.take([entry for entry, _ in memory.topics[str(topic)].entries if entry is not None])
    return search


def digests(
    memory: Memory, topic: TopicName, secret: bytes, batch: Origin, decryptor: object
) -> tuple[Words, Ints]:
    """What ``stored_digests`` finds."""
    words, tasks = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for entry, values in memory.topics[str(topic)].entries:
        if entry and entry.origin.when == batch.when and entry.origin.run != batch.run:
            words.append(words_of(tuple(values)))
            tasks.append(np.full(len(values), entry.origin.task))
    return np.concatenate(words), np.concatenate(tasks)


class MemoryMoves(Moves):
    """The runs of a query on one topic in memory."""

    counts = (1, 4, 15)

    def __init__(self, seed: int) -> None:
        super().__init__(Memory(), seed)

    def play(self) -> Outcome:
        with (
            patch.object(driver, "find_stored_batch", find),
            patch.object(dedup, "stored_digests", digests),
        ):
            return super().play()

    def _client(self) -> Any:
        return self._broker

    def _writer(self, client: Any, task: DedupTask, options: ProducerOptions) -> Any:
        return MemoryWriter(client, self._topic, task, options)
