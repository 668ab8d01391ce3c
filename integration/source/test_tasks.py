"""Several topic partitions for one task: the same rows, each partition's in order, the same when replayed."""

from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from integration.fixtures.spark import Collector, drain
from integration.helpers.peer import Record

PARTITIONS, EACH = 40, 5
LONG, LONGER = 3, 700  # this partition has so many messages, too many to share a task


def value(partition, number):
    return b"%d/%d" % (partition, number)


@pytest.fixture
def filled(peer, admin, topic):
    """A topic of many partitions with few messages each, but for one; the broker keeps what was read."""
    admin.create_partitioned_topic(topic, PARTITIONS)
    admin.create_subscription(topic, "hold")
    for partition in range(PARTITIONS):
        count = LONGER if partition == LONG else EACH
        records = [Record(value(partition, number)) for number in range(count)]
        peer.produce(f"{topic}-partition-{partition}", records)
    return topic


def with_tasks(rows):
    return rows.select("value", "__topic", "__messageId", f.spark_partition_id().alias("task"))


def assert_all_rows(rows, topic):
    """Each message once, and those of a partition in its order, under its name."""
    found: dict[str, list[bytes]] = {}
    for row in rows:
        found.setdefault(row["__topic"], []).append(bytes(row.value))
    assert found == {
        f"{topic}-partition-{partition}": [
            value(partition, number) for number in range(LONGER if partition == LONG else EACH)
        ]
        for partition in range(PARTITIONS)
    }


def ranges_by_task(rows):
    """How many partitions each task has read."""
    return Counter(task for task, _ in {(row.task, row["__topic"]) for row in rows})


def test_a_batch_read_of_many_small_partitions(pulsar_in_spark, filled):
    rows = with_tasks(pulsar_in_spark.read(filled)).collect()
    assert_all_rows(rows, filled)
    counts = ranges_by_task(rows)
    assert 16 <= len(counts) <= 20
    assert counts.total() == PARTITIONS, "no partition is divided"
    assert {counts[row.task] for row in rows if row["__topic"].endswith(f"-{LONG}")} == {1}
    alone = with_tasks(pulsar_in_spark.read(filled, minPartitions=str(PARTITIONS))).collect()
    assert ranges_by_task(alone) == Counter(range(PARTITIONS))
    assert sorted(row[:3] for row in alone) == sorted(row[:3] for row in rows)


@pytest.mark.long
def test_a_stream_of_many_small_partitions_is_replayed_in_the_same_tasks(
    pulsar_in_spark, peer, filled, checkpoint
):
    rows = with_tasks(pulsar_in_spark.stream(filled))
    sink = Collector(fail_at={0})
    with pytest.raises(StreamingQueryException, match="InjectedError"):
        drain(rows, sink, checkpoint)
    sink.fail_at.clear()
    for partition in range(PARTITIONS):  # of the next micro-batch, whatever the first one's replay does
        peer.produce(f"{filled}-partition-{partition}", [Record(b"later")])
    drain(rows, sink, checkpoint)
    first, again = sink.batches[0]
    assert first == again
    assert len(ranges_by_task(first)) <= 20
    assert_all_rows(first, filled)
    assert Counter(bytes(row.value) for row in sink.batches[1][0]) == {b"later": PARTITIONS}
    assert len(ranges_by_task(sink.batches[1][0])) <= 20


def test_a_worker_does_not_look_at_its_modules_for_garbage(pulsar_in_spark, peer, topic):
    rows = pulsar_in_spark.rows([("a",)], "value string")
    pulsar_in_spark.write(
        rows, topic, **{"pulsar.producer.interceptors": "integration.helpers.users_code.ExemptObjects"}
    )
    (record,) = peer.read_all(topic)
    assert int(record.value) > 10_000
