"""Ranges of messages: those in chunks come in the place of their last chunk."""

import logging

import pytest

from pulsar_spark.client import ChunkLimits, Range, read_ranges
from pulsar_spark.client.reading import message_range
from pulsar_spark.errors import CryptoError, DataLossError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import START, TOPIC, flat, ids_of, values_in
from tests.fake_broker import HANG, Held
from tests.fake_topics import chunk_sections, section_of
from tests.ranges import read_range

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


# ---- several ranges


def publish_everywhere(broker, count, each=5):
    """Partitions with some entries; the ranges of all of them."""
    ranges = []
    for number in range(count):
        topic = TopicName.parse("many").of_partition(number)
        broker.create(topic)
        ids = broker.publish(topic, *(plain(b"%d/%d" % (number, entry)) for entry in range(each)))
        ranges.append(Range(topic, MessageId.EARLIEST, ids[-1]))
    return ranges


def values_of(client, ranges, **options):
    """Of each range in turn the values, or its error."""
    found: list[list[bytes] | PulsarError] = []
    for entries in read_ranges(client, ranges, poll_timeout=HANG, **options):
        try:
            found.append(values_in(flat(entries)))
        except PulsarError as error:
            found.append(error)
    return found


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_ranges_come_one_after_the_other_and_each_in_its_order(broker, client, count):
    ranges = publish_everywhere(broker, count)
    expected = [[b"%d/%d" % (number, entry) for entry in range(5)] for number in range(count)]
    assert values_of(client, ranges) == expected
    broker.wait_for(lambda: not broker.open_consumers)
    assert len(broker.open_connections) == 1


def test_a_range_begins_after_the_last_whole_entry(broker, client):
    (one, other) = publish_everywhere(broker, 2)
    within = one._replace(start=MessageId(one.end.ledger, one.end.entry, 3))
    assert values_of(client, [within, other])[0] == [b"0/4"]


def granted(broker):
    """By consumer, the permits that were granted, in order."""
    permits = {}
    for flow in broker.seen(pb.BaseCommand.FLOW):
        permits.setdefault(flow.consumer_id, []).append(flow.messagePermits)
    return permits


def test_ranges_are_opened_side_by_side_and_few_at_once(broker, client):
    """While nothing comes for the first range the next ones are opened, until so many are."""
    ranges = publish_everywhere(broker, 12, each=1)
    held = Held(broker)
    broker.script(pb.BaseCommand.FLOW, [held] * 12)
    opened = read_ranges(client, ranges, poll_timeout=HANG)
    next(opened)
    broker.wait_for(lambda: len(broker.seen(pb.BaseCommand.FLOW)) == 8)
    assert len(broker.open_consumers) == 8
    held.release()
    opened.close()
    broker.wait_for(lambda: not broker.open_consumers)


def test_what_waits_of_ranges_is_bounded(broker, client, monkeypatch):
    """Of each open range an entry is asked for, then as many as its part of the window holds."""
    monkeypatch.setattr(message_range, "_OPEN_BYTES", 4000)
    ranges = publish_everywhere(broker, 2, each=1)
    big = TopicName.parse("big")
    broker.create(big)
    ids = broker.publish(big, *(plain(bytes(1500)) for _ in range(20)))
    asked = [ranges[0], Range(big, MessageId.EARLIEST, ids[-1]), ranges[1]]
    assert values_of(client, asked) == [[b"0/0"], [bytes(1500)] * 20, [b"1/0"]]
    assert [permits[0] for permits in granted(broker).values()] == [1, 1, 1]
    assert max(max(permits) for permits in granted(broker).values()) == 2


@pytest.mark.parametrize("place", [0, 3, 9])
def test_the_error_of_a_range_comes_in_its_place(broker, client, place):
    ranges = publish_everywhere(broker, 10)
    gone = Range(TopicName.parse("gone"), MessageId(5, 1), MessageId(5, 3))
    found = values_of(client, [*ranges[:place], gone, *ranges[place:]])
    assert isinstance(found.pop(place), TopicNotFoundError)
    assert found == values_of(client, ranges)


def test_lost_data_of_one_range_among_others(broker, client):
    ranges = publish_everywhere(broker, 3)
    ranges[1] = ranges[1]._replace(end=MessageId(ranges[1].end.ledger, 50))
    found = values_of(client, ranges)
    assert isinstance(found[1], DataLossError)
    assert [len(found[0]), len(found[2])] == [5, 5]
    kept = values_of(client, ranges, fail_on_data_loss=False)
    assert list(map(len, kept)) == [5, 5, 5]


def test_chunked_messages_of_several_ranges(broker, client):
    ranges = publish_everywhere(broker, 2)
    ids = broker.publish(TOPIC, *chunk_sections(A, 3, "a"), plain(b"0"))
    before = Range(TOPIC, ids[1], ids[-1])
    assert values_of(client, [ranges[0], before, ranges[1]])[1] == [A, b"0"]


@pytest.mark.parametrize("at", [1, 4, 23])
def test_connections_that_are_cut_while_ranges_are_read_change_nothing(broker, client, at):
    ranges = publish_everywhere(broker, 9)
    found = []
    for entries in read_ranges(client, ranges, poll_timeout=HANG):
        for value in values_in(flat(entries)):
            found.append(value)
            if len(found) == at:
                broker.cut()
    assert found == [b"%d/%d" % (number, entry) for number in range(9) for entry in range(5)]
