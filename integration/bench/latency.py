"""Latency: from produce to a foreachBatch function in the driver, beside a source that does nothing.

    python3 -m integration bench latency [SAMPLES]

One message at a time, from pulsar-client, with a random pause before the next one, so that it comes at any
moment of a trigger. Spark has its default trigger. The floor is :mod:`floor`: what Spark takes by itself.

Only one of the two queries runs at a time, or the planner of the one would take CPU from the other. They run
in turn, a block of samples each, and go on from their checkpoints. The first samples of a block are left out:
the workers and the topic have to be opened. So is a first block of each: Spark's JVM compiles meanwhile.
"""

from __future__ import annotations

import queue
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pulsar
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration.bench import peer
from integration.bench.floor import Floor
from integration.bench.spark import session
from integration.broker import Jvm, StandaloneBroker
from integration.broker.waiting import wait_until

SAMPLES = 100
REQUIRED = {"median": 50.0, "p99": 100.0}  # milliseconds above the floor, at most

_BLOCK = 10
_LEFT_OUT = 3  # of each block
_PAUSE = 1.0  # seconds at most: as long as several micro-batches, so that some messages wait for the last one
_TIMEOUT = 60.0
_TOPIC = "persistent://public/default/latency"
_NAMES = ("pulsar_spark", "floor")
# Of a micro-batch, in Spark's order.
_STAGES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")

Produce = Callable[[bytes], object]


class Sample(NamedTuple):
    """One message.

    Attributes:
        called: milliseconds from before it was sent to the call of the function.
        had: the same to where the function has its row.
    """

    called: float
    had: float


class Stream:
    """A streaming query that is stopped and started again, and what was measured of it.

    Args:
        rows: of the source; message ``n`` is the row with the value ``n``.
        produce: gives what sends a message, while the query runs.
        checkpoint: a folder.

    Attributes:
        samples: all so far.
        stages: milliseconds of Spark's stages, of the micro-batch of each sample.
    """

    def __init__(
        self, rows: DataFrame, produce: Callable[[], AbstractContextManager[Produce]], checkpoint: Path
    ) -> None:
        self.samples: list[Sample] = []
        self.stages: list[Mapping[str, int]] = []
        self._rows = rows
        self._produce = produce
        self._checkpoint = checkpoint
        self._sent = 0
        self._arrived = queue.SimpleQueue[tuple[float, float, list[bytes]]]()

    def run(self, count: int, pauses: random.Random) -> None:
        """Take so many samples, after some that are left out."""
        writer = self._rows.writeStream.foreachBatch(self._call)
        query = writer.option("checkpointLocation", str(self._checkpoint)).start()
        try:
            with self._produce() as produce:
                taken = []
                for _ in range(_LEFT_OUT + count):
                    taken.append(self._sample(query, produce))
                    time.sleep(pauses.uniform(0, _PAUSE))
                # Else the last micro-batch might not be committed, and run again in the next block.
                wait_until(lambda: len(_with_rows(query)) == len(taken), timeout=_TIMEOUT)
                self.samples += taken[_LEFT_OUT:]
                self.stages += _with_rows(query)[_LEFT_OUT:]
        finally:
            query.stop()

    def forget(self) -> None:
        """Leave out what was taken so far."""
        self.samples.clear()
        self.stages.clear()

    def _sample(self, query: StreamingQuery, produce: Produce) -> Sample:
        self._sent += 1
        payload = b"%d" % self._sent
        began = time.perf_counter()
        produce(payload)
        try:
            called, had, values = self._arrived.get(timeout=_TIMEOUT)
        except queue.Empty:
            raise TimeoutError(f"message {self._sent} did not come: {query.exception()}") from None
        if values != [payload]:
            raise ValueError(f"{values} came, not message {self._sent}")
        return Sample((called - began) * 1000, (had - began) * 1000)

    def _call(self, rows: DataFrame, batch: int) -> None:
        called = time.perf_counter()
        values = [bytes(row.value) for row in rows.select("value").collect()]
        if values:
            self._arrived.put((called, time.perf_counter(), values))


