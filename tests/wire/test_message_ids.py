"""Serialized ids are what protobuf writes, and are read back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.message_ids import parse_message_id, serialize_chunked_id, serialize_ids

PARTITIONS = st.sampled_from([-1, 0, 300])


def expected_id(ledger, entry, partition, **more):
    made = pb.MessageIdData(ledgerId=ledger, entryId=entry, **more)
    if partition >= 0:
        made.partition = partition
    return made


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 5, 2**40]), st.integers(0, 2**30), st.integers(0, 300)), max_size=20
    ),
    PARTITIONS,
)
def test_message_ids_are_those_of_protobuf(entries, partition):
    ledger, entry, sizes = (np.array([one[place] for one in entries], np.int64) for place in range(3))
    expected = [
        expected_id(
            ledger_id, entry_id, partition, **({"batch_index": index, "batch_size": size} if size else {})
        ).SerializeToString()
        for ledger_id, entry_id, size in entries
        for index in range(size or 1)
    ]
    assert serialize_ids(ledger, entry, sizes, partition).to_pylist() == expected


@given(st.integers(0, 2**40), st.integers(0, 2**40), PARTITIONS)
def test_the_id_of_a_chunked_message_is_that_of_protobuf(ledger, entry, partition):
    first = expected_id(7, 300, partition)
    expected = expected_id(ledger, entry, partition, first_chunk_message_id=first)
    made = serialize_chunked_id(MessageId(ledger, entry), MessageId(7, 300), partition)
    assert made == expected.SerializeToString()
    assert parse_message_id(made) == MessageId(ledger, entry)


@pytest.mark.parametrize(
    "fields",
    [(5, 6, -1), (5, 6, 0), (5, 6, 7), (-1, -1, -1), (2**62, 2**62, 2**31 - 1)],
)
def test_ids_are_read_back(fields):
    ledger, entry, batch_index = fields
    made = pb.MessageIdData(ledgerId=ledger % 2**64, entryId=entry % 2**64, batch_index=batch_index)
    assert parse_message_id(made.SerializeToString()) == MessageId(*fields)


@pytest.mark.parametrize("data", [b"\x08", b"\xff\xff"])
def test_other_bytes_are_no_id(data):
    with pytest.raises(ValueError, match=r".+"):
        parse_message_id(data)
