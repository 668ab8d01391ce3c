"""The long run has all that CI leaves out."""

from integration.chaos.__main__ import RUNS
from integration.long import steps


def test_all_steps():
    assert {"coverage", "long tests", "matrix", "deploy"} <= steps().keys()
    assert {name.partition("chaos ")[2] for name in steps()} >= {*RUNS, "once"}
