"""The broker stands still (SIGSTOP) for 20 s while Spark writes at full speed: no more memory is taken."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame

from integration.bench import memory
from integration.broker import Jvm, StandaloneBroker
from integration.broker.waiting import wait_until
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.background import in_background
from integration.helpers.local_spark import local_spark

_TOPIC = "persistent://public/default/pauses"
_ROWS = 1_000_000
_SIZE = 1024
_PARTITIONS = 3
_TASKS = 2
_SECONDS = 20.0
_LIMIT_MIB = 16
# Beside what is sent and not acknowledged, a task holds an Arrow batch of 10,000 rows: as it came, routed,
# encoded; and the arenas of an allocator that gives memory back late.
_BESIDE_MIB = 200


def pauses(seed: int, times: int) -> Iterable[tuple[object, ...]]:
    """Pause the broker ``times`` times, once in each write; the rows of the chaos table."""
    chance = random.Random(seed)
    jvm = Jvm(heap="1g", direct_memory="2g", optimize=True)
    with StandaloneBroker(jvm=jvm) as broker, tempfile.TemporaryDirectory() as folder:
        broker.admin.create_partitioned_topic(_TOPIC, _PARTITIONS)
        spark = local_spark(Path(folder), "pauses", {"spark.log.level": "OFF"})
        here = PulsarInSpark(spark, broker.service_url)
        rows = spark.range(0, _ROWS, numPartitions=_TASKS).selectExpr(
            "cast(id as string) AS __key", f"rpad(cast(id as string), {_SIZE}, '.') AS value"
        )
        yield "a write of 1 GiB", "seconds", "a worker's memory above idle, MiB"
        idle = memory.idle_mib(spark)
        for turn in range(times + 1):
            wait = chance.uniform(0.1, 0.5) if turn else None
            memory.set_peaks_back()
            began = time.monotonic()
            _write(here, broker, rows, wait)
            peak = memory.peak_mib() - idle
            assert peak < _LIMIT_MIB + _BESIDE_MIB, f"a worker took {peak:.0f} MiB"
            assert stored(broker) == _ROWS * (turn + 1)
            what = "the broker stands still for 20 s" if turn else "undisturbed"
            yield what, f"{time.monotonic() - began:.1f}", f"{peak:.0f}"
        spark.stop()


def stored(broker: StandaloneBroker) -> int:
    """How many messages the topic has been given."""
    return int(broker.admin.partitioned_stats(_TOPIC)["msgInCounter"])


def _write(here: PulsarInSpark, broker: StandaloneBroker, rows: DataFrame, wait: float | None) -> None:
    before, done = stored(broker), threading.Event()

    def pause() -> None:
        if wait is None:
            return
        wait_until(lambda: done.is_set() or stored(broker) > before)
        time.sleep(wait)
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(_SECONDS)
        was_over = done.is_set()
        os.kill(broker.pid, signal.SIGCONT)
        assert not was_over, "the write was over before the broker stood still"

    # Spark finds sources that are written in Python from the thread of its session only.
    options = {"pulsar.producer.memoryLimit": f"{_LIMIT_MIB}m", "pulsar.producer.sendTimeoutMs": "2m"}
    with in_background(pause):
        try:
            here.write(rows, _TOPIC, **options)
        finally:
            done.set()
