"""What is subscribed with, at first and again, and the answer about the subscription's position."""

import pytest

from pulsar_spark.client import InitialPosition, LastMessageId, SubscriptionOptions
from pulsar_spark.errors import UnsupportedError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import FrameReader
from pulsar_spark.wire.wire_values import to_wire_id
from tests.fake_clients import Type, command_of

TOPIC = TopicName.parse("t")
START, LAST = MessageId(3, 4), MessageId(5, 6)
EARLIEST = pb.CommandSubscribe.Earliest
LATEST = pb.CommandSubscribe.Latest


def subscribed(durable, openings, last=None):
    options = SubscriptionOptions(
        name="s",
        durable=durable,
        initial=InitialPosition.EARLIEST,
        start=START,
        create=True,
        read_compacted=True,
        properties=(("a", "b"),),
        is_replicated=True,
    )
    frame = options.subscribe_command(7, 8, TOPIC, openings=openings, last=last, consumer_name="c")
    (found,) = FrameReader().feed(frame)
    return found.command.subscribe


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("openings", [0, 1, 2])
def test_what_is_the_same_each_time(durable, openings):
    command = subscribed(durable, openings)
    assert (command.request_id, command.consumer_id, command.topic) == (7, 8, str(TOPIC))
    assert (command.consumer_name, command.durable, command.read_compacted) == ("c", durable, True)
    assert command.replicate_subscription_state
    (one,) = command.subscription_properties
    assert (one.key, one.value) == (b"a", b"b")


@pytest.mark.parametrize(
    ("durable", "openings", "name", "initial", "create"),
    [
        (True, 0, "s", EARLIEST, True),
        (True, 1, "s", LATEST, False),
        (True, 2, "s", LATEST, False),
        (False, 0, "s", EARLIEST, True),
        (False, 1, "s-2", LATEST, False),
        (False, 2, "s-3", LATEST, False),
    ],
)
def test_only_the_first_time_it_may_be_created(durable, openings, name, initial, create):
    command = subscribed(durable, openings)
    assert (command.subscription, command.initialPosition) == (name, initial)
    assert command.force_topic_creation == create


@pytest.mark.parametrize(("last", "start"), [(None, START), (LAST, MessageId(5, 7))])
def test_a_reader_begins_after_the_last_entry_that_it_gave_out(last, start):
    command = subscribed(durable=False, openings=1, last=last)
    assert (command.start_message_id.ledgerId, command.start_message_id.entryId) == (
        start.ledger,
        start.entry,
    )


@pytest.mark.parametrize("last", [None, LAST])
def test_the_broker_knows_where_a_durable_subscription_begins(last):
    assert not subscribed(durable=True, openings=1, last=last).HasField("start_message_id")


def test_an_answer_has_the_last_message_and_the_position():
    answer = command_of(
        Type.GET_LAST_MESSAGE_ID_RESPONSE,
        request_id=1,
        last_message_id=to_wire_id(LAST),
        consumer_mark_delete_position=to_wire_id(START),
    )
    assert LastMessageId.of(answer) == LastMessageId(last=LAST, mark_delete=START)


def test_an_answer_of_an_old_broker_has_no_position():
    answer = command_of(Type.GET_LAST_MESSAGE_ID_RESPONSE, request_id=1, last_message_id=to_wire_id(LAST))
    with pytest.raises(UnsupportedError, match="too old"):
        LastMessageId.of(answer)
