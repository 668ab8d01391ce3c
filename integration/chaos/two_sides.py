"""Producers write to two clusters, whose copies lag by up to a minute, while a query moves between them.

The query is killed at random moments. A move that is refused, because copies are missing yet, is tried again.
In the end no row may be missing. A row may be read again only if it is of the cluster to which the query has
moved: on its first visit one that was published within the margin before the last copy, on its return one
that it had not read in this cluster before.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from integration.broker.two_clusters import TwoClusters
from integration.broker.waiting import wait_until
from integration.chaos.clusters import query
from integration.chaos.four_producers import PRODUCERS, FourProducers, StoredRow, stored_rows
from integration.chaos.harness import batches

_LAG = 50.0  # seconds that a link stands still; copies arrive within some seconds after that
_MARGIN = 60.0  # publishTimeMargin's default
_SLACK = 15.0  # seconds from a row's publish time until the query has read it
_FIRST_STAY = _LAG + _MARGIN + 2 * _SLACK
_STAY = 40.0
_ROWS = 1_000_000  # of each producer; it is stopped before
_PAUSE = 0.4
_REFUSED = re.compile(r"\[PULSAR_(OTHER_CLUSTER|DATA_LOSS)\]")
_TOLD = re.compile(r"the query (moves|returns) from cluster")
_OTHER = {"a": "b", "b": "a"}


class _Move(NamedTuple):
    """A move to a cluster.

    Attributes:
        batch: first micro-batch there.
        since: earliest publish time of repeated rows on a first visit, in ms; None on a return.
        seconds: time at which the query had left the other cluster, in seconds since 1970.
    """

    cluster: str
    batch: int
    since: float | None
    seconds: float


def two_sides(seed: int, times: int) -> Iterable[tuple[object, ...]]:
    """Move one query ``times`` times; the rows of the chaos table."""
    yield "moves", "refused first", "rows", "missing", "read again", "earliest, s before the move", "seconds"
    began, chance = time.monotonic(), random.Random(seed)
    with TwoClusters() as pair, tempfile.TemporaryDirectory() as name:
        namespace = pair.create_namespace("sides", deduplicationEnabled=True)
        topic = f"persistent://{namespace}/t"
        pair.create_topic(topic, partitions=4)
        writing = [
            FourProducers(pair.broker(each).service_url, topic, _ROWS, first, each, _PAUSE)
            for each, first in (("a", 0), ("b", _ROWS * PRODUCERS))
        ]
        run = _Run(pair, topic, Path(name), chance)
        wait_until(lambda: len(run.stored()) >= 2 * (PRODUCERS - 1))
        with _Lag(pair, chance):
            for each in writing:
                each.go_on.set()
            for number in range(times + 1):
                run.stay(_FIRST_STAY if number == 0 else chance.uniform(5.0, _STAY))
            for each in writing:
                each.ends.set()
        for each in writing:
            each.join(60.0)
        for cluster in "ab":
            pair.await_replicated(cluster, topic)
        run.finish()
        missing, again, earliest = run.judged()
        seconds = round(time.monotonic() - began)
        yield len(run.moves), run.refused, len(run.stored()), missing, again, earliest, seconds


class _Lag:
    """Lets each link stand still most of the time."""

    def __init__(self, pair: TwoClusters, chance: random.Random) -> None:
        self._pair, self._ended = pair, threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(each, random.Random(chance.random()))) for each in "ab"
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str, chance: random.Random) -> None:
        while not self._ended.is_set():
            with self._pair.cut(name):
                self._ended.wait(chance.uniform(0.0, _LAG))
            self._ended.wait(chance.uniform(1.0, 5.0))


class _Run:
    """The query.

    Attributes:
        moves: those that the log has told, in order.
        refused: starts that were refused.
    """

    def __init__(self, pair: TwoClusters, topic: str, folder: Path, chance: random.Random) -> None:
        self._pair, self._topic, self._folder, self._chance = pair, topic, folder, chance
        self._cluster, self._left_at = "b", dict[str, float]()
        self.moves: list[_Move] = []
        self.refused = 0

    def stored(self) -> Mapping[int, StoredRow]:
        """The rows of cluster a."""
        return stored_rows(self._pair.a.service_url, self._topic)

    def stay(self, seconds: float) -> None:
        """Move to the other cluster, read there for some seconds once the query reads, and kill it."""
        before, self._cluster = self._cluster, _OTHER[self._cluster]
        is_first = not batches(self._folder)
        until = time.monotonic() + 300.0
        while not self._reads(self._cluster, is_first, seconds):
            self.refused += 1
            assert time.monotonic() < until, self._log()[-6000:]
            time.sleep(2.0)
        self._left_at[self._cluster] = time.time()
        assert is_first or before in self._left_at

    def _reads(self, cluster: str, is_first: bool, seconds: float) -> bool:
        """Whether the query has moved; then it has read for some seconds."""
        told, written = len(_TOLD.findall(self._log())), len(batches(self._folder))
        options: dict[str, Any] = self._chance.choice(
            ({}, {"maxMessagesPerTrigger": "3000"}, {"minPartitions": "6"})
        )
        url = self._pair.broker(cluster).service_url
        with query(url, self._topic, self._folder, "stream", **options) as process:

            def has_moved() -> bool:
                is_there = is_first or len(_TOLD.findall(self._log())) > told
                return is_there and len(batches(self._folder)) > written

            wait_until(lambda: process.wait_for(0) is not None or has_moved())
            if not is_first and len(_TOLD.findall(self._log())) > told:
                left = self._left_at[_OTHER[cluster]]
                since = None if cluster in self._left_at else 1000 * (left - _LAG - _MARGIN - _SLACK)
                self.moves.append(_Move(cluster, max(written - 1, 0), since, left))
            status = process.wait_for(0 if process.wait_for(0) is not None else seconds)
            if status is None:
                return True
            assert _REFUSED.search(process.log_tail()), process.log_tail()
            return False

    def finish(self) -> None:
        """Read all that is left."""
        url = self._pair.broker(self._cluster).service_url
        with query(url, self._topic, self._folder, "until-idle") as process:
            assert process.wait_for(300.0) == 0, process.log_tail()

    def judged(self) -> tuple[int, int, float]:
        """Rows that are missing, and those read again: how many, and the earliest one's age at its move."""
        stored = self.stored()
        found: dict[int, list[int]] = defaultdict(list)
        newest: dict[str, int] = {}
        for path in batches(self._folder):
            for key, number in json.loads(path.read_text()):
                if number not in found:
                    assert number > newest.get(key, -1), (key, number, newest[key])
                    newest[key] = number
                found[number].append(int(path.stem))
        missing = stored.keys() - found.keys()
        assert not missing, (len(missing), [stored[each] for each in sorted(missing)[:20]], self.moves)
        again, earliest = 0, 0.0
        for number, files in found.items():
            for file in files[1:]:
                move = self._allows(number, files, file, stored[number].publish_time)
                assert move, (number, files, stored[number], self.moves, self._log()[-6000:])
                again += 1
                earliest = max(earliest, move.seconds - stored[number].publish_time / 1000)
        return len(missing), again, round(earliest, 1)

    def _allows(self, number: int, files: list[int], file: int, time_ms: int) -> _Move | None:
        """The move after which a row may be read again in a micro-batch; None if there is none."""
        origin = "b" if number >= _ROWS * PRODUCERS else "a"
        ends = [each.batch for each in self.moves] + [sys.maxsize]
        stays = [("a", 0, ends[0])] + [
            (each.cluster, each.batch, ends[at + 1]) for at, each in enumerate(self.moves)
        ]
        # The micro-batch at a move may have been planned before it, or after it.
        for move in [each for each in self.moves if each.batch <= file][-2:]:
            if move.cluster != origin:
                continue
            if move.since is not None and time_ms >= move.since:
                return move
            here = [stay for stay in stays if stay[0] == origin and stay[1] < move.batch]
            if move.since is None and not any(begin < each < end for _, begin, end in here for each in files):
                return move
        return None

    def _log(self) -> str:
        log = self._folder / "driver.log"
        return log.read_text(errors="replace") if log.exists() else ""
