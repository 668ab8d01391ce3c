"""Groups of messages that have one key: by partition, in the order in which keys come first, stable."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow.join import EncodedMessages
from pulsar_spark.protocol.writing.key_groups import KeyWindow, begin_keys, group_by_key, keyed_rows
from pulsar_spark.wire.columns.message_columns import MessageColumns
from tests.loops import for_each

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
    body, offsets, bounds, starts = group_by_key(rows, partitions)
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
