"""Our client alone, without Spark: between a topic and Arrow rows, as in a Spark task. For profiling."""

from __future__ import annotations

import uuid

from integration.bench import peer, shapes
from integration.bench.measure import Cost, Result, Side, Stopwatch, Trial, interleaved
from integration.bench.shapes import Shape
from integration.bench.topics import Topics
from pulsar_spark.client import Client, Consumer, SubscriptionOptions, TopicWriter
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.rows.read import record_batches
from tests.ranges import read_range

_BEGINNING = MessageId(-1, -1)
_WARM_UP = 4
_POOL = 20  # groups of columns made before the clock starts, and sent over and over
_POLL_TIMEOUT = 60.0


def compare_reads(topics: Topics, shape: Shape, partitions: int, repeat: int) -> Result:
    """Our reading of all partitions in turn, beside pulsar-client's reader."""
    with topics.filled(shape, partitions, shape.reads) as topic:
        fewer = shape.client_reads
        trials = [
            Trial(
                Side.OURS, shape.reads, lambda count: read(topics.client, topic, shape, count), shape.reads
            ),
            Trial(
                Side.CLIENT,
                fewer,
                lambda count: peer.read(topics.service_url, topic, shape, count),
                fewer // _WARM_UP,
            ),
        ]
        return interleaved("read", shape, partitions, trials, repeat)


def compare_writes(topics: Topics, shape: Shape, partitions: int, repeat: int) -> Result:
    """Our writer of Arrow columns, beside pulsar-client's producer."""

    def with_ours(count: int) -> Cost:
        with topics.empty(partitions) as topic:
            return write(topics.client, topic, shape, count)

    def with_client(count: int) -> Cost:
        with topics.empty(partitions) as topic:
            return peer.write(topics.service_url, topic, shape, count)

    count, fewer = shape.writes, shape.client_writes
    trials = [
        Trial(Side.OURS, count, with_ours, count // _WARM_UP),
        Trial(Side.CLIENT, fewer, with_client, fewer // _WARM_UP),
    ]
    return interleaved("write", shape, partitions, trials, repeat)


def read(client: Client, topic: str, shape: Shape, count: int) -> Cost:
    """What it takes for a topic's ``count`` messages, from lookup to Arrow rows.

    Raises:
        ValueError: it holds another number of messages.
    """
    watch = Stopwatch()
    columns = shapes.row_columns(shape)
    rows = 0
    for partition in client.partitions(TopicName.parse(topic)):
        options = SubscriptionOptions(name=f"bench-{uuid.uuid4()}", durable=False, start=_BEGINNING)
        with Consumer(client, partition, options) as consumer:
            end = consumer.last_message_id().last.whole_entry
        entries = read_range(client, partition, _BEGINNING, end, poll_timeout=_POLL_TIMEOUT)
        batches = record_batches(partition, entries, _BEGINNING, end, columns=columns)
        rows += sum(batch.num_rows for batch in batches)
    if rows != count:
        raise ValueError(f"{topic} gave {rows} rows, not {count}")
    return watch.cost()


def write(client: Client, topic: str, shape: Shape, count: int) -> Cost:
    """What it takes from the first ``send`` to the end of ``flush``."""
    pool = list(shapes.chunks(shape, min(count, _POOL * shapes.CHUNK)))
    with TopicWriter(client, TopicName.parse(topic), shapes.producer_options(shape)) as writer:
        watch = Stopwatch()
        left = count
        while left > 0:
            for columns in pool[: -(-left // shapes.CHUNK)]:
                writer.send(columns)
                left -= len(columns)
        writer.flush()
        return watch.cost()
