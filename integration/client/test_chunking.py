"""Messages larger than the broker takes: written in chunks, or refused before anything else is sent."""

import hashlib
import random
from dataclasses import replace
from typing import Any

import pytest

from integration.broker.waiting import promptly
from integration.chaos.messages import columns_of, last_message, numbered
from integration.helpers.clients import entries_of, open_writer
from integration.helpers.peer import CompressionType, Record
from pulsar_spark.errors import SendError
from pulsar_spark.ids import TopicName
from tests.writes import send_all, write_all

MB = 1_000_000
MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def large(*sizes):
    """Messages that cannot be compressed, with all that is repeated in each chunk."""
    chance = random.Random(5)
    return [
        Record(chance.randbytes(size), f"key-{number}", (("name", "value"),), 1_600_000_000_000 + number)
        for number, size in enumerate(sizes)
    ]


def brief(records):
    """The same with digests for values: a difference of megabytes cannot be read."""
    return [
        replace(record, value=None if record.value is None else hashlib.sha256(record.value).digest())
        for record in records
    ]


@pytest.mark.parametrize(
    ("compression", "chunk_max"),
    [("NONE", None), ("LZ4", MIB), ("ZLib", None), ("ZSTD", 100_000), ("SNAPPY", MIB)],
)
def test_the_cpp_client_reads_chunks(client, admin, peer, topic, compression, chunk_max):
    # What no subscription holds a broker may drop as soon as a ledger or the topic is closed.
    admin.create_held_topic(topic)
    records = [
        *large(MB, 100, 6 * MB),
        Record(b"easily compressed " * 400_000),
        Record(b""),
        Record(None, "k"),
    ]
    codec = int(getattr(CompressionType, compression))
    with open_writer(
        client, topic, batching=False, chunking=True, chunk_max_message_size=chunk_max, compression=codec
    ) as writer:
        send_all(writer, columns_of(records))
    # At least once: what was sent again after a lost connection is there twice.
    assert brief(dict.fromkeys(peer.read_all(topic))) == brief(records)
    assert len(entries_of(client, topic)) >= len(records)  # our own reader puts them together, too


def test_all_partitions_get_chunks(client, admin, peer, topic):
    admin.create_partitioned_topic(topic, 3)
    records = large(*[300_000] * 12)
    options: dict[str, Any] = {"batching": False, "chunking": True, "chunk_max_message_size": 70_000}
    write_all(open_writer(client, topic, **options), columns_of(records))
    found = peer.read_all(topic)
    assert len({record.partition for record in found}) == 3
    assert sorted(record.value or b"" for record in found) == sorted(
        record.value or b"" for record in records
    )


# ---- refusals


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("compression", ["NONE", "ZSTD"])
def test_a_message_that_is_too_large_fails_before_anything_beside_it_is_sent(
    client, admin, topic, batching, compression, partitions
):
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    records = [*numbered(50, keys=9), *large(6 * MIB)]
    codec = int(getattr(CompressionType, compression))
    with open_writer(client, topic, batching=batching, compression=codec, batching_max_messages=5) as writer:
        text = (
            rf"\[PULSAR_SEND\] .*{6 * MIB // 1_000_000}\d+ bytes.* 5242880 .*topic {topic}.*chunkingEnabled"
        )
        with promptly(15.0), pytest.raises(SendError, match=text):
            writer.send(columns_of(records))
    names = client.partitions(TopicName.parse(topic))
    assert [last_message(client, name).entry for name in names] == [-1] * max(1, partitions)
