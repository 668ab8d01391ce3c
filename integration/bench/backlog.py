"""A long backlog, read in many micro-batches: memory and speed from its first tenth to its last."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from integration.bench import memory
from integration.bench.queries import Queries
from integration.bench.shapes import Shape

TENTHS = 10
REQUIRED = 0.15
_WARM_UPS = 8  # both JVMs compile meanwhile


@dataclass(frozen=True, slots=True)
class Backlog:
    """A backlog that was read.

    Attributes:
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


def measure(queries: Queries, shape: Shape, messages: int, restart: Callable[[], None]) -> Backlog:
    """Read ``messages`` messages under a cap that makes four micro-batches of each tenth.

    Args:
        restart: the broker. Then all of a backlog comes from its disk, as one of days does; else what was
            written last comes from memory, and faster.
    """
    tenth = messages // TENTHS
    cap = {"maxMessagesPerTrigger": str(tenth // 4)}
    topics = queries.topics
    with topics.empty(1) as short, topics.empty(1) as topic:
        for name, count in ((short, tenth), (topic, messages)):
            topics.admin.create_subscription(name, "holds")
            topics.fill(name, shape, count)
        restart()
        for _ in range(_WARM_UPS):
            queries.read_topic(short, tenth, **cap)
        first = memory.peak_mib()
        batches = queries.read_batches(topic, messages, **cap)
        last = memory.peak_mib()
    rates: list[list[float]] = [[] for _ in range(TENTHS)]
    done = 0
    for batch in batches:
        rates[min(TENTHS - 1, done // tenth)].append(batch.rows / batch.seconds)
        done += batch.rows
    return Backlog(messages, [statistics.median(each) for each in rates], (first, last))
