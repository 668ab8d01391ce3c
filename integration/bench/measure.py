"""What is measured against what, how often, and which of the rates counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from integration.bench.shapes import Shape


class Side(Enum):
    """Who moves the messages; the value is how tables name it."""

    OURS = "pulsar_spark"
    TRANSPORT = "Spark's transport"
    ENDS = "both ends alone"
    CLIENT = "pulsar-client"


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing to time.

    Attributes:
        side: who moves the messages.
        messages: how many at a time.
        run: moves so many and returns the seconds.
        warm_up: how many are moved before anything is timed.
    """

    side: Side
    messages: int
    run: Callable[[int], float]
    warm_up: int


@dataclass(frozen=True, slots=True)
class Result:
    """Rates of the sides on the same messages.

    Attributes:
        direction: ``read`` or ``write``.
        shape: of the messages.
        partitions: of the topic, and tasks of Spark.
        rates: messages a second, of each run in the order of the runs.
    """

    direction: str
    shape: Shape
    partitions: int
    rates: dict[Side, list[float]]

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


def interleaved(trials: Sequence[Trial], repeat: int) -> dict[Side, list[float]]:
    """Warm all trials up, then run them in turn, ``repeat`` times, so that noise hits all of them alike."""
    for trial in trials:
        trial.run(trial.warm_up)
    rates: dict[Side, list[float]] = {trial.side: [] for trial in trials}
    for _ in range(repeat):
        for trial in trials:
            rates[trial.side].append(trial.messages / trial.run(trial.messages))
    return rates
