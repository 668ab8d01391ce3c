"""One connection without its socket: every command in every state, and time, whatever happens."""

import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pulsar_spark.errors import BrokerError, ConnectError, DeadlineError, ProtocolError
from pulsar_spark.protocol.connection import Answer, Challenged, Connected, FrameFor, Role, Silent
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frame_runs import Messages, Receipts
from tests.loops import for_each
from tests.protocol.connections import (
    DOUBT,
    KEEP_ALIVE,
    PONG,
    TIMEOUT,
    connected_frame,
    framed,
    kinds,
    lookup,
    new_connection,
    sent,
    success,
)

# ---- every command in every state

TO_CONSUMER = {"MESSAGE", "CLOSE_CONSUMER", "ACTIVE_CONSUMER_CHANGE", "REACHED_END_OF_TOPIC"}
TO_PRODUCER = {"SEND_RECEIPT", "SEND_ERROR", "CLOSE_PRODUCER"}
TO_WATCHER = {"WATCH_TOPIC_UPDATE"}
TARGETS = {
    **dict.fromkeys(TO_CONSUMER, (Role.CONSUMER, 7)),
    **dict.fromkeys(TO_PRODUCER, (Role.PRODUCER, 8)),
    **dict.fromkeys(TO_WATCHER, (Role.WATCHER, 9)),
    "SCALABLE_TOPIC_UPDATE": (Role.WATCHER, 11),
    "WATCH_SCALABLE_TOPICS_UPDATE": (Role.WATCHER, 12),
    "TOPIC_MIGRATED": (Role.CONSUMER, 10),
}
ANSWERS = {
    *("SUCCESS", "PRODUCER_SUCCESS", "PARTITIONED_METADATA_RESPONSE", "LOOKUP_RESPONSE", "ACK_RESPONSE"),
    *("CONSUMER_STATS_RESPONSE", "WATCH_TOPIC_LIST_SUCCESS", "GET_SCHEMA_RESPONSE"),
    "GET_OR_CREATE_SCHEMA_RESPONSE",
    *("GET_LAST_MESSAGE_ID_RESPONSE", "GET_TOPICS_OF_NAMESPACE_RESPONSE", "TC_CLIENT_CONNECT_RESPONSE"),
    *("NEW_TXN_RESPONSE", "ADD_PARTITION_TO_TXN_RESPONSE", "END_TXN_RESPONSE"),
}
SPECIAL = {"CONNECTED", "ERROR", "PING", "AUTH_CHALLENGE"}


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
    if not isinstance(event, FrameFor) or not isinstance(event.frame, Messages):
        return []
    consumer_id, data, *columns = event.frame
    return [
        (consumer_id, ledger, entry, data[at:end])
        for ledger, entry, at, end in zip(*(column.tolist() for column in columns), strict=True)
    ]


def example(name, request_id):
    number = pb.BaseCommand.Type.Value(name)
    command = pb.BaseCommand(type=name)
    body = getattr(command, pb.BaseCommand.DESCRIPTOR.fields_by_number[number].name)
    fill(
        body,
        {
            "consumer_id": 7,
            "producer_id": 8,
            "watcher_id": 9,
            "resource_id": 10,
            "session_id": 11,
            "watch_id": 12,
            "request_id": request_id,
        },
    )
    body.SetInParent()
    assert command.IsInitialized()
    return command


@for_each("name", sorted(pb.BaseCommand.Type.keys()))
@for_each("handshake_done", [True, False])
def test_every_command_in_every_state(name, handshake_done):
    connection = new_connection()
    if handshake_done:
        connection.receive(connected_frame(), 0)
    request_id = connection.request(lookup, 0, 100)
    sent(connection)
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
        elif name == "SEND_RECEIPT":
            assert event.frame == Receipts(8, [1], [0], [0])
        else:
            assert event.frame.command == command
            assert bytes(event.frame.payload_section) == b"section"
        assert (event.role, event.id) == TARGETS[name]
    elif name in ANSWERS:
        assert events == [Answer(request_id, command)]
    elif name == "ERROR":
        (event,) = events
        assert event.request_id == request_id
        assert isinstance(event.result, BrokerError)
    elif name == "AUTH_CHALLENGE":
        assert events == [Challenged()]
    elif name == "CONNECTED":
        assert [type(event) for event in events] == [Connected]
    else:
        assert events == []


