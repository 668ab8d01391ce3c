"""One connection without its socket: the handshake, and what it agrees on."""

import struct

import pytest

from pulsar_spark.errors import AuthError, BrokerError, ConnectError, NotReadyError, ProtocolError
from pulsar_spark.protocol.connection import Challenged, Connected, FrameFor
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.protocol.connections import (
    KEEP_ALIVE,
    MIB,
    PING,
    TIMEOUT,
    Type,
    connected_frame,
    error_frame,
    framed,
    new_connection,
    sent,
)


def test_connect_is_the_first_to_go_out(fresh):
    (command,) = sent(fresh)
    assert command.type == Type.CONNECT
    assert command.connect.client_version
    assert not command.connect.HasField("proxy_to_broker_url")
    assert not fresh.connected


def test_the_broker_behind_a_proxy_is_named():
    (command,) = sent(new_connection(proxy_to="broker-2:6650"))
    assert command.connect.proxy_to_broker_url == "broker-2:6650"


def test_connect_says_who_this_is(fresh):
    (command,) = sent(new_connection(login=commands.Login("token", b"xyz")))
    assert (command.connect.auth_method_name, command.connect.auth_data) == ("token", b"xyz")


@pytest.mark.parametrize("handshake_done", [True, False])
def test_a_challenge_is_answered_when_the_login_is_there(fresh, handshake_done):
    if handshake_done:
        fresh.receive(connected_frame(), 1)
    sent(fresh)
    challenge = pb.BaseCommand(type=Type.AUTH_CHALLENGE, authChallenge={})
    assert fresh.receive(framed(challenge), 1) == [Challenged()]
    assert sent(fresh) == []
    fresh.log_in(commands.Login("token", b"new"))
    (answer,) = sent(fresh)
    assert answer.type == Type.AUTH_RESPONSE
    assert answer.authResponse.response == pb.AuthData(auth_method_name="token", auth_data=b"new")


def test_challenges_are_answered_once_a_second(ready):
    """A broker asks when a login has expired; each answer may read a file or ask an issuer."""
    challenge = framed(pb.BaseCommand(type=Type.AUTH_CHALLENGE, authChallenge={}))
    asked = []
    for step in range(5000):
        now = 1 + step / 1000
        assert ready.next_deadline >= now
        for _ in ready.receive(challenge, now) + ready.tick(now):
            asked.append(now)
            assert ready.receive(challenge, now) + ready.tick(now + 2) == [], "a login is asked for"
            ready.log_in(commands.Login("token", b"new"))
    assert asked == [1, 2, 3, 4, 5]
    assert ready.next_deadline == 6
    assert ready.tick(5.999) == []
    assert ready.tick(6) == [Challenged()], "the login as it is then answers all of them"
    assert ready.tick(8) == []
    ready.log_in(commands.Login("token", b"new"))
    assert ready.tick(9) == [], "nobody has asked again"
    assert len(ready._logins) == 4, "more are not kept"


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
        ({"supports_scalable_topics": True}, False),
    ],
)
def test_whether_the_broker_watches_topics(fresh, flags, watchers):
    (event,) = fresh.receive(connected_frame(feature_flags=flags), 1)
    assert event.topic_watchers == watchers
    assert event.scalable_topics == ("supports_scalable_topics" in flags)


@pytest.mark.parametrize("size", [129 * MIB, 2**31 - 1])
def test_a_broker_s_size_is_bounded(fresh, size):
    """So is what it makes this side hold."""
    assert fresh.receive(connected_frame(max_message_size=size), 1) == [Connected("Pulsar 4", 128 * MIB)]
    with pytest.raises(
        ProtocolError, match="announced a frame of 134228481 bytes; 5 to 134227968 are allowed"
    ):
        fresh.receive(struct.pack(">I", 128 * MIB + 10 * 1024 + 513), 1)


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
    """A frame with a payload section, of ``total`` bytes after its first length."""
    command = pb.BaseCommand(
        type=Type.MESSAGE, message={"consumer_id": 7, "message_id": {"ledgerId": 1, "entryId": 2}}
    )
    return framed(command, bytes(total - 4 - command.ByteSize()))


@pytest.mark.parametrize("size", [1000, 6 * MIB])
def test_the_broker_s_size_rules_the_frames_behind_connected(fresh, size):
    fresh.receive(connected_frame(max_message_size=size), 1)
    events = fresh.receive(frame_of(size + 10 * 1024), 1)
    assert isinstance(events[-1], FrameFor)
    with pytest.raises(ProtocolError):
        fresh.receive(frame_of(size + 10 * 1024 + 1)[:4], 1)


def test_only_where_a_list_of_topics_was_asked_for_a_frame_may_be_larger(ready):
    topics = [f"persistent://public/default/{number:0200}" for number in range(30_000)]

    def listed(request_id):
        answer = {"request_id": request_id, "topics": topics}
        return framed(
            pb.BaseCommand(type=Type.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)
        )

    first, late = (
        ready.request(lambda request_id: commands.topics_of_namespace(request_id, "a/b"), 0, seconds)
        for seconds in (99, 4)
    )
    assert len(ready.tick(4)) == 1, "nobody waits for the second any more"
    (answer,) = ready.receive(listed(first), 7)
    assert len(answer.result.getTopicsOfNamespaceResponse.topics) == 30_000
    assert ready.receive(listed(late), 8) == [], "a late answer does no harm"
    with pytest.raises(ProtocolError):
        ready.receive(listed(first), 9)
