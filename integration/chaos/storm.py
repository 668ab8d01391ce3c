"""Everything breaks in turn while a query reads: brokers and drivers die, links are cut, topics unloaded.

A C++ producer goes on writing to a partitioned topic of short ledgers; the query has a cap, so that its
batches end anywhere. In the end the idempotent sink must hold what the C++ client reads from the topic: each
message as often as it was stored, each partition in its order.
"""

from __future__ import annotations

import logging
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar

from integration.broker.admin import AdminError
from integration.broker.waiting import wait_until
from integration.chaos.restarts import batches, driver, rows_by_topic
from integration.cluster import ProxiedBroker, open_proxied_broker
from integration.peer import Peer, Record
from integration.proxy import Ending

_TOPIC = "persistent://public/default/storm"
_PARTITIONS = 3
_SETTINGS = {"managedLedgerMaxEntriesPerLedger": "50", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
_FAULTS = ("broker killed", "connections cut", "topic unloaded", "driver killed")
_CAP = "500"

_log = logging.getLogger(__name__)


def storm(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Break something ``times`` times, about once in eight seconds; the rows of the chaos table."""
    chance, began = random.Random(seed), time.monotonic()
    with open_proxied_broker(_SETTINGS) as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker.broker.admin.create_partitioned_topic(_TOPIC, _PARTITIONS)
        for number in range(_PARTITIONS):
            broker.broker.admin.create_subscription(f"{_TOPIC}-partition-{number}", "hold")
        with _producing(broker.broker.service_url):
            met = _break(broker, folder, chance, times)
        with driver(broker.service_url, _TOPIC, folder, "until-idle") as process:
            assert process.wait_for(600) == 0, f"the last run failed: {process.log_tail()}"
        messages = _compare(broker, folder)
    yield "fault", "times", "messages", "missing or doubled", "seconds"
    for fault in _FAULTS:
        yield fault, met[fault], "", "", ""
    yield "all", met.total(), f"{messages:,}", 0, f"{time.monotonic() - began:.1f}"


def _break(broker: ProxiedBroker, folder: Path, chance: random.Random, times: int) -> Counter[str]:
    """Let one driver run after the other, and break something now and then."""
    met: Counter[str] = Counter()
    while met.total() < times:
        written = len(batches(folder))
        with driver(broker.service_url, _TOPIC, folder, maxMessagesPerTrigger=_CAP) as process:
            # A query that cannot reach its broker when it begins ends with an error, as it should.
            wait_until(lambda before=written: len(batches(folder)) > before, timeout=180)
            while met.total() < times:
                ended = process.wait_for(chance.uniform(2.0, 14.0)) is not None
                assert not ended, f"the query ended by itself: {process.log_tail()}"
                fault = chance.choice(_FAULTS)
                met[fault] += 1
                print(f"{met.total()}: {fault}, {len(batches(folder))} batches", flush=True)
                if fault == "driver killed":
                    break
                _inflict(fault, broker, chance)
    return met


def _inflict(fault: str, broker: ProxiedBroker, chance: random.Random) -> None:
    if fault == "broker killed":
        broker.broker.kill()
        broker.broker.start()
    elif fault == "connections cut":
        broker.proxy.cut_all(chance.choice(list(Ending)))
    else:
        try:
            broker.broker.admin.unload(_TOPIC)
        except AdminError as error:
            _log.info("not unloaded: %s", error)


@contextmanager
def _producing(service_url: str) -> Iterator[None]:
    """Write numbers; where the producer fails in a fault, it goes on with the next numbers."""
    stopped = threading.Event()

    def run() -> None:
        number = 0
        while not stopped.is_set():
            try:
                with Peer(service_url) as peer:
                    while not stopped.wait(0.1):
                        records = [Record(b"%d" % n, key=f"{n % 100}") for n in range(number, number + 50)]
                        number += 50
                        peer.produce(_TOPIC, records, batch_size=10)
            except (pulsar.PulsarException, RuntimeError, TimeoutError) as error:
                _log.info("the producer begins again: %s", error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _compare(broker: ProxiedBroker, folder: Path) -> int:
    """Compare the sink with the topic, partition by partition; return the number of messages."""
    sink = rows_by_topic(folder)
    stored: dict[str, list[int]] = {}
    with Peer(broker.broker.service_url) as peer:
        for record in peer.read_all(_TOPIC):
            assert record.value is not None
            stored.setdefault(f"{_TOPIC}-partition-{record.partition}", []).append(int(record.value))
    assert sink.keys() == stored.keys()
    for topic, numbers in stored.items():
        missing, doubled = Counter(numbers) - Counter(sink[topic]), Counter(sink[topic]) - Counter(numbers)
        assert not missing, f"{topic}: {missing.total()} missing, such as {min(missing)}"
        assert not doubled, f"{topic}: {doubled.total()} doubled, such as {min(doubled)}"
        assert numbers == sink[topic], f"{topic}: not in order"
    return sum(map(len, stored.values()))
