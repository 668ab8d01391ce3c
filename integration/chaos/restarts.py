"""Drivers, or the broker, are killed with -9 at random while a producer writes: all is read, in order.

This file is also the driver of other runs:
``python -m integration.chaos.restarts SERVICE_URL FOLDER {for-ever|until-idle} OPTION=VALUE...``.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame

from integration.broker import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.chaos.harness import Driver, batches, driver, producing, rows_by_topic
from integration.fixtures.spark import PulsarInSpark, drain, start
from integration.helpers.cluster import SHORT_LEDGERS, TEST_JVM
from integration.helpers.local_spark import local_spark

_TOPIC = "persistent://public/default/restarts"
# The producer writes up to 60 entries and 1,000 messages a second. Tasks read hardly more: a kill meets one.
_READ_RATE = 1200
_ROLLING = SHORT_LEDGERS | {"managedLedgerMaxEntriesPerLedger": "10"}


def restarts(seed: int, times: int) -> Iterable[tuple[object, ...]]:
    """Kill the driver ``times`` times; the rows of the chaos table."""
    with StandaloneBroker(jvm=TEST_JVM) as broker, tempfile.TemporaryDirectory() as folder:
        broker.admin.create_topic(_TOPIC)
        began = time.monotonic()
        messages = kill_drivers(broker.service_url, _TOPIC, Path(folder), random.Random(seed), times)
        yield "killed", "kills", "messages", "repeated", "seconds"
        yield "drivers", times, f"{messages:,}", 0, f"{time.monotonic() - began:.1f}"
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        messages = kill_brokers(Path(folder), random.Random(seed), times)
        yield "the broker, with short ledgers", times, f"{messages:,}", 0, f"{time.monotonic() - began:.1f}"


def kill_brokers(folder: Path, chance: random.Random, times: int) -> int:
    """Kill the broker ``times`` times while one query reads; there are new ledgers each second, no retention.

    Three tasks read each range, slowly. Raises AssertionError unless the query goes on, reads each message,
    and never says that one is lost.

    Returns:
        How many messages there were.
    """
    options = {"topic": _TOPIC, "minPartitions": "3"}
    with StandaloneBroker(_ROLLING, jvm=TEST_JVM) as broker:
        admin = broker.admin
        admin.create_topic(_TOPIC)
        admin.set_dispatch_rate("public/default", messages=_READ_RATE)
        with driver(broker.service_url, folder, **options) as process:
            wait_until(lambda: admin.durable_subscriptions(_TOPIC))
            with producing(broker.service_url, _TOPIC) as producer:
                for _ in range(times):
                    _await_batch(process, folder)
                    assert process.wait_for(chance.uniform(0.0, 4.0)) is None, process.log_tail()
                    broker.kill()
                    broker.start()
                # While messages come: a query that has read all writes no micro-batch.
                _await_batch(process, folder)
            log = process.log
        assert not re.search("(are|be) lost|PULSAR_DATA_LOSS", log), log
        admin.set_dispatch_rate("public/default", messages=-1)
        with driver(broker.service_url, folder, "until-idle", **options) as process:
            assert process.wait_for(600) == 0, process.log_tail()
    # The producer sends again what it has no receipt of, and may have written more than it knows.
    read = dict.fromkeys(number for numbers in rows_by_topic(folder).values() for number in numbers)
    assert list(read) == list(range(max(producer.written, len(read))))
    return len(read)


def _await_batch(process: Driver, folder: Path) -> None:
    """Wait until a query that runs has written another micro-batch."""
    written = len(batches(folder))
    wait_until(lambda: process.wait_for(0) is not None or len(batches(folder)) > written, timeout=600)
    assert process.wait_for(0) is None, process.log_tail()


def kill_drivers(service_url: str, topic: str, folder: Path, chance: random.Random, times: int) -> int:
    """Kill one driver after the other while a producer writes, and let a last one come to the end.

    Every other driver is killed when it has written a micro-batch, the others while they start or begin to
    work. Raises AssertionError unless the idempotent sink holds each message once, in order.

    Returns:
        How many messages there were.
    """
    with producing(service_url, topic) as producer:
        for turn in range(times):
            written, began = len(batches(folder)), folder / "began"
            began.unlink(missing_ok=True)
            with driver(service_url, folder, topic=topic) as process:
                wait_until(began.exists)
                if turn % 2:
                    wait_until(lambda before=written: len(batches(folder)) > before)
                process.wait_for(chance.uniform(0.0, 4.0))
    with driver(service_url, folder, "until-idle", topic=topic) as process:
        assert process.wait_for(180) == 0, process.log_tail()
    read = [number for numbers in rows_by_topic(folder).values() for number in numbers]
    assert read == list(range(producer.written))
    return producer.written


def run_driver(service_url: str, folder: Path, options: dict[str, str], *, until_idle: bool) -> None:
    """Read into one file a micro-batch, written again if the batch is: an idempotent sink."""
    spark = local_spark(folder, "chaos", {"spark.log.level": "OFF"})
    out = folder / "out"
    out.mkdir(exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        rows = [(row["__topic"], int(bytes(row.value))) for row in batch.select("__topic", "value").collect()]
        (out / f"{number}.tmp").write_text(json.dumps(rows))
        (out / f"{number}.tmp").replace(out / f"{number}.json")

    rows = PulsarInSpark(spark, service_url).stream(**options)
    (folder / "began").touch()
    if until_idle:
        drain(rows, write, folder / "checkpoint")
        spark.stop()
    else:
        start(rows, write, folder / "checkpoint").awaitTermination()


if __name__ == "__main__":
    run_driver(
        sys.argv[1],
        Path(sys.argv[2]),
        dict(option.split("=", 1) for option in sys.argv[4:]),
        until_idle=sys.argv[3] == "until-idle",
    )
