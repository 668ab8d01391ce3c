"""The long run: all steps run, also after one that failed, and the summary says which failed."""

from integration.chaos.__main__ import RUNS
from integration.long import Result, main, run_all, steps, summary


def test_one_that_fails_or_is_killed_does_not_keep_the_others_from_running():
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    chosen = {"a": ("-c", "raise SystemExit(3)"), "b": ("-c", killed), "c": ("-c", "")}
    assert [(each.name, each.code) for each in run_all(chosen)] == [("a", 3), ("b", -9), ("c", 0)]


def test_the_summary():
    lines = summary([Result("matrix", 0, 90.0), Result("chaos cuts", -9, 6.0)]).split("\n")
    assert [line.split() for line in lines[1:]] == [
        ["matrix", "passed", "1.5"],
        ["chaos", "cuts", "failed", "(-9)", "0.1"],
    ]


def test_it_has_all_that_ci_leaves_out():
    assert {"coverage", "long tests", "matrix", "deploy"} <= steps().keys()
    assert {name.partition("chaos ")[2] for name in steps()} >= {*RUNS, "once"}


def test_it_takes_no_arguments():
    assert main(["-x"]) == 2
