"""Outgoing entries: frames and sizes."""

import struct

import pytest

from pulsar_spark.protocol.writing.outgoing import EntryKind
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_section_head
from tests.protocol.writing.partition_writers import chunk, entry_of, outgoing


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
