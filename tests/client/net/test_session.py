"""Session: one connection, its requests and handlers, and how it ends."""

import threading
from concurrent.futures import TimeoutError as FutureTimeoutError

import pytest

from pulsar_spark.client import Credentials, Deadline, TlsOptions
from pulsar_spark.client.net.auth import Identity
from pulsar_spark.client.net.session import Session
from pulsar_spark.errors import AuthError, ConnectError, ProtocolError, TopicNotFoundError
from pulsar_spark.protocol import connection
from pulsar_spark.protocol.connection import Role, SendMark
from pulsar_spark.protocol.lookup import Address
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.frame_runs import Messages
from pulsar_spark.wire.frames import encode_command
from tests.client.clients import TOPIC, numbered, singles, wait_until
from tests.fake_broker import HANG, FakeBroker, Held, cut, refuses, says, silence
from tests.fake_clients import Type
from tests.fake_topics import section_of

NOBODY = Identity(None, TlsOptions())


class Notes:
    """A handler that keeps what it is called with."""

    def __init__(self):
        self.frames = []
        self.errors = []
        self.changed = threading.Condition()

    def deliver(self, frames):
        with self.changed:
            self.frames += frames
            self.changed.notify_all()

    def lost(self, error):
        with self.changed:
            self.errors.append(error)
            self.changed.notify_all()

    def wait_for(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, HANG)


def open_session(broker, *, identity=NOBODY, timeout=HANG, keep_alive=HANG, max_idle=HANG):
    return Session(broker.address, identity, timeout=timeout, keep_alive=keep_alive, max_idle=max_idle)


@pytest.fixture
def session(broker):
    session = open_session(broker)
    yield session
    session.close()


def metadata(topic=TOPIC):
    return lambda request_id: commands.partitioned_metadata(request_id, str(topic), create=True)


def subscribe(session, consumer_id=1):
    session.request(
        lambda request_id: commands.subscribe(
            request_id,
            consumer_id,
            str(TOPIC),
            f"s{consumer_id}",
            durable=False,
            initial=InitialPosition.EARLIEST,
            start=None,
            create=False,
        ),
        Deadline(HANG),
    )


def register(session, producer_id=1):
    session.request(
        lambda request_id: commands.producer(request_id, producer_id, str(TOPIC), None, 0), Deadline(HANG)
    )


# ---- the handshake


def test_the_handshake_tells_what_the_broker_can():
    with FakeBroker(max_message_size=5000, has_watches=False) as broker:
        session = open_session(broker)
        session.close()
    assert (session.max_message_size, session.topic_watchers) == (5000, False)
    (connect,) = broker.seen(Type.CONNECT)
    assert connect.protocol_version == commands.PROTOCOL_VERSION
    assert connect.feature_flags.supports_auth_refresh
    assert not connect.HasField("auth_data")
    assert not connect.HasField("proxy_to_broker_url")


def test_a_proxy_is_told_which_broker_is_meant(broker):
    address = Address(broker.address.host, broker.address.port, proxy_to="10.9.9.9:6650")
    Session(address, NOBODY, timeout=HANG, keep_alive=HANG, max_idle=HANG).close()
    assert [one.proxy_to_broker_url for one in broker.seen(Type.CONNECT)] == ["10.9.9.9:6650"]


def test_a_peer_that_does_not_answer_the_handshake(broker):
    broker.script(Type.CONNECT, [silence])
    with pytest.raises(ConnectError, match=r"did not answer CONNECT within 0\.1 s"):
        open_session(broker, timeout=0.1)


def test_a_peer_that_closes_in_the_handshake(broker):
    broker.script(Type.CONNECT, [cut])
    with pytest.raises(ConnectError, match="closed the connection"):
        open_session(broker, timeout=5)


def test_a_login_that_is_refused():
    login = Identity(Credentials("token", "secret-1"), TlsOptions())
    with FakeBroker(token=b"secret-2") as broker, pytest.raises(AuthError) as caught:
        open_session(broker, identity=login)
    assert "secret" not in str(caught.value)
    assert [one.auth_data for one in broker.seen(Type.CONNECT)] == [b"secret-1"]


