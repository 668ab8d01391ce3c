"""How many requests a micro-batch with one row costs, by a broker that counts them."""

from collections import Counter

import pytest
from pyspark.sql import functions as f

from integration.fixtures.spark import PulsarInSpark, await_rows
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.fake_broker import FakeBroker
from tests.fake_clients import Type

TOPIC = TopicName.parse("persistent://public/default/parted")
PARTITIONS = 100
MICRO_BATCHES = 4
# What a broker answers for a connection, and entries.
UNCOUNTED = {Type.CONNECT, Type.PING, Type.PONG, Type.SEND}

# Options, requests of a micro-batch at most.
CASES = {
    "at-least-once": ({"delivery": "at-least-once"}, 5),  # a process asks once a minute for the schema
    "the default": ({}, 10),
    "effectively-once": ({"delivery": "effectively-once"}, 10),
    # Usually 21: 4 for the rows, 4 of the task, 13 of the driver (tests/spark/sink/test_commit_requests.py).
    "transactional": ({"delivery": "transactional"}, 23),
}


@pytest.mark.parametrize(("options", "expected"), CASES.values(), ids=CASES)
def test_one_row_opens_the_producer_of_its_partition_only(spark, checkpoint, options, expected):
    """The first micro-batch of a run may be a replay, and opens all; the driver looks for other tasks."""
    has_transactions = options.get("delivery") == "transactional"
    with FakeBroker(deduplicates=not has_transactions, has_transactions=has_transactions) as broker:
        broker.create(TOPIC, PARTITIONS)
        here = PulsarInSpark(spark, broker.url)
        rows = here.ticks(1, 1).select(f.col("value").cast("string").alias("value"))
        query = here.write_stream(rows, checkpoint, str(TOPIC), **options).start()
        await_rows(query, lambda: stored(broker) >= MICRO_BATCHES)
        query.stop()
        counts = by_micro_batch(broker)
    dear = [each for each in counts[2 - MICRO_BATCHES :] if sum(each.values()) > expected]
    assert dear == []


def stored(broker):
    return sum(len(broker.topics[str(TOPIC.of_partition(number))].values) for number in range(PARTITIONS))


def by_micro_batch(broker):
    """The requests of each micro-batch that has ended: it begins with a look for the topic's partitions."""
    counts: list[Counter[str]] = []
    for each in list(broker.commands):
        kind = each.command.type
        if kind == Type.PARTITIONED_METADATA and f'"{TOPIC}"' in str(each.command):
            counts.append(Counter())
        if counts and kind not in UNCOUNTED:
            counts[-1][pb.BaseCommand.Type.Name(kind)] += 1
    return counts[:-1]
