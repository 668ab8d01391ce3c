"""What is measured against what, how often, and which of the rates counts."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from integration.bench.shapes import Shape

_T = TypeVar("_T")


class Side(Enum):
    """Who moves the messages; the value is how tables name it."""

    OURS = "pulsar_spark"
    TRANSPORT = "Spark's transport"
    ENDS = "both ends alone"
    CLIENT = "pulsar-client"
    PEER = "JVM connector"


class Cost(NamedTuple):
    """What a run took.

    Attributes:
        cpu: seconds of CPU; of Spark's processes where Spark moves the messages, else of this process.
    """

    seconds: float
    cpu: float


class Stopwatch:
    """Measures what this process takes, from when it is made."""

    def __init__(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def cost(self) -> Cost:
        """Up to now."""
        return Cost(time.perf_counter() - self._began, time.process_time() - self._cpu)


def in_new_process(measure: Callable[..., _T], *arguments: object) -> _T:
    """Call a function in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing to time.

    Attributes:
        messages: how many at a time.
        run: moves so many and returns what it took.
        warm_up: how many are moved before anything is timed.
    """

    side: Side
    messages: int
    run: Callable[[int], Cost]
    warm_up: int


@dataclass(frozen=True, slots=True)
class Result:
    """Rates of the sides on the same messages.

    Attributes:
        direction: ``read`` or ``write``.
        partitions: of the topic, and tasks of Spark.
        rates: messages a second, of each run in the order of the runs.
        cpus: microseconds of CPU a message, of each run in the order of the runs.
    """

    direction: str
    shape: Shape
    partitions: int
    rates: dict[Side, list[float]]
    cpus: dict[Side, list[float]] = field(default_factory=dict)

    def best(self, side: Side) -> float:
        """The best rate: what else a machine does can only make a run slower. The same for all sides."""
        return max(self.rates[side])

    def ratio(self, side: Side) -> float | None:
        """Our best rate over that of another side; None where that was not measured."""
        return self.best(Side.OURS) / self.best(side) if side in self.rates else None

    def required(self, side: Side) -> float | None:
        """The least ratio that the project asks of itself; None where it asks none."""
        return REQUIRED.get((self.direction, self.shape.name, self.partitions, side))

    def enough(self, side: Side) -> float | None:
        """The bytes of values a second that are enough even below that ratio; None where nothing is."""
        return ENOUGH.get((self.direction, self.shape.name, self.partitions, side))

    def cpu(self, side: Side) -> float | None:
        """The least microseconds of CPU a message, for the reason of :meth:`best`; None: not measured."""
        return min(self.cpus[side]) if side in self.cpus else None

    def cpu_above_transport(self) -> float | None:
        """Ours less that of Spark's transport; None where one of them was not measured."""
        ours, transport = self.cpu(Side.OURS), self.cpu(Side.TRANSPORT)
        return None if ours is None or transport is None else ours - transport

    def max_cpu_above_transport(self) -> float | None:
        """The most that the project allows itself; None where it sets no limit."""
        return MAX_CPU_ABOVE_TRANSPORT.get((self.direction, self.shape.name))

    def bytes_a_second(self) -> float:
        """Bytes of values at our best rate."""
        return self.best(Side.OURS) * self.shape.size


REQUIRED = {
    ("read", "batched", 1, Side.CLIENT): 3.5,
    ("read", "batched", 1, Side.TRANSPORT): 0.6,
    ("read", "lz4-whole", 1, Side.CLIENT): 2.5,
    ("read", "unbatched", 1, Side.CLIENT): 0.7,
    ("write", "batched", 1, Side.CLIENT): 3,
    ("write", "batched", 1, Side.TRANSPORT): 0.7,
    ("write", "batched", 4, Side.CLIENT): 3,
    ("write", "batched", 4, Side.TRANSPORT): 0.7,
    ("write", "whole", 1, Side.CLIENT): 1.5,
    ("write", "whole", 1, Side.TRANSPORT): 0.35,
    ("write", "whole", 4, Side.CLIENT): 1.5,
    ("write", "whole", 4, Side.TRANSPORT): 0.35,
    ("write", "lz4", 1, Side.TRANSPORT): 0.75,
}
ENOUGH = {("write", "lz4", 1, Side.TRANSPORT): 300e6}
MAX_CPU_ABOVE_TRANSPORT = {("read", "batched"): 0.40, ("read", "value"): 0.35, ("write", "batched"): 0.25}


def interleaved(
    direction: str, shape: Shape, partitions: int, trials: Sequence[Trial], repeat: int
) -> Result:
    """Warm all trials up, then run them in turn, ``repeat`` times, so that noise hits all of them alike."""
    for trial in trials:
        trial.run(trial.warm_up)
    rates: dict[Side, list[float]] = {trial.side: [] for trial in trials}
    cpus: dict[Side, list[float]] = {trial.side: [] for trial in trials}
    for _ in range(repeat):
        for trial in trials:
            cost = trial.run(trial.messages)
            rates[trial.side].append(trial.messages / cost.seconds)
            cpus[trial.side].append(cost.cpu / trial.messages * 1e6)
    return Result(direction, shape, partitions, rates, cpus)
