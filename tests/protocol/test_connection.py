"""One connection without its socket: handshake, requests, keep-alive, routing, in every state."""

import contextlib
import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    BusyError,
    ConnectError,
    DeadlineError,
    NotReadyError,
    ProtocolError,
    TopicNotFoundError,
)
from pulsar_spark.protocol.connection import (
    Answer,
    Connected,
    Connection,
    ForConsumer,
    ForProducer,
    ForWatcher,
)
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.messages import Messages

KEEP_ALIVE = 30
TIMEOUT = 10
MIB = 1024 * 1024

Type = pb.BaseCommand


def framed(command, section=b""):
    body = command.SerializePartialToString()
    return struct.pack(">II", 4 + len(body) + len(section), len(body)) + body + section


def sent(connection):
    """Take what is to go out, parsed."""
    stream = b"".join(bytes(buffer) for buffer in connection.outgoing)
    connection.outgoing.clear()
    found = []
    while stream:
        total, size = struct.unpack_from(">II", stream)
        found.append(pb.BaseCommand.FromString(stream[8 : 8 + size]))
        stream = stream[4 + total :]
    return found


def kinds(found):
    return [pb.BaseCommand.Type.Name(command.type) for command in found]


def connected_frame(**fields):
    return framed(pb.BaseCommand(type=Type.CONNECTED, connected={"server_version": "Pulsar 4", **fields}))


PING = framed(pb.BaseCommand(type=Type.PING, ping={}))
PONG = framed(pb.BaseCommand(type=Type.PONG, pong={}))


def success(request_id):
    return framed(pb.BaseCommand(type=Type.SUCCESS, success={"request_id": request_id}))


def error_frame(request_id, code, text="no"):
    return framed(
        pb.BaseCommand(type=Type.ERROR, error={"request_id": request_id, "error": code, "message": text})
    )


def new_connection(now=0, **options):
    return Connection(now, **{"keep_alive": KEEP_ALIVE, "timeout": TIMEOUT, **options})


@pytest.fixture
def fresh():
    """A connection that has not heard from the broker yet."""
    return new_connection()


@pytest.fixture
def ready():
    """A connection after its handshake, at time 0."""
    connection = new_connection()
    connection.receive(connected_frame(), 0)
    connection.outgoing.clear()
    return connection


# ---- handshake


def test_connect_is_the_first_to_go_out(fresh):
    (command,) = sent(fresh)
    assert command.type == Type.CONNECT
    assert command.connect.client_version
    assert not command.connect.HasField("proxy_to_broker_url")
    assert not fresh.connected


def test_the_broker_behind_a_proxy_is_named():
    (command,) = sent(new_connection(proxy_to="broker-2:6650"))
    assert command.connect.proxy_to_broker_url == "broker-2:6650"


def test_handshake(fresh):
    events = fresh.receive(connected_frame(max_message_size=102400), 1)
    assert events == [Connected("Pulsar 4", 102400)]
    assert fresh.connected


@pytest.mark.parametrize(
    ("flags", "watchers"),
    [
        ({}, False),
        ({"supports_repl_dedup_by_lid_and_eid": True}, False),
        ({"supports_topic_watchers": True}, True),
    ],
)
def test_whether_the_broker_watches_topics(fresh, flags, watchers):
    (event,) = fresh.receive(connected_frame(feature_flags=flags), 1)
    assert event.topic_watchers == watchers


@pytest.mark.parametrize("said", [{}, {"max_message_size": 0}, {"max_message_size": -1}])
def test_a_broker_that_names_no_size_has_the_usual_one(fresh, said):
    assert fresh.receive(connected_frame(**said), 1) == [Connected("Pulsar 4", 5 * MIB)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pb.AuthenticationError, AuthError),
        (pb.AuthorizationError, AuthError),
        (pb.ServiceNotReady, NotReadyError),
        (pb.UnsupportedVersionError, BrokerError),
    ],
)
def test_an_error_during_the_handshake_ends_the_connection(fresh, code, kind):
    # A broker refuses credentials with request id -1.
    with pytest.raises(kind, match="Failed to authenticate") as caught:
        fresh.receive(error_frame(2**64 - 1, code, "Failed to authenticate"), 1)
    assert type(caught.value) is kind
    assert not fresh.connected


def test_connected_twice(ready):
    with pytest.raises(ProtocolError, match="twice"):
        ready.receive(connected_frame(), 1)


def test_connected_twice_at_once(fresh):
    with pytest.raises(ProtocolError, match="twice"):
        fresh.receive(connected_frame() + connected_frame(), 1)


