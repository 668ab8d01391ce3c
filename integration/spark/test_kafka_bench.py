"""The benchmark beside Kafka, on a few rows: it checks what both sources read."""

import subprocess
import sys

import pytest

from integration.helpers.local_spark import ROOT


@pytest.mark.long
def test_both_sides_write_and_read_the_same_rows():
    """A process of its own: the jars of Spark's Kafka source are of its session only."""
    command = [sys.executable, "-m", "integration.bench", "kafka", "1", "1000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [line.split(" us CPU")[0].split("  ")[0] for line in done.stdout.splitlines() if "rows/s" in line]
    writes = ["kafka", "kafka, large batches", "pulsar", "pulsar, at-least-once"]
    reads = ["kafka", "kafka, short wait", "pulsar"]
    assert found == [*writes, *reads] * 2
