"""ConsumerLink: SUBSCRIBE, the broker of the topic, names, and what is opened again."""

import contextlib
import time
from dataclasses import replace

import pytest

from pulsar_spark.client import Consumer, Deadline, PlanningClient, retry_count
from pulsar_spark.client.consuming.inbox import Inbox
from pulsar_spark.errors import (
    BusyError,
    ConnectError,
    DeadlineError,
    NotAllowedError,
    NotReadyError,
    SubscriptionLimitError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.commands import InitialPosition
from tests.client.clients import (
    DURABLE,
    TOPIC,
    client_of,
    hurry,
    ids_of,
    numbered,
    open_consumer,
    reader,
    singles,
    take,
    values_in,
    wait_until,
)
from tests.fake_broker import HANG, FakeBroker, accept_and_close, cut, lose_answer, pass_on, refuses, silence
from tests.fake_clients import Type
from tests.fake_topics import FakeCursor, section_of

# ---- subscribing


def test_a_topic_is_created_only_where_that_is_wanted(broker, client):
    with pytest.raises(TopicNotFoundError):
        open_consumer(client)
    with open_consumer(client, replace(reader(), create=True)) as consumer:
        broker.delete(TOPIC)
        with pytest.raises(TopicNotFoundError):  # a second time it is not: it was removed on purpose
            consumer.receive(Deadline(HANG))
    assert [one.force_topic_creation for one in broker.seen(Type.SUBSCRIBE)] == [False, True, False]


def test_what_the_broker_is_told_of_a_subscription(broker, ids):
    options = replace(DURABLE, properties=(("team", "sales"),), is_replicated=True)
    with client_of(broker, consumer_name="etl") as client:
        with open_consumer(client, options) as consumer:
            broker.cut()
            consumer.last_message_id()
        open_consumer(client, DURABLE).close()
    first, again, other = broker.seen(Type.SUBSCRIBE)
    assert [one.consumer_name for one in (first, again, other)] == ["etl"] * 3
    for one in (first, again):
        assert [(each.key, each.value) for each in one.subscription_properties] == [(b"team", b"sales")]
        assert one.replicate_subscription_state
    assert not other.HasField("replicate_subscription_state")
    assert not other.subscription_properties


def test_a_subscription_that_is_taken(client, ids):
    with open_consumer(client, DURABLE):
        hurry(client, 0.5)
        with pytest.raises(BusyError) as caught:
            open_consumer(client, DURABLE)
        assert caught.value.topic == str(TOPIC)
    hurry(client, HANG)
    with pytest.raises(NotAllowedError, match="same name"):
        open_consumer(client, replace(DURABLE, durable=False))


def test_a_subscribe_without_an_answer_is_taken_back(broker, client, ids):
    broker.script(Type.SUBSCRIBE, [silence])
    hurry(client, 0.3)
    with pytest.raises(DeadlineError):
        open_consumer(client)
    broker.wait_for_command(Type.CLOSE_CONSUMER)
    (asked,), (closed,) = broker.seen(Type.SUBSCRIBE), broker.seen(Type.CLOSE_CONSUMER)
    assert closed.consumer_id == asked.consumer_id


@pytest.mark.parametrize("initial", InitialPosition)
def test_a_durable_subscription_begins_where_it_is_told_once(broker, client, ids, initial):
    """One that somebody removes under its consumer shows by beginning at the end."""
    with Consumer(client, TOPIC, replace(DURABLE, initial=initial)) as consumer:
        assert (
            consumer.last_message_id().mark_delete
            == {InitialPosition.EARLIEST: MessageId(ids[0].ledger, -1), InitialPosition.LATEST: ids[-1]}[
                initial
            ]
        )
        with broker.changed:
            broker.close_all(TOPIC)
            del broker.topics[str(TOPIC)].cursors["held"]
        wait_until(lambda: consumer.lost)
        assert consumer.last_message_id().mark_delete == ids[-1]


# ---- openings that fail


def test_the_next_receive_opens_it_again(broker, client, ids):
    with open_consumer(client, window=1) as consumer:
        take(consumer, 1)
        consumer._session.close()
        consumer.inbox = Inbox()  # it has not heard of that yet
        broker.script(Type.SUBSCRIBE, [refuses(pb.ServiceNotReady)] * 10**5)
        with pytest.raises((NotReadyError, DeadlineError)):
            consumer.receive(Deadline(0.3))
        assert consumer.lost
        broker.script(Type.SUBSCRIBE, [])
        assert ids_of(take(consumer, 19)) == ids[1:]


def test_what_came_before_is_given_out_all_the_same(broker, client):
    """Some of it was taken from the inbox together with what is given out already, and some was not."""
    broker.create(TOPIC)
    ids = broker.publish(TOPIC, *singles([b"%d" % number + bytes(600_000) for number in range(4)]))
    with open_consumer(client, window=1 << 24) as consumer:
        wait_until(lambda: consumer.newest_arrived == ids[3] or consumer.ask_for(99))
        assert ids_of(take(consumer, 1)) == ids[:1]
        ids += broker.publish(TOPIC, *singles(numbered(2)))
        wait_until(lambda: consumer.newest_arrived == ids[5])
        broker.script(Type.SUBSCRIBE, [refuses(pb.ServiceNotReady)] * 10**5)
        broker.close_all(TOPIC)
        hurry(client, 0.3)
        with pytest.raises((NotReadyError, DeadlineError)):
            consumer.last_message_id()
        hurry(client, HANG)
        broker.script(Type.SUBSCRIBE, [])
        assert ids_of(take(consumer, 5)) == ids[1:]


# ---- names and limits


def test_a_reader_that_was_open_subscribes_by_another_name(broker, client, ids):
    """A broker that removes the one before may remove the cursor of a new one of the same name, too."""
    broker.script(Type.SUBSCRIBE, [refuses(pb.ServiceNotReady)])
    with open_consumer(client) as consumer:
        take(consumer, 20)
        consumer.seek(ids[2])
        take(consumer, 18)
        broker.cut()
        consumer.last_message_id()
    name = reader().name
    names = [command.subscription for command in broker.seen(Type.SUBSCRIBE)]
    assert names == [name, name, f"{name}-2", f"{name}-3"]


def test_a_reader_without_an_answer_subscribes_by_another_name(broker, client, ids):
    """As after a pause of the broker, in which the connection is given up: it does both SUBSCRIBEs then."""
    broker.script(Type.SUBSCRIBE, [lose_answer])
    with open_consumer(client) as consumer:
        assert ids_of(take(consumer, 20)) == ids
    name = reader().name
    assert [command.subscription for command in broker.seen(Type.SUBSCRIBE)] == [name, f"{name}-2"]


@pytest.mark.parametrize("kind", [Type.CONNECT, Type.LOOKUP, Type.SUBSCRIBE])
def test_a_broker_that_does_not_answer_is_asked_again_while_messages_are_awaited(broker, client, ids, kind):
    """As after a restart: it accepts the request, and does not answer until the topic is loaded."""
    with open_consumer(client) as consumer:
        hurry(client, 0.3)
        broker.script(kind, [silence] * 2)
        broker.cut()
        assert ids_of(take(consumer, 20)) == ids


@pytest.mark.parametrize("action", [cut, refuses(pb.ServiceNotReady), refuses(pb.MetadataError)])
def test_whether_a_subscription_exists_is_asked_by_its_name_however_often(broker, client, ids, action):
    open_consumer(client, DURABLE).close()
    for actions in ([], [action], [action] * 3):
        broker.script(Type.SUBSCRIBE, actions)
        assert PlanningClient(client).has_subscription(TOPIC, DURABLE.name)
    assert {command.subscription for command in broker.seen(Type.SUBSCRIBE)} == {DURABLE.name}
    broker.script(Type.SUBSCRIBE, [action])
    assert not PlanningClient(client).has_subscription(TOPIC, "another")


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_durable_subscription_gets_a_cursor_of_its_own(broker, client, topic, times):
    """A broker says that a reader is closed, and then removes its subscription, and last its cursor."""
    name = DURABLE.name
    old = FakeCursor(topic, MessageId.EARLIEST, is_durable=False)

    def gets_old(connection, frame):
        topic.cursors[name] = old
        old.is_durable = True  # the subscription is gone, so the next one may have any type
        pass_on(connection, frame)
        old.is_durable = False

    planning = PlanningClient(client)
    assert not planning.has_subscription(TOPIC, name)
    broker.script(Type.SUBSCRIBE, [gets_old, pass_on] * times)
    with planning.create_subscription(TOPIC, DURABLE):
        assert topic.cursors[name] is not old
        assert topic.cursors[name].is_durable
    assert planning.has_subscription(TOPIC, name)
    assert not broker.open_consumers


def test_a_subscription_that_does_not_become_durable_is_an_error(broker, client, topic):
    def removes(connection, frame):
        pass_on(connection, frame)
        with broker.changed:
            topic.cursors.clear()

    hurry(client, 0.5)
    broker.script(Type.CLOSE_CONSUMER, [removes] * 99)
    with pytest.raises(NotReadyError, match=f"still removes an older subscription named {DURABLE.name}"):
        PlanningClient(client).create_subscription(TOPIC, DURABLE)
    assert not broker.open_consumers


def test_a_subscription_of_another_query_is_not_created_again(broker, client, topic):
    with client_of(broker) as other, open_consumer(client, DURABLE):
        hurry(other, 0.3)
        with pytest.raises(BusyError):
            PlanningClient(other).create_subscription(TOPIC, DURABLE)


TOO_MANY = refuses(pb.NotAllowedError, "Exceed the maximum number of subscriptions of the topic: t")


def test_a_reader_that_was_open_waits_while_the_one_before_counts(broker, client, ids):
    with open_consumer(client) as consumer:
        take(consumer, 20)
        consumer.seek(ids[2])
        broker.script(Type.SUBSCRIBE, [TOO_MANY] * 3)
        assert ids_of(take(consumer, 18)) == ids[2:]
        broker.script(Type.SUBSCRIBE, [TOO_MANY] * 100)
        consumer.seek(ids[2])
        hurry(client, 0.3)
        with pytest.raises(
            NotReadyError, match=r"retried until the timeout\. Remove .* raise maxSubscriptionsPerTopic"
        ):
            consumer.last_message_id()


@pytest.mark.parametrize("options", [DURABLE, reader()])
def test_one_subscription_too_many_is_refused_at_once(broker, client, ids, options):
    broker.script(Type.SUBSCRIBE, [TOO_MANY])
    with pytest.raises(SubscriptionLimitError, match="Exceed the maximum"):
        open_consumer(client, options)
    broker.script(Type.SUBSCRIBE, [TOO_MANY])
    assert not PlanningClient(client).has_subscription(TOPIC, options.name)
    assert len(broker.seen(Type.SUBSCRIBE)) == 2


def test_a_durable_subscription_that_is_made_again_is_refused_one_too_many(broker, client, ids):
    with open_consumer(client, DURABLE) as consumer:
        take(consumer, 20)
        consumer.seek(ids[2])
        broker.script(Type.SUBSCRIBE, [TOO_MANY])
        with pytest.raises(SubscriptionLimitError, match="Exceed the maximum"):
            take(consumer, 1)


def test_a_durable_subscription_keeps_its_name(broker, client, ids):
    with open_consumer(client, DURABLE) as consumer:
        take(consumer, 20)
        consumer.seek(ids[2])
        take(consumer, 18)
    assert [command.subscription for command in broker.seen(Type.SUBSCRIBE)] == [DURABLE.name] * 2


# ---- the broker of the topic


def test_after_an_unload_another_broker_may_serve_the_topic(broker, client, ids):
    def serves(owner):
        def action(connection, frame):
            connection.send(
                Type.LOOKUP_RESPONSE,
                request_id=frame.command.lookupTopic.request_id,
                response=pb.CommandLookupTopicResponse.Connect,
                brokerServiceUrl=owner.url,
            )

        return action

    with FakeBroker() as other:
        other.topics = broker.topics  # brokers store nothing themselves
        with open_consumer(client) as consumer:
            first = take(consumer, 5)
            broker.script(Type.LOOKUP, [serves(other)])
            broker.close_all(TOPIC)
            assert values_in(first + take(consumer, 15)) == numbered(20)
            assert [one.topic.name for one in other.open_consumers] == [str(TOPIC)]
        client.close()


def test_a_topic_is_looked_up_once_while_its_broker_serves_it(broker, client, ids):
    for _ in range(3):
        with open_consumer(client) as consumer:
            assert values_in(take(consumer, 20)) == numbered(20)
            consumer.seek(ids[10])
            assert values_in(take(consumer, 10)) == numbered(10, first=10)
    assert len(broker.seen(Type.LOOKUP)) == 1
    broker.script(Type.SUBSCRIBE, [refuses(pb.ServiceNotReady)])  # as one that gave the topic away
    with open_consumer(client) as consumer:
        assert values_in(take(consumer, 20)) == numbered(20)
    assert len(broker.seen(Type.LOOKUP)) == 2
    broker.cut()
    open_consumer(client).close()
    assert len(broker.seen(Type.LOOKUP)) == 3


def test_a_broker_that_does_not_answer_for_a_topic_is_not_asked_for_it_again(broker, client, ids):
    """The topic may have been given to another one."""
    open_consumer(client).close()
    broker.script(Type.SUBSCRIBE, [silence])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "options", replace(client.options, operation_timeout=0.2))
        with pytest.raises(DeadlineError):
            open_consumer(client)
    assert len(broker.seen(Type.LOOKUP)) == 1
    open_consumer(client).close()
    assert len(broker.seen(Type.LOOKUP)) == 2