def test_no_answer_to_connect(fresh):
    assert fresh.next_deadline == TIMEOUT
    assert fresh.tick(TIMEOUT - 0.001) == []
    with pytest.raises(ConnectError, match="CONNECT"):
        fresh.tick(TIMEOUT)


def test_pings_do_not_stretch_the_handshake(fresh):
    for now in range(TIMEOUT):
        fresh.receive(PING, now)
        fresh.tick(now)
    with pytest.raises(ConnectError, match="CONNECT"):
        fresh.tick(TIMEOUT)


def test_the_handshake_s_limit_ends_with_it(fresh):
    fresh.receive(connected_frame(), TIMEOUT - 1)
    assert fresh.tick(TIMEOUT) == []
    assert fresh.next_deadline == TIMEOUT - 1 + KEEP_ALIVE


def frame_of(total):
    """A frame with a payload section, of ``total`` bytes behind its first length."""
    command = pb.BaseCommand(
        type=Type.MESSAGE, message={"consumer_id": 7, "message_id": {"ledgerId": 1, "entryId": 2}}
    )
    return framed(command, bytes(total - 4 - command.ByteSize()))


@pytest.mark.parametrize("size", [1000, 6 * MIB])
def test_the_broker_s_size_rules_the_frames_behind_connected(fresh, size):
    fresh.receive(connected_frame(max_message_size=size), 1)
    events = fresh.receive(frame_of(size + 10 * 1024), 1)
    assert isinstance(events[-1], ForConsumer)
    with pytest.raises(ProtocolError):
        fresh.receive(frame_of(size + 10 * 1024 + 1)[:4], 1)


# ---- keep-alive


def test_ping_is_answered_at_once(ready):
    assert ready.receive(PING, 1) == []
    assert kinds(sent(ready)) == ["PONG"]


def test_each_ping_has_its_pong_also_before_connected(fresh):
    fresh.outgoing.clear()
    assert fresh.receive(PING * 3, 1) == []
    assert kinds(sent(fresh)) == ["PONG"] * 3


def test_a_ping_goes_out_after_each_silent_interval(ready):
    assert ready.next_deadline == KEEP_ALIVE
    ready.tick(KEEP_ALIVE - 0.001)
    assert sent(ready) == []
    ready.tick(KEEP_ALIVE)
    assert kinds(sent(ready)) == ["PING"]
    ready.tick(KEEP_ALIVE + 0.001)
    assert sent(ready) == []


@pytest.mark.parametrize("heard", [PONG, PING, success(99), PONG[:3]])
def test_whatever_is_heard_puts_the_ping_off(ready, heard):
    ready.receive(heard, 20)
    sent(ready)
    ready.tick(KEEP_ALIVE)
    assert sent(ready) == []
    ready.tick(20 + KEEP_ALIVE)
    assert kinds(sent(ready)) == ["PING"]


def test_silence_of_two_intervals_is_death(ready):
    ready.tick(KEEP_ALIVE)
    ready.tick(2 * KEEP_ALIVE - 0.001)
    with pytest.raises(ConnectError, match="60 s"):
        ready.tick(2 * KEEP_ALIVE)


def test_a_pong_in_the_last_moment_keeps_it_alive(ready):
    ready.tick(KEEP_ALIVE)
    ready.receive(PONG, 59)
    ready.tick(60)
    assert ready.tick(59 + 2 * KEEP_ALIVE - 1) == []
    with pytest.raises(ConnectError):
        ready.tick(59 + 2 * KEEP_ALIVE)


def test_what_this_client_sends_is_no_sign_of_the_peer_s_life(ready):
    for now in range(0, 2 * KEEP_ALIVE, 10):
        ready.send(commands.flow(1, 1))
        ready.tick(now)
    with pytest.raises(ConnectError):
        ready.tick(2 * KEEP_ALIVE)


# ---- requests


def lookup(request_id):
    return commands.lookup(request_id, "t", authoritative=False)


def test_requests_have_different_ids_and_go_out_in_order(ready):
    ids = [ready.request(lookup, 100) for _ in range(3)]
    ready.send(commands.flow(7, 1))
    found = sent(ready)
    assert kinds(found) == ["LOOKUP"] * 3 + ["FLOW"]
    assert [command.lookupTopic.request_id for command in found[:3]] == ids
    assert len(set(ids)) == 3


def test_send_keeps_the_pieces_of_a_frame_together(ready):
    ready.send(b"a", memoryview(b"b"), bytearray(b"c"))
    ready.send(b"d")
    assert [bytes(piece) for piece in ready.outgoing] == [b"a", b"b", b"c", b"d"]


