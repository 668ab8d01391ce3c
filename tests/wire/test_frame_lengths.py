"""Framing: lengths that lie, and the largest frames."""

import struct
import tracemalloc

import pytest

from pulsar_spark.errors import ProtocolError
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import MAX_LIST_SIZE, FrameReader, kind_of
from tests.wire.raw_frames import MAX_FRAME, PING, cut, framed, read


@pytest.mark.parametrize("total", [0, 1, 4, MAX_FRAME + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_wrong_length_is_refused_at_once(total):
    with pytest.raises(ProtocolError, match=str(total)):
        FrameReader().feed(struct.pack(">I", total))


@pytest.mark.parametrize("total", [0, 4, MAX_FRAME + 1, 2**31])
def test_a_wrong_length_is_refused_with_its_fourth_byte(total):
    reader = FrameReader()
    head = PING + struct.pack(">I", total)
    assert len(read([head[:-1]], reader)) == 1
    with pytest.raises(ProtocolError):
        reader.feed(head[-1:])


@pytest.mark.parametrize("limit", [1, 100, 5 * 1024 * 1024])
def test_the_largest_frame(limit):
    total = limit + 10 * 1024
    assert FrameReader(limit).feed(struct.pack(">I", total)) == []
    with pytest.raises(ProtocolError):
        FrameReader(limit).feed(struct.pack(">I", total + 1))
    command = pb.BaseCommand(type=pb.BaseCommand.PING, ping={})
    stream = framed(command, bytes(total - 9))
    ((_, rest),) = read([stream], FrameReader(limit))
    assert len(rest) == total - 9


def topic_list(size):
    """A frame of more than ``size`` bytes that lists topics."""
    topics = [f"persistent://public/default/{number:0200}" for number in range(size // 200)]
    return framed(
        pb.BaseCommand(
            type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            getTopicsOfNamespaceResponse={"request_id": 1, "topics": topics},
        )
    )


@pytest.mark.parametrize("piece", [1, 9, 10, 4096, 1 << 20])
def test_a_list_of_topics_may_be_larger_where_one_was_asked_for(piece):
    stream = PING + topic_list(20_000) + PING
    reader = FrameReader(1000)
    reader.expects_list = True
    found = read([stream[at : at + piece] for at in range(0, len(stream), piece)], reader)
    assert len(found) == 3
    listed = pb.BaseCommand.FromString(found[1][0])
    assert len(listed.getTopicsOfNamespaceResponse.topics) == 100
    with pytest.raises(ProtocolError):
        FrameReader(1000).feed(stream)


def test_nothing_else_is_larger_and_no_list_is_endless():
    reader = FrameReader(1000)
    reader.expects_list = True
    large = framed(pb.BaseCommand(type=pb.BaseCommand.PING, ping={}), bytes(20_000))
    assert reader.feed(large[:9]) == []
    with pytest.raises(ProtocolError, match="frame of 200"):
        reader.feed(large[9:10])
    reader = FrameReader(1000)
    reader.expects_list = True
    with pytest.raises(ProtocolError):
        reader.feed(struct.pack(">I", MAX_LIST_SIZE + 1))


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (commands.topics_of_namespace(1, "a/b"), "GET_TOPICS_OF_NAMESPACE"),
        (commands.watch_topic_list(1, 2, "a/b"), "WATCH_TOPIC_LIST"),
        (commands.partitioned_metadata(1, "t", create=False), "PARTITIONED_METADATA"),
        (commands.lookup(1, "t" * 300, authoritative=True), "LOOKUP"),
    ],
)
def test_the_type_of_a_request(request_, kind):
    assert pb.BaseCommand.Type.Name(kind_of(request_)) == kind


def test_all_types_are_one_byte_in_a_frame():
    assert max(pb.BaseCommand.Type.values()) < 128


@pytest.mark.parametrize("size", [6, 2**31, 2**32 - 1])
def test_a_command_larger_than_its_frame(size):
    with pytest.raises(ProtocolError):
        FrameReader().feed(struct.pack(">II", 9, size) + PING[8:])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Illegal character", r"the peer answers in HTTP.*usually 6650"),
        (bytes.fromhex("15030300020246"), r"the peer requires TLS.*pulsar\+ssl://"),
        (b"SSH-2.0-OpenSSH", r"a frame of 1397966893 bytes.*binary port"),
    ],
)
def test_what_is_no_broker_is_told_by_what_it_says(answer, said):
    with pytest.raises(ProtocolError, match=said):
        FrameReader().feed(answer)


def test_memory_is_not_taken_for_what_was_only_announced():
    readers = [FrameReader() for _ in range(50)]
    tracemalloc.start()
    try:
        for reader in readers:
            assert reader.feed(struct.pack(">II", MAX_FRAME, MAX_FRAME - 4) + b"\x08") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_large_frame_in_small_pieces_takes_its_size_twice_at_most():
    payload = 4 * 1024 * 1024
    stream = framed(pb.BaseCommand(type=pb.BaseCommand.PING, ping={}), bytes(payload))
    pieces = cut(stream, range(0, len(stream), 8192))
    reader = FrameReader()
    tracemalloc.start()
    try:
        frame = [frame for piece in pieces for frame in reader.feed(piece)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(frame) == 1
    assert peak < 1.2 * payload  # the pieces were there before; joining them is the one copy
