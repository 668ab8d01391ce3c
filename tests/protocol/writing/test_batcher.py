"""Batches: the room rule, and that nothing is lost, doubled or moved."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_spark.arrow.join import EncodedMessages
from pulsar_spark.protocol.writing.batcher import (
    Batcher,
    KeyWindow,
    begin_keys,
    in_order,
    keyed_rows,
    order_by_key,
)
from pulsar_spark.wire.columns.message_columns import MessageColumns
from tests.loops import for_each


def encoded(sizes, before=0) -> tuple[memoryview, np.ndarray]:
    """Messages of these sizes in one buffer, after ``before`` bytes of others."""
    offsets = np.cumsum([before, *sizes], dtype=np.int64)
    body = bytes(number % 251 for number in range(int(offsets[-1])))
    return memoryview(body), offsets


def content(batch):
    return b"".join(bytes(part) for part in batch.parts)


def greedy(sizes, max_messages, max_bytes):
    """The room rule, message by message: a message that finds no room begins the next batch."""
    batches = [[]]
    for size in sizes:
        fits = sum(batches[-1]) + size <= max_bytes and (max_messages <= 0 or len(batches[-1]) < max_messages)
        if batches[-1] and not fits:
            batches.append([])
        batches[-1].append(size)
    return [batch for batch in batches if batch]


limits = st.integers(-1, 6)
byte_limits = st.integers(1, 60)
message_sizes = st.lists(st.integers(1, 30) | st.integers(1, 100), max_size=30)


@given(st.lists(message_sizes, max_size=5), limits, byte_limits, st.integers(0, 5))
def test_the_room_rule_however_the_messages_come(groups, max_messages, max_bytes, before):
    batcher = Batcher(max_messages, max_bytes, 1.0)
    batches, stream = [], b""
    for group in groups:
        body, offsets = encoded(group, before)
        batches += batcher.add(body, offsets, 0.0)
        stream += bytes(body[before:])
    batches += batcher.take()
    sizes = [size for group in groups for size in group]
    expected = greedy(sizes, max_messages, max_bytes)
    assert [(batch.messages, batch.size) for batch in batches] == [(len(one), sum(one)) for one in expected]
    assert b"".join(content(batch) for batch in batches) == stream
    for batch in batches:
        assert len(content(batch)) == batch.size
        assert batch.messages == 1 or batch.size <= max_bytes
        assert max_messages <= 0 or batch.messages <= max_messages
    assert batcher.take() == []


@given(message_sizes, limits, byte_limits)
@example([1] * 6, 3, 60)
@example([1] * 6, 1, 60)
@example([20] * 6, 0, 60)
def test_what_is_full_is_not_held_back(sizes, max_messages, max_bytes):
    batcher = Batcher(max_messages, max_bytes, 1.0)
    batcher.add(*encoded(sizes), 0.0)
    for left in batcher.take():
        assert left.size < max_bytes
        assert max_messages <= 0 or left.messages < max_messages


def test_a_message_that_fills_the_batch_to_the_byte_has_room():
    batcher = Batcher(1000, 10, 1.0)
    assert batcher.add(*encoded([4, 5]), 0.0) == []
    (batch,) = batcher.add(*encoded([1]), 0.0)
    assert (batch.messages, batch.size) == (3, 10)


def test_one_byte_more_has_none():
    batcher = Batcher(1000, 10, 1.0)
    assert batcher.add(*encoded([4, 5]), 0.0) == []
    (batch,) = batcher.add(*encoded([2]), 0.0)
    assert (batch.messages, batch.size) == (2, 9)
    assert [batch.messages for batch in batcher.take() + batcher.take()] == [1]


@pytest.mark.parametrize("large", [11, 1000])
def test_a_large_message_is_a_batch_of_its_own(large):
    batcher = Batcher(1000, 10, 1.0)
    batches = batcher.add(*encoded([3, large, 3]), 0.0)
    assert [(batch.messages, batch.size) for batch in batches] == [(1, 3), (1, large)]
    assert batcher.take()[0].size == 3


@pytest.mark.parametrize("limit", [0, -1, 10**6])
def test_no_batch_has_more_messages_than_readers_accept(limit):
    batcher = Batcher(limit, 10**6, 1.0)
    assert batcher.add(*encoded([1] * 5000), 0.0) == []
    (batch,) = batcher.add(*encoded([1] * 99_000), 0.0)
    assert batch.messages == 100_000
    assert batcher.take()[0].messages == 4000


def test_messages_are_not_copied():
    body, offsets = encoded([3, 4, 5])
    batcher = Batcher(1000, 1000, 1.0)
    batcher.add(body, offsets, 0.0)
    (part,) = batcher.take()[0].parts
    assert part.obj is body.obj


def test_nothing_added():
    batcher = Batcher(10, 10, 1.0)
    assert batcher.add(*encoded([]), 5.0) == []
    assert batcher.due_at is None
    assert batcher.take() == []


def test_time_counts_from_the_first_message():
    batcher = Batcher(3, 100, 0.5)
    assert batcher.due_at is None
    batcher.add(*encoded([1]), 10.0)
    assert batcher.due_at == 10.5
    batcher.add(*encoded([1]), 10.2)
    assert batcher.due_at == 10.5
    # Three close the batch, the fourth opens the next.
    assert len(batcher.add(*encoded([1, 1]), 10.4)) == 1
    assert batcher.due_at == 10.9
    batcher.take()
    assert batcher.due_at is None
    batcher.add(*encoded([1]), 20.0)
    assert batcher.due_at == 20.5


def test_a_batch_that_closed_by_itself_is_not_due():
    batcher = Batcher(2, 100, 0.5)
    assert len(batcher.add(*encoded([1, 1]), 10.0)) == 1
    assert batcher.due_at is None


def test_batches_tell_the_first_and_last_of_their_own_ids():
    batcher = Batcher(3, 1000, 1.0)
    offsets = np.arange(6)
    closed = batcher.add(memoryview(b"abcde"), offsets, 0.0, np.array([2, 3, 7, 8, 11]))
    assert [batch.sequence_ids for batch in closed] == [(2, 7)]
    closed = batcher.add(memoryview(b"f"), np.arange(2), 0.0, np.array([12]))
    assert [batch.sequence_ids for batch in closed] == [(8, 12)]
    batcher.add(memoryview(b"abcde"), offsets[:3], 0.0)
    assert batcher.take()[0].sequence_ids is None


@pytest.mark.parametrize(
    ("max_bytes", "fits", "messages"),
    [(0, 200, 4), (-1, 200, 4), (10**6, 200, 4), (112, 200, 2), (1, 200, 1)],
)
def test_batches_fit_into_the_brokers_largest_message(max_bytes, fits, messages):
    batcher = Batcher(0, max_bytes, 0.5)
    assert batcher.take() == []
    assert batcher.fit(fits, 1000) == []
    assert batcher.fit(fits * 2, 1000) == []  # another broker takes more
    batches = batcher.add(*encoded([50] * 9), 0.0)
    assert [batch.messages for batch in batches] == [messages] * (9 // messages)


@pytest.mark.parametrize(("max_messages", "fits", "messages"), [(1000, 3, 3), (0, 3, 3), (2, 3, 2)])
def test_batches_fit_into_the_pending_window(max_messages, fits, messages):
    batcher = Batcher(max_messages, 10**6, 0.5)
    batcher.fit(1000, fits)
    batches = batcher.add(*encoded([50] * 6), 0.0) + batcher.take()
    assert [batch.messages for batch in batches] == [messages] * (6 // messages)


def test_an_open_batch_that_no_longer_fits_is_closed():
    batcher = Batcher(1000, 1000, 0.5)
    batcher.add(*encoded([50] * 4), 0.0)
    assert batcher.fit(200, 1000) == []
    assert [batch.messages for batch in batcher.fit(199, 1000)] == [4]
    assert batcher.take() == []
    batcher.fit(-5, 1000)  # no room but for the metadata: each message alone
    assert [batch.messages for batch in batcher.add(*encoded([50] * 3), 0.0)] == [1] * 3


# ---- groups


@given(
    st.lists(message_sizes.filter(bool), max_size=5), limits, byte_limits, st.integers(0, 5), message_sizes
)
def test_groups_are_cut_one_by_one(groups, max_messages, max_bytes, before, open_sizes):
    """What is open goes first, and nothing stays open; no batch has messages of two groups."""
    batcher = Batcher(max_messages, max_bytes, 1.0)
    open_before = batcher.add(*encoded(open_sizes), 0.0)
    body, offsets = encoded([size for group in groups for size in group], before)
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    batches = open_before + batcher.add_groups(body, offsets, starts)
    expected = [greedy(group, max_messages, max_bytes) for group in [open_sizes, *groups]]
    assert [(batch.messages, batch.size) for batch in batches] == [
        (len(one), sum(one)) for group in expected for one in group
    ]
    sent = b"".join(content(batch) for batch in batches)
    assert sent == bytes(encoded(open_sizes)[0]) + bytes(body[before:])
    assert batcher.take() == []
    assert batcher.due_at is None


KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"\xff"]) | st.binary(max_size=2)
ROWS = st.lists(st.tuples(st.integers(0, 3), KEYS, KEYS), max_size=30)


def columns_of(rows, *, has_ordering_keys=True):
    return MessageColumns(
        value=pa.nulls(len(rows), pa.binary()),
        key=pa.array([key for _, key, _ in rows], pa.binary()),
        ordering_key=pa.array([key for *_, key in rows], pa.binary()) if has_ordering_keys else None,
    )


def keyed(rows, messages, *, has_ordering_keys=True):
    body = b"".join(messages)
    encoded = EncodedMessages(memoryview(body), np.cumsum([0, *map(len, messages)], dtype=np.int64))
    partitions = np.array([partition for partition, *_ in rows], np.int32)
    return keyed_rows(columns_of(rows, has_ordering_keys=has_ordering_keys), encoded, partitions)


def numbered(count):
    """Messages of 5 bytes."""
    return [b"%05d" % number for number in range(count)]


def grouped(rows, partitions):
    """The numbers of the messages, by partition and key."""
    order, bounds, starts = order_by_key(rows, partitions)
    encoded = in_order(rows.messages, order)
    body, offsets = encoded.buffer, encoded.offsets
    found = []
    for (first, last), begins in zip(pairwise(bounds), starts, strict=True):
        own = [int(bytes(body[start:end])) for start, end in pairwise(offsets[first : last + 1].tolist())]
        found.append([own[begin:end] for begin, end in pairwise([*begins.tolist(), len(own)])])
    return found


def sticky(row, *, has_ordering_keys=True):
    """The bytes by which a broker chooses a consumer."""
    _, key, ordering_key = row
    return ordering_key if has_ordering_keys and ordering_key is not None else key


@given(ROWS.filter(bool), st.booleans(), st.integers(0, 2))
def test_groups_are_those_of_a_dictionary(rows, has_ordering_keys, before):
    """Also where rows are a slice of others."""
    expected = [{} for _ in range(4)]
    for number, row in enumerate(rows, before):
        key = sticky(row, has_ordering_keys=has_ordering_keys)
        expected[row[0]].setdefault(key, []).append(number)
    longer = [(0, b"before", None)] * before + rows + [(1, b"after", None)]
    held = keyed(longer, numbered(len(longer)), has_ordering_keys=has_ordering_keys)
    found = grouped(held.slice(before, before + len(rows)), 4)
    in_order = list(dict.fromkeys(sticky(row, has_ordering_keys=has_ordering_keys) for row in rows))
    assert found == [[groups[key] for key in in_order if key in groups] for groups in expected]


def test_more_keys_than_sixteen_bits_number():
    count = 70_000
    rows = [(number % 2, b"%d" % number, None) for number in range(count)]
    found = grouped(keyed(rows, numbered(count)), 2)
    assert found == [[[number] for number in range(part, count, 2)] for part in range(2)]


def test_many_messages_of_a_key_keep_their_order():
    rows = [(0, b"%d" % (number % 7), None) for number in range(5000)]
    assert grouped(keyed(rows, numbered(5000)), 1) == [[[*range(key, 5000, 7)] for key in range(7)]]


def windows_of(portions, max_bytes):
    """The messages of each window."""
    window, found = KeyWindow(max_bytes), []
    for rows, messages in portions:
        found += window.add(keyed(rows, messages))
    last = window.take()
    assert window.take() is None
    return [
        (one.messages.to_pylist(), one.keys.to_pylist(), one.partitions.tolist())
        for one in [*found, last]
        if one
    ]


@for_each("seed", range(100))
def test_windows_are_the_same_in_whatever_portions_rows_come(seed):
    chance = random.Random(seed)
    sizes, cuts = chance.choices(range(1, 10), k=chance.randrange(31)), chance.choices(range(31), k=seed % 6)
    max_bytes = chance.randrange(1, 26)
    messages = [bytes([number]) * size for number, size in enumerate(sizes)]
    rows = [(number % 3, b"%d" % (number % 4), None) for number in range(len(sizes))]
    edges = [0, *sorted(min(cut, len(sizes)) for cut in cuts), len(sizes)]
    portions = [(rows[first:last], messages[first:last]) for first, last in pairwise(edges)]
    found = windows_of(portions, max_bytes)
    assert found == windows_of([(rows, messages)], max_bytes)
    assert [message for held, *_ in found for message in held] == messages
    assert [key for _, keys, _ in found for key in keys] == [key for _, key, _ in rows]
    assert [partition for *_, held in found for partition in held] == [partition for partition, *_ in rows]
    for held, *_ in found:
        assert len(held) == 1 or sum(map(len, held)) <= max_bytes
    for (held, *_), (following, *_) in pairwise(found):
        assert sum(map(len, held)) + len(following[0]) > max_bytes


def test_what_is_held_does_not_keep_what_was_given_in_memory():
    """A task has a window for each of its topics, and rows may come by topic, in large portions."""
    window = KeyWindow(100)
    assert len(list(window.add(keyed([(0, b"k" * 9, None)] * 1001, numbered(1001))))) == 50
    held = window.take()
    assert bytes(held.messages[0].as_py()) == b"01000"
    assert held.messages.get_total_buffer_size() < 1000
    assert held.keys.get_total_buffer_size() < 1000
    assert held.partitions.base is None


@pytest.mark.parametrize("max_bytes", [4, 5, 9])
def test_a_message_larger_than_a_window_is_one(max_bytes):
    rows = [(0, b"k", None)] * 3
    assert [held for held, *_ in windows_of([(rows, numbered(3))], max_bytes)] == [
        [one] for one in numbered(3)
    ]


@given(ROWS)
def test_what_keeps_its_order_is_cut_where_the_key_changes(rows):
    rows.sort(key=lambda row: row[0])
    bounds = np.searchsorted([partition for partition, *_ in rows], np.arange(5))
    columns, order = columns_of(rows), np.arange(len(rows))
    found = begin_keys(columns, order, bounds)
    back = order[::-1]
    assert begin_keys(columns.take(pa.array(back)), back, bounds).tolist() == found.tolist()
    assert found.tolist() == [
        number == 0 or row[0] != rows[number - 1][0] or sticky(row) != sticky(rows[number - 1])
        for number, row in enumerate(rows)
    ]


# ---- bucket hashes


def test_a_batch_has_the_range_of_its_messages_hashes():
    body, offsets = encoded([10] * 5)
    hashes = np.array([7, 3, 9, 4, 8], np.uint32)
    batcher = Batcher(2, 1000, 1.0)
    closed = batcher.add(body, offsets[:2], 0.0, hashes=hashes[:1])
    closed += batcher.add(body, offsets[1:], 0.0, hashes=hashes[1:])
    assert [batch.hashes for batch in [*closed, *batcher.take()]] == [(3, 7), (4, 9), (8, 8)]


def test_groups_have_their_own_ranges_of_hashes():
    body, offsets = encoded([10] * 5)
    hashes = np.array([7, 3, 9, 4, 8], np.uint32)
    closed = Batcher(2, 1000, 1.0).add_groups(body, offsets, np.array([0, 1]), hashes)
    assert [batch.hashes for batch in closed] == [(7, 7), (3, 9), (4, 8)]
