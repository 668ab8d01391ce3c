"""More executors: what a row costs, and how many connections Spark opens.

    python3 -m integration bench executors [N ...]

Spark's ``local-cluster``: its standalone master and workers in the driver's JVM, and N executors of one core
in JVMs of their own. All of them share this machine's cores with the broker, so rates do not grow with N; CPU
a row and connections of a process must not either. One topic of 8 partitions is read in a stream and written
in a batch. Rows are checked by count and checksum.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path

from pyspark.sql import SparkSession

from integration.bench import memory
from integration.bench.measure import Cost
from integration.bench.peer_jar import Rows, rows_of
from integration.bench.shapes import SHAPES, rows_to_write
from integration.bench.sockets import watched
from integration.bench.spark import read_rows, write_rows
from integration.bench.topics import Topics
from integration.broker import Jvm, StandaloneBroker
from integration.deploy.environments import link
from integration.helpers.local_spark import local_spark
from pulsar_spark.client import Client, ClientOptions

_EXECUTORS = (1, 2, 4, 8)
_PARTITIONS = 8
_ROWS = 2_000_000
_SHAPE = SHAPES["batched"]
_WARM_UPS = 2
_REPEAT = 3
_MIB = 768  # of an executor


@dataclass(frozen=True, slots=True)
class Figures:
    """Of some runs with one number of executors.

    Attributes:
        direction: ``read`` or ``write``.
        executors: how many.
        rate: rows a second: the best run's.
        cpu: microseconds of CPU a row of all of Spark's processes: the median of the runs.
        processes: Python workers that had a connection to the broker at the same time, at most.
        connections: of one of them, at most.
        mib: the highest resident size of a Python worker.
    """

    direction: str
    executors: int
    rate: float
    cpu: float
    processes: int
    connections: int
    mib: float

    def line(self) -> str:
        """All of it in a line."""
        return (
            f"{self.executors} executors, {self.direction}: {self.rate:,.0f} rows/s, {self.cpu:.2f} us of "
            f"CPU a row; workers with connections: {self.processes}, connections of each: at most "
            f"{self.connections}; a worker has at most {self.mib:.0f} MiB"
        )


def growth_lines(figures: Sequence[Figures]) -> list[str]:
    """What grows from the fewest executors to the most, for each direction; empty for a single number."""
    lines = []
    for direction in dict.fromkeys(each.direction for each in figures):
        chosen = sorted(
            (each for each in figures if each.direction == direction), key=attrgetter("executors")
        )
        first, last = chosen[0], chosen[-1]
        if first.executors != last.executors:
            lines.append(
                f"{direction}, {first.executors} to {last.executors} executors: CPU a row "
                f"x {last.cpu / first.cpu:.2f}, connections of a worker {first.connections} to "
                f"{last.connections}, memory of a worker x {last.mib / first.mib:.2f}"
            )
    return lines


@contextmanager
def _cluster(folder: Path, executors: int) -> Iterator[SparkSession]:
    """A driver and so many executors; files go into ``folder``."""
    settings = {
        "spark.master": f"local-cluster[{executors},1,{_MIB}]",
        "spark.executor.memory": f"{_MIB}m",
        # All executors have come before a task starts.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    spark = local_spark(folder, "bench", settings)
    try:
        yield spark
    finally:
        spark.stop()


class _Bench:
    """Reads and writes with one number of executors."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path, executors: int) -> None:
        self._spark, self._topics, self._folder, self._executors = spark, topics, folder, executors
        self._port = int(topics.service_url.rpartition(":")[2])

    def read(self, topic: str) -> Figures:
        """Read all of a topic in a stream with AvailableNow."""
        options = self._options(topic) | {"startingOffsets": "earliest", "retainSubscription": "false"}
        return self._measured(
            "read", lambda: read_rows(self._spark, "pulsar", options, _ROWS, self._folder).cost
        )

    def write(self) -> Figures:
        """Write as many rows in a batch, each time to a new topic."""
        rows = rows_to_write(self._spark, _SHAPE, _ROWS, _PARTITIONS)

        def run() -> Cost:
            with self._topics.empty(_PARTITIONS) as topic:
                return write_rows(rows, "pulsar", self._options(topic))

        return self._measured("write", run)

    def check(self, topic: str) -> None:
        """Compare the rows of a topic, and of one that is written, with those that were made.

        Raises:
            ValueError: other rows were read, or written.
        """
        rows = rows_to_write(self._spark, _SHAPE, _ROWS, _PARTITIONS)
        expected = rows_of(rows, _SHAPE)
        with self._topics.empty(_PARTITIONS) as written:
            write_rows(rows, "pulsar", self._options(written))
            for what, name in (("read", topic), ("written", written)):
                if (found := self._rows(name)) != expected:
                    raise ValueError(
                        f"{self._executors} executors: the rows {what} are {found}, not {expected}"
                    )

    def _rows(self, topic: str) -> Rows:
        options = self._options(topic) | {"startingOffsets": "earliest"}
        return rows_of(self._spark.read.format("pulsar").options(**options).load(), _SHAPE)

    def _options(self, topic: str) -> dict[str, str]:
        return {"service.url": self._topics.service_url, "topic": topic}

    def _measured(self, direction: str, run: Callable[[], Cost]) -> Figures:
        for _ in range(_WARM_UPS):
            run()
        memory.set_peaks_back()
        with watched(memory.workers, self._port) as seen:
            costs = [run() for _ in range(_REPEAT)]
        return Figures(
            direction=direction,
            executors=self._executors,
            rate=_ROWS / min(cost.seconds for cost in costs),
            cpu=statistics.median(cost.cpu for cost in costs) / _ROWS * 1e6,
            processes=max(map(len, seen), default=0),
            connections=max(chain.from_iterable(seen), default=0),
            mib=memory.peak_mib(),
        )


def main(*executors: int) -> int:
    """Measure and print."""
    figures = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsar_spark_bench_")))
        # A home of links, as workers of local-cluster write into Spark's.
        link("pyspark", folder)
        os.environ["SPARK_HOME"] = str(folder / "pyspark")
        broker = stack.enter_context(StandaloneBroker(jvm=Jvm(heap="1g", direct_memory="2g")))
        client = stack.enter_context(Client(ClientOptions(service_url=broker.service_url)))
        topics = Topics(broker.admin, client)
        topic = stack.enter_context(topics.filled(_SHAPE, _PARTITIONS, _ROWS))
        for count in executors or _EXECUTORS:
            with _cluster(folder, count) as spark:
                bench = _Bench(spark, topics, folder, count)
                bench.check(topic)
                for measured in (bench.read(topic), bench.write()):
                    figures.append(measured)
                    print(measured.line(), flush=True)
    for line in growth_lines(figures):
        print(line)
    return 0
