"""Topic writers for tests, the rows they are given and what is stored of them."""

import pyarrow as pa

from pulsar_spark.client import TopicWriter
from pulsar_spark.ids import TopicName
from tests.client.clients import TOPIC, columns, numbered, producing

# A publish delay after which no test waits: batches close by count, bytes or flush.
LATE = 1000.0


def open_writer(client, topic=TOPIC, *, batching_max_publish_delay=LATE, **options):
    named = ("place", "look_again", "transaction", "code", "memory")
    own = {name: options.pop(name) for name in named if name in options}
    delay = batching_max_publish_delay
    return TopicWriter(client, topic, producing(batching_max_publish_delay=delay, **options), **own)


def keys(*texts):
    return pa.array([None if text is None else text.encode() for text in texts], pa.binary())


def longs(*numbers):
    return pa.array(numbers, pa.int64())


def parted(broker, count=3, name="parted"):
    broker.create(name, count)
    return TopicName.parse(name)


def stored(broker, topic, count=3):
    return [broker.topics[str(topic.of_partition(number))].values for number in range(count)]


def to_partitions(*numbers):
    return columns(numbered(len(numbers)), partition=pa.array(numbers, pa.int32()))
