"""The driver, a worker or the broker is killed with -9 while a query writes, or the broker refuses rows.

Each row must be there once.

The source is Spark's own ``rate-micro-batch``, which gives the same rows again. Ways to be run again:

* ``same``: as before;
* ``sizes``: with other sizes of batches each time the driver starts;
* ``shuffled``: an aggregation whose rows come in another order, from another number of partitions, each time;
* ``transactional``: with that delivery, and rows from another number of partitions each time.

This file is also the driver of the query:
``python -m integration.chaos.once SERVICE_URL TOPIC FOLDER ROWS WAY SEED``.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from integration.broker import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.chaos.harness import Driver, refusing
from integration.chaos.messages import decoded, read_partition
from integration.helpers.cluster import TEST_JVM
from integration.helpers.local_spark import local_spark
from integration.helpers.transactions import SETTINGS
from pulsar_spark.client import Client, ClientOptions
from pulsar_spark.ids import TopicName

NAMESPACE = "public/once"
WAYS = ("same", "sizes", "shuffled", "transactional")
REFUSALS = "refusals"
FAULTS = ("driver", "worker", "broker", REFUSALS)
WARNING = "may be duplicated"

_TASKS = 4
_PARTITIONS = 3
_BATCHES = 8
_KEYS = 1000
_DIGITS = 12
_PATIENCE = 900.0

# Bytes of an entry: full batches are larger, the last ones of what a task sends at a time are smaller.
_MAX_SIZE = 60_000
_REFUSING_SECONDS = 8.0

# How often a query is started at most.
_MAX_STARTS = 8


class Outcome(NamedTuple):
    """What a run has left in the topic.

    Attributes:
        missing: rows that are not there.
        doubled: rows that are there too often.
        disordered: rows that came after a later one of their key, the first time.
        warnings: that were logged.
    """

    missing: int
    doubled: int
    disordered: int
    warnings: int


def once(seed: int, times: int, rows: int) -> Iterator[tuple[object, ...]]:
    """Let a fault happen in each of ``times`` runs; the rows of the chaos table."""
    chance, began = random.Random(seed), time.monotonic()
    yield "way", "fault", "runs", "rows each", "missing", "doubled", "disordered", "runs with warnings"
    with StandaloneBroker(SETTINGS, jvm=TEST_JVM) as broker, tempfile.TemporaryDirectory() as name:
        prepare(broker)
        found: dict[tuple[str, str], list[Outcome]] = {}
        for number in range(times):
            # Four runs in a row have all ways, and sixteen have all pairs.
            way, fault = WAYS[number % 4], FAULTS[(number + number // 4) % 4]
            folder = Path(name) / str(number)
            outcome = one_run(broker, folder, way=way, fault=fault, rows=rows, chance=chance)
            print(f"{number + 1}: {way}, {fault}: {outcome}", flush=True)
            check(way, fault, outcome)
            found.setdefault((way, fault), []).append(outcome)
    for (way, fault), outcomes in found.items():
        sums = (sum(column) for column in tuple(zip(*outcomes, strict=True))[:3])
        warned = sum(outcome.warnings > 0 for outcome in outcomes)
        yield way, fault, len(outcomes), f"{rows:,}", *sums, warned
    yield "all", "", times, "", "", "", "", f"{time.monotonic() - began:.0f} s"


def prepare(broker: StandaloneBroker) -> None:
    """Make the namespace that deduplicates; what is in it stays."""
    broker.admin.create_namespace(NAMESPACE)
    broker.admin.set_retention(NAMESPACE, minutes=-1, megabytes=-1)
    broker.admin.set_deduplication(NAMESPACE, True)


def check(way: str, fault: str, outcome: Outcome) -> None:
    """Raise AssertionError where a promise is not kept; a row that was refused comes after later ones."""
    assert outcome.missing == 0, outcome
    if way == "shuffled":
        assert outcome.warnings or not outcome.doubled, outcome
    else:
        assert outcome._replace(disordered=0) == Outcome(0, 0, 0, 0), outcome
        assert way == "transactional" or fault == REFUSALS or not outcome.disordered, outcome


def one_run(
    broker: StandaloneBroker, folder: Path, *, way: str, fault: str, rows: int, chance: random.Random
) -> Outcome:
    """Write ``rows`` rows to a topic of their own; the fault comes at a random point meanwhile."""
    folder.mkdir()
    topic = f"persistent://{NAMESPACE}/{way}-{fault}-{folder.name}"
    broker.admin.create_partitioned_topic(topic, _PARTITIONS)
    run = _Run(broker, topic, folder, rows, way, chance)
    driver = run.start()
    try:
        # The kill comes while or soon after so many rows are stored.
        wanted = chance.uniform(0.02, 0.9) * rows
        wait_until(lambda: run.stored() >= wanted or driver.wait_for(0) is not None, timeout=_PATIENCE)
        assert driver.wait_for(chance.uniform(0.0, 0.5)) is None, driver.log
        if fault == "driver":
            driver.kill()
            driver = run.start()
        elif fault == "worker":
            wait_until(lambda: driver.kill_worker(chance) or driver.wait_for(0) is not None)
        elif fault == REFUSALS:
            driver = run.refuse(driver)
        else:
            broker.kill()
            broker.start()
        # A query that was hit too hard ends with an error; whoever runs it starts it again.
        while (status := driver.wait_for(_PATIENCE)) != 0:
            assert status is not None, f"a driver does not end: {driver.log_tail()}"
            assert run.starts < _MAX_STARTS, driver.log
            driver = run.start()
    finally:
        driver.kill()
    with Client(ClientOptions(service_url=broker.service_url)) as client:
        return _look(client, topic, rows, driver.log.count(WARNING))


@dataclass(slots=True)
class _Run:
    broker: StandaloneBroker
    topic: str
    folder: Path
    rows: int
    way: str
    chance: random.Random
    starts: int = 0

    def start(self) -> Driver:
        """Start a driver."""
        self.starts += 1
        arguments = [self.broker.service_url, self.topic, str(self.folder), str(self.rows), self.way]
        arguments.append(str(self.chance.randrange(10**6)))
        return Driver(self.folder / "driver.log", *arguments, module=__spec__.name)

    def refuse(self, driver: Driver) -> Driver:
        """Let the broker refuse entries for a while, and start the query again where it has failed."""
        with refusing(self.broker.admin, [self.topic], _MAX_SIZE):
            until = time.monotonic() + _REFUSING_SECONDS
            while time.monotonic() < until:
                if driver.wait_for(0.2):
                    driver = self.start()
        return driver

    def stored(self) -> int:
        """How many messages the topic has taken since the broker started."""
        return int(self.broker.admin.partitioned_stats(self.topic)["msgInCounter"])


def _look(client: Client, topic: str, rows: int, warnings: int) -> Outcome:
    """Count the rows in the topic, and look at the order of each key's."""
    counts = np.zeros(rows, np.int64)
    disordered = 0
    for partition in client.partitions(TopicName.parse(topic)):
        columns = [decoded(entry).value for entry in read_partition(client, partition)]
        texts = pc.binary_slice(pa.chunked_array(columns, pa.binary()), 0, _DIGITS)
        numbers = texts.cast(pa.string()).cast(pa.int64()).to_numpy()
        counts += np.bincount(numbers, minlength=rows)
        first = np.sort(np.unique(numbers, return_index=True)[1])
        appeared = numbers[first]
        by_key = np.argsort(appeared % _KEYS, kind="stable")
        step, key = np.diff(appeared[by_key]), np.diff(appeared[by_key] % _KEYS)
        disordered += int(((step < 0) & (key == 0)).sum())
    doubled = int(np.maximum(counts - 1, 0).sum())
    return Outcome(int((counts == 0).sum()), doubled, disordered, warnings)


