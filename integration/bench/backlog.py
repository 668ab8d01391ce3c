"""A long backlog, read in many micro-batches: memory and speed from its first tenth to its last."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from integration.bench import memory
from integration.bench.queries import Queries
from integration.bench.shapes import Shape

TENTHS = 10
REQUIRED = 0.15


@dataclass(frozen=True, slots=True)
class Backlog:
    """A backlog that was read.

    Attributes:
        messages: in all.
        rates: messages a second of each tenth, in order; the median of its micro-batches.
        mib: the highest resident size of a worker after a tenth as many, and after all of them.
    """

    messages: int
    rates: list[float]
    mib: tuple[float, float]

    @property
    def change(self) -> float:
        """The last tenth's rate over the first's, less 1."""
        return self.rates[-1] / self.rates[0] - 1


def measure(queries: Queries, shape: Shape, messages: int) -> Backlog:
    """Read ``messages`` messages under a cap that makes four micro-batches of each tenth."""
    tenth = messages // TENTHS
    with queries.topics.filled(shape, 1, tenth) as topic:
        queries.read_topic(topic, tenth, maxMessagesPerTrigger=str(tenth // 4))
        first = memory.peak_mib()
    with queries.topics.filled(shape, 1, messages) as topic:
        batches = queries.read_batches(topic, messages, maxMessagesPerTrigger=str(tenth // 4))
        last = memory.peak_mib()
    rates: list[list[float]] = [[] for _ in range(TENTHS)]
    done = 0
    for rows, seconds in batches:
        rates[min(TENTHS - 1, done // tenth)].append(rows / seconds)
        done += rows
    return Backlog(messages, [statistics.median(each) for each in rates], (first, last))
