"""Consumer: each entry once and in order over lost connections, and permits."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from pulsar_spark.client import Consumer, Deadline
from pulsar_spark.errors import CorruptError, DeadlineError, NotReadyError, TopicNotFoundError
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import from_wire_id
from tests.client.clients import (
    DURABLE,
    TOPIC,
    batches,
    ids_of,
    numbered,
    open_consumer,
    reader,
    singles,
    starts,
    take,
    values_in,
    wait_until,
)
from tests.fake_broker import HANG, cut, lose_answer, refuses, silence
from tests.fake_clients import Type
from tests.fake_topics import section_of

# ---- receiving


def test_all_entries_come_in_order(broker, client, ids):
    with open_consumer(client) as consumer:
        entries = take(consumer, 20)
        assert ids_of(entries) == ids
        assert values_in(entries) == numbered(20)
        more = broker.publish(TOPIC, section_of(b"more"))
        assert ids_of(take(consumer, 1)) == more
    assert broker.open_consumers == []


def test_a_reader_begins_at_its_start_inclusive(broker, client, ids):
    with open_consumer(client, reader(ids[7])) as consumer:
        assert ids_of(take(consumer, 13)) == ids[7:]
    (asked,) = broker.seen(Type.SUBSCRIBE)
    assert (asked.durable, asked.subType, asked.force_topic_creation) == (
        False,
        pb.CommandSubscribe.Exclusive,
        0,
    )
    assert from_wire_id(asked.start_message_id) == ids[7]


def test_the_broker_sends_no_more_than_was_asked_for(broker, client, ids):
    with open_consumer(client) as consumer:
        taken = []
        while len(taken) < 7:
            taken += consumer.receive(Deadline(HANG), 7 - len(taken))
        assert ids_of(taken) == ids[:7]
        (mine,) = broker.consumers
        assert (mine.sent, mine.granted) == (ids[:7], 7)


def test_permits_are_refilled_by_the_messages_of_batches(broker, client):
    """A batch takes as many permits as it has messages: granted are never more than used and the window."""
    broker.publish(TOPIC, *batches(numbered(2000), 10))
    section = len(batches(numbered(10, 1000), 10)[0])
    with open_consumer(client, window=20 * section) as consumer:
        assert values_in(take(consumer, 200)) == numbered(2000)
        (mine,) = broker.consumers
        assert mine.granted <= 2000 + 2 * 20 * 10
        assert all(one.messagePermits > 0 for one in broker.seen(Type.FLOW))


def test_without_permits_nothing_is_sent(broker, client, ids):
    with Consumer(client, TOPIC, reader()) as consumer:
        with pytest.raises(DeadlineError, match="no message was received"):
            consumer.receive(Deadline(0.05))
        assert broker.consumers[0].sent == []


def test_asking_for_entries_does_not_wait_for_them(broker, client, ids):
    with open_consumer(client) as consumer:
        assert not consumer.holds_entries
        consumer.ask_for(2)
        wait_until(lambda: consumer.holds_entries)
        assert ids_of(take(consumer, 2)) == ids[:2]


def test_what_has_come_is_taken_without_waiting(broker, client, ids):
    came = threading.Event()
    with Consumer(client, TOPIC, reader(), Permits(1 << 20), came.set) as consumer:
        assert consumer.newest_arrived is None
        assert len(consumer.take_arrived()) == 0
        consumer.ask_for(3)
        assert came.wait(HANG)
        wait_until(lambda: consumer.newest_arrived == ids[2])
        commands = len(broker.commands)
        assert ids_of(consumer.take_arrived()) == ids[:3]
        assert len(broker.commands) == commands
        came.clear()
        broker.close_all(TOPIC)
        assert came.wait(HANG)
        with pytest.raises(NotReadyError):
            consumer.take_arrived()


def test_what_has_come_and_cannot_be_taken_apart(broker, client, ids):
    bad = bytearray(section_of(b"bad"))
    bad[-1] ^= 1
    broker.publish(TOPIC, bytes(bad))
    with Consumer(client, TOPIC, reader(ids[-1]), Permits(1 << 20)) as consumer:
        consumer.ask_for(2)
        wait_until(lambda: consumer.newest_arrived is not None and consumer.newest_arrived > ids[-1])
        assert ids_of(consumer.take_arrived()) == ids[-1:]
        for _ in range(2):
            with pytest.raises(CorruptError):
                consumer.take_arrived()
        broker.publish(TOPIC, *singles(numbered(1)))
        wait_until(lambda: consumer.inbox.holds_messages or consumer.ask_for(99))
        assert not consumer.holds_entries


def test_many_are_closed_without_waiting(broker, client, ids):
    consumers = [Consumer(client, TOPIC, replace(DURABLE, name=f"d{number}")) for number in range(20)]
    broker.script(Type.CLOSE_CONSUMER, [silence] * 20)
    closing = [each.begin_close() for each in consumers]
    broker.wait_for_command(Type.CLOSE_CONSUMER, 20)
    assert not any(each.done() for each in closing)
    assert all(each.begin_close() is None for each in consumers), "once"


def test_silence(broker, client):
    broker.create(TOPIC)
    with open_consumer(client) as consumer:
        assert len(consumer.receive(Deadline(HANG), idle=0.02)) == 0
        with pytest.raises(DeadlineError) as caught:
            consumer.receive(Deadline(0.02))
        assert caught.value.topic == str(TOPIC)


def test_what_comes_again_without_end_does_not_outlast_the_deadline(broker, client, ids):
    with open_consumer(client) as consumer:
        inbox: Any = consumer.inbox
        taken: list[object] = []
        take_group = inbox.take_group

        def flooded(timeout):
            taken.append(take_group(timeout))
            assert len(taken) < 10**4
            inbox.deliver(taken[0])
            return taken[-1]

        inbox.take_group = flooded
        take(consumer, 20)
        with pytest.raises(DeadlineError):
            consumer.receive(Deadline(0.1))
        inbox.take_group = take_group


def test_messages_far_larger_than_those_before_do_not_fill_the_memory(broker, client):
    """Permits are for messages as small as those before: for thousands of them, whatever their size is."""
    small, large = singles(numbered(1000)), singles([bytes(1 << 20)] * 40)
    ids = broker.publish(TOPIC, *small)
    most = 0
    with open_consumer(client) as consumer:
        taken = take(consumer, 1000)
        consumer.ask_for(10**6)
        ids += broker.publish(TOPIC, *large)
        while len(taken) < len(ids):
            wait_until(lambda: consumer.lost or consumer.newest_arrived == ids[-1])
            inbox: Any = consumer.inbox
            most = max(most, inbox.bytes)
            taken += consumer.receive(Deadline(HANG))
    assert ids_of(taken) == ids
    assert 8 << 20 < most < 10 << 20
    assert 4 < len(broker.seen(Type.SUBSCRIBE)) < 8


def test_an_entry_that_adds_permits_does_not_fill_the_memory(broker, client):
    """The broker believes an entry of -10**6 messages, and sends all there is for one permit."""
    broker.publish(TOPIC, section_of(b"", num_messages_in_batch=-(10**6)), *singles([bytes(1 << 20)] * 40))
    with open_consumer(client) as consumer:
        consumer.ask_for(1)
        wait_until(lambda: consumer.lost and not broker.open_consumers)
        inbox: Any = consumer.inbox
        assert inbox.bytes < 10 << 20
        assert consumer.receive(Deadline(HANG)).messages[0] == -(10**6)


def test_a_consumer_that_is_full_is_closed_before_more_is_sent_to_it(broker, client):
    broker.publish(TOPIC, *singles(numbered(1000)))
    with open_consumer(client) as consumer:
        take(consumer, 1000)
        consumer.ask_for(10**6)
        broker.publish(TOPIC, *singles([bytes(1 << 20)] * 20))
        wait_until(lambda: consumer.lost and not broker.open_consumers)


# ---- lost consumers


@pytest.mark.parametrize("how", ["cut", "close"])
@pytest.mark.parametrize("before", [0, 5, 12, 19])
def test_after_a_loss_it_goes_on_after_the_last_entry(broker, client, ids, how, before):
    with open_consumer(client, window=1) as consumer:
        first = []
        while len(first) < before:
            first += consumer.receive(Deadline(HANG), before - len(first))
        broker.cut() if how == "cut" else broker.close_all(TOPIC)
        rest = take(consumer, 20 - before)
    assert values_in(first + rest) == numbered(20)
    after = MessageId(ids[before - 1].ledger, ids[before - 1].entry + 1) if before else MessageId(-1, -1)
    assert starts(broker) == [MessageId(-1, -1), after]
    assert len({one.consumer_id for one in broker.seen(Type.SUBSCRIBE)}) == 2
    assert len(broker.seen(Type.LOOKUP)) == 2
    assert len(broker.seen(Type.CONNECT)) == (2 if how == "cut" else 1)


def test_a_loss_while_it_waits(broker, client, ids):
    found = []
    with open_consumer(client) as consumer:
        take(consumer, 20)
        thread = threading.Thread(target=lambda: found.extend(take(consumer, 2)))
        thread.start()
        broker.cut()
        broker.wait_for_command(Type.SUBSCRIBE, 2)
        broker.publish(TOPIC, *singles([b"a", b"b"]))
        thread.join(HANG)
        assert values_in(found) == [b"a", b"b"]


def test_it_is_opened_again_however_often_that_fails(broker, client, ids):
    with open_consumer(client, window=1) as consumer:
        first = list(consumer.receive(Deadline(HANG), 3))
        broker.script(Type.SUBSCRIBE, [refuses(pb.ServiceNotReady), cut, lose_answer])
        broker.script(Type.LOOKUP, [refuses(pb.MetadataError)])
        broker.cut()
        assert values_in(first + take(consumer, 20 - len(first))) == numbered(20)
    assert len(set(starts(broker)[1:])) == 1


def test_what_is_delivered_twice_is_given_out_once(broker, client, ids):
    with open_consumer(client) as consumer:
        first = take(consumer, 20)
        with broker.changed:
            (mine,) = broker.consumers
            mine.cursor.rewind()  # as after REDELIVER_UNACKNOWLEDGED_MESSAGES
            mine.permits = 100
            mine.dispatch()
        broker.publish(TOPIC, section_of(b"new"))
        assert values_in(first + take(consumer, 1)) == [*numbered(20), b"new"]


def test_a_durable_subscription_continues_where_entries_are_not_acknowledged(broker, client, ids):
    with open_consumer(client, DURABLE) as consumer:
        taken = take(consumer, 20)
        consumer.ack_cumulative(ids[9])
        broker.cut()
        broker.publish(TOPIC, section_of(b"new"))
        taken += take(consumer, 1)
    assert values_in(taken) == [*numbered(20), b"new"]
    assert broker.consumers[1].sent[0] == ids[10]
    assert not any(one.HasField("start_message_id") for one in broker.seen(Type.SUBSCRIBE))


def test_a_topic_that_is_deleted_ends_it(broker, client, ids):
    with open_consumer(client) as consumer:
        take(consumer, 20)
        broker.delete(TOPIC)
        with pytest.raises(TopicNotFoundError) as caught:
            consumer.receive(Deadline(HANG))
        assert caught.value.topic == str(TOPIC)


def test_whether_it_is_lost_is_known_without_asking(broker, client, ids):
    with open_consumer(client) as consumer:
        assert not consumer.lost
        commands = len(broker.commands)
        broker.close_all(TOPIC)
        wait_until(lambda: consumer.lost)
        assert len(broker.commands) == commands


# ---- entries that cannot be taken apart


@pytest.mark.parametrize("before", [0, 3, 12])
def test_a_corrupt_entry_is_named_after_all_before_it(broker, client, before):
    good, bad = singles(numbered(20)), bytearray(section_of(b"bad"))
    bad[-1] ^= 1
    ids = broker.publish(TOPIC, *good[:before], bytes(bad), *good[before:])
    with open_consumer(client) as consumer:
        assert values_in(take(consumer, before)) == numbered(before)
        for _ in range(2):  # it stays so until it is told to go on
            with pytest.raises(CorruptError) as caught:
                take(consumer, 1)
            assert (caught.value.topic, caught.value.message_id) == (str(TOPIC), str(ids[before]))
        consumer.seek(ids[before].next_entry)
        assert values_in(take(consumer, 20 - before)) == numbered(20)[before:]


# ---- the end


def test_unsubscribing_removes_the_position(broker, client, ids):
    consumer = Consumer(client, TOPIC, DURABLE)
    consumer.unsubscribe()
    assert broker.topics[str(TOPIC)].cursors == {}
    Consumer(client, TOPIC, DURABLE).close()
    assert list(broker.topics[str(TOPIC)].cursors) == ["held"]


def test_closing_never_raises(broker, client, ids):
    consumer = open_consumer(client)
    broker.script(Type.CLOSE_CONSUMER, [cut])
    consumer.close()
    consumer.close()
    assert len(broker.seen(Type.CLOSE_CONSUMER)) == 1