def run_driver(service_url: str, topic: str, folder: Path, rows: int, way: str, seed: int) -> None:
    """Write all rows, and end when that is done."""
    chance = random.Random(seed)
    settings = {
        "spark.log.level": "OFF",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(chance.choice([2, 3, 5])),
    }
    spark = local_spark(folder, "once", settings, cores="2,4")
    ticks = spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=-(-rows // _BATCHES // _TASKS) * _TASKS, numPartitions=_TASKS, startTimestamp=0
    )
    number = f.col("value")
    values = ticks.load().where(number < rows).select(
        (number % _KEYS).cast("string").alias("__key"),
        f.concat(f.lpad(number.cast("string"), _DIGITS, "0"), f.lit("." * 88)).alias("value"),
    )  # fmt: skip
    options = {"service.url": service_url, "topic": topic}
    if way == "sizes":
        options["pulsar.producer.batchingMaxMessages"] = str(chance.choice([10, 100, 333, 1000, 5000]))

    def aggregated(batch: DataFrame, _: int) -> None:
        grouped = batch.groupBy("value").agg(f.first("__key").alias("__key"))
        shuffled = grouped.sortWithinPartitions(f.rand(seed))
        shuffled.write.format("pulsar").options(**options).mode("append").save()

    if way == "transactional":
        options["delivery"] = "transactional"
        values = values.repartition(chance.choice([2, 3, 5]))
    writer = values.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if way == "shuffled":
        query = writer.foreachBatch(aggregated).start()
    else:
        query = writer.format("pulsar").options(**options).start()
    while not query.awaitTermination(0.2):  # type: ignore[arg-type]  # it takes floats, too
        progress = query.lastProgress
        if progress is not None and progress.batchId >= _BATCHES:
            break
    query.stop()
    spark.stop()


if __name__ == "__main__":
    run_driver(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
