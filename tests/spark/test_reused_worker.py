"""Objects of a reused worker that garbage collection leaves alone."""

import os
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
print(gc.get_freeze_count() - before)
"""


@pytest.mark.parametrize(
    ("name", "reused", "is_exempt"),
    [("pyspark.daemon", "1", True), ("pyspark.daemon", "", False), ("users_program", "1", False)],
)
def test_only_a_worker_that_is_reused_exempts_its_modules(name, reused, is_exempt):
    run = subprocess.run(
        [sys.executable, "-c", _AS_MAIN.format(name=name)],
        cwd=ROOT,
        env={**os.environ, "SPARK_REUSE_WORKER": reused},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (int(run.stdout) > 10_000) == is_exempt
