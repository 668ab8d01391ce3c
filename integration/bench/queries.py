"""The measurements that go through Spark: our source and sink, and the same with nothing behind them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from integration.bench import peer
from integration.bench.measure import Cost, Result, Side, Trial, interleaved
from integration.bench.shapes import Shape, rows_to_write
from integration.bench.spark import MicroBatch, Read, read_rows, write_rows
from integration.bench.topics import Topics

_TRANSPORT = "bench_transport"
_ENDS = "bench_ends"
_SUBSCRIPTIONS = "bench-source"
_WARM_UP = 4  # the part of the messages that is moved before anything is timed: one over this


@dataclass(frozen=True, slots=True)
class Queries:
    """Runs queries on one Spark and one broker; files go into ``folder``."""

    spark: SparkSession
    topics: Topics
    folder: Path

    def warm_spark(self, shape: Shape) -> None:
        """Let Spark's and the broker's JVM compile what is on the way: at first they run at a third."""
        for _ in range(3):
            self._read_transport(shape, 1, shape.reads)
            self._write_transport(shape, 1, shape.writes)
            self.write_topic(shape, 1, shape.writes)

    def read(self, shape: Shape, partitions: int, repeat: int) -> Result:
        """Our source, the repeated batch and pulsar-client's reader, over one topic."""
        with self.topics.filled(shape, partitions, shape.reads) as topic:
            url, fewer = self.topics.service_url, shape.client_reads
            columns = {"metadataColumns": ""} if shape.value_only else {}
            trials = [
                # A stream takes all that is there, so the warm-up does too.
                Trial(
                    Side.OURS,
                    shape.reads,
                    lambda count: self.read_topic(topic, count, **columns),
                    shape.reads,
                ),
                Trial(
                    Side.TRANSPORT,
                    shape.reads,
                    lambda count: self._read_transport(shape, partitions, count),
                    shape.reads // _WARM_UP,
                ),
                Trial(
                    Side.ENDS,
                    shape.reads,
                    lambda count: self._read_ends(topic, shape, partitions, count),
                    shape.reads,
                ),
                Trial(
                    Side.CLIENT, fewer, lambda count: peer.read(url, topic, shape, count), fewer // _WARM_UP
                ),
            ]
            return interleaved("read", shape, partitions, trials, repeat)

    def write(self, shape: Shape, partitions: int, repeat: int) -> Result:
        """Our sink, the sink that drops and pulsar-client's producer, each time to a new topic."""
        count, fewer = shape.writes, shape.client_writes

        def with_client(messages: int) -> Cost:
            with self.topics.empty(partitions) as topic:
                return peer.write(self.topics.service_url, topic, shape, messages)

        trials = [
            Trial(Side.OURS, count, lambda n: self.write_topic(shape, partitions, n), count // _WARM_UP),
            Trial(
                Side.TRANSPORT,
                count,
                lambda n: self._write_transport(shape, partitions, n),
                count // _WARM_UP,
            ),
            Trial(Side.ENDS, count, lambda n: self._write_ends(shape, partitions, n), count // _WARM_UP),
            Trial(Side.CLIENT, fewer, with_client, fewer // _WARM_UP),
        ]
        return interleaved("write", shape, partitions, trials, repeat)

    def read_topic(self, topic: str, messages: int, **more: str) -> Cost:
        """Read a whole topic of ``messages`` messages through our source."""
        return self._read_ours(topic, messages, **more).cost

    def read_batches(self, topic: str, messages: int, **more: str) -> list[MicroBatch]:
        """The same; returns each micro-batch."""
        return self._read_ours(topic, messages, **more).batches

    def _read_ours(self, topic: str, messages: int, **more: str) -> Read:
        options = {
            "service.url": self.topics.service_url,
            "topic": topic,
            "startingOffsets": "earliest",
            "subscriptionPrefix": _SUBSCRIPTIONS,
            "retainSubscription": "false",
        }
        return read_rows(self.spark, "pulsar", options | more, messages, self.folder)

    def _read_transport(self, shape: Shape, partitions: int, count: int) -> Cost:
        return self._read_made(_TRANSPORT, shape, partitions, count)

    def _read_ends(self, topic: str, shape: Shape, partitions: int, count: int) -> Cost:
        more = {"service.url": self.topics.service_url, "topic": topic}
        return self._read_made(_ENDS, shape, partitions, count, **more)

    def _read_made(self, source: str, shape: Shape, partitions: int, count: int, **more: str) -> Cost:
        options = {"shape": shape.name, "rows": str(count), "partitions": str(partitions), **more}
        return read_rows(self.spark, source, options, count, self.folder).cost

    def write_topic(self, shape: Shape, partitions: int, count: int) -> Cost:
        """Write a new topic through our sink."""
        with self.topics.empty(partitions) as topic:
            options = {
                "service.url": self.topics.service_url,
                "topic": topic,
                "pulsar.producer.batchingEnabled": str(shape.batching),
                "pulsar.producer.compressionType": "LZ4" if shape.lz4 else "NONE",
            }
            rows = rows_to_write(self.spark, shape, count, partitions)
            return write_rows(rows, "pulsar", options)

    def _write_transport(self, shape: Shape, partitions: int, count: int) -> Cost:
        return write_rows(rows_to_write(self.spark, shape, count, partitions), _TRANSPORT, {})

    def _write_ends(self, shape: Shape, partitions: int, count: int) -> Cost:
        with self.topics.empty(partitions) as topic:
            options = {"service.url": self.topics.service_url, "topic": topic, "shape": shape.name}
            return write_rows(rows_to_write(self.spark, shape, count, partitions), _ENDS, options)
