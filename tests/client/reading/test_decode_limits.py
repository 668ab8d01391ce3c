"""What an entry may hold, by what came of it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pulsar_spark.client.reading import decode
from pulsar_spark.client.reading.decode import MAX_UNCOMPRESSED
from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.fields import field_spans
from tests.client.reading.decoded_entries import decoded, values
from tests.client.reading.stored_entries import batch_entry, bomb, columns, entry_of, single_entry

ROOT = Path(__file__).resolve().parents[3]


def test_the_largest_decompressed_size():
    size = MAX_UNCOMPRESSED + 1
    with pytest.raises(CorruptError, match=f"{size} bytes uncompressed; the maximum is {MAX_UNCOMPRESSED}"):
        decoded([[entry_of(5, 6, bytes(size), compression=pb.ZSTD)]], max_message_size=lambda: 2**30)


@pytest.mark.parametrize("more", [{}, {"num_messages_in_batch": 1}, {"num_chunks_from_msg": 2}])
def test_what_an_entry_may_decompress_to_is_bounded_by_what_came(more):
    """By 100 times that and 4 times the largest message."""
    plain = encode_batch_messages(columns([bytes(50_000)])).buffer.tobytes()
    entry = entry_of(5, 6, plain, compression=pb.ZSTD, **more)
    received = int(Entries.of([entry]).sizes[0])
    least = -(-(len(plain) - 100 * received) // 4)
    assert least > 100
    assert len(values([[entry]], max_message_size=lambda: least)) == 1
    with pytest.raises(CorruptError, match=r"bytes uncompressed; the maximum is \d+.* message 5:6"):
        decoded([[entry]], max_message_size=lambda: least - 1)


@pytest.mark.parametrize("field", ["producer_name", "replicated_from", "schema_version", "schema_id"])
def test_what_each_message_has_of_its_entry_is_bounded_by_what_came(field):
    """A name of a megabyte is a terabyte for a million messages."""
    plain = encode_batch_messages(columns([b""] * 1000)).buffer.tobytes()
    entry = entry_of(5, 6, plain, num_messages_in_batch=1000, **{field: b"n" * 10_000})
    largest = (10_000 * 1000 - 100 * int(Entries.of([entry]).sizes[0])) // 4 + 10_000
    assert len(values([[entry]], max_message_size=lambda: largest)) == 1000
    with pytest.raises(CorruptError, match=r"a batch of 1000 messages, each with \d+ bytes of names"):
        decoded([[entry]], max_message_size=lambda: largest - 20_000)


def test_how_many_messages_an_entry_may_have_depends_on_what_came():
    """700 bytes were a million rows."""
    few, many = bomb(100_000), bomb(101_000)
    assert len(values([[few]])) == 100_000
    with pytest.raises(CorruptError, match=r"a batch of 101000 messages; the maximum is 1000\d\d; .* 5:6"):
        decoded([[many]])
    received = int(Entries.of([many]).sizes[0])
    padded = bomb(101_000, properties=[pb.KeyValue(key=b"p", value=bytes(200_000))])
    assert received < 1000
    assert len(values([[padded]])) == 101_000


def test_what_came_of_an_entry_bounds_the_items_of_its_values():
    """Of usual entries nothing is looked at, nor of those that compress little."""
    large = bytes(np.random.default_rng(7).integers(0, 64, 600_000, np.uint8))
    usual, odd = batch_entry(1, 0, columns([b"x" * 100] * 1000)), entry_of(1, 1, large, compression=pb.ZSTD)
    dense = entry_of(1, 2, bytes(2_000_000), compression=pb.ZSTD)
    (part,) = decoded([[usual, odd]])
    assert part.items_per_byte is None
    (part,) = decoded([[usual, dense]], max_bytes=1 << 24)
    rates = part.items_per_byte
    received = int(Entries.of([dense]).sizes[0])
    assert np.isinf(rates[:-1]).all()
    assert rates[-1] == 8 * received / 2_000_000 + 1 / 32


def with_properties(entry, messages, count):
    """A batch of messages of which the first has so many empty properties."""
    head = b"\x0a\x04\x0a\0\x12\0" * count + b"\x18\0"
    plain = len(head).to_bytes(4, "big") + head + b"\0\0\0\x02\x18\0" * (messages - 1)
    return entry_of(5, entry, plain, num_messages_in_batch=messages, compression=pb.LZ4)


@pytest.mark.parametrize("messages", [1, 30])
def test_too_many_properties_are_refused_alone_and_among_others(messages, monkeypatch):
    monkeypatch.setattr(field_spans, "MAX_PROPERTIES", 40)
    good = [with_properties(entry, messages, 40) for entry in (3, 4, 5)]
    bad = with_properties(6, messages, 41)
    (part,) = decoded([good])
    assert sum(map(len, part.properties)) == 3 * 40
    for group in ([bad], [*good, bad], [good[0], bad, *good]):
        with pytest.raises(CorruptError, match=r"properties.* message 5:6"):
            decoded([group])


ATTACKS = {
    "properties": "head = b'\\x0a\\x04\\x0a\\0\\x12\\0' * 3_000_000 + b'\\x18\\0'; count, more = 1, {}",
    "messages": "head = b'\\x18\\0'; count, more = 100_000, {}",
    "chunks": "head = b'\\x18\\0'; count, more = 0, {'num_chunks_from_msg': 2}",
}
ATTACK = """
import resource
from pulsar_spark.client.reading.decode import decode_entries
from pulsar_spark.errors import CorruptError, UnsupportedError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.codecs import compress
from pulsar_spark.wire.entry.entries import Entries, Entry
from tests.client.reading.stored_entries import TOPIC, metadata

