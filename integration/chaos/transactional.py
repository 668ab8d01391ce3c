"""Something breaks while rows are written with `delivery=transactional`: each comes once.

A run writes a million rows from files, one a micro-batch, in 4 Spark partitions and an order that is another
one at each attempt, to 3 topic partitions. The driver, one of Spark's Python workers or the broker is killed
with -9, or the broker refuses entries for some seconds. The query begins again from its checkpoint until it
comes to its end, each time with another number of Spark partitions. In the end the C++ client must read each
row exactly once.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.broker import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.chaos.harness import REFUSALS, Driver, refusing
from integration.helpers.cluster import TEST_JVM
from integration.helpers.peer import Peer
from integration.helpers.transactions import SETTINGS

_NAMESPACE = "public/default"
_FILES = 10
_ROWS = 100_000  # of each file
_FAULTS = ("driver", "worker", "broker", REFUSALS)
_MAX_SIZE = 5_000  # bytes; a full batch has more
_REFUSING_SECONDS = 30.0  # or until the query has failed; brokers hear of a policy after some seconds
_STARTS = 8


def transactional(seed: int, times: int) -> Iterable[tuple[object, ...]]:
    """Let a fault happen in each of ``times`` runs; the rows of the chaos table."""
    chance = random.Random(seed)
    runs: Counter[str] = Counter()
    started: Counter[str] = Counter()
    began = time.monotonic()
    with StandaloneBroker(SETTINGS, jvm=TEST_JVM) as broker:
        broker.admin.set_deduplication(_NAMESPACE, True)
        for number in range(times):
            fault = _FAULTS[number % len(_FAULTS)]
            topic = f"persistent://{_NAMESPACE}/transactional-{number}"
            with tempfile.TemporaryDirectory() as folder:
                starts = _run(broker, topic, Path(folder), fault, chance)
            runs[fault] += 1
            started[fault] += starts
            print(f"{number + 1}: {fault}, {starts} starts", flush=True)
    yield "fault", "runs", "starts of the query", "rows", "missing or doubled", "seconds"
    for fault in _FAULTS:
        yield fault, runs[fault], started[fault], f"{runs[fault] * _FILES * _ROWS:,}", 0, ""
    yield "all", times, started.total(), f"{times * _FILES * _ROWS:,}", 0, f"{time.monotonic() - began:.1f}"


def _run(broker: StandaloneBroker, topic: str, folder: Path, fault: str, chance: random.Random) -> int:
    """One run with one fault; returns how often the query was started."""
    broker.admin.create_held_topic(topic, 3)
    write_files(folder, _FILES, _ROWS)
    with writing(broker.service_url, topic, folder, 4) as process:
        wait_until((folder / "checkpoint" / "offsets" / "0").exists)
        ended = process.wait_for(chance.uniform(0.0, 15.0)) is not None
        _break(fault, broker, topic, process, chance)
        is_done = ended or (fault != "driver" and process.wait_for(300) == 0)
    starts = 1
    while not is_done:
        assert starts < _STARTS, f"the query does not come to its end: {process.log_tail()}"
        with writing(broker.service_url, topic, folder, 4 + starts % 3 - 1) as process:
            is_done = process.wait_for(300) == 0
        starts += 1
    assert_once(broker.service_url, topic, _FILES * _ROWS)
    return starts


def _break(fault: str, broker: StandaloneBroker, topic: str, process: Driver, chance: random.Random) -> None:
    if fault == REFUSALS:
        with refusing(broker.admin, [topic], _MAX_SIZE):
            process.wait_for(_REFUSING_SECONDS)
    elif fault == "broker":
        broker.kill()
        broker.start()
    elif fault == "worker":
        process.kill_worker(chance)
    else:
        process.kill()


def write_files(folder: Path, files: int, rows: int) -> None:
    """Write ascending numbers into files, in the order in which Spark will take them."""
    (folder / "in").mkdir()
    for number in range(files):
        path = folder / "in" / f"{number:04}.txt"
        path.write_text("".join(f"{row}\n" for row in range(number * rows, (number + 1) * rows)))
        os.utime(path, (number, number))


@contextmanager
def writing(service_url: str, topic: str, folder: Path, partitions: int, **options: str) -> Iterator[Driver]:
    """A driver that writes the files; see ``transactional_driver``."""
    given = [f"{name}={value}" for name, value in options.items()]
    process = Driver(
        folder / "driver.log",
        *(service_url, topic, str(folder), str(partitions), *given),
        module="integration.chaos.transactional_driver",
    )
    try:
        yield process
    finally:
        process.kill()


def assert_once(service_url: str, topic: str, rows: int) -> None:
    """Let the C++ client read the numbers from 0 to ``rows`` - 1, each once."""
    with Peer(service_url) as peer:
        read = Counter(int(record.value) for record in peer.read_all(topic) if record.value is not None)
    missing, doubled = set(range(rows)) - read.keys(), [row for row, count in read.items() if count > 1]
    assert not missing, f"{len(missing)} of {rows} are missing, such as {min(missing)}"
    assert not doubled, f"{len(doubled)} of {rows} are doubled, such as {min(doubled)}"
    assert len(read) == rows, "there are rows that nobody wrote"
