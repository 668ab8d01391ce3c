"""Inbox: what is left for a consumer, and by what it was lost."""

import threading

import numpy as np
import pytest

from pulsar_spark.client.consuming.inbox import Inbox, TopicEnd
from pulsar_spark.errors import ConnectError, NotReadyError
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frame_runs import Messages
from pulsar_spark.wire.frames import Frame
from tests.fake_broker import HANG
from tests.fake_clients import Type, command_of


def messages(first, count=1, size=1):
    ids = np.arange(first, first + count)
    at = np.arange(count) * size
    return Messages(1, bytes(count * size), np.zeros(count, np.int64), ids, at, at + size)


def frame(kind, **fields):
    return Frame(command_of(kind, consumer_id=1, **fields), memoryview(b""))


def test_what_has_come_is_taken_in_order_and_small_messages_together():
    inbox, parts = Inbox(), [messages(0, 3), messages(3), messages(4)]
    inbox.deliver(parts[:2])
    assert inbox.holds_messages
    inbox.deliver(parts[2:])
    assert inbox.take_group(HANG) == parts
    assert not inbox.holds_messages
    assert inbox.take_group(0) == []


def test_large_messages_are_taken_one_after_the_other():
    inbox, parts = Inbox(), [messages(number, size=1 << 20) for number in range(3)]
    inbox.deliver(parts[:2])
    assert inbox.take_group(HANG) == parts[:1]
    assert (inbox.holds_messages, inbox.newest) == (True, MessageId(0, 1))
    inbox.deliver(parts[2:])
    inbox.lost(ConnectError("cut"))
    assert inbox.newest == MessageId(0, 2)
    assert [inbox.take_group(0) for _ in range(2)] == [[part] for part in parts[1:]]
    assert (inbox.holds_messages, inbox.newest) == (False, None)
    with pytest.raises(ConnectError):
        inbox.take_group(0)


def test_what_came_before_the_end_is_taken_before_the_error_is_raised():
    inbox, part = Inbox(), messages(0)
    inbox.deliver([part])
    error = ConnectError("cut")
    inbox.lost(error)
    assert inbox.error is error
    assert inbox.take_group(HANG) == [part]
    for _ in range(2):
        with pytest.raises(ConnectError):
            inbox.take_group(HANG)


def test_a_broker_that_closes_the_consumer():
    inbox = Inbox()
    inbox.deliver([frame(Type.CLOSE_CONSUMER, request_id=1)])
    with pytest.raises(NotReadyError, match="closed the consumer"):
        inbox.take_group(HANG)


@pytest.mark.parametrize("kind", [Type.ACTIVE_CONSUMER_CHANGE, Type.REACHED_END_OF_TOPIC])
def test_what_does_not_concern_an_exclusive_consumer_changes_nothing(kind):
    inbox = Inbox()
    inbox.deliver([frame(kind)])
    assert inbox.error is None
    assert inbox.take_group(0) == []


@pytest.mark.parametrize(
    ("said", "end"),
    [
        (frame(Type.REACHED_END_OF_TOPIC), TopicEnd.TERMINATED),
        (Frame(pb.BaseCommand(type=Type.TOPIC_MIGRATED), memoryview(b"")), TopicEnd.MIGRATED),
        (frame(Type.ACTIVE_CONSUMER_CHANGE), None),
    ],
)
def test_whether_the_topic_has_ended(said, end):
    inbox = Inbox()
    assert inbox.topic_end is None
    inbox.deliver([said, frame(Type.ACTIVE_CONSUMER_CHANGE)])
    assert inbox.topic_end is end


@pytest.mark.parametrize("ends_with", ["messages", "error"])
def test_who_waits_is_woken(ends_with):
    inbox, part = Inbox(), messages(0)
    found: list[object] = []

    def wait():
        try:
            found.append(inbox.take_group(HANG))
        except ConnectError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    error = ConnectError("cut")
    if ends_with == "messages":
        inbox.deliver([part])
    else:
        inbox.lost(error)
    thread.join(HANG / 2)
    assert found == [[part] if ends_with == "messages" else error]


def test_what_comes_is_reported_when_it_is_there():
    seen = []
    inbox = Inbox(lambda: seen.append((inbox.newest, inbox.error)))
    inbox.deliver([messages(0, 3)])
    inbox.deliver([messages(3)])
    error = ConnectError("cut")
    inbox.lost(error)
    assert seen == [(MessageId(0, 2), None), (MessageId(0, 3), None), (MessageId(0, 3), error)]
    inbox.take_group(0)
    assert inbox.newest is None


def test_one_that_is_full_takes_no_more_in():
    seen, full = [], []
    inbox = Inbox(lambda: seen.append(inbox.newest), 300, lambda: full.append(inbox.error))
    parts = [messages(number, size=100) for number in range(6)]
    inbox.deliver(parts[:2])
    inbox.deliver(parts[2:5])
    assert inbox.newest == MessageId(0, 2)
    assert isinstance(inbox.error, NotReadyError)
    inbox.deliver(parts[5:])
    assert full == [inbox.error]
    assert len(seen) == 2
    assert inbox.take_group(0) == parts[:3]
    with pytest.raises(NotReadyError, match="more than 300 bytes of messages wait"):
        inbox.take_group(0)


def test_what_was_taken_makes_room():
    inbox = Inbox(None, 2 << 20)
    for number in range(100):
        parts = [messages(2 * number + one, size=1 << 20) for one in range(2)]
        inbox.deliver(parts)
        assert [inbox.take_group(0) for _ in range(2)] == [[part] for part in parts]
    assert inbox.error is None


def test_one_message_of_any_size_has_room():
    inbox, part = Inbox(None, 10), messages(0, size=1000)
    inbox.deliver([part])
    assert inbox.error is None
    assert inbox.take_group(0) == [part]


def test_what_came_as_one_block_counts_once():
    inbox = Inbox(None, 300)
    block = messages(0, 100, size=2)
    parts = [Messages(1, block.data, *(column[at : at + 1] for column in block[2:])) for at in range(100)]
    inbox.deliver([*parts])
    assert inbox.error is None
    assert inbox.take_group(0) == parts


def test_a_loss_that_came_before_stays_the_reason():
    inbox = Inbox(None, 1)
    error = ConnectError("cut")
    inbox.lost(error)
    inbox.deliver([messages(0), messages(1)])
    assert inbox.error is error
