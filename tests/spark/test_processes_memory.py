"""What a reused worker keeps from one task to the next."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import pulsar_spark

ROOT = Path(pulsar_spark.__file__).parents[1]

# The main module of Spark's workers is the daemon that they are forked from.
_AS_MAIN = """
import gc, sys
from importlib.util import spec_from_loader

sys.modules["__main__"].__spec__ = spec_from_loader({name!r}, None)
before = gc.get_freeze_count()
"""
_URL = "pulsar://localhost:6650"
# What a task does first; without rows it asks no broker.
TASKS = {
    "read": f"""
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType
from pulsar_spark.spark.reader import PulsarStreamReader
reader = PulsarStreamReader({{"service.url": {_URL!r}, "topic": "t"}}, StructType().add("value", "binary"))
assert list(reader.read(InputPartition(None))) == []
""",
    "write": f"""
from pyspark.sql.types import StructType
from pulsar_spark.spark.options.parse import parse_sink
from pulsar_spark.spark.rows.write import message_shape
from pulsar_spark.spark.sink.task import write_task
options = parse_sink({{"service.url": {_URL!r}, "topic": "t", "delivery": "at-least-once"}})
shape = message_shape(StructType().add("value", "binary"), options.topic)
write_task(options, shape, {{}}, iter(()), None, {{}})
""",
}
# Then as many blocks as decoding makes for a record batch.
_COUNT_FAULTS = """
exempt = gc.get_freeze_count() - before
import numpy as np
from resource import RUSAGE_SELF, getrusage

def make():
    return [np.ones(40_000) for _ in range(10)]

make()
before = getrusage(RUSAGE_SELF).ru_minflt
for _ in range(10):
    make()
print(exempt, getrusage(RUSAGE_SELF).ru_minflt - before)
"""

BOTH = "".join(TASKS.values())
# Each task does it in a worker that is reused; no task in another process.
WORKERS = [
    *(("pyspark.daemon", "1", task, True) for task in TASKS.values()),
    ("pyspark.daemon", "", BOTH, False),
    ("users_program", "1", BOTH, False),
]


def _environment() -> dict[str, str]:
    """Without what sets glibc's thresholds, which takes precedence."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))
    }


def run_as(name: str, reused: str, task: str) -> tuple[int, int]:
    """Objects that the garbage collector leaves out and faults, in a process with that main module."""
    run = subprocess.run(
        [sys.executable, "-c", _AS_MAIN.format(name=name) + task + _COUNT_FAULTS],
        cwd=ROOT,
        env={**_environment(), "SPARK_REUSE_WORKER": reused},
        capture_output=True,
        text=True,
        check=True,
    )
    exempt, faults = run.stdout.split()
    return int(exempt), int(faults)


@pytest.mark.parametrize(("name", "reused", "task", "is_so"), WORKERS, ids=[*TASKS, "new", "program"])
def test_only_a_worker_that_is_reused_exempts_its_modules_and_keeps_freed_memory(name, reused, task, is_so):
    """Ten rounds free 3.2 MB each, which is 780 pages."""
    exempt, faults = run_as(name, reused, task)
    assert (exempt > 10_000) == is_so
    if platform.libc_ver()[0] == "glibc":
        assert faults < 100 if is_so else faults > 1000
