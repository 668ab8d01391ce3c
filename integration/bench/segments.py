"""What a scalable topic costs beside a topic with as many partitions, on a broker of Pulsar 5.

    python3 -m integration bench segments [N]

Planning: 64 segments, after 500 changes of which all old segments are kept, beside 64 partitions. Reading: a
million messages of 100 bytes in 4 segments beside 4 partitions, N times in turn. Writing: four million of
them, with and without keys, likewise, and to one segment of 4 buckets beside one partition. The broker does
not split segments by itself. Each read, write and planner has a process of its own; medians are compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import pyarrow as pa

from integration.bench import shapes
from integration.bench.commands_sent import counted_commands
from integration.bench.measure import Cost, Stopwatch, in_new_process
from integration.bench.planning import Meter, Planner
from integration.bench.shapes import SHAPES
from integration.broker import Jvm, StandaloneBroker
from integration.helpers.segments import ScalableTopic
from integration.helpers.versions import NEWEST_LINE
from pulsar_spark.client import (
    Client,
    ClientOptions,
    MessageColumns,
    ProducerOptions,
    SegmentWriter,
    TopicWriter,
)
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.reader import PulsarReader
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA
from pulsar_spark_broker.jars import VERSION_VARIABLE

_PARTS, _CHANGES, _ROUNDS, _PAUSE, _IDLE = 64, 500, 6, 1.0, 10.0
_READ_PARTS, _MESSAGES = 4, 1_000_000
_WRITTEN, _WARM_UP = 4_000_000, 100_000


class Planning(NamedTuple):
    """What planning took.

    Attributes:
        idle: share of a core while nothing comes.
        idle_requests: each second.
        cpu: seconds of CPU of a micro-batch with news in all parts.
        latest: seconds of its latestOffset.
    """

    idle: float
    idle_requests: float
    cpu: float
    latest: float


def plan(options: dict[str, str], parts: Sequence[TopicName]) -> Planning:
    """Plan a query; its first trigger begins with the oldest message."""
    with counted_commands() as counted, ExitStack() as stack:
        client = stack.enter_context(Client(ClientOptions(service_url=options["service.url"])))
        writers = [
            stack.enter_context(TopicWriter(client, part, ProducerOptions(batching=False))) for part in parts
        ]
        planner = Planner(options)
        before = ""
        while planner.offset != before:
            before = planner.offset
            planner.poll(5 * _PAUSE)
        meter = Meter(counted)
        planner.poll(_IDLE)
        idle = meter.costs()
        cpu, latest = [], []
        for _ in range(_ROUNDS):
            for writer in writers:
                writer.send(MessageColumns(value=pa.array([b"message"]), key=pa.nulls(1, pa.binary())))
                writer.flush()
            time.sleep(_PAUSE)
            meter = Meter(counted)
            found = planner.trigger()
            planner.tasks(found.offset)
            cpu.append(meter.costs().cpu)
            latest.append(found.seconds)
            planner.offset = found.offset
            planner.poll(_PAUSE)
        planner.stop()
    return Planning(idle.cpu / idle.seconds, idle.requests / idle.seconds, median(cpu), median(latest))


def read(options: dict[str, str]) -> Cost:
    """Read a topic as a batch, one task after the other."""
    reader = PulsarReader(options, SOURCE_SCHEMA)
    watch = Stopwatch()
    rows = sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))
    assert rows == _MESSAGES
    return watch.cost()


def write(service_url: str, topic: TopicName, has_keys: bool) -> Cost:
    """Write to a topic, in one task."""
    shape = SHAPES["batched"]
    parts = list(shapes.chunks(shape, _WARM_UP))
    if not has_keys:
        parts = [replace(each, key=pa.nulls(len(each), pa.binary())) for each in parts]
    kind = SegmentWriter if topic.is_scalable else TopicWriter
    with (
        Client(ClientOptions(service_url=service_url)) as client,
        kind(client, topic, shapes.producer_options(shape)) as writer,
    ):
        for times in (1, _WRITTEN // _WARM_UP):
            watch = Stopwatch()
            for _ in range(times):
                for columns in parts:
                    writer.send(columns)
            writer.flush()
    return watch.cost()


def main(repeat: int = 3) -> int:
    """Measure and print."""
    os.environ[VERSION_VARIABLE] = NEWEST_LINE
    settings = {"scalableTopicAutoScaleEnabled": "false"}
    jvm = Jvm(heap="2g", direct_memory="2g")
    with StandaloneBroker(settings, jvm=jvm) as broker, ExitStack() as stack:
        broker.admin.set_retention("public/default", minutes=-1, megabytes=-1)
        given = {"service.url": broker.service_url, "startingOffsets": "earliest"}
        scalable = stack.enter_context(
            ScalableTopic(broker.service_url, broker.admin, "many", segments=_PARTS)
        )
        for _ in range(_CHANGES // 2):
            scalable.split(scalable.active[0])
            scalable.merge(*scalable.active[:2])
        old = len(scalable.segments) - len(scalable.active)
        classic = TopicName.parse("persistent://public/default/parts")
        broker.admin.create_partitioned_topic(str(classic), _PARTS)
        partitions = [classic.of_partition(number) for number in range(_PARTS)]
        named = given | {"topic": str(scalable.name), "admin.url": broker.admin_url}
        segments = in_new_process(plan, named, scalable.active)
        beside = in_new_process(plan, given | {"topic": str(classic)}, partitions)
        print(f"planning, {_PARTS} segments and {old} old ones, over {_PARTS} partitions:")
        for name, mine, other in zip(Planning._fields, segments, beside, strict=True):
            ratio = f"{mine / other:.2f}" if other else "none beside"
            print(f"  {name}: {ratio}  ({mine:.4g} / {other:.4g})", flush=True)
        _read(broker, repeat)
        for parts in (_READ_PARTS, 1):
            _write(broker, repeat, parts)
    return 0


def _read(broker: StandaloneBroker, repeat: int) -> None:
    given = {"service.url": broker.service_url}
    classic = TopicName.parse("persistent://public/default/read-parts")
    broker.admin.create_partitioned_topic(str(classic), _READ_PARTS)
    with (
        ScalableTopic(broker.service_url, broker.admin, "read", segments=_READ_PARTS) as scalable,
        Client(ClientOptions(service_url=broker.service_url)) as client,
    ):
        shape, topics = SHAPES["batched"], (str(scalable.name), str(classic))
        for part in (*scalable.active, *(classic.of_partition(number) for number in range(_READ_PARTS))):
            with TopicWriter(client, part, shapes.producer_options(shape)) as writer:
                for columns in shapes.chunks(shape, _MESSAGES // _READ_PARTS):
                    writer.send(columns)
                writer.flush()
        costs = [
            [in_new_process(read, given | {"topic": topic}) for topic in topics] for _ in range(repeat + 1)
        ][1:]
    seconds = median(mine.seconds / other.seconds for mine, other in costs)
    cpu = median(mine.cpu / other.cpu for mine, other in costs)
    rate = median(_MESSAGES / mine.seconds for mine, _ in costs)
    print(f"reading {_READ_PARTS} segments over {_READ_PARTS} partitions, {rate:,.0f} rows a second:")
    print(f"  seconds {seconds:.2f}, CPU {cpu:.2f}", flush=True)


def _write(broker: StandaloneBroker, repeat: int, parts: int) -> None:
    """Write to segments and to partitions. The broker gives a topic 4 buckets: one segment has them all."""
    classic = TopicName.parse(f"persistent://public/default/write-parts-{parts}")
    broker.admin.create_partitioned_topic(str(classic), parts)
    with ScalableTopic(broker.service_url, broker.admin, f"write-{parts}", segments=parts) as scalable:
        for has_keys in (True, False):
            costs = [
                [
                    in_new_process(write, broker.service_url, each, has_keys)
                    for each in (scalable.name, classic)
                ]
                for _ in range(repeat + 1)
            ][1:]
            seconds = median(other.seconds / mine.seconds for mine, other in costs)
            cpu = median(mine.cpu / other.cpu for mine, other in costs)
            rate = median(_WRITTEN / mine.seconds for mine, _ in costs)
            keys = "with keys" if has_keys else "without keys"
            print(f"writing {parts} segments over {parts} partitions, {keys}, {rate:,.0f} rows a second:")
            print(f"  rate {seconds:.2f}, CPU {cpu:.2f}", flush=True)
