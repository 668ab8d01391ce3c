"""PlanningClient: the client it stands on, bounds, entries, times and ledgers, and nothing left behind."""

import pytest

from pulsar_spark.client import (
    Client,
    ClientOptions,
    EntryInfo,
    PartitionBounds,
    PlanningClient,
    now,
    shared_client,
)
from pulsar_spark.client.client import FIRST_CONTACT
from pulsar_spark.client.reading import planning_client
from pulsar_spark.errors import DeadlineError
from pulsar_spark.ids import MessageId, TxnId
from tests.client.clients import START, TOPIC, batches, hurry, numbered, singles
from tests.client.reading.entry_ranges import BAD, size_of
from tests.fake_broker import cut, pass_on
from tests.fake_clients import Type
from tests.fake_topics import NO_MESSAGE, chunk_sections, section_of

OPTIONS = ClientOptions(service_url="pulsar://localhost:1", operation_timeout=600.0)
pytestmark = pytest.mark.usefixtures("leaves_nothing")


def test_it_shares_the_client_of_its_process():
    assert PlanningClient.shared(OPTIONS)._client is shared_client(OPTIONS)
    assert 500.0 < PlanningClient.shared(OPTIONS).operation().left <= 600.0


def test_for_the_first_contact_it_has_another_client():
    with Client(OPTIONS) as client, PlanningClient(client).impatient() as impatient:
        assert impatient.operation().seconds == FIRST_CONTACT
        assert impatient._client is not client


def test_its_clock_never_goes_back():
    with Client(OPTIONS) as client:
        assert now() <= PlanningClient(client).now() <= now()


def test_a_compacted_topic_that_looks_empty_gets_some_turns(monkeypatch):
    monkeypatch.setattr(planning_client, "OPENS_COMPACTED_WITHIN", 0.35)
    with Client(OPTIONS) as client:
        began = now()
        turns = len(list(PlanningClient(client, read_compacted=True).opening_turns()))
        assert turns == 3 or (turns < 3 and now() - began > 0.35)
        assert now() - began >= 0.35
        assert not list(PlanningClient(client).opening_turns())


# ---- one entry


def test_what_is_known_of_an_entry(broker, client):
    batch = batches(numbered(7), 7)[0]
    chunks = chunk_sections(b"x" * 100, 2, "u", publish_time=77)
    ids = broker.publish(TOPIC, section_of(b"one", publish_time=123), batch, *chunks)
    one, many, first, last = (PlanningClient(client).probe_entry(TOPIC, position) for position in ids)
    assert one == EntryInfo(ids[0], 1, size_of(section_of(b"one", publish_time=123)), 123, None, False, False)
    assert (many.id, many.messages, many.size) == (ids[1], 7, size_of(batch))
    assert (first.chunk, first.chunked, first.publish_time) == (True, True, 77)
    assert (last.chunk, last.chunked) == (False, True)


def test_a_probe_is_sent_one_entry(broker, client):
    ids = broker.publish(TOPIC, *singles(numbered(50)))
    PlanningClient(client).probe_entry(TOPIC, ids[20])
    (mine,) = broker.consumers
    assert (mine.sent, mine.granted) == ([ids[20]], 1)


def test_where_there_is_no_entry_the_next_visible_one_is_meant(broker, client, topic):
    first = broker.publish(TOPIC, *singles(numbered(3)))
    topic.roll()
    with broker.changed:
        topic.end(TxnId(0, 1), commit=True)  # leaves a marker
    second = broker.publish(TOPIC, *singles(numbered(2)))
    assert PlanningClient(client).probe_entry(TOPIC, MessageId(first[0].ledger, 99)).id == second[0]
    assert PlanningClient(client).probe_entry(TOPIC, START).id == first[0]


def test_there_is_none(client, topic):
    hurry(client, 0.3)
    with pytest.raises(DeadlineError):
        PlanningClient(client).probe_entry(TOPIC, START)


def test_the_first_visible_entry_after_a_position(broker, client, topic):
    first = broker.publish(TOPIC, *singles(numbered(3)))
    topic.roll()
    with broker.changed:
        topic.end(TxnId(0, 1), commit=True)  # leaves a marker
    assert PlanningClient(client).first_after(TOPIC, first[2]) is None, "a marker is none"
    second = broker.publish(TOPIC, *singles(numbered(2)))
    assert PlanningClient(client).first_after(TOPIC, START) == first[0]
    assert PlanningClient(client).first_after(TOPIC, first[0]) == first[1]
    assert PlanningClient(client).first_after(TOPIC, first[2]) == second[0]
    topic.trim(first[0].ledger)
    assert PlanningClient(client).first_after(TOPIC, first[0]) == second[0]
    assert PlanningClient(client).first_after(TOPIC, second[1]) is None


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
    assert PlanningClient(client).first_at(TOPIC, time, 0, START, ids[-1]) == expected
    assert len(broker.consumers) <= 2 * 6


