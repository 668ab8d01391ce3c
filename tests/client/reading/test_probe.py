"""EntryProbe: how far a run of entries goes, what it asks for, and nothing left behind."""

import pytest

from pulsar_spark.client import (
    EntryInfo,
    EntryProbe,
)
from pulsar_spark.errors import DeadlineError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TxnId
from tests.client.clients import START, TOPIC, batches, hurry, numbered, singles
from tests.client.reading.entry_ranges import BAD, size_of
from tests.fake_broker import silence
from tests.fake_clients import Type
from tests.fake_topics import chunk_sections, section_of

pytestmark = pytest.mark.usefixtures("leaves_nothing")


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


def test_a_topic_that_does_not_exist(client):
    with pytest.raises(TopicNotFoundError):
        EntryProbe(client, TOPIC, START)
