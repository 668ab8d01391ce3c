"""CPU time that Spark takes: its JVM, its Python workers and planners; and that of one process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process as the system lists it.

    Attributes:
        started: when, in ticks; a number may be used again.
        own: CPU that it has taken, in ticks.
        of_ended: CPU of its ended children that it has waited for, in ticks.
    """

    parent: int
    started: int
    own: int
    of_ended: int


class CpuCount:
    """CPU of a process and of all that it has started, ended ones included.

    PySpark's daemon does not wait for its workers, so the system forgets what an ended worker has taken.
    Spark ends workers that were idle for a minute: what was seen of them last is all that they have taken.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._workers: dict[tuple[int, int], int] = {}

    def add(self, processes: Mapping[int, Process]) -> int:
        """Take the processes that there are now; returns the ticks so far."""
        total = 0
        for number, process in processes.items():
            depth = self._depth(number, processes)
            if depth is None:
                continue
            if depth >= 2:
                self._workers[number, process.started] = process.own
            else:
                total += process.own + process.of_ended
        return total + sum(self._workers.values())

    def _depth(self, number: int, processes: Mapping[int, Process]) -> int | None:
        """How many generations a process is below the root; None where it is not."""
        depth = 0
        while number != self._root:
            if number not in processes:
                return None
            number, depth = processes[number].parent, depth + 1
        return depth


_counts: dict[int, CpuCount] = {}


def spark_cpu_seconds(spark: SparkSession) -> float:
    """CPU seconds of Spark's JVM and of all processes that it started so far, ended ones included."""
    root = spark.sparkContext._gateway.proc.pid
    return _counts.setdefault(root, CpuCount(root)).add(_processes()) / _TICKS


def process_cpu_seconds(pid: int) -> float:
    """CPU seconds of one process so far."""
    return _processes()[pid].own / _TICKS


def _processes() -> dict[int, Process]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        user, system, ended_user, ended_system = map(int, fields[11:15])
        found[int(folder.name)] = Process(
            int(fields[1]), int(fields[19]), user + system, ended_user + ended_system
        )
    return found
