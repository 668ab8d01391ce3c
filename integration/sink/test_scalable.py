"""The sink writes scalable topics of Pulsar 5, also while their segments change."""

import json
import random
import time
import uuid
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from integration.fixtures.spark import Collector, PulsarInSpark, begun, drain, finish
from integration.helpers.background import again_and_again
from integration.helpers.crypto_keys import make_keys
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.replays import STRICT, Replays, no_duplicates_told, number_in
from integration.helpers.users_code import notes_of
from integration.sink.test_figures import TOLD
from pulsar_spark.cli import main
from pulsar_spark.client import (
    Client,
    ClientOptions,
    MessageColumns,
    ProducerInterceptor,
    ProducerOptions,
    SegmentWriter,
    UserCode,
)
from pulsar_spark.wire import pulsar_pb2 as pb

KEYS = 37


@pytest.fixture
def pulsar_5(spark, line_5):
    return PulsarInSpark(spark, line_5.service_url)


class Keyed(ProducerInterceptor):
    """Gives each row the key "k", and notes what it is told."""

    def __init__(self):
        self.told: list[tuple[Any, ...]] = []

    def before_send(self, columns):
        return replace(columns, key=pa.array([b"k"] * len(columns), pa.binary()))

    def on_send_acknowledgement(self, *told):
        self.told.append(told)


