"""Run one of the long runs; to add one, put its function into RUNS.

python -m integration.chaos RUN [--seed N] [--times N]
python -m integration.chaos once [--seed N] [--runs N] [--rows N]
python -m integration.chaos silent [--seconds N]
python -m integration.chaos soak [--minutes N] [--trigger SECONDS] [--samples FILE] [--again]
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from integration.chaos.cluster import cluster
from integration.chaos.clusters import clusters
from integration.chaos.cuts import cuts
from integration.chaos.large import large
from integration.chaos.login import login
from integration.chaos.losses import losses
from integration.chaos.once import once
from integration.chaos.pauses import pauses
from integration.chaos.replays import replays
from integration.chaos.restarts import restarts
from integration.chaos.segment_copies import segment_copies
from integration.chaos.segment_writes import segment_writes
from integration.chaos.segments import segments
from integration.chaos.silent import silent
from integration.chaos.soak import judge, read_samples, soak
from integration.chaos.starts import starts
from integration.chaos.storm import storm
from integration.chaos.two_sides import two_sides
from integration.chaos.workers import workers

# A run gets its random seed and how often it is to break something. It raises AssertionError when a promise
# is not kept, and gives the lines of its table, the first of them the heading.
Run = Callable[[int, int], Iterable[tuple[object, ...]]]

RUNS: dict[str, Run] = {
    "cluster": cluster,
    "clusters": clusters,
    "cuts": cuts,
    "large": large,
    "login": login,
    "losses": losses,
    "pauses": pauses,
    "replays": replays,
    "restarts": restarts,
    "segment-copies": segment_copies,
    "segment-writes": segment_writes,
    "segments": segments,
    "starts": starts,
    "storm": storm,
    "two-sides": two_sides,
    "workers": workers,
}

_SAMPLES = Path("build/soak.jsonl")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.chaos", description="Long runs with faults.")
    parser.add_argument("run", choices=[*RUNS, "once", "silent", "soak"], help="what to do")
    parser.add_argument("--seed", type=int, default=1, help="of what happens by chance (default: 1)")
    parser.add_argument("--times", type=int, default=200, help="how often to break something (default: 200)")
    parser.add_argument("--runs", type=int, default=30, help="of once: how many (default: 30)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of once: in each run (default: 1000000)")
    parser.add_argument("--seconds", type=float, default=300, help="of silent: of each kind (default: 300)")
    parser.add_argument("--minutes", type=float, default=120, help="of soak: how long (default: 120)")
    parser.add_argument("--trigger", type=float, default=1, help="of soak: seconds (default: 1)")
    parser.add_argument(
        "--samples", type=Path, default=_SAMPLES, help=f"of soak: a file (default: {_SAMPLES})"
    )
    parser.add_argument("--again", action="store_true", help="of soak: run nothing, judge the file")
    chosen = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has it ignored, as in the background
        signal.signal(number, signal.default_int_handler)
    title, table = _start(chosen)
    print(f"chaos {chosen.run}: {title}", flush=True)
    began = time.monotonic()
    rows: list[tuple[str, ...]] = []
    try:
        rows.extend(tuple(map(str, row)) for row in table)
    finally:  # also where a promise is not kept
        _show(rows)
    print(f"all promises kept, in {time.monotonic() - began:.0f} s")
    return 0


def _start(chosen: argparse.Namespace) -> tuple[str, Iterable[tuple[object, ...]]]:
    """What runs in words, and its table."""
    if chosen.run == "soak":
        if chosen.again:
            return f"judged again from {chosen.samples}", judge(read_samples(chosen.samples))
        title = f"{chosen.minutes:g} minutes, a micro-batch every {chosen.trigger:g} s"
        return title, soak(chosen.minutes, chosen.trigger, chosen.samples)
    if chosen.run == "silent":
        return f"{chosen.seconds:g} s of each kind of request", silent(chosen.seconds)
    if chosen.run == "once":
        return f"seed {chosen.seed}, {chosen.runs} times", once(chosen.seed, chosen.runs, rows=chosen.rows)
    return f"seed {chosen.seed}, {chosen.times} times", RUNS[chosen.run](chosen.seed, chosen.times)


def _show(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
