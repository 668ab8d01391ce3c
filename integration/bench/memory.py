"""How much memory the Python workers take while they read.

The kernel keeps each process's highest resident size (VmHWM); it is set back before a read, so nothing is
missed between samples. From it the size of an idle worker is taken away, which holds the same pages of the
interpreter and its libraries, shared ones included.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from integration.bench.queries import Queries
from integration.bench.shapes import Shape
from integration.helpers.processes import below, command, memory_mib, parents

REQUIRED_MIB = 300
_WORKER = b"pyspark.daemon"
_RESET_PEAK = "5"


@dataclass(frozen=True, slots=True)
class Peak:
    """Memory of the largest worker.

    Attributes:
        mib_above_idle: its highest resident size less that of an idle worker, MiB.
    """

    messages: int
    mib_above_idle: float


def measure(queries: Queries, shape: Shape, counts: tuple[int, ...]) -> list[Peak]:
    """Read topics of so many messages, the smallest first; to be called before anything else is read."""
    idle = idle_mib(queries.spark)
    peaks = []
    for count in counts:
        with queries.topics.filled(shape, 1, count) as topic:
            set_peaks_back()
            queries.read_topic(topic, count)
            peaks.append(Peak(count, peak_mib() - idle))
    return peaks


def peak_mib() -> float:
    """The highest resident size of a worker since it began or was set back, MiB."""
    return max(memory_mib(worker, "VmHWM") for worker in workers())


def idle_mib(spark: SparkSession) -> float:
    """MiB of a worker that has passed one row through Arrow and waits."""

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    spark.range(1).mapInArrow(same, "id long").collect()
    return max(map(memory_mib, workers()))


def set_peaks_back() -> None:
    """Forget what workers took so far."""
    for worker in workers():
        Path(f"/proc/{worker}/clear_refs").write_text(_RESET_PEAK)


def workers() -> list[int]:
    """Spark's Python workers below this process: forks of a ``pyspark.daemon``."""
    parent_of = parents()
    daemons = below(os.getpid(), _WORKER)
    return [each for each in daemons if each in parent_of and _WORKER in command(parent_of[each])]
