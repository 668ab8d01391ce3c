"""Framing: golden bytes, and any cut of the stream."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import ProtocolError
from pulsar_spark.wire import frames
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.frame_runs import NO_TEMPLATE
from pulsar_spark.wire.frames import FrameReader, decode_payload_section
from tests.loops import for_each
from tests.wire.raw_frames import (
    BROKER_ENTRY,
    MESSAGE,
    METADATA,
    PING,
    SECTION_HEAD,
    SEND,
    command_frames,
    crc32c_by_hand,
    cut,
    framed,
    message_command,
    read,
    section,
    streams,
)


@pytest.mark.parametrize("partition", [None, -1, 3, 300])
@pytest.mark.parametrize("redelivered", [None, 2])
def test_messages_in_a_row_come_together(partition, redelivered):
    def frame(entry):
        command = message_command(7, 5, entry)
        if partition is not None:
            command.message.message_id.partition = partition
        if redelivered is not None:
            command.message.redelivery_count = redelivered
        return framed(command, section(payload=b"%d" % entry))

    stream = b"".join(frame(entry) for entry in range(100, 150))
    first, rest, *others = FrameReader().feed(stream)
    assert first.entry.tolist() == [100]
    assert rest.entry[:27].tolist() == list(range(101, 128))  # the id of 128 is longer
    assert [entry for each in (first, rest, *others) for entry in each.entry.tolist()] == list(
        range(100, 150)
    )
    assert len(others) == 2


@for_each("missing", [0, 1, 60])
@for_each("alike", [*range(1, 12), 63, 64, 65, 127, 128, 129, 300])
def test_messages_of_one_size_are_followed_by_others(alike, missing):
    sizes = [30] * alike + [31, 30, 30] + [32] * 20
    commands = [message_command(7, 5, 300 + number) for number in range(len(sizes))]
    sections = [section(payload=bytes([number % 250]) * size) for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, commands, sections))
    expected = [(command.SerializeToString(), body) for command, body in zip(commands, sections, strict=True)]
    if missing:
        expected.pop()  # the last frame is not complete
    assert read([stream[: len(stream) - missing]]) == expected


@pytest.mark.parametrize("count", [1, 20, 200])
def test_no_bytes_are_taken_for_a_message_before_one_was_parsed(count):
    frame = b"\x00\x00\x00\x14" + NO_TEMPLATE.head + bytes(10)
    with pytest.raises(ProtocolError):
        FrameReader().feed(frame * count)


def test_a_command_in_a_row_that_ends_unlike_the_others_is_parsed():
    command = message_command(7, 5, 100)
    command.message.redelivery_count = 2
    good = framed(command, section())
    body = command.SerializePartialToString()[:-1] + b"\x80"  # a number that does not end
    bad = struct.pack(">II", 4 + len(body) + len(section()), len(body)) + body + section()
    assert len(bad) == len(good)
    with pytest.raises(ProtocolError, match="not a Pulsar command"):
        FrameReader().feed(good * 20 + bad + good * 20)


def section_of(messages):
    """The payload section of the one message there is."""
    return memoryview(messages.data)[int(messages.at[0]) : int(messages.end[0])]


# ---- golden bytes


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_the_checksum_is_the_one_of_rfc_3720(data, checksum):
    assert crc32c(data) == checksum == crc32c_by_hand(data)
    assert crc32c(data[5:], crc32c(data[:5])) == checksum


def test_golden_command():
    assert frames.encode_command(pb.BaseCommand(type=pb.BaseCommand.PING, ping={})) == PING


def test_golden_section_head():
    assert frames.encode_section_head(METADATA, b"hi") == SECTION_HEAD
    # 4 bytes of size and 28 of payload: the 32 zero bytes of RFC 3720.
    assert frames.encode_section_head(b"", bytes(28)) == bytes.fromhex("0e01 8a9136aa 00000000")


def test_the_metadata_of_a_head():
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=7, publish_time=5)
    head = frames.encode_section_head(metadata.SerializeToString(), b"payload")
    assert frames.metadata_of_head(head) == metadata


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_golden_send(kind):
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send={"producer_id": 1, "sequence_id": 2})
    payload = kind(b"hi")
    head = frames.encode_section_head(METADATA, payload)
    assert frames.encode_command(command, len(head) + len(payload)) + head + payload == SEND


def test_golden_message():
    (messages,) = FrameReader().feed(MESSAGE)
    assert messages.consumer_id == 7
    assert (messages.ledger.tolist(), messages.entry.tolist()) == ([1], [2])
    metadata, payload, index, time = decode_payload_section(section_of(messages))
    assert (metadata.producer_name, metadata.sequence_id, metadata.publish_time) == (b"p", 2, 3)
    assert bytes(payload) == b"hi"
    assert (index, time) == (6, None)


@pytest.mark.parametrize(
    ("prefix", "index", "time"),
    [
        ("", None, None),
        ("0e02 00000002 1000", 0, None),
        ("0e02 00000002 0805", None, 5),
        ("0e02 00000000", None, None),
        ("0e02 0000000b 08ffffffffffffffffff01", None, None),
    ],
)
def test_the_broker_s_index_and_time(prefix, index, time):
    stored = decode_payload_section(memoryview(bytes.fromhex(prefix) + section()))
    assert (stored.broker_index, stored.broker_time) == (index, time)
    assert bytes(stored.payload) == b"hi"


def test_a_section_without_a_checksum():
    # What a producer sends without one is stored and delivered so.
    stored = decode_payload_section(memoryview(struct.pack(">I", len(METADATA)) + METADATA + b"hi"))
    assert (stored.metadata.producer_name, bytes(stored.payload)) == (b"p", b"hi")


@given(st.binary(max_size=64), st.data())
def test_is_intact_notices_each_changed_bit(payload, data):
    head = frames.encode_section_head(METADATA, payload)
    assert frames.is_intact(head, payload)
    whole = bytearray(head + payload)
    position = data.draw(st.integers(2, len(whole) - 1))
    whole[position] ^= 1 << data.draw(st.integers(0, 7))
    assert not frames.is_intact(bytes(whole[: len(head)]), bytes(whole[len(head) :]))


# ---- streams


@given(streams, st.lists(st.integers(0, 300), max_size=12))
def test_any_cut_gives_the_same_frames(parts, cuts):
    stream = b"".join(parts)
    whole = read([stream])
    assert len(whole) == len(parts)
    assert read(cut(stream, cuts)) == whole
    assert read([stream[i : i + 1] for i in range(len(stream))]) == whole
    assert [framed(pb.BaseCommand.FromString(body), rest) for body, rest in whole] == parts


@given(streams, st.data())
def test_a_frame_is_given_with_its_last_byte_and_not_before(parts, data):
    reader = FrameReader()
    last = data.draw(command_frames)
    read([*parts, last[:-1]], reader)
    assert reader.feed(b"") == []
    assert len(reader.feed(last[-1:])) == 1


@given(st.binary(max_size=300), st.binary(max_size=300), st.booleans())
def test_sections_round_trip(name, payload, with_broker_entry):
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=2, publish_time=3, ordering_key=name)
    body = metadata.SerializeToString()
    head = frames.encode_section_head(body, payload)
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send={"producer_id": 1, "sequence_id": 2})
    prefix = BROKER_ENTRY if with_broker_entry else b""
    size = len(prefix) + len(head) + len(payload)
    stream = frames.encode_command(command, size) + prefix + head + payload
    (frame,) = FrameReader().feed(stream)
    stored = decode_payload_section(frame.payload_section)
    assert (stored.metadata, bytes(stored.payload)) == (metadata, payload)
    assert stored.broker_index == (6 if with_broker_entry else None)
    assert prefix + head + payload == prefix + section(body, payload)


def test_a_frame_outlives_the_frames_behind_it():
    reader = FrameReader()
    (first,) = reader.feed(MESSAGE)
    for _ in range(3):
        reader.feed(SEND)
    assert bytes(decode_payload_section(section_of(first)).payload) == b"hi"


def test_frames_that_arrive_whole_are_not_copied():
    reader = FrameReader()
    for _ in range(3):
        data = bytes(bytearray(MESSAGE))
        (frame,) = reader.feed(data)
        assert frame.data is data
