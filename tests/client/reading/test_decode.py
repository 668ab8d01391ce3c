"""What is decoded of entries, and in which portions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client.reading import decode
from pulsar_spark.client.reading.decode import RangeEntries
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.copies import CopyRange
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import decode_batches
from pulsar_spark.wire.entry.entries import Entries
from tests.client.reading.decoded_entries import CODECS, decoded, decoded_ranges, values
from tests.client.reading.stored_entries import (
    TOPIC,
    batch_entry,
    columns,
    compacted_entry,
    entry_of,
    single_entry,
)
from tests.loops import for_each


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


@pytest.mark.parametrize("kind", [pb.LZ4, pb.ZSTD])
def test_small_entries_are_decoded_in_one_call(kind, monkeypatch):
    calls = []

    def counted(*given):
        calls.append(given)
        return decode_batches(*given)

    monkeypatch.setattr(decode, "decode_batches", counted)
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


def test_two_ranges_may_share_an_entry():
    """Each reads its own part of it, also where both are decoded together."""
    entries = Entries.of([batch_entry(1, 0, columns([b"%d" % row for row in range(6)]))])
    middle, other = MessageId(1, 0, 2), TOPIC.base.of_partition(9)
    ranges = [
        RangeEntries(TOPIC, [entries], end=middle),
        RangeEntries(TOPIC, [entries], middle, MessageId(1, 0, 4)),
        RangeEntries(other, [entries], MessageId(1, 0, 4)),
        RangeEntries(other, [entries]),
    ]
    first, rest = decoded_ranges(ranges)
    assert first.value.to_pylist() == [b"0", b"1", b"2"]
    assert rest.value.to_pylist() == [b"3", b"4", b"5", *(b"%d" % row for row in range(6))]
    assert rest.topics == [(TOPIC, 2), (other, 1), (other, 6)]


def test_ranges_are_decoded_together_for_a_while():
    """The first is decoded at once; each has a fixed cost."""
    now = iter([0, 1, 1.05, 1.1, 2, 2.05, 2.09, 2.095])
    ranges = [
        RangeEntries(TOPIC.base.of_partition(number), [Entries.of([single_entry(1, number, b"%d" % number)])])
        for number in range(6)
    ]
    found = decoded_ranges(ranges, clock=lambda: next(now))
    assert [part.value.to_pylist() for part in found] == [[b"0"], [b"1", b"2"], [b"3", b"4", b"5"]]
    assert [[topic.partition for topic, _ in part.topics] for part in found] == [[0], [1, 2], [3, 4, 5]]
    few = decoded_ranges(ranges, max_rows=2, clock=lambda: 0)
    assert [part.value.to_pylist() for part in few] == [[b"0"], [b"1", b"2"], [b"3", b"4"], [b"5"]]


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
        rows = values(groups, copies=CopyRange("a", MessageId(5, 2, 0), 2000, MessageId(5, 3, 0)))
        assert rows == [b"own", b"d", b"e", b"later", b"another's", b"f", b"d", b"e"]
    cut = values([group], MessageId(1, 2, 1), copies=CopyRange("a", MessageId(5, 2, 0), 2000))
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
