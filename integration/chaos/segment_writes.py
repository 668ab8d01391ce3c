"""Segments of a scalable topic split and merge while our sink writes; drivers, tasks and brokers are killed.

For each kind of rows one query writes keys with numbers through a proxy that loses receipts. In the end our
source and the consumers of Pulsar's Java client read the topic: no row may be missing, or be doubled without
a WARNING, and our source must give each key in order.

This file is also the driver of the query:
``python -m integration.chaos.segment_writes SERVICE_URL TOPIC FOLDER ROWS KIND``.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import functions as f

from integration.broker import StandaloneBroker
from integration.chaos.harness import Driver
from integration.chaos.segments import SegmentChanges
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.cluster import TEST_JVM
from integration.helpers.java_segments import consume_in_java_5
from integration.helpers.local_spark import local_spark
from integration.helpers.proxies import LookupProxy
from integration.helpers.proxy import Direction, Ending
from integration.helpers.versions import NEWEST_LINE
from pulsar_spark.ids import TopicName
from pulsar_spark_broker.jars import VERSION_VARIABLE

WARNINGS = re.compile("may be duplicated|written at least once")
# Options of the sink for each kind of rows.
KINDS: dict[str, dict[str, str]] = {
    "LZ4": {"pulsar.producer.compressionType": "LZ4"},
    "typed": {"valueFormat": "columns", "schemaType": "json"},
    "strict": {"delivery": "effectively-once", "failOnDuplicates": "true"},
    "batches": {},
    "unbatched": {"pulsar.producer.batchingEnabled": "false"},
}
FAULTS = ("receipts", "worker", "driver", "receipts", "worker", "broker")

KEYS = 40
_CONSUMERS = ("queue", "stream")
_TASKS = 4
# A micro-batch a second at most, so that each change of segments, one in 2 s, meets this many rows.
_ROWS_PER_BATCH = 2_500
_ROWS_PER_CHANGE = 5_000
# Share of micro-batches in which something is broken.
_BROKEN = 0.4
_LOST_SECONDS = 0.2
_PATIENCE = 900.0
_ROW = re.compile(rb"key-[0-9]+:[0-9]+")


def segment_writes(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Change segments ``times`` times, for all kinds of rows together; the rows of the chaos table."""
    os.environ[VERSION_VARIABLE] = NEWEST_LINE
    yield "rows", "written", "missing", "doubled", "out of order", "WARNINGs", "changes", "faults", "seconds"
    with StandaloneBroker(jvm=TEST_JVM) as broker:
        broker.admin.set_deduplication("public/default", True)
        broker.admin.set_retention("public/default", minutes=-1, megabytes=-1)
        for number, kind in enumerate(KINDS):
            chance = random.Random(seed * len(KINDS) + number)
            with tempfile.TemporaryDirectory() as folder:
                run = _Run(broker, kind, Path(folder), chance, -(-times // len(KINDS)))
                yield from run.table()


class _Run:
    """The rows of one kind, in a topic of their own."""

    def __init__(
        self, broker: StandaloneBroker, kind: str, folder: Path, chance: random.Random, times: int
    ) -> None:
        self._broker, self._kind, self._folder, self._chance = broker, kind, folder, chance
        self._times, self._rows = times, times * _ROWS_PER_CHANGE
        self._topic = TopicName("topic", "public", "default", f"written-{kind}")
        self._counts: Counter[str] = Counter()

    def table(self) -> Iterator[tuple[object, ...]]:
        """Write and read all rows; the lines of the table."""
        began = time.monotonic()
        place = f"scalable/public/default/{self._topic.local}"
        self._broker.admin.request("PUT", f"{place}?numInitialSegments=2", {})
        # A broker that was killed refuses new subscriptions of segments without messages (Pulsar 5.0.1). So
        # these have one each, and the checkpoint consumer, which has none, is left out.
        for consumer in _CONSUMERS:
            self._broker.admin.request(
                "PUT", f"{place}/subscriptions/java-{consumer}?type={consumer.upper()}"
            )
        changes = SegmentChanges(self._broker, self._topic.local, self._chance, self._times)
        log = self._folder / "driver.log"
        with LookupProxy(self._broker.service_url) as proxy, ExitStack() as stack:
            changes.start()
            self._write(proxy, stack)
        changes.join(_PATIENCE)
        warnings = len(WARNINGS.findall(log.read_text(errors="replace")))
        rows = read_all(self._broker, self._topic, self._folder / "read")
        faults = ", ".join(f"{count} {fault}" for fault, count in sorted(self._counts.items()))
        seconds = f"{time.monotonic() - began:.0f}"
        found = judged(rows, self._rows)
        print(f"{self._kind}: missing, doubled, out of order: {found}; {faults}, {seconds} s", flush=True)
        yield self._kind, f"{self._rows:,}", *found, warnings, changes.done, faults, seconds
        missing, doubled, late = found
        assert missing == late == 0, (self._kind, found, log.read_text(errors="replace")[-6000:])
        assert not doubled or (warnings and self._kind != "strict"), (self._kind, found)
        for consumer in _CONSUMERS:
            java = consume_in_java_5(self._broker.service_url, self._topic, consumer, silence=60)
            missing, java_doubled, late = judged((value for _, value in java), self._rows)
            yield f"  Java's {consumer} consumer", "", missing, java_doubled, late, "", "", "", ""
            print(f"  Java's {consumer} consumer: {missing}, {java_doubled}, {late}", flush=True)
            assert (missing, java_doubled) == (0, doubled), (consumer, missing, java_doubled)

    def _write(self, proxy: LookupProxy, stack: ExitStack) -> None:
        """Start the query until it ends by itself, and break something while micro-batches run."""
        planned = 0
        while True:
            driver = self._start(proxy.service_url, stack)
            while (status := driver.wait_for(self._chance.uniform(0.0, 3.0))) is None:
                fault = FAULTS[self._counts.total() % len(FAULTS)]
                if self._planned() == planned:
                    continue
                planned = self._planned()
                if self._chance.random() > _BROKEN:
                    continue
                self._break(fault, driver, proxy)
                self._counts[fault] += 1
                if fault == "driver":
                    break
            if status == 0:
                return
            assert self._counts["query failed"] < self._times + 5, driver.log_tail()
            self._counts["query failed"] += status is not None

    def _planned(self) -> int:
        return sum(1 for _ in (self._folder / "checkpoint" / "offsets").glob("[0-9]*"))

    def _break(self, fault: str, driver: Driver, proxy: LookupProxy) -> None:
        if fault == "driver":
            driver.kill()
        elif fault == "worker":
            driver.kill_worker(self._chance)
        elif fault == "broker":
            self._broker.kill()
            self._broker.start()
        else:
            proxy.stall(Direction.TO_CLIENT)
            time.sleep(_LOST_SECONDS)
            proxy.cut_all(Ending.RST)
            proxy.resume()

    def _start(self, service_url: str, stack: ExitStack) -> Driver:
        arguments = [service_url, str(self._topic), str(self._folder), str(self._rows), self._kind]
        driver = Driver(self._folder / "driver.log", *arguments, module=__spec__.name)
        stack.callback(driver.kill)
        return driver


def read_all(broker: StandaloneBroker, topic: TopicName, folder: Path) -> list[bytes]:
    """Read a topic by our source into a new folder; its values in the order of the micro-batches."""
    (folder / "out").mkdir(parents=True)
    urls = broker.service_url, broker.admin_url
    arguments = [*urls, str(topic), str(folder), "available", ""]
    driver = Driver(folder / "driver.log", *arguments, module="integration.chaos.segments")
    try:
        assert driver.wait_for(_PATIENCE) == 0, driver.log_tail()
    finally:
        driver.kill()
    batches = sorted((folder / "out").glob("[0-9]*"), key=lambda each: int(each.name))
    return [line for batch in batches for line in batch.read_bytes().split()]


def judged(values: Iterable[bytes], rows: int) -> tuple[int, int, int]:
    """How many rows are missing, doubled, and after a later row of their key when they come first."""
    counts: Counter[tuple[int, int]] = Counter()
    newest: dict[int, int] = {}
    late = 0
    for value in values:
        (row,) = _ROW.findall(value)
        key, number = map(int, row.removeprefix(b"key-").split(b":"))
        if not counts[key, number]:
            late += number < newest.get(key, -1)
            newest[key] = max(number, newest.get(key, -1))
        counts[key, number] += 1
    written = Counter((number % KEYS, number // KEYS) for number in range(rows))
    return (written - counts).total(), (counts - written).total(), late


def run_driver(service_url: str, topic: str, folder: Path, rows: int, kind: str) -> None:
    """Write all rows, and end when that is done."""
    settings = {"spark.log.level": "WARN", "spark.sql.adaptive.enabled": "false"}
    spark = local_spark(folder, "segment-writes", settings, cores="2,4")
    number = f.col("value")
    ticks = PulsarInSpark(spark, service_url).ticks(_ROWS_PER_BATCH, _TASKS).where(number < rows)
    key = f.concat(f.lit("key-"), (number % KEYS).cast("string"))
    text = f.concat(key, f.lit(":"), f.floor(number / KEYS).cast("string"))
    # Spark gives number n to task n % _TASKS, so each key has one task.
    written = ticks.select(key.alias("__key"), text.alias("row" if kind == "typed" else "value"))
    writer = PulsarInSpark(spark, service_url).write_stream(
        written, folder / "checkpoint", topic, **KINDS[kind]
    )
    query = writer.trigger(processingTime="1 second").start()
    while not query.awaitTermination(0.2):
        progress = query.lastProgress
        if progress is not None and progress.batchId * _ROWS_PER_BATCH >= rows:
            break
    query.stop()
    spark.stop()


if __name__ == "__main__":
    run_driver(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
