"""Typed rows through Spark, beside raw ones: the same messages in the same run, in turns.

    python3 -m integration bench typed [ROUNDS]

Reads take the value's columns only, from two partitions to noop. Writes come from ``spark.range``; raw ones
write binary values as large as Avro's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from integration.bench.spark import session, timed
from integration.bench.topics import Topics
from integration.bench.turns import in_turns, lines
from integration.broker import Jvm, StandaloneBroker
from pulsar_spark.client import Client, ClientOptions

_ROWS = 3_000_000
_PARTITIONS = 2
_ROUNDS = 5
_AVRO_SIZE = 60  # bytes of a value, about


def main(rounds: int = _ROUNDS) -> int:
    """Measure and print ratios, each of medians of the runs."""
    with ExitStack() as stack:
        broker = stack.enter_context(StandaloneBroker(jvm=Jvm(heap="1g", direct_memory="4g")))
        client = stack.enter_context(Client(ClientOptions(service_url=broker.service_url)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsar_spark_bench_")))
        spark = stack.enter_context(session(folder))
        _Bench(spark, Topics(broker.admin, client), rounds).run()
    return 0


class _Bench:
    def __init__(self, spark: SparkSession, topics: Topics, rounds: int) -> None:
        self._spark = spark
        self._topics = topics
        self._rounds = rounds

    def run(self) -> None:
        with ExitStack() as stack:
            avro, json = (stack.enter_context(self._topics.empty(_PARTITIONS)) for _ in range(2))
            self._write(_eight_columns(self._spark), avro, valueFormat="columns")
            self._write(_eight_columns(self._spark), json, valueFormat="columns", schemaType="json")
            fields = _eight_columns(self._spark).schema
            self._compare(
                "read",
                {
                    "raw": lambda: _to_noop(self._read(avro)),
                    "avro": lambda: _to_noop(self._read(avro, valueFormat="columns")),
                    "raw json": lambda: _to_noop(self._read(json)),
                    "from_json": lambda: _to_noop(
                        self._read(json)
                        .select(f.from_json(f.col("value").cast("string"), fields).alias("v"))
                        .select("v.*")
                    ),
                    "json": lambda: _to_noop(self._read(json, valueFormat="columns")),
                },
            )
        self._compare(
            "write",
            {
                "raw": lambda: self._write_anew(_binary(self._spark)),
                "avro": lambda: self._write_anew(_eight_columns(self._spark), valueFormat="columns"),
                "json": lambda: self._write_anew(
                    _eight_columns(self._spark), valueFormat="columns", schemaType="json"
                ),
            },
        )

    def _compare(self, direction: str, runs: dict[str, Callable[[], None]]) -> None:
        costs = in_turns({name: partial(timed, self._spark, run) for name, run in runs.items()}, self._rounds)
        print(f"\n{direction}: {_ROWS:,} rows, median of {self._rounds}; of raw: the median of ratios")
        print("\n".join(lines(costs, _ROWS)), flush=True)

    def _read(self, topic: str, **options: str) -> DataFrame:
        more = {"service.url": self._topics.service_url, "topic": topic, "metadataColumns": "", **options}
        return self._spark.read.format("pulsar").options(**more).load()

    def _write(self, rows: DataFrame, topic: str, **options: str) -> None:
        more = {"service.url": self._topics.service_url, "topic": topic, **options}
        rows.write.format("pulsar").options(**more).mode("append").save()

    def _write_anew(self, rows: DataFrame, **options: str) -> None:
        with self._topics.empty(_PARTITIONS) as topic:
            self._write(rows, topic, **options)


def _to_noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _eight_columns(spark: SparkSession) -> DataFrame:
    n = f.col("id")
    return spark.range(0, _ROWS, 1, _PARTITIONS).select(
        (n * 1000).alias("order"),
        f.concat(f.lit("customer-"), n % 1000).alias("customer"),
        (n / 3).alias("price"),
        (n % 5000).cast("int").alias("count"),
        (n % 2 == 0).alias("paid"),
        f.timestamp_micros(n + 1_700_000_000_000_000).alias("at"),
        f.when(n % 3 != 0, f.concat(f.lit("note "), n)).alias("note"),
        f.when(n % 4 != 0, n / 7).alias("rate"),
    )


def _binary(spark: SparkSession) -> DataFrame:
    text = f.rpad(f.col("id").cast("string"), _AVRO_SIZE, "x")
    return spark.range(0, _ROWS, 1, _PARTITIONS).select(text.cast("binary").alias("value"))
