"""The mutation tool changes the package alone."""

import os
import signal
import subprocess
import sys

import pytest

from integration.mutation import main, signal_child


@pytest.mark.parametrize("path", ["tests", "pulsar_spark/nowhere", "pulsar_spark/nowhere.py"])
def test_what_is_not_in_the_package(path, capsys):
    assert main([path]) == 2
    assert "is not a file or a folder of pulsar_spark" in capsys.readouterr().err


def test_only_children_are_signalled():
    """mutmut signals numbers of children that have ended, which other processes may have by then."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        signal_child(child.pid, signal.SIGTERM)
        assert child.wait() == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            signal_child(child.pid, signal.SIGTERM)
    with pytest.raises(ProcessLookupError):
        signal_child(os.getppid(), 0)  # it exists, and is no child
