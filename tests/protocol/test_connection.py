"""One connection without its socket: handshake, keep-alive, requests."""

import struct

import pytest

from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    BusyError,
    ConnectError,
    NotReadyError,
    ProtocolError,
    TopicNotFoundError,
)
from pulsar_spark.protocol import connection as connection_module
from pulsar_spark.protocol.connection import Challenged, Connected, FrameFor, Silent
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import for_each
from tests.protocol.connections import (
    DOUBT,
    KEEP_ALIVE,
    MIB,
    PING,
    PONG,
    TIMEOUT,
    Type,
    connected_frame,
    error_frame,
    framed,
    kinds,
    lookup,
    new_connection,
    sent,
    success,
)

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


# ---- keep-alive


def test_ping_is_answered_at_once(ready):
    assert ready.receive(PING, 1) == []
    assert kinds(sent(ready)) == ["PONG"]


def test_pings_are_answered_also_before_connected(fresh):
    sent(fresh)
    for _ in range(3):
        assert fresh.receive(PING, 1) == []
        assert kinds(sent(fresh)) == ["PONG"]


def test_a_peer_that_sends_pings_and_does_not_read_gets_one_pong(ready):
    for _ in range(100):
        ready.receive(PING * 1000, 1)
    assert kinds(sent(ready)) == ["PONG"]


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
        ready.outgoing.put((commands.flow(1, 1),))
        ready.tick(now)
    with pytest.raises(ConnectError):
        ready.tick(2 * KEEP_ALIVE)


# ---- requests


def test_requests_have_different_ids_and_go_out_in_order(ready):
    ids = [ready.request(lookup, 0, 100) for _ in range(3)]
    ready.outgoing.put((commands.flow(7, 1),))
    found = sent(ready)
    assert kinds(found) == ["LOOKUP"] * 3 + ["FLOW"]
    assert [command.lookupTopic.request_id for command in found[:3]] == ids
    assert len(set(ids)) == 3


def test_what_is_urgent_goes_out_before_what_waits(ready):
    ready.outgoing.put((commands.flow(7, 1),))
    ready.request(lookup, 0, 100)
    ready.receive(PING, 1)
    ready.tick(1 + KEEP_ALIVE)
    ready.log_in(commands.Login("token", b"new"))
    ready.request(lookup, 0, 100, is_urgent=True)
    assert kinds(sent(ready)) == ["PONG", "PING", "AUTH_RESPONSE", "LOOKUP", "FLOW", "LOOKUP"]


def test_a_peer_that_takes_bytes_lives_though_it_says_nothing(ready):
    for time in range(1, 200, 20):
        ready.hear(time)
        assert ready.tick(time) == []
    with pytest.raises(ConnectError):
        ready.tick(181 + 2 * KEEP_ALIVE)


def test_answers_in_any_order(ready):
    first, second = ready.request(lookup, 0, 100), ready.request(lookup, 0, 100)
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
    first, second = ready.request(lookup, 0, 100), ready.request(lookup, 0, 100)
    (event,) = ready.receive(error_frame(first, code, "why"), 1)
    assert event.request_id == first
    assert type(event.result) is kind
    assert "why" in str(event.result)
    assert len(ready.receive(success(second), 1)) == 1


def test_a_text_that_is_no_utf_8(ready):
    request_id = ready.request(lookup, 0, 100)
    frame = error_frame(request_id, pb.TopicNotFound, "xx").replace(b"xx", b"\xff\xfe")
    with pytest.raises(ProtocolError, match=r"not UTF-8|not a Pulsar command"):  # by the runtime of protobuf
        ready.receive(frame, 1)


# What a broker may say of a request, with its words in the field that has them.
WORDS = {
    "ERROR": "error",
    "LOOKUP_RESPONSE": "lookupTopicResponse",
    "PARTITIONED_METADATA_RESPONSE": "partitionMetadataResponse",
    "ACK_RESPONSE": "ackResponse",
    "SEND_ERROR": "send_error",
    "NEW_TXN_RESPONSE": "newTxnResponse",
    "END_TXN_RESPONSE": "endTxnResponse",
    "ADD_PARTITION_TO_TXN_RESPONSE": "addPartitionToTxnResponse",
    "TC_CLIENT_CONNECT_RESPONSE": "tcClientConnectResponse",
    "CONSUMER_STATS_RESPONSE": "consumerStatsResponse",
    "GET_SCHEMA_RESPONSE": "getSchemaResponse",
    "GET_OR_CREATE_SCHEMA_RESPONSE": "getOrCreateSchemaResponse",
    "SCALABLE_TOPIC_UPDATE": "scalableTopicUpdate",
}
UNASKED = ("SEND_ERROR", "SCALABLE_TOPIC_UPDATE")  # they have no request id