def test_what_is_sent_without_waiting_opens_nothing(broker, client, ids):
    with open_consumer(client) as consumer:
        broker.close_all(TOPIC)
        wait_until(lambda: consumer.lost)
        commands = len(broker.commands)
        consumer.ask_for(3)
        consumer.ack_unconfirmed(ids[0])
        client.partitions(TOPIC)
        assert len(broker.commands) == commands + 1
    with open_consumer(client) as consumer:
        consumer._session.close()
        consumer.inbox = Inbox()  # it has not heard of that yet
        for send in (consumer.ask_for, lambda _: consumer.ack_unconfirmed(ids[0])):
            with pytest.raises(ConnectError):
                send(3)
    assert len(broker.seen(Type.SUBSCRIBE)) == 2


# ---- what counts as a retry


def test_only_a_consumer_that_was_lost_counts_as_retried(broker, client, ids):
    before = retry_count()
    with open_consumer(client, DURABLE) as consumer:
        take(consumer, 20)
        consumer.seek(ids[4])
        assert ids_of(take(consumer, 16)) == ids[4:]
        assert retry_count() == before, "neither the first opening nor a seek"
        broker.close_all(TOPIC)
        broker.publish(TOPIC, section_of(b"new"))
        assert values_in(take(consumer, 1)) == [b"new"]
        assert retry_count() == before + 1


