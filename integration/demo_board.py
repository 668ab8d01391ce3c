"""What the demonstration shows: the sums of the last window, and how each query runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any, TextIO


class Board:
    """A few lines of text: drawn over themselves on a terminal, elsewhere again when there are new sums.

    Attributes:
        rows: how many sums have come.
    """

    def __init__(self, out: TextIO) -> None:
        self.rows = 0
        self._out = out
        self._lock = threading.Lock()
        self._sums: dict[str, Mapping[str, Any]] = {}  # by shop, the last
        self._has_news = False
        self._height = 0

    def take(self, sums: Iterable[str]) -> None:
        """Take in sums, each as JSON with ``until``, ``shop``, ``purchases`` and ``total``."""
        with self._lock:
            for text in sums:
                found = json.loads(text)
                self.rows += 1
                self._has_news = True
                if found["until"] >= self._sums.get(found["shop"], found)["until"]:
                    self._sums[found["shop"]] = found

    def draw(self, queries: Iterable[tuple[str, Any]]) -> None:
        """Show what is known now; of each query its name and its last progress, or None."""
        with self._lock:
            sums = [self._sums[shop] for shop in sorted(self._sums)]
            is_due, self._has_news = self._has_news or self._out.isatty(), False
        if not is_due:
            return
        lines = [*sum_lines(sums), "", *query_lines(queries)]
        if self._out.isatty() and self._height:
            # Up to the first line of the last drawing, and clear what follows.
            self._out.write(f"\x1b[{self._height}F\x1b[J")
        self._out.write("\n".join([*lines, "", ""]))
        self._out.flush()
        self._height = len(lines) + 1


def sum_lines(sums: Iterable[Mapping[str, Any]]) -> list[str]:
    """A table of sums."""
    lines = [f"  {'until':21}{'shop':10}{'purchases':>10}{'total':>12}"]
    for each in sums:
        until = str(each["until"])[:19].replace("T", " ")
        lines.append(f"  {until:21}{each['shop']:10}{each['purchases']:>10}{each['total']:>12.2f}")
    return lines


def query_lines(queries: Iterable[tuple[str, Any]]) -> list[str]:
    """A table of queries: rows a second of the last micro-batch, and how far it lags behind its topic."""
    lines = [f"  {'query':18}{'rows/s':>10}  {'lag':18}"]
    for name, progress in queries:
        rate, lag = "-", "-"
        if progress is not None:
            rate = f"{progress['processedRowsPerSecond'] or 0:.0f}"
            lag = lag_of([source["latestOffset"] for source in progress["sources"]])
        lines.append(f"  {name:18}{rate:>10}  {lag:18}".rstrip())
    return lines


def lag_of(latest_offsets: Iterable[Any]) -> str:
    """What was not processed when the sources of a query last looked; ``-`` where none is one of Pulsar."""
    reports = []
    for text in latest_offsets:
        found = json.loads(text) if isinstance(text, str) else text
        if isinstance(found, dict) and "backlogEntries" in found:
            reports.append(found)
    if not reports:
        return "-"
    if all("backlogMessagesEstimate" in each for each in reports):
        return f"{sum(each['backlogMessagesEstimate'] for each in reports)} messages"
    return f"{sum(each['backlogEntries'] for each in reports)} entries"
