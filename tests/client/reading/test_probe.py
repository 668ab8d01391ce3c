"""Probes: sizes and times of entries, the first of a time, the ends of ledgers, and nothing left behind."""

import pytest

from pulsar_spark.client import (
    EntryInfo,
    EntryProbe,
    PartitionBounds,
    first_at,
    ledger_end,
    probe_bounds,
    probe_entry,
)
from pulsar_spark.client.reading import probe
from pulsar_spark.client.reading.probe import count_entries
from pulsar_spark.errors import DeadlineError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TxnId
from tests.client.clients import START, TOPIC, batches, hurry, numbered, singles
from tests.fake_broker import cut, pass_on, silence
from tests.fake_clients import Type
from tests.fake_topics import NO_MESSAGE, chunk_sections, section_of, split_section

BAD = section_of(b"bad")[:-1] + b"!"  # its checksum is wrong


@pytest.fixture(autouse=True)
def nothing_left_behind(broker):
    yield
    # A run of entries closes its reader without waiting for the broker.
    broker.wait_for(lambda: not broker.open_consumers)
    assert all(not topic.cursors for topic in broker.topics.values())


def size_of(section):
    metadata, payload = split_section(section)
    return metadata.ByteSize() + len(payload)


# ---- one entry


def test_what_is_known_of_an_entry(broker, client):
    batch = batches(numbered(7), 7)[0]
    chunks = chunk_sections(b"x" * 100, 2, "u", publish_time=77)
    ids = broker.publish(TOPIC, section_of(b"one", publish_time=123), batch, *chunks)
    one, many, first, last = (probe_entry(client, TOPIC, position) for position in ids)
    assert one == EntryInfo(ids[0], 1, size_of(section_of(b"one", publish_time=123)), 123, None, False, False)
    assert (many.id, many.messages, many.size) == (ids[1], 7, size_of(batch))
    assert (first.chunk, first.chunked, first.publish_time) == (True, True, 77)
    assert (last.chunk, last.chunked) == (False, True)


def test_a_probe_is_sent_one_entry(broker, client):
    ids = broker.publish(TOPIC, *singles(numbered(50)))
    probe_entry(client, TOPIC, ids[20])
    (mine,) = broker.consumers
    assert (mine.sent, mine.granted) == ([ids[20]], 1)


def test_where_there_is_no_entry_the_next_visible_one_is_meant(broker, client, topic):
    first = broker.publish(TOPIC, *singles(numbered(3)))
    topic.roll()
    with broker.changed:
        topic.end(TxnId(0, 1), commit=True)  # leaves a marker
    second = broker.publish(TOPIC, *singles(numbered(2)))
    assert probe_entry(client, TOPIC, MessageId(first[0].ledger, 99)).id == second[0]
    assert probe_entry(client, TOPIC, START).id == first[0]


def test_there_is_none(client, topic):
    hurry(client, 0.3)
    with pytest.raises(DeadlineError):
        probe_entry(client, TOPIC, START)


def test_the_first_visible_entry_after_a_position(broker, client, topic):
    first = broker.publish(TOPIC, *singles(numbered(3)))
    topic.roll()
    with broker.changed:
        topic.end(TxnId(0, 1), commit=True)  # leaves a marker
    assert probe.first_after(client, TOPIC, first[2]) is None, "a marker is none"
    second = broker.publish(TOPIC, *singles(numbered(2)))
    assert probe.first_after(client, TOPIC, START) == first[0]
    assert probe.first_after(client, TOPIC, first[0]) == first[1]
    assert probe.first_after(client, TOPIC, first[2]) == second[0]
    topic.trim(first[0].ledger)
    assert probe.first_after(client, TOPIC, first[0]) == second[0]
    assert probe.first_after(client, TOPIC, second[1]) is None


# ---- by time


@pytest.mark.parametrize("time", [99, 100, 101, 117, 118, 139, 140, 158, 159])
def test_the_first_entry_of_a_time(broker, client, topic, time):
    """Entries of every second ms from 100 on, in ledgers of 10."""
    ids = []
    for first in range(0, 30, 10):
        ids += broker.publish(
            TOPIC, *(section_of(b"", publish_time=100 + 2 * at) for at in range(first, first + 10))
        )
        topic.roll()
    expected = next((ids[at] for at in range(30) if 100 + 2 * at >= time), None)
    assert first_at(client, TOPIC, time, 0, START, ids[-1]) == expected
    assert len(broker.consumers) <= 2 * 6


