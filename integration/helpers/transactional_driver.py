"""A driver that writes files of numbers with `delivery=transactional`, and can be stopped in a commit.

``python -m integration.helpers.transactional_driver SERVICE_URL TOPIC FOLDER PARTITIONS``

Each file of FOLDER/in is a micro-batch. The rows are spread over PARTITIONS Spark tasks in an order that is
another one each time. Where FOLDER/fail exists, each task fails once, when it has given half of its rows.
Where FOLDER/stop exists, the driver stops in the middle of a commit: when it has committed as many
transactions as the file says, it makes FOLDER/stopped and waits to be killed.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from integration.chaos.harness import Driver
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.local_spark import local_spark
from integration.helpers.peer import Peer
from pulsar_spark.client import Deadline, Transactions
from pulsar_spark.ids import TxnId
from pulsar_spark.spark.data_source import PulsarDataSource

_FOLDER = "PULSAR_SPARK_TEST_FOLDER"


def write_files(folder: Path, files: int, rows: int) -> None:
    """Write ascending numbers into files, in the order in which Spark will take them."""
    (folder / "in").mkdir()
    for number in range(files):
        path = folder / "in" / f"{number:04}.txt"
        path.write_text("".join(f"{row}\n" for row in range(number * rows, (number + 1) * rows)))
        os.utime(path, (number, number))


@contextmanager
def writing(service_url: str, topic: str, folder: Path, partitions: int) -> Iterator[Driver]:
    """Start this driver; it is killed at the end."""
    process = Driver(
        folder / "driver.log",
        *(service_url, topic, str(folder), str(partitions)),
        module="integration.helpers.transactional_driver",
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


# What follows runs in the driver.


class StoppingDataSource(PulsarDataSource):
    """The data source, in whose commits a driver may stop."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        _stop_in_commits(Path(os.environ[_FOLDER]))
        return super().streamWriter(schema, overwrite)


def _stop_in_commits(folder: Path) -> None:
    """Let the transactions of this process stop; the process commits nothing else."""
    if not (folder / "stop").exists():
        return
    left = int((folder / "stop").read_text())
    lock = threading.Lock()
    commit = Transactions.commit

    def stopping(self: Transactions, transaction: TxnId, deadline: Deadline | None = None) -> None:
        nonlocal left
        with lock:  # held for ever by the one that stops
            if left == 0:
                (folder / "stopped").touch()
                threading.Event().wait()
            left -= 1
            commit(self, transaction, deadline)

    Transactions.commit = stopping  # type: ignore[method-assign]


def shuffled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give rows in an order of this attempt's own; a first attempt may fail in the middle."""
    folder = Path(os.environ[_FOLDER])
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        order = list(range(batch.num_rows))
        random.SystemRandom().shuffle(order)
        mixed = batch.take(pa.array(order))
        half = batch.num_rows // 2
        yield mixed[:half]
        if context.attemptNumber() == 0 and (folder / "fail").exists():
            raise RuntimeError("a failure that was asked for")
        yield mixed[half:]


def run_driver(service_url: str, topic: str, folder: Path, partitions: int) -> None:
    """Write all files that are not written yet."""
    os.environ[_FOLDER] = str(folder)
    spark = local_spark(folder, "transactional", {"spark.log.level": "OFF"}, cores="2,3")
    spark.dataSource.register(StoppingDataSource)
    rows = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "in"))
    spread = rows.repartition(partitions).mapInArrow(shuffled, rows.schema)
    writer = PulsarInSpark(spark, service_url).write_stream(
        spread, folder / "checkpoint", topic, delivery="transactional"
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    from integration.helpers import transactional_driver  # so that workers find its classes by their names

    transactional_driver.run_driver(
        sys.argv[1],
        sys.argv[2],
        Path(sys.argv[3]),
        int(sys.argv[4]),
    )
