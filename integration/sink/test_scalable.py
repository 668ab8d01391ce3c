"""The sink writes scalable topics of Pulsar 5, also while their segments change."""

import random
import threading
import time
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from integration.fixtures.spark import Collector, PulsarInSpark, begun, drain, finish
from integration.helpers.replays import STRICT, Replays, no_duplicates_told, number_in
from pulsar_spark.client import (
    Client,
    ClientOptions,
    MessageColumns,
    ProducerOptions,
    SegmentWriter,
)

KEYS = 37
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture
def pulsar_5(spark, line_5):
    return PulsarInSpark(spark, line_5.service_url)


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
    block, written, stop = 200, 0, threading.Event()
    failed = []

    def change():
        rng = random.Random(5)
        try:
            while not stop.wait(1.0):
                scalable.change(rng)
        except Exception as error:  # noqa: BLE001 - the test fails by it
            failed.append(error)

    with Client(ClientOptions(service_url=line_5.service_url)) as client:
        writer = SegmentWriter(client, scalable.name, ProducerOptions(**options))
        changes = threading.Thread(target=change)
        changes.start()
        try:
            until = time.monotonic() + 6
            with writer:
                while time.monotonic() < until:
                    writer.send(rows(written, block))
                    written += block
                    time.sleep(0.01)  # so that the rows can be read again soon
                writer.flush()
                sent = writer.sent
        finally:
            stop.set()
            changes.join()
    assert not failed
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


@pytest.mark.parametrize("keys", [36, 0])
@pytest.mark.parametrize(
    "options", [{}, {"delivery": "effectively-once"}, STRICT], ids=["default", "effectively-once", "strict"]
)
def test_a_repeated_micro_batch_is_stored_once(spark, pulsar_5, line_5, scalable, tmp_path, keys, options):
    """Each run fails in a micro-batch, and segments change before the next one."""
    count, name = 3000, str(scalable.name)
    source, collector = pulsar_5.stream(name, **{"admin.url": line_5.admin_url}), Collector()
    drain(source, collector, tmp_path / "read")
    query = Replays(pulsar_5, line_5.admin_url, name, tmp_path, count, tasks=2, keys=keys)
    spark.conf.set(RECORDS, "200")
    try:
        with no_duplicates_told(name) as told:
            for batches in (1, 2):
                query = replace(query, batches=batches)
                for task, at in enumerate((700, 1400)):
                    query.fails("StepFailedError", query.at(at, task=task), **options, **told)
                    scalable.change(random.Random(at + batches))
                query.run(**options, **told)
    finally:
        spark.conf.unset(RECORDS)
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
    query = begun(writer)
    with pytest.raises(PySparkException, match=r"PULSAR_UNSUPPORTED.*scalable topic"):
        finish(query)
    assert pulsar_5.read(str(scalable.name)).count() == 0