def test_the_margin_before_a_time_is_read_by_one_reader(broker, client, topic):
    """Not by a probe for each entry; and nothing is read but what the search has left."""
    times = [100 + number - 90 * (number == 399) for number in range(400)]
    ids = broker.publish(TOPIC, *(section_of(b"", publish_time=time) for time in times))
    assert first_at(client, TOPIC, 450, 100, START, ids[-1]) == ids[350]
    *probes, reader = broker.consumers
    assert all(len(each.sent) == 1 for each in probes)
    assert len(probes) < 12
    assert reader.sent[0] == ids[251]
    assert first_at(client, TOPIC, 550, 300, START, ids[-1]) is None


# ---- what compaction left


def keeps(last):
    """Answer as to a reader of what compaction left, which ends there."""

    def action(connection, frame):
        connection.send(
            Type.GET_LAST_MESSAGE_ID_RESPONSE,
            request_id=frame.command.getLastMessageId.request_id,
            last_message_id=last,
            consumer_mark_delete_position=NO_MESSAGE,
        )

    return action


def test_what_compaction_left_begins_before_the_log_and_may_end_there(broker, client, topic):
    assert probe_bounds(client, TOPIC, read_compacted=True) == PartitionBounds(START, START)
    broker.script(Type.GET_LAST_MESSAGE_ID, [pass_on, keeps(MessageId(0, 7, 3))])
    kept = probe_bounds(client, TOPIC, read_compacted=True)
    assert kept == PartitionBounds(START, MessageId(0, 7))
    assert [one.read_compacted for one in broker.seen(Type.SUBSCRIBE)[-2:]] == [False, True]
    ids = broker.publish(TOPIC, *singles(numbered(3)))
    assert probe_bounds(client, TOPIC, read_compacted=True) == PartitionBounds(START, ids[-1])


def test_a_time_is_searched_for_when_the_broker_has_opened_what_compaction_left(broker, client, topic):
    ids = broker.publish(TOPIC, *(section_of(b"", publish_time=100 + at) for at in range(3)))
    broker.script(Type.GET_LAST_MESSAGE_ID, [keeps(NO_MESSAGE)] * 2 + [keeps(ids[2])])
    found = first_at(client, TOPIC, 101, 0, START, ids[2], read_compacted=True)
    assert found == ids[1]


@pytest.mark.parametrize(
    ("kept", "time", "found"), [(2, 1, 0), (2, 102, 1), (2, 104, 2), (2, 105, None), (None, 1, None)]
)
def test_times_are_not_searched_for_after_what_compaction_left(
    broker, client, topic, monkeypatch, kept, time, found
):
    """A probe there would wait in vain: entries 3 and 4 were compacted away."""
    monkeypatch.setattr(probe, "OPENS_COMPACTED_WITHIN", 0.0)
    ids = broker.publish(TOPIC, *(section_of(b"", publish_time=100 + 2 * at) for at in range(5)))
    last = NO_MESSAGE if kept is None else ids[kept]
    broker.script(Type.GET_LAST_MESSAGE_ID, [keeps(last)])
    searched = first_at(client, TOPIC, time, 0, START, ids[-1], read_compacted=True)
    assert searched == (None if found is None else ids[found])
    assert all(one.read_compacted for one in broker.seen(Type.SUBSCRIBE))


# ---- the ends of ledgers


def test_where_ledgers_end(broker, client, topic):
    first = broker.publish(TOPIC, *singles(numbered(4)))
    topic.roll()
    second = broker.publish(TOPIC, *singles(numbered(2)))
    topic.roll()
    topic.roll()
    third = broker.publish(TOPIC, *singles(numbered(3)))
    last = third[1]

    def end(position):
        return ledger_end(client, TOPIC, position, last)

    assert end(first[1]) == 3
    assert end(second[0]) == 1
    assert end(MessageId(third[0].ledger - 1, -1)) == -1
    assert end(third[0]) == 1
    topic.trim(first[0].ledger)
    assert end(first[1]) == -1


def test_markers_count_where_a_ledger_ends(broker, client, topic):
    first = broker.publish(TOPIC, *singles(numbered(4)))
    with broker.changed:
        topic.end(TxnId(0, 1), commit=True)
    topic.roll()
    second = broker.publish(TOPIC, *singles(numbered(2)))
    assert ledger_end(client, TOPIC, first[0], second[-1]) == 4


