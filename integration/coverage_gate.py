"""Run the unit tests, and check how many statements of the package they run, folder by folder.

python -m integration.coverage_gate
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration import UNIT_PROCESSES
from integration.helpers.local_spark import ROOT

# Percent of statements, of a folder with all below it or of a file. Besides the whole, what needs no socket,
# no thread and no Spark that runs.
LIMITS = {
    "pulsar_spark": 80,
    "pulsar_spark/errors.py": 90,
    "pulsar_spark/ids.py": 90,
    "pulsar_spark/arrow": 90,
    "pulsar_spark/wire": 90,
    "pulsar_spark/values": 90,
    "pulsar_spark/protocol": 90,
    "pulsar_spark/client/encryption.py": 90,
    "pulsar_spark/client/writing/interceptors.py": 90,
    "pulsar_spark/spark/options": 90,
    "pulsar_spark/spark/plan": 90,
    "pulsar_spark/spark/rows": 90,
    "pulsar_spark/spark/sink": 90,
}


@dataclass(frozen=True, slots=True)
class Coverage:
    """Statements of a folder or a file.

    Attributes:
        place: its path from the project's root.
        covered: statements that ran.
        statements: all statements.
        limit: the lowest percentage that passes.
    """

    place: str
    covered: int
    statements: int
    limit: int

    @property
    def percent(self) -> float:
        """Percent of statements that ran; 0 where there are none, so that a place that is gone fails."""
        return 100 * self.covered / self.statements if self.statements else 0.0

    @property
    def passes(self) -> bool:
        """Whether the limit is reached."""
        return self.percent >= self.limit


def measure(files: Mapping[str, tuple[int, int]], limits: Mapping[str, int]) -> list[Coverage]:
    """Sum up what a report says of each place that has a limit.

    Args:
        files: covered statements and all statements, by path from the project's root.
        limits: percent, by path of a folder or a file.
    """
    found = []
    for place, limit in limits.items():
        inside = [counts for path, counts in files.items() if path == place or path.startswith(f"{place}/")]
        covered, statements = (sum(column) for column in zip((0, 0), *inside, strict=True))
        found.append(Coverage(place, covered, statements, limit))
    return found


def table(coverages: Sequence[Coverage]) -> str:
    """One line a place: percent, limit, and whether it is too low."""
    width = max(len(each.place) for each in coverages)
    lines = [f"{'statements':{width}}      %  limit"]
    for each in coverages:
        mark = "" if each.passes else "  too low" if each.statements else "  not found"
        lines.append(f"{each.place:{width}}  {each.percent:5.1f}  {each.limit:5}{mark}")
    return "\n".join(lines)


def run_tests(folder: Path) -> tuple[int, Path]:
    """Run the unit tests; returns pytest's exit code, and the report that coverage writes as JSON."""
    report = folder / "coverage.json"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", UNIT_PROCESSES, "tests"]
    command += ["--cov=pulsar_spark", "--cov-report=", f"--cov-report=json:{report}"]
    environment = os.environ | {"COVERAGE_FILE": str(folder / "data")}
    if sys.version_info >= (3, 12):
        environment["COVERAGE_CORE"] = "sysmon"  # sys.monitoring: costs nearly nothing
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode, report


def check(file: Path) -> int:
    """Print the table of a report; returns 1 when a limit is not reached."""
    report = json.loads(file.read_text(encoding="utf-8"))
    files = {
        path: (file["summary"]["covered_lines"], file["summary"]["num_statements"])
        for path, file in report["files"].items()
    }
    coverages = measure(files, LIMITS)
    print(table(coverages), flush=True)
    return 0 if all(each.passes for each in coverages) else 1


def main() -> int:
    """Run the tests and check; returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        code, report = run_tests(Path(folder))
        return code or check(report)


if __name__ == "__main__":
    sys.exit(main())