def rows(first, count, keys=KEYS):
    """Rows whose values are `key:number`, with numbers that increase by key."""
    at = range(first, first + count)
    return MessageColumns(
        value=pa.array([b"key-%d:%d" % (each % keys, each // keys) for each in at], pa.binary()),
        key=pa.array([b"key-%d" % (each % keys) for each in at], pa.binary()),
    )


def assert_in_order(collected, count, keys=KEYS):
    seen = dict.fromkeys((f"key-{key}" for key in range(keys)), 0)
    for row in collected:
        key, _, number = bytes(row.value).decode().partition(":")
        assert int(number) == seen[key], f"{number} of {key} came where {seen[key]} was to come"
        seen[key] += 1
    assert sum(seen.values()) == count


@pytest.mark.parametrize(
    "options",
    [{}, {"batching": False}, {"max_pending_messages": 1000, "batching_max_messages": 100}],
    ids=["batches", "single", "small"],
)
def test_rows_are_in_order_over_changes(pulsar_5, line_5, scalable, checkpoint, options):
    source = pulsar_5.stream(str(scalable.name), **{"admin.url": line_5.admin_url})
    collector = Collector()
    drain(source, collector, checkpoint)  # its subscription keeps old segments
    block, written, chance = 200, 0, random.Random(5)
    with Client(ClientOptions(service_url=line_5.service_url)) as client:
        writer = SegmentWriter(client, scalable.name, ProducerOptions(**options))
        with again_and_again(lambda: scalable.change(chance), 1.0), writer:
            until = time.monotonic() + 6
            while time.monotonic() < until:
                writer.send(rows(written, block))
                written += block
                time.sleep(0.01)  # so that the rows can be read again soon
            writer.flush()
            sent = writer.sent
    assert sum(each.messages for each in sent.values()) == written
    drain(source, collector, checkpoint)
    assert_in_order(collector.rows, written)


def test_a_stream_copies_a_scalable_topic_to_another(pulsar_5, line_5, scalable, checkpoint, tmp_path):
    """The segments of both change."""
    copy, place = f"{scalable.name}-copy", f"scalable/public/default/{scalable.name.local}-copy"
    line_5.admin.request("PUT", f"{place}?numInitialSegments=2", {})
    options = {"admin.url": line_5.admin_url}
    read = pulsar_5.stream(str(scalable.name), **options).selectExpr("__key", "value")
    seen = pulsar_5.stream(copy, **options)
    collector = Collector()
    drain(seen, collector, tmp_path / "seen")
    for _ in range(2):
        for key in range(7):
            for _ in range(20):
                scalable.write(f"key-{key}")
        writer = pulsar_5.write_stream(read, checkpoint, copy)
        finish(begun(writer.trigger(availableNow=True)))
        scalable.split(scalable.active[0])
        segments = line_5.admin.request("GET", place)["segments"].items()
        number = next(each for each, segment in segments if segment["state"] == "ACTIVE")
        line_5.admin.request("POST", f"{place}/split/{number}")
    drain(seen, collector, tmp_path / "seen")
    assert_in_order(collector.rows, 2 * 7 * 20, keys=7)


def test_typed_rows_of_both_kinds_of_topics(pulsar_5, scalable, topic):
    names = f"{topic}-classic", str(scalable.name)
    rows = [(names[at % 2], f"k{at}".encode(), at, f"item {at}") for at in range(40)]
    frame = pulsar_5.rows(rows, "__topic string, __key binary, id long, item string")
    pulsar_5.write(frame, valueFormat="columns")
    for first, name in enumerate(names):
        found = pulsar_5.read(name, valueFormat="columns").select("id", "item").collect()
        assert sorted(map(tuple, found)) == [(at, f"item {at}") for at in range(first, 40, 2)]


@pytest.mark.parametrize(
    "options",
    [
        {"pulsar.producer.compressionType": "LZ4"},
        {"pulsar.producer.batcherBuilder": "KEY_BASED"},
        {"pulsar.producer.batchingEnabled": "false", "pulsar.producer.chunkingEnabled": "true"},
        {"pulsar.producer.messageRoutingMode": "SinglePartition", "pulsar.producer.producerName": "me"},
    ],
)
def test_options_of_producers(pulsar_5, scalable, options):
    size = 6_000_000 if "pulsar.producer.chunkingEnabled" in options else 100
    rows = [(f"k{at}".encode() if at % 3 else None, b"%d" % at * size) for at in range(4)]
    pulsar_5.write(pulsar_5.rows(rows, "__key binary, value binary"), str(scalable.name), **options)
    found = pulsar_5.read(str(scalable.name)).select("__key", "value").collect()
    assert sorted((bytes(row.value), row[0]) for row in found) == sorted((value, key) for key, value in rows)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("keys", [36, 0])
@pytest.mark.parametrize(
    "options", [{}, {"delivery": "effectively-once"}, STRICT], ids=["default", "effectively-once", "strict"]
)
def test_a_repeated_micro_batch_is_stored_once(pulsar_5, line_5, scalable, tmp_path, keys, options):
    """Each run fails in a micro-batch, and segments change before the next one."""
    count, name = 3000, str(scalable.name)
    source, collector = pulsar_5.stream(name, **{"admin.url": line_5.admin_url}), Collector()
    drain(source, collector, tmp_path / "read")
    query = Replays(pulsar_5, line_5.admin_url, name, tmp_path, count, tasks=2, keys=keys)
    with no_duplicates_told(name) as told:
        for batches in (1, 2):
            query = replace(query, batches=batches)
            for task, at in enumerate((700, 1400)):
                query.fails("StepFailedError", query.at(at, task=task), **options, **told)
                scalable.change(random.Random(at + batches))
            query.run(**options, **told)
    drain(source, collector, tmp_path / "read")
    numbers = [number_in(bytes(row.value)) for row in collector.rows]
    assert Counter(numbers) == Counter(range(2 * count))
    for key in range(keys):
        of_key = [number for number in numbers if number % keys == key]
        assert of_key == sorted(of_key), key


@pytest.mark.parametrize("delivery", ["transactional"])
def test_a_guarantee_that_segments_break_is_refused(pulsar_5, scalable, checkpoint, delivery):
    rows = pulsar_5.ticks(10, 1).selectExpr("cast(value as string) as value")
    writer = pulsar_5.write_stream(rows, checkpoint, str(scalable.name), delivery=delivery)
    with pytest.raises(PySparkException, match=r"PULSAR_UNSUPPORTED.*scalable topic"):
        finish(begun(writer))
    assert pulsar_5.read(str(scalable.name)).count() == 0


def test_an_open_transaction_is_visible_after_an_unload(pulsar_5, line_5, scalable):
    """Why transactions are refused. If a newer version fails this test, try them again."""
    with RawConnection(line_5.service_url) as connection:
        new = pb.CommandNewTxn(request_id=connection.new_id(), txn_ttl_millis=600_000, scalable=True)
        transaction = connection.ask(pb.BaseCommand(type=pb.BaseCommand.NEW_TXN, newTxn=new)).newTxnResponse
        producer = RawProducer(connection, str(scalable.active[0]))
        producer.send(b"open", txn=(transaction.txnid_most_bits, transaction.txnid_least_bits))
    line_5.admin.unload_namespace("public/default")
    assert pulsar_5.read(str(scalable.name)).count() == 1


@pytest.mark.parametrize("batcher", ["DEFAULT", "KEY_BASED"])
def test_encrypted_rows(pulsar_5, scalable, tmp_path, batcher):
    """With keys and without."""
    reader = f"file://{make_keys(tmp_path)}"
    given = {"cryptoKeyReader": reader, "encryptionKeys": "rsa", "batcherBuilder": batcher}
    options = {f"pulsar.producer.{name}": value for name, value in given.items()}
    rows = [(f"k{at % 5}".encode() if at % 3 else None, b"%d" % at) for at in range(60)]
    pulsar_5.write(pulsar_5.rows(rows, "__key binary, value binary"), str(scalable.name), **options)
    read = pulsar_5.read(str(scalable.name), **{"pulsar.reader.cryptoKeyReader": reader})
    found = [(row["__key"] and bytes(row["__key"]), bytes(row.value)) for row in read.collect()]
    assert sorted(found, key=lambda each: int(each[1])) == rows
    with pytest.raises(PySparkException, match="PULSAR_CRYPTO"):
        pulsar_5.read(str(scalable.name)).collect()


def test_interceptors_see_each_row_once_over_a_split(line_5, scalable):
    one = Keyed()
    with Client(ClientOptions(service_url=line_5.service_url)) as client:
        code, options = UserCode(interceptors=[one]), ProducerOptions(batching_max_messages=10)
        with SegmentWriter(client, scalable.name, options, code=code) as writer:
            writer.send(rows(0, 95))
            scalable.split(scalable.active[0])
            writer.send(rows(95, 95))
            writer.flush()
    assert all(error is None for *_, error in one.told)
    assert sum(count for _, _, count, _, _ in one.told) == 190
    assert {topic for topic, *_ in one.told} <= set(map(str, scalable.segments))
    assert len({place for *_, place, _ in one.told}) == len(one.told)


def test_a_table_and_foreach_batch(pulsar_5, scalable, checkpoint):
    spark, name = pulsar_5.spark, str(scalable.name)
    given = {"service.url": pulsar_5.service_url, "topic": name}
    options = ", ".join(f"'{key}' '{value}'" for key, value in given.items())
    spark.sql(f"CREATE TABLE segments USING pulsar OPTIONS ({options}, metadataColumns '__key')")
    try:
        into = options.replace("' '", "' = '")
        spark.sql(f"INSERT INTO segments WITH ({into}) SELECT CAST('1' AS BINARY), CAST('k' AS BINARY)")
        read = pulsar_5.ticks(1, 1).selectExpr("cast('2' as binary) value", "cast(null as binary) __key")

        def write(batch, number):
            batch.writeTo("segments").options(**given).append()

        query = read.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        finish(begun(query.trigger(once=True)))
        found = spark.table("segments").collect()
    finally:
        spark.sql("DROP TABLE segments")
    assert sorted((bytes(row.value), row["__key"]) for row in found) == [(b"1", b"k"), (b"2", None)]


def test_figures_of_a_stream(pulsar_5, line_5, topic, checkpoint):
    """The command creates the topic."""
    name = topic.replace("persistent:", "topic:")
    assert main(["admin", "create", name, "3", "--admin-url", line_5.admin_url]) == 0
    read = pulsar_5.ticks(90, 2).selectExpr("cast(value as string) value", "encode(value, 'UTF-8') __key")
    file = notes_of(name)
    try:
        finish(begun(pulsar_5.write_stream(read, checkpoint, name, **TOLD).trigger(once=True)))
        ((number, figures),) = map(json.loads, file.read_text().splitlines())
    finally:
        file.unlink(missing_ok=True)
    assert number == 0
    assert sum(messages for _, messages, *_ in figures) == 90
    assert len(figures) == 3
    assert {segment.rpartition("/")[0] for segment, *_ in figures} == {name.replace("topic:", "segment:")}


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_missing_topic_follows_the_policy(pulsar_5, line_5, is_allowed):
    namespace = f"public/policy-{uuid.uuid4().hex[:8]}"
    line_5.admin.create_namespace(namespace)
    policy = {"allowAutoTopicCreation": is_allowed, "topicType": "non-partitioned"}
    line_5.admin.request("POST", f"namespaces/{namespace}/autoTopicCreation", policy)
    name, values = f"topic://{namespace}/new", pulsar_5.rows([("a",)], "value string")
    if is_allowed:
        pulsar_5.write(values, name)
        assert pulsar_5.read(name).count() == 1
    else:
        with pytest.raises(PySparkException, match=r"PULSAR_TOPIC_NOT_FOUND.*policy"):
            pulsar_5.write(values, name)
