"""The demonstration, as somebody starts it who sees the project for the first time."""

import signal
import subprocess
import sys

import pytest

from integration.broker.waiting import HANG
from integration.helpers.local_spark import ROOT


@pytest.mark.long
@pytest.mark.parametrize("ending", ["time", "Ctrl-C"])
def test_it_shows_sums_rates_and_lags_and_warns_of_nothing(ending):
    command = [
        sys.executable,
        "-m",
        "integration.demo",
        "--no-browser",
        "--seconds",
        "90" if ending == "time" else "600",
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        shown = []
        for line in demo.stdout:
            shown.append(line)
            if ending == "Ctrl-C" and "  screen " in line:
                demo.send_signal(signal.SIGINT)
                break
        out, said = demo.communicate(timeout=HANG)
    text = "".join(shown) + out
    assert demo.returncode == 0, text + said
    assert "Dresden" in text
    assert "\n  sums " in text
    assert " entries" in text or " messages" in text
    assert text.splitlines()[-1].endswith("sums were read back from Pulsar")
    ours = [line for line in said.splitlines() if "pulsar" in line.lower()]
    assert ours == []
    assert "Traceback" not in said
