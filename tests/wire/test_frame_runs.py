"""Receipts: what is read by column is what is parsed one by one."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import ProtocolError
from pulsar_spark.wire import frame_runs
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frame_runs import RECEIPT_HEAD, Messages, Receipts, receipts_of
from pulsar_spark.wire.frames import FrameReader, encode_command
from tests.loops import for_each

IDS = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1), st.just(2**64 - 1))


def receipt(producer_id=3, sequence_id=0, ledger=7, entry=0, **fields):
    place = {"ledgerId": ledger, "entryId": entry}
    body = {"producer_id": producer_id, "sequence_id": sequence_id, "message_id": place} | fields
    return pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=body)


def stream_of(commands):
    return b"".join(map(encode_command, commands))


def by_column(commands):
    frames = [encode_command(command) for command in commands]
    starts = list(itertools.accumulate(map(len, frames), initial=0))
    return receipts_of(b"".join(frames), np.array(starts[:-1]), np.array(starts[1:]))


def signed(number):
    return number - (number >> 63 << 64)


def expected(commands):
    """Sequence id, ledger and entry of the receipts of each producer."""
    found = {}
    for command in commands:
        body = command.send_receipt
        place = body.message_id
        row = body.sequence_id, signed(place.ledgerId), signed(place.entryId)
        found.setdefault(body.producer_id, []).append(row)
    return found


def rows(parts):
    found = {}
    for part in parts:
        assert isinstance(part, Receipts)
        found.setdefault(part.producer_id, []).extend(zip(*part[1:], strict=True))
    return found


@given(st.lists(st.builds(receipt, st.sampled_from([0, 3, 200, 2**64 - 1]), IDS, IDS, IDS), min_size=1))
def test_by_column_is_as_parsed(commands):
    parts = by_column(commands)
    assert rows(parts) == expected(commands)
    assert len(parts) == len(expected(commands))


OTHERS: dict[str, dict[str, Any]] = {
    "no message id": {"message_id": None},
    "a highest id": {"highest_sequence_id": 9},
    "a partition": {"message_id": {"ledgerId": 1, "entryId": 2, "partition": 4}},
    "a batch": {"message_id": {"ledgerId": 1, "entryId": 2, "batch_index": 4, "batch_size": 7}},
    "bits": {"message_id": {"ledgerId": 1, "entryId": 2, "ack_set": [5, -1]}},
    "a chunk": {
        "message_id": {"ledgerId": 1, "entryId": 2, "first_chunk_message_id": {"ledgerId": 8, "entryId": 9}}
    },
}


@for_each("name", OTHERS)
@for_each("place", [0, 20, 39])
def test_whatever_else_a_receipt_has_it_is_read(name, place):
    commands = [receipt(sequence_id=number, entry=number) for number in range(40)]
    commands[place] = receipt(**OTHERS[name])
    assert rows(FrameReader().feed(stream_of(commands))) == expected(commands)


def test_a_highest_id_is_read_by_column():
    """Brokers send it with each receipt."""
    commands = [receipt(sequence_id=number, highest_sequence_id=number) for number in range(300)]
    (part,) = by_column(commands)
    assert part.sequence_ids == list(range(300))


@given(
    st.lists(st.builds(receipt, st.sampled_from([3, 200]), IDS, IDS, IDS), min_size=1, max_size=80),
    st.lists(st.integers(0, 2000), max_size=6),
)
def test_any_cut_gives_the_same_receipts(commands, cuts):
    stream = stream_of(commands)
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reader = FrameReader()
    parts = [part for first, end in itertools.pairwise(bounds) for part in reader.feed(stream[first:end])]
    assert rows(parts) == expected(commands)


def test_many_in_one_read_are_read_by_column(monkeypatch):
    parsed = Counter()
    monkeypatch.setattr(
        "pulsar_spark.wire.frames.receipt_of",
        lambda command: parsed.update(["receipt"]) or frame_runs.receipt_of(command),
    )
    commands = [receipt(producer, number, 7, number) for number in range(500) for producer in (1, 2)]
    parts = FrameReader().feed(stream_of(commands))
    assert [part.producer_id for part in parts] == [1, 2]
    assert rows(parts) == expected(commands)
    assert parsed["receipt"] == 0
    FrameReader().feed(stream_of(commands[:3]))
    assert parsed["receipt"] == 3


def test_frames_between_receipts_keep_their_place():
    ping = pb.BaseCommand(type=pb.BaseCommand.PING, ping={})
    some = [receipt(sequence_id=number) for number in range(30)]
    first, between, last = FrameReader().feed(stream_of([*some, ping, *some]))
    assert first == last == Receipts(3, list(range(30)), [7] * 30, [0] * 30)
    assert between.command == ping


@pytest.mark.parametrize("count", [1, 50])
@pytest.mark.parametrize(
    "body",
    [
        b"\x08\x03",  # no sequence id
        b"\x08\x03\x10\x01\x1a\x02\x08\x07",  # an id without an entry
        b"\x08\x03\x10\x80",  # a number that does not end
        b"\x08\x03\x10\x01\x1a\x7f\x08\x07",  # an id that is longer than its command
    ],
)
def test_a_malformed_receipt_is_an_error(body, count):
    command = RECEIPT_HEAD + bytes((len(body),)) + body
    frame = (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command
    with pytest.raises(ProtocolError):
        FrameReader().feed(stream_of([receipt()] * count) + frame)


def test_a_receipt_that_is_also_a_message_changes_no_message():
    """A command's last type counts: this one begins as a receipt and is a message without a template."""

    def message(entry):
        place = {"ledgerId": 7, "entryId": entry}
        command = pb.BaseCommand(type="MESSAGE", message={"consumer_id": 5, "message_id": place})
        return encode_command(command)

    other = pb.BaseCommand(
        type="MESSAGE", message={"consumer_id": 6, "message_id": {"ledgerId": 1, "entryId": 2}}
    )
    body = encode_command(receipt())[8:] + other.SerializeToString()
    crafted = (len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body
    stream = message(0) + crafted * 30 + b"".join(map(message, range(1, 20)))

    def read(pieces):
        reader = FrameReader()
        found = [frame for piece in pieces for frame in reader.feed(piece)]
        assert all(isinstance(frame, Messages) for frame in found)
        return [
            (frame.consumer_id, *place)
            for frame in found
            for place in zip(frame.ledger.tolist(), frame.entry.tolist(), strict=True)
        ]

    expected = [(5, 7, 0), *[(6, 1, 2)] * 30, *((5, 7, entry) for entry in range(1, 20))]
    assert read([stream]) == read([stream[at : at + 1] for at in range(len(stream))]) == expected
