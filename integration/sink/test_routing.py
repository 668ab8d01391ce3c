"""Which partitions rows go to, on the real broker."""

from collections import defaultdict

import pytest
from pyspark.errors import PySparkException

from integration.chaos.messages import columns_of, numbered
from pulsar_spark.client import ProducerOptions, TopicWriter
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.routing import partitions_for_keys


def placed(peer, topic):
    """The values in each partition that has any, in order."""
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for record in peer.read_all(topic):
        found[record.partition].append(record.value)
    return dict(found)


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
