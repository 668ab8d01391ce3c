"""CPU time that Spark takes: its JVM, its Python workers and planners; not the broker's."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")


def spark_cpu_seconds(spark: SparkSession) -> float:
    """CPU seconds of Spark's JVM and of all processes that it started so far, ended ones too."""
    parents, ticks = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(folder.name)
        parents[number] = int(fields[1])
        ticks[number] = sum(map(int, fields[11:15]))  # with those of ended children
    root = spark.sparkContext._gateway.proc.pid
    return sum(ticks[number] for number in ticks if _is_below(number, root, parents)) / _TICKS


def _is_below(number: int, root: int, parents: dict[int, int]) -> bool:
    while number not in (root, 0):
        number = parents.get(number, 0)
    return number == root
