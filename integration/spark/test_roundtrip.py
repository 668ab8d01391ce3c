"""What the C++ client writes, our source reads; what our sink writes, the C++ client reads."""

import datetime
import itertools
from collections import Counter

import pytest
from pyspark.sql import functions as f

from integration.broker.waiting import wait_until
from integration.chaos.messages import by_key
from integration.fixtures.spark import begun, finish
from integration.helpers.peer import CompressionType, Record

UTC = datetime.timezone.utc
CODECS = {
    "NONE": CompressionType.NONE,
    "LZ4": CompressionType.LZ4,
    "ZLIB": CompressionType.ZLib,
    "ZSTD": CompressionType.ZSTD,
    "SNAPPY": CompressionType.SNAPPY,
}


def varied(first, count):
    """Messages of every kind, no two equal."""
    return [
        Record(
            None if number % 11 == 0 else b"%d " % number * (number % 50 + 1),
            None if number % 3 == 0 else f"key-{number % 17}",
            (("n", str(number)), ("ü", "ö")) if number % 4 == 0 or number % 11 == 0 else (),
            1_700_000_000_000 + number if number % 5 == 0 else 0,
        )
        for number in range(first, first + count)
    ]


def produce_mixed(peer, topic, records, batch_sizes):
    """Write records in order, in runs that take turns with codecs and batch sizes."""
    ways = itertools.product(CODECS.values(), batch_sizes)
    run = -(-len(records) // (len(CODECS) * len(batch_sizes)))
    for number, (codec, batch_size) in enumerate(ways):
        part = records[number * run : (number + 1) * run]
        peer.produce(topic, part, batch_size=batch_size, compression=codec)


def as_record(row):
    """A row of the source, as the C++ client would have shown it."""
    event_time = row["__eventTime"]
    return Record(
        None if row.value is None else bytes(row.value),
        None if row["__key"] is None else bytes(row["__key"]).decode(),
        tuple(sorted(row["__messageProperties"].items())),
        0 if event_time is None else round(event_time.timestamp() * 1000),
    )


def counted(records):
    """The multiset of records, wherever they are."""
    return Counter(Record(one.value, one.key, one.properties, one.event_time) for one in records)


def serialized_ids(peer, topic):
    """The ids of all messages, as the C++ client's own bytes."""
    return [message.message_id().serialize() for message in peer.messages(topic)]


def test_rows_are_the_messages(pulsar_in_spark, peer, topic):
    written = varied(0, 120)
    peer.produce(topic, written[:100], batch_size=40)
    peer.produce(topic, written[100:])
    rows = pulsar_in_spark.read(topic).collect()
    assert [as_record(row) for row in rows] == written
    assert {row["__topic"] for row in rows} == {topic}
    now = datetime.datetime.now(UTC).timestamp()
    assert all(abs(now - row["__publishTime"].timestamp()) < 300 for row in rows)


def test_cpp_to_source_to_sink_to_cpp(pulsar_in_spark, peer, admin, topic, checkpoint):
    target = f"{topic}-copy"
    admin.create_partitioned_topic(topic, 2)
    admin.create_partitioned_topic(target, 3)
    written = varied(0, 2000)
    produce_mixed(peer, topic, written, batch_sizes=(0, 25))
    rows = pulsar_in_spark.stream(topic).drop("__topic")
    sink = pulsar_in_spark.write_stream(
        rows, checkpoint, target, **{"pulsar.producer.compressionType": "zstd"}
    )
    finish(begun(sink.trigger(availableNow=True)))
    copied = peer.read_all(target)
    assert counted(copied) == counted(written)
    assert by_key(copied) == by_key(written)
    placed = {(one.key, one.partition) for one in copied if one.key is not None}
    assert len(placed) == len({key for key, _ in placed})


def test_the_sinks_columns(pulsar_in_spark, peer, topic):
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
    schema = "__key binary, payload string, __eventTime timestamp, __messageProperties map<string,string>"
    rows = [
        (b"k", "text", moment, {"a": "1", "b": ""}),
        (None, None, None, None),
        (b"", "", None, {}),
        ("ключ".encode(), "значение", None, {"имя": "x"}),
    ]
    pulsar_in_spark.write(pulsar_in_spark.rows(rows, schema), topic)
    milliseconds = round(moment.timestamp() * 1000)
    assert peer.read_all(topic) == [
        Record(b"text", "k", (("a", "1"), ("b", "")), milliseconds),
        Record(None),
        Record(b"", None),
        Record("значение".encode(), "ключ", (("имя", "x"),)),
    ]


def test_keys_of_any_bytes_survive_both_ways(pulsar_in_spark, topic):
    keys = [b"\xff\x00\x80", b"", b"plain", None, bytes(range(256))]
    rows = pulsar_in_spark.rows([(key, b"v") for key in keys], "__key binary, value binary")
    pulsar_in_spark.write(rows, topic)
    read = pulsar_in_spark.read(topic).collect()
    assert [None if row["__key"] is None else bytes(row["__key"]) for row in read] == keys


def test_rows_choose_their_topics(pulsar_in_spark, peer, topic):
    rows = pulsar_in_spark.spark.range(100).select(
        f.concat(f.lit(f"{topic}-"), (f.col("id") % 3).cast("string")).alias("__topic"),
        f.col("id").cast("string").alias("value"),
    )
    pulsar_in_spark.write(rows.coalesce(1))
    for number in range(3):
        values = [one.value for one in peer.read_all(f"{topic}-{number}")]
        assert values == [b"%d" % one for one in range(number, 100, 3)]


@pytest.mark.long
def test_complete_mode_writes_the_whole_result_each_time(pulsar_in_spark, peer, topic, checkpoint):
    target = f"{topic}-counts"
    for count in (1, 2):
        peer.produce(topic, [Record(b"a"), Record(b"b")] * count)
        counts = pulsar_in_spark.stream(topic).groupBy(f.col("value").alias("__key")).count()
        rows = counts.select("__key", f.col("count").cast("string").alias("value"))
        sink = pulsar_in_spark.write_stream(rows, checkpoint, target)
        finish(begun(sink.outputMode("complete").trigger(availableNow=True)))
    assert by_key(peer.read_all(target)) == {"a": [b"1", b"3"], "b": [b"1", b"3"]}


def test_batch_reads_leave_no_subscription(pulsar_in_spark, peer, admin, topic):
    admin.create_topic(topic)
    assert pulsar_in_spark.read(topic).count() == 0
    peer.produce(topic, [Record(b"%d" % number) for number in range(50)], batch_size=5)
    assert pulsar_in_spark.read(topic).count() == 50
    assert len(pulsar_in_spark.read(topic).limit(3).collect()) == 3
    assert pulsar_in_spark.read(topic, startingOffsets="latest").count() == 0
    wait_until(lambda: admin.subscriptions(topic) == [])


def test_reading_one_of_the_partitions(pulsar_in_spark, peer, admin, topic):
    admin.create_partitioned_topic(topic, 2)
    peer.produce(topic, varied(0, 100))
    expected = [one for one in peer.read_all(topic) if one.partition == 1]
    rows = pulsar_in_spark.read(f"{topic}-partition-1").collect()
    assert counted([as_record(row) for row in rows]) == counted(expected)


def test_messages_larger_than_a_record_batch(pulsar_in_spark, topic):
    sizes = [4_000_000, 10, 3_000_000, 5_000_000 - 1000]
    rows = pulsar_in_spark.rows([(number, size) for number, size in enumerate(sizes)], "id int, size int")
    values = rows.select(f.expr("repeat(cast(id as string), size) as value"))
    pulsar_in_spark.write(values, topic)
    read = pulsar_in_spark.read(topic).select(f.length("value")).collect()
    assert [row[0] for row in read] == sizes
