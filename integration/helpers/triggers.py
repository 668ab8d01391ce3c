"""Spark's calls on a query's planner, in Spark's order, without a Spark: many triggers in little time.

with Triggers(cluster.service_url, topic, maxMessagesPerTrigger="100") as triggers:
    for batch in triggers.available_now():
        print(len(triggers.rows(batch)))
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from integration.broker.waiting import wait_until
from pulsar_spark.client import Range
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.stream import QueryPlanner
from pulsar_spark.spark.reader import PulsarReader
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import from_wire_id

# How often Spark's default trigger asks for news, in seconds.
POLL = 0.012


class Batch(NamedTuple):
    """One micro-batch: what Spark would checkpoint of it, and its tasks."""

    start: Offsets
    end: Offsets
    tasks: list[Range]


class Triggers:
    """One run of a streaming query from the earliest message on; a context manager that ends it."""

    def __init__(self, service_url: str, topic: str, **options: str) -> None:
        plain = {"service.url": service_url, "topic": topic, "startingOffsets": "earliest"}
        self._reader = PulsarReader(plain, SOURCE_SCHEMA)
        self.planner = QueryPlanner(parse_source(plain | options, Mode.STREAM))

    def __enter__(self) -> Triggers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.planner.close()

    def available_now(self, start: Offsets | None = None) -> Iterator[Batch]:
        """All micro-batches of Trigger.AvailableNow; ``start`` is what a checkpoint holds."""
        self.planner.freeze()
        position = start or self.planner.initial()
        while (end := self.planner.latest(position)) != position:
            yield Batch(position, end, self.planner.ranges(position, end))
            position = end

    def read_all(self, start: Offsets | None = None) -> list[tuple[str, MessageId, bytes]]:
        """The rows of all micro-batches of Trigger.AvailableNow."""
        return [row for batch in self.available_now(start) for row in self.rows(batch)]

    def next_batch(self, start: Offsets) -> Batch:
        """Poll as the default trigger does, until there is a micro-batch."""
        ends: list[Offsets] = []

        def came() -> bool:
            ends.append(self.planner.latest(start))
            self.planner.report()
            return ends[-1] != start

        wait_until(came, interval=POLL)
        return Batch(start, ends[-1], self.planner.ranges(start, ends[-1]))

    def poll(self, start: Offsets, seconds: float) -> None:
        """Poll for some time, in which nothing is to come."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.planner.latest(start) == start
            self.planner.report()
            time.sleep(POLL)

    def rows(self, tasks: Batch | Sequence[Range]) -> list[tuple[str, MessageId, bytes]]:
        """What the tasks read: partition, message id and value of each row, in the tasks' order."""
        ranges = tasks.tasks if isinstance(tasks, Batch) else tasks
        return [row for each in ranges for row in self.rows_of(each)]

    def rows_of(self, task: Range) -> list[tuple[str, MessageId, bytes]]:
        """What one task reads."""
        return [
            (row["__topic"], message_id(row["__messageId"]), row["value"])
            for batch in self.read(task)
            for row in batch.to_pylist()
        ]

    def count(self, batch: Batch) -> int:
        """How many rows a micro-batch has."""
        return sum(data.num_rows for task in batch.tasks for data in self.read(task))

    def read(self, task: Range) -> Iterator[pa.RecordBatch]:
        """One task."""
        return self._reader.read(InputPartition((task,)))


def logged(offsets: Offsets) -> Offsets:
    """Offsets as Spark's checkpoint has them."""
    return Offsets.from_json(json.loads(json.dumps(offsets.to_json())))


def message_id(data: bytes) -> MessageId:
    """The id in a row's ``__messageId``."""
    return from_wire_id(pb.MessageIdData.FromString(data))


def partitions_of(topic: str, count: int) -> list[TopicName]:
    """The names of the first partitions of a topic."""
    return [TopicName.parse(topic).of_partition(number) for number in range(count)]
