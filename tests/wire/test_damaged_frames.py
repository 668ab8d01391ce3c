"""Framing: bytes that are no commands and no sections raise the documented errors only."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError, ProtocolError
from pulsar_spark.wire import frames
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import FrameReader, decode_payload_section
from tests.loops import for_each
from tests.wire.raw_frames import BROKER_ENTRY, MAX_FRAME, METADATA, cut, opened, section, streams

# ---- bytes that are no commands


def nested_ids(depth):
    body = b"\x08\x01\x10\x02"
    for _ in range(depth):
        inner = body
        size = bytearray()
        left = len(inner)
        while left > 127:
            size.append(left & 127 | 128)
            left >>= 7
        body = b"\x08\x01\x10\x02\x3a" + bytes([*size, left]) + inner
    return body


def in_message(message_id):
    def sized(data):
        return bytes([len(data) & 127 | 128, len(data) >> 7 & 127 | 128, len(data) >> 14]) + data

    return b"\x08\x09\x4a" + sized(b"\x08\x07\x12" + sized(message_id))


NO_COMMANDS = {
    "a length beyond the end": bytes.fromhex("0809 4a7f 0807"),
    "a number without an end": b"\x08" + b"\xff" * 10,
    "a wire type that does not exist": b"\x0f\x00",
    "nesting without an end": in_message(nested_ids(2000)),
    "MESSAGE without an id": bytes.fromhex("0809 4a02 0807"),
    "MESSAGE with half an id": bytes.fromhex("0809 4a06 0807 1202 0801"),
    "CONNECTED without a version": bytes.fromhex("0803 1a02 1015"),
    "3,000 groups within each other": b"\x08\x12" + b"\xfb\x3f" * 3000,
    "an error's text that is no UTF-8": pb.BaseCommand(
        type=pb.BaseCommand.ERROR, error={"request_id": 1, "error": 0, "message": "text"}
    )
    .SerializeToString()
    .replace(b"text", b"\xff\xfe-\xc3"),
    "a topic's name that is no UTF-8": pb.BaseCommand(
        type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        getTopicsOfNamespaceResponse={"request_id": 1, "topics": ["a", "text"]},
    )
    .SerializeToString()
    .replace(b"text", b"\xed\xa0\x80-"),
    "SUCCESS without a request id": bytes.fromhex("080d 6a00"),
    "ERROR without its text": bytes.fromhex("080e 7204 0801 1001"),
}


@pytest.mark.parametrize("body", NO_COMMANDS.values(), ids=NO_COMMANDS.keys())
def test_what_is_no_command(body):
    with pytest.raises(ProtocolError):
        FrameReader().feed(struct.pack(">II", 4 + len(body), len(body)) + body)


@pytest.mark.parametrize("body", [b"", bytes.fromhex("08c801"), bytes.fromhex("08c801 fa0b0101")])
def test_a_type_that_is_not_known_is_left_to_the_connection(body):
    # A newer broker may have more commands; one of them is no reason to give the connection up.
    (frame,) = FrameReader().feed(struct.pack(">II", 5 + len(body), len(body)) + body + b"\x00")
    assert not frame.command.HasField("type")


# ---- sections that cannot be decoded

GOOD = section()


@for_each(
    "data",
    [
        b"",
        GOOD[:1],
        GOOD[:2],
        GOOD[:5],
        GOOD[:6],
        GOOD[:9],
        GOOD[:-1],
        GOOD + b"\x00",
        b"\x0e\x01" + bytes(4) + GOOD[6:],
        b"\x0e\x03" + GOOD[2:],
        BROKER_ENTRY,
        BROKER_ENTRY[:5],
        b"\x0e\x02\xff\xff\xff\xff" + GOOD,
        b"\x0e\x02\x00\x00\x00\x01\x10" + GOOD,
        BROKER_ENTRY + BROKER_ENTRY + GOOD,
        struct.pack(">I", len(METADATA) + 1) + METADATA,
        struct.pack(">I", 2**32 - 1) + METADATA,
        section(b"\x0a\x7f"),
        section(b""),
        section(bytes.fromhex("0a0170 1002")),  # without its publish time
    ],
)
def test_what_is_no_section(data):
    with pytest.raises(CorruptError):
        decode_payload_section(memoryview(data))


@given(st.data())
def test_one_changed_bit_behind_the_checksum_is_noticed(data):
    changed = bytearray(GOOD)
    changed[data.draw(st.integers(2, len(GOOD) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptError):
        decode_payload_section(memoryview(bytes(changed)))


@st.composite
def damaged(draw, good):
    data = bytearray(draw(good))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["change", "cut off", "take out", "put in", "set a length"]))
        if kind == "change" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif kind == "cut off":
            del data[at:]
        elif kind == "take out":
            del data[at : at + draw(st.integers(1, 8))]
        elif kind == "put in":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "set a length":
            data[at : at + 4] = struct.pack(
                ">I", draw(st.sampled_from([0, 4, 5, 9, 60, MAX_FRAME, 2**32 - 1]))
            )
    return bytes(data)


@given(damaged(streams.map(b"".join)) | st.binary(max_size=60), st.lists(st.integers(0, 300), max_size=5))
def test_a_damaged_stream_raises_documented_errors_only(stream, cuts):
    reader = FrameReader()
    given_out = 0
    for piece in cut(stream, cuts):
        try:
            found = reader.feed(piece)
        except ProtocolError:
            return
        for command, payload_section in [each for frame in found for each in opened(frame)]:
            given_out += 8 + len(payload_section)
            parsed = pb.BaseCommand()
            parsed.MergeFromString(command)
            assert parsed.IsInitialized() or not parsed.HasField("type")
            try:
                decode_payload_section(memoryview(payload_section))
            except CorruptError:
                continue
    assert given_out <= len(stream)


@given(damaged(st.sampled_from([GOOD, BROKER_ENTRY + GOOD, GOOD[6:]])) | st.binary(max_size=60))
def test_a_damaged_section_raises_documented_errors_only(data):
    try:
        stored = decode_payload_section(memoryview(data))
    except CorruptError:
        return
    assert stored.metadata.IsInitialized()
    assert data.endswith(bytes(stored.payload))


def test_an_entry_of_too_many_properties_is_corrupt(monkeypatch):
    monkeypatch.setattr(frames, "MAX_PROPERTIES", 2)
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=7, publish_time=5)
    for count in range(4):
        raw = metadata.SerializeToString()
        section = memoryview(frames.encode_section_head(raw, b"payload") + b"payload")
        if count <= 2:
            assert len(frames.decode_payload_section(section).metadata.properties) == count
        else:
            with pytest.raises(CorruptError, match="an entry of 3 properties; the maximum is 2"):
                frames.decode_payload_section(section)
        metadata.properties.add(key=b"", value=b"")
