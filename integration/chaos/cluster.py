"""A cluster's servers are killed, its bundles move, and it refuses entries, while queries copy a topic.

Each of the queries of ``DELIVERIES`` copies the topic to another one, both of several partitions; a C++
client goes on writing all the while. In the end each copy must hold what the topic holds, each key in its
order: each row once with effectively-once and transactional delivery, else at least once. No query fails but
one whose entries were refused, which is started again, and no backlog stays.

This file is also the driver of the queries: ``python -m integration.chaos.cluster SERVICE_URL TOPIC FOLDER``.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from operator import gt
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from integration.broker import Admin, AdminError
from integration.broker.pulsar_cluster import PulsarCluster
from integration.broker.waiting import HANG, wait_until
from integration.chaos.harness import Driver, refusing
from integration.chaos.messages import by_key, number_of
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.local_spark import local_spark
from integration.helpers.peer import Peer, Record

_ROWS = 300_000
_KEYS = 60
_SHARE = 2.0  # seconds in which a share of the rows is written

_MAX_SIZE = 1_000  # bytes; a single row has less
_REFUSED_SHARES = 6  # of the rows, which are written while entries are refused
_REFUSED = "PULSAR_NOT_ALLOWED"

_ONCE, _PLAIN = "public/once", "public/plain"  # the first deduplicates

# Where a copy is, and the options of its sink.
DELIVERIES: dict[str, tuple[str, dict[str, str]]] = {
    "at-least-once": (_PLAIN, {}),
    "effectively-once": (_ONCE, {}),
    "transactional": (_PLAIN, {"delivery": "transactional"}),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a fault happens.

    Attributes:
        number: how many faults came before it.
        go_on: lets more rows be written.
    """

    brokers: PulsarCluster
    chance: random.Random
    number: int
    go_on: Callable[[], None]


# A fault is over when the cluster is whole again.
Fault = Callable[[Scene], None]


