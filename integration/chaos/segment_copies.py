"""A query copies a scalable topic to another one by Trigger.AvailableNow while segments of both change.

Java's client of Pulsar 5 writes keys with numbers. In the end the copy has each message once, each key in
order.

This file is also the driver of the query:
``python -m integration.chaos.segment_copies SERVICE_URL ADMIN_URL FROM TO FOLDER``.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from integration.broker import StandaloneBroker
from integration.chaos.harness import Driver
from integration.chaos.segment_writes import KEYS, WARNINGS, judged, read_all
from integration.chaos.segments import SegmentChanges, java_5
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.cluster import TEST_JVM
from integration.helpers.local_spark import local_spark
from integration.helpers.versions import NEWEST_LINE
from pulsar_spark.ids import TopicName
from pulsar_spark_broker.jars import VERSION_VARIABLE

_FROM, _TO = (TopicName("topic", "public", "default", name) for name in ("written", "copied"))
# As in the run of a source.
_ROWS_PER_CHANGE, _RATE = 5_000, 2_000
# Changes of each topic for each run of the query, at least.
_COPY_EVERY = 10
_PATIENCE = 900.0


def segment_copies(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Change the segments of each topic ``times`` times; the rows of the chaos table."""
    began, rows, copies = time.monotonic(), times * _ROWS_PER_CHANGE, 0
    os.environ[VERSION_VARIABLE] = NEWEST_LINE
    yield "rows", "missing", "doubled", "out of order", "WARNINGs", "changes", "AvailableNow", "seconds"
    with StandaloneBroker(jvm=TEST_JVM) as broker, tempfile.TemporaryDirectory() as name:
        folder, urls = Path(name), (broker.service_url, broker.admin_url)
        broker.admin.set_deduplication("public/default", True)  # Java's client sends again
        broker.admin.set_retention("public/default", minutes=-1, megabytes=-1)
        changes = []
        for number, topic in enumerate((_FROM, _TO)):
            place = f"scalable/public/default/{topic.local}"
            broker.admin.request("PUT", f"{place}?numInitialSegments=2", {})
            changes.append(SegmentChanges(broker, topic.local, random.Random(2 * seed + number), times))
        with java_5("write", urls[0], str(_FROM), str(KEYS), str(rows), str(_RATE)) as writing:
            for each in changes:
                each.start()
            is_last = False
            while not is_last:
                is_over = writing.poll() is not None and not any(each.is_alive() for each in changes)
                is_last = is_over and copies >= times // _COPY_EVERY
                _copy(*urls, folder)
                copies += 1
            assert writing.returncode == 0, "Java's client has failed"
        warnings = len(WARNINGS.findall((folder / "driver.log").read_text(errors="replace")))
        found = judged(read_all(broker, _TO, folder / "read"), rows)
        done = " + ".join(str(each.done) for each in changes)
        yield f"{rows:,}", *found, warnings, done, copies, f"{time.monotonic() - began:.0f}"
        assert found == (0, 0, 0)


def _copy(service_url: str, admin_url: str, folder: Path) -> None:
    arguments = [service_url, admin_url, str(_FROM), str(_TO), str(folder)]
    driver = Driver(folder / "driver.log", *arguments, module=__spec__.name)
    try:
        assert driver.wait_for(_PATIENCE) == 0, driver.log_tail()
    finally:
        driver.kill()


def run_driver(service_url: str, admin_url: str, source: str, target: str, folder: Path) -> None:
    """Copy all rows that there are."""
    spark = local_spark(folder, "segment-copies", {"spark.log.level": "WARN"})
    pulsar = PulsarInSpark(spark, service_url)
    rows = pulsar.stream(source, **{"admin.url": admin_url}).select("__key", "value")
    writer = pulsar.write_stream(rows, folder / "checkpoint", target)
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    url, admin, origin, copy, home = sys.argv[1:]
    run_driver(url, admin, origin, copy, Path(home))
