"""The command line of a broker's Java."""

import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_spark_broker import process
from pulsar_spark_broker.coarse_timers import SLACK_NS


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has timer slack")
@pytest.mark.parametrize("optimize", [False, True])
def test_only_a_broker_for_tests_has_coarse_timers(tmp_path, monkeypatch, optimize):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho $$\nexec cat /proc/self/timerslack_ns\n")
    java.chmod(0o755)
    monkeypatch.setattr(process, "java_for", lambda version: str(java))
    command = process.java_command([], folder=tmp_path, jvm=process.Jvm(optimize=optimize))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        pid, slack = map(int, started.stdout.read().split())
    assert pid == started.pid, "signals go to it"
    assert slack == (int(Path("/proc/self/timerslack_ns").read_text()) if optimize else SLACK_NS)
