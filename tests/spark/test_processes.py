"""The Python of a session's processes: this one in a local session, unless the user says otherwise."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_spark.spark.processes import use_this_python


def python_of(master):
    context: Any = SimpleNamespace(master=master, pythonExec="python3")
    use_this_python(context)
    return context.pythonExec


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*, 3]", "local-cluster[2,1,512]"])
def test_a_local_session_takes_this_python(master, monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert python_of(master) == sys.executable


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:443"])
def test_a_cluster_keeps_its_own(master, monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert python_of(master) == "python3"


def test_what_the_user_says_holds(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert python_of("local[2]") == "python3"
