"""Serialized message ids are what protobuf writes, and what it writes is read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns import message_ids
from pulsar_spark.wire.columns.message_ids import (
    KEPT_SIZE,
    parse_message_id,
    serialize_chunked_id,
    serialize_ids,
)
from pulsar_spark.wire.wire_values import varint

U62 = st.integers(0, 300) | st.integers(0, 2**62)
# Sizes around those where the index of a message takes one byte more.
SIZES = st.integers(0, 3) | st.sampled_from([127, 128, 129, 300])
ENTRIES = st.lists(st.tuples(st.sampled_from([3, 2**40]) | U62, U62, SIZES), max_size=8)
PARTITIONS = st.integers(-1, 200)


def by_protobuf(ledger, entry, partition, index=None, size=0, first=None):
    data = pb.MessageIdData(ledgerId=ledger, entryId=entry)
    if partition >= 0:
        data.partition = partition
    if index is not None:
        data.batch_index, data.batch_size = index, size
    if first is not None:
        data.first_chunk_message_id.ParseFromString(first)
    return data.SerializeToString()


def serialized(entries, partition):
    ledger, entry, sizes = np.array(entries, np.int64).reshape(-1, 3).T
    ids = serialize_ids(ledger, entry, sizes, partition)
    ids.validate(full=True)
    return ids.to_pylist()


@given(ENTRIES, PARTITIONS)
def test_they_are_what_protobuf_writes(entries, partition):
    expected = []
    for ledger, entry, size in entries:
        if size == 0:
            expected.append(by_protobuf(ledger, entry, partition))
        expected += [by_protobuf(ledger, entry, partition, index, size) for index in range(size)]
    assert serialized(entries, partition) == expected


@given(ENTRIES.filter(bool), PARTITIONS)
def test_many_kinds_of_entries_have_the_ids_of_each_alone(entries, partition):
    """They are made in one call; a few kinds are made one by one."""
    ledger, entry, sizes = np.array(entries, np.int64).T
    partitions = np.resize([partition, -1, 7, 300], len(entries))
    ids = serialize_ids(ledger, entry, sizes, partitions)
    alone = [serialized([one], own) for one, own in zip(entries, partitions.tolist(), strict=True)]
    assert ids.to_pylist() == [each for one in alone for each in one]


def test_many_kinds_are_made_at_once(monkeypatch):
    monkeypatch.setattr(message_ids, "_alike", lambda *_: pytest.fail("made one by one"))
    assert len(serialized([(1, entry, entry % 3) for entry in range(100)], 0)) == 34 + 33 + 66


@pytest.mark.parametrize("size", [KEPT_SIZE, KEPT_SIZE + 1])
def test_a_batch_of_any_size_counts_from_0_to_its_last_message(size):
    ids = serialized([(1, 2, size)], 3)
    assert [pb.MessageIdData.FromString(each).batch_index for each in ids] == list(range(size))
    assert ids[-1] == by_protobuf(1, 2, 3, size - 1, size)


@given(U62, U62, U62, U62, PARTITIONS)
def test_the_id_of_a_chunked_message_holds_that_of_its_first_chunk(ledger, entry, first, at, partition):
    made = serialize_chunked_id(MessageId(ledger, entry), MessageId(first, at), partition)
    assert made == by_protobuf(ledger, entry, partition, first=by_protobuf(first, at, partition))


@given(st.integers(-1, 2**63), st.integers(-1, 2**63), st.integers(-1, 2**31 - 1))
def test_what_java_writes_is_read(ledger, entry, index):
    data = pb.MessageIdData(ledgerId=ledger % 2**64, entryId=entry % 2**64, batch_index=index)
    assert parse_message_id(data.SerializeToString()) == MessageId(ledger, entry, index)


def test_an_index_below_minus_one_is_the_whole_entry():
    data = pb.MessageIdData(ledgerId=1, entryId=2, batch_index=-5)
    assert parse_message_id(data.SerializeToString()) == MessageId(1, 2)


@pytest.mark.parametrize("data", [b"\x08", b"\xff", b"no id", b"\x13" * 3000])
def test_what_is_no_id_is_a_value_error(data):
    with pytest.raises(ValueError, match=r"MessageIdData|group|message"):
        parse_message_id(data)


@pytest.mark.parametrize("data", [b"", b"\x08\x01", b"\x10\x01", b"\x08\x01\x10\x02\x3a\x00"])
def test_what_lacks_a_ledger_or_an_entry_is_a_value_error(data):
    with pytest.raises(ValueError, match="without ledger or entry"):
        parse_message_id(data)


EDGES = [0, *(2 ** (7 * size) + by for size in range(1, 9) for by in (-1, 0, 1))]


@pytest.mark.parametrize("kind", [1, 40])
def test_a_number_takes_another_byte_from_each_power_of_128_on(kind):
    """127 and 128, 16,383 and 16,384, ...: in few kinds of entries and in many."""
    assert message_ids._widths(np.array(EDGES)).tolist() == [len(varint(number)) for number in EDGES]
    entries = [(ledger, entry, 0) for entry in EDGES for ledger in range(kind)]
    assert serialized(entries, -1) == [by_protobuf(ledger, entry, -1) for ledger, entry, _ in entries]


def test_ledger_0_is_a_ledger():
    assert parse_message_id(by_protobuf(0, 0, -1)) == MessageId(0, 0)
    assert serialized([(0, 0, 2)], 0) == [by_protobuf(0, 0, 0, index, 2) for index in (0, 1)]
