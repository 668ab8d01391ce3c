"""Outgoing entries, one by one and in runs: frames, sizes, cuts."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.writing import outgoing as outgoing_module
from pulsar_spark.protocol.writing.outgoing import EntryKind
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_section_head
from tests.protocol.writing.partition_writers import chunk, entry_of, outgoing, run_of


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


# ---- runs

VALUES = st.lists(st.binary(max_size=300), min_size=1, max_size=9)


def framed(*items, producer_id=3):
    return b"".join(bytes(part) for item in items for part in item.frame(producer_id))


def fields(entry):
    return entry.sequence_id, entry.head, bytes(entry.payload), entry.kind, entry.transaction, entry.size


@pytest.fixture(autouse=True)
def _frames_by_column(monkeypatch):
    monkeypatch.setattr(outgoing_module, "FEW", 1)


EDGES = [0, 1, 127, 128, 2**14 - 5, 2**14, 2**32, 2**62]


@pytest.mark.parametrize("transaction", [None, TxnId(3, 4), TxnId(0, 2**64 - 1)])
@given(VALUES, st.sampled_from(EDGES) | st.integers(0, 2**62), st.sampled_from(EDGES))
def test_a_run_is_its_entries(transaction, values, first_id, producer_id):
    run = run_of(*values, first_id=first_id, transaction=transaction)
    entries = run.entries
    assert [bytes(entry.payload) for entry in entries] == values
    assert [entry.sequence_id for entry in entries] == list(range(first_id, first_id + len(values)))
    assert (run.sequence_id, run.highest_sequence_id) == (first_id, entries[-1].highest_sequence_id)
    assert (run.messages, run.size) == (len(values), sum(entry.size for entry in entries))
    assert {(entry.kind, entry.transaction) for entry in entries} == {(EntryKind.SINGLE, transaction)}
    assert all(entry.intact for entry in entries)
    assert framed(run, producer_id=producer_id) == framed(*entries, producer_id=producer_id)


@given(VALUES.filter(lambda values: len(values) > 1), st.data())
def test_the_parts_of_a_run_are_the_whole(values, data):
    run = run_of(*values, first_id=5, transaction=TxnId(3, 4))
    first, rest = run.cut(data.draw(st.integers(1, len(values) - 1)))
    assert [*map(fields, first.entries), *map(fields, rest.entries)] == [*map(fields, run.entries)]
    assert framed(first, rest) == framed(run)
    assert first.size + rest.size == run.size
    if rest.messages > 1:  # a part of a part
        second, third = rest.cut(1)
        assert framed(first, second, third) == framed(run)


@given(VALUES, st.integers(-1, 10), st.integers(-1, 3500))
def test_as_many_fit_as_have_no_more_messages_and_bytes(values, messages, size):
    run = run_of(*values)
    sizes = [entry.size for entry in run.entries]
    fits = [count for count in range(len(sizes) + 1) if count <= messages and sum(sizes[:count]) <= size]
    assert run.fitting(messages, size) == max(fits, default=0)


def test_few_entries_are_framed_one_by_one(monkeypatch):
    """By column they would take longer, and no other bytes."""
    frames = []
    for few in (3, 4):
        monkeypatch.setattr(outgoing_module, "FEW", few)
        frames.append(run_of(b"a", b"", b"c" * 300).frame(3))
    (by_column,), (one_by_one,) = frames
    assert isinstance(by_column, memoryview)
    assert isinstance(one_by_one, bytes)
    assert by_column == one_by_one
