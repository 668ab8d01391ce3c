"""What planning costs: requests, CPU and time, for topics of some, many and very many partitions.

    python3 -m integration bench planning [PARTITIONS ...]

It does what Spark's planner process does, with offsets as JSON on their way in and out, and triggers as often
as Spark's default trigger. Producers are in another process. Requests are what the broker answers; FLOW,
which it does not, is shown beside them. Each number of partitions has a planner's process of its own, and at
the end stands how costs grow with it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from integration.bench.commands_sent import UNANSWERED, counted_commands
from integration.bench.measure import in_new_process
from integration.broker import Jvm, StandaloneBroker
from integration.helpers.processes import connections, memory_mib
from pulsar_spark.client import Client, ClientOptions, MessageColumns, ProducerOptions, TopicWriter, now
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.reader import PulsarReader, PulsarStreamReader
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA

_PARTITIONS = (50, 200, 500)
_MESSAGES = 5  # of each partition and round, each an entry
_ROUNDS = 6
_TIMES_SEEN = 20
# Seconds: between two triggers of Spark's, until a query has settled, of idling that is measured, and between
# two rounds, or two single messages.
_POLL = 0.01
_SETTLED = 3.0
_IDLE = 10.0
_PAUSE = 2.0
_SEEN_PAUSE = 0.5

# The most that a partition may add to latestOffset, ms.
_REQUIRED_SLOPE = 1.0


class Trigger(NamedTuple):
    """One call of latestOffset and reportLatestOffset, as Spark makes them."""

    offset: str
    seconds: float


class Planner:
    """The planner process of one query, in this process.

    Attributes:
        offset: JSON of what was processed last.
    """

    def __init__(self, given: dict[str, str]) -> None:
        self._reader = PulsarStreamReader(given, SOURCE_SCHEMA)
        self._rows = PulsarReader(given, SOURCE_SCHEMA)
        self.offset = json.dumps(self._reader.initialOffset())

    def trigger(self) -> Trigger:
        """What Spark asks before each micro-batch, and where there may be none."""
        began = time.perf_counter()
        found = json.dumps(self._reader._next_end(json.loads(self.offset), limited=True))
        seconds = time.perf_counter() - began
        json.dumps(self._reader.reportLatestOffset())
        return Trigger(found, seconds)

    def poll(self, seconds: float) -> int:
        """Trigger for so long; returns how often. What comes is processed, but not read."""
        until, count = now() + seconds, 0
        while now() < until:
            self.offset = self.trigger().offset
            count += 1
            time.sleep(_POLL)
        return count

    def tasks(self, end: str) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        return list(self._reader.partitions(json.loads(self.offset), json.loads(end)))

    def run(self, tasks: list[InputPartition]) -> int:
        """Run tasks one after the other; returns the number of their rows."""
        return sum(batch.num_rows for task in tasks for batch in self._rows.read(task))

    def stop(self) -> None:
        """The end of the query."""
        assert self._reader._started is not None
        self._reader._started.close()


class Producers:
    """A process that writes to a topic and to its first partition; a context manager."""

    def __init__(self, service_url: str, topic: str, partitions: int) -> None:
        command = [sys.executable, "-m", "integration.bench.planning", "produce", service_url, topic]
        self._process = subprocess.Popen(
            [*command, str(partitions)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def __enter__(self) -> Producers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def produce_everywhere(self) -> None:
        """Write some messages to each partition."""
        self._ask("all")

    def produce_one(self) -> float:
        """Write one message to the first partition; returns when it was stored, by :func:`now`."""
        return self._ask("one")

    def _ask(self, what: str) -> float:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline() or sys.exit("the process that writes has failed")


def produce(service_url: str, topic: str, partitions: int) -> None:
    """Write what each line of the standard input asks for."""
    name, options = TopicName.parse(topic), ProducerOptions(batching=False)

    def columns(count: int) -> MessageColumns:
        return MessageColumns(value=pa.array([b"message"] * count), key=pa.nulls(count, pa.binary()))

    with ExitStack() as stack:
        client = stack.enter_context(Client(ClientOptions(service_url=service_url)))
        everywhere = stack.enter_context(TopicWriter(client, name, options))
        first = stack.enter_context(TopicWriter(client, name.of_partition(0), options))
        print(now(), flush=True)
        for line in sys.stdin:
            writer, count = (first, 1) if line.strip() == "one" else (everywhere, _MESSAGES * partitions)
            writer.send(columns(count))  # one after the other, to one partition after the other
            writer.flush()
            print(now(), flush=True)


class Costs(NamedTuple):
    """Of some part of a query.

    Attributes:
        cpu: seconds of CPU of this process.
        commands: sent, by the name of the type.
    """

    seconds: float
    cpu: float
    commands: Counter[str]

    @property
    def requests(self) -> int:
        """Commands that a broker answers."""
        return sum(count for name, count in self.commands.items() if name not in UNANSWERED)

    def line(self, per: float) -> str:
        """The commands of each of so many."""
        shown = " ".join(f"{name} {count / per:.2f}" for name, count in self.commands.most_common())
        return f"{self.requests / per:.2f} requests ({shown})"


class Meter:
    """Gives the costs since it was made.

    Args:
        counted: all commands so far, which go on being counted.
    """

    def __init__(self, counted: Counter[str]) -> None:
        self._counted = counted
        self._before, self._began, self._cpu = Counter(counted), time.perf_counter(), time.process_time()

    def costs(self) -> Costs:
        """Up to now."""
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        return Costs(seconds, cpu, Counter(self._counted) - self._before)


class Point(NamedTuple):
    """What is compared between numbers of partitions.

    Attributes:
        latest: milliseconds of latestOffset with news in all of them, and a pause before: the median.
        latest_at_once: the same without a pause after the micro-batch before.
        cpu: milliseconds of CPU of a plan with a pause before.
        mib: that the process has grown by at the end.
        requests: of the planner, a micro-batch.
    """

    partitions: int
    latest: float
    latest_at_once: float
    cpu: float
    mib: float
    connections: int
    requests: float


def growth_lines(points: Sequence[Point]) -> list[str]:
    """The line that fits best (least squares) for each cost, as ``a + b x partitions``.

    Args:
        points: with at least two different numbers of partitions.
    """
    partitions = [point.partitions for point in points]

    def line(values: Sequence[float]) -> statistics.LinearRegression:
        return statistics.linear_regression(partitions, values)

    at_once, cpu = line([point.latest_at_once for point in points]), line([point.cpu for point in points])
    latest = line([point.latest for point in points])
    memory, requests = line([point.mib for point in points]), line([point.requests for point in points])
    most = max(point.connections for point in points)
    return [
        f"{min(partitions)} to {max(partitions)} partitions, with news in all:",
        f"  latestOffset with pauses: {_latest_line(latest)}",
        f"  latestOffset after each other: {_latest_line(at_once)}",
        f"  CPU of planning: {cpu.intercept:.1f} ms + {cpu.slope:.2f} ms x partitions",
        f"  memory of the planner: {memory.intercept:.1f} MiB + {memory.slope * 1024:.0f} KiB x partitions",
        f"  requests of a micro-batch: {requests.intercept:.1f} + {requests.slope:.2f} x partitions",
        f"  connections: at most {most}",
    ]


def _latest_line(line: statistics.LinearRegression) -> str:
    above = ", ABOVE" * (line.slope >= _REQUIRED_SLOPE)
    goal = f"(needs less than {_REQUIRED_SLOPE:g} ms{above})"
    return f"{line.intercept:.1f} ms + {line.slope:.2f} ms x partitions {goal}"


def measure(service_url: str, topic: str, partitions: int) -> Point:
    """Measure with one topic and print; in a process of its own."""
    print(f"\n{partitions} partitions", flush=True)
    with counted_commands() as counted, Producers(service_url, topic, partitions) as producers:
        began = memory_mib(os.getpid())
        meter = Meter(counted)
        planner = Planner({"service.url": service_url, "topic": topic})
        planner.poll(_SETTLED)
        print(f"  start: {meter.costs().line(partitions)} a partition")
        meter = Meter(counted)
        triggers = planner.poll(_IDLE)
        idle = meter.costs()
        rate = f"{triggers / idle.seconds:.0f} triggers and {idle.line(idle.seconds)} a second"
        print(f"  idle: {idle.cpu / idle.seconds:.1%} of a core, {rate}", flush=True)
        _measure_latency(planner, producers)
        at_once, _ = _measure_rounds(planner, producers, counted, partitions, "after each other", 0.0)
        latest, planning = _measure_rounds(planner, producers, counted, partitions, "with pauses", _PAUSE)
        opened = connections(int(service_url.rpartition(":")[2]))
        grown = memory_mib(os.getpid()) - began
        print(
            f"  memory: {grown:.1f} MiB, of which {grown / partitions * 1024:.0f} KiB a partition", flush=True
        )
        planner.stop()
    cpu, requests = planning.cpu / _ROUNDS * 1000, planning.requests / _ROUNDS
    return Point(partitions, latest, at_once, cpu, grown, opened, requests)


def _measure_latency(planner: Planner, producers: Producers) -> None:
    seen = []
    for _ in range(_TIMES_SEEN):
        planner.poll(_SEEN_PAUSE)
        stored = producers.produce_one()
        while (found := planner.trigger()).offset == planner.offset:
            time.sleep(_POLL)
        seen.append((now() - stored) * 1000)
        planner.offset = found.offset
    print(
        f"  one message is seen after {statistics.median(seen):.0f} ms, at most {max(seen):.0f} ms",
        flush=True,
    )


def _measure_rounds(
    planner: Planner, producers: Producers, counted: Counter[str], partitions: int, name: str, pause: float
) -> tuple[float, Costs]:
    """Micro-batches with news in all partitions, and the rest of what they cost until the next one.

    Returns:
        Milliseconds of latestOffset, the median; and the planner's costs of all rounds.
    """
    latest, planned, planning, reading = [], [], Counter[str](), Counter[str]()
    cpu = read_cpu = 0.0
    for number in range(-1, _ROUNDS):
        producers.produce_everywhere()
        rows = 0
        while rows < _MESSAGES * partitions:
            meter = Meter(counted)
            found = planner.trigger()
            took = time.perf_counter()
            tasks = planner.tasks(found.offset)
            took = time.perf_counter() - took
            costs = meter.costs()
            meter = Meter(counted)
            rows += planner.run(tasks)
            read = meter.costs()
            planner.offset = found.offset
            if number >= 0:
                planning += costs.commands
                cpu += costs.cpu
                reading += read.commands
                read_cpu += read.cpu
                latest.append(found.seconds * 1000)
                planned.append(took * 1000)
        meter = Meter(counted)
        planner.poll(pause)
        if number >= 0:
            planning += meter.costs().commands
    batches = partitions * _ROUNDS
    print(f"  micro-batches {name}, {_MESSAGES} messages in each partition:")
    print(
        f"    latestOffset {statistics.median(latest):.0f} ms, at most {max(latest):.0f} ms; "
        f"partitions {statistics.median(planned):.0f} ms; planning takes {cpu / _ROUNDS * 1000:.0f} ms of CPU"
    )
    print(f"    planner: {Costs(0, 0, planning).line(batches)} a partition and micro-batch")
    print(
        f"    tasks: {Costs(0, 0, reading).line(batches)} a partition and micro-batch, "
        f"{read_cpu / batches * 1000:.2f} ms of CPU",
        flush=True,
    )
    return statistics.median(latest), Costs(sum(latest) / 1000, cpu, planning)


def main(*partitions: int) -> int:
    """Measure and print."""
    points = []
    with StandaloneBroker(jvm=Jvm(heap="1g", direct_memory="1g")) as broker:
        for count in partitions or _PARTITIONS:
            topic = f"persistent://public/default/planning-{count}"
            broker.admin.create_partitioned_topic(topic, count)
            points.append(in_new_process(measure, broker.service_url, topic, count))
            broker.admin.delete_partitioned_topic(topic)
    if len({point.partitions for point in points}) > 1:
        print("\n" + "\n".join(growth_lines(points)))
    return 0


if __name__ == "__main__":
    produce(sys.argv[2], sys.argv[3], int(sys.argv[4]))
