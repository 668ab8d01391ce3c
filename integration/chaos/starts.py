"""One query is started again and again, and its topic read in batches, while another query runs all the time.

What may not grow: the subscriptions at the broker, and the memory of the driver and of the running query's
planner. Each start and each read must see every row.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from integration.broker import Admin, StandaloneBroker
from integration.broker.waiting import wait_until
from integration.chaos.messages import numbered
from integration.fixtures.spark import PulsarInSpark, drain, start
from integration.helpers.cluster import TEST_JVM
from integration.helpers.local_spark import local_spark
from integration.helpers.peer import Peer
from integration.helpers.processes import below, memory_mib

_TOPIC = "persistent://public/default/starts"
_PARTITIONS = 4
_MESSAGES = 1000
# Turns until everything is loaded, and the MiB that anything may grow by from then on.
_WARM = 5
_MAY_GROW = 32
_PLANNER = b"python_streaming_source_runner"


@dataclass(frozen=True, slots=True)
class Memory:
    """After a turn, in MiB.

    Attributes:
        heap: of the driver's JVM in use, after a collection.
        driver: resident size of the driver's Python.
        planner: of the planner of the query that runs all the time.
    """

    heap: float
    driver: float
    planner: float


def starts(seed: int, times: int) -> Iterable[tuple[object, ...]]:
    """Start and read ``times`` times each; the rows of the chaos table. Nothing here happens by chance."""
    with StandaloneBroker(jvm=TEST_JVM) as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = local_spark(folder, "starts", {"spark.log.level": "OFF"})
        turns = list(turn(PulsarInSpark(spark, broker.service_url), broker.admin, _TOPIC, folder, times))
        spark.stop()
    if times >= 2 * _WARM:
        grown = [last - warm for last, warm in zip(astuple(turns[-1]), astuple(turns[_WARM]), strict=True)]
        assert max(grown) < _MAY_GROW, f"memory grew by {grown} MiB"
    yield "turn", "driver's heap, MiB", "driver's Python, MiB", "planner, MiB"
    for number, memory in enumerate(turns, 1):
        if number in (1, times) or number % 5 == 0:
            yield number, *(f"{size:.0f}" for size in (memory.heap, memory.driver, memory.planner))


def turn(
    pulsar_in_spark: PulsarInSpark, admin: Admin, topic: str, folder: Path, times: int
) -> Iterator[Memory]:
    """Add messages, start the query on its checkpoint, and read the whole topic, ``times`` times.

    Raises AssertionError unless all rows are seen everywhere, each partition has one subscription of each of
    the two queries, and these have nothing left to acknowledge.
    """
    admin.create_partitioned_topic(topic, _PARTITIONS)
    restarted, running = _Numbers(), _Numbers()
    rows = pulsar_in_spark.stream(topic)
    query = start(rows, running, folder / "running")
    try:
        with Peer(pulsar_in_spark.service_url) as peer:
            for number in range(1, times + 1):
                more = numbered(_MESSAGES, first=(number - 1) * _MESSAGES, keys=100)
                peer.produce(topic, more, batch_size=100)
                whole = number * _MESSAGES
                drain(rows, restarted, folder / "restarted")
                assert pulsar_in_spark.read(topic).count() == whole
                wait_until(lambda whole=whole: query.exception() or len(running.all) >= whole)
                assert restarted.all == list(range(whole))
                wait_until(lambda: set(_backlogs(admin, topic)) == {0})
                assert len(_backlogs(admin, topic)) == 2 * _PARTITIONS
                yield _memory(pulsar_in_spark.spark)
    finally:
        query.stop()
    assert query.exception() is None
    assert running.all == restarted.all


class _Numbers:
    """An idempotent sink that holds as little as it can: the driver's memory is measured."""

    def __init__(self) -> None:
        self._batches: dict[int, list[int]] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        self._batches[number] = [int(bytes(row.value)) for row in batch.select("value").collect()]

    @property
    def all(self) -> list[int]:
        return sorted(itertools.chain(*self._batches.values()))


def _backlogs(admin: Admin, topic: str) -> list[int]:
    """Of each subscription that lasts, on each partition."""
    return [
        int(subscription["msgBacklog"])
        for number in range(_PARTITIONS)
        for subscription in admin.stats(f"{topic}-partition-{number}")["subscriptions"].values()
        if subscription["isDurable"]
    ]


def _memory(spark: SparkSession) -> Memory:
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return Memory(
        heap=(runtime.totalMemory() - runtime.freeMemory()) / 2**20,
        driver=memory_mib(os.getpid()),
        planner=max(map(memory_mib, below(os.getpid(), _PLANNER))),
    )