# ---- counts of entries


def test_entries_are_counted_up_to_the_end_of_a_range(broker, client, topic):
    first = broker.publish(TOPIC, *singles(numbered(4)))
    topic.roll()
    topic.roll()
    second = broker.publish(TOPIC, *singles(numbered(5)))
    topic.roll()
    broker.publish(TOPIC, *singles(numbered(3)))
    for end, more in ((second[1], 2), (second[-1], 5)):
        assert count_entries(client, TOPIC, end, first[0]) == (MessageId(first[0].ledger, -1), 4 + more)
        assert count_entries(client, TOPIC, end, first[2]) == (first[1], 2 + more)
        for position in (first[-1].next_entry, MessageId(second[0].ledger - 1, 0), second[0]):
            assert count_entries(client, TOPIC, end, position) == (first[-1], more)
    assert not broker.seen(Type.FLOW)


@pytest.fixture
def grows(broker):
    """Answers; then a message comes."""

    def action(connection, frame):
        connection.handle(frame)
        broker.publish(TOPIC, *singles(numbered(1)))

    return action


@pytest.mark.parametrize(("before", "requests"), [(0, 6), (1, 6), (2, 3)])
def test_a_topic_that_grows_between_two_counts_is_counted_again(broker, client, grows, before, requests):
    ids = broker.publish(TOPIC, *singles(numbered(6)))
    broker.script(Type.CONSUMER_STATS, [pass_on] * before + [grows])
    assert count_entries(client, TOPIC, ids[-1], ids[2]) == (ids[1], 4)
    assert len(broker.seen(Type.CONSUMER_STATS)) == requests


def test_a_topic_that_grows_too_fast_is_counted_at_last(broker, client, grows):
    ids = broker.publish(TOPIC, *singles(numbered(6)))
    broker.script(Type.CONSUMER_STATS, [grows] * 60)
    assert count_entries(client, TOPIC, ids[-1], ids[2]) == (ids[1], 5)
    assert len(broker.seen(Type.CONSUMER_STATS)) == 60


def test_a_reader_that_is_lost_meanwhile_is_an_error_to_be_retried(broker, client):
    ids = broker.publish(TOPIC, *singles(numbered(6)))
    broker.script(Type.CONSUMER_STATS, [cut])
    with pytest.raises(PulsarError) as caught:
        count_entries(client, TOPIC, ids[-1], ids[2])
    assert caught.value.retriable


# ---- a run of entries


def test_a_run_stops_at_messages_bytes_or_the_end(broker, client):
    sections = batches(numbered(100), 10)
    ids = broker.publish(TOPIC, *sections)
    with EntryProbe(client, TOPIC, START) as probe:
        assert probe.position == START
        assert [one.id for one in probe.read(25, 1 << 20, ids[-1])] == ids[:3]
        assert probe.position == ids[2]
        size = size_of(sections[3])
        assert [one.id for one in probe.read(1000, 2 * size - 1, ids[-1])] == ids[3:5]
        assert [one.id for one in probe.read(1000, 1 << 20, ids[7])] == ids[5:8]
        assert probe.read(1000, 1 << 20, ids[7]) == []
        assert probe.read(0, 1 << 20, ids[9]) == []
        assert [one.id for one in probe.read(1000, 1 << 20, MessageId(ids[9].ledger, 9, 3))] == ids[8:]


def test_a_run_asks_for_what_it_may_need(broker, client):
    ids = broker.publish(TOPIC, *singles(numbered(200)))
    with EntryProbe(client, TOPIC, ids[4]) as probe:
        assert [one.id for one in probe.read(20, 1 << 20, ids[-1])] == ids[5:25]
    (mine,) = broker.consumers
    assert mine.granted <= 40  # the last request may be for as many again


def test_a_message_in_chunks_counts_with_its_last(broker, client):
    ids = broker.publish(TOPIC, *chunk_sections(b"x" * 100, 4, "u"), *singles(numbered(3)))
    with EntryProbe(client, TOPIC, START) as probe:
        assert [one.id for one in probe.read(2, 1 << 20, ids[-1])] == ids[:5]


