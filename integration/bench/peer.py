"""``pulsar-client`` alone: the package from PyPI over Pulsar's C++ client, used as fast as it allows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar

from integration.bench import shapes
from integration.bench.measure import Cost, Stopwatch
from integration.bench.shapes import Shape

_POOL = 10_000  # messages made before the clock starts, and sent over and over


@contextmanager
def connected(service_url: str) -> Iterator[pulsar.Client]:
    """A client that logs errors only."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


@contextmanager
def idle_subscriber(service_url: str, topic: str) -> Iterator[None]:
    """Keep a durable subscription attached to the topic's beginning, that takes nothing."""
    with connected(service_url) as client:
        client.subscribe(
            topic, "idle", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=1
        )
        yield


def read(service_url: str, topic: str, shape: Shape, count: int) -> Cost:
    """What it takes from opening a reader to all that the shape has of the ``count``-th message."""
    with connected(service_url) as client:
        watch = Stopwatch()
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        read_next = reader.read_next
        for _ in range(count):
            message = read_next()
            message.data()
            if not shape.value_only:
                message.partition_key()
            if shape.properties:
                message.properties()
            if shape.event_time:
                message.event_timestamp()
        cost = watch.cost()
        reader.close()
    return cost


def write(service_url: str, topic: str, shape: Shape, count: int) -> Cost:
    """What it takes from the first ``send_async`` without a callback to the end of ``flush``."""
    rows = range(min(_POOL, count))
    pool = [(shapes.value(shape, row), shapes.key(row), _more(shape, row)) for row in rows]
    with connected(service_url) as client:
        producer = _producer(client, topic, shape)
        send = producer.send_async
        watch = Stopwatch()
        left = count
        while left:
            for value, key, more in pool[:left]:
                send(value, None, partition_key=key, **more)
            left -= min(left, len(pool))
        producer.flush()
        cost = watch.cost()
        producer.close()
    return cost


def _more(shape: Shape, row: int) -> dict[str, Any]:
    """The arguments that ``send_async`` takes for a message besides its value and key."""
    more: dict[str, Any] = {}
    if shape.properties:
        more["properties"] = shapes.properties(row)
    if shape.event_time:
        more["event_timestamp"] = shapes.event_time(row)
    return more


def _producer(client: pulsar.Client, topic: str, shape: Shape) -> pulsar.Producer:
    """A producer with the settings that our sink has by default."""
    options = shapes.producer_options(shape)
    return client.create_producer(
        topic,
        producer_name=f"bench-{uuid.uuid4()}",
        compression_type=pulsar.CompressionType.LZ4 if shape.lz4 else pulsar.CompressionType.NONE,
        max_pending_messages=options.max_pending_messages,
        max_pending_messages_across_partitions=options.max_pending_messages_across_partitions,
        block_if_queue_full=True,
        batching_enabled=shape.batching,
        batching_max_messages=options.batching_max_messages,
        batching_max_allowed_size_in_bytes=options.batching_max_bytes,
        batching_max_publish_delay_ms=round(options.batching_max_publish_delay * 1000),
    )