# ---- challenges


class Renewed:
    """An authentication of the user's own; `Renewed.secrets` are given out one after the other."""

    method = "token"
    secrets: list

    def __init__(self, params):
        pass

    def data(self):
        secret = self.secrets.pop(0)
        if isinstance(secret, Exception):
            raise secret
        return secret


def challenged_session(broker, monkeypatch, *secrets):
    monkeypatch.setattr(Renewed, "secrets", list(secrets), raising=False)
    credentials = Credentials(f"{__name__}.Renewed")
    return open_session(broker, identity=Identity(credentials, TlsOptions()))


def test_a_challenge_is_answered_with_the_login_as_it_is_now(monkeypatch):
    with FakeBroker(token=b"first") as broker:
        session = challenged_session(broker, monkeypatch, b"first", b"second")
        broker.token = b"second"
        broker.send(Type.AUTH_CHALLENGE, server_version="fake")
        broker.wait_for_command(Type.AUTH_RESPONSE)
        (answer,) = broker.seen(Type.AUTH_RESPONSE)
        assert (answer.response.auth_method_name, answer.response.auth_data) == ("token", b"second")
        session.request(metadata(), Deadline(HANG))
        session.close()


def test_a_broker_that_challenges_all_the_time_is_answered_now_and_then(monkeypatch):
    with FakeBroker(token=b"first") as broker:
        session = challenged_session(broker, monkeypatch, *[b"first"] * 10_000)
        until = Deadline(0.3)
        while not until.passed:
            broker.send(Type.AUTH_CHALLENGE, server_version="fake")
        session.request(metadata(), Deadline(HANG))
        assert 1 <= len(broker.seen(Type.AUTH_RESPONSE)) <= 3
        session.close()


def test_a_login_that_cannot_be_renewed_ends_the_session(monkeypatch):
    with FakeBroker(token=b"first") as broker:
        session = challenged_session(broker, monkeypatch, b"first", AuthError("the issuer is away"))
        notes = Notes()
        session.attach(Role.PRODUCER, 1, notes)
        broker.send(Type.AUTH_CHALLENGE, server_version="fake")
        notes.wait_for(lambda: notes.errors)
        assert "login" in str(session.error)
        assert "the issuer is away" in str(session.error)
        assert session.error.retriable
        session.close()


class Slow(Renewed):
    """One whose issuer takes its time: `Slow.go` lets it answer once."""

    go = threading.Semaphore(1)
    asked = 0

    def data(self):
        Slow.asked += 1
        assert self.go.acquire(timeout=HANG)
        return super().data()


def test_of_challenges_that_come_together_one_is_answered_at_a_time(monkeypatch):
    secrets = [b"first"] * 4
    monkeypatch.setattr(Slow, "secrets", secrets, raising=False)
    monkeypatch.setattr(Slow, "go", threading.Semaphore(1))
    monkeypatch.setattr(Slow, "asked", 0)
    monkeypatch.setattr(connection, "CHALLENGE_PAUSE", 0.3)
    with FakeBroker(token=b"first") as broker:
        login = Identity(Credentials(f"{__name__}.Slow"), TlsOptions())
        session = open_session(broker, identity=login)
        for _ in range(400):
            broker.send(Type.AUTH_CHALLENGE, server_version="fake")
        session.request(metadata(), Deadline(HANG))  # all of them have come
        names = [thread.name for thread in threading.enumerate()]
        assert sum(name.startswith("pulsar login") for name in names) == 1
        for count in (1, 2):  # of two equal answers that wait, one is sent
            Slow.go.release()
            broker.wait_for_command(Type.AUTH_RESPONSE, count)
        broker.send(Type.AUTH_CHALLENGE, server_version="fake")
        Slow.go.release()
        broker.wait_for_command(Type.AUTH_RESPONSE, 3)
        session.close()
    assert (len(broker.seen(Type.AUTH_RESPONSE)), Slow.asked) == (3, 4)


# ---- idle connections


