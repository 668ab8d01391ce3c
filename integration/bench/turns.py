"""Runs that take turns, and the medians of what they took."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from integration.bench.measure import Cost

_Costs = dict[str, list[Cost]]


def in_turns(runs: Mapping[str, Callable[[], Cost]], rounds: int) -> _Costs:
    """Run all, one after the other, ``rounds`` times, after a round that does not count."""
    costs: _Costs = {name: [] for name in runs}
    for i in range(-1, rounds):
        for name, run in runs.items():
            cost = run()
            if i >= 0:
                costs[name].append(cost)
    return costs


def lines(costs: _Costs, rows: int) -> list[str]:
    """Medians of each, and of its ratios to the first one in the same round: above 1 is better."""
    name, first = next(iter(costs.items()))
    return [_line(each, costs[each], name, first, rows) for each in costs]


def _line(name: str, costs: list[Cost], first_name: str, first: list[Cost], rows: int) -> str:
    seconds, cpu = (statistics.median(column) for column in zip(*costs, strict=True))
    pairs = list(zip(costs, first, strict=True))
    by_rows = statistics.median(other.seconds / mine.seconds for mine, other in pairs)
    by_cpu = statistics.median(other.cpu / mine.cpu for mine, other in pairs)
    return (
        f"{name:22} {rows / seconds:11,.0f} rows/s {cpu / rows * 1e6:6.2f} us CPU a row;"
        f" of {first_name} {by_rows:5.2f}, by CPU {by_cpu:5.2f}"
    )
