"""The run: each fault is planted in a copy of the checkout, where its test must fail.

Only a test that runs and fails catches a fault. One that never reaches its assertions (an import fails, a
name does not exist, no test has that name, it does not end in time) says nothing about it: it is broken.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import SimpleQueue
from xml.etree import ElementTree

from integration.mutants.fault import Fault

TIME_LIMIT = 120.0  # seconds, for one test
WORKERS = 2

_FAILED = 1  # pytest's exit code where tests ran and one failed
# What a test fails with that does not reach the fault, but stumbles over how it is written.
_STUMBLES = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError")


class Verdict(Enum):
    """What became of a fault."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class PytestRun:
    """What pytest did.

    Attributes:
        exit_code: its own; None where the time limit ended it.
        failures: the first line of each failure of a test's own, not of its fixtures.
        output: all that it printed.
        seconds: that it took.
    """

    exit_code: int | None
    failures: tuple[str, ...]
    output: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault, why, and what pytest printed."""

    fault: Fault
    verdict: Verdict
    why: str
    run: PytestRun


def judge(run: PytestRun) -> tuple[Verdict, str]:
    """Say what a run of the named test means for the fault, and why."""
    if run.exit_code == 0:
        return Verdict.SURVIVED, "the test passed"
    if run.exit_code is None:
        return Verdict.BROKEN, "the test did not end in time"
    if run.exit_code != _FAILED or not run.failures:
        return Verdict.BROKEN, f"the test did not run (pytest's exit code {run.exit_code})"
    if all(line.startswith(_STUMBLES) for line in run.failures):
        return Verdict.BROKEN, f"the test stumbled: {run.failures[0]}"
    return Verdict.CAUGHT, ""


def run_all(root: Path, faults: Sequence[Fault]) -> int:
    """Run the faults, and print what became of each; 0 if all are caught, 1 if not."""
    with _copies(root, WORKERS) as copies:
        tests = sorted({fault.test for fault in faults})
        print(f"mutants: {len(tests)} tests without a fault", flush=True)
        clean = run_tests(copies[0], tests, TIME_LIMIT * len(tests), "-n", str(WORKERS))
        if clean.exit_code != 0:
            print(clean.output)
            print("mutants: the tests must pass before a fault is planted", file=sys.stderr)
            return 1
        outcomes = []
        for outcome in _run_each(copies, faults):
            outcomes.append(outcome)
            print(line_of(outcome), flush=True)
            if outcome.verdict is Verdict.BROKEN:
                print(outcome.run.output)
    print(summary(outcomes))
    return 0 if all(outcome.verdict is Verdict.CAUGHT for outcome in outcomes) else 1


def _run_each(copies: Sequence[Path], faults: Sequence[Fault]) -> Iterator[Outcome]:
    """Give the outcomes in the order of the faults; each copy holds one fault at a time."""
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def run_one(fault: Fault) -> Outcome:
        copy = free.get()
        try:
            return run_fault(copy, fault)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        yield from pool.map(run_one, faults)


def run_fault(copy: Path, fault: Fault) -> Outcome:
    """Plant a fault in a copy, run its test there, and take the fault out again. Raises DriftError."""
    path = copy / fault.file
    before = path.read_bytes()
    fault.plant(copy)
    try:
        run = run_tests(copy, [fault.test], TIME_LIMIT)
    finally:
        path.write_bytes(before)
    return Outcome(fault, *judge(run), run)


def run_tests(copy: Path, tests: Sequence[str], time_limit: float, *more: str) -> PytestRun:
    """Run tests by their node ids in a copy, in the order given; hypothesis always makes the same choices."""
    report = copy / "mutants-report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["--hypothesis-seed=0", f"--junit-xml={report}", "-m", "", *more, *tests]
    began = time.monotonic()
    code, output = _run(command, copy, time_limit)
    failures = _failures(report.read_text(encoding="utf-8")) if report.exists() else ()
    return PytestRun(code, failures, output, time.monotonic() - began)


def _failures(report: str) -> tuple[str, ...]:
    """The first line of each failure in a report in JUnit's form; errors of fixtures and imports are none."""
    found = ElementTree.fromstring(report).iter("failure")
    return tuple(each.get("message", "").partition("\n")[0] for each in found)


def line_of(outcome: Outcome) -> str:
    """One line of the table."""
    fault, run = outcome.fault, outcome.run
    line = f"{outcome.verdict.value:8}  {fault.layer:14}  {fault.name:44}  {run.seconds:5.1f} s  {fault.test}"
    return f"{line}\n          {outcome.why}" if outcome.why else line


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many of the faults were caught, by unit tests and in all, and the names of the others."""
    caught = [outcome for outcome in outcomes if outcome.verdict is Verdict.CAUGHT]
    by_unit_tests = sum(outcome.fault.test.startswith("tests/") for outcome in caught)
    lines = [f"mutants: {len(caught)} of {len(outcomes)} caught, {by_unit_tests} by unit tests"]
    lines += [
        f"mutants: {outcome.verdict.value}: {outcome.fault.name}"
        for outcome in outcomes
        if outcome.verdict is not Verdict.CAUGHT
    ]
    return "\n".join(lines)


@contextmanager
def _copies(root: Path, count: int) -> Iterator[list[Path]]:
    """Copies of the checkout, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Path(folder).resolve() / str(number) for number in range(count)]
        for copy in copies:
            copy_of_checkout(root, copy)
            _check_imported(copy)
        yield copies


def copy_of_checkout(root: Path, copy: Path) -> None:
    """Copy what git tracks in ``root``, as it is there now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True)
    for name in listed.stdout.split("\0"):
        if name and (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, copy / name)


def _check_imported(copy: Path) -> None:
    """Make sure that what is imported in a copy is the copy: else no fault could ever be noticed."""
    code, output = _run(
        [sys.executable, "-c", "import pulsar_spark; print(pulsar_spark.__file__)"], copy, 60.0
    )
    print(f"mutants: pulsar_spark is imported from {output.strip()}", flush=True)
    if code != 0 or Path(output.strip()) != copy / "pulsar_spark" / "__init__.py":
        raise SystemExit(f"mutants: that is not the copy in {copy}")


def _run(command: Sequence[str], copy: Path, time_limit: float) -> tuple[int | None, str]:
    """Run a command in a copy; its exit code, None where it took too long, and what it printed."""
    # Files of compiled code go by seconds and sizes, which a fault and its opposite may share.
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PULSAR_SPARK_HYPOTHESIS_PROFILE": "unshrunk",
    }
    with subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=time_limit)
        except subprocess.TimeoutExpired:
            # What the test has started goes with it.
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output
