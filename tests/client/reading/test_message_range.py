"""Ranges of messages: those in chunks come in the place of their last chunk."""

import logging

import pytest

from pulsar_spark.client import ChunkLimits, read_range
from pulsar_spark.errors import CryptoError
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import START, TOPIC, flat, ids_of, values_in
from tests.fake_broker import HANG
from tests.fake_topics import chunk_sections, section_of

A, B = b"a" * 90 + b"end", bytes(range(256)) * 3


def plain(value):
    return section_of(value)


def read(client, start, end, **options):
    return list(flat(read_range(client, TOPIC, start, end, poll_timeout=HANG, **options)))


def test_chunks_are_one_message_in_the_place_of_the_last(broker, client):
    first, second = chunk_sections(A, 3, "a"), chunk_sections(B, 4, "b")
    ids = broker.publish(
        TOPIC,
        plain(b"0"),
        first[0],
        second[0],
        plain(b"1"),
        first[1],
        second[1],
        second[2],
        first[2],
        plain(b"2"),
        second[3],
    )
    entries = read(client, START, ids[-1])
    assert values_in(entries) == [b"0", b"1", A, b"2", B]
    assert ids_of(entries) == [ids[0], ids[3], ids[7], ids[8], ids[9]]
    assert [entry.first_chunk for entry in entries] == [None, None, ids[1], None, ids[2]]


@pytest.mark.parametrize("cut_at", range(1, 4))
def test_each_range_has_the_messages_whose_last_chunk_it_has(broker, client, cut_at):
    ids = broker.publish(TOPIC, *chunk_sections(B, 4, "b"))
    middle = ids[cut_at - 1]
    assert read(client, START, middle) == []
    (message,) = read(client, middle, ids[-1])
    assert values_in([message]) == [B]
    assert message.first_chunk == ids[0]


def test_what_stays_incomplete_is_left_out_and_counted(broker, client, caplog):
    first, second, third = (chunk_sections(A, 3, uuid) for uuid in "abc")
    ids = broker.publish(TOPIC, first[1], first[2], plain(b"0"), second[0], second[2], plain(b"1"), third[0])
    with caplog.at_level(logging.INFO):
        entries = read(client, START, ids[-1])
    assert values_in(entries) == [b"0", b"1"]
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "2 incomplete chunked messages" in warning.getMessage()
    assert "its first chunk is missing" in warning.getMessage()
    assert "a chunk is missing" in warning.getMessage()
    assert f"1 chunked messages end after {ids[-1]}" in caplog.text


def test_a_message_that_is_sent_again_comes_once(broker, client):
    """A broker that deduplicates stores the first chunks again, and drops the last."""
    chunks = chunk_sections(A, 3, "a")
    ids = broker.publish(TOPIC, *chunks, *chunks[:2], plain(b"0"))
    assert values_in(read(client, START, ids[-1])) == [A, b"0"]
    ids = broker.publish(TOPIC, chunks[0], chunks[1], *chunks)
    assert values_in(read(client, ids[0], ids[-1])) == [A]


def test_bounds_of_messages_in_the_making(broker, client, caplog):
    parts = [chunk_sections(A, 2, uuid) for uuid in "abc"]
    ids = broker.publish(TOPIC, *[part[0] for part in parts], *[part[1] for part in parts])
    assert values_in(read(client, START, ids[-1])) == [A] * 3
    few = ChunkLimits(max_pending=2, auto_ack_oldest=True)
    assert values_in(read(client, START, ids[-1], chunks=few)) == [A] * 2
    assert "more than maxPendingChunkedMessages" in caplog.text


def test_an_entry_that_is_encrypted_needs_its_keys(broker, client):
    section = section_of(
        b"sealed",
        encryption_keys=[pb.EncryptionKeys(key=b"k", value=b"v")],
        encryption_algo=b"AES-GCM",
        encryption_param=b"0" * 12,
    )
    ids = broker.publish(TOPIC, plain(b"0"), section)
    with pytest.raises(CryptoError) as caught:
        read(client, START, ids[-1])
    assert caught.value.topic == str(TOPIC)


def test_a_range_of_what_is_left_after_retention_ends_incomplete_messages(broker, client, caplog):
    topic = broker.create(TOPIC)
    chunks = chunk_sections(A, 3, "a")
    first = broker.publish(TOPIC, *chunks[:2])
    topic.roll()
    ids = broker.publish(TOPIC, chunks[2], plain(b"0"))
    topic.trim(first[0].ledger)
    assert values_in(read(client, MessageId(ids[0].ledger, -1), ids[-1])) == [b"0"]
    assert "its first chunk is missing" in caplog.text
