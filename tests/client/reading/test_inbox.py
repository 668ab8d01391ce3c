"""Inbox: what is left for a consumer, and by what it was lost."""

import threading

import numpy as np
import pytest

from pulsar_spark.client.reading.inbox import Inbox
from pulsar_spark.errors import ConnectError, NotReadyError
from pulsar_spark.ids import MessageId
from pulsar_spark.wire.frames import Frame
from pulsar_spark.wire.messages import Messages
from tests.fake_broker import HANG
from tests.fake_clients import Type, command_of


def messages(first, count=1):
    ids = np.arange(first, first + count)
    return Messages(1, b"", np.zeros(count, np.int64), ids, ids, ids)


def frame(kind, **fields):
    return Frame(command_of(kind, consumer_id=1, **fields), memoryview(b""))


def test_all_that_has_come_is_taken_at_once_in_order():
    inbox, parts = Inbox(), [messages(0, 3), messages(3), messages(4)]
    inbox.deliver(parts[:2])
    assert inbox.holds_messages
    inbox.deliver(parts[2:])
    assert inbox.take(HANG) == parts
    assert not inbox.holds_messages
    assert inbox.take(0) == []


def test_what_came_before_the_end_is_taken_before_the_error_is_raised():
    inbox, part = Inbox(), messages(0)
    inbox.deliver([part])
    error = ConnectError("cut")
    inbox.lost(error)
    assert inbox.error is error
    assert inbox.take(HANG) == [part]
    for _ in range(2):
        with pytest.raises(ConnectError):
            inbox.take(HANG)


def test_a_broker_that_closes_the_consumer():
    inbox = Inbox()
    inbox.deliver([frame(Type.CLOSE_CONSUMER, request_id=1)])
    with pytest.raises(NotReadyError, match="closed the consumer"):
        inbox.take(HANG)


@pytest.mark.parametrize("kind", [Type.ACTIVE_CONSUMER_CHANGE, Type.REACHED_END_OF_TOPIC])
def test_what_does_not_concern_an_exclusive_consumer_changes_nothing(kind):
    inbox = Inbox()
    inbox.deliver([frame(kind)])
    assert inbox.error is None
    assert inbox.take(0) == []


@pytest.mark.parametrize("ends_with", ["messages", "error"])
def test_who_waits_is_woken(ends_with):
    inbox, part = Inbox(), messages(0)
    found: list[object] = []

    def wait():
        try:
            found.append(inbox.take(HANG))
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
    inbox.take(0)
    assert inbox.newest is None