def test_a_session_that_nobody_uses_closes_itself(broker):
    session = open_session(broker, max_idle=0.2)
    broker.wait_for(lambda: not broker.open_connections[0].is_served)
    session.close()  # waits for the session's thread, which sets the error after it has closed the connection
    assert "because it was not used" in str(session.error)
    assert session.error.retriable


def test_a_session_that_is_used_stays_open(broker):
    """By a producer, and by a request that takes its time; afterwards it is idle."""
    session = open_session(broker)
    session.attach(Role.PRODUCER, 1, Notes())
    session._max_idle = 0.2  # from now on: it may take longer to come here
    held = Held(broker)
    broker.script(Type.PARTITIONED_METADATA, [held])
    answer = session.ask(metadata(), HANG)
    with pytest.raises(FutureTimeoutError):
        answer.result(0.5)
    session.detach(Role.PRODUCER, 1)
    with pytest.raises(FutureTimeoutError):
        answer.result(0.5)
    held.release()
    answer.result(HANG)
    broker.wait_for(lambda: not broker.open_connections[0].is_served)
    session.close()


# ---- requests


def test_an_error_is_that_of_its_request(broker, session):
    broker.script(Type.PRODUCER, [refuses(pb.TopicNotFound, "no such topic")])
    with pytest.raises(TopicNotFoundError, match="no such topic"):
        register(session)
    register(session)


# ---- handlers


def test_frames_go_to_the_handlers_of_their_ids(broker, session):
    broker.create(TOPIC)
    consumers = {1: Notes(), 2: Notes()}
    for number, notes in consumers.items():
        session.attach(Role.CONSUMER, number, notes)
        subscribe(session, number)
    producer, watcher = Notes(), Notes()
    session.attach(Role.PRODUCER, 1, producer)
    register(session)
    session.attach(Role.WATCHER, 1, watcher)
    session.request(
        lambda request_id: commands.watch_topic_list(request_id, 1, "public/default"), Deadline(HANG)
    )
    session.send(commands.flow(1, 10), commands.flow(2, 3))
    broker.publish(TOPIC, *singles(numbered(5)))
    for number, count in ((1, 5), (2, 3)):
        notes = consumers[number]
        notes.wait_for(lambda notes=notes, count=count: len(_positions(notes)) == count)
        assert _positions(notes) == [(1, entry) for entry in range(count)]
    section = section_of(b"sent")
    session.send(encode_command(commands.send(1, (7, 7), 1), len(section)), section)
    producer.wait_for(lambda: producer.frames)
    assert producer.frames[0].sequence_ids == [7]
    broker.create("new")
    watcher.wait_for(lambda: watcher.frames)
    (update,) = watcher.frames
    assert list(update.command.watchTopicUpdate.new_topics) == ["persistent://public/default/new"]


def _positions(notes):
    return [
        (int(ledger), int(entry))
        for part in notes.frames
        for ledger, entry in zip(part.ledger, part.entry, strict=True)
    ]


def test_what_is_detached_gets_nothing(broker, session):
    broker.create(TOPIC)
    consumer, producer, watcher = Notes(), Notes(), Notes()
    session.attach(Role.CONSUMER, 1, consumer)
    session.attach(Role.PRODUCER, 1, producer)
    session.attach(Role.WATCHER, 1, watcher)
    subscribe(session)
    register(session)
    session.detach(Role.CONSUMER, 1)
    session.detach(Role.PRODUCER, 1)
    session.detach(Role.WATCHER, 1)
    session.send(commands.flow(1, 10))
    broker.publish(TOPIC, section_of(b"x"))
    broker.close_all(TOPIC)
    session.request(metadata(), Deadline(HANG))  # what was sent before it has come
    session.close()
    assert [(notes.frames, notes.errors) for notes in (consumer, producer, watcher)] == [([], [])] * 3


def test_frames_that_come_together_are_delivered_as_columns(broker, session):
    broker.publish(TOPIC, *singles(numbered(50)))
    notes = Notes()
    session.attach(Role.CONSUMER, 1, notes)
    subscribe(session)
    session.send(commands.flow(1, 50))
    notes.wait_for(lambda: len(_positions(notes)) == 50)
    assert all(isinstance(part, Messages) for part in notes.frames)
    assert _positions(notes) == [(1, entry) for entry in range(50)]


