"""Hours of small micro-batches: memory, open files and the time of a micro-batch must stay what they are.

A producer sends 200 messages a second to one topic, and a query copies them to another one. The driver of the
query is :mod:`soak_driver`, which takes the samples. In the end the copy must hold each number once, and the
median of the last quarter of the run must be that of the second.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pulsar

from integration.broker import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.chaos.harness import Driver
from integration.helpers.cluster import TEST_JVM
from integration.helpers.peer import Peer

ALLOWED = 0.05  # of the second quarter

_NAMESPACE = "public/soak"
_SOURCE, _SINK = f"persistent://{_NAMESPACE}/source", f"persistent://{_NAMESPACE}/sink"
_PARTITIONS = 4
_PROCESSES = {"driver": "driver's Python", "jvm": "JVM", "planner": "planner", "workers": "all workers"}
_TICK, _A_TICK, _KEYS = 0.1, 20, 100  # 20 messages every 0.1 s
_TOLD_EVERY = 300.0
_STARTS_WITHIN = 300.0
_ENDS_WITHIN = 300.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured.

    Attributes:
        name: with its unit.
        quarters: the median of each quarter of the run.
        is_judged: whether it has to stay as it is.
    """

    name: str
    quarters: tuple[float, ...]
    is_judged: bool

    @property
    def ratio(self) -> float:
        """Of the last quarter to the second."""
        return self.quarters[3] / self.quarters[1]

    @property
    def is_flat(self) -> bool:
        return abs(self.ratio - 1) <= ALLOWED


def soak(minutes: float, trigger: float, samples: Path) -> Iterator[tuple[object, ...]]:
    """Copy and take samples, and judge them; nothing here happens by chance. The rows of the chaos table.

    Args:
        minutes: from the first sample on.
        trigger: seconds from one micro-batch to the next.
        samples: the file that gets the samples; what it had is lost.

    Raises:
        AssertionError: the copy is not exact, or, after the rows, something has not stayed as it was.
    """
    with StandaloneBroker(jvm=TEST_JVM) as broker, tempfile.TemporaryDirectory(prefix="soak_") as name:
        broker.admin.create_namespace(_NAMESPACE)
        broker.admin.set_retention(_NAMESPACE, minutes=-1, megabytes=-1)
        for topic in (_SOURCE, _SINK):
            broker.admin.create_partitioned_topic(topic, _PARTITIONS)
        with Peer(broker.service_url) as peer:
            sent = _run(peer.client, broker.service_url, Path(name), minutes, trigger, samples)
            missing, doubled = compare((int(message.data()) for message in peer.messages(_SINK)), sent)
    print(f"{sent:,} messages sent, {missing} missing, {doubled} duplicated", flush=True)
    assert not missing, f"{missing} of {sent} messages are missing"
    assert not doubled, f"{doubled} of {sent} messages are duplicated"
    yield from judge(read_samples(samples))


def _run(
    client: pulsar.Client, service_url: str, folder: Path, minutes: float, trigger: float, samples: Path
) -> int:
    """Run the driver while messages are sent; how many there were."""
    samples.parent.mkdir(parents=True, exist_ok=True)
    samples.unlink(missing_ok=True)
    arguments = (service_url, _SOURCE, _SINK, str(folder), str(samples.absolute()), f"{trigger:g}")
    process = Driver(folder / "driver.log", *arguments, module="integration.chaos.soak_driver")
    try:
        with _sending(client) as sent:
            wait_until(lambda: process.wait_for(0.5) is not None or samples.exists(), timeout=_STARTS_WITHIN)
            began = time.monotonic()
            told = began
            while time.monotonic() < began + minutes * 60:
                ended = process.wait_for(1.0) is not None
                assert not ended, f"the driver ended by itself: {process.log_tail()}"
                if time.monotonic() > told + _TOLD_EVERY:
                    told = time.monotonic()
                    _tell(told - began, sent(), samples)
        count = sent()
        (folder / "stop.tmp").write_text(str(count))
        (folder / "stop.tmp").replace(folder / "stop")
        assert process.wait_for(_ENDS_WITHIN) == 0, f"the driver did not end: {process.log_tail()}"
    finally:
        process.kill()
    return count


def _tell(seconds: float, sent: int, samples: Path) -> None:
    """One line of progress, with the last sample."""
    last = read_samples(samples)[-1]
    print(
        f"{seconds / 60:.0f} min: {sent:,} sent, heap {last['heap']:.0f} MiB, resident {last['mib']},"
        f" files {last['files']}, {len(last['workers'])} workers",
        flush=True,
    )