def test_answers_in_any_order(ready):
    first, second = ready.request(lookup, 100), ready.request(lookup, 100)
    events = ready.receive(success(second) + success(first), 1)
    assert [event.request_id for event in events] == [second, first]
    assert all(event.result.type == Type.SUCCESS for event in events)
    assert ready.next_deadline == 1 + KEEP_ALIVE


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pb.TopicNotFound, TopicNotFoundError),
        (pb.ConsumerBusy, BusyError),
        (pb.AuthorizationError, AuthError),
    ],
)
def test_an_error_ends_its_request_only(ready, code, kind):
    first, second = ready.request(lookup, 100), ready.request(lookup, 100)
    (event,) = ready.receive(error_frame(first, code, "why"), 1)
    assert event.request_id == first
    assert type(event.result) is kind
    assert "why" in str(event.result)
    assert len(ready.receive(success(second), 1)) == 1


def test_a_text_that_is_no_utf_8(ready):
    request_id = ready.request(lookup, 100)
    frame = error_frame(request_id, pb.TopicNotFound, "xx").replace(b"xx", b"\xff\xfe")
    (event,) = ready.receive(frame, 1)
    assert type(event.result) is TopicNotFoundError


def test_a_request_runs_out(ready):
    first, second, third = (ready.request(lookup, deadline) for deadline in (5, 3, 8))
    assert ready.next_deadline == 3
    assert ready.tick(2.999) == []
    (event,) = ready.tick(3)
    assert event.request_id == second
    assert type(event.result) is DeadlineError
    assert ready.next_deadline == 5
    assert {event.request_id for event in ready.tick(8)} == {first, third}
    assert ready.tick(9) == []


@pytest.mark.parametrize("answer", [success, lambda request_id: error_frame(request_id, pb.UnknownError)])
def test_a_late_answer_is_ignored(ready, answer):
    request_id = ready.request(lookup, 3)
    ready.tick(3)
    assert ready.receive(answer(request_id), 4) == []
    assert ready.connected


@pytest.mark.parametrize("request_id", [0, 1, 17, 2**64 - 1])
def test_an_answer_that_nobody_waits_for_is_ignored(ready, request_id):
    assert ready.receive(success(request_id) + error_frame(request_id, pb.UnknownError), 1) == []


def test_an_answer_counts_once(ready):
    request_id = ready.request(lookup, 100)
    assert len(ready.receive(success(request_id) * 2, 1)) == 1
    assert ready.tick(29) == []


def test_a_command_that_cannot_be_made_leaves_no_request_behind(ready):
    def refuse(request_id):
        raise ValueError("a number that does not fit")

    with pytest.raises(ValueError, match="fit"):
        ready.request(refuse, 3)
    # An Answer here would be one that no caller has ever heard of.
    assert ready.tick(3) == []
    assert sent(ready) == []


def test_a_type_without_its_body_settles_no_request(ready):
    request_id = ready.request(lookup, 100)
    assert request_id == 0  # what a body that is not there seems to say
    for kind in (Type.SUCCESS, Type.LOOKUP_RESPONSE, Type.ACK_RESPONSE):
        try:
            assert ready.receive(framed(pb.BaseCommand(type=kind)), 1) == []
        except ProtocolError:
            continue


@pytest.mark.parametrize("kind", [Type.MESSAGE, Type.CLOSE_CONSUMER, Type.SEND_RECEIPT, Type.CLOSE_PRODUCER])
def test_a_type_without_its_body_is_for_nobody(ready, kind):
    try:
        assert ready.receive(framed(pb.BaseCommand(type=kind)), 1) == []
    except ProtocolError:
        return


def test_a_type_of_the_future_is_ignored(ready):
    body = bytes.fromhex("08c801 fa0b0101")
    assert ready.receive(struct.pack(">II", 4 + len(body), len(body)) + body, 1) == []
    assert sent(ready) == []


# ---- every command in every state