def test_the_margin_before_a_time_is_read_by_one_reader(broker, client, topic):
    """Not by a probe for each entry; and nothing is read but what the search has left."""
    times = [100 + number - 90 * (number == 399) for number in range(400)]
    ids = broker.publish(TOPIC, *(section_of(b"", publish_time=time) for time in times))
    assert PlanningClient(client).first_at(TOPIC, 450, 100, START, ids[-1]) == ids[350]
    *probes, reader = broker.consumers
    assert all(len(each.sent) == 1 for each in probes)
    assert len(probes) < 12
    assert reader.sent[0] == ids[251]
    assert PlanningClient(client).first_at(TOPIC, 550, 300, START, ids[-1]) is None


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
    assert PlanningClient(client, read_compacted=True).bounds(TOPIC) == PartitionBounds(START, START)
    broker.script(Type.GET_LAST_MESSAGE_ID, [pass_on, keeps(MessageId(0, 7, 3))])
    kept = PlanningClient(client, read_compacted=True).bounds(TOPIC)
    assert kept == PartitionBounds(START, MessageId(0, 7))
    assert [one.read_compacted for one in broker.seen(Type.SUBSCRIBE)[-2:]] == [False, True]
    ids = broker.publish(TOPIC, *singles(numbered(3)))
    assert PlanningClient(client, read_compacted=True).bounds(TOPIC) == PartitionBounds(START, ids[-1])


def test_a_time_is_searched_for_when_the_broker_has_opened_what_compaction_left(broker, client, topic):
    ids = broker.publish(TOPIC, *(section_of(b"", publish_time=100 + at) for at in range(3)))
    broker.script(Type.GET_LAST_MESSAGE_ID, [keeps(NO_MESSAGE)] * 2 + [keeps(ids[2])])
    found = PlanningClient(client, read_compacted=True).first_at(TOPIC, 101, 0, START, ids[2])
    assert found == ids[1]


@pytest.mark.parametrize(
    ("kept", "time", "found"), [(2, 1, 0), (2, 102, 1), (2, 104, 2), (2, 105, None), (None, 1, None)]
)
def test_times_are_not_searched_for_after_what_compaction_left(
    broker, client, topic, monkeypatch, kept, time, found
):
    """A probe there would wait in vain: entries 3 and 4 were compacted away."""
    monkeypatch.setattr(planning_client, "OPENS_COMPACTED_WITHIN", 0.0)
    ids = broker.publish(TOPIC, *(section_of(b"", publish_time=100 + 2 * at) for at in range(5)))
    last = NO_MESSAGE if kept is None else ids[kept]
    broker.script(Type.GET_LAST_MESSAGE_ID, [keeps(last)])
    searched = PlanningClient(client, read_compacted=True).first_at(TOPIC, time, 0, START, ids[-1])
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
        return PlanningClient(client).ledger_end(TOPIC, position, last)

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
    assert PlanningClient(client).ledger_end(TOPIC, first[0], second[-1]) == 4


# ---- counts of entries


def test_entries_are_counted_up_to_the_end_of_a_range(broker, client, topic):
    first = broker.publish(TOPIC, *singles(numbered(4)))
    topic.roll()
    topic.roll()
    second = broker.publish(TOPIC, *singles(numbered(5)))
    topic.roll()
    broker.publish(TOPIC, *singles(numbered(3)))
    count = PlanningClient(client).count_entries
    for end, more in ((second[1], 2), (second[-1], 5)):
        assert count(TOPIC, end, first[0]) == (MessageId(first[0].ledger, -1), 4 + more)
        assert count(TOPIC, end, first[2]) == (first[1], 2 + more)
        for position in (first[-1].next_entry, MessageId(second[0].ledger - 1, 0), second[0]):
            assert count(TOPIC, end, position) == (first[-1], more)
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
    assert PlanningClient(client).count_entries(TOPIC, ids[-1], ids[2]) == (ids[1], 4)
    assert len(broker.seen(Type.CONSUMER_STATS)) == requests


def test_a_topic_that_grows_too_fast_is_counted_at_last(broker, client, grows):
    ids = broker.publish(TOPIC, *singles(numbered(6)))
    broker.script(Type.CONSUMER_STATS, [grows] * 60)
    assert PlanningClient(client).count_entries(TOPIC, ids[-1], ids[2]) == (ids[1], 5)
    assert len(broker.seen(Type.CONSUMER_STATS)) == 60


def test_a_reader_that_is_lost_meanwhile_is_replaced(broker, client):
    ids = broker.publish(TOPIC, *singles(numbered(6)))
    broker.script(Type.CONSUMER_STATS, [cut])
    assert PlanningClient(client).count_entries(TOPIC, ids[-1], ids[2]) == (ids[1], 4)
    assert len(broker.seen(Type.SUBSCRIBE)) == 4


# ---- entries that cannot be taken apart


def test_one_that_cannot_be_taken_apart_is_still_an_entry(broker, client, topic):
    ids = broker.publish(TOPIC, BAD, section_of(b"good"))
    topic.roll()
    more = broker.publish(TOPIC, BAD)
    assert PlanningClient(client).probe_entry(TOPIC, ids[0]).corrupt
    assert not PlanningClient(client).probe_entry(TOPIC, ids[1]).corrupt
    assert PlanningClient(client).ledger_end(TOPIC, ids[0], more[0]) == 1


@pytest.mark.parametrize("bad", [{0}, {3}, {4}, {5}, {9}, {3, 4, 5}, {4, 5, 6, 7, 8, 9}, set(range(10))])
@pytest.mark.parametrize("time", [0, 4, 5, 9, 10])
@pytest.mark.parametrize("margin", [0, 3])
def test_a_time_is_found_among_entries_that_cannot_be_taken_apart(broker, client, bad, time, margin):
    """Nothing that is in time lies before what is found, and no more of what is not than cannot be helped."""
    sections = [BAD if number in bad else section_of(b"", publish_time=number) for number in range(10)]
    ids = broker.publish(TOPIC, *sections)
    good = sorted(set(range(10)) - bad)
    found = PlanningClient(client).first_at(TOPIC, time, margin, START, ids[-1])
    place = 10 if found is None else ids.index(found)
    assert all(number < time for number in good if number < place)
    assert all(number >= time for number in good if number >= place)
