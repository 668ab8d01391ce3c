"""All that CI leaves out because it takes hours: run before a release.

python -m integration.long
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from integration.chaos.__main__ import RUNS
from integration.helpers.local_spark import ROOT
from integration.helpers.versions import NEWEST_LINE, OLDEST_LINE

# How often each fault run breaks something: enough for each kind of fault, in at most about ten minutes.
CHAOS_TIMES = {
    "cluster": 10,
    "clusters": 4,
    "cuts": 200,
    "large": 100,
    "login": 4,
    "losses": 81,
    "once": 16,
    "pauses": 1,
    "replays": 20_000,
    "segment-copies": 40,
    "segment-writes": 40,
    "segments": 40,
    "restarts": 20,
    "silent": 60,  # seconds of each kind
    "starts": 10,
    "storm": 25,
    "two-sides": 4,
    "workers": 2,
}


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one step.

    Attributes:
        code: the exit code; negative where a signal ended it.
    """

    name: str
    code: int
    seconds: float


def steps() -> dict[str, Sequence[str]]:
    """The steps by name, in order: what Python is told for each."""
    module = {
        "coverage": ("integration", "coverage"),
        "hostile": (
            *("integration.hostile", "--entries", "5000000", "--frames", "10000000", "--values"),
            *("5000000", "--json", "5000000", "--costs", "10000", "--schemas", "100"),
        ),
        "long tests": ("pytest", "-p", "no:cacheprovider", "-m", "long", "tests", "integration"),
        "Pulsar 4.0": ("integration", "test", "--pulsar", OLDEST_LINE, "integration"),
        "Pulsar 5": ("integration", "test", "--pulsar", NEWEST_LINE, "integration"),
        "matrix": ("integration.matrix", "full"),
        "deploy": ("integration.deploy",),
    }
    for name in (*RUNS, "once", "silent"):
        option = {"once": "--runs", "silent": "--seconds"}.get(name, "--times")
        module[f"chaos {name}"] = ("integration.chaos", name, option, str(CHAOS_TIMES[name]))
    return {name: ("-m", *arguments) for name, arguments in module.items()}


def run_all(chosen: Mapping[str, Sequence[str]]) -> list[Result]:
    """Run all steps; one that fails does not keep the others from running."""
    results = []
    for name, arguments in chosen.items():
        print(f"long: {name}", flush=True)
        began = time.monotonic()
        code = subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False).returncode
        results.append(Result(name, code, time.monotonic() - began))
    return results


def summary(results: Iterable[Result]) -> str:
    """One line a step: passed or failed, and minutes."""
    lines = [f"{'step':20}  {'result':18}  minutes"]
    for each in results:
        outcome = "passed" if each.code == 0 else f"failed ({each.code})"
        lines.append(f"{each.name:20}  {outcome:18}  {each.seconds / 60:7.1f}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run all steps and print the summary; returns 1 when one failed."""
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    results = run_all(steps())
    print(summary(results))
    return 1 if any(each.code for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
