"""ArrivalWatch: something new shows without a question, and a lost broker may have something new."""

import pytest

from pulsar_spark.client import ArrivalWatch
from pulsar_spark.errors import TopicNotFoundError
from pulsar_spark.ids import MessageId, TxnId
from tests.client.clients import START, TOPIC, numbered, singles, wait_until
from tests.fake_broker import cut
from tests.fake_clients import Type
from tests.fake_topics import chunk_sections, section_of


@pytest.fixture
def last(broker):
    return broker.publish(TOPIC, *singles(numbered(5)))[-1]


def settle(client):
    """What the broker sent before has come."""
    client.partitions(TOPIC)


def test_what_comes_moves_it_without_a_question(broker, client, last):
    with ArrivalWatch(client, TOPIC, last) as watch:
        settle(client)
        assert not watch.moved
        commands = len(broker.commands)
        broker.publish(TOPIC, *singles(numbered(3)))
        wait_until(lambda: watch.moved)
        assert watch.moved
        assert not watch.is_chunk
        assert watch.moved
        assert len(broker.commands) == commands
        assert len(broker.consumers[0].sent) == 1  # and it is sent one entry only
    assert broker.open_consumers == []


def test_what_is_there_already_moves_it(client, last):
    with ArrivalWatch(client, TOPIC, MessageId(last.ledger, last.entry - 1)) as watch:
        wait_until(lambda: watch.moved)
    with ArrivalWatch(client, TOPIC, START) as watch:
        wait_until(lambda: watch.moved)


def test_what_no_consumer_is_given_does_not_move_it(broker, client, last):
    topic = broker.topics[str(TOPIC)]
    with ArrivalWatch(client, TOPIC, last) as watch:
        with broker.changed:
            topic.append(section_of(b"aborted"), TxnId(0, 1))
            topic.end(TxnId(0, 1), commit=False)
            broker.dispatch(topic)
        settle(client)
        assert not watch.moved


@pytest.mark.parametrize("how", ["cut", "close"])
def test_a_lost_broker_moves_it(broker, client, last, how):
    with ArrivalWatch(client, TOPIC, last) as watch:
        broker.cut() if how == "cut" else broker.close_all(TOPIC)
        wait_until(lambda: watch.moved)
        assert not watch.is_chunk


@pytest.mark.parametrize("number", [0, 1])
def test_a_part_of_a_message_is_told_apart(broker, client, last, number):
    with ArrivalWatch(client, TOPIC, last) as watch:
        broker.publish(TOPIC, chunk_sections(b"x" * 10, 2, "u")[number])
        wait_until(lambda: watch.moved)
        assert watch.is_chunk
        assert watch.moved


def test_what_cannot_be_taken_apart(broker, client, last):
    bad = bytearray(section_of(b"bad"))
    bad[-1] ^= 1
    with ArrivalWatch(client, TOPIC, last) as watch:
        broker.publish(TOPIC, bytes(bad))
        wait_until(lambda: watch.moved)
        assert not watch.is_chunk, "whoever reads it decides"
        assert watch.moved


def test_one_that_cannot_be_opened_leaves_nothing(broker, client, last):
    broker.script(Type.FLOW, [cut])
    ArrivalWatch(client, TOPIC, last).close()
    with pytest.raises(TopicNotFoundError):
        ArrivalWatch(client, TOPIC._replace(local="missing"), last)
    assert broker.open_consumers == []