TO_CONSUMER = {"MESSAGE", "CLOSE_CONSUMER", "ACTIVE_CONSUMER_CHANGE", "REACHED_END_OF_TOPIC"}
TO_PRODUCER = {"SEND_RECEIPT", "SEND_ERROR", "CLOSE_PRODUCER"}
TO_WATCHER = {"WATCH_TOPIC_UPDATE"}
TARGETS = {
    **dict.fromkeys(TO_CONSUMER, ("consumer_id", ForConsumer, 7)),
    **dict.fromkeys(TO_PRODUCER, ("producer_id", ForProducer, 8)),
    **dict.fromkeys(TO_WATCHER, ("watcher_id", ForWatcher, 9)),
}
ANSWERS = {
    *("SUCCESS", "PRODUCER_SUCCESS", "PARTITIONED_METADATA_RESPONSE", "LOOKUP_RESPONSE", "ACK_RESPONSE"),
    *("CONSUMER_STATS_RESPONSE", "WATCH_TOPIC_LIST_SUCCESS"),
    *("GET_LAST_MESSAGE_ID_RESPONSE", "GET_TOPICS_OF_NAMESPACE_RESPONSE"),
}
SPECIAL = {"CONNECTED", "ERROR", "PING"}


def fill(message, ids):
    """Set the required fields of a message, and the ids that it knows."""
    missing = message.FindInitializationErrors()
    for field in message.DESCRIPTOR.fields:
        if field.name in ids and field.type in (field.TYPE_UINT64, field.TYPE_INT64):
            setattr(message, field.name, ids[field.name])
        elif field.name in missing:
            if field.type == field.TYPE_MESSAGE:
                fill(getattr(message, field.name), ids)
                getattr(message, field.name).SetInParent()
            elif field.type == field.TYPE_STRING:
                setattr(message, field.name, "x")
            elif field.type == field.TYPE_BYTES:
                setattr(message, field.name, b"x")
            elif field.type == field.TYPE_ENUM:
                setattr(message, field.name, field.enum_type.values[-1].number)
            else:
                setattr(message, field.name, 1)


def messages_of(event):
    """Consumer, ledger, entry and section of each of the messages that an event brings."""
    if not isinstance(event, ForConsumer) or not isinstance(event.frame, Messages):
        return []
    consumer_id, data, *columns = event.frame
    return [
        (consumer_id, ledger, entry, data[at:end])
        for ledger, entry, at, end in zip(*(column.tolist() for column in columns), strict=True)
    ]


def example(name, request_id):
    number = pb.BaseCommand.Type.Value(name)
    command = pb.BaseCommand(type=number)
    body = getattr(command, pb.BaseCommand.DESCRIPTOR.fields_by_number[number].name)
    fill(body, {"consumer_id": 7, "producer_id": 8, "watcher_id": 9, "request_id": request_id})
    body.SetInParent()
    assert command.IsInitialized()
    return command


@pytest.mark.parametrize("name", sorted(pb.BaseCommand.Type.keys()))
@pytest.mark.parametrize("handshake_done", [True, False])
def test_every_command_in_every_state(name, handshake_done):
    connection = new_connection()
    if handshake_done:
        connection.receive(connected_frame(), 0)
    request_id = connection.request(lookup, 100)
    connection.outgoing.clear()
    command = example(name, request_id)

    def receive():
        return connection.receive(framed(command, b"section"), 1)

    if (name, handshake_done) in (("CONNECTED", True), ("ERROR", False)):
        with pytest.raises(ProtocolError if handshake_done else BrokerError):
            receive()
        return
    try:
        events = receive()
    except ProtocolError:
        assert not handshake_done  # nothing but CONNECTED, ERROR and PING has its place before
        assert name not in SPECIAL
        return
    assert kinds(sent(connection)) == (["PONG"] if name == "PING" else [])
    assert connection.connected == (handshake_done or name == "CONNECTED")
    if name in TARGETS:
        (event,) = events
        if name == "MESSAGE":
            assert messages_of(event) == [(7, 1, 1, b"section")]
        else:
            assert event.frame.command == command
            assert bytes(event.frame.payload_section) == b"section"
        target = TARGETS[name]
        assert (type(event), getattr(event, target[0])) == target[1:]
    elif name in ANSWERS:
        assert events == [Answer(request_id, command)]
    elif name == "ERROR":
        (event,) = events
        assert event.request_id == request_id
        assert isinstance(event.result, BrokerError)
    elif name == "CONNECTED":
        assert [type(event) for event in events] == [Connected]
    else:
        assert events == []


def test_events_come_in_the_order_of_their_frames(ready):
    request_id = ready.request(lookup, 100)
    names = ["MESSAGE", "SUCCESS", "SEND_RECEIPT", "CLOSE_CONSUMER", "MESSAGE", "SEND_ERROR"]
    stream = b"".join(framed(example(name, request_id)) for name in names)
    expected = [ForConsumer, Answer, ForProducer, ForConsumer, ForConsumer, ForProducer]
    assert [type(event) for event in ready.receive(stream, 1)] == expected


