"""Keys of rows on the real broker: Key_Shared consumers, batches of one key, keys as bytes, plain copies."""

import base64
import random
from collections import defaultdict
from contextlib import ExitStack, closing

import pulsar
import pyarrow as pa
import pytest

from integration.broker.waiting import wait_until
from integration.helpers.clients import entries_of, open_writer
from integration.helpers.java_peer import produce_in_java, read_in_java
from integration.helpers.java_values import JavaValues, write_values
from pulsar_spark.client import BatcherBuilder, MessageColumns

ROWS, KEYS = 10_000, 200
KEY_BASED = {"pulsar.producer.batcherBuilder": "KEY_BASED"}


class Receiver:
    """A Key_Shared consumer of the C++ client; it keeps what it gets."""

    def __init__(self, peer, topic, name):
        self.received: dict[str, list[int]] = defaultdict(list)
        self.count = 0
        self.consumer: pulsar.Consumer = peer.client.subscribe(
            topic,
            "shared",
            consumer_name=name,
            consumer_type=pulsar.ConsumerType.KeyShared,
            message_listener=self._take,
        )

    def _take(self, consumer, message):
        self.received[message.ordering_key() or message.partition_key()].append(int(message.data()))
        self.count += 1
        consumer.acknowledge(message)


@pytest.mark.parametrize("partitions", [1, 3])
def test_each_key_goes_to_one_consumer_in_its_order(pulsar_in_spark, admin, peer, topic, partitions):
    """Rows of a quarter of the keys have ordering keys, which say where they go."""
    admin.create_partitioned_topic(topic, partitions)
    draw = random.Random(13)
    expected: dict[str, list[int]] = defaultdict(list)
    rows = []
    for number in range(ROWS):
        key = draw.randrange(KEYS)
        ordering = f"ordering-{key}".encode() if key % 4 == 0 else None
        rows.append((f"key-{key}", ordering, str(number)))
        expected[f"key-{key}" if ordering is None else ordering.decode()].append(number)
    with ExitStack() as stack:
        receivers = [Receiver(peer, topic, f"consumer-{number}") for number in range(3)]
        for one in receivers:
            stack.enter_context(closing(one.consumer))
        frame = pulsar_in_spark.rows(rows, "__key string, __orderingKey binary, value string")
        pulsar_in_spark.write(frame, topic, **KEY_BASED)
        wait_until(lambda: sum(one.count for one in receivers) == ROWS)
    assert all(one.received for one in receivers)
    together: dict[str, list[int]] = {}
    for one in receivers:
        assert not together.keys() & one.received.keys(), "a key has reached two consumers"
        together |= one.received
    assert together == expected


def columns_of(rows):
    values, keys, ordering_keys = (pa.array(column, pa.binary()) for column in zip(*rows, strict=True))
    return MessageColumns(value=values, key=keys, ordering_key=ordering_keys)


def key_fields(metadata):
    ordering_key = metadata.ordering_key if metadata.HasField("ordering_key") else None
    key = metadata.partition_key if metadata.HasField("partition_key") else None
    return key, metadata.partition_key_b64_encoded, ordering_key, metadata.num_messages_in_batch


@pytest.mark.parametrize(
    "builder", [pytest.param(BatcherBuilder.DEFAULT, marks=pytest.mark.long), BatcherBuilder.KEY_BASED]
)
def test_entries_say_the_keys_that_those_of_java_say(client, cluster, topic, builder):
    """The Java client sends the batches of keys by their last messages, ours by their first."""
    names = [(b"a", None), (b"b", None), (b"\xff", b"o"), (None, b"o"), (None, None), (b"c", b"\x00")]
    draw = random.Random(13)
    rows = [(b"%d" % number, *draw.choice(names)) for number in range(200)]
    produce_in_java(cluster.service_url, topic, rows, key_based=builder is BatcherBuilder.KEY_BASED)
    ours = f"{topic}-ours"
    with open_writer(
        client, ours, batcher_builder=builder, key_bytes=True, batching_max_publish_delay=60
    ) as writer:
        writer.send(columns_of(rows))
        writer.flush()
    found = [key_fields(entry.metadata) for entry in entries_of(client, ours)]
    assert sorted(found, key=repr) == sorted(
        (key_fields(entry.metadata) for entry in entries_of(client, topic)), key=repr
    )
    assert len(found) == (5 if builder is BatcherBuilder.KEY_BASED else 1)
    read = read_in_java(cluster.service_url, [topic, ours])
    of_java, of_us = (
        sorted((one.value, one.key, one.key_is_base64, one.ordering_key) for one in read if one.topic == name)
        for name in (topic, ours)
    )
    assert len(of_us) == len(rows)
    assert of_us == of_java