def cluster(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Break something ``times`` times while 300,000 rows are copied; the rows of the chaos table."""
    faults = list(itertools.islice(itertools.cycle(FAULTS), times))
    with tempfile.TemporaryDirectory() as folder, PulsarCluster() as brokers:
        began = time.monotonic()
        doubled = copy(brokers, Path(folder), faults, random.Random(seed), rows=_ROWS, partitions=6)
        seconds = time.monotonic() - began
    yield "what", "times", "rows", "missing", "doubled", "seconds"
    for name, count in Counter(map(_name, faults)).items():
        yield name, count, "", "", "", ""
    for delivery, count in doubled.items():
        yield delivery, "", f"{_ROWS:,}", 0, count, f"{seconds:.0f}"


def copy(
    brokers: PulsarCluster,
    folder: Path,
    faults: Sequence[Fault],
    chance: random.Random,
    *,
    rows: int,
    partitions: int,
) -> dict[str, int]:
    """Copy a topic by all three queries, and let each of the faults happen meanwhile.

    Args:
        brokers: of which this makes the namespaces.
        folder: for checkpoints and the driver's log.
        faults: what happens, in this order.
        rows: that are written, equal shares of them before and during each fault, and after all.

    Returns:
        How many rows are in a copy more than once, for each of ``DELIVERIES``.

    Raises:
        AssertionError: a promise is not kept, or a query failed.
    """
    source = f"persistent://{_ONCE}/source"
    _prepare(brokers, source, partitions)
    arguments = (brokers.service_url, source, str(folder))
    driver = Driver(folder / "driver.log", *arguments, module=__spec__.name)
    try:
        shares = 2 * len(faults) + _REFUSED_SHARES * faults.count(entries_refused) + 1
        with _producing(brokers.service_url, source, rows, shares) as go_on:
            for number, fault in enumerate(faults):
                written = _batches(folder)
                go_on()
                # None of the queries begins to work only after all faults.
                _await(driver, lambda before=written: all(map(gt, _batches(folder), before)))
                go_on()
                time.sleep(chance.uniform(0.0, _SHARE))
                print(f"{number + 1}: {_name(fault)}", flush=True)
                fault(Scene(brokers, chance, number, go_on))
            go_on()
        _await(driver, lambda: not any(_backlogs(brokers, source)))
        (folder / "stop").touch()
        assert driver.wait_for(HANG) == 0, driver.log_tail()
    finally:
        driver.kill()
    is_refused = (folder / _REFUSED).exists()
    assert is_refused or entries_refused not in faults, "no query had an entry refused"
    return _compare(brokers, source, rows, is_refused=is_refused)


def run_driver(service_url: str, source: str, folder: Path) -> None:
    """Run the queries until there is FOLDER/stop; raises the error of one that fails."""
    spark = local_spark(folder, "cluster", {"spark.log.level": "OFF"}, cores="2,4")
    pulsar = PulsarInSpark(spark, service_url)
    writers: list[DataStreamWriter] = []
    queries: list[StreamingQuery] = []
    while not (folder / "stop").exists():
        # One after the other: each starts Python, for which Spark waits 15 s, however busy the machine is.
        if len(queries) < len(DELIVERIES) and all(query.lastProgress for query in queries):
            delivery = list(DELIVERIES)[len(queries)]
            messages = pulsar.stream(source).select("value", "__key")
            options = DELIVERIES[delivery][1]
            writer = pulsar.write_stream(messages, folder / delivery, _copy_of(delivery), **options)
            writers.append(writer)
            queries.append(writer.start())
        for number, query in enumerate(queries):
            error = query.exception()
            if error is not None and _REFUSED not in str(error):
                raise error
            if error is not None:
                (folder / _REFUSED).touch()
                queries[number] = writers[number].start()
        time.sleep(0.2)
    for query in queries:
        query.stop()
    spark.stop()


def _prepare(brokers: PulsarCluster, source: str, partitions: int) -> None:
    """Make the namespaces and the topics; all data stay."""
    admin = brokers.admin
    for namespace in (_ONCE, _PLAIN):
        admin.create_namespace(namespace)
        admin.set_retention(namespace, minutes=-1, megabytes=-1)
    admin.set_deduplication(_ONCE, True)
    for topic in (source, *map(_copy_of, DELIVERIES)):
        admin.create_partitioned_topic(topic, partitions)


def _copy_of(delivery: str) -> str:
    return f"persistent://{DELIVERIES[delivery][0]}/{delivery}"


@contextmanager
def _producing(service_url: str, topic: str, rows: int, shares: int) -> Iterator[Callable[[], None]]:
    """Write numbers, and give what lets the next share of them be written; at the end all are."""
    allowed = threading.Semaphore(0)
    at_end = threading.Event()
    bounds = [rows * share // shares for share in range(shares + 1)]

    def numbers() -> Iterator[Record]:
        for first, last in itertools.pairwise(bounds):
            allowed.acquire()
            for number in range(first, last):
                if number % 100 == 0:
                    at_end.wait(_SHARE * 100 / (last - first))
                yield Record(b"%d " % number, key=f"key-{number % _KEYS}")

    def run() -> None:
        with Peer(service_url) as peer:
            # It never gives up what the broker has not taken.
            peer.produce(topic, numbers(), batch_size=100, send_timeout_millis=0)

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(run)
        try:
            yield allowed.release
        finally:
            at_end.set()
            allowed.release(shares)
        written.result()


def _name(fault: Fault) -> str:
    return fault.__name__.replace("_", " ")


def _batches(folder: Path) -> list[int]:
    """How many micro-batches each query has written."""
    return [len(list((folder / delivery / "commits").glob("[0-9]*"))) for delivery in DELIVERIES]


def _backlogs(brokers: PulsarCluster, topic: str) -> list[int]:
    """The backlog of each query's subscription, summed over the partitions."""
    subscriptions = brokers.admin.partitioned_stats(topic)["subscriptions"].values()
    return [each["msgBacklog"] for each in subscriptions if each["durable"]]


def _await(driver: Driver, condition: Callable[..., bool]) -> None:
    """Wait for a condition while the queries run."""

    def is_over() -> bool:
        assert driver.wait_for(0) is None, f"a query failed: {driver.log_tail()}"
        with suppress(AdminError, OSError):  # a topic is about to be loaded elsewhere
            return condition()
        return False

    wait_until(is_over, timeout=5 * HANG, interval=0.5)


def _compare(brokers: PulsarCluster, source: str, rows: int, *, is_refused: bool) -> dict[str, int]:
    """Compare the copies with the source; gives how many rows each has more than once.

    A row that was refused comes after later ones, except in a transaction, which is aborted as a whole.
    """
    doubled = {}
    with Peer(brokers.service_url) as peer:
        stored = peer.read_all(source)
        assert sorted(map(number_of, stored)) == list(range(rows)), "the source is not what was written"
        wanted = by_key(stored)
        for delivery in DELIVERIES:
            found = by_key(peer.read_all(_copy_of(delivery)))
            doubled[delivery] = sum(map(len, found.values())) - rows
            if delivery == "at-least-once":
                found = {key: list(dict.fromkeys(values)) for key, values in found.items()}
            assert found.keys() == wanted.keys(), delivery
            for key, values in wanted.items():
                missing = Counter(values) - Counter(found[key])
                assert not missing, f"{delivery}, {key}: {missing.total()} missing, such as {min(missing)!r}"
                surplus = Counter(found[key]) - Counter(values)
                assert not surplus, f"{delivery}, {key}: {surplus.total()} doubled, such as {min(surplus)!r}"
                is_ordered = found[key] == values or (is_refused and delivery != "transactional")
                assert is_ordered, f"{delivery}, {key}: not in order"
    return doubled


def broker_killed(scene: Scene) -> None:
    """Kill one broker after the other; each comes back after some seconds."""
    broker = scene.brokers.brokers[scene.number % len(scene.brokers.brokers)]
    broker.kill()
    time.sleep(scene.chance.uniform(0.0, 5.0))
    broker.start()


def bookie_killed(scene: Scene) -> None:
    """Kill one bookie; it comes back after some seconds."""
    bookie = scene.brokers.bookies[scene.number % len(scene.brokers.bookies)]
    bookie.kill()
    time.sleep(scene.chance.uniform(2.0, 5.0))
    bookie.start()


def bundle_moved(scene: Scene) -> None:
    """Move all bundles to one broker."""
    admin = scene.brokers.admin
    destination = scene.brokers.brokers[scene.number % len(scene.brokers.brokers)].name
    for namespace in (_ONCE, _PLAIN):
        for bundle in admin.bundles(namespace):
            _request(partial(admin.unload_bundle, namespace, bundle, destination))


def bundle_split(scene: Scene) -> None:
    """Split a bundle of each namespace that has topics, and unload both halves."""
    admin = scene.brokers.admin
    for namespace in (_ONCE, _PLAIN):
        topic = scene.chance.choice(admin.topics(namespace))
        _request(partial(_split, admin, namespace, topic))


def _split(admin: Admin, namespace: str, topic: str) -> None:
    admin.split_bundle(namespace, admin.bundle_of(topic))


def topic_unloaded(scene: Scene) -> None:
    """Unload the partitions of the source and of the copies."""
    admin = scene.brokers.admin
    for topic in (f"persistent://{_ONCE}/source", *map(_copy_of, DELIVERIES)):
        _request(partial(admin.unload, topic))


def entries_refused(scene: Scene) -> None:
    """Refuse batches of all copies, and store smaller ones, for some seconds, while rows are written."""
    with refusing(scene.brokers.admin, [_copy_of(delivery) for delivery in DELIVERIES], _MAX_SIZE):
        for _ in range(_REFUSED_SHARES):  # brokers hear of a policy after some seconds
            time.sleep(2 * _SHARE)
            scene.go_on()


def _request(request: Callable[[], None]) -> None:
    """Ask until a broker has done it: while an owner is gone it is refused."""

    def is_done() -> bool:
        with suppress(AdminError):
            request()
            return True
        return False

    wait_until(is_done, interval=0.5)


FAULTS: tuple[Fault, ...] = (
    *(broker_killed, broker_killed, bookie_killed, bundle_moved, bundle_split, broker_killed),
    *(topic_unloaded, bookie_killed, bundle_moved, broker_killed, entries_refused),
)

if __name__ == "__main__":
    run_driver(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
