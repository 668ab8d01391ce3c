"""One connection without its socket: requests and their answers."""

import struct

import pytest

from pulsar_spark.errors import AuthError, BusyError, NotReadyError, ProtocolError, TopicNotFoundError
from pulsar_spark.protocol import connection as connection_module
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import for_each
from tests.protocol.connections import (
    KEEP_ALIVE,
    PING,
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
    "WATCH_SCALABLE_TOPICS_UPDATE": "watchScalableTopicsUpdate",
}
UNASKED = ("SEND_ERROR", "SCALABLE_TOPIC_UPDATE", "WATCH_SCALABLE_TOPICS_UPDATE")  # they have no request id


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
        if field.name in ("sequence_id", "producer_id", "error", "consumer_id", "session_id", "watch_id"):
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
    told = {pb.BaseCommand.Type.Name(kind) for kind in connection_module._TEXT_FIELDS}
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