@for_each("name", WORDS)
@for_each("renewed", [False, True])
def test_a_login_that_the_broker_repeats_is_blanked(name, renewed):
    """It may come in an answer to what was asked before the login was renewed."""
    connection = new_connection(login=commands.Login("basic", b"me:s3cret"))
    connection.receive(connected_frame(), 0)
    if renewed:
        connection.log_in(commands.Login("basic", b"me:0ther"))
    said = "no: me:s3cret, s3cret or bWU6czNjcmV0" + (", me:0ther" if renewed else "")
    command = pb.BaseCommand(type=name)
    body = getattr(command, WORDS[name])
    has_message = "message" in body.DESCRIPTOR.fields_by_name
    words = "message" if has_message else "error_message"
    setattr(body, words, said)
    for field in body.DESCRIPTOR.fields:
        if field.name in ("sequence_id", "producer_id", "error", "consumer_id", "session_id"):
            setattr(body, field.name, 0)
    if name not in UNASKED:
        body.request_id = connection.request(lookup, 0, 100)
    (event,) = connection.receive(framed(command), 1)
    if name == "ERROR":
        shown = str(event.result)
    else:
        told = event.frame.command if name in UNASKED else event.result
        shown = getattr(getattr(told, WORDS[name]), words)
    assert "no: ***, *** or ***" in shown
    assert "0ther" not in shown


def test_each_command_with_words_is_known():
    told = {pb.BaseCommand.Type.Name(kind) for kind in connection_module._WORDS}
    assert told == set(WORDS)


def test_a_refused_login_is_blanked():
    connection = new_connection(login=commands.Login("token", b"s3cret"))
    with pytest.raises(AuthError) as caught:
        connection.receive(error_frame(0, pb.AuthenticationError, "s3cret is no token"), 1)
    assert "*** is no token" in str(caught.value)


def test_a_request_runs_out(ready):
    first, second, third = (ready.request(lookup, 0, seconds) for seconds in (3, 2, 4))
    assert ready.next_deadline == 2
    assert ready.tick(1.999) == []
    (event,) = ready.tick(2)
    assert event.request_id == second
    assert str(event.result) == (
        "[PULSAR_TIMEOUT] the broker at host:6650 did not answer LOOKUP within 2 s. Check the broker's "
        "health, or raise pulsar.client.lookupTimeoutMs"
    )
    assert ready.next_deadline == 3
    assert {event.request_id for event in ready.tick(4)} == {first, third}
    assert ready.tick(9) == []


# ---- a peer that owes an answer


def test_how_long_a_peer_may_be_silent_does_not_depend_on_the_time_left_to_connect():
    hasty = connection_module.Connection(0, keep_alive=30, timeout=0.01, patience=10)
    hasty.request(lookup, 0, 60)
    assert hasty.next_deadline == 0.01
    hasty.receive(connected_frame(), 0)
    assert hasty.next_deadline == pytest.approx(4.5)


def test_a_peer_that_answers_neither_a_request_nor_a_ping_is_silent(ready):
    ready.receive(PONG, 8)
    ready.request(lookup, 10, 60)
    sent(ready)
    assert ready.next_deadline == 10 + DOUBT
    assert ready.tick(10 + DOUBT - 0.001) == []
    assert ready.tick(10 + DOUBT) == [Silent(None)]
    assert kinds(sent(ready)) == ["PING"]
    assert ready.next_deadline == 10 + 2 * DOUBT
    (silent,) = ready.tick(10 + 2 * DOUBT)
    assert str(silent.error) == (
        "[PULSAR_CONNECT] the broker at host:6650 has sent nothing for 9.0 s, and answers no LOOKUP, PING: "
        "this client closed the connection. Check the network and the broker's health. "
        "pulsar.client.connectionTimeoutMs is the time that a silent connection is given"
    )


@pytest.mark.parametrize("heard", [PONG, PING, success(99)])
def test_a_slow_broker_that_answers_pings_is_not_silent(ready, heard):
    """As one that loads a topic, or restores its transactions after a restart."""
    ready.request(lookup, 0, 60)
    for count in range(1, 12):
        now = count * DOUBT
        assert ready.tick(now) == [Silent(None)]
        ready.receive(heard, now)


def test_one_that_has_not_been_pinged_is_not_silent(ready):
    """This client may have slept; the PONG had no time to come."""
    ready.request(lookup, 0, 60)
    assert ready.tick(40) == [Silent(None)]
    assert ready.tick(40 + DOUBT - 0.001) == []


def test_requests_one_after_the_other_are_one_silence(ready):
    for now in range(1, 8, 2):
        ready.request(lookup, now, 1)
        ready.tick(now + 1)
    ready.request(lookup, 9, 60)
    assert ready.tick(9) == [Silent(None)]
    (silent,) = ready.tick(9 + DOUBT)
    assert "nothing for 12.5 s" in str(silent.error)


def test_a_connection_that_is_only_idle_is_not_silent(ready):
    ready.request(lookup, 0, 3)
    assert len(ready.tick(3)) == 1
    assert ready.tick(25) == []
    assert kinds(sent(ready)) == ["LOOKUP"]


