"""Two cores against one: four partitions, and one partition split in four, against one task.

Everybody shares the machine's two cores: Spark's JVM, the Python workers and the broker. So beside the ratio
stands how busy the cores were: where both are, there is nothing left to gain.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from integration.bench.queries import Queries
from integration.bench.shapes import Shape
from integration.bench.spark import MicroBatch

_SAMPLED_EVERY = 0.02  # seconds


@dataclass(frozen=True, slots=True)
class Scaling:
    """One comparison.

    Attributes:
        what: was compared.
        rates: messages a second of one task, and of four; the best of the runs.
        busy: the part of all cores' time that was used while tasks ran, of one task and of four.
        required: the least ratio, unless both cores are busy.
    """

    what: str
    rates: tuple[float, float]
    busy: tuple[float, float]
    required: float

    @property
    def ratio(self) -> float:
        """Four tasks over one."""
        return self.rates[1] / self.rates[0]


def measure(queries: Queries, shape: Shape, repeat: int) -> list[Scaling]:
    """Read the same messages with one task and with four, in turn."""
    count = shape.reads

    with (
        queries.topics.filled(shape, 1, count) as one,
        queries.topics.filled(shape, 4, count) as four,
    ):
        reads: list[Callable[[], list[MicroBatch]]] = [
            lambda: queries.read_batches(one, count),
            lambda: queries.read_batches(four, count),
            lambda: queries.read_batches(one, count, minPartitions="4"),
        ]
        for read in reads:
            read()
        best = [(0.0, 0.0)] * len(reads)
        for _ in range(repeat):
            for number, read in enumerate(reads):
                seconds, busy = _timed(read)
                best[number] = max(best[number], (count / seconds, busy))
    single, partitions, split = best
    return [
        Scaling("4 partitions, 4 tasks", (single[0], partitions[0]), (single[1], partitions[1]), 1.5),
        Scaling("1 partition, split in 4 tasks", (single[0], split[0]), (single[1], split[1]), 1.4),
    ]


def _timed(read: Callable[[], list[MicroBatch]]) -> tuple[float, float]:
    """The seconds of all micro-batches, and how busy all cores were while their tasks ran."""
    samples: list[tuple[float, int, int]] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(_SAMPLED_EVERY):
            samples.append((time.time(), *_cpu_times()))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        batches = read()
    finally:
        done.set()
        sampler.join()
    at, used, idle = np.array(samples).T
    spans = [(batch.began, batch.ended) for batch in batches]
    was_used = sum(np.interp(ended, at, used) - np.interp(began, at, used) for began, ended in spans)
    was_idle = sum(np.interp(ended, at, idle) - np.interp(began, at, idle) for began, ended in spans)
    return sum(batch.seconds for batch in batches), float(was_used / (was_used + was_idle))


def _cpu_times() -> tuple[int, int]:
    """Ticks of all cores since the start: used, and idle."""
    fields = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, idle
