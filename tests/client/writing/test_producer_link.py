"""A producer's registration: access modes, names that are taken, and what becomes of an old one."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_spark.client import AccessMode, Producer
from pulsar_spark.client.writing.producer_link import ProducerLink
from pulsar_spark.errors import BusyError, DeadlineError, SendError
from pulsar_spark.protocol.writing.pending import EntryKind, Outgoing
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import encode_singles
from pulsar_spark.wire.frame_runs import Receipts
from pulsar_spark.wire.frames import Frame
from tests.client.clients import TOPIC, columns, hurry, numbered, producing
from tests.fake_broker import HANG, Held, cut, lose_answer, pass_on, refuses, silence
from tests.fake_clients import Type

NOTHING = memoryview(b"")


def open_producer(client, **options):
    return Producer(client, TOPIC, producing(**options), 1)


def send(producer, values):
    producer.send_singles(encode_singles(columns(values)))


@pytest.mark.parametrize("first", [AccessMode.SHARED, AccessMode.EXCLUSIVE])
def test_one_that_must_be_alone_fails_where_there_is_another(broker, client, first):
    other = open_producer(client, access_mode=first)
    with pytest.raises(SendError, match="existing exclusive producer"):
        open_producer(client, access_mode=AccessMode.EXCLUSIVE)
    assert len(broker.open_producers) == 1
    other.close()


def test_nobody_writes_beside_one_that_must_be_alone(client):
    first = open_producer(client, access_mode=AccessMode.EXCLUSIVE)
    hurry(client, 0.4)
    with pytest.raises(BusyError):
        open_producer(client)
    first.close()
    hurry(client, HANG)
    open_producer(client).close()


def test_one_that_waits_has_its_turn_when_the_other_leaves(broker, client):
    first = open_producer(client, access_mode=AccessMode.EXCLUSIVE)
    found = []
    thread = threading.Thread(
        target=lambda: found.append(open_producer(client, access_mode=AccessMode.WAIT_FOR_EXCLUSIVE))
    )
    thread.start()
    broker.wait_for(lambda: len(broker.open_producers) == 2)
    assert not found
    first.close()
    thread.join(HANG)
    (second,) = found
    send(second, numbered(3))
    second.flush()
    second.close()
    assert broker.topics[str(TOPIC)].values == numbered(3)
    assert len(broker.seen(Type.PRODUCER)) == 2


def test_one_whose_turn_does_not_come(broker, client):
    first = open_producer(client, access_mode=AccessMode.EXCLUSIVE)
    hurry(client, 0.4)
    with pytest.raises(BusyError, match="other producers did not leave the topic") as caught:
        open_producer(client, access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    assert caught.value.topic == str(TOPIC)
    broker.wait_for(lambda: len(broker.open_producers) == 1)
    first.close()


def test_where_the_broker_does_not_answer_it_is_no_turn_that_is_waited_for(broker, client):
    open_producer(client).close()
    broker.script(Type.PRODUCER, [silence] * 9)
    hurry(client, 0.4)
    with pytest.raises(DeadlineError):
        open_producer(client)


def test_a_name_that_is_taken_is_waited_for(broker, client):
    first = open_producer(client, name="me")

    def leave(connection, frame):
        broker.close_all(TOPIC)
        connection.handle(frame)

    broker.script(Type.PRODUCER, [pass_on, pass_on, leave])
    second = open_producer(client, name="me")
    assert len(broker.seen(Type.PRODUCER)) == 4
    second.close()
    first.close()


def test_a_quota_is_waited_for_or_an_error_as_the_namespace_says(broker, client):
    broker.script(Type.PRODUCER, [refuses(pb.ProducerBlockedQuotaExceededError)] * 2)
    open_producer(client).close()
    assert len(broker.seen(Type.PRODUCER)) == 3
    broker.script(Type.PRODUCER, [refuses(pb.ProducerBlockedQuotaExceededException, "backlog")])
    with pytest.raises(SendError, match="backlog"):
        open_producer(client)


def test_its_own_lost_registration_is_no_other_producer(broker, client):
    """The broker may notice late that the connection is gone."""
    producer = open_producer(client, name="me", access_mode=AccessMode.EXCLUSIVE)
    fenced = refuses(pb.ProducerFenced, "Topic has an existing exclusive producer: me")
    broker.script(Type.PRODUCER, [fenced, fenced])
    broker.script(Type.SEND, [cut])
    send(producer, numbered(3))
    producer.flush()
    producer.close()
    first, *_, last = broker.seen(Type.PRODUCER)
    assert (first.HasField("topic_epoch"), last.HasField("topic_epoch")) == (False, True)
    assert broker.topics[str(TOPIC)].values == numbered(3)


def test_another_producer_of_the_topic_is_an_error_after_a_loss(broker, client):
    producer = open_producer(client, name="me", access_mode=AccessMode.EXCLUSIVE)
    broker.script(
        Type.PRODUCER, [refuses(pb.ProducerFenced, "Topic has an existing exclusive producer: you")]
    )
    broker.script(Type.SEND, [cut])
    send(producer, numbered(3))
    with pytest.raises(SendError, match="exclusive producer: you"):
        producer.flush()
    producer.close()


def test_late_receipts_of_an_old_registration_do_not_count(broker, client):
    """Ids of producers are new each time, so what a broker still sends to the old one goes nowhere."""
    broker.create(TOPIC)
    producer, held = open_producer(client), Held(broker)
    broker.script(Type.SEND, [silence, silence, held, held])
    send(producer, numbered(2))
    broker.wait_for_command(Type.SEND, 2)
    old = broker.seen(Type.SEND)[0].producer_id
    broker.close_all(TOPIC)
    thread = threading.Thread(target=producer.flush)
    thread.start()
    broker.wait_for(lambda: held.count == 2)
    for number in range(2):
        broker.send(Type.SEND_RECEIPT, producer_id=old, sequence_id=number)
    broker.send(Type.CLOSE_PRODUCER, producer_id=old, request_id=0)
    client.partitions(TOPIC)
    assert len(producer.pending) == 2
    held.release()
    thread.join(HANG)
    producer.close()
    assert broker.topics[str(TOPIC)].values == numbered(2)
    assert len(broker.seen(Type.PRODUCER)) == 2


@pytest.mark.parametrize("answer", [cut, lose_answer, refuses(pb.UnknownError)])
def test_closing_never_raises(broker, client, answer):
    producer = open_producer(client)
    broker.script(Type.CLOSE_PRODUCER, [answer])
    producer.close()
    producer.close()
    assert len(broker.seen(Type.CLOSE_PRODUCER)) == 1


# ---- what waits for a connection that takes no bytes


class FullSession:
    """A session whose peer makes no room: what is sent waits."""

    def __init__(self):
        self.error = None
        self.written_at = 0.0
        self.urgent = []
        self.marks = []
        self.sizes = []

    def attach(self, role, producer_id, link):
        pass

    def detach(self, role, producer_id):
        pass

    def ask(self, build, timeout, *, is_urgent):
        self.urgent.append(is_urgent)
        answer = Future()
        answer.set_result(None)
        return answer

    def send(self, *buffers, mark):
        mark.queued += 1
        self.marks.append(mark)
        self.sizes.append(sum(map(len, buffers)))


PENDING: Any = SimpleNamespace(awaits_receipts=True)


def outgoing(size):
    return Outgoing(0, 0, 1, b"head", b"x" * size, EntryKind.SINGLE)


def test_progress_is_that_of_the_connection_while_something_waits_and_then_its_own():
    session: Any = FullSession()
    link = ProducerLink(session, 1, PENDING)
    assert link.progress_at == 0.0
    link.send([])
    assert session.marks == []
    link.send([outgoing(10)])
    link.send([outgoing(10)])
    for now in (5.0, 6.0):
        session.written_at = now  # bytes of others
        assert link.progress_at == now
    mark = session.marks[0]
    mark.taken, mark.taken_at = 1, 7.0
    assert link.progress_at == 6.0
    mark.taken, mark.taken_at = 2, 8.0
    session.written_at = 20.0
    assert link.progress_at == 8.0


@pytest.mark.parametrize("taken", [0, 1])
def test_one_is_closed_before_what_others_send_but_after_its_own_entries(taken):
    session: Any = FullSession()
    link = ProducerLink(session, 1, PENDING)
    link.send([outgoing(10)])
    session.marks[0].taken = taken
    link.close()
    assert session.urgent == [bool(taken)]


@pytest.mark.parametrize("size", [100, 100_000])
def test_many_entries_leave_room_for_what_is_urgent(size):
    session: Any = FullSession()
    ProducerLink(session, 1, PENDING).send([outgoing(size)] * (4_000_000 // size))
    assert len(session.sizes) >= 3
    assert max(session.sizes) < 1_600_000


def test_frames_of_an_old_link_do_not_count(broker, client):
    """They may wait for the producer's lock while it is opened again on another connection."""
    broker.create(TOPIC)
    producer, held = open_producer(client), Held(broker)
    old = producer._link
    broker.script(Type.SEND, [silence, held])
    send(producer, numbered(1))
    broker.wait_for_command(Type.SEND, 1)
    broker.close_all(TOPIC)
    thread = threading.Thread(target=producer.flush)
    thread.start()
    broker.wait_for(lambda: held.count == 1)
    assert producer._link is not old
    command = pb.BaseCommand(type=Type.CLOSE_PRODUCER)
    command.close_producer.producer_id = command.close_producer.request_id = 0
    refused = pb.BaseCommand(type=Type.SEND_ERROR)
    refused.send_error.producer_id = refused.send_error.sequence_id = 0
    refused.send_error.error, refused.send_error.message = pb.NotAllowedError, "not for this one"
    producer.on_frames(old, [Receipts(0, [0], [7], [1]), Frame(refused, NOTHING), Frame(command, NOTHING)])
    assert len(producer.pending) == 1
    held.release()
    thread.join(HANG)
    assert not producer.pending
    producer.close()
    assert broker.topics[str(TOPIC)].values == numbered(1)