def test_a_probe_is_answered_as_soon_as_a_request(ready):
    ready.ping(20)
    ready.ping(22)
    assert kinds(sent(ready)) == ["PING", "PING"]
    assert ready.tick(20 + DOUBT - 0.001) == []
    (silent,) = ready.tick(20 + DOUBT)
    assert "answers no PING:" in str(silent.error)


def test_a_probe_that_is_answered_is_forgotten(ready):
    ready.ping(20)
    ready.receive(PONG, 21)
    sent(ready)
    assert ready.tick(50) == []
    assert sent(ready) == []


def test_a_probe_is_answered_by_its_own_pong_only(ready):
    """What the peer sent before it had read the probe says nothing about what was sent before the probe."""
    ready.ping(20)
    ready.ping(21)  # what was sent between the two is lost, and all after it
    ready.receive(PONG + PING, 21.5)
    assert ready.tick(21.5 + DOUBT) == [Silent(None)]
    (silent,) = ready.tick(21.5 + 2 * DOUBT)
    assert "answers no PING:" in str(silent.error)


def test_one_that_must_be_borne_is_pinged_again(ready):
    """Its caller does not end a connection with pending entries; after two keep-alive intervals it does."""
    ready.request(lookup, 0, 90)
    sent(ready)
    for count in range(1, 14):
        (silent,) = ready.tick(count * DOUBT)
        assert (silent.error is None) == (count == 1)
        assert kinds(sent(ready)) == ["PING"]
    with pytest.raises(ConnectError, match="60 s"):
        ready.tick(60)


def close_consumer(consumer_id):
    body = {"consumer_id": consumer_id, "request_id": 2**64 - 1}
    return framed(pb.BaseCommand(type=Type.CLOSE_CONSUMER, close_consumer=body))


def test_a_request_ends_with_the_consumer_that_it_asks(ready):
    """A broker may not answer GET_LAST_MESSAGE_ID or ACK for a consumer that it closes."""
    of_seven, of_eight = (ready.request(lookup, 0, 60, consumer_id=consumer_id) for consumer_id in (7, 8))
    moved = ready.request(lookup, 0, 50)  # SEEK, which is answered although it closes the consumer
    again = ready.request(lookup, 0, 60, consumer_id=7)
    told, *ended = ready.receive(close_consumer(7), 1)
    assert told.id == 7
    assert [event.request_id for event in ended] == [of_seven, again]
    assert {type(event.result) for event in ended} == {NotReadyError}
    assert ready.receive(success(of_seven) + close_consumer(7), 2) == [told], "a late answer is ignored"
    assert [event.request_id for event in ready.receive(success(moved), 3)] == [moved]
    ready.receive(PING, 50)
    assert [event.request_id for event in ready.tick(60)] == [of_eight]
    assert len(ready.receive(close_consumer(8), 61)) == 1


def test_an_answer_before_the_consumer_s_end_is_the_answer(ready):
    request_id = ready.request(lookup, 0, 60, consumer_id=7)
    answer, told = ready.receive(success(request_id) + close_consumer(7), 1)
    assert (answer.request_id, told.id) == (request_id, 7)


@pytest.mark.parametrize("answer", [success, lambda request_id: error_frame(request_id, pb.UnknownError)])
def test_a_late_answer_is_ignored(ready, answer):
    request_id = ready.request(lookup, 0, 3)
    ready.tick(3)
    assert ready.receive(answer(request_id), 4) == []
    assert ready.connected


@pytest.mark.parametrize("request_id", [0, 1, 17, 2**64 - 1])
def test_an_answer_that_nobody_waits_for_is_ignored(ready, request_id):
    assert ready.receive(success(request_id) + error_frame(request_id, pb.UnknownError), 1) == []


def test_an_answer_counts_once(ready):
    request_id = ready.request(lookup, 0, 100)
    assert len(ready.receive(success(request_id) * 2, 1)) == 1
    assert ready.tick(29) == []


def test_a_command_that_cannot_be_made_leaves_no_request_behind(ready):
    def refuse(request_id):
        raise ValueError("a number that does not fit")

    with pytest.raises(ValueError, match="fit"):
        ready.request(refuse, 0, 3)
    # An Answer here would be one that no caller has ever heard of.
    assert ready.tick(3) == []
    assert sent(ready) == []


def test_a_producer_that_waits_for_its_turn_is_answered_twice(ready):
    request_id = ready.request(lookup, 0, 100)
    success = pb.CommandProducerSuccess(request_id=request_id, producer_name="p", producer_ready=False)
    command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS, producer_success=success)
    assert ready.receive(framed(command), 1) == []
    command.producer_success.producer_ready = True
    (answer,) = ready.receive(framed(command), 2)
    assert answer.result.producer_success.producer_ready


def test_a_type_without_its_body_settles_no_request(ready):
    request_id = ready.request(lookup, 0, 100)
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
