"""No skip passes silently in CI."""

import os
import subprocess
import sys

import pytest

from integration.helpers.local_spark import ROOT

TESTS = """
import pytest

def test_that_passes():
    pass

def test_that_lacks_something():
    pytest.skip("there is no tool here")

@pytest.mark.xfail
def test_that_is_known_to_fail():
    assert False
"""


@pytest.mark.parametrize(("ci", "failed"), [("1", 1), ("", 0)])
def test_a_skip_fails_where_ci_is_set(tmp_path, ci, failed):
    (tmp_path / "test_it.py").write_text(TESTS)
    options = ["-p", "no:cacheprovider", "-p", "conftest", "-q"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    environment = os.environ | {"CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take a second
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == failed
    assert ("no test is skipped where CI is set" in done.stdout) == bool(failed)
    assert f"{failed} failed" in done.stdout or not failed
    assert "1 passed" in done.stdout
    assert "1 xfailed" in done.stdout
