"""Tail: what comes shows without a question, and every entry is seen while few come at a time."""

import threading
import time

import pytest

from pulsar_spark.client import Arrivals, Tail
from pulsar_spark.errors import TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from tests.client.clients import START, TOPIC, batches, numbered, singles, wait_until
from tests.fake_broker import HANG, cut
from tests.fake_clients import Type
from tests.fake_topics import chunk_sections, section_of


@pytest.fixture
def ids(broker):
    return broker.publish(TOPIC, *singles(numbered(5)))


class Bell:
    """Waits for what a tail reports."""

    def __init__(self):
        self.rings = threading.Semaphore(0)

    def __call__(self):
        self.rings.release()

    def wait(self):
        assert self.rings.acquire(timeout=HANG)


@pytest.fixture
def bell():
    return Bell()


def settle(client):
    """What the broker sent before has come."""
    client.partitions(TOPIC)


def follow(tail, end):
    """Follow until all up to the end is seen."""

    def is_reached():
        assert tail.follow(end)
        return tail.reached >= end

    wait_until(is_reached)


def test_what_comes_shows_without_a_question(broker, client, ids, bell):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        settle(client)
        assert not tail.has_passed(ids[-1])
        commands = len(broker.commands)
        broker.publish(TOPIC, *singles(numbered(3)))
        bell.wait()
        for _ in range(2):
            assert tail.has_passed(ids[-1])
        assert len(broker.commands) == commands
        assert len(broker.consumers[0].sent) == 1  # and it is sent one entry only
    broker.wait_for(lambda: broker.open_consumers == [])


@pytest.mark.parametrize("cluster", [None, b"a"])
def test_the_last_entry_that_was_seen(broker, client, ids, bell, cluster):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        assert tail.last is None
        copied = {} if cluster is None else {"replicated_from": cluster}
        new = broker.publish(TOPIC, *singles(numbered(2)), *singles([b"last"], publish_time=7, **copied))
        bell.wait()
        follow(tail, new[-1])
        assert tail.last == (TOPIC, new[-1], 7, None if cluster is None else ("a", None))


def test_it_follows_what_comes(broker, client, ids, bell):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        for _ in range(5):
            new = broker.publish(TOPIC, *singles(numbered(3)))
            bell.wait()
            follow(tail, new[-1])
            assert tail.after == ids[-1]
            assert tail.reached == new[-1]
            assert not tail.has_passed(new[-1])
            assert not tail.has_chunks
        sent = len(broker.consumers[0].sent)
        settle(client)
        broker.publish(TOPIC, *singles(numbered(9)))
        settle(client)
        assert len(broker.consumers[0].sent) == sent + 1, "one more, and no other before it is asked for"
    assert len(broker.seen(Type.SUBSCRIBE)) == 1


def test_it_follows_batches(broker, client, ids, bell):
    with Tail(client, TOPIC, START, bell) as tail:
        follow(tail, broker.publish(TOPIC, *batches(numbered(100), 10))[-1])
        (new,) = broker.publish(TOPIC, *singles([b"new"]))
        wait_until(lambda: tail.has_passed(tail.reached) or tail.reached == new)
        assert tail.has_passed(ids[-1])


def test_it_was_waiting_if_all_had_come_and_permits_were_left(broker, client, ids, bell):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        assert tail.follow(ids[-1])
        assert tail.was_waiting, "with the permit for the first entry"
        new = broker.publish(TOPIC, *singles(numbered(3)))
        bell.wait()
        assert tail.follow(new[-1])
        assert not tail.was_waiting, "two entries are missing"
        settle(client)
        assert tail.follow(new[-1])
        assert tail.was_waiting
        (one,) = broker.publish(TOPIC, *singles([b"one"]))
        settle(client)
        assert tail.follow(one)
        assert not tail.was_waiting, "it took the last permit"
        assert tail.follow(one.next_entry)
        assert not tail.was_waiting, "the entry has not come"
        assert tail.follow(one)
        assert tail.was_waiting


def test_it_was_not_waiting_where_a_batch_has_taken_all_permits(broker, client, ids, bell):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        new = broker.publish(TOPIC, *batches(numbered(40), 10))
        settle(client)
        assert tail.follow(new[0])
        assert tail.reached == new[0]
        assert not tail.was_waiting


def test_it_follows_into_the_next_ledger(broker, client, ids, bell):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        with broker.changed:
            broker.topics[str(TOPIC)].roll()
        new = broker.publish(TOPIC, *singles(numbered(3)))
        assert new[0].ledger > ids[-1].ledger
        follow(tail, new[-1])


