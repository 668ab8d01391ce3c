"""Chunks that lie before the range that holds their message's last: how far back they are looked for."""

import pytest

from pulsar_spark.client import ChunkLimits, read_range
from pulsar_spark.client.reading.chunk_search import positions_before
from pulsar_spark.ids import MessageId
from pulsar_spark.wire.commands import from_wire_id
from tests.client.clients import TOPIC, flat, singles, values_in
from tests.fake_broker import HANG
from tests.fake_clients import Type
from tests.fake_topics import chunk_sections, section_of

VALUE = bytes(range(250)) * 4


def read(client, start, end, **options):
    return list(flat(read_range(client, TOPIC, start, end, poll_timeout=HANG, **options)))


def fill(count):
    return singles([b"between"] * count)


@pytest.mark.parametrize("between", [0, 5, 40])
@pytest.mark.parametrize("rolls", [0, 1, 3])
def test_chunks_are_found_however_far_back_they_are(broker, client, between, rolls):
    topic = broker.create(TOPIC)
    broker.publish(TOPIC, section_of(b"before"))
    chunks = chunk_sections(VALUE, 4, "m")
    first = broker.publish(TOPIC, chunks[0], *fill(between))[0]
    for chunk in chunks[1:3]:
        for _ in range(rolls):
            topic.roll()
            broker.publish(TOPIC, *fill(2))
        before = broker.publish(TOPIC, chunk, *fill(between))[-1]
    last = broker.publish(TOPIC, chunks[3])[0]
    (message,) = read(client, before, last)
    assert values_in([message]) == [VALUE]
    assert message.first_chunk == first


def test_of_several_attempts_the_one_that_is_complete_counts(broker, client):
    chunks = chunk_sections(VALUE, 3, "m")
    ids = broker.publish(TOPIC, chunks[0], chunks[1], *chunks)
    (message,) = read(client, ids[3], ids[4])
    assert message.first_chunk == ids[2]


def test_a_last_chunk_that_comes_again_after_the_message_was_complete_is_no_message(broker, client, caplog):
    chunks = chunk_sections(VALUE, 3, "m")
    ids = broker.publish(TOPIC, *chunks, chunks[2])
    assert read(client, ids[2], ids[3]) == []
    assert "incomplete" not in caplog.text


def test_chunks_that_contradict_each_other_are_counted_as_such(broker, client, caplog):
    chunks = chunk_sections(VALUE, 4, "m")
    ids = broker.publish(TOPIC, chunks[0], chunks[2], chunks[3])
    assert read(client, ids[1], ids[2]) == []
    assert "1 incomplete chunked messages" in caplog.text


def test_it_does_not_go_further_back_than_a_message_may_take(broker, client, caplog):
    """Entries older than `expire` end the search: the first chunk lies before them."""
    topic = broker.create(TOPIC)
    chunks = chunk_sections(VALUE, 2, "m", publish_time=100_000)
    oldest = broker.publish(TOPIC, chunk_sections(VALUE, 2, "m", publish_time=1)[0])
    for time in (1, 2, 3):
        topic.roll()
        broker.publish(TOPIC, *singles([b"x"] * 3, publish_time=time))
    before = broker.publish(TOPIC, *singles([b"x"], publish_time=99_999))[0]
    last = broker.publish(TOPIC, chunks[1])[0]
    subscribed = len(broker.seen(Type.SUBSCRIBE))
    assert read(client, before, last, chunks=ChunkLimits(expire=60.0)) == []
    assert "its beginning is missing" in caplog.text
    starts = [from_wire_id(one.start_message_id) for one in broker.seen(Type.SUBSCRIBE)[subscribed:]]
    assert min(starts).ledger > oldest[0].ledger


def test_positions_go_back_in_steps_that_double(broker, client):
    topic = broker.create(TOPIC)
    ledgers = []
    for _ in range(3):
        ledgers.append(broker.publish(TOPIC, *fill(20))[0].ledger)
        topic.roll()
    last, middle, first = reversed(ledgers)
    found = list(positions_before(client, TOPIC, MessageId(last, 10), 4))
    assert found == [
        MessageId(last, 5),
        MessageId(last, 1),
        MessageId(last, -1),
        MessageId(middle, 3),
        MessageId(middle, -1),
        MessageId(first, -1),
    ]