def _with_rows(query: StreamingQuery) -> list[Mapping[str, int]]:
    return [progress.durationMs for progress in query.recentProgress if progress.numInputRows]


def main(samples: int = SAMPLES) -> int:
    """Measure and print."""
    with ExitStack() as stack:
        broker = stack.enter_context(StandaloneBroker(jvm=Jvm(heap="1g", direct_memory="1g")))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsar_spark_bench_")))
        spark = stack.enter_context(session(folder))
        client = stack.enter_context(peer.connected(broker.service_url))
        broker.admin.create_topic(_TOPIC)
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        ours, floor = measure(spark, broker.service_url, client, server, folder, samples)
    print("\n".join(lines(ours.samples, floor.samples)))
    print("\n".join(stage_lines(ours.stages, floor.stages)))
    return 0


def measure(
    spark: SparkSession,
    service_url: str,
    client: pulsar.Client,
    server: socket.socket,
    folder: Path,
    samples: int,
) -> tuple[Stream, Stream]:
    """Take so many samples of ours, and of the floor."""
    path = str(folder / "news")
    server.bind(path)
    server.listen()
    server.settimeout(_TIMEOUT)
    spark.dataSource.register(Floor)
    given = {"service.url": service_url, "topic": _TOPIC, "startingOffsets": "earliest"}
    producer = client.create_producer(_TOPIC, batching_enabled=False)
    ours = Stream(
        spark.readStream.format("pulsar").options(**given).load(),
        lambda: nullcontext(producer.send),
        folder / "ours",
    )
    floor = Stream(
        spark.readStream.format("bench_floor").option("socket", path).load(),
        lambda: _tell(server),
        folder / "floor",
    )
    for stream in (ours, floor):
        stream.run(_BLOCK, random.Random(0))
        stream.forget()
    for first in range(0, samples, _BLOCK):
        count = min(_BLOCK, samples - first)
        for name, stream in zip(_NAMES, (ours, floor), strict=True):
            stream.run(count, random.Random(first))  # the same pauses
            block = statistics.median(sample.had for sample in stream.samples[-count:])
            print(f"{name}: samples {first + 1} to {first + count}, median {block:.0f} ms", flush=True)
    return ours, floor


@contextmanager
def _tell(server: socket.socket) -> Iterator[Produce]:
    """Wait for the floor's planner, and tell it of messages."""
    connection, _ = server.accept()
    with connection:
        yield lambda _: connection.sendall(b"\0")


def lines(ours: Sequence[Sample], floor: Sequence[Sample]) -> list[str]:
    """Medians and p99 of both, and how far ours is above the floor."""
    shown = [f"\n{len(ours)} samples, milliseconds from produce to"]
    for title, field in (("the call of the function", "called"), ("its row in the driver", "had")):
        mine, least = (_figures([getattr(sample, field) for sample in each]) for each in (ours, floor))
        above = {name: mine[name] - least[name] for name in mine}
        verdicts = [
            f"{name} {above[name]:+.0f} (needs at most {needs:g}{', ABOVE' * (above[name] > needs)})"
            for name, needs in REQUIRED.items()
        ]
        shown.append(f"{title}: {_NAMES[0]} {_shown(mine)}; {_NAMES[1]} {_shown(least)}")
        shown.append(f"  above the floor: {', '.join(verdicts)}")
    return shown


def stage_lines(ours: Sequence[Mapping[str, int]], floor: Sequence[Mapping[str, int]]) -> list[str]:
    """Medians of Spark's stages of a micro-batch; ``addBatch`` has the function and the tasks."""
    shown = ["\nmilliseconds of a micro-batch (medians; latestOffset includes waiting for the message):"]
    for stage in _STAGES:
        mine, least = (statistics.median(each.get(stage, 0) for each in stages) for stages in (ours, floor))
        shown.append(f"  {stage}: {_NAMES[0]} {mine:.0f}, {_NAMES[1]} {least:.0f}")
    return shown


def _figures(milliseconds: Sequence[float]) -> dict[str, float]:
    median, high = np.percentile(milliseconds, (50, 99))
    return {"median": float(median), "p99": float(high)}


def _shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {figure:.0f}" for name, figure in figures.items())
