"""Segments of a scalable topic split and merge while it is read; drivers and the broker are killed with -9.

Java's client of Pulsar 5 writes keys with numbers. One query reads them, in turn as a stream that is killed
and with Trigger.AvailableNow, with and without a limit. Nothing is retained that no subscription holds. Each
message must come once, and each key in order. Java's checkpoint consumer reads beside it, for comparison.

This file is also the driver of the query:
``python -m integration.chaos.segments SERVICE_URL ADMIN_URL TOPIC FOLDER TRIGGER LIMIT``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import DataFrame

from integration.broker import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.chaos.harness import Driver
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.cluster import TEST_JVM
from integration.helpers.java_peer import java_command
from integration.helpers.local_spark import local_spark
from integration.helpers.segments import chosen_change
from integration.helpers.versions import NEWEST_LINE
from pulsar_spark.errors import PulsarError
from pulsar_spark_broker.jars import VERSION_VARIABLE

_LOCAL = "changing"
_PLACE = f"scalable/public/default/{_LOCAL}"
_TOPIC = f"topic://public/default/{_LOCAL}"
_SOURCE = Path(__file__).parents[1] / "java" / "SegmentsPeer.java"

_KEYS = 40
# For each change of segments.
_MESSAGES = 5_000
_CHANGE_EVERY = 2.0
_RATE = 2_000

# Changes for each driver that is killed, broker that is killed, and run with Trigger.AvailableNow, at least.
_FAULT_EVERY = {"driver": 20, "broker": 40, "available": 10}
_LIMITS = ("", "3000")
_PATIENCE = 900.0


def segments(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Change segments ``times`` times; the rows of the chaos table."""
    chance, began = random.Random(seed), time.monotonic()
    count = times * _MESSAGES
    os.environ[VERSION_VARIABLE] = NEWEST_LINE
    with (
        StandaloneBroker(jvm=TEST_JVM) as broker,
        tempfile.TemporaryDirectory() as name,
        ExitStack() as stack,
    ):
        broker.admin.set_deduplication("public/default", True)  # Java's client sends again
        broker.admin.request("PUT", f"{_PLACE}?numInitialSegments=2", {})
        run = _Run(broker, Path(name), chance, times)
        run.available()  # the subscription holds all from here on
        in_java = stack.enter_context(java_5("read", broker.service_url, _TOPIC, "60"))
        arguments = ["write", broker.service_url, _TOPIC, str(_KEYS), str(count), str(_RATE)]
        writing = stack.enter_context(java_5(*arguments))
        changes = SegmentChanges(broker, _LOCAL, random.Random(seed), times)
        changes.start()
        while writing.poll() is None or changes.is_alive() or not run.is_over:
            run.one_round(writing)
        assert writing.returncode == 0, "Java's client has failed"
        run.available()
        yield "messages", "read", "missing", "doubled", "out of order", "changes", "segments left"
        found, written = run.found(), Counter(f"key-{n % _KEYS}:{n // _KEYS}" for n in range(count))
        missing, doubled, late = (written - found).total(), (found - written).total(), run.late()
        yield (
            f"{count:,}",
            f"{found.total():,}",
            missing,
            doubled,
            late,
            changes.done,
            len(changes.segments()),
        )
        assert (missing, doubled, late) == (0, 0, 0)
        yield "driver killed", "broker killed", "AvailableNow", "seconds", "", "", ""
        seconds = f"{time.monotonic() - began:.0f}"
        yield *(run.counts[what] for what in _FAULT_EVERY), seconds, "", "", ""
        received, java_late = map(int, in_java.communicate()[0].split())
        yield "Java's checkpoint consumer:", f"{received:,}", "", "", java_late, "", ""


class SegmentChanges(threading.Thread):
    """Splits a segment of a topic of public/default or merges two, from time to time.

    Attributes:
        done: how often.
    """

    def __init__(self, broker: StandaloneBroker, local: str, chance: random.Random, times: int) -> None:
        super().__init__(daemon=True)
        self.done = 0
        self._place = f"scalable/public/default/{local}"
        self._broker, self._chance, self._times = broker, chance, times

    def run(self) -> None:
        while self.done < self._times:
            time.sleep(_CHANGE_EVERY)
            try:
                self._broker.admin.request("POST", f"{self._place}/{self._choose()}")
            except (OSError, PulsarError, AssertionError, ValueError) as error:
                print(f"no change: {error}", flush=True)  # the broker was killed
            else:
                self.done += 1

    def segments(self) -> list[dict[str, object]]:
        """All segments, as the admin service gives them."""
        return list(self._broker.admin.request("GET", self._place)["segments"].values())

    def _choose(self) -> str:
        active = [each for each in self.segments() if each["state"] == "ACTIVE"]
        active.sort(key=lambda each: each["hashRange"]["start"])  # type: ignore[index]
        return chosen_change(self._chance, [each["segmentId"] for each in active])


