"""The model of a deduplicating task's runs, played on many topics of the fake broker: each row is there once.

What may happen, and what is promised, is in ``tests.client.writing.replays``, and for rows that move between
tasks in ``tests.spark.sink.moves``. Two processes play at a time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from pulsar_spark.client.reading import backward_search
from tests.client.writing.replays import Replays
from tests.fake_broker import FakeBroker
from tests.spark.sink.moves import Moves

_TOPICS = 50  # of one broker


def replays(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Play ``times`` topics; the rows of the chaos table."""
    began = time.monotonic()
    yield "what happened", "times"
    events: Counter[str] = Counter()
    firsts = range(seed, seed + times, _TOPICS)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for found in pool.map(_play, firsts, [min(each + _TOPICS, seed + times) for each in firsts]):
            events += found
    yield from sorted(events.items())
    yield f"{times:,} topics", f"{time.monotonic() - began:.0f} s"


def _play(first: int, last: int) -> Counter[str]:
    # The fake broker stores an entry before it acknowledges it: there is nothing to wait for.
    backward_search._SETTLING = backward_search._PAUSE = 0.01
    events: Counter[str] = Counter()
    with FakeBroker(deduplicates=True) as broker:
        for seed in range(first, last):
            try:
                moved = Moves(broker, seed).play()
                moved.check()
                outcome = Replays(broker, seed).play()
                outcome.check()
            except Exception as error:
                raise AssertionError(f"topic {seed}: {error}") from error
            events += outcome.events + moved.events
            events["moved rows that were told or refused"] += bool(moved.told) or moved.is_refused
            events["strict tasks that were stopped"] += outcome.is_refused
            events["told that rows may be duplicated"] += bool(outcome.told)
    return events