def test_a_run_goes_on_over_a_lost_connection_and_ledgers(broker, client, topic):
    ids = broker.publish(TOPIC, *singles(numbered(5)))
    topic.roll()
    ids += broker.publish(TOPIC, *singles(numbered(5)))
    with EntryProbe(client, TOPIC, START) as probe:
        found = probe.read(3, 1 << 20, ids[-1])
        broker.cut()
        found += probe.read(99, 1 << 20, ids[-1])
        assert [one.id for one in found] == ids


def test_a_run_meets_an_entry_that_cannot_be_taken_apart(broker, client):
    ids = broker.publish(TOPIC, section_of(b"good"), BAD, BAD, section_of(b"good"), BAD)
    with EntryProbe(client, TOPIC, START) as probe:
        assert [one.id for one in probe.read(1, 1 << 20, ids[-1])] == ids[:1]
        found = probe.read(9, 1 << 20, ids[-1])
        assert [one.id for one in found] == ids[1:]
        assert [one.corrupt for one in found] == [True, True, False, True]
        assert found[0] == EntryInfo(ids[1], 1, 1, 0, None, False, False, True)


def test_what_the_broker_has_read_over_ends_a_run(broker, client, topic, caplog):
    """It acknowledges what it never delivers, though that may count as the last message."""
    ids = broker.publish(TOPIC, *singles(numbered(3)))
    with broker.changed:
        topic.end(TxnId(0, 1), commit=True)
    end = MessageId(ids[-1].ledger, ids[-1].entry + 1)
    with EntryProbe(client, TOPIC, START) as probe:
        hurry(client, 0.3)
        assert [one.id for one in probe.read(9, 1 << 20, end)] == ids
        assert "is delivered" in caplog.text
        assert probe.read(9, 1 << 20, end) == []
        broker.script(Type.GET_LAST_MESSAGE_ID, [silence] * 9)
        with pytest.raises(DeadlineError):
            probe.read(9, 1 << 20, end)


@pytest.mark.parametrize("known", [0, 3])
def test_an_entry_that_is_late_is_no_entry_that_is_never_delivered(broker, client, topic, known):
    """As where the broker waits for a bookie, or throttles."""
    ids = broker.publish(TOPIC, *singles(numbered(known)))
    with broker.changed:
        topic.end(TxnId(0, 1), commit=True)
    end = MessageId(1, known + 1)
    with EntryProbe(client, TOPIC, START) as probe:
        hurry(client, 0.3)
        if known:
            assert [one.id for one in probe.read(9, 1 << 20, end)] == ids
        broker.script(Type.FLOW, [silence] * 9)
        for _ in range(2):
            with pytest.raises(DeadlineError, match="no message was received"):
                probe.read(9, 1 << 20, end)
        broker.publish(TOPIC, section_of(b"late"))
    hurry(client, 30.0)
    with EntryProbe(client, TOPIC, MessageId(1, known - 1)) as probe:
        broker.script(Type.FLOW, [])
        assert [one.id for one in probe.read(9, 1 << 20, end)] == [end]


def test_one_that_cannot_be_taken_apart_is_still_an_entry(broker, client, topic):
    ids = broker.publish(TOPIC, BAD, section_of(b"good"))
    topic.roll()
    more = broker.publish(TOPIC, BAD)
    assert probe_entry(client, TOPIC, ids[0]).corrupt
    assert not probe_entry(client, TOPIC, ids[1]).corrupt
    assert ledger_end(client, TOPIC, ids[0], more[0]) == 1


@pytest.mark.parametrize("bad", [{0}, {3}, {4}, {5}, {9}, {3, 4, 5}, {4, 5, 6, 7, 8, 9}, set(range(10))])
@pytest.mark.parametrize("time", [0, 4, 5, 9, 10])
@pytest.mark.parametrize("margin", [0, 3])
def test_a_time_is_found_among_entries_that_cannot_be_taken_apart(broker, client, bad, time, margin):
    """Nothing that is in time lies before what is found, and no more of what is not than cannot be helped."""
    sections = [BAD if number in bad else section_of(b"", publish_time=number) for number in range(10)]
    ids = broker.publish(TOPIC, *sections)
    good = sorted(set(range(10)) - bad)
    found = first_at(client, TOPIC, time, margin, START, ids[-1])
    place = 10 if found is None else ids.index(found)
    assert all(number < time for number in good if number < place)
    assert all(number >= time for number in good if number >= place)


def test_a_topic_that_does_not_exist(client):
    with pytest.raises(TopicNotFoundError):
        EntryProbe(client, TOPIC, START)