class _Run:
    """The query and its drivers.

    Attributes:
        counts: what has happened so far.
    """

    def __init__(self, broker: StandaloneBroker, folder: Path, chance: random.Random, times: int) -> None:
        self.counts: Counter[str] = Counter()
        self._times = times
        self._broker, self._folder, self._chance = broker, folder, chance
        (folder / "out").mkdir()

    @property
    def is_over(self) -> bool:
        """Whether enough has happened."""
        return all(self.counts[what] >= self._times // every for what, every in _FAULT_EVERY.items())

    def one_round(self, writing: subprocess.Popen[str]) -> None:
        """A stream that is killed, sometimes after the broker, or runs with AvailableNow."""
        number = self.counts["rounds"]
        self.counts["rounds"] += 1
        if number % 3:
            self.available()
            return
        driver = self._start("stream")
        try:
            self._await_rows(driver, writing)
            if number % 2:
                self._broker.kill()
                self._broker.start()
                self.counts["broker"] += 1
                self._await_rows(driver, writing)
            time.sleep(self._chance.uniform(0.0, 3.0))
            assert driver.wait_for(0) is None, driver.log_tail()
        finally:
            driver.kill()
        self.counts["driver"] += 1

    def available(self) -> None:
        """Read all there is."""
        driver = self._start("available")
        assert driver.wait_for(_PATIENCE) == 0, driver.log_tail()
        self.counts["available"] += 1

    def _start(self, trigger: str) -> Driver:
        limit = self._chance.choice(_LIMITS)
        urls = self._broker.service_url, self._broker.admin_url
        arguments = [*urls, _TOPIC, str(self._folder), trigger, limit]
        return Driver(self._folder / "driver.log", *arguments, module=__spec__.name)

    def _await_rows(self, driver: Driver, writing: subprocess.Popen[str]) -> None:
        """Wait for two more micro-batches, while messages come."""
        before = len(self._batches())

        def is_done() -> bool:
            is_over = driver.wait_for(0) is not None or writing.poll() is not None
            return is_over or len(self._batches()) > before + 1

        wait_until(is_done, timeout=_PATIENCE)

    def _batches(self) -> list[Path]:
        return sorted((self._folder / "out").glob("[0-9]*"), key=lambda each: int(each.name))

    def found(self) -> Counter[str]:
        """How often each message is in the output."""
        return Counter(line for batch in self._batches() for line in batch.read_text().split())

    def late(self) -> int:
        """How many messages came after a later one of their key."""
        late, newest = 0, dict[str, int]()
        for batch in self._batches():
            for line in batch.read_text().split():
                key, _, number = line.partition(":")
                late += int(number) < newest.get(key, -1)
                newest[key] = max(int(number), newest.get(key, -1))
        return late


@contextmanager
def java_5(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run SegmentsPeer.java, and kill it in the end."""
    process = subprocess.Popen(
        java_command(_SOURCE, arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run_driver(service_url: str, admin_url: str, topic: str, folder: Path, trigger: str, limit: str) -> None:
    """Write the values of each micro-batch to a file of its number."""
    spark = local_spark(folder, "segments", {})
    limits = {"maxMessagesPerTrigger": limit} if limit else {}
    rows = PulsarInSpark(spark, service_url).stream(topic, **{"admin.url": admin_url}, **limits)

    def keep(batch: DataFrame, number: int) -> None:
        lines = [bytes(row.value).decode() for row in batch.select("value").collect()]
        new = folder / "out" / f"new-{number}"
        new.write_text("\n".join(lines))
        new.replace(folder / "out" / str(number))

    writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint"))
    query = (writer.trigger(availableNow=True) if trigger == "available" else writer).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    url, admin, name, home, how, most = sys.argv[1:]
    run_driver(url, admin, name, Path(home), how, most)