def test_more_than_a_socket_takes_at_once_arrives_whole(broker, session):
    register(session)
    big = [bytes([number]) * 3_000_000 for number in range(4)]
    sections = [section_of(value) for value in big]
    session.send(
        *(
            part
            for number, section in enumerate(sections)
            for part in (
                encode_command(commands.send(1, (number, number), 1), len(section)),
                memoryview(section),
            )
        )
    )
    topic = broker.topics[str(TOPIC)]
    broker.wait_for(lambda: len(topic.entries) == 4)
    assert [entry.section for entry in topic.entries] == sections


def test_what_a_broker_does_not_read_waits_where_it_counts_as_waiting(broker, session):
    """Its sender's time must not run while bytes of others, or its own, go out before it."""
    register(session)
    broker.script(Type.SEND, [silence] * 40)
    section = section_of(bytes(1 << 20))
    frame = encode_command(commands.send(1, (0, 0), 1), len(section)) + section
    marks = [SendMark() for _ in range(40)]
    with broker.changed:  # it reads no more
        for mark in marks:
            session.send(frame, mark=mark)
        wait_until(lambda: session._is_full)
        assert marks[-1].is_waiting
    broker.wait_for_command(Type.SEND, 40)
    wait_until(lambda: not marks[-1].is_waiting)


# ---- keep-alive


def test_a_ping_is_answered_whatever_the_caller_does(broker, session):
    broker.send(Type.PING)
    broker.wait_for_command(Type.PONG)


def test_silence_is_broken_by_pings_and_pongs_keep_the_session_alive(broker):
    session = open_session(broker, keep_alive=0.3)
    broker.wait_for_command(Type.PING, 2)  # the second one only follows an answer to the first
    assert session.error is None
    session.close()


def test_a_peer_that_is_silent_for_two_intervals_is_dead(broker):
    broker.script(Type.PING, [silence] * 10)
    session = open_session(broker, keep_alive=0.3)
    notes = Notes()
    session.attach(Role.CONSUMER, 1, notes)
    notes.wait_for(lambda: notes.errors)
    assert isinstance(session.error, ConnectError)
    assert f"nothing was received from the broker at {broker.address} for 0.6 s" in str(session.error)
    session.close()


# ---- the end


@pytest.mark.parametrize("how", ["cut", "garbage", "closed"])
def test_the_end_is_told_to_all_who_wait(broker, how):
    session = open_session(broker)
    broker.script(Type.PARTITIONED_METADATA, [silence])
    waiting = session.ask(metadata(), HANG)
    handlers = [Notes(), Notes(), Notes()]
    session.attach(Role.CONSUMER, 1, handlers[0])
    session.attach(Role.PRODUCER, 1, handlers[1])
    session.attach(Role.WATCHER, 1, handlers[2])
    broker.wait_for_command(Type.PARTITIONED_METADATA)
    expected: type[Exception] = ConnectError
    if how == "cut":
        broker.cut()
    elif how == "garbage":
        expected = ProtocolError
        broker.script(Type.PARTITIONED_METADATA, [says(b"HTTP/1.1 400 Bad Request\r\n\r\n")])
        session.ask(metadata(), HANG)
    else:
        session.close()
    with pytest.raises(expected):
        waiting.result(HANG)
    for notes in handlers:
        notes.wait_for(lambda notes=notes: notes.errors)
        assert [type(error) for error in notes.errors] == [expected]
        assert notes.frames == []
    for call in (
        lambda: session.ask(metadata(), HANG),
        lambda: session.send(commands.ping()),
        lambda: session.attach(Role.CONSUMER, 2, Notes()),
        lambda: session.attach(Role.PRODUCER, 2, Notes()),
        lambda: session.attach(Role.WATCHER, 2, Notes()),
    ):
        with pytest.raises(expected) as caught:
            call()
        assert caught.value is not session.error  # each caller has one of its own, with its own traceback
    session.close()
