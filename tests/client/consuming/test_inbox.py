"""Inbox: what is left for a consumer, and by what it was lost."""

import threading

import numpy as np
import pytest

from pulsar_spark.client.consuming.inbox import Inbox
from pulsar_spark.errors import ConnectError, NotReadyError
from pulsar_spark.ids import MessageId
from pulsar_spark.wire.frames import Frame
from pulsar_spark.wire.messages import Messages
from tests.fake_broker import HANG
from tests.fake_clients import Type, command_of


def messages(first, count=1, size=1):
    ids = np.arange(first, first + count)
    at = np.arange(count) * size
    return Messages(1, b"", np.zeros(count, np.int64), ids, at, at + size)


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