# ---- a broker that accepts and closes


@pytest.mark.parametrize("closes", ["the connection", "the consumer"])
def test_a_broker_that_accepts_and_closes_is_not_asked_again_and_again(broker, client, ids, closes):
    accept = accept_and_close(broker, TOPIC, cuts=closes == "the connection")
    broker.script(Type.SUBSCRIBE, [accept] * 10**5)
    with open_consumer(client) as consumer:
        with pytest.raises((DeadlineError, ConnectError)):  # in whichever step the time is over
            consumer.receive(Deadline(1.5))
        assert 3 <= len(broker.seen(Type.SUBSCRIBE)) <= 12
        broker.script(Type.SUBSCRIBE, [])
        assert values_in(take(consumer, 20)) == numbered(20)


def test_one_that_gives_a_message_and_closes_is_not_asked_again_and_again(broker, client):
    broker.publish(TOPIC, *singles(numbered(500)))
    close = accept_and_close(broker, TOPIC, cuts=False)
    broker.script(Type.FLOW, [close] * 10**5)
    with open_consumer(client, window=1) as consumer:
        until = Deadline(2.0)
        received = []
        with contextlib.suppress(DeadlineError):  # in a pause
            while not until.passed:
                received += consumer.receive(until, 1)
        assert 20 <= len(broker.seen(Type.SUBSCRIBE)) <= 20 + 4 * 2 + 1
        assert values_in(received) == numbered(len(received))
        broker.script(Type.FLOW, [])


def test_one_that_gives_messages_is_opened_again_at_once(broker, client, ids):
    with open_consumer(client, window=1) as consumer:
        began = time.monotonic()
        for number in range(20):
            assert values_in(take(consumer, 1)) == numbered(1, number)
            broker.close_all(TOPIC)
        assert time.monotonic() - began < 5
