"""A Spark driver that copies a topic in small micro-batches for hours, and notes what its processes take.

``python -m integration.chaos.soak_driver SERVICE_URL SOURCE SINK FOLDER SAMPLES TRIGGER``

TRIGGER is the number of seconds from one micro-batch to the next. Beside the copy runs a floor: a query with
the same trigger whose source does nothing, so that what the machine does to the time of a micro-batch is seen
in both. Every 30 s one line of JSON is added to the file SAMPLES. As soon as FOLDER/stop exists, which says
how many messages were sent, the driver reads up to there and ends.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration.bench.floor import Floor
from integration.broker.waiting import wait_until
from integration.helpers.local_spark import local_spark
from integration.helpers.processes import below, memory_mib

_EVERY = 30.0  # seconds between two samples
# What Spark remembers for its user interface is full within minutes, and grows no more.
_SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
}
_NEWS = 0.1  # seconds between two rows of the floor
_PLANNER, _WORKER = b"python_streaming_source_runner", b"pyspark.daemon"


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at one moment, and the micro-batches since the sample before.

    Attributes:
        seconds: since the first sample.
        heap: MiB of the JVM's heap in use, after a collection.
        mib: resident sizes: of ``driver`` (its Python), ``jvm``, ``planner`` (of the copy) and ``workers``.
        files: numbers of file descriptors of the same.
        workers: the resident size, MiB, of each worker and of the daemon that forks them, by process id.
        load: of the machine, runnable processes in the last minute.
        batches: of the copy: number, milliseconds and rows of each micro-batch.
        floor: the same of the floor.
    """

    seconds: float
    heap: float
    mib: Mapping[str, float]
    files: Mapping[str, int]
    workers: Mapping[int, float]
    load: float
    batches: list[tuple[int, int, int]]
    floor: list[tuple[int, int, int]]


class Batches:
    """The micro-batches of a query, each one given once."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._rows = 0
        self._last = -1
        self._untold: list[tuple[int, int, int]] = []

    def look(self) -> int:
        """Note what is new; how many rows there were so far."""
        error = self._query.exception()
        if error is not None:
            raise error
        for progress in self._query.recentProgress:
            if progress.numInputRows and progress.batchId > self._last:
                self._last = progress.batchId
                self._rows += progress.numInputRows
                took = progress.durationMs["triggerExecution"]
                self._untold.append((progress.batchId, took, progress.numInputRows))
        return self._rows

    def new(self) -> list[tuple[int, int, int]]:
        """Number, milliseconds and rows of those with rows, since the last call."""
        self.look()
        told, self._untold = self._untold, []
        return told


def main(service_url: str, source: str, sink: str, folder: Path, samples: Path, trigger: str) -> None:
    """Copy, and take samples, until asked to stop."""
    spark = local_spark(folder, "soak", _SETTINGS)
    spark.dataSource.register(Floor)
    with _news(str(folder / "news")):
        copy = _copy(spark, service_url, source, sink, folder, trigger)
        batches = Batches(copy)
        wait_until(batches.look)
        planner = _only_planner()
        floor_query = _floor(spark, folder, trigger)
        floor = Batches(floor_query)
        wait_until(floor.look)
        _sample_until(folder / "stop", spark, planner, batches, floor, samples)
        sent = int((folder / "stop").read_text())
        wait_until(lambda: batches.look() >= sent)
        for query in (floor_query, copy):
            query.stop()
    spark.stop()


def _copy(
    spark: SparkSession, service_url: str, source: str, sink: str, folder: Path, trigger: str
) -> StreamingQuery:
    url = {"service.url": service_url}
    rows = spark.readStream.format("pulsar").options(topic=source, startingOffsets="earliest", **url).load()
    writer = rows.select("__key", "value").writeStream.format("pulsar").options(topic=sink, **url)
    checkpoint = str(folder / "copy")
    return (
        writer.option("checkpointLocation", checkpoint).trigger(processingTime=f"{trigger} seconds").start()
    )


def _floor(spark: SparkSession, folder: Path, trigger: str) -> StreamingQuery:
    rows = spark.readStream.format("bench_floor").option("socket", str(folder / "news")).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "floor"))
    return writer.trigger(processingTime=f"{trigger} seconds").start()


@contextmanager
def _news(path: str) -> Iterator[None]:
    """Tell the floor's planner of rows, as soon as it connects and until the end."""
    ended = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def tell() -> None:
            connection, _ = server.accept()
            with connection:
                while not ended.wait(_NEWS):
                    try:
                        connection.sendall(b"\0")
                    except BrokenPipeError:  # its query has ended
                        return

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        yield
        ended.set()
        thread.join()


def _sample_until(
    stop: Path, spark: SparkSession, planner: int, batches: Batches, floor: Batches, samples: Path
) -> None:
    began = time.monotonic()
    due = began
    with samples.open("w") as file:
        while not stop.exists():
            if time.monotonic() >= due:
                sample = _sample(spark, planner, batches, floor, time.monotonic() - began)
                print(json.dumps(asdict(sample)), file=file, flush=True)
                due += _EVERY
            time.sleep(0.5)


def _sample(spark: SparkSession, planner: int, batches: Batches, floor: Batches, seconds: float) -> Sample:
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    workers = below(os.getpid(), _WORKER)
    processes = {
        "driver": [os.getpid()],
        "jvm": [jvm.java.lang.ProcessHandle.current().pid()],
        "planner": [planner],
        "workers": workers,
    }
    return Sample(
        seconds=round(seconds, 1),
        heap=round(heap / 2**20, 2),
        mib={name: round(sum(map(memory_mib, pids)), 2) for name, pids in processes.items()},
        files={name: sum(map(_open_files, pids)) for name, pids in processes.items()},
        workers={pid: round(memory_mib(pid), 2) for pid in workers},
        load=round(os.getloadavg()[0], 2),
        batches=batches.new(),
        floor=floor.new(),
    )


def _only_planner() -> int:
    """The planner's process id, while one query runs."""
    (planner,) = below(os.getpid(), _PLANNER)
    return planner


def _open_files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5]), sys.argv[6])
