"""Everything breaks in turn while a query reads a pattern of topics, and the broker's rules change under it.

A C++ producer goes on writing to a partitioned topic of short ledgers; the query has a cap, so that its
batches end anywhere. Topics of the pattern come and go. In the end the idempotent sink must hold what the C++
client reads from the partitioned topic: each message as often as it was stored, each partition in its order.
"""

from __future__ import annotations

import logging
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from integration.broker.admin import Admin, AdminError
from integration.broker.waiting import wait_until
from integration.chaos.harness import assert_read_once, batches, driver, producing
from integration.helpers.cluster import ProxiedBroker, open_proxied_broker
from integration.helpers.peer import Peer, Record
from integration.helpers.proxy import Ending

_NAMESPACE = "public/storm"
_TOPIC = f"persistent://{_NAMESPACE}/numbers"
_PARTITIONS = 3
_PARTS = [f"{_TOPIC}-partition-{number}" for number in range(_PARTITIONS)]
# Data stays in the ledgers: what the broker expires or acknowledges can still be read.
_SETTINGS = {"managedLedgerMaxEntriesPerLedger": "50", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
_OPTIONS = {
    "topicsPattern": f"{_NAMESPACE}/.*",
    "maxMessagesPerTrigger": "500",
    "failOnDataLoss": "false",  # topics of the pattern are deleted with what they hold
}
_DRIVER_KILLED = "driver killed"

# Seconds for which a limit of rates holds, and the limit, in messages a second and topic.
_THROTTLED_FOR = 5.0
_RATE = 100

_log = logging.getLogger(__name__)


def storm(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Break something ``times`` times, about once in eight seconds; the rows of the chaos table."""
    chance, began = random.Random(seed), time.monotonic()
    with open_proxied_broker(_SETTINGS) as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        admin = broker.broker.admin
        admin.create_namespace(_NAMESPACE)
        admin.set_retention(_NAMESPACE, minutes=-1, megabytes=-1)
        admin.create_partitioned_topic(_TOPIC, _PARTITIONS)
        with producing(broker.broker.service_url, _TOPIC):
            met = _break(broker, folder, chance, times)
        with driver(broker.service_url, folder, "until-idle", **_OPTIONS) as process:
            assert process.wait_for(600) == 0, f"the last run failed: {process.log_tail()}"
        messages = assert_read_once(broker.broker.service_url, _TOPIC, folder)
    yield "fault", "times", "messages", "missing or doubled", "seconds"
    for fault, count in sorted(met.items()):
        yield fault, count, "", "", ""
    yield "all", met.total(), f"{messages:,}", 0, f"{time.monotonic() - began:.1f}"


def _break(broker: ProxiedBroker, folder: Path, chance: random.Random, times: int) -> Counter[str]:
    """Let one driver run after the other, and break something now and then."""
    faults = _faults(broker, chance)
    met: Counter[str] = Counter()
    while met.total() < times:
        written = len(batches(folder))
        with driver(broker.service_url, folder, **_OPTIONS) as process:
            # A query that cannot reach its broker when it begins ends with an error, as it should.
            wait_until(lambda before=written: len(batches(folder)) > before, timeout=180)
            while met.total() < times:
                ended = process.wait_for(chance.uniform(2.0, 14.0)) is not None
                assert not ended, f"the query ended by itself: {process.log_tail()}"
                fault = chance.choice([*faults, _DRIVER_KILLED])
                met[fault] += 1
                print(f"{met.total()}: {fault}, {len(batches(folder))} batches", flush=True)
                if fault == _DRIVER_KILLED:
                    break
                try:
                    faults[fault]()
                except AdminError as error:  # such as a topic that is being unloaded already
                    _log.info("%s: %s", fault, error)
    return met


def _faults(broker: ProxiedBroker, chance: random.Random) -> dict[str, Callable[[], None]]:
    """What may happen, but for the driver's end, by name."""
    admin, url = broker.broker.admin, broker.broker.service_url

    def kill() -> None:
        broker.broker.kill()
        broker.broker.start()

    return {
        "broker killed": kill,
        "connections cut": lambda: broker.proxy.cut_all(chance.choice(list(Ending))),
        "topic unloaded": partial(admin.unload, _TOPIC),
        "messages expired": lambda: _each(partial(admin.expire_older, seconds=1)),
        "topic compacted": lambda: _each(admin.compact),
        "topics made and deleted": lambda: _churn(admin, url, chance),
        "writing throttled": lambda: _throttle(lambda rate: admin.set_publish_rate(_NAMESPACE, rate)),
        "reading throttled": lambda: _throttle(
            lambda rate: admin.set_dispatch_rate(_NAMESPACE, messages=rate)
        ),
    }


def _each(change: Callable[[str], None]) -> None:
    for part in _PARTS:
        change(part)


def _throttle(limit: Callable[[int], None]) -> None:
    """Limit messages a second for a while."""
    limit(_RATE)
    time.sleep(_THROTTLED_FOR)
    limit(-1)


def _churn(admin: Admin, url: str, chance: random.Random) -> None:
    """Make topics that the pattern matches, write to them, and delete them at a random moment."""
    names = [f"persistent://{_NAMESPACE}/churn-{chance.getrandbits(32):08x}" for _ in range(3)]
    try:
        for name in names:
            admin.create_topic(name)
            with Peer(url) as peer:
                peer.produce(name, [Record(b"%d" % number) for number in range(10)])
            time.sleep(chance.uniform(0.0, 0.5))
    finally:
        for name in names:
            if name in admin.topics(_NAMESPACE):
                admin.delete_topic(name)
