"""What is decoded of entries, in which portions, and which entries are refused."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client.reading import decode
from pulsar_spark.client.reading.decode import MAX_MESSAGES, MAX_UNCOMPRESSED, decode_entries
from pulsar_spark.errors import CorruptError, UnsupportedError
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.translation import CopyRange
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.batches import encode_batch_messages
from pulsar_spark.wire.entry.codecs import compress
from pulsar_spark.wire.entry.entries import Entries, Entry
from pulsar_spark.wire.fields import field_spans
from tests.client.reading.stored_entries import (
    TOPIC,
    batch_entry,
    bomb,
    columns,
    compacted_entry,
    entry_of,
    metadata,
    single_entry,
)
from tests.loops import for_each

ROOT = Path(__file__).resolve().parents[3]
CODECS = [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]


def decoded(groups, *positions, max_rows=10_000, max_bytes=2**20, **more):
    """What is decoded of entries that come in groups, in portions."""
    entries = [Entries.of(group) for group in groups]
    return list(decode_entries(TOPIC, entries, *positions, max_rows=max_rows, max_bytes=max_bytes, **more))


def values(groups, *positions, **limits):
    return [value for part in decoded(groups, *positions, **limits) for value in part.value.to_pylist()]


def ids(groups, *positions):
    """(entry, batch index) of each row; None for a message that is no part of a batch."""
    found = []
    for part in decoded(groups, *positions):
        index = [None] * len(part) if part.batch_index is None else part.batch_index.to_pylist()
        found += zip(part.entry.to_pylist(), index, strict=True)
    return found


def size_of(entry):
    """Bytes of payload and metadata, and of the names that each message of a batch has of its entry."""
    own = entry.metadata
    messages = own.num_messages_in_batch if own.HasField("num_messages_in_batch") else 0
    return len(entry.payload) + own.ByteSize() + messages * len(own.producer_name)


# ---- values


@pytest.mark.parametrize("kind", CODECS)
def test_batches_and_singles_of_every_codec(kind):
    group = [
        batch_entry(1, 0, columns([b"a" * 99, b"b"]), compression=kind),
        batch_entry(1, 1, columns([None]), compression=kind),
        entry_of(1, 2, b"single" * 9, compression=kind),
        entry_of(1, 3, b"", compression=kind),
        batch_entry(1, 4, columns([b"c"]), compression=kind),
    ]
    assert values([group]) == [b"a" * 99, b"b", None, b"single" * 9, b"", b"c"]


def test_codecs_may_change_from_entry_to_entry():
    group = [
        batch_entry(1, number, columns([b"%d" % number] * 9), compression=kind)
        for number, kind in enumerate(CODECS + CODECS[::-1])
    ]
    assert values([group]) == [b"%d" % number for number in range(10) for _ in range(9)]


def test_entries_keep_their_order():
    groups = [
        [single_entry(1, 0, b"0")],
        [single_entry(1, 1, b"1"), batch_entry(1, 2, columns([b"2", b"3"]))],
        [batch_entry(1, 3, columns([b"4"])), single_entry(1, 4, b"5"), batch_entry(1, 5, columns([b"6"]))],
    ]
    assert values(groups) == [b"%d" % number for number in range(7)]
    assert ids(groups) == [(0, None), (1, None), (2, 0), (2, 1), (3, 0), (4, None), (5, 0)]
    (part,) = decoded(groups)
    assert part.topic == TOPIC
    assert part.size == sum(size_of(one) for group in groups for one in group)


def test_random_batches_survive_the_way():
    chance = np.random.default_rng(4)
    made = [chance.bytes(int(size)) for size in chance.integers(0, 300, 5000)]
    cuts = [0, *sorted(chance.integers(0, 5000, 60).tolist()), 5000]
    group = [
        batch_entry(1, number, columns(made[first:last], made[first:last]), compression=CODECS[number % 5])
        for number, (first, last) in enumerate(itertools.pairwise(cuts))
        if last > first
    ]
    found = decoded([group[:20], group[20:]], max_rows=700, max_bytes=20_000)
    assert [value for part in found for value in part.value.to_pylist()] == made
    assert [key for part in found for key in part.key.to_pylist()] == made


@pytest.mark.parametrize(("kind", "call"), [(pb.LZ4, "decode_joined"), (pb.ZSTD, "decode_batches")])
def test_small_entries_are_decoded_in_one_call(kind, call, monkeypatch):
    calls = []
    decode_them = getattr(decode, call)

    def counted(*given):
        calls.append(given)
        return decode_them(*given)

    monkeypatch.setattr(decode, call, counted)
    groups = [
        [batch_entry(1, number, columns([b"v"] * 10), compression=kind) for number in range(first, first + 9)]
        for first in range(0, 27, 9)
    ]
    assert values(groups) == [b"v"] * 270
    assert len(calls) == 1


# ---- rows outside of (start, end]


POSITIONS = {
    "none": ((), range(9)),
    "whole entries": ((MessageId(1, 0), MessageId(1, 2)), range(9)),
    "a start": ((MessageId(1, 0, 1),), range(2, 9)),
    "a start at the last message": ((MessageId(1, 0, 2),), range(3, 9)),
    "an end": ((None, MessageId(1, 2, 0)), range(7)),
    "an end at the last message": ((None, MessageId(1, 2, 2)), range(9)),
    "both": ((MessageId(1, 0, 0), MessageId(1, 2, 1)), range(1, 8)),
    "both in one entry": ((MessageId(1, 1, 0), MessageId(1, 1, 1)), [0, 1, 2, 4, 6, 7, 8]),
    "entries that are not there": ((MessageId(0, 1, 0), MessageId(2, 1, 1)), range(9)),
}


@for_each("case", POSITIONS.values())
@for_each("kind", [pb.NONE, pb.LZ4])
def test_positions_with_a_batch_index_cut_their_entry_only(case, kind):
    positions, expected = case
    group = [
        batch_entry(1, number, columns([b"%d" % (3 * number + row) for row in range(3)]), compression=kind)
        for number in range(3)
    ]
    rows = [b"%d" % number for number in expected]
    assert values([group], *positions) == rows
    assert values([group[:1], group[1:]], *positions) == rows
    assert ids([group], *positions) == [divmod(number, 3) for number in expected]


def test_a_position_may_leave_nothing():
    (part,) = decoded([[batch_entry(1, 0, columns([b"a", b"b"]))]], MessageId(1, 0, 1), MessageId(1, 9))
    assert len(part) == 0
    assert part.value.to_pylist() == []


def copied_entry(number, source, values, cluster=b"a", **fields):
    position = [pb.KeyValue(key=b"__MSG_PROP_REPL_SOURCE_POSITION", value=source)]
    return batch_entry(1, number, columns(values), replicated_from=cluster, properties=position, **fields)


def test_copies_that_were_read_in_their_cluster_are_left_out():
    group = [
        copied_entry(0, b"5:1", [b"a", b"b"]),
        batch_entry(1, 1, columns([b"own"])),
        copied_entry(2, b"5:2", [b"c", b"d", b"e"]),
        copied_entry(3, b"5:1", [b"a", b"b"]),
        copied_entry(4, b"5:1", [b"later"], publish_time=2001),
        copied_entry(5, b"5:1", [b"another's"], cluster=b"c"),
        copied_entry(6, b"5:3", [b"f", b"g"]),
        copied_entry(7, b"5:2", [b"c", b"d", b"e"]),
        copied_entry(8, b"5:4", [b"h"]),
    ]
    for groups in ([group], [[each] for each in group]):
        rows = values(groups, copies=[CopyRange("a", MessageId(5, 2, 0), 2000, MessageId(5, 3, 0))])
        assert rows == [b"own", b"d", b"e", b"later", b"another's", b"f", b"d", b"e"]
    both = [CopyRange("a", MessageId(5, 3), 2000), CopyRange("c", MessageId(9, 9), 2000)]
    assert values([group], copies=both) == [b"own", b"later", b"h"]
    cut = values([group], MessageId(1, 2, 1), copies=[CopyRange("a", MessageId(5, 2, 0), 2000)])
    assert cut[:2] == [b"own", b"e"]


def test_compacted_batches_keep_their_indexes_and_are_cut_by_them():
    group = [compacted_entry(1, 0, b"abcd", gone={0, 2}), compacted_entry(1, 1, b"xy", gone={0, 1})]
    assert (values([group]), ids([group])) == ([b"b", b"d"], [(0, 1), (0, 3)])
    assert values([group], MessageId(1, 0, 1)) == [b"d"]
    assert values([group], MessageId(1, 0, 0)) == [b"b", b"d"]
    assert values([group], MessageId(0, 0), MessageId(1, 0, 2)) == [b"b"]


def test_the_index_of_a_position_says_nothing_about_a_single():
    assert values([[single_entry(1, 0, b"v")]], MessageId(1, 0, 0), MessageId(1, 0, 0)) == [b"v"]


# ---- portions


# Rows and bytes of entries, rows and bytes before them, and the cuts at 10 rows or 100 bytes.
CUTS = {
    "no entries": ([], [], 0, 0, []),
    "few": ([3, 3], [10, 10], 0, 0, [(0, 2, False)]),
    "one row missing": ([9], [10], 0, 0, [(0, 1, False)]),
    "just enough rows": ([5, 5, 1], [1, 1, 1], 0, 0, [(0, 2, True), (2, 3, False)]),
    "more than enough": ([5, 9, 1], [1, 1, 1], 0, 0, [(0, 2, True), (2, 3, False)]),
    "rows from before": ([2, 8, 2], [1, 1, 1], 8, 0, [(0, 1, True), (1, 3, True)]),
    "just enough bytes": ([1, 1, 1], [50, 50, 9], 0, 0, [(0, 2, True), (2, 3, False)]),
    "bytes from before": ([1, 1], [10, 90], 0, 90, [(0, 1, True), (1, 2, False)]),
    "a large one first": ([1, 1], [500, 5], 0, 0, [(0, 1, True), (1, 2, False)]),
    "a large one after small ones": (
        [1, 1, 1],
        [5, 100, 5],
        0,
        0,
        [(0, 1, True), (1, 2, True), (2, 3, False)],
    ),
    "a large one after those from before": ([1, 1], [100, 5], 1, 5, [(0, 1, True), (1, 2, False)]),
    "many rows after few": ([1, 50, 1], [1, 1, 1], 0, 0, [(0, 2, True), (2, 3, False)]),
}


@pytest.mark.parametrize("case", CUTS.values(), ids=CUTS.keys())
def test_cuts(case):
    counts, sizes, rows, size, expected = case
    made = decode._cuts(np.array(counts, np.int64), np.array(sizes, np.int64), rows, size, 10, 100)
    assert list(made) == expected


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 300)), max_size=30), st.data())
def test_portions_hold_all_and_end_with_the_entry_that_reaches_a_limit(shapes, data):
    made = [
        batch_entry(1, number, columns([b"x" * size] * count)) for number, (count, size) in enumerate(shapes)
    ]
    cut = data.draw(st.integers(0, len(made)))
    portions = decoded([group for group in (made[:cut], made[cut:]) if group], max_rows=20, max_bytes=1000)
    held = [sorted(set(portion.entry.to_pylist())) for portion in portions]
    assert [number for numbers in held for number in numbers] == list(range(len(made)))
    for portion, numbers in zip(portions, held, strict=True):
        assert len(portion) == sum(shapes[number][0] for number in numbers)
        assert portion.size == sum(size_of(made[number]) for number in numbers)
        assert sum(shapes[number][0] for number in numbers[:-1]) < 20
        assert len(numbers) == 1 or portion.size < 2000
    for portion, numbers in zip(portions[:-1], held, strict=False):
        following = size_of(made[numbers[-1] + 1])
        assert len(portion) >= 20 or portion.size >= 1000 or following >= 1000


def test_a_portion_goes_on_over_groups():
    groups = [[batch_entry(1, number, columns([b"v"] * 10))] for number in range(10)]
    assert [len(part) for part in decoded(groups, max_rows=40)] == [40, 40, 20]


def test_a_huge_entry_is_joined_with_nothing():
    groups = [[single_entry(1, 0, b"s")], [single_entry(1, 1, b"x" * 4000)], [single_entry(1, 2, b"s")]]
    assert [part.value.to_pylist() for part in decoded(groups, max_bytes=1000)] == [
        [b"s"],
        [b"x" * 4000],
        [b"s"],
    ]


@pytest.mark.parametrize("batches", [False, True])
def test_metadata_counts_as_often_as_messages_have_it(batches):
    """Many empty messages with long names, of one producer, would fill the memory of a reader."""
    name = b"n" * 10_000
    if batches:
        group = [batch_entry(1, number, columns([b""] * 10), producer_name=name) for number in range(60)]
    else:
        group = [single_entry(1, number, b"", producer_name=name) for number in range(600)]
    found = decoded([group], max_bytes=1_000_000)
    assert sum(map(len, found)) == 600
    assert max(map(len, found)) <= 110
    assert [entry for part in found for entry in dict.fromkeys(part.entry.to_pylist())] == [
        *range(len(group))
    ]


def test_the_size_of_compressed_payloads_is_the_declared_one():
    group = [batch_entry(1, number, columns([b"x" * 600]), compression=pb.ZSTD) for number in range(4)]
    assert [len(part) for part in decoded([group], max_bytes=1000)] == [2, 2]


def test_no_entries_no_messages():
    assert decoded([]) == []
    assert decoded([[]]) == []


# ---- what is corrupt, or too large


def lz4_entry(number, plain, declared):
    fields = {"num_messages_in_batch": 1, "compression": pb.LZ4, "uncompressed_size": declared}
    return Entry(5, number, metadata(**fields), memoryview(compress(pb.LZ4, plain)), None)


BAD_KEY = {"partition_key": b"not base64!", "partition_key_b64_encoded": True}
CORRUPT = {
    "framing": Entry(5, 6, metadata(num_messages_in_batch=2), memoryview(b"\0\0\0\x02\x18\0"), None),
    "lz4": Entry(5, 6, metadata(compression=pb.LZ4, uncompressed_size=100), memoryview(b"no"), None),
    "zstd": Entry(5, 6, metadata(compression=pb.ZSTD, uncompressed_size=2**31), memoryview(b"no"), None),
    "unknown codec": Entry(
        5,
        6,
        pb.MessageMetadata.FromString(metadata(uncompressed_size=2).SerializeToString() + b"\x40\x63"),
        memoryview(b"no"),
        None,
    ),
    "too many messages": Entry(
        5, 6, metadata(num_messages_in_batch=2**31 - 1), memoryview(b"\0\0\0\x02\x18\0"), None
    ),
    "a bomb of messages": bomb(MAX_MESSAGES + 1),
    "fewer bytes than messages": Entry(
        5, 6, metadata(num_messages_in_batch=100_000), memoryview(b"\0\0\0\x02\x18\0"), None
    ),
    "a single's key": single_entry(5, 6, b"v", **BAD_KEY),
    "a single's key, compressed": entry_of(5, 6, b"v", compression=pb.ZSTD, **BAD_KEY),
    "a batch's key": entry_of(5, 6, b"\0\0\0\x09\x12\x03no!\x18\0\x30\x01", num_messages_in_batch=1),
    "a batch that does not decompress": Entry(
        5,
        6,
        metadata(num_messages_in_batch=1, compression=pb.ZLIB, uncompressed_size=9),
        memoryview(b"no"),
        None,
    ),
}


@pytest.mark.parametrize("entry", CORRUPT.values(), ids=CORRUPT.keys())
def test_a_corrupt_entry_names_topic_and_message(entry):
    single, batch = single_entry(5, 5, b"good"), batch_entry(5, 5, columns([b"good"]))
    for group in ([entry], [single, entry, single], [batch, entry, batch]):
        for groups in ([group], [group[:1], group[1:]]):
            with pytest.raises(CorruptError) as found:
                decoded(groups)
            assert (found.value.topic, found.value.message_id) == (str(TOPIC), "5:6")


@pytest.mark.parametrize("entry", CORRUPT.values(), ids=CORRUPT.keys())
def test_a_corrupt_entry_may_be_left_out_with_a_warning(entry, caplog):
    """Alone, and among others of its kind and of others, once and twice."""
    good = [single_entry(5, 5, b"good"), entry_of(5, 7, b"good", compression=pb.ZSTD)]
    good += [
        batch_entry(5, number, columns([b"good", b"too"]), compression=kind)
        for number, kind in enumerate(CODECS, 8)
    ]
    for group in ([entry], [good[0], entry, *good[1:]], [*good[1:], entry, good[0], entry, *good[::-1]]):
        for groups in ([group], [group[:1], group[1:]], [[one] for one in group]):
            caplog.clear()
            kept = [[one for one in each if one is not entry] for each in groups]
            assert values(groups, leave_out_corrupt=True) == values(kept)
            assert caplog.text.count("an entry that cannot be decoded is left out: [PULSAR_CORRUPT]") == sum(
                one is entry for one in group
            )
            assert f"topic {TOPIC}; message 5:6" in caplog.text


@pytest.mark.parametrize("name", ["decode_batches", "decode_singles"])
@pytest.mark.parametrize("bad", [[0], [999], [499, 500], [3, 250, 777]])
def test_a_corrupt_entry_does_not_have_all_others_decoded_one_by_one(monkeypatch, name, bad):
    real, calls = getattr(decode, name), []
    monkeypatch.setattr(decode, name, lambda *given: calls.append(1) or real(*given))
    fields = {"num_messages_in_batch": 1} if name == "decode_batches" else {}
    plain = b"\0\0\0\x02\x18\1v" if fields else b"v"
    group = [entry_of(5, entry, plain, compression=pb.ZSTD, **fields) for entry in range(1000)]
    for entry in bad:
        group[entry] = group[entry]._replace(payload=memoryview(b"no"))
    assert values([group], leave_out_corrupt=True) == [b"v"] * (1000 - len(bad))
    assert len(calls) < 30 * len(bad)
    with pytest.raises(CorruptError, match=f"message 5:{bad[0]}"):
        decoded([group])


def test_all_corrupt_entries_may_be_left_out(caplog):
    bad = [entry._replace(entry=number) for number, entry in enumerate(CORRUPT.values())]
    assert values([bad], leave_out_corrupt=True) == []
    assert all(f"message 5:{number}\n" in caplog.text for number in range(len(bad)))
    assert "failOnDataLoss" not in caplog.text, "it is set"


def kafka_entry(name=b"kafka", **fields):
    """Records as Kafka-on-Pulsar can store them: a batch of Kafka, which begins with an offset of 8 bytes."""
    records = bytes(8) + (100).to_bytes(4, "big") + bytes(100)
    properties = [pb.KeyValue(key=b"entry.format", value=name)]
    more = {"producer_name": b"", "properties": properties, "num_messages_in_batch": 3, **fields}
    return Entry(5, 6, metadata(**more), memoryview(records), None)


@pytest.mark.parametrize("leave_out_corrupt", [False, True])
@pytest.mark.parametrize(
    "more", [{}, {"num_messages_in_batch": MAX_MESSAGES}], ids=["usual", "refused before"]
)
def test_records_of_kafka_are_told_by_their_format_and_never_left_out(leave_out_corrupt, more):
    good = [batch_entry(5, number, columns([b"good"])) for number in (5, 7)]
    for name in (b"kafka", b"mixed_kafka"):
        for group in ([kafka_entry(name, **more)], [good[0], kafka_entry(name, **more), good[1]]):
            with pytest.raises(
                UnsupportedError, match=rf"format {name.decode()}; topic {TOPIC}; message 5:6"
            ):
                decoded([group], leave_out_corrupt=leave_out_corrupt)


def test_a_message_may_have_a_property_of_any_name():
    properties = [pb.KeyValue(key=b"entry.format", value=b"kafka")]
    single = single_entry(5, 6, b"v", properties=properties)
    assert values([[single, batch_entry(5, 7, columns([b"w"]), properties=properties)]]) == [b"v", b"w"]
    with pytest.raises(CorruptError):
        decoded([[single._replace(metadata=metadata(properties=properties, compression=pb.ZSTD))]])


def test_the_first_of_several_corrupt_entries_is_named():
    bad = CORRUPT["framing"]
    for group in ([bad, bad._replace(entry=7)], [CORRUPT["a single's key"], bad._replace(entry=7)]):
        with pytest.raises(CorruptError, match="message 5:6"):
            decoded([group])


@pytest.mark.parametrize("payload", [b"no", b""])
def test_a_corrupt_entry_among_lz4_ones_is_found(payload):
    good = [batch_entry(5, number, columns([b"good"]), compression=pb.LZ4) for number in (4, 5)]
    bad = lz4_entry(6, b"", 10)._replace(payload=memoryview(payload))
    with pytest.raises(CorruptError, match="message 5:6"):
        decoded([[*good, bad, *good]])


def test_lz4_entries_whose_sizes_are_wrong_but_for_their_sum_are_found():
    """Joined they decompress, and a message does not end where an entry is said to."""
    plain = [encode_batch_messages(columns([value])).buffer.tobytes() for value in (b"a" * 50, b"b" * 70)]
    entries = [
        lz4_entry(6 + number, body, len(body) + more)
        for number, (body, more) in enumerate(zip(plain, (10, -10), strict=True))
    ]
    with pytest.raises(CorruptError, match="message 5:6"):
        decoded([entries])


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


@for_each("claimed", [0, -1, -(10**6), -(1 << 31)])
@for_each("more", [{}, {"num_chunks_from_msg": 2}, {"compression": pb.LZ4, "uncompressed_size": 9}])
@for_each("before", [0, 1, 30])
def test_a_batch_of_no_messages_is_refused_alone_and_among_others(claimed, more, before):
    good = [single_entry(5, entry, b"%d" % entry) for entry in range(before + 1)]
    group = [*good[:before], entry_of(5, 99, b"bad", num_messages_in_batch=claimed, **more), good[before]]
    with pytest.raises(CorruptError, match=r"a batch of no messages.* message 5:99"):
        decoded([group])
    assert values([group], leave_out_corrupt=True) == [b"%d" % entry for entry in range(before + 1)]


@pytest.mark.parametrize("kind", [pb.NONE, pb.ZSTD])
def test_a_batch_in_a_chunked_message_is_refused(kind):
    plain = encode_batch_messages(columns([b"a", b"b"])).buffer.tobytes()
    chunked = {"num_messages_in_batch": 2, "num_chunks_from_msg": 2}
    with pytest.raises(CorruptError, match="a batch in a chunked message"):
        decoded([[entry_of(5, 6, plain, compression=kind, **chunked)]])


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
    for part in decode_entries(TOPIC, [Entries.of([entry])], max_rows=10_000, max_bytes=6 << 20):
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


@pytest.mark.parametrize("messages", [3, 30])  # few are scanned, many alike are read at once
@pytest.mark.parametrize("left_out", ["compacted", "before the start"])
@pytest.mark.parametrize("is_base64", [False, True])
def test_no_row_of_a_batch_is_left(messages, left_out, is_base64):
    """The next entry's rows are read, with all their columns."""
    fields = {
        "partition_key": b"a2V5",
        "partition_key_b64_encoded": is_base64,
        "ordering_key": b"order",
        "event_time": 7,
        "sequence_id": 8,
        "properties": [pb.KeyValue(key=b"name", value=b"text")],
        "compacted_out": left_out == "compacted",
    }
    head = pb.SingleMessageMetadata(payload_size=1, **fields).SerializeToString()
    batch = entry_of(
        1, 1, (len(head).to_bytes(4, "big") + head + b"v") * messages, num_messages_in_batch=messages
    )
    start = MessageId(1, 1, messages - 1) if left_out == "before the start" else None
    for entries, keys in ([batch], []), ([batch, single_entry(1, 2, b"w", partition_key=b"k")], [b"k"]):
        parts = decoded([entries], start)
        for part in parts:
            for column in (part.ordering_key, part.properties, part.event_time, part.sequence_id):
                assert column is None or not any(column.to_pylist())
            assert len(part) == len(part.key) == len(part.value)
        assert [key for part in parts for key in part.key.to_pylist()] == keys
        assert [value for part in parts for value in part.value.to_pylist()] == [b"w"] * len(keys)
