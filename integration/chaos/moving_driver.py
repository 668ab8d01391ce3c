"""A driver that copies a topic with ``delivery=effectively-once``, and can stop before Spark notes the rows.

``python -m integration.chaos.moving_driver SERVICE_URL SOURCE TOPIC FOLDER RANGES TASKS [OPTION=VALUE...]``

The rows come from RANGES ranges of a partition and go to TASKS Spark tasks; 0: to those of the ranges. Where
FOLDER/stop exists, the driver makes FOLDER/stopped when a micro-batch is written, and waits to be killed.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from integration.fixtures.spark import PulsarInSpark
from integration.helpers.local_spark import local_spark
from pulsar_spark.spark.data_source import PulsarDataSource
from pulsar_spark.spark.sink.report import TopicPartitionMetrics

_FOLDER = "PULSAR_SPARK_TEST_FOLDER"


def stop(batch: int | None, figures: Sequence[TopicPartitionMetrics]) -> None:
    """An `onBatchWritten`: Spark notes nothing before it ends."""
    folder = Path(os.environ[_FOLDER])
    if (folder / "stop").exists():
        (folder / "stopped").touch()
        threading.Event().wait()


def run_driver(
    service_url: str, source: str, topic: str, folder: Path, ranges: str, tasks: int, options: dict[str, str]
) -> None:
    """Write all rows that are not written yet."""
    os.environ[_FOLDER] = str(folder)
    spark = local_spark(folder, "moving", {"spark.log.level": "WARN"})
    spark.dataSource.register(PulsarDataSource)
    given = {"service.url": service_url, "topic": source, "minPartitions": ranges}
    stream = spark.readStream.format("pulsar").options(startingOffsets="earliest", **given)
    rows = stream.load().select("value")
    writer = PulsarInSpark(spark, service_url).write_stream(
        rows.repartition(tasks) if tasks else rows,
        folder / "checkpoint",
        topic,
        delivery="effectively-once",
        onBatchWritten="integration.chaos.moving_driver.stop",
        **options,
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    run_driver(
        sys.argv[1],
        sys.argv[2],
        sys.argv[3],
        Path(sys.argv[4]),
        sys.argv[5],
        int(sys.argv[6]),
        dict(option.split("=", 1) for option in sys.argv[7:]),
    )
