"""The Java client sends keys where we do, and reads what we write."""

import datetime
import random

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from integration.helpers.clients import open_writer
from integration.helpers.java_peer import partitions_in_java, read_in_java
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.routing import HashingScheme, partitions_for_keys
from pulsar_spark.spark.rows.write import message_shape
from pulsar_spark.spark.spark_api import arrow_schema
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.message_columns import encode_keys

ALPHABETS = (
    [chr(code) for code in range(128)],
    [chr(code) for code in range(0x80, 0x800)],
    [chr(code) for code in (*range(0x800, 0xD800), *range(0xE000, 0x10000))],
    [chr(code) for code in range(0x10000, 0x110000)],
)


def random_keys(count, seed):
    """Keys of all lengths: any bytes, and texts of characters that are one to four bytes in UTF-8."""
    draw = random.Random(seed)
    keys = []
    for number in range(count):
        length = draw.choice((0, 1, 2, 3, 4, 5, 7, 8, 16, draw.randrange(200)))
        if number % 3 == 0:
            keys.append(draw.randbytes(length))
        else:
            alphabets = draw.sample(ALPHABETS, draw.randrange(1, 5))
            keys.append("".join(draw.choice(draw.choice(alphabets)) for _ in range(length)).encode())
    return keys


def test_ten_thousand_keys_go_where_the_java_client_sends_them():
    partitions = 2**31 - 1  # So many that a hash is its own partition.
    seed = random.randrange(2**32)
    keys = random_keys(10_000, seed)
    texts = encode_keys(pa.array(keys, pa.binary())).texts
    expected = partitions_in_java(keys, partitions)
    for number, scheme in enumerate((HashingScheme.JAVA_STRING, HashingScheme.MURMUR3_32)):
        found = partitions_for_keys(texts, partitions, scheme).tolist()
        wrong = [key for key, ours, java in zip(keys, found, expected, strict=True) if ours != java[number]]
        assert not wrong, f"{len(wrong)} keys of seed {seed} go elsewhere, {scheme}: {wrong[:3]}"


UTC = datetime.timezone.utc
THEN = datetime.datetime(2024, 5, 6, 7, 8, 9, 123000, UTC)
LATER = datetime.datetime(2040, 1, 1, tzinfo=UTC)

SCHEMA = (
    StructType()
    .add("__key", BinaryType())
    .add("__orderingKey", BinaryType())
    .add("value", BinaryType())
    .add("__eventTime", TimestampType())
    .add("__messageProperties", MapType(StringType(), StringType()))
    .add("__deliverAt", TimestampType())
    .add("__deliverAfter", LongType())
    .add("__partition", IntegerType())
    .add("__sequenceId", LongType())
)
ROWS = [
    (b"k", b"o", b"v", THEN, {"a": "1", "b": ""}, None, None, 0, 3),
    (b"\xff\x00", None, None, None, None, None, None, 0, 5),
    (None, "ö".encode(), b"", THEN, {}, LATER, None, 0, 6),
    (b"/wA=", None, b"w" * 300, None, {"\N{GREEK SMALL LETTER OMEGA}": "\U0001f600"}, None, -1000, 0, 10),
    ("\U0001f600".encode(), None, b"x", None, None, None, None, 0, None),
    (b"", b"", b"y", None, None, None, None, 1, 7),
]


@pytest.mark.parametrize("batching", [True, pytest.param(False, marks=pytest.mark.long)])
def test_rows_are_read_by_both_clients_as_they_were_written(client, cluster, admin, peer, topic, batching):
    admin.create_partitioned_topic(topic, 2)
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], arrow_schema(SCHEMA)
    )
    ((_, columns),) = message_shape(SCHEMA, TopicName.parse(topic)).messages(batch)
    with open_writer(client, topic, batching=batching, compression=pb.LZ4) as writer:
        writer.send(columns)
        writer.flush()

    def milliseconds(time):
        return None if time is None else round(time.timestamp() * 1000)

    partitions = peer.client.get_topic_partitions(topic)
    found = read_in_java(cluster.service_url, partitions)
    assert [
        (one.topic, one.key, one.ordering_key, one.value, one.event_time, one.properties) for one in found
    ] == [
        (partitions[to], key, ordering, value, milliseconds(time) or 0, properties or {})
        for key, ordering, value, time, properties, _, _, to, _ in ROWS
    ]
    assert [one.sequence_id for one in found] == [3, 5, 6, 10, 11, 7]
    assert [one.key_is_base64 for one in found] == [False, True, False, False, False, False]
    assert [one.deliver_at for one in found[:3]] == [None, None, milliseconds(LATER)]
    assert found[3].deliver_at is not None
    assert 0 <= found[3].publish_time - found[3].deliver_at - 1000 < 120_000
    assert [one.deliver_at for one in found[4:]] == [None, None]
    delayed = {2, 3}
    assert [one.batched for one in found] == [batching and n not in delayed for n in range(len(ROWS))]

    messages = list(peer.messages(topic))
    assert [
        (
            message.partition_key().encode(),
            message.ordering_key().encode(),
            None if message.has_null_value() else message.data(),
            message.event_timestamp(),
            message.properties(),
        )
        for message in messages
    ] == [
        (
            b"/wA=" if key == b"\xff\x00" else key or b"",
            ordering or b"",
            value,
            milliseconds(time) or 0,
            names or {},
        )
        for key, ordering, value, time, names, *_ in ROWS
    ]