@pytest.mark.parametrize(("count", "size", "follows"), [(16, 10, True), (17, 10, False), (4, 20_000, False)])
def test_it_falls_behind_where_too_much_comes(broker, client, ids, bell, count, size, follows):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        first = broker.publish(TOPIC, *singles([b"x" * size]))
        follow(tail, first[-1])
        new = broker.publish(TOPIC, *singles([b"x" * size] * count))
        wait_until(lambda: tail.has_passed(first[-1]))
        tail.take()
        new = broker.publish(TOPIC, *singles([b"x" * size]))  # one was taken
        assert tail.follow(new[-1]) is follows
        assert tail.has_passed(first[-1])


def test_what_it_has_taken_in_is_acknowledged(broker, client, ids, bell):
    """Brokers would count it as the backlog of a subscription, and keep all positions that are skipped."""
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        new = broker.publish(TOPIC, *singles(numbered(3)))
        follow(tail, new[-1])
        broker.wait_for(lambda: broker.consumers[0].cursor.mark == new[-1])
        assert not any(one.HasField("request_id") for one in broker.seen(Type.ACK)), "nobody waits for it"


def test_an_entry_that_says_it_holds_more_messages_than_one_grant_does_not_stop_it(broker, client, ids, bell):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        for _ in range(2):
            (wrong,) = broker.publish(TOPIC, section_of(b"v", num_messages_in_batch=(1 << 31) - 1))
            follow(tail, wrong)
            settle(client)
            assert broker.consumers[0].permits == 1
        assert all(one.messagePermits < 1 << 31 for one in broker.seen(Type.FLOW)), "brokers refuse more"


def test_what_is_there_already_is_seen(client, ids, bell):
    with Tail(client, TOPIC, ids[2], bell) as tail:
        bell.wait()
        assert tail.has_passed(ids[2])
        follow(tail, ids[-1])
    with Tail(client, TOPIC, START, bell) as tail:
        follow(tail, ids[-1])


def test_what_no_consumer_is_given_does_not_show(broker, client, ids, bell):
    topic = broker.topics[str(TOPIC)]
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        with broker.changed:
            topic.append(section_of(b"aborted"), TxnId(0, 1))
            topic.end(TxnId(0, 1), commit=False)
            broker.dispatch(topic)
        settle(client)
        assert not tail.has_passed(ids[-1])


@pytest.mark.parametrize("how", ["cut", "close"])
def test_a_lost_broker_shows(broker, client, ids, bell, how):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        broker.cut() if how == "cut" else broker.close_all(TOPIC)
        bell.wait()
        assert tail.is_lost
        assert tail.has_passed(ids[-1])
        assert not tail.follow(ids[-1])
        assert tail.reached == ids[-1]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("before", [0, 2])
def test_a_part_of_a_message_is_told(broker, client, ids, bell, number, before):
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        chunk = chunk_sections(b"x" * 10, 2, "u")[number]
        new = broker.publish(TOPIC, *singles([b"v"] * before), chunk, *singles([b"v"]))
        bell.wait()
        follow(tail, new[-1])
        assert tail.has_chunks


def test_what_cannot_be_taken_apart_loses_it(broker, client, ids, bell):
    bad = bytearray(section_of(b"bad"))
    bad[-1] ^= 1
    with Tail(client, TOPIC, ids[-1], bell) as tail:
        (new,) = broker.publish(TOPIC, bytes(bad))
        bell.wait()
        assert tail.has_passed(ids[-1])
        assert not tail.follow(new)
        assert tail.is_lost
        assert tail.reached == ids[-1], "nobody has seen what it is"


def test_one_that_cannot_be_opened_leaves_nothing(broker, client, ids, bell):
    broker.script(Type.FLOW, [cut])
    Tail(client, TOPIC, ids[-1], bell).close()
    with pytest.raises(TopicNotFoundError):
        Tail(client, TOPIC._replace(local="missing"), MessageId(1, 1), bell)
    broker.wait_for(lambda: broker.open_consumers == [])


# ---- many tails

A, B = TopicName.parse("a"), TopicName.parse("b")


def test_each_is_taken_once():
    arrivals = Arrivals()
    assert not arrivals
    for topic in (A, B, A):
        arrivals.add(topic)
    assert arrivals
    assert arrivals.take() == {A, B}
    assert not arrivals
    assert arrivals.take() == set()


def test_waiting_ends_with_the_first_or_in_time():
    arrivals = Arrivals()
    began = time.monotonic()
    arrivals.wait(0.02)
    assert time.monotonic() >= began + 0.02
    adding = threading.Timer(0.01, arrivals.add, (A,))
    adding.start()
    arrivals.wait(HANG)
    assert arrivals.take() == {A}
    adding.join()
    arrivals.add(B)
    arrivals.wait(HANG)
    assert time.monotonic() < began + HANG / 2
