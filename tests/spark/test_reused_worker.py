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
import pulsar_spark
"""
_COUNT_EXEMPT = """
print(gc.get_freeze_count() - before)
"""
# As many blocks as decoding makes for a record batch.
_COUNT_FAULTS = """
import numpy as np
from resource import RUSAGE_SELF, getrusage

def make():
    return [np.ones(40_000) for _ in range(10)]

make()
before = getrusage(RUSAGE_SELF).ru_minflt
for _ in range(10):
    make()
print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""

WORKERS = [("pyspark.daemon", "1", True), ("pyspark.daemon", "", False), ("users_program", "1", False)]


def _environment() -> dict[str, str]:
    """Without what sets glibc's thresholds, which takes precedence."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))
    }


def run_as(name: str, reused: str, then: str) -> int:
    """What ``then`` prints, in a process with that main module that has imported the package."""
    run = subprocess.run(
        [sys.executable, "-c", _AS_MAIN.format(name=name) + then],
        cwd=ROOT,
        env={**_environment(), "SPARK_REUSE_WORKER": reused},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stdout)


@pytest.mark.parametrize(("name", "reused", "is_exempt"), WORKERS)
def test_only_a_worker_that_is_reused_exempts_its_modules(name, reused, is_exempt):
    assert (run_as(name, reused, _COUNT_EXEMPT) > 10_000) == is_exempt


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of another C library")
@pytest.mark.parametrize(("name", "reused", "keeps"), WORKERS)
def test_only_a_worker_that_is_reused_keeps_freed_memory(name, reused, keeps):
    """Ten rounds free 3.2 MB each, which is 780 pages."""
    faults = run_as(name, reused, _COUNT_FAULTS)
    assert faults < 100 if keeps else faults > 1000
