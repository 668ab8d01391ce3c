"""Chunks that lie before the range that holds their message's last: how far back they are looked for."""

import pytest

from pulsar_spark.client import ChunkLimits, PlanningClient
from pulsar_spark.client.reading import message_range
from pulsar_spark.client.reading.entry_range import positions_before
from pulsar_spark.errors import DeadlineError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading import chunk_index
from tests.client.clients import TOPIC, flat, hurry, singles, values_in
from tests.fake_broker import HANG, pass_on, silence
from tests.fake_clients import Type
from tests.fake_topics import chunk_sections, section_of
from tests.ranges import read_range

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


def dated(time_ms, count):
    return singles([b"x"] * count, publish_time=time_ms)


def orphan(uuid, **more):
    """The last chunk of a message whose first one nobody has written."""
    return chunk_sections(VALUE, 2, uuid, **more)[1]


def entries_sent(broker):
    return sum(len(consumer.sent) for consumer in broker.consumers)


MINUTE = 60_000  # ms


@pytest.mark.parametrize("time_ms", [1, 100 * MINUTE, 10**15])
def test_it_does_not_go_further_back_than_a_message_may_take(broker, client, caplog, time_ms):
    """As the entries around the chunk are dated, in the broker's order; its own date proves nothing."""
    topic = broker.create(TOPIC)
    for minute in range(50, 101):
        broker.publish(TOPIC, *dated(minute * MINUTE, 40))
        if minute % 10 == 0:
            topic.roll()
    before = broker.publish(TOPIC, *dated(100 * MINUTE, 1))[0]
    last = broker.publish(TOPIC, orphan("m", publish_time=time_ms))[0]
    assert read(client, before, last, chunks=ChunkLimits(expire=60.0)) == []
    assert "its first chunk is missing" in caplog.text
    assert entries_sent(broker) < 500


@pytest.mark.parametrize("lie", [1, 10**15])
def test_dates_of_others_do_not_end_the_search_too_early(broker, client, lie):
    """A third of the entries say that they are decades away."""
    chunks = chunk_sections(VALUE, 2, "m", publish_time=100 * MINUTE)
    first = broker.publish(TOPIC, chunks[0])[0]
    for _ in range(100):
        broker.publish(TOPIC, *dated(100 * MINUTE, 2), *dated(lie, 1))
    before = broker.publish(TOPIC, *dated(lie, 3))[-1]
    last = broker.publish(TOPIC, chunks[1])[0]
    (message,) = read(client, before, last)
    assert message.first_chunk == first


def test_orphans_are_not_searched_for_again_in_the_next_micro_batches(broker, client, caplog):
    """Each micro-batch read all entries of the last minute again, for one of 60 bytes."""
    before = broker.publish(TOPIC, *dated(100 * MINUTE, 3000))[-1]
    for number in range(10):
        last = broker.publish(TOPIC, *dated(100 * MINUTE, 5), orphan(f"orphan {number}"))[-1]
        assert len(read(client, before, last)) == 5
        before = last
    assert caplog.text.count("its first chunk is missing") == 10
    assert entries_sent(broker) <= 3000 + 60


def test_a_search_ends_where_another_range_has_read(broker, client, caplog):
    """Other processes may have read the ranges between."""
    ids = broker.publish(TOPIC, *dated(100 * MINUTE, 3000), orphan("a"), *dated(100 * MINUTE, 100))
    read(client, ids[2999], ids[3000])
    last = broker.publish(TOPIC, orphan("b"))[-1]
    sent = entries_sent(broker)
    assert read(client, ids[-1], last) == []
    assert entries_sent(broker) == sent + 101


@pytest.mark.parametrize("between", [1, 200])
def test_chunks_of_ranges_before_are_found_where_they_lie(broker, client, between):
    chunks = chunk_sections(VALUE, 3, "m")
    broker.publish(TOPIC, *fill(1000))
    ids = [broker.publish(TOPIC, *fill(between), chunk)[-1] for chunk in chunks[:2]]
    ids += broker.publish(TOPIC, *fill(between), chunks[2])
    read(client, ids[0].back(1), ids[0])
    read(client, ids[0], ids[-2])
    sent = entries_sent(broker)
    (message,) = read(client, ids[-2], ids[-1])
    assert values_in([message]) == [VALUE]
    assert message.first_chunk == ids[0]
    assert entries_sent(broker) <= sent + 4


