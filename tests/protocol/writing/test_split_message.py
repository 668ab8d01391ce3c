"""SplitMessage: nothing is lost, nothing is too large, and each attempt is a message of its own."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.writing.pending import EntryKind, MemoryBudget, PendingWindow, SplitMessage
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import decode_payload_section

METADATA = pb.MessageMetadata(producer_name=b"p", sequence_id=7, publish_time=5, partition_key=b"k")


def chunks(payload, max_size, attempt="1"):
    return SplitMessage("p-7", attempt, (7, 7), METADATA.SerializeToString(), payload, max_size)


def told(entry):
    return decode_payload_section(memoryview(entry.head + bytes(entry.payload))).metadata


@given(st.integers(1, 500), st.integers(60, 200))
def test_the_parts_are_the_whole(size, max_size):
    payload = random.Random(size).randbytes(size)
    entries = chunks(payload, max_size).entries
    assert b"".join(entry.payload for entry in entries) == payload
    assert all(entry.size <= max_size + 10 for entry in entries)
    assert all(entry.size == len(entry.head) + len(entry.payload) for entry in entries)
    for number, entry in enumerate(entries):
        expected = pb.MessageMetadata(
            uuid=b"p-7-1",
            num_chunks_from_msg=len(entries),
            total_chunk_msg_size=len(payload),
            chunk_id=number,
        )
        expected.MergeFrom(METADATA)
        assert told(entry) == expected
        assert entry.sequence_id == entry.highest_sequence_id == 7
    assert [entry.kind for entry in entries] == [EntryKind.CHUNK] * (len(entries) - 1) + [
        EntryKind.LAST_CHUNK
    ]


def test_all_but_the_last_are_full():
    sizes = [len(entry.payload) for entry in chunks(b"x" * 1000, 100).entries]
    assert len(set(sizes[:-1])) == 1
    assert 0 < sizes[-1] <= sizes[0]


def test_payloads_are_views():
    payload = b"x" * 1000
    assert all(entry.payload.obj is payload for entry in chunks(payload, 100).entries)


def test_metadata_that_leave_no_room():
    with pytest.raises(ValueError, match="too few for a chunk"):
        chunks(b"x" * 1000, 30)


# ---- another attempt


def pending(entries, acknowledged):
    window = PendingWindow("persistent://a/b/t", 1000, MemoryBudget(10**6), 30)
    for place, entry in enumerate(entries):
        window.push(entry, 100.0 + place)
    for entry in entries[:acknowledged]:
        window.acknowledged(entry.sequence_id)
    return window


@pytest.mark.parametrize("acknowledged", [0, 1, 4])
@pytest.mark.parametrize("pushed", [5, 10])
def test_after_a_reconnect_the_message_begins_again_as_another_one(pushed, acknowledged):
    entries = chunks(b"x" * 800, 100).entries
    assert len(entries) > 10
    window = pending(entries[:pushed], acknowledged)
    assert window.again("2", 200.0) == entries[:pushed]
    assert {told(entry).uuid for entry in entries} == {b"p-7-2"}  # also of those that are not sent yet
    assert all(entry.intact for entry in entries)
    assert window.due_at == 130.0 + acknowledged
    for entry in entries[:pushed]:
        assert window.acknowledged(entry.sequence_id) is entry


def test_when_all_that_was_sent_is_acknowledged_its_time_begins_again():
    window = pending(chunks(b"x" * 800, 100).entries[:3], 3)
    assert window.due_at is None
    assert len(window.again("2", 200.0)) == 3
    assert window.due_at == 230.0


def test_a_message_that_is_whole_is_not_sent_again():
    first, second = chunks(b"x" * 100, 100).entries, chunks(b"x" * 100, 100).entries
    window = pending([*first, *second], len(first))
    assert window.again("2", 200.0) == second
    assert {told(entry).uuid for entry in first} == {b"p-7-1"}
