"""Run one of the long runs; to add one, put its function into RUNS.

python -m integration.chaos RUN [--seed N] [--times N]
python -m integration.chaos once [--seed N] [--runs N] [--rows N]
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial

from integration.chaos.cluster import cluster
from integration.chaos.cuts import cuts
from integration.chaos.large import large
from integration.chaos.login import login
from integration.chaos.once import once
from integration.chaos.pauses import pauses
from integration.chaos.restarts import restarts
from integration.chaos.starts import starts
from integration.chaos.storm import storm
from integration.chaos.transactional import transactional
from integration.chaos.workers import workers

# A run gets its random seed and how often it is to break something. It raises AssertionError when a promise
# is not kept, and gives the lines of its table, the first of them the heading.
Run = Callable[[int, int], Iterable[tuple[object, ...]]]

RUNS: dict[str, Run] = {
    "cluster": cluster,
    "cuts": cuts,
    "large": large,
    "login": login,
    "pauses": pauses,
    "restarts": restarts,
    "starts": starts,
    "storm": storm,
    "transactional": transactional,
    "workers": workers,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.chaos", description="Long runs with faults.")
    parser.add_argument("run", choices=[*RUNS, "once"], help="what to do")
    parser.add_argument("--seed", type=int, default=1, help="of what happens by chance (default: 1)")
    parser.add_argument("--times", type=int, default=200, help="how often to break something (default: 200)")
    parser.add_argument("--runs", type=int, default=30, help="of once: how many (default: 30)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of once: in each run (default: 1000000)")
    chosen = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has it ignored, as in the background
        signal.signal(number, signal.default_int_handler)
    run = RUNS.get(chosen.run, partial(once, rows=chosen.rows))
    times = chosen.times if chosen.run in RUNS else chosen.runs
    print(f"chaos {chosen.run}: seed {chosen.seed}, {times} times", flush=True)
    began = time.monotonic()
    rows = [tuple(str(cell) for cell in row) for row in run(chosen.seed, times)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"all promises kept, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
