"""Planted faults: that each still fits the code, and what counts as caught."""

import subprocess
import sys

import pytest

from integration.mutants import FAULTS
from integration.mutants.__main__ import ROOT
from integration.mutants.__main__ import main as mutants
from integration.mutants.fault import DriftError, Fault, missing_test
from integration.mutants.run import Outcome, PytestRun, Verdict, judge, run_fault, summary

SOURCE = "def double(number):\n    return 2 * number\n"
TEST = "from package.module import double\n\n\ndef test_double():\n    assert double(2) == 4\n"


def test_each_fault_fits_the_code_and_names_a_test_that_exists():
    for fault in FAULTS:
        assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1, fault.name
    assert [fault.name for fault in FAULTS if missing_test(ROOT, fault.test) is not None] == []


def test_names_differ():
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)


def test_there_are_enough_and_unit_tests_catch_most():
    by_unit_tests = [fault for fault in FAULTS if fault.test.startswith("tests/")]
    assert len(FAULTS) >= 60
    assert len(by_unit_tests) >= 50 / 60 * len(FAULTS)


def fault(old="2 * number", new="3 * number", test="tests/test_it.py::test_double"):
    return Fault(name="triples", file="package/module.py", old=old, new=new, test=test)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("4 * number", "3 * number", "0 times"),
        ("number", "n", "2 times"),
        ("2 * number", "2 *", "no Python"),
        ("2 * number", "(2 * number)", "means the same"),
    ],
)
def test_a_fault_that_does_not_fit_is_told(old, new, why):
    with pytest.raises(DriftError, match=f"triples: package/module.py .*{why}"):
        fault(old, new).planted(SOURCE)


def test_a_fault_that_fits():
    assert fault().planted(SOURCE) == "def double(number):\n    return 3 * number\n"


@pytest.mark.parametrize(
    ("file", "layer"),
    [
        ("pulsar_spark/ids.py", "ids"),
        ("pulsar_spark/wire/frames.py", "wire"),
        ("pulsar_spark/client/net/retry.py", "client/net"),
    ],
)
def test_the_layer_is_the_folder(file, layer):
    assert Fault("n", file, "a", "b", "t").layer == layer


@pytest.mark.parametrize(
    ("test", "missing"),
    [
        ("tests/test_it.py::test_double", None),
        ("tests/test_it.py::test_double[3-4]", None),
        ("tests/test_it.py::TestIt::test_inside", None),
        ("tests/test_it.py::TestIt::test_double", "tests/test_it.py::TestIt::test_double"),
        ("tests/test_it.py::test_half", "tests/test_it.py::test_half"),
        ("tests/test_it.py", "tests/test_it.py"),
        ("tests/test_other.py::test_double", "tests/test_other.py"),
    ],
)
def test_what_there_is_not_of_a_test(tmp_path, test, missing):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text(
        TEST + "\n\nclass TestIt:\n    def test_inside(self):\n        pass\n"
    )
    assert missing_test(tmp_path, test) == missing


@pytest.mark.parametrize(
    ("exit_code", "failures", "verdict", "why"),
    [
        (0, (), Verdict.SURVIVED, "the test passed"),
        (1, ("AssertionError: assert 6 == 4",), Verdict.CAUGHT, ""),
        (1, ("TypeError: no", "NameError: name 'x' is not defined"), Verdict.CAUGHT, ""),
        (1, ("NameError: name 'x' is not defined",), Verdict.BROKEN, "the test stumbled: NameError"),
        (1, (), Verdict.BROKEN, "the test did not run"),  # a fixture or an import failed
        (2, (), Verdict.BROKEN, "the test did not run"),
        (4, (), Verdict.BROKEN, "the test did not run"),
        (5, (), Verdict.BROKEN, "the test did not run"),
        (-11, (), Verdict.BROKEN, "the test did not run"),
        (None, (), Verdict.BROKEN, "the test did not end in time"),
    ],
)
def test_only_a_test_that_runs_and_fails_catches(exit_code, failures, verdict, why):
    judged, reason = judge(PytestRun(exit_code, failures, "", 0.1))
    assert judged is verdict
    assert reason.startswith(why)


def test_the_summary_counts_and_names_the_others():
    def outcome(verdict, name, test):
        return Outcome(Fault(name, "f.py", "a", "b", test), verdict, "", PytestRun(0, (), "", 0.1))

    outcomes = [
        outcome(Verdict.CAUGHT, "one", "tests/x.py::t"),
        outcome(Verdict.CAUGHT, "two", "integration/x.py::t"),
        outcome(Verdict.SURVIVED, "three", "tests/x.py::t"),
        outcome(Verdict.BROKEN, "four", "tests/x.py::t"),
    ]
    assert summary(outcomes).splitlines() == [
        "mutants: 2 of 4 caught, 1 by unit tests",
        "mutants: SURVIVED: three",
        "mutants: BROKEN: four",
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("planted", "verdict"),
    [
        (fault(), Verdict.CAUGHT),
        (fault(new="number + number"), Verdict.SURVIVED),
        (fault(new="2 * numbers"), Verdict.BROKEN),
        (fault(old="def double", new="def twice"), Verdict.BROKEN),
        (fault(test="tests/test_it.py::test_half"), Verdict.BROKEN),
    ],
    ids=["caught", "the same", "no such name", "no import", "no such test"],
)
def test_a_fault_is_planted_and_taken_out_again(tmp_path, planted, verdict):
    for folder in ("package", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "package/module.py").write_text(SOURCE)
    (tmp_path / "tests/test_it.py").write_text(TEST)
    outcome = run_fault(tmp_path, planted)
    assert outcome.verdict is verdict, outcome.run.output
    assert (tmp_path / "package/module.py").read_text() == SOURCE


@pytest.mark.parametrize("arguments", [["no-fault-has-this-name"], ["one", "two"]])
def test_wrong_usage(arguments, capsys):
    assert mutants(arguments) == 2
    assert "PART OF A FAULT'S NAME" in capsys.readouterr().err


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "integration.mutants", "no-fault-has-this-name"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 2
