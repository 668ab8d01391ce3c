"""Takes the picture of the live page, monitoring.png, with queries that are made up: python docs/img/page.py.

It needs Chromium, and the project on the Python path.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from pathlib import Path

from integration.helpers.chromium import find_chromium, screenshot
from integration.helpers.made_up_progress import progress
from pulsar_spark import PulsarProgressListener

_PICTURE = Path(__file__).with_name("monitoring.png")
_BATCHES = 120


def fill(listener: PulsarProgressListener, now_ms: int) -> None:
    """Two queries: one that catches up after a stop, and one that keeps up."""
    chance = random.Random(7)
    behind = 1_900_000.0
    for batch in range(_BATCHES):
        end_ms = now_ms - (_BATCHES - 1 - batch) * 5000
        wave = 1 + 0.12 * math.sin(batch / 9) + chance.uniform(-0.06, 0.06)
        waiting = [round(behind * share) for share in (0.4, 0.25, 0.2, 0.15)]
        rows = round(min(behind, 182_000 * wave))
        seconds = 1.1 + 3.1 * rows / 200_000 + chance.uniform(-0.15, 0.15)
        behind = max(4_000.0, behind - rows) + 165_000 * (1 if batch < 60 else 0.82) * chance.uniform(
            0.93, 1.0
        )
        listener.onQueryProgress(
            progress(
                "orders-by-shop",
                "persistent://public/default/orders",
                1200 + batch,
                waiting=waiting,
                rows=rows,
                seconds=seconds,
                end_ms=end_ms - 900,
            )
        )
        clicks = round(21_000 * (1 + 0.25 * math.sin(batch / 14)) * chance.uniform(0.9, 1.1))
        listener.onQueryProgress(
            progress(
                "clicks-to-lake",
                "persistent://public/default/clicks",
                88_000 + batch,
                waiting=[clicks // 2, clicks - clicks // 2],
                rows=clicks,
                seconds=0.55 + clicks / 60_000,
                end_ms=end_ms - 300,
                data_losses=1 if batch > 90 else 0,
            )
        )


def main() -> int:
    """Take the picture."""
    program = find_chromium()
    listener = PulsarProgressListener()
    fill(listener, time.time_ns() // 1_000_000)
    url = listener.serve()
    try:
        with tempfile.TemporaryDirectory() as profile:
            screenshot(program, url, Path(profile), _PICTURE, width=1240, height=820)
    finally:
        listener.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
