"""We read what the Java client writes, and what the broker's compactor, which is one, writes again."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from integration.broker.waiting import HANG, wait_until
from integration.chaos.messages import BEGINNING, columns_of, last_message
from integration.helpers.clients import open_writer
from integration.helpers.crypto_keys import make_keys
from integration.helpers.java_peer import JavaEntries, write_in_java
from integration.helpers.peer import Record
from pulsar_spark.client import Decryptor, KeyFolder, RangeEntries, decode_entries
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.ranges import read_range

CODECS = {"NONE": pb.NONE, "LZ4": pb.LZ4, "ZLIB": pb.ZLIB, "ZSTD": pb.ZSTD, "SNAPPY": pb.SNAPPY}
SHAPES: tuple[Mapping[str, Any], ...] = (
    {"batching": True},
    {},
    {"chunk": 1500},
    {"batching": True, "names": ["rsa"]},
    {"names": ["ec", "rsa"]},
    {"chunk": 1500, "names": ["rsa"]},
)
# Bytes; Java compresses what has more than 4 KiB, metadata of a batch's messages included.
FEW = (0, 4096, 4097, 9000)
MANY = (*FEW, 1, 2, 100, *range(4030, 4110), 5000, 70_000, 200_000)
SIZES = [FEW, pytest.param(MANY, marks=pytest.mark.long)]

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def value(size):
    """Bytes of which half compress well."""
    return Random(size).randbytes(size // 2) + b"x" * (size - size // 2)


def groups(sizes):
    """Groups with some bytes in all, in one message and in several."""
    for size in sizes:
        yield [Record(value(size), f"key-{size}", (("size", f"{size}"),), 1_600_000_000_000 + size)]
        yield [Record(value(size // 2), "é"), Record(b""), Record(value(size - size // 2)), Record(None, "k")]


def versions(sizes):
    """Groups in which the last value of each key is kept: of single messages, and of some in a batch."""
    for version in range(2):
        for size in sizes:
            yield [Record(value(size + version), f"single-{size}")]
            kept = Record(value(size + 9), f"batch-{size}-{version}", (("size", f"{size}"),))
            yield [kept, Record(value(size + version), f"batch-{size}"), Record(b"v", "gone"), Record(b"")]
        yield [Record(None, "gone")]


def compacted(records):
    """Return the records that are the last ones of their keys and have a value."""
    last = {record.key: number for number, record in enumerate(records) if record.key is not None}
    return [
        record for number, record in enumerate(records) if last.get(record.key) == number and record.value
    ]


def read(client, topic, **options):
    """Read as a task does; also returns the compressions of the entries."""
    name, kinds = TopicName.parse(topic), set[int]()

    def noted(groups):
        for entries in groups:
            kinds.update(entries.compression.tolist())
            yield entries

    entries = read_range(client, name, BEGINNING, last_message(client, name), poll_timeout=HANG, **options)
    found = []
    for messages in decode_entries([RangeEntries(name, noted(entries))], max_rows=10_000, max_bytes=1 << 22):
        none = [None] * len(messages)
        properties, times = messages.properties, messages.event_time
        rows = zip(
            messages.value.to_pylist(),
            messages.key.to_pylist(),
            none if properties is None else properties.to_pylist(),
            none if times is None else times.to_pylist(),
            strict=True,
        )
        found += [
            Record(value, None if key is None else key.decode(), tuple(pairs or ()), time or 0)
            for value, key, pairs, time in rows
        ]
    return found, kinds


def new_topics(cluster):
    """Create a topic for each codec."""
    prefix = f"persistent://public/default/java-{uuid.uuid4().hex[:8]}"
    topics = {codec: f"{prefix}-{codec}" for codec in CODECS}
    for topic in topics.values():
        cluster.admin.create_topic(topic)
    return topics


@pytest.mark.parametrize("sizes", SIZES, ids=["few", "many"])
def test_each_codec_in_each_kind_of_entry(cluster, client, tmp_path, sizes):
    keys, topics, written = make_keys(tmp_path), new_topics(cluster), list(groups(sizes))
    tasks = [
        JavaEntries(topic=topic, groups=written, codec=codec, **shape)
        for codec, topic in topics.items()
        for shape in SHAPES
    ]
    write_in_java(cluster.service_url, tasks, keys)
    expected = len(SHAPES) * [record for group in written for record in group]
    for codec, topic in topics.items():
        found, kinds = read(client, topic, decryptor=Decryptor(KeyFolder(keys)))
        assert found == expected, codec
        assert kinds == {pb.NONE, CODECS[codec]}


@pytest.mark.parametrize("sizes", SIZES, ids=["few", "many"])
def test_what_the_compactor_writes_again(cluster, client, sizes):
    """Of the Java client's batches and messages, and of our own."""
    admin, topics, written = cluster.admin, new_topics(cluster), list(versions(sizes))
    ours = [
        [replace(record, key=record.key and f"our {record.key}") for record in group] for group in written
    ]
    tasks = [
        JavaEntries(topic=topic, groups=written, codec=codec, batching=batching)
        for codec, topic in topics.items()
        for batching in (False, True)
    ]
    write_in_java(cluster.service_url, tasks)
    for codec, topic in topics.items():
        with open_writer(client, topic, compression=CODECS[codec]) as writer:
            for group in ours:
                writer.send(columns_of(group))
                writer.flush()
        admin.compact(topic)
    expected = compacted([record for group in (*written, *written, *ours) for record in group])
    for codec, topic in topics.items():
        wait_until(lambda topic=topic: admin.compaction_status(topic) == "SUCCESS")
        found, kinds = read(client, topic, read_compacted=True)
        assert found == expected, codec
        assert kinds == {pb.NONE, CODECS[codec]}