def test_a_range_that_is_read_again_gives_the_same(broker, client):
    chunks = chunk_sections(VALUE, 2, "m")
    ids = broker.publish(TOPIC, *fill(40), chunks[0], *fill(40), chunks[1], *fill(3))
    ranges = [(ids[10], ids[50]), (ids[50], ids[-1])]
    first = [values_in(read(client, *each)) for each in ranges]
    assert [values_in(read(client, *each)) for each in [*ranges, *ranges[::-1]]] == [*first, *first[::-1]]
    assert values_in(read(client, ids[80], ids[81])) == [VALUE]
    assert values_in(read(client, ids[3], ids[-1])) == [*[b"between"] * 76, VALUE, *[b"between"] * 3]


def test_last_chunks_that_come_again_do_not_have_the_others_read_again(broker, client):
    """A stranger's copy of a few bytes, of a message of megabytes."""
    chunks = chunk_sections(VALUE, 3, "m")
    ids = broker.publish(TOPIC, *fill(50), *chunks, *fill(1))
    assert len(read(client, ids[0], ids[-1])) == 51
    before, sent = ids[-1], entries_sent(broker)
    for _ in range(10):
        last = broker.publish(TOPIC, chunks[2])[-1]
        assert read(client, before, last) == []
        before = last
    assert entries_sent(broker) == sent + 10


def test_a_last_chunk_of_another_size_does_not_have_the_others_read(broker, client, caplog):
    *chunks, own = chunk_sections(VALUE, 3, "m")
    ids = broker.publish(TOPIC, *fill(50), *chunks)
    strange = section_of(b"x", uuid=b"m", chunk_id=2, num_chunks_from_msg=3, total_chunk_msg_size=len(VALUE))
    before = ids[-1]
    read(client, ids[0], before)
    sent = entries_sent(broker)
    for _ in range(10):
        last = broker.publish(TOPIC, strange)[-1]
        assert read(client, before, last) == []
        before = last
    assert entries_sent(broker) <= sent + 10 + 1
    (message,) = read(client, before, broker.publish(TOPIC, own)[-1])
    assert values_in([message]) == [VALUE]


def test_an_orphan_that_comes_again_and_again_is_one_message_that_may_begin_later(broker, client, caplog):
    chunks = chunk_sections(VALUE, 2, "m")
    ids = broker.publish(TOPIC, *fill(5), *[chunks[1]] * 10)
    assert values_in(read(client, ids[0], ids[-1])) == [b"between"] * 4
    assert "1 incomplete chunked messages" in caplog.text
    caplog.clear()
    more = broker.publish(TOPIC, chunks[1], *chunks, chunks[1])
    assert values_in(read(client, ids[-1], more[-1])) == [VALUE]
    assert "incomplete" not in caplog.text


def test_wrong_last_chunks_are_not_tried_without_an_end(broker, client, caplog, monkeypatch):
    """Each takes as long as the message has chunks, those wrong ones too."""
    monkeypatch.setattr(chunk_index, "_MAX_EFFORT", 1000)
    tried = []
    chunks_before = chunk_index.ChunkIndex.chunks_before
    monkeypatch.setattr(
        chunk_index.ChunkIndex, "chunks_before", lambda *given: tried.append(1) or chunks_before(*given)
    )
    *chunks, own = chunk_sections(VALUE, 3, "m")
    wrong = section_of(b"x", uuid=b"m", chunk_id=2, num_chunks_from_msg=3, total_chunk_msg_size=len(VALUE))
    ids = broker.publish(TOPIC, *fill(1), *chunks, *[wrong] * 200, own)
    assert values_in(read(client, ids[0], ids[-1])) == [VALUE]
    assert 40 <= len(tried) < 50


