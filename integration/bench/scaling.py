"""Two cores against one: four partitions, and one partition split in four, against one task.

Everybody shares the machine's two cores: Spark's JVM, the Python workers and the broker. So beside the ratio
stands how busy the cores were: where both are, there is nothing left to gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from integration.bench.queries import Queries
from integration.bench.shapes import Shape


@dataclass(frozen=True, slots=True)
class Scaling:
    """One comparison.

    Attributes:
        what: was compared.
        rates: messages a second of one task, and of four; the best of the runs.
        busy: the part of all cores' time that was used meanwhile, likewise.
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
        reads: list[Callable[[], float]] = [
            lambda: queries.read_topic(one, count),
            lambda: queries.read_topic(four, count),
            lambda: queries.read_topic(one, count, minPartitions="4"),
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


def _timed(read: Callable[[], float]) -> tuple[float, float]:
    """The seconds that ``read`` gives, and how busy all cores were while it ran."""
    before = _cpu_times()
    seconds = read()
    used, idle = (after - earlier for after, earlier in zip(_cpu_times(), before, strict=True))
    return seconds, used / (used + idle)


def _cpu_times() -> tuple[int, int]:
    """Ticks of all cores since the start: used, and idle."""
    fields = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, idle