{attack}
plain = (len(head).to_bytes(4, "big") + head) * max(count, 1)
if count:
    more["num_messages_in_batch"] = count
size = len(plain) if count else 2**31 - 1
payload = memoryview(compress(pb.ZSTD, plain))
entry = Entry(5, 6, metadata(compression=pb.ZSTD, uncompressed_size=size, **more), payload, None)
assert len(payload) < 1 << 16
del plain, head
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    ranges = [RangeEntries(TOPIC, [Entries.of([entry])])]
    for part in decode_entries(ranges, max_rows=10_000, max_bytes=6 << 20):
        part.value, part.key, part.properties, part.event_time
except CorruptError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.long  # the limits themselves are tested below
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_a_few_bytes_do_not_fill_a_worker(attack):
    command = [sys.executable, "-c", ATTACK.format(attack=attack)]
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert int(told.stdout.split()[-1]) < 300 * 1024  # KiB


LIMITS = [
    ("MAX_MESSAGES", batch_entry(5, 6, columns([b""] * 9)), 9, "a batch of 9 messages; the maximum is 8"),
    (
        "MAX_UNCOMPRESSED",
        single_entry(5, 6, bytes(9)),
        9,
        "a payload of 9 bytes uncompressed; the maximum is 8",
    ),
    (
        "MAX_UNCOMPRESSED",
        entry_of(5, 6, bytes(999), compression=pb.ZSTD),
        999,
        "a payload of 999 bytes uncompressed; the maximum is 998",
    ),
    (
        "MAX_CHUNKED",
        entry_of(5, 6, bytes(999), compression=pb.ZSTD, num_chunks_from_msg=2),
        999,
        "a payload of 999 bytes uncompressed; the maximum is 998",
    ),
]


@pytest.mark.parametrize(("name", "entry", "limit", "text"), LIMITS)
def test_limits_are_the_largest_that_is_accepted(name, entry, limit, text, monkeypatch):
    monkeypatch.setattr(decode, name, limit)
    assert len(decoded([[entry]])) == 1
    monkeypatch.setattr(decode, name, limit - 1)
    with pytest.raises(CorruptError, match=text):
        decoded([[entry]])


def test_a_chunked_message_may_be_larger_than_what_else_is_accepted(monkeypatch):
    monkeypatch.setattr(decode, "MAX_UNCOMPRESSED", 100)
    for kind in (pb.NONE, pb.ZSTD):
        assert values([[entry_of(5, 6, bytes(1000), compression=kind, num_chunks_from_msg=2)]]) == [
            bytes(1000)
        ]
        with pytest.raises(CorruptError, match="1000 bytes uncompressed; the maximum is 100"):
            decoded([[entry_of(5, 6, bytes(1000), compression=kind)]])
