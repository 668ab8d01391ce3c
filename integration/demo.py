"""The demonstration: purchases stream into Pulsar, Spark sums them up by window, the sums stream back.

    rate source -> [topic purchases] -> sums per shop and 5 s window -> [topic sums] -> this terminal

The terminal shows the sums of the last window, and of each query rows a second and how far it lags, live. A
live page shows the same over time. It opens in a browser, if there is a screen.

It starts a broker of its own, runs for a bounded time or until Ctrl-C, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
import webbrowser
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from integration.broker import StandaloneBroker
from integration.demo_board import Board
from integration.helpers.local_spark import local_spark
from pulsar_spark import PulsarProgressListener

SHOPS = ("Aalborg", "Bergen", "Cork", "Dresden")
TOPICS = ("purchases", "sums")


def purchases(spark: SparkSession) -> DataFrame:
    """An endless stream of purchases: a key, an event time and a JSON value each."""
    shop = f.element_at(f.array(*map(f.lit, SHOPS)), (f.col("value") % len(SHOPS) + 1).cast("int"))
    amount = f.round(f.rand() * 100, 2)
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    return ticks.select(
        shop.alias("__key"),
        f.col("timestamp").alias("__eventTime"),
        f.to_json(f.struct(shop.alias("shop"), amount.alias("amount"))).alias("value"),
    )


def sums(messages: DataFrame) -> DataFrame:
    """Sums per shop and window of 5 s; the watermark says when a window is complete."""
    purchase = f.from_json(f.col("value").cast("string"), "shop string, amount double")
    by_window = (
        messages.select(f.col("__eventTime").alias("time"), purchase.alias("purchase"))
        .withWatermark("time", "2 seconds")
        .groupBy(f.window("time", "5 seconds"), "purchase.shop")
        .agg(f.count("*").alias("purchases"), f.round(f.sum("purchase.amount"), 2).alias("total"))
    )
    result = f.struct(f.col("window.end").alias("until"), "shop", "purchases", "total")
    return by_window.select(f.col("shop").alias("__key"), f.to_json(result).alias("value"))


def start_queries(spark: SparkSession, service_url: str, state: Path, board: Board) -> list[StreamingQuery]:
    """Start the three queries, each with a checkpoint of its own under ``state``."""

    def read(topic: str) -> DataFrame:
        source = spark.readStream.format("pulsar").option("service.url", service_url)
        return source.option("topic", topic).option("startingOffsets", "earliest").load()

    def write(rows: DataFrame, topic: str) -> StreamingQuery:
        sink = rows.writeStream.format("pulsar").option("service.url", service_url).option("topic", topic)
        return sink.option("checkpointLocation", str(state / topic)).queryName(topic).start()

    def show(batch: DataFrame, number: int) -> None:
        rows = batch.select(f.col("value").cast("string").alias("value")).collect()
        board.take(row.value for row in rows)

    sums_shown = read("sums").writeStream.foreachBatch(show).queryName("screen")
    return [
        write(purchases(spark), "purchases"),
        write(sums(read("purchases")), "sums"),
        sums_shown.option("checkpointLocation", str(state / "screen")).start(),
    ]


def has_desktop() -> bool:
    """Whether a browser has a screen to open on; without one Python would start a browser for terminals."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def stop_spark(spark: SparkSession) -> None:
    """Stop Spark and wait for its JVM, which otherwise ends a moment after this process."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


def run(spark: SparkSession, service_url: str, state: Path, seconds: float, *, open_page: bool) -> int:
    """Let the stream flow for ``seconds`` or until Ctrl-C; returns how many rows were shown."""
    board, listener = Board(sys.stdout), PulsarProgressListener()
    spark.streams.addListener(listener)
    page = listener.serve()
    is_shown = open_page and has_desktop() and webbrowser.open(page)
    print(f"live page: {page}{'' if is_shown else ' (open it in a browser)'}", flush=True)
    queries = start_queries(spark, service_url, state, board)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            # Not in a call of Spark's, which would show a Ctrl-C as an error.
            time.sleep(1)
            for query in queries:
                if (error := query.exception()) is not None:
                    raise error
            board.draw((query.name, query.lastProgress) for query in queries)
    except KeyboardInterrupt:
        print("stopping", flush=True)
    spark.sparkContext.setLogLevel("OFF")  # Spark calls each task that a stop ends an error
    *writing, screen = queries
    for query in writing:
        query.stop()
    screen.processAllAvailable()  # a stop would interrupt the function of foreachBatch
    screen.stop()
    spark.streams.removeListener(listener)
    listener.close()
    return board.rows


def main() -> int:
    """Parse the arguments and run; the exit code is 0 when rows were shown or Ctrl-C came."""
    parser = argparse.ArgumentParser(prog="python3 -m integration demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long it runs (default: 60)")
    parser.add_argument("--no-browser", action="store_true", help="only print the live page's address")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it, too, would show a Ctrl-C as an error
    print("starting a Pulsar broker; the first start fetches its jars", flush=True)
    with StandaloneBroker() as broker, tempfile.TemporaryDirectory(prefix="pulsar_spark_") as folder:
        print(f"the broker is at {broker.service_url}; starting Spark", flush=True)
        # Each purchase and each sum is stored once, whatever is tried again.
        broker.admin.set_deduplication("public/default", True)
        for topic in TOPICS:
            broker.admin.create_topic(topic)
        spark = local_spark(Path(folder), "demo", {})
        try:
            print(f"sums of purchases per shop, for {arguments.seconds:g} s or until Ctrl-C:", flush=True)
            rows = run(
                spark, broker.service_url, Path(folder), arguments.seconds, open_page=not arguments.no_browser
            )
        finally:
            stop_spark(spark)
    print(f"{rows} sums were read back from Pulsar", flush=True)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
