"""Consumer: each entry once and in order over lost connections, permits, acknowledgements, seeks."""

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from pulsar_spark.client import Consumer, Deadline, LastMessageId
from pulsar_spark.errors import (
    AuthError,
    CorruptError,
    DeadlineError,
    NotReadyError,
    PulsarError,
    TopicNotFoundError,
    UnsupportedError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import from_wire_id
from tests.client.clients import (
    DURABLE,
    TOPIC,
    batches,
    hurry,
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
from tests.fake_broker import HANG, Held, cut, lose_answer, refuses, silence
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
        wait_until(lambda: consumer._link.inbox.holds_messages or consumer.ask_for(99))
        assert not consumer.holds_entries


def test_what_a_closed_consumer_was_asked_is_asked_again(broker, client, ids):
    """A broker that closes the consumer never answers; the operation timeout is HANG."""

    def close(connection, frame):
        broker.close_all(TOPIC)

    with Consumer(client, TOPIC, DURABLE) as consumer:
        for kind in (Type.GET_LAST_MESSAGE_ID, Type.ACK):
            broker.script(kind, [close])
            began = time.monotonic()
            if kind == Type.ACK:
                consumer.ack_cumulative(ids[4])
            assert consumer.last_message_id().last == ids[-1]
            assert time.monotonic() - began < HANG / 5
        assert consumer.last_message_id().mark_delete == ids[4]
        for kind, begin in (
            (Type.GET_LAST_MESSAGE_ID, consumer.begin_last_message_id),
            (Type.CONSUMER_STATS, consumer.begin_backlog),
            (Type.ACK, lambda: consumer.begin_ack_cumulative(ids[4])),
        ):
            broker.script(kind, [close])
            with pytest.raises(NotReadyError):
                begin().result(HANG)
            assert consumer.last_message_id().last == ids[-1]
    assert len(broker.seen(Type.SUBSCRIBE)) == 6


def test_many_are_asked_without_waiting(broker, client, ids):
    with Consumer(client, TOPIC, DURABLE) as consumer:
        asked, acked = consumer.begin_last_message_id(), consumer.begin_ack_cumulative(ids[3])
        counted = consumer.begin_backlog()
        assert asked.result(HANG) == LastMessageId(ids[-1], MessageId(ids[0].ledger, -1))
        assert acked.result(HANG) == ids[3]
        assert counted.result(HANG) == consumer.backlog()
        assert consumer.begin_last_message_id().result(HANG) == LastMessageId(ids[-1], ids[3])
        for kind, begin in (
            (Type.GET_LAST_MESSAGE_ID, consumer.begin_last_message_id),
            (Type.CONSUMER_STATS, consumer.begin_backlog),
            (Type.ACK, lambda: consumer.begin_ack_cumulative(ids[4])),
        ):
            broker.script(kind, [refuses(pb.MetadataError)])
            with pytest.raises(PulsarError, match="refused by the test"):
                begin().result(HANG)
        assert consumer.last_message_id().mark_delete == ids[3]
        subscribed = len(broker.seen(Type.SUBSCRIBE))
        broker.close_all(TOPIC)
        wait_until(lambda: consumer.lost)
        assert consumer.begin_last_message_id() is None
        assert consumer.begin_backlog() is None
        assert consumer.begin_ack_cumulative(ids[4]) is None
        assert len(broker.seen(Type.SUBSCRIBE)) == subscribed, "others try again"
        consumer.ack_cumulative(ids[4])
        assert consumer.last_message_id().mark_delete == ids[4]


def test_one_that_is_given_up_subscribes_again(broker, client, ids):
    with Consumer(client, TOPIC, DURABLE) as consumer:
        consumer.lose(NotReadyError("it does not answer"))
        assert consumer.begin_ack_cumulative(ids[0]) is None
        assert consumer.last_message_id().last == ids[-1]
        assert consumer.begin_ack_cumulative(ids[0]).result(HANG) == ids[0]
    assert len(broker.seen(Type.SUBSCRIBE)) == 2


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
        inbox: Any = consumer._link.inbox
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
            inbox: Any = consumer._link.inbox
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
        inbox: Any = consumer._link.inbox
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


# ---- acknowledging


def test_a_cumulative_ack_returns_with_its_receipt(broker, client, ids):
    with Consumer(client, TOPIC, DURABLE) as consumer:
        consumer.ack_cumulative(ids[13])
        (ack,) = broker.seen(Type.ACK)
        assert ack.ack_type == pb.CommandAck.Cumulative
        assert [from_wire_id(one) for one in ack.message_id] == [ids[13]]
        assert consumer.last_message_id().mark_delete == ids[13]
        assert consumer.backlog() == 6


@pytest.mark.parametrize("loss", [cut, lose_answer])
def test_an_ack_whose_receipt_is_lost_is_sent_again(broker, client, ids, loss):
    with Consumer(client, TOPIC, DURABLE) as consumer:
        broker.script(Type.ACK, [loss])
        consumer.ack_cumulative(ids[3])
        assert consumer.last_message_id().mark_delete == ids[3]
    assert len(broker.seen(Type.ACK)) == 2


def test_an_ack_never_moves_back_and_is_sent_again(broker, client, ids):
    with Consumer(client, TOPIC, DURABLE) as consumer:
        for one in (ids[5], ids[2], ids[5]):
            consumer.ack_cumulative(one)
    assert [from_wire_id(ack.message_id[0]) for ack in broker.seen(Type.ACK)] == [ids[5]] * 3


def test_an_ack_of_what_is_acknowledged_has_succeeded_also_where_that_is_an_error(broker, client, ids):
    said = "org.apache.bookkeeper.mledger.impl.ManagedCursorImpl$MarkDeletingMarkedPosition: Mark deleting"
    with open_consumer(client) as consumer:
        broker.script(Type.ACK, [refuses(pb.UnknownError, said)] * 2)
        consumer.ack_cumulative(ids[3])
        assert consumer.begin_ack_cumulative(ids[3]).result(HANG) == ids[3]


def test_an_ack_that_is_refused_is_sent_again_on_closing(broker, client, ids):
    with Consumer(client, TOPIC, DURABLE) as consumer:
        broker.script(Type.ACK, [refuses(pb.AuthorizationError, "no right")])
        with pytest.raises(AuthError, match="no right"):
            consumer.ack_cumulative(ids[0])
        assert consumer.last_message_id().mark_delete < ids[0]
    assert broker.topics[str(TOPIC)].cursors["held"].mark == ids[0]
    assert len(broker.seen(Type.ACK)) == 2


def test_acks_that_do_not_reach_the_broker_do_not_hold_the_end_up(broker, client, ids, caplog):
    with Consumer(client, TOPIC, DURABLE) as consumer:
        broker.script(Type.ACK, [refuses(pb.AuthorizationError)] * 2)
        with pytest.raises(AuthError):
            consumer.ack_cumulative(ids[0])
    assert "acknowledgements did not reach the broker" in caplog.text
    assert broker.open_consumers == []


# ---- asking


def test_the_last_message_and_the_position(broker, client, ids):
    with Consumer(client, TOPIC, reader(ids[5])) as consumer:
        assert consumer.last_message_id() == (ids[-1], ids[4])
        broker.publish(TOPIC, *batches([b"x"] * 3, 3))
        last = consumer.last_message_id().last
        assert last == MessageId(ids[-1].ledger, ids[-1].entry + 1, 2)


def test_an_empty_topic_has_no_last_message(broker, client):
    broker.create(TOPIC)
    with Consumer(client, TOPIC, reader()) as consumer:
        assert consumer.last_message_id().last == MessageId(-1, -1)


def test_questions_find_the_broker_again(broker, client, ids):
    with Consumer(client, TOPIC, reader()) as consumer:
        broker.script(Type.GET_LAST_MESSAGE_ID, [cut, lose_answer, refuses(pb.MetadataError)])
        assert consumer.last_message_id().last == ids[-1]
        broker.script(Type.CONSUMER_STATS, [cut])
        assert consumer.backlog() == 20


def test_a_question_that_is_refused(broker, client, ids):
    with Consumer(client, TOPIC, reader()) as consumer:
        broker.script(Type.CONSUMER_STATS, [refuses(pb.AuthorizationError, "no right")])
        with pytest.raises(AuthError, match="no right") as caught:
            consumer.backlog()
        assert caught.value.topic == str(TOPIC)


def test_a_broker_that_is_reached_may_take_longer_than_an_operation(broker, client, ids):
    """One that restores a topic's transactions takes half a minute for its answer."""
    held = Held(broker)
    with Consumer(client, TOPIC, reader()) as consumer:
        hurry(client, 0.6)
        broker.script(Type.GET_LAST_MESSAGE_ID, [held])
        timer = threading.Timer(0.7, held.release)
        timer.start()
        assert consumer.last_message_id().last == ids[-1]
        timer.join()


def test_a_broker_that_does_not_tell_the_position_is_too_old(broker, client, ids):
    def old(connection, frame):
        request_id = frame.command.getLastMessageId.request_id
        connection.send(Type.GET_LAST_MESSAGE_ID_RESPONSE, request_id=request_id, last_message_id=ids[-1])

    with Consumer(client, TOPIC, reader()) as consumer:
        broker.script(Type.GET_LAST_MESSAGE_ID, [old])
        with pytest.raises(UnsupportedError, match="too old"):
            consumer.last_message_id()


# ---- moving


@pytest.mark.parametrize("options", [reader(), DURABLE])
@pytest.mark.parametrize("target", [2, 15])
def test_a_seek_goes_on_from_its_target(broker, client, ids, options, target):
    with open_consumer(client, options) as consumer:
        first = take(consumer, 20) if target == 2 else list(consumer.receive(Deadline(HANG), 1))
        assert values_in(first) == numbered(len(first))
        consumer.seek(ids[target])
        assert ids_of(take(consumer, 20 - target)) == ids[target:]
    assert len(broker.seen(Type.SEEK)) == options.durable


def test_a_durable_subscription_may_seek_to_a_time(broker, client):
    sections = [section_of(b"%d" % time, publish_time=time) for time in range(100, 110)]
    broker.publish(TOPIC, *sections)
    with open_consumer(client, DURABLE) as consumer:
        take(consumer, 10)
        consumer.seek(107)
        assert values_in(take(consumer, 3)) == [b"107", b"108", b"109"]
    with open_consumer(client) as consumer, pytest.raises(UnsupportedError, match="cannot seek to a time"):
        consumer.seek(107)


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
