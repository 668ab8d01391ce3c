"""Copies of a topic whose driver is killed with -9: each message is there once.

    python -m integration.deploy.killed_copies [PYTHON...]    all ways, five kills each, with each Python

Before that come all other uses of the package, in a session and in a client of Spark Connect (uses.py).

A Python is that of an environment that has the package and a Spark, by default this one; so this runs with a
Spark that the development environment does not have.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from integration.broker import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.deploy.environments import Environment
from integration.deploy.submit import Submission
from integration.deploy.ways import USES, by_connect, by_pip
from integration.helpers.cluster import TEST_JVM
from integration.helpers.peer import Peer, Record

NAMESPACE = "public/copied"

# Trigger, and options besides a name of the subscription.
WAYS = {
    "limits": ("default", "maxMessagesPerTrigger=3000"),
    "no limits": ("default",),
    "AvailableNow": ("available-now",),
    "AvailableNow, transactional": ("available-now", "sink.delivery=transactional"),
    "transactional": ("default", "maxMessagesPerTrigger=3000", "sink.delivery=transactional"),
}

SCRIPT = Path(__file__).parent / "copy_in_runs.py"
_PARTITIONS = 3
_PATIENCE = 900.0


def prepare(broker: StandaloneBroker) -> None:
    """Make the namespace, which deduplicates."""
    broker.admin.create_namespace(NAMESPACE)
    broker.admin.set_deduplication(NAMESPACE, True)


def copy_over_kills(
    environment: Environment,
    broker: StandaloneBroker,
    folder: Path,
    way: str,
    *,
    rows: int,
    kills: int,
    chance: random.Random,
) -> None:
    """Copy a topic that grows before each run; the driver is killed in each but the last one.

    Raises:
        AssertionError: a message is missing, or there twice.
    """
    topic = f"persistent://{NAMESPACE}/{folder.name}"
    broker.admin.create_partitioned_topic(topic, _PARTITIONS)
    broker.admin.create_partitioned_topic(f"{topic}-copy", _PARTITIONS)
    folder.mkdir()
    given = [broker.service_url, topic, f"{topic}-copy", str(folder), *WAYS[way]]
    given.append(f"predefinedSubscription={folder.name}")
    offsets = folder / "checkpoint" / "offsets"
    with Peer(broker.service_url) as peer:
        for run in range(kills + 1):
            numbers = range(rows * run // (kills + 1), rows * (run + 1) // (kills + 1))
            peer.produce(topic, [Record(b"%d" % n, key=f"{n % 7}") for n in numbers], batch_size=100)
            home = folder / str(run)
            home.mkdir()
            script = Path(shutil.copy(SCRIPT, home))
            batches = _count(offsets)
            with Submission(environment, home, "local[2]", script, given=given) as submission:
                if run < kills:
                    wait_until(
                        lambda before=batches, it=submission: it.is_running() and _count(offsets) > before,
                        timeout=_PATIENCE,
                        interval=0.05,
                    )
                    time.sleep(chance.uniform(0.0, 2.0))
                else:
                    (folder / "stop").touch()
                    submission.finish()
        written, found = (
            Counter(record.value for record in peer.read_all(name)) for name in (topic, f"{topic}-copy")
        )
    assert sum(written.values()) == rows
    assert found == written, f"{way}: {len(written - found)} missing, {(found - written).total()} too many"


def _count(folder: Path) -> int:
    return sum(each.name.isdigit() for each in folder.iterdir()) if folder.exists() else 0


def main(pythons: Sequence[str]) -> int:
    """Run all ways with each Python; returns the exit code."""
    seed = random.randrange(10**6)
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    with (
        StandaloneBroker({"transactionCoordinatorEnabled": "true"}, jvm=TEST_JVM) as broker,
        tempfile.TemporaryDirectory() as name,
    ):
        prepare(broker)
        for number, python in enumerate(pythons or [sys.executable]):
            environment = Environment(Path(python).parent.parent)
            for use in (by_pip, by_connect):
                home = Path(name) / f"{use.__name__}-{number}"
                home.mkdir()
                topic = f"persistent://public/default/{home.name}"
                # On Spark 4.0 a task may fail once: docs/deploying.md.
                uses = use(environment, home, "local[2,4]", broker.service_url, topic, USES)
                print(f"{python}: {use.__name__}: {', '.join(uses)}", flush=True)
            for place, way in enumerate(WAYS):
                began = time.monotonic()
                folder = Path(name) / f"copy-{number}-{place}"
                copy_over_kills(environment, broker, folder, way, rows=100_000, kills=5, chance=chance)
                print(
                    f"{python}: {way}: 100,000 rows once over 5 kills, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