def test_keys_as_bytes_go_where_java_sends_them_and_are_read_as_they_were(
    pulsar_in_spark, cluster, admin, peer, topic
):
    ours, partitions = f"{topic}-ours", 7
    for name in (topic, ours):
        admin.create_partitioned_topic(name, partitions)
    draw = random.Random(13)
    keys = [b"key-%d" % number for number in range(300)] + [draw.randbytes(4) for _ in range(100)]
    produce_in_java(cluster.service_url, topic, [(key, key, None) for key in keys])
    frame = pulsar_in_spark.rows([(key, key) for key in keys], "__key binary, value binary")
    pulsar_in_spark.write(frame, ours, keyBytes="true")
    java, spark = (
        {record.value: (record.key, record.partition) for record in peer.read_all(name)}
        for name in (topic, ours)
    )
    assert spark == java
    assert {value: text for value, (text, _) in spark.items()} == {
        key: base64.b64encode(key).decode() for key in keys
    }
    for name in (topic, ours):
        rows = pulsar_in_spark.read(name).select("__key", "value").collect()
        assert sorted((bytes(row["__key"]), bytes(row["value"])) for row in rows) == sorted(
            (key, key) for key in keys
        )
    # Without the option most of those that are text lie elsewhere.
    plain = f"{topic}-plain"
    admin.create_partitioned_topic(plain, partitions)
    pulsar_in_spark.write(frame, plain)
    moved = sum(record.partition != java[record.value][1] for record in peer.read_all(plain))
    assert moved > len(keys) // 2


def test_keys_of_a_schema_go_where_java_sends_them(pulsar_in_spark, cluster, admin, peer, topic):
    """KEY_VALUE, SEPARATED, with a text and a long as the key: the same keys on the wire and partitions."""
    kinds = (("string", "STRING", [f"k{number}" for number in range(20)]), ("bigint", "INT64", range(20)))
    written = []
    for kind, java_type, keys in kinds:
        theirs = f"{topic}-{kind}"
        for name in (theirs, f"{theirs}-ours"):
            admin.create_partitioned_topic(name, 7)
        schema = {
            "type": "KEY_VALUE",
            "key": {"type": java_type},
            "value": {"type": "INT32"},
            "encoding": "SEPARATED",
        }
        values = [{"key": key, "value": number} for number, key in enumerate(keys)]
        written.append(JavaValues(theirs, schema, values))
    write_values(cluster.service_url, written)
    for kind, _, keys in kinds:
        theirs, ours = f"{topic}-{kind}", f"{topic}-{kind}-ours"
        frame = pulsar_in_spark.rows(list(zip(keys, range(20), strict=True)), f"id {kind}, value int")
        pulsar_in_spark.write(frame, ours, valueFormat="columns", schemaType="primitive", keyColumns="id")
        java, spark = (
            {(record.value, record.key, record.partition) for record in peer.read_all(name)}
            for name in (theirs, ours)
        )
        assert spark == java
        assert len(java) == 20


def test_a_plain_copy(pulsar_in_spark, admin, peer, topic):
    """What was read is written as it is: the option topic wins over the rows' topics, null keys stay null."""
    copy = f"{topic}-copy"
    for name in (topic, copy):
        admin.create_partitioned_topic(name, 2)
    rows = [
        ("k", "a", {"x": "1", "left-out": None}),
        (None, "b", {"left-out": None}),
        ("", "c", None),
        (None, None, {"y": ""}),
    ]
    frame = pulsar_in_spark.rows(rows, "__key string, value string, __messageProperties map<string,string>")
    pulsar_in_spark.write(frame, topic)
    written = peer.read_all(topic)
    assert sorted((one.value or b"", one.key or "", one.properties) for one in written) == [
        (b"", "", (("y", ""),)),
        (b"a", "k", (("x", "1"),)),
        (b"b", "", ()),
        (b"c", "", ()),
    ]
    read = pulsar_in_spark.read(topic)
    assert "__topic" in read.columns
    pulsar_in_spark.write(read, copy)
    keyless = {row["value"] and bytes(row["value"]) for row in read.collect() if row["__key"] is None}
    assert keyless == {b"b", None}
    again = {
        row["value"] and bytes(row["value"])
        for row in pulsar_in_spark.read(copy).collect()
        if row["__key"] is None
    }
    assert again == keyless

    def unplaced(name):
        return sorted((one.value or b"", one.key or "", one.properties) for one in peer.read_all(name))

    assert unplaced(copy) == unplaced(topic)
