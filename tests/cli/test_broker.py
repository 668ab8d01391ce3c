"""The signals of `pulsar_spark broker`."""

import subprocess
import sys

# Both signals have come before Python handles the first, and another one follows.
SIGNALS = """
import os, signal
from pulsar_spark_broker.command import _request_stop, _StopRequest
both = (signal.SIGINT, signal.SIGTERM)
for number in both:
    signal.signal(number, _request_stop)
signal.pthread_sigmask(signal.SIG_BLOCK, both)
for number in both:
    os.kill(os.getpid(), number)
try:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
except _StopRequest:
    print("stopped")
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_further_signals_do_not_disturb_a_stop():
    done = subprocess.run([sys.executable, "-c", SIGNALS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
