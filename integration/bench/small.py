"""Small jobs: what ten rows take, beside the least Python source there can be, and a JVM connector.

    python3 -m integration bench small [ROUNDS [JAR]]

Each side has a Spark of its own, in turn. The first read and the first write are those of a new session; the
others are medians of several in the same session. A stream's first row: from start() to the end of the
micro-batch that has it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from integration.bench.measure import Cost, in_new_process
from integration.bench.minimal_source import ROWS, Minimal
from integration.bench.peer_jar import data_source_of, reported
from integration.bench.shapes import SHAPES
from integration.bench.spark import begun_at, timed
from integration.bench.topics import Topics
from integration.broker import StandaloneBroker
from integration.helpers.local_spark import local_spark
from pulsar_spark.client import Client, ClientOptions

_ROUNDS = 3
_REPEATED = 5  # jobs of each kind in a warm session
_POLL = 0.005  # seconds

_Costs = dict[str, Cost]


@dataclass(frozen=True, slots=True)
class Connector:
    """A source and sink of one name.

    Attributes:
        data_source: what ``format`` is given.
        jar: on its Spark's class path; None: none.
    """

    data_source: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    jar: Path | None = None


def main(broker: StandaloneBroker, rounds: int = _ROUNDS, jar: str | None = None) -> int:
    """Measure and print medians, and ratios to the minimal source in the same round."""
    with broker, Client(ClientOptions(service_url=broker.service_url)) as client:
        topics = Topics(broker.admin, client)
        with topics.filled(SHAPES["batched"], 1, ROWS) as read, topics.empty(1) as written:
            sides = _sides(broker, read, written, jar)
            found: dict[str, list[_Costs]] = {name: [] for name in sides}
            for _ in range(rounds):
                for name, side in sides.items():
                    found[name].append(in_new_process(reported, partial(measure, side), name))
    minimal = next(iter(found.values()))
    for name, costs in found.items():
        print(f"\n{name}")
        for job in costs[0]:
            print(_line(job, [each[job] for each in costs], [each[job] for each in minimal]), flush=True)
    return 0


def _sides(broker: StandaloneBroker, read: str, written: str, jar: str | None) -> dict[str, Connector]:
    url = {"service.url": broker.service_url}
    reads = {**url, "topic": read, "startingOffsets": "earliest"}
    writes = {**url, "topic": written}
    sides = {
        "a minimal source": Connector(Minimal.name(), {}, {}),
        "pulsar_spark": Connector("pulsar", reads, writes),
    }
    if jar is not None:
        admin = {"admin.url": broker.admin_url}
        path = Path(jar).resolve()
        sides["a JVM connector"] = Connector(data_source_of(path), reads | admin, writes | admin, path)
    return sides


def measure(side: Connector) -> _Costs:
    """All jobs, in a new session of this process."""
    with tempfile.TemporaryDirectory() as name:
        settings = {} if side.jar is None else {"spark.jars": str(side.jar)}
        spark = local_spark(Path(name), "bench", settings, cores="*")
        try:
            return {
                "first read": timed(spark, lambda: _first_read(spark, side)),
                "first write": timed(spark, lambda: _write(spark, side)),
                "read": _median([timed(spark, lambda: _read(spark, side)) for _ in range(_REPEATED)]),
                "write": _median([timed(spark, lambda: _write(spark, side)) for _ in range(_REPEATED)]),
                "a stream's first row": _median([_first_row(spark, side) for _ in range(_REPEATED)]),
            }
        finally:
            spark.stop()


def _median(costs: list[Cost]) -> Cost:
    return Cost(*map(median, zip(*costs, strict=True)))


def _first_read(spark: SparkSession, side: Connector) -> None:
    """Read; before it Spark looks for data sources, at this call or when one is registered."""
    if side.data_source == Minimal.name():
        spark.dataSource.register(Minimal)
    _read(spark, side)


def _read(spark: SparkSession, side: Connector) -> None:
    rows = spark.read.format(side.data_source).options(**side.reads).load().select("value").collect()
    if len(rows) != ROWS:
        raise ValueError(f"{side.data_source} gave {len(rows)} rows, not {ROWS}")


def _write(spark: SparkSession, side: Connector) -> None:
    rows = spark.range(0, ROWS, 1, 1).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
    rows.write.format(side.data_source).options(**side.writes).mode("append").save()


def _first_row(spark: SparkSession, side: Connector) -> Cost:
    stream = spark.readStream.format(side.data_source).options(**side.reads).load().select("value")
    ended: list[float] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)

        def run() -> None:
            query = writer.start()
            try:
                while not any(progress.numInputRows for progress in query.recentProgress):
                    if (error := query.exception()) is not None:
                        raise error
                    time.sleep(_POLL)
                progress = next(each for each in query.recentProgress if each.numInputRows)
                ended.append(begun_at(progress) + progress.durationMs["triggerExecution"] / 1000)
            finally:
                query.stop()

        began = time.time()
        cpu = timed(spark, run).cpu
    return Cost(ended[0] - began, cpu)


def _line(job: str, costs: list[Cost], minimal: list[Cost]) -> str:
    seconds, cpu = _median(costs)
    ratio = median(mine.seconds / other.seconds for mine, other in zip(costs, minimal, strict=True))
    return f"  {job}: {seconds:.2f} s, {ratio:.2f} x a minimal source; {cpu:.2f} s of CPU"