@contextmanager
def _sending(client: pulsar.Client) -> Iterator[Callable[[], int]]:
    """Send ascending numbers; gives how many there are so far, and raises what the producer met."""
    stopped = threading.Event()
    count = 0
    failures: list[object] = []

    def answered(result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            failures.append(result)

    def run() -> None:
        nonlocal count
        try:
            with closing(client.create_producer(_SOURCE, batching_enabled=True)) as producer:
                while not stopped.wait(_TICK):
                    for number in range(count, count + _A_TICK):
                        producer.send_async(b"%d" % number, answered, partition_key=f"{number % _KEYS}")
                    producer.flush()
                    count += _A_TICK
        except pulsar.PulsarException as error:
            failures.append(error)

    def sent() -> int:
        assert not failures, f"the producer failed: {failures[0]}"
        return count

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield sent
    finally:
        stopped.set()
        thread.join()


def compare(numbers: Iterator[int], sent: int) -> tuple[int, int]:
    """How many of the numbers below ``sent`` are missing, and how many are there again."""
    counts = bytearray(sent)
    doubled = 0
    for number in numbers:
        doubled += counts[number]
        counts[number] = 1
    return counts.count(0), doubled


def read_samples(samples: Path) -> list[dict[str, Any]]:
    """What the driver has noted, line by line."""
    return [json.loads(line) for line in samples.read_text().splitlines()]


def judge(samples: Sequence[Mapping[str, Any]]) -> Iterator[tuple[object, ...]]:
    """The rows of the table: medians of each quarter.

    Raises:
        AssertionError: after the last row, where something has not stayed as it was.
        ValueError: a quarter has no sample with a micro-batch of both queries.
    """
    judged = figures(samples)
    yield "median of", "1st quarter", "2nd", "3rd", "4th", "4th / 2nd", f"within {ALLOWED:.0%}"
    for figure in judged:
        verdict = ("yes" if figure.is_flat else "NO") if figure.is_judged else ""
        yield figure.name, *(f"{median:,.2f}" for median in figure.quarters), f"{figure.ratio:.3f}", verdict
    changed = [figure.name for figure in judged if figure.is_judged and not figure.is_flat]
    assert not changed, f"not flat: {'; '.join(changed)}"


def figures(samples: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """What is in the table.

    Raises:
        ValueError: a quarter has no sample with a micro-batch of both queries.
    """
    parts = quarters(samples)
    if not all(any(sample[key] for sample in part) for part in parts for key in ("batches", "floor")):
        raise ValueError(f"{len(samples)} samples are too few: a quarter of the time has no micro-batch")

    def of(name: str, take: Callable[[Mapping[str, Any]], float], *, is_judged: bool = True) -> Figure:
        return Figure(name, tuple(statistics.median(map(take, part)) for part in parts), is_judged)

    def of_each(kind: str, unit: str, *, unjudged: str = "") -> Iterator[Figure]:
        for key, process in _PROCESSES.items():
            seen = [[sample[kind][key] for sample in part] for part in parts]
            yield Figure(f"{process}, {unit}", tuple(map(statistics.median, seen)), key != unjudged)

    copy, floor = (_milliseconds(parts, key, 0.5) for key in ("batches", "floor"))
    return [
        of("heap after a collection, MiB", lambda sample: sample["heap"]),
        *of_each("mib", "resident MiB", unjudged="jvm"),
        of("number of workers", lambda sample: len(sample["workers"])),
        *of_each("files", "open files"),
        Figure("micro-batch, ms", copy, is_judged=False),
        Figure("micro-batch of the floor, ms", floor, is_judged=False),
        Figure("micro-batch / floor", tuple(a / b for a, b in zip(copy, floor, strict=True)), is_judged=True),
        Figure("micro-batch, a tenth below, ms", _milliseconds(parts, "batches", 0.1), is_judged=False),
        Figure(
            "micro-batch of the floor, a tenth below, ms", _milliseconds(parts, "floor", 0.1), is_judged=False
        ),
        of("rows in 30 s", lambda sample: sum(rows for _, _, rows in sample["batches"]), is_judged=False),
    ]


def quarters(samples: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The samples of each quarter of the time."""
    parts: list[list[Mapping[str, Any]]] = [[], [], [], []]
    for sample in samples:
        # A sample tells of the time before it.
        part = math.ceil(sample["seconds"] * 4 / samples[-1]["seconds"]) - 1 if sample["seconds"] else 0
        parts[part].append(sample)
    return parts


def _milliseconds(
    parts: Sequence[Sequence[Mapping[str, Any]]], key: str, quantile: float
) -> tuple[float, ...]:
    """A quantile over all micro-batches of each quarter."""
    taken = [[took for sample in part for _, took, _ in sample[key]] for part in parts]
    return tuple(float(np.quantile(part, quantile)) for part in taken)
