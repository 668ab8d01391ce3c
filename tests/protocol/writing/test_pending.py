"""Outgoing entries: frames and sizes. The pending window: room, order, receipts, the send timeout."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import NotReadyError, ProtocolError, SendError
from pulsar_spark.protocol.writing.pending import EntryKind, MemoryBudget, PendingWindow, SendTimeoutError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_section_head
from tests.protocol.writing.partition_writers import (
    MAX_MESSAGE,
    chunk,
    entry_of,
    new_packer,
    outgoing,
    singles,
)


def window(max_messages=1000, max_bytes=10**6, send_timeout=30):
    return PendingWindow("persistent://a/b/t", max_messages, MemoryBudget(max_bytes), send_timeout)


# ---- room


@pytest.mark.parametrize(
    ("messages", "size", "room"),
    [(4, 60, True), (1, 1, True), (5, 60, False), (4, 61, False), (5, 1, False), (1, 61, False)],
)
def test_room(messages, size, room):
    pending = window(max_messages=10, max_bytes=100)
    pending.push(outgoing(0, 4, 30), 0.0)
    pending.push(outgoing(4, 2, 10), 0.0)
    assert pending.has_room(outgoing(99, messages, size)) == room


def test_room_comes_back_with_receipts():
    pending = window(max_messages=10, max_bytes=100)
    pending.push(outgoing(0, 6, 70), 0.0)
    pending.push(outgoing(6, 4, 30), 0.0)
    assert not pending.has_room(outgoing(99, 1, 1))
    pending.acknowledged(0)
    assert pending.has_room(outgoing(99, 6, 70))
    assert not pending.has_room(outgoing(99, 7, 70))
    assert not pending.has_room(outgoing(99, 6, 71))


def test_what_is_larger_than_the_window_waits_until_it_is_empty():
    pending = window(max_messages=10, max_bytes=100)
    assert pending.has_room(outgoing(99, 11, 1))
    assert pending.has_room(outgoing(99, 1, 101))
    pending.push(outgoing(0), 0.0)
    assert not pending.has_room(outgoing(99, 11, 1))
    assert not pending.has_room(outgoing(99, 1, 101))


def test_ids_that_do_not_grow_wait_until_all_before_is_acknowledged():
    pending = window()
    pending.push(outgoing(5, 3), 0.0)
    assert pending.has_room(outgoing(8))
    assert not pending.has_room(outgoing(7))
    assert not pending.has_room(outgoing(4))
    pending.acknowledged(5)
    assert pending.has_room(outgoing(4))
    pending.push(outgoing(4), 0.0)
    assert pending.has_room(outgoing(5))


def test_chunks_of_one_message_share_its_id():
    pending = window()
    pending.push(chunk(5), 0.0)
    assert not pending.has_room(chunk(4))
    assert pending.has_room(chunk(5, EntryKind.LAST_CHUNK))
    pending.push(chunk(5, EntryKind.LAST_CHUNK), 0.0)
    assert not pending.has_room(chunk(5))  # another message by that id
    assert pending.has_room(chunk(6))


# ---- receipts


def test_each_chunk_has_a_receipt():
    pending = window()
    chunks = [chunk(5), chunk(5), chunk(5, EntryKind.LAST_CHUNK), outgoing(6)]
    for entry in chunks:
        pending.push(entry, 0.0)
    assert [pending.acknowledged(number) for number in (5, 5, 5, 6)] == chunks
    assert not pending


def test_acknowledged_chunks_that_are_sent_again_take_room_again():
    pending = window(max_bytes=100)
    for entry in (chunk(5), chunk(5), chunk(5, EntryKind.LAST_CHUNK), outgoing(6, size=59)):
        pending.push(entry, 0.0)
    assert pending.acknowledged(5)
    assert pending.acknowledged(5)
    assert pending.has_room(outgoing(7, size=30))
    assert [entry.sequence_id for entry in pending.again("2", 0.0)] == [5, 5, 5, 6]
    assert pending.has_room(outgoing(7, size=8))
    assert not pending.has_room(outgoing(7, size=9))


def test_receipts_in_order():
    pending = window()
    for sequence_id in (3, 5, 9):
        pending.push(outgoing(sequence_id), 0.0)
    assert [entry.sequence_id for entry in pending] == [3, 5, 9]
    assert pending.acknowledged(3)
    assert pending.acknowledged(5)
    assert [entry.sequence_id for entry in pending] == [9]
    assert pending.acknowledged(9)
    assert not pending


def test_a_receipt_for_what_was_acknowledged_before_is_ignored():
    pending = window()
    assert not pending.acknowledged(7)
    pending.push(outgoing(8), 0.0)
    for old in (0, 7):
        assert not pending.acknowledged(old)
    assert len(list(pending)) == 1
    assert pending.acknowledged(8)
    assert not pending.acknowledged(8)


def test_a_receipt_for_a_newer_entry_ends_the_connection_and_takes_nothing_out():
    pending = window()
    pending.push(outgoing(3, 5), 0.0)
    pending.push(outgoing(8), 0.0)
    for newer in (4, 7, 8, 100):
        with pytest.raises(ProtocolError, match=rf"{newer}.* 3\b") as caught:
            pending.acknowledged(newer)
        assert caught.value.topic == "persistent://a/b/t"
    assert [entry.sequence_id for entry in pending] == [3, 8]


# ---- time


def test_the_oldest_entry_rules_the_timeout():
    pending = window(send_timeout=30)
    assert pending.due_at is None
    pending.push(outgoing(0), 100.0)
    pending.push(outgoing(1), 110.0)
    assert pending.due_at == 130.0
    pending.acknowledged(0)
    assert pending.due_at == 140.0
    pending.acknowledged(1)
    assert pending.due_at is None


def test_the_timeout_begins_again_at_each_sign_of_progress():
    pending = window(send_timeout=30)
    pending.progress(50.0)
    assert pending.due_at is None
    pending.push(outgoing(0), 100.0)
    assert pending.due_at == 130.0
    pending.progress(125.0)
    pending.progress(90.0)  # an older one
    assert pending.due_at == 155.0


# What happens to an entry that was pushed at 100, and when the timeout of 30 s is over then.
PROGRESS = {
    "bytes": ([("bytes", 110)], 140),
    "bytes, lost": ([("bytes", 110), ("lost", 111)], 140),
    "bytes, lost, the resend's bytes": ([("bytes", 110), ("lost", 111), ("bytes", 120)], 150),
    "the resend is lost": ([("bytes", 110), ("lost", 111), ("bytes", 120), ("lost", 121)], 140),
    "all resends are lost": ([("lost", 111), *[("bytes", 120), ("lost", 121)] * 9], 130),
    "a loss is reported twice": ([("bytes", 110), ("lost", 111), ("lost", 112)], 140),
    "a receipt after the resend": ([("lost", 111), ("receipt", 120), ("lost", 121)], 150),
    "bytes after a receipt after the resend": (
        [("lost", 111), ("receipt", 120), ("bytes", 125), ("lost", 126)],
        155,
    ),
    "anew": ([("anew", 115)], 145),
    "anew, after a loss": ([("lost", 111), ("bytes", 112), ("lost", 113), ("anew", 115), ("lost", 116)], 145),
    "a chunk's receipt": ([("receipt of a chunk", 110)], 140),
    "a chunk's receipt, lost": ([("receipt of a chunk", 110), ("lost", 111)], 140),
    "the resend of chunks is lost": ([("lost", 111), *[("receipt of a chunk", 120), ("lost", 121)] * 3], 130),
}


@pytest.mark.parametrize(("events", "due_at"), PROGRESS.values(), ids=PROGRESS)
def test_what_is_sent_again_has_no_more_time_without_receipts(events, due_at):
    """A broker that refuses each resend, or cuts the connection, is not tried for ever."""
    pending = window(send_timeout=30)
    kinds = [kind for kind, _ in events]
    if "receipt of a chunk" in kinds:
        pending.push(chunk(0), 100.0)
    elif "receipt" in kinds:
        pending.push(outgoing(0), 100.0)
    pending.push(chunk(0, EntryKind.LAST_CHUNK) if "receipt of a chunk" in kinds else outgoing(1), 100.0)
    for kind, at in events:
        if kind == "lost":
            pending.lost()
            pending.again("2", at)
        elif kind == "anew":
            pending.begin_anew(at)
        else:
            if kind != "bytes":
                assert pending.acknowledged(0)
            pending.progress(at)
    assert pending.due_at == due_at


def test_what_is_sent_first_after_a_loss_counts_as_sent_for_the_first_time():
    pending = window(send_timeout=30)
    pending.lost()
    pending.again("2", 90.0)
    pending.push(outgoing(0), 100.0)
    pending.progress(125.0)
    pending.lost()
    assert pending.due_at == 155.0


def test_an_entry_that_was_damaged_on_its_way_may_be_sent_again_and_one_in_memory_may_not():
    payload = bytearray(b"payload")
    packer = new_packer()
    packer.registered("p", MAX_MESSAGE, b"")
    pending = window()
    for entry in packer.singles(singles(b"first", payload), 5):
        pending.push(entry, 0.0)
    assert isinstance(pending.refused(pb.ChecksumError, "checksum"), NotReadyError)
    payload[0] ^= 1
    assert isinstance(pending.refused(pb.ChecksumError, "checksum"), SendError)
    assert isinstance(pending.refused(pb.ServiceNotReady, "later"), NotReadyError)


def test_the_timeout_s_error_counts_all_that_is_pending():
    pending = window(send_timeout=2.5)
    pending.push(outgoing(0, 4), 0.0)
    pending.push(outgoing(4, 3), 0.0)
    error = pending.timed_out("no acknowledgement was received")
    assert type(error) is SendTimeoutError
    assert isinstance(error, SendError)
    assert not error.retriable
    assert error.topic == "persistent://a/b/t"
    assert "7 messages" in str(error)
    assert "2.5 s" in str(error)


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(4, 120), st.integers(0, 3)), max_size=60),
    st.integers(1, 20),
    st.integers(1, 200),
)
def test_the_limits_hold_and_everything_gets_through_in_order(steps, max_messages, max_bytes):
    pending = window(max_messages, max_bytes)
    sent, acknowledged, next_id = [], [], 0
    for messages, size, receipts in steps:
        while not pending.has_room(outgoing(next_id, messages, size)):
            oldest = next(iter(pending)).sequence_id  # never without an entry whose receipt makes room
            assert pending.acknowledged(oldest)
            acknowledged.append(oldest)
        pending.push(outgoing(next_id, messages, size), 0.0)
        sent.append(next_id)
        next_id += messages
        assert len(list(pending)) == 1 or sum(entry.messages for entry in pending) <= max_messages
        assert len(list(pending)) == 1 or sum(entry.size for entry in pending) <= max_bytes
        for _ in range(min(receipts, len(list(pending)))):
            acknowledged.append(next(iter(pending)).sequence_id)
            assert pending.acknowledged(acknowledged[-1])
    assert acknowledged + [entry.sequence_id for entry in pending] == sent


# ---- one entry


@pytest.mark.parametrize("messages", [1, 5])
def test_the_frame_names_sequence_ids_and_holds_the_payload(messages):
    entry = entry_of(7, messages, b"head", memoryview(b"payload"))
    stream = b"".join(bytes(piece) for piece in entry.frame(3))
    total, size = struct.unpack_from(">II", stream)
    assert total == len(stream) - 4
    assert stream[8 + size :] == b"headpayload"
    command = pb.BaseCommand.FromString(stream[8 : 8 + size])
    assert command.type == pb.BaseCommand.SEND
    assert (command.send.producer_id, command.send.sequence_id) == (3, 7)
    assert command.send.num_messages == messages
    assert command.send.highest_sequence_id == (11 if messages == 5 else 0)
    assert not command.send.is_chunk
    assert entry.size == 11


def test_an_entry_with_another_head_has_its_size():
    entry = entry_of(7, 1, b"head", b"payload")
    entry.put_head(b"a longer head")
    assert entry.size == 20
    stream = b"".join(entry.frame(3))
    assert struct.unpack_from(">I", stream) == (len(stream) - 4,)
    assert stream.endswith(b"a longer headpayload")


def test_the_frame_of_a_chunk_says_so():
    for kind in (EntryKind.CHUNK, EntryKind.LAST_CHUNK):
        head = chunk(7, kind).frame(3)[0]
        assert pb.BaseCommand.FromString(head[8:]).send.is_chunk


def test_the_same_entry_on_another_connection_differs_in_the_producer_id_only():
    entry = outgoing(7, 5)
    first, again = entry.frame(3), entry.frame(4)
    assert first[1:] == again[1:]
    assert first[0] != again[0]
    assert entry.frame(3) == first


def test_intact():
    payload = bytearray(b"payload")
    entry = entry_of(7, 1, encode_section_head(b"metadata", payload), payload)
    assert entry.intact
    payload[3] ^= 1
    assert not entry.intact
