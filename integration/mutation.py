"""A mutation tool, mutmut, over the code that decides which rows are kept: before a release, for hours.

    python -m integration.mutation                                    all of protocol, plan and sink
    python -m integration.mutation pulsar_spark/protocol/lookup.py    some files or folders
    python -m integration.mutation ... --tests tests/protocol/test_lookup.py --children 1

It changes one operator, number or name at a time, and runs the unit tests that reach it. What survives is
printed as a difference: a line that no test would miss. It works in a copy, and installs mutmut beside it.
A few tests that are fast answer early; what survives them may still be found by the others.
"""

from __future__ import annotations

import argparse
import configparser
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from integration.helpers.local_spark import ROOT

MUTMUT = "mutmut == 3.8.1"
# Code without I/O that decides whether a row is kept, acknowledged, sent again or dropped.
DECISIONS = ("pulsar_spark/protocol", "pulsar_spark/spark/plan", "pulsar_spark/spark/sink")
_TOPS = ("conf", "docs", "examples", "integration", "proto", "README.md", "CHANGELOG.md")


def tests_of(path: str) -> str:
    """The folder of the unit tests of a file or a folder of the package.

    Raises:
        ValueError: it is not in the package.
    """
    parts = Path(path).parts
    if parts[:1] != ("pulsar_spark",) or not (ROOT / path).exists():
        raise ValueError(f"{path} is not a file or a folder of pulsar_spark")
    folder = Path("tests", *(parts[1:-1] if path.endswith(".py") else parts[1:]))
    return str(folder)


def settings(paths: Sequence[str], tests: Sequence[str] = ()) -> dict[str, str]:
    """What mutmut reads in setup.cfg, to change these files or folders.

    Args:
        paths: files or folders of the package.
        tests: files or folders of tests; by default those of ``paths``.

    Raises:
        ValueError: a path is not in the package.
    """
    of_paths = sorted({tests_of(path) for path in paths})
    return {
        "source_paths": "pulsar_spark",
        "only_mutate": "\n" + "\n".join(path if path.endswith(".py") else f"{path}/*" for path in paths),
        "also_copy": "\n" + "\n".join(_TOPS),
        "pytest_add_cli_args": "\n-p\nno:randomly\n-p\nno:cacheprovider\n--hypothesis-seed=0",
        "pytest_add_cli_args_test_selection": "\n" + "\n".join(tests or of_paths),
        # Texts of errors and of logs decide nothing.
        "do_not_mutate_patterns": "\nraise \nlog\\.\nadvice=",
        "use_git_change_detection": "false",
    }


def main(arguments: Sequence[str]) -> int:
    """Run mutmut, and print what survives; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mutation")
    parser.add_argument("paths", nargs="*", default=DECISIONS)
    parser.add_argument("--tests", nargs="+", default=(), help="files or folders of tests")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 2, help="processes at a time")
    given = parser.parse_args(arguments)
    try:
        section = settings([str(Path(path)) for path in given.paths], given.tests)
    except ValueError as error:
        print(f"mutation: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        copy, tool = Path(name).resolve() / "copy", Path(name).resolve() / "tool"
        copy_of_checkout(ROOT, copy)
        (copy / "mutants").mkdir()  # a folder of PYTHONPATH must be there when Python starts
        config = configparser.ConfigParser()
        config.read(copy / "setup.cfg")
        config["mutmut"] = section
        with (copy / "setup.cfg").open("w") as file:
            config.write(file)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--target", str(tool), MUTMUT], check=True)
        return _run(copy, tool, given.children)


def signal_child(pid: int, number: int) -> None:
    """Send a signal to a child of this process, and to no other process.

    mutmut signals each child when its time is over, also if it has ended. Its number may then be of another
    process, such as a broker of other tests.

    Raises:
        ProcessLookupError: there is no such child any more.
    """
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        raise ProcessLookupError from None
    os.kill(pid, number)


def copy_of_checkout(root: Path, copy: Path) -> None:
    """Copy what git tracks in ``root``, as it is there now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True)
    for name in listed.stdout.split("\0"):
        if name and (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, copy / name)


def _run(copy: Path, tool: Path, children: int) -> int:
    environment = {
        **os.environ,
        # The tool comes last: pytest is that of the project.
        "PYTHONPATH": str(copy / "mutants"),
        "PULSAR_SPARK_HYPOTHESIS_PROFILE": "unshrunk",
    }
    start = "\n".join(
        [
            "import os, sys, types",
            inspect.getsource(signal_child),
            f"sys.path.append({str(tool)!r})",
            "from mutmut.__main__ import cli",
            "from mutmut.workers import timeout",
            "timeout.os = types.SimpleNamespace(getpid=os.getpid, kill=signal_child)",
            "cli()",
        ]
    )

    def mutmut(*arguments: str) -> subprocess.CompletedProcess[str]:
        is_shown = arguments[0] == "run"
        return subprocess.run(
            [sys.executable, "-c", start, *arguments],
            cwd=copy,
            env=environment,
            text=True,
            check=False,
            stdout=None if is_shown else subprocess.PIPE,
        )

    done = mutmut("run", "--max-children", str(children))
    if done.returncode:
        return done.returncode
    results = [line.strip().split(": ") for line in mutmut("results").stdout.splitlines() if line.strip()]
    survivors = [name for name, result in results if result != "killed"]
    for name in survivors:
        print(mutmut("show", name).stdout)
    print(f"mutation: {len(survivors)} survived")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
