"""All ways to take unprocessed messages from a query: every row is read, or named as lost once."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from integration.broker import StandaloneBroker
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.cluster import TEST_JVM
from integration.helpers.local_spark import SHORT_RUN, local_spark
from integration.helpers.losses import BROKER, CELLS, Cell, Here, Outcome, run_cell

_SIDE_BY_SIDE = 2


def losses(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Try the cells of integration/helpers/losses.py, or so many of them that are chosen by chance."""
    cells = CELLS if times >= len(CELLS) else random.Random(seed).sample(CELLS, times)
    yield "who, state, place", "rows missing", "told as lost", "told as perhaps lost", "verdict"
    broken = 0
    with tempfile.TemporaryDirectory() as folder, StandaloneBroker(BROKER, jvm=TEST_JVM) as broker:
        home = Path(folder)
        with _stderr_in(home / "log") as log:
            spark = local_spark(home, "losses", {"spark.log.level": "OFF"}, java=SHORT_RUN)
            try:
                here = Here(PulsarInSpark(spark, broker.service_url), broker.admin, log.read_text)
                for cell, outcome, problem in _run(here, cells, home):
                    broken += bool(problem)
                    yield _line(cell, outcome, problem)
            finally:
                spark.stop()
    assert not broken, f"{broken} of {len(cells)} cells"


def _run(here: Here, cells: list[Cell], home: Path) -> Iterator[tuple[Cell, Outcome | None, str]]:
    def run(cell: Cell) -> tuple[Outcome | None, str]:
        outcome = None
        try:
            outcome = run_cell(here, cell, home / str(cell))
            outcome.check(cell)
        except Exception as error:  # noqa: BLE001 - the other cells are run as well
            return outcome, f"{type(error).__name__}: {error}".splitlines()[0]
        return outcome, ""

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
        for cell, (outcome, problem) in zip(cells, threads.map(run, cells), strict=True):
            yield cell, outcome, problem


def _line(cell: Cell, outcome: Outcome | None, problem: str) -> tuple[object, ...]:
    if outcome is None:
        return cell, "", "", "", problem
    return (
        cell,
        len(outcome.missing),
        " ".join(outcome.lost) or "-",
        " ".join(outcome.unsure) or "-",
        problem or ("kept" if outcome.missing or not outcome.lost else "told, and nothing is lost"),
    )


@contextmanager
def _stderr_in(file: Path) -> Iterator[Path]:
    """Let what this process and Spark's write to stderr go to a file meanwhile: planners log there."""
    sys.stderr.flush()
    before = os.dup(2)
    with file.open("ab") as opened:
        os.dup2(opened.fileno(), 2)
    try:
        yield file
    finally:
        os.dup2(before, 2)
        os.close(before)
