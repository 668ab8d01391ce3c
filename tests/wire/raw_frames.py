"""Frames byte by byte, and streams of frames."""

import struct
from itertools import pairwise

from hypothesis import strategies as st

from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frame_runs import Messages, Receipts
from pulsar_spark.wire.frames import FrameReader, encode_command

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


def framed(command, section=b""):
    body = command.SerializePartialToString()
    return struct.pack(">II", 4 + len(body) + len(section), len(body)) + body + section


def section(metadata=METADATA, payload=b"hi"):
    checked = struct.pack(">I", len(metadata)) + metadata + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c_by_hand(checked)) + checked


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
