"""Which partitions rows go to, on the real broker."""

from collections import defaultdict

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from integration.chaos.messages import columns_of, numbered
from integration.fixtures.spark import await_rows
from integration.helpers.clients import open_writer
from pulsar_spark.client import ProducerOptions, TopicWriter
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.routing import HashingScheme, RoutingMode, TaskPlace, partitions_for_keys


def placed(peer, topic):
    """The values in each partition that has any, in order."""
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for record in peer.read_all(topic):
        found[record.partition].append(record.value)
    return dict(found)


def values(numbers):
    return [record.value for record in numbered(numbers.stop, first=0)][numbers.start :: numbers.step]


def test_by_place_each_attempt_sends_each_row_to_the_same_place(client, admin, peer, topic):
    admin.create_partitioned_topic(topic, 3)
    options = ProducerOptions(batching_max_messages=4)
    for cuts in ([20], [1, 7, 3, 9], [5] * 4):
        with TopicWriter(client, TopicName.parse(topic), options, place=TaskPlace(0, 4)) as writer:
            first = 0
            for count in cuts:
                writer.send(columns_of(numbered(count, first=first)))
                writer.flush()
                first += count
    everything = values(range(20))
    assert placed(peer, topic) == {
        0: everything[8:12] * 3,
        1: (everything[0:4] + everything[12:16]) * 3,
        2: (everything[4:8] + everything[16:20]) * 3,
    }


def test_one_of_them_takes_what_has_no_key(client, admin, peer, topic):
    admin.create_partitioned_topic(topic, 4)
    with open_writer(
        client,
        topic,
        routing_mode=RoutingMode.SINGLE,
        hashing_scheme=HashingScheme.MURMUR3_32,
        batching=False,
    ) as writer:
        writer.send(columns_of([*numbered(30), *numbered(30, first=30, keys=7)]))
        writer.flush()
    found = placed(peer, topic)
    assert sum(set(values(range(30))) <= set(each) for each in found.values()) == 1
    keys = pa.array([b"key-%d" % (number % 7) for number in range(30, 60)], pa.binary())
    for number, partition in enumerate(partitions_for_keys(keys, 4, HashingScheme.MURMUR3_32), 30):
        assert b"%d " % number in found[partition]


def test_partitions_that_are_added_are_written_to(client, admin, peer, topic):
    admin.create_partitioned_topic(topic, 1)
    name, rows = TopicName.parse(topic), columns_of(numbered(60, keys=20))
    with (
        TopicWriter(client, name, ProducerOptions(), look_again=0.0) as looking,
        TopicWriter(client, name, ProducerOptions(), look_again=None) as fixed,
    ):
        looking.send(rows)
        admin.grow_partitioned_topic(topic, 4)
        fixed.send(rows)
        fixed.flush()
        looking.send(rows)
        looking.flush()
    found = placed(peer, topic)
    expected: dict[int, list[bytes | None]] = defaultdict(list)
    for value, partition in zip(rows.value.to_pylist(), partitions_for_keys(rows.key, 4), strict=True):
        expected[partition].append(value)
    assert {number: found[number] for number in (1, 2, 3)} == {
        number: expected[number] for number in (1, 2, 3)
    }
    assert sorted(found[0]) == sorted(rows.value.to_pylist() * 2 + expected[0])


@pytest.mark.long
def test_small_micro_batches_without_keys_reach_all_partitions_alike(
    pulsar_in_spark, admin, peer, topic, checkpoint
):
    partitions, batches, each = 8, 50, 200
    admin.create_partitioned_topic(topic, partitions)
    source = pulsar_in_spark.spark.readStream.format("rate-micro-batch")
    ticks = source.options(rowsPerBatch=each, numPartitions=1, startTimestamp=0).load()
    rows = ticks.where(f.col("value") < batches * each).select(f.col("value").cast("string"))
    query = pulsar_in_spark.write_stream(rows, checkpoint, topic).start()
    try:
        await_rows(query, lambda: (query.lastProgress or {}).get("batchId", -1) >= batches - 1)
    finally:
        query.stop()
    found = placed(peer, topic)
    written = [value for number in range(partitions) for value in found[number]]
    assert sorted(written) == sorted(b"%d" % number for number in range(batches * each))
    mean = batches * each / partitions
    counts = [len(found[number]) for number in range(partitions)]
    assert all(0.8 * mean <= count <= 1.2 * mean for count in counts), counts


def test_what_a_row_and_a_users_router_say(pulsar_in_spark, admin, peer, topic):
    admin.create_partitioned_topic(topic, 3)
    rows = [("k1", "a", None), (None, "b", None), ("k1", "c", 0), ("k2", "d", None), ("k3", "e", 1)]
    frame = pulsar_in_spark.rows(rows, "__key string, value string, __partition int")
    custom = {
        "pulsar.producer.messageRoutingMode": "CustomPartition",
        "pulsar.producer.messageRouter": "integration.helpers.users_code.by_last_digit",
    }
    pulsar_in_spark.write(frame, topic, **custom)
    assert placed(peer, topic) == {0: [b"c"], 1: [b"a", b"e"], 2: [b"b", b"d"]}
    missing = {**custom, "pulsar.producer.messageRouter": "integration.helpers.users_code.missing"}
    with pytest.raises(PySparkException, match=r"\[PULSAR_OPTION\] option messageRouter is integration"):
        pulsar_in_spark.write(frame, topic, **missing)
