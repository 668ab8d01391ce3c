"""A Spark driver with Spark's usual log level whose queries fail, and that counts what a user gets to see.

``python -m integration.helpers.errors_driver FOLDER < OPTIONS`` writes what each failure raises into FOLDER,
and a line ``=== NAME`` into its output before each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from integration.broker.waiting import HANG
from integration.helpers.local_spark import SHORT_RUN, local_spark

MARK = "=== "


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What the driver is given.

    Attributes:
        good: options of a source or sink that may do everything.
        wrong: the same with a wrong token.
    """

    good: dict[str, str] = field(repr=False)
    wrong: dict[str, str] = field(repr=False)
    topic: str

    def dump(self) -> str:
        """As this driver reads it."""
        return json.dumps(asdict(self))


# By the name of each failure, the code of its error.
FAILURES = {
    "batch-read": "PULSAR_AUTH",
    "stream-read": "PULSAR_AUTH",
    "batch-write": "PULSAR_TOPIC_NOT_FOUND",
    "stream-write": "PULSAR_TOPIC_NOT_FOUND",
    "data-loss": "PULSAR_DATA_LOSS",
}


class _Failures:
    """Each method fails; they are called by the names above."""

    def __init__(self, spark: SparkSession, login: Login, folder: Path) -> None:
        self._spark = spark
        self._login = login
        self._folder = folder

    def run(self) -> None:
        for name in FAILURES:
            fail: Callable[[], object] = getattr(self, f"_{name.replace('-', '_')}")
            sys.stderr.write(f"{MARK}{name}\n")
            sys.stderr.flush()
            try:
                fail()
            except PySparkException as error:
                (self._folder / name).write_text(str(error))
        sys.stderr.write(f"{MARK}end\n")

    def _batch_read(self) -> object:
        reader = self._spark.read.format("pulsar").options(**self._login.wrong, topic=self._login.topic)
        return reader.load().collect()

    def _stream_read(self) -> object:
        return self._stream("stream-read", self._login.wrong, topic=self._login.topic)

    def _batch_write(self) -> object:
        writer = self._rows.write.format("pulsar").options(**self._login.good, topic="nobody/nowhere/t")
        return writer.mode("append").save()

    def _stream_write(self) -> object:
        source = self._spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
        sink = source.writeStream.format("pulsar").options(**self._login.good, topic="nobody/nowhere/t")
        query = sink.option("checkpointLocation", str(self._folder / "checkpoint-write")).start()
        return query.awaitTermination(int(HANG))

    def _data_loss(self) -> object:
        """A checkpoint names a topic of the pattern that does not exist."""
        options = {"topicsPattern": f"{self._login.topic}.*", "startingOffsets": "earliest"}
        self._stream("data-loss", self._login.good, **options)
        offsets = max((self._folder / "checkpoint-data-loss" / "offsets").glob("[0-9]*"))
        *head, text = offsets.read_text().split("\n")
        offset = json.loads(text)
        offset["topics"][f"{self._login.topic}-gone"] = {"-1": "3:4"}
        offsets.write_text("\n".join([*head, json.dumps(offset)]))
        offsets.with_name(f".{offsets.name}.crc").unlink()
        return self._stream("data-loss", self._login.good, **options)

    def _stream(self, name: str, login: dict[str, str], **options: str) -> object:
        source = self._spark.readStream.format("pulsar").options(**login, **options).load()
        sink = source.writeStream.format("noop")
        sink = sink.option("checkpointLocation", str(self._folder / f"checkpoint-{name}"))
        query = sink.trigger(availableNow=True).start()
        return query.awaitTermination(int(HANG))

    @property
    def _rows(self) -> DataFrame:
        return self._spark.range(20).selectExpr("cast(id as string) as value").coalesce(1)


if __name__ == "__main__":
    given, place = Login(**json.load(sys.stdin)), Path(sys.argv[1])
    session = local_spark(place / "spark", "errors", {"spark.log.level": "WARN"}, java=SHORT_RUN)
    _Failures(session, given, place).run()
    session.stop()