@pytest.mark.parametrize("cut", range(6))
@pytest.mark.parametrize("number", [0, 1])
def test_a_strangers_chunk_changes_nothing_wherever_ranges_end(broker, client, cut, number):
    """It has all names of the message, and its size, but not its time."""
    chunks = chunk_sections(VALUE, 3, "m", publish_time=5000, sequence_id=9)
    size = len(chunk_sections(VALUE, 3, "m")[number]) - len(section_of(b"", uuid=b"m", chunk_id=number))
    strange = chunk_sections(bytes(len(VALUE)), 3, "m", publish_time=5001, sequence_id=9)[number]
    assert size > 0
    ids = broker.publish(TOPIC, chunks[0], strange, chunks[1], strange, chunks[2])
    places = [ids[0].previous, *ids]
    found = read(client, places[0], places[cut]) + read(client, places[cut], ids[-1])
    assert values_in(found) == [VALUE]


@pytest.mark.parametrize("between", [1, 30, 500])
def test_a_strangers_chunk_near_by_does_not_hide_the_right_one_further_back(broker, client, between):
    """Of a range that holds the last chunk only: what is found first seems to be all."""
    chunks = chunk_sections(VALUE, 3, "m", publish_time=5000)
    strange = chunk_sections(bytes(len(VALUE)), 3, "m", publish_time=5001)
    ids = broker.publish(TOPIC, chunks[0], *fill(between), strange[0], strange[1], chunks[1], chunks[2])
    assert values_in(read(client, ids[-2], ids[-1])) == [VALUE]


def test_what_is_known_of_chunks_is_bounded(broker, client, monkeypatch):
    monkeypatch.setattr(message_range, "_MAX_REMEMBERED", 3)
    for name in ("a", "b", "c"):
        topic = TopicName.parse(name)
        ids = broker.publish(topic, *fill(100), orphan("m"), orphan("n"))
        list(read_range(client, topic, ids[-3], ids[-1], poll_timeout=HANG))
    kept = message_range._kept[client]
    assert [name for name, *_ in kept] == [TopicName.parse("c")]


def test_many_orphans_are_searched_for_together(broker, client, caplog):
    broker.publish(TOPIC, *dated(100 * MINUTE, 500))
    before = broker.publish(TOPIC, *chunk_sections(VALUE, 2, "good")[:1], *dated(100 * MINUTE, 50))[-1]
    sections = [orphan(f"orphan {number}", publish_time=1) for number in range(10)]
    last = broker.publish(TOPIC, *sections, *chunk_sections(VALUE, 2, "good")[1:])[-1]
    (message,) = read(client, before, last)
    assert values_in([message]) == [VALUE]
    assert "10 incomplete chunked messages" in caplog.text
    # The topic once, the range once, and the good message from its beginning.
    assert entries_sent(broker) <= 551 + 11 + 61


def test_a_search_has_an_end_where_time_sets_none(broker, client, caplog, monkeypatch):
    monkeypatch.setattr(chunk_index, "_MAX_ENTRIES", 100)
    before = broker.publish(TOPIC, *dated(100 * MINUTE, 2000))[-1]
    last = broker.publish(TOPIC, orphan("m"))[0]
    assert read(client, before, last, chunks=ChunkLimits(expire=0.0)) == []
    assert "its first chunk is missing" in caplog.text
    assert entries_sent(broker) < 300


def test_a_message_that_was_given_up_as_one_too_many_is_read_again_from_its_first_chunk(broker, client):
    broker.publish(TOPIC, *fill(300))
    parts = [chunk_sections(VALUE, 2, uuid) for uuid in "abc"]
    ids = broker.publish(TOPIC, *[part[0] for part in parts], *[part[1] for part in parts])
    messages = read(client, ids[0].back(1), ids[-1], chunks=ChunkLimits(max_pending=1))
    assert values_in(messages) == [VALUE] * 3
    assert entries_sent(broker) < 50


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


def test_chunks_are_looked_for_with_another_reader_where_entries_are_late(broker, client):
    ids = broker.publish(TOPIC, *fill(2), chunk_sections(VALUE, 4, "m")[0])
    hurry(client, 0.3)
    broker.script(Type.FLOW, [pass_on, silence, pass_on])
    assert PlanningClient(client).has_chunks_before(TOPIC, ids[-1], 16)


def test_late_entries_are_not_taken_for_none_that_are_chunks(broker, client):
    ids = broker.publish(TOPIC, *fill(2), chunk_sections(VALUE, 4, "m")[0])
    hurry(client, 0.3)
    broker.script(Type.FLOW, [silence] * 9)
    with pytest.raises(DeadlineError):
        PlanningClient(client).has_chunks_before(TOPIC, ids[-1], 16)