@given(
    st.lists(st.sampled_from(sorted(TARGETS.keys() | ANSWERS | {"PING"})), max_size=8),
    st.sampled_from([0, 1, 20]),
    st.data(),
)
def test_byte_by_byte_and_whole_are_the_same(names, messages_behind, data):
    names += ["MESSAGE"] * messages_behind
    stream = connected_frame() + b"".join(framed(example(name, 0), b"xy") for name in names)
    edges = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    results = []
    for cuts in ([], edges, range(len(stream))):
        connection = new_connection()
        connection.request(lookup, 100)
        connection.outgoing.clear()
        bounds = [0, *cuts, len(stream)]
        events = [
            event for a, b in itertools.pairwise(bounds) for event in connection.receive(stream[a:b], 1)
        ]
        opened = [each for event in events for each in (messages_of(event) or [event])]
        results.append((opened, kinds(sent(connection))))
    assert results[0] == results[1] == results[2]


@given(st.data())
def test_damaged_bytes_raise_errors_of_ours_only(data):
    name = data.draw(st.sampled_from(sorted(pb.BaseCommand.Type.keys())))
    stream = bytearray(framed(example(name, 0), b"xy"))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(4, len(stream) - 1))] = data.draw(st.integers(0, 255))
    connection = new_connection()
    connection.request(lookup, 100)
    if data.draw(st.booleans()):
        connection.receive(connected_frame(), 0)
    with contextlib.suppress(ProtocolError, BrokerError):
        connection.receive(bytes(stream), 1)


# ---- time, whatever happens


class Times(RuleBasedStateMachine):
    """Random requests, answers, silence; a driver that calls ``tick`` when it is wanted or later."""

    def __init__(self):
        super().__init__()
        self.now = self.heard = self.opened = 0
        self.connection = new_connection()
        self.waiting = {}
        self.done = set()
        self.dead = False
        sent(self.connection)
        self.last_ping = 0

    def settle(self, events):
        for event in events:
            assert event.request_id not in self.done
            self.done.add(event.request_id)
            deadline = self.waiting.pop(event.request_id)
            if isinstance(event.result, DeadlineError):
                assert deadline <= self.now

    def tick(self):
        lost = self.now >= self.heard + 2 * KEEP_ALIVE
        late = not self.connection.connected and self.now >= self.opened + TIMEOUT
        try:
            events = self.connection.tick(self.now)
        except ConnectError:
            assert lost or late
            self.dead = True
            return
        assert not lost
        assert not late
        self.settle(events)
        assert all(deadline > self.now for deadline in self.waiting.values())
        assert self.connection.next_deadline > self.now
        quiet_since = max(self.heard, self.last_ping)
        pings = kinds(sent(self.connection)).count("PING")
        assert pings == (1 if self.now >= quiet_since + KEEP_ALIVE else 0)
        if pings:
            self.last_ping = self.now

    @rule(late=st.integers(0, 12))
    def wait_until_wanted(self, late):
        if not self.dead:
            wanted = self.connection.next_deadline
            assert wanted <= self.heard + 2 * KEEP_ALIVE
            assert wanted <= min(self.waiting.values(), default=wanted)
            assert self.connection.connected or wanted <= self.opened + TIMEOUT
            self.now = max(self.now, wanted) + late
            self.tick()

    @rule(seconds=st.integers(0, 7))
    def wait(self, seconds):
        if not self.dead:
            self.now += seconds
            self.tick()

    @rule()
    def connect(self):
        if not self.dead and not self.connection.connected:
            assert len(self.connection.receive(connected_frame(), self.now)) == 1
            self.heard = self.now

    @rule()
    def pong(self):
        if not self.dead:
            assert self.connection.receive(PONG, self.now) == []
            self.heard = self.now

    @rule(seconds=st.integers(-1, 90))
    def request(self, seconds):
        if not self.dead:
            deadline = self.now + seconds
            request_id = self.connection.request(lookup, deadline)
            assert request_id not in self.waiting
            assert request_id not in self.done
            self.waiting[request_id] = deadline

    @rule(data=st.data())
    def answer(self, data):
        if not self.dead and (self.waiting or self.done):
            request_id = data.draw(st.sampled_from(sorted([*self.waiting, *self.done])))
            expected = 1 if request_id in self.waiting else 0
            events = self.connection.receive(success(request_id), self.now)
            self.heard = self.now
            assert len(events) == expected
            self.settle(events)

    @invariant()
    def nothing_is_settled_twice(self):
        assert not self.done & self.waiting.keys()


TestTimes = Times.TestCase
TestTimes.settings = settings(max_examples=60, stateful_step_count=40)
