"""Workers of a standalone cluster are killed with -9 while a stream reads and writes 8 partitions.

Nothing of ours is installed there: ``spark-submit --packages`` brings it. Where the system lets us, each
worker has a network namespace of its own, and does not see the driver's files.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from integration.broker import StandaloneBroker
from integration.broker.waiting import HANG, wait_until
from integration.chaos.harness import assert_read_once, batches, producing
from integration.deploy.environments import Environment, linked
from integration.deploy.standalone import Network, StandaloneSpark, separate_network, shared_network
from integration.deploy.submit import Submission
from integration.deploy.ways import COPY_STREAM
from integration.helpers.cluster import TEST_JVM
from integration.helpers.peer import Peer
from pulsar_spark.cli import package

_TOPIC = "persistent://public/default/workers"
_COPY = f"{_TOPIC}-copy"
_PARTITIONS = 8
_WORKERS = 2


def workers(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Kill one of two workers ``times`` times; the rows of the chaos table."""
    chance, began = random.Random(seed), time.monotonic()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (home / "driver").mkdir()
        network, where = _network(stack, home / "driver")
        settings = {
            "bindAddress": "0.0.0.0",
            "advertisedAddress": network.address,
            "brokerDeduplicationEnabled": "true",
        }
        broker = stack.enter_context(StandaloneBroker(settings, jvm=TEST_JVM))
        for topic in (_TOPIC, _COPY):
            broker.admin.create_partitioned_topic(topic, _PARTITIONS)
        environment = linked(home / "environment")
        spark = stack.enter_context(StandaloneSpark(environment, home, network))
        service_url = broker.service_url.replace("127.0.0.1", network.address)
        with producing(broker.service_url, _TOPIC):
            driver = _driver(stack, environment, home / "driver", spark, service_url)
            for _ in range(times):
                _await_batches(driver, 2)
                time.sleep(chance.uniform(0.0, 3.0))
                spark.replace_worker(chance.randrange(_WORKERS))
        (driver.home / "stop").touch()
        driver.finish()
        messages = assert_read_once(broker.service_url, _TOPIC, driver.home)
        repeated = _repeated(broker.service_url)
    yield "what", "workers killed", "messages", "missing", "repeated", "seconds"
    seconds = f"{time.monotonic() - began:.1f}"
    yield f"source, {where}", times, f"{messages:,}", 0, 0, seconds
    yield f"sink, {where}", times, f"{messages:,}", 0, repeated, seconds


def _network(stack: ExitStack, hidden: Path) -> tuple[Network, str]:
    try:
        return stack.enter_context(separate_network(_WORKERS, hidden)), "namespaces"
    except (OSError, subprocess.CalledProcessError):
        return stack.enter_context(shared_network(_WORKERS)), "one loopback"


def _driver(
    stack: ExitStack, environment: Environment, home: Path, spark: StandaloneSpark, service_url: str
) -> Submission:
    """Start the user's script, in a folder that workers do not see."""
    package.build(home / "repository")
    script = Path(shutil.copy(COPY_STREAM, home))
    repository = (home / "repository").as_uri()
    arguments = ("--packages", package.coordinates(), "--repositories", repository)
    given = (service_url, _TOPIC, _COPY, str(home))
    return stack.enter_context(
        Submission(
            environment, home, spark.master_url, script, *arguments, given=given, address=spark.address
        )
    )


def _await_batches(driver: Submission, count: int) -> None:
    """Wait until so many more micro-batches are written."""
    wanted = len(batches(driver.home)) + count
    wait_until(lambda: driver.is_running() and len(batches(driver.home)) >= wanted, timeout=3 * HANG)


def _repeated(service_url: str) -> int:
    """Check that no message is missing in the copy; returns how many are there twice."""
    with Peer(service_url) as peer:
        wanted, copies = (
            Counter(record.value for record in peer.read_all(topic)) for topic in (_TOPIC, _COPY)
        )
    missing = wanted - copies
    assert not missing, f"{missing.total()} of {wanted.total()} messages are missing in the copy"
    return (copies - wanted).total()
