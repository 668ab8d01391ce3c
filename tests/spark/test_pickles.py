"""What Spark sends between driver and executors, for each task or each micro-batch, is small."""

import pickle

import pytest
from pyspark.cloudpickle import dumps
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import BinaryType, StructType

from pulsar_spark.client import Range
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.data_source import PulsarDataSource
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA
from pulsar_spark.spark.sink.report import TaskReport

LARGEST = 2048  # bytes

# Long names, as users have them, and more options than they give.
TOPIC = "persistent://a-tenant-of-some-length/a-namespace-of-some-length/a-topic-of-some-length-and-more"
SOURCE = {
    "service.url": "pulsar://broker-1.pulsar.example.com:6650,broker-2.pulsar.example.com:6650",
    "topic": TOPIC,
    "startingOffsets": "earliest",
    "pollTimeoutMs": "5m",
    "readCompacted": "true",
    "minPartitions": "64",
    "subscriptionPrefix": "a-team-of-some-length",
    "failOnDataLoss": "false",
}
SINK = {
    "service.url": SOURCE["service.url"],
    "topic": TOPIC,
    "pulsar.producer.compressionType": "ZSTD",
    "pulsar.producer.batchingMaxMessages": "5000",
    "pulsar.producer.maxPendingMessages": "50000",
    "pulsar.producer.sendTimeoutMs": "1m",
}
ROWS = StructType().add("value", BinaryType()).add("__key", BinaryType())
LAST = MessageId(2**62, 2**31, batch_index=999)


def source(options):
    return PulsarDataSource(CaseInsensitiveDict(options))


MESSAGES = {
    "stream reader": lambda: source(SOURCE).streamReader(schema=SOURCE_SCHEMA),
    "reader": lambda: source(SOURCE).reader(schema=SOURCE_SCHEMA),
    "stream writer": lambda: source(SINK).streamWriter(ROWS, overwrite=False),
    "partition": lambda: InputPartition((Range(TopicName.parse(f"{TOPIC}-partition-4095"), LAST, LAST),)),
    "commit message": lambda: TaskReport(
        {TOPIC: [("4095", 10**12, 10**12, 0, *2 * (LAST.ledger, LAST.entry, LAST.batch_index))]}
    ),
}


@pytest.mark.parametrize("make", MESSAGES.values(), ids=MESSAGES.keys())
def test_it_is_small(make):
    # Spark takes either, and its own takes more.
    sizes = [len(pickle.dumps(make())), len(dumps(make()))]
    assert max(sizes) < LARGEST, sizes
