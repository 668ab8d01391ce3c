"""Consumer: requests with and without waiting, acknowledgements, questions and seeks."""

import threading
import time

import pytest

from pulsar_spark.client import Consumer, Deadline, LastMessageId
from pulsar_spark.errors import AuthError, NotReadyError, PulsarError, UnsupportedError
from pulsar_spark.ids import MessageId
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
    take,
    values_in,
    wait_until,
)
from tests.fake_broker import HANG, Held, cut, lose_answer, refuses
from tests.fake_clients import Type
from tests.fake_topics import section_of

# ---- requests without waiting


def begun_by(consumer, position):
    """The kind of each request that is sent without waiting, and the call that sends it."""
    return (
        (Type.GET_LAST_MESSAGE_ID, consumer.begin_last_message_id),
        (Type.CONSUMER_STATS, consumer.begin_backlog),
        (Type.ACK, lambda: consumer.begin_ack_cumulative(position)),
    )


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
        for kind, begin in begun_by(consumer, ids[4]):
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
        for kind, begin in begun_by(consumer, ids[4]):
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
