"""Our source and sink beside Spark's for Kafka: the same rows, Spark session and cores, in turns.

    python3 -m integration bench kafka [ROUNDS [ROWS]]

Both brokers run all the time; the one that waits takes next to no CPU. A read is a batch query that takes
key and value of a whole topic to noop. The topics were written in batches of at most 128 KiB, and the rows
that both sources read are checked. A write is a batch query to a new topic. Kafka's sink waits for all
replicas and is idempotent, as by default. Its batches have at most 16 KiB, or 128 KiB ("large"), as ours.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from integration.bench.measure import Cost
from integration.bench.peer_jar import rows_of
from integration.bench.shapes import PARTITIONS, SHAPES, rows_to_write
from integration.bench.spark import session, timed, write_rows
from integration.bench.topics import Topics
from integration.bench.turns import in_turns, lines
from integration.broker import StandaloneBroker
from integration.helpers.kafka_broker import KafkaBroker, spark_jars
from pulsar_spark.client import Client, ClientOptions

_ROUNDS = 5
_ROWS = 1_000_000
_WARM_UPS = 5  # rounds: the JVMs of Spark and of both brokers compile meanwhile
_SHAPE = SHAPES["batched"]
# A task that reads up to a topic's end waits there for a fetch that finds nothing: 500 ms by default.
_SHORT_WAIT = {"kafka.fetch.max.wait.ms": "10"}
_LARGE_BATCHES = {"kafka.batch.size": str(128 * 1024), "kafka.linger.ms": "5"}


def main(broker: StandaloneBroker, rounds: int = _ROUNDS, rows: int = _ROWS) -> int:
    """Measure and print ratios, each the median of those of the rounds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsar_spark_bench_")))
        stack.enter_context(broker)
        kafka = stack.enter_context(KafkaBroker(folder / "kafka"))
        client = stack.enter_context(Client(ClientOptions(service_url=broker.service_url)))
        spark = stack.enter_context(session(folder, {"spark.jars": spark_jars()}))
        bench = _Bench(spark, Topics(broker.admin, client), KafkaTopics(spark, kafka.servers), rows)
        directions = {"write": bench.write, "read": bench.read}
        print("warming up", flush=True)
        for compare in directions.values():
            compare(PARTITIONS[0], _WARM_UPS)
        for partitions in PARTITIONS:
            for direction, compare in directions.items():
                print(f"\n{direction}: {rows:,} rows, {_SHAPE.title}, partitions: {partitions}")
                print("\n".join(lines(compare(partitions, rounds), rows)), flush=True)
    return 0


class KafkaTopics:
    """Topics of a Kafka broker, by the client that Spark's JVM has."""

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self.options = {"kafka.bootstrap.servers": servers}
        self._jvm: Any = spark.sparkContext._jvm
        settings = self._jvm.java.util.HashMap()
        settings.put("bootstrap.servers", servers)
        self._package = self._jvm.org.apache.kafka.clients.admin
        self._admin = self._package.AdminClient.create(settings)
        self._numbers = itertools.count()

    @contextmanager
    def empty(self, partitions: int) -> Iterator[str]:
        """A new topic, which is deleted afterwards."""
        name = f"bench-{next(self._numbers)}"
        replicas = 1
        topic = self._package.NewTopic(name, partitions, replicas)
        self._admin.createTopics(self._jvm.java.util.List.of(topic)).all().get()
        try:
            yield name
        finally:
            self._admin.deleteTopics(self._jvm.java.util.List.of(name)).all().get()


class _Bench:
    def __init__(self, spark: SparkSession, pulsar: Topics, kafka: KafkaTopics, rows: int) -> None:
        self._spark = spark
        self._pulsar = pulsar
        self._kafka = kafka
        self._rows = rows

    def read(self, partitions: int, rounds: int) -> dict[str, list[Cost]]:
        """Both sources.

        Raises:
            ValueError: one of them gives other rows than were written.
        """
        made = self._made(partitions)
        with (
            self._pulsar.filled(_SHAPE, partitions, self._rows) as topic,
            self._kafka.empty(partitions) as kafka_topic,
        ):
            self._write_kafka(kafka_topic, made, **_LARGE_BATCHES)
            loads: dict[str, Callable[[], DataFrame]] = {
                "kafka": partial(self._load_kafka, kafka_topic),
                "kafka, short wait": partial(self._load_kafka, kafka_topic, **_SHORT_WAIT),
                "pulsar": partial(self._load_pulsar, topic),
            }
            expected = rows_of(made, _SHAPE)
            for name, load in loads.items():
                if (found := rows_of(load().withColumnRenamed("key", "__key"), _SHAPE)) != expected:
                    raise ValueError(f"the rows of {name} are {found}, not {expected}")
            runs = {name: partial(self._read, load) for name, load in loads.items()}
            return in_turns(runs, rounds)

    def write(self, partitions: int, rounds: int) -> dict[str, list[Cost]]:
        """Both sinks."""
        made = self._made(partitions)

        def to_kafka(**options: str) -> Cost:
            with self._kafka.empty(partitions) as topic:
                return self._write_kafka(topic, made, **options)

        def to_pulsar(**options: str) -> Cost:
            with self._pulsar.empty(partitions) as topic:
                given = {"service.url": self._pulsar.service_url, "topic": topic, **options}
                return write_rows(made, "pulsar", given)

        runs: dict[str, Callable[[], Cost]] = {
            "kafka": to_kafka,
            "kafka, large batches": partial(to_kafka, **_LARGE_BATCHES),
            "pulsar": to_pulsar,
            "pulsar, at-least-once": partial(to_pulsar, delivery="at-least-once"),
        }
        return in_turns(runs, rounds)

    def _made(self, partitions: int) -> DataFrame:
        return rows_to_write(self._spark, _SHAPE, self._rows, partitions)

    def _write_kafka(self, topic: str, made: DataFrame, **options: str) -> Cost:
        rows = made.withColumnRenamed("__key", "key")
        return write_rows(rows, "kafka", {**self._kafka.options, "topic": topic, **options})

    def _load_kafka(self, topic: str, **options: str) -> DataFrame:
        reader = self._spark.read.format("kafka").options(**self._kafka.options, **options)
        return reader.option("subscribe", topic).load().select("key", "value")

    def _load_pulsar(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("pulsar").option("service.url", self._pulsar.service_url)
        # Spark tells no Python source which columns a query uses.
        return reader.option("topic", topic).option("metadataColumns", "__key").load()

    def _read(self, load: Callable[[], DataFrame]) -> Cost:
        return timed(self._spark, lambda: load().write.format("noop").mode("append").save())
