"""Framing: golden bytes, any cut of the stream, lengths that lie, and bytes that are no frames."""

import struct
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError, ProtocolError
from pulsar_spark.wire import commands, frames
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.frame_runs import NO_TEMPLATE, Messages, Receipts
from pulsar_spark.wire.frames import (
    MAX_LIST_SIZE,
    FrameReader,
    decode_payload_section,
    encode_command,
    kind_of,
)
from tests.loops import for_each

MAX_FRAME = 5 * 1024 * 1024 + 10 * 1024

PING = bytes.fromhex("00000009 00000005 0812 920100")
METADATA = bytes.fromhex("0a0170 1002 1803")  # producer "p", sequence id 2, publish time 3
SECTION_HEAD = bytes.fromhex("0e01 41955213 00000007") + METADATA
SEND = bytes.fromhex("0000001f 00000008 0806 3204 0801 1002") + SECTION_HEAD + b"hi"
BROKER_ENTRY = bytes.fromhex("0e02 00000002 1006")  # index 6
MESSAGE = (
    bytes.fromhex("0000002b 0000000c 0809 4a08 0807 1204 0801 1002") + BROKER_ENTRY + SECTION_HEAD + b"hi"
)


def crc32c_by_hand(data):
    """CRC-32C bit by bit: polynomial 1EDC6F41 reflected."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def cut(data, cuts):
    edges = [0, *sorted(min(one, len(data)) for one in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def read(pieces, reader=None):
    reader = reader or FrameReader()
    return [each for piece in pieces for frame in reader.feed(piece) for each in opened(frame)]


def opened(frame):
    """The command and the payload section of a frame, or of each of the messages or receipts."""
    if isinstance(frame, Receipts):
        receipts = zip(*frame[1:], strict=True)
        return [(receipt_command(frame.producer_id, *each).SerializeToString(), b"") for each in receipts]
    if not isinstance(frame, Messages):
        return [(frame.command.SerializePartialToString(), bytes(frame.payload_section))]
    return [
        (message_command(frame.consumer_id, ledger, entry).SerializeToString(), frame.data[at:end])
        for ledger, entry, at, end in zip(*(column.tolist() for column in frame[2:]), strict=True)
    ]


def message_command(consumer_id, ledger, entry):
    place = {"ledgerId": ledger & 2**64 - 1, "entryId": entry & 2**64 - 1}
    return pb.BaseCommand(
        type=pb.BaseCommand.MESSAGE, message={"consumer_id": consumer_id, "message_id": place}
    )


def receipt_command(producer_id, sequence_id, ledger, entry):
    place = {"ledgerId": ledger & 2**64 - 1, "entryId": entry & 2**64 - 1}
    body = {"producer_id": producer_id, "sequence_id": sequence_id, "message_id": place}
    return pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=body)


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


def framed(command, section=b""):
    body = command.SerializePartialToString()
    return struct.pack(">II", 4 + len(body) + len(section), len(body)) + body + section


def section(metadata=METADATA, payload=b"hi"):
    checked = struct.pack(">I", len(metadata)) + metadata + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c_by_hand(checked)) + checked


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


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_golden_send(kind):
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send={"producer_id": 1, "sequence_id": 2})
    payload = kind(b"hi")
    head = frames.encode_section_head(METADATA, payload)
    assert frames.encode_command_head(command, len(head) + len(payload)) + head + payload == SEND


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

command_frames = st.sampled_from(
    [
        PING,
        SEND,
        MESSAGE,
        commands.connect("v", "broker:6650"),
        commands.lookup(2**64 - 1, "persistent://a/b/c", authoritative=True),
        commands.flow(1, 1000),
        framed(pb.BaseCommand(type=pb.BaseCommand.PONG, pong={}), b"\x00"),
    ]
)
runs = st.builds(
    lambda consumer, ledger, first, count: [
        framed(message_command(consumer, ledger, first + number), section()) for number in range(count)
    ],
    st.sampled_from([1, 7, 200, 2**64 - 1]),
    st.sampled_from([0, 5, 2**40, 2**64 - 1]),
    st.sampled_from([0, 100, 120, 16_380, 2**40, 2**63]),
    st.integers(1, 20),
)
receipt_runs = st.builds(
    lambda ledger, first, count: [
        encode_command(receipt_command(7, first + number, ledger, number)) for number in range(count)
    ],
    st.sampled_from([0, 5, 2**40, 2**64 - 1]),
    st.sampled_from([0, 100, 120, 16_380, 2**40, 2**63]),
    st.integers(1, 40),
)
streams = st.lists(runs | receipt_runs | command_frames.map(lambda one: [one]), max_size=4).map(
    lambda parts: [frame for part in parts for frame in part]
)


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
    stream = frames.encode_command_head(command, size) + prefix + head + payload
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


# ---- lengths that lie


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


# ---- fuzzing: only the documented errors come out


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


def test_the_metadata_of_a_head():
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=7, publish_time=5)
    head = frames.encode_section_head(metadata.SerializeToString(), b"payload")
    assert frames.metadata_of_head(head) == metadata


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
