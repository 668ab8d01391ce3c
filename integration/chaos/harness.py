"""Shared by runs with faults: drivers that can be killed, a producer, the rows in a sink, refused entries."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pulsar

from integration.broker import Admin
from integration.helpers.background import again_and_again
from integration.helpers.local_spark import ROOT
from integration.helpers.peer import Peer, Record
from integration.helpers.processes import below


@contextmanager
def refusing(admin: Admin, topics: Sequence[str], size: int) -> Iterator[None]:
    """Let the broker refuse entries of more than ``size`` bytes, and store smaller later ones."""
    try:
        for topic in topics:
            admin.set_max_message_size(topic, size)
        yield
    finally:
        for topic in topics:
            admin.set_max_message_size(topic, None)


def batches(folder: Path) -> list[Path]:
    """What the sink holds, a file for each micro-batch, in order."""
    return sorted((folder / "out").glob("*.json"), key=lambda file: int(file.stem))


def rows_by_topic(folder: Path) -> dict[str, list[int]]:
    """What the sink holds: the numbers of each topic partition, in the order of the micro-batches."""
    numbers: dict[str, list[int]] = {}
    for file in batches(folder):
        for topic, number in json.loads(file.read_text()):
            numbers.setdefault(topic, []).append(number)
    return numbers


def assert_read_once(service_url: str, topic: str, folder: Path) -> int:
    """Check that the sink holds what the C++ client reads, each partition in order; returns the messages."""
    sink, stored = rows_by_topic(folder), defaultdict[str, list[int]](list)
    with Peer(service_url) as peer:
        for record in peer.read_all(topic):
            assert record.value is not None
            stored[f"{topic}-partition-{record.partition}"].append(int(record.value))
    for part, numbers in stored.items():
        found = sink.get(part, [])
        missing, doubled = Counter(numbers) - Counter(found), Counter(found) - Counter(numbers)
        assert not missing, f"{part}: {missing.total()} missing, such as {min(missing)}"
        assert not doubled, f"{part}: {doubled.total()} doubled, such as {min(doubled)}"
        assert numbers == found, f"{part}: not in order"
    return sum(map(len, stored.values()))


@dataclass
class Produced:
    """How many numbers a producer has written."""

    written: int = 0


@contextmanager
def producing(service_url: str, topic: str) -> Iterator[Produced]:
    """Let a producer write ascending numbers.

    Where the broker does not take them, it writes them again: some may be stored twice.
    """
    produced = Produced()

    def produce() -> None:
        numbers = range(produced.written, produced.written + 50)
        with suppress(pulsar.PulsarException, RuntimeError, TimeoutError):  # in the middle of a fault
            peer.produce(topic, [Record(b"%d" % number) for number in numbers], batch_size=20)
            produced.written += 50

    with Peer(service_url) as peer, again_and_again(produce, 0.05):
        yield produced


class Driver:
    """A Spark driver in processes of its own: Python, the JVM, and the workers.

    Args:
        log: takes what it writes to stderr, after what earlier drivers wrote.
    """

    def __init__(self, log: Path, *arguments: str, module: str = "integration.chaos.restarts") -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=errors)

    def log_tail(self) -> str:
        """The end of what it wrote to stderr."""
        return self.log[-6000:]

    @property
    def log(self) -> str:
        """All that it wrote to stderr."""
        return self._log.read_text(errors="replace")

    def kill_worker(self, chance: random.Random) -> bool:
        """Kill one of its other Python processes, if there is one."""
        workers = below(self._process.pid, b"pyspark.")
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
        return bool(workers)

    def wait_for(self, seconds: float) -> int | None:
        """Wait for its end; return its status, or None if it still runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End both at once, with no chance to tidy up."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def driver(service_url: str, folder: Path, ends: str = "for-ever", **options: str) -> Iterator[Driver]:
    """A driver of its own; ``options`` are of the source."""
    given = [f"{name}={value}" for name, value in options.items()]
    process = Driver(folder / "driver.log", service_url, str(folder), ends, *given)
    try:
        yield process
    finally:
        process.kill()
