"""What a module of the tests reads in a process of its own, with one of protobuf's runtimes."""

import os
import subprocess
import sys


def read_with(runtime, module, asked=None):
    """What ``module`` prints as its second line, given ``asked``; the first one must name the runtime."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module],
        env={
            **os.environ,
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": runtime,
            "PYTHONPATH": ":".join(sys.path),
        },
        input=asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name, read = done.stdout.splitlines()
    assert name == runtime
    return read