def test_a_producer_whose_topic_was_migrated_is_not_taken_for_a_consumer(ready):
    command = example("TOPIC_MIGRATED", 0)
    command.topicMigrated.resource_type = pb.CommandTopicMigrated.Producer
    assert ready.receive(framed(command), 0) == []


def test_events_come_in_the_order_of_their_frames(ready):
    request_id = ready.request(lookup, 0, 100)
    names = ["MESSAGE", "SUCCESS", "SEND_RECEIPT", "CLOSE_CONSUMER", "MESSAGE", "SEND_ERROR"]
    stream = b"".join(framed(example(name, request_id)) for name in names)
    expected = [Role.CONSUMER, None, Role.PRODUCER, Role.CONSUMER, Role.CONSUMER, Role.PRODUCER]
    assert [getattr(event, "role", None) for event in ready.receive(stream, 1)] == expected


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
        connection.request(lookup, 0, 100)
        sent(connection)
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
    connection.request(lookup, 0, 100)
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
        self.probed = False
        self.pongs_due = 0
        sent(self.connection)
        self.forget()

    def forget(self):
        """Whatever is heard is a sign of life."""
        self.heard = self.now
        self.asked = self.pinged = self.now

    def ask(self):
        if self.asked <= self.heard:
            self.asked = self.now

    def settle(self, events):
        for event in events:
            if isinstance(event, Silent):
                continue
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
        owes = bool(self.waiting) or self.probed
        quiet_since = max(self.asked if owes else self.heard, self.pinged)
        pings = kinds(sent(self.connection)).count("PING")
        assert pings == (1 if self.now >= quiet_since + (DOUBT if owes else KEEP_ALIVE) else 0)
        silent = [event for event in events if isinstance(event, Silent)]
        assert len(silent) == (pings if owes else 0)
        for event in silent:
            assert (event.error is not None) == (self.pinged > self.heard)
        if pings:
            self.ask()
            self.pinged = self.now
            self.pongs_due += 1

    @rule(late=st.integers(0, 12))
    def wait_until_wanted(self, late):
        if not self.dead:
            wanted = self.connection.next_deadline
            assert wanted <= self.heard + 2 * KEEP_ALIVE
            assert wanted <= min(self.waiting.values(), default=wanted)
            assert self.connection.connected or wanted <= self.opened + TIMEOUT
            if self.waiting:
                assert wanted <= max(self.asked, self.pinged) + DOUBT
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
            self.forget()

    @rule()
    def pong(self):
        if not self.dead:
            assert self.connection.receive(PONG, self.now) == []
            self.pongs_due = max(0, self.pongs_due - 1)
            self.probed = self.probed and self.pongs_due > 0
            self.forget()

    @rule()
    def probe(self):
        if not self.dead:
            self.connection.ping(self.now)
            self.probed = True
            self.pongs_due += 1
            assert kinds(sent(self.connection)).count("PING") == 1
            if self.pinged <= self.heard:
                self.ask()
                self.pinged = self.now

    @rule(seconds=st.integers(-1, 90))
    def request(self, seconds):
        if not self.dead:
            deadline = self.now + seconds
            request_id = self.connection.request(lookup, self.now, seconds)
            self.ask()
            assert request_id not in self.waiting
            assert request_id not in self.done
            self.waiting[request_id] = deadline

    @rule(data=st.data())
    def answer(self, data):
        if not self.dead and (self.waiting or self.done):
            request_id = data.draw(st.sampled_from(sorted([*self.waiting, *self.done])))
            expected = 1 if request_id in self.waiting else 0
            events = self.connection.receive(success(request_id), self.now)
            self.forget()
            assert len(events) == expected
            self.settle(events)

    @invariant()
    def nothing_is_settled_twice(self):
        assert not self.done & self.waiting.keys()


TestTimes = Times.TestCase
TestTimes.settings = settings(max_examples=60, stateful_step_count=40)
