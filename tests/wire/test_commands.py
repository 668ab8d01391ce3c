"""Each command that the client sends, parsed back by the protobuf classes alone."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId, TxnId
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import commands, wire_values
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.frames import encode_command
from tests.loops import for_each

UINT64 = 2**64 - 1
AVRO = Schema(SchemaType.AVRO, b'"int"', {"a": "1", "b": ""}, "named")
WIRE_AVRO = pb.Schema(name="named", schema_data=b'"int"', type=pb.Schema.Avro)
WIRE_AVRO.properties.add(key=b"a", value=b"1")
WIRE_AVRO.properties.add(key=b"b", value=b"")


def body_of(data):
    """The command in a frame that holds nothing else, and its type's name."""
    total, size = struct.unpack_from(">II", data)
    assert (total, size) == (len(data) - 4, len(data) - 8)
    command = pb.BaseCommand.FromString(data[8:])
    assert command.IsInitialized()
    (_, name), (field, body) = ((field.name, value) for field, value in command.ListFields())
    assert pb.BaseCommand.DESCRIPTOR.fields_by_name[field].number == command.type
    return pb.BaseCommand.Type.Name(name), body


def message_id(ledger, entry, **more):
    return {"ledgerId": ledger, "entryId": entry, **more}


CASES = {
    "CONNECT": (
        commands.connect("client 1"),
        pb.CommandConnect(
            client_version="client 1",
            protocol_version=21,
            feature_flags={
                "supports_auth_refresh": True,
                "supports_broker_entry_metadata": True,
                "supports_partial_producer": True,
                "supports_topic_watchers": True,
                "supports_get_partitioned_metadata_without_auto_creation": True,
                "supports_scalable_topics": True,
            },
        ),
    ),
    "AUTH_RESPONSE": (
        commands.auth_response("client 1", commands.Login("token", b"xyz")),
        pb.CommandAuthResponse(
            client_version="client 1",
            protocol_version=21,
            response={"auth_method_name": "token", "auth_data": b"xyz"},
        ),
    ),
    "PING": (commands.ping(), pb.CommandPing()),
    "PONG": (commands.pong(), pb.CommandPong()),
    "PARTITIONED_METADATA": (
        commands.partitioned_metadata(9, "t", create=False),
        pb.CommandPartitionedTopicMetadata(topic="t", request_id=9, metadata_auto_creation_enabled=False),
    ),
    "LOOKUP": (
        commands.lookup(9, "t", authoritative=True),
        pb.CommandLookupTopic(topic="t", request_id=9, authoritative=True),
    ),
    "GET_TOPICS_OF_NAMESPACE": (
        commands.topics_of_namespace(9, "a/b"),
        pb.CommandGetTopicsOfNamespace(request_id=9, namespace="a/b"),
    ),
    "WATCH_TOPIC_LIST": (
        commands.watch_topic_list(9, 5, "a/b"),
        pb.CommandWatchTopicList(request_id=9, watcher_id=5, namespace="a/b", topics_pattern=".*"),
    ),
    "WATCH_TOPIC_LIST_CLOSE": (
        commands.watch_topic_list_close(9, 5),
        pb.CommandWatchTopicListClose(request_id=9, watcher_id=5),
    ),
    "SCALABLE_TOPIC_LOOKUP": (
        commands.scalable_topic_lookup(5, "topic://a/b/c"),
        pb.CommandScalableTopicLookup(session_id=5, topic="topic://a/b/c", create_if_missing=False),
    ),
    "SCALABLE_TOPIC_CLOSE": (commands.scalable_topic_close(5), pb.CommandScalableTopicClose(session_id=5)),
    "WATCH_SCALABLE_TOPICS": (
        commands.watch_scalable_topics(5, "a/b"),
        pb.CommandWatchScalableTopics(watch_id=5, namespace="a/b"),
    ),
    "WATCH_SCALABLE_TOPICS_CLOSE": (
        commands.watch_scalable_topics_close(5),
        pb.CommandWatchScalableTopicsClose(watch_id=5),
    ),
    "CONSUMER_STATS": (commands.consumer_stats(9, 7), pb.CommandConsumerStats(request_id=9, consumer_id=7)),
    "GET_SCHEMA": (
        commands.get_schema(9, "t", 258),
        pb.CommandGetSchema(request_id=9, topic="t", schema_version=b"\0\0\0\0\0\0\1\2"),
    ),
    "GET_OR_CREATE_SCHEMA": (
        commands.get_or_create_schema(9, "t", AVRO),
        pb.CommandGetOrCreateSchema(request_id=9, topic="t", schema=WIRE_AVRO),
    ),
    "FLOW": (commands.flow(7, 1000), pb.CommandFlow(consumer_id=7, messagePermits=1000)),
    "ACK": (
        commands.ack(9, 7, MessageId(4, -1)),
        pb.CommandAck(
            consumer_id=7, ack_type=pb.CommandAck.Cumulative, message_id=[message_id(4, UINT64)], request_id=9
        ),
    ),
    "GET_LAST_MESSAGE_ID": (
        commands.get_last_message_id(9, 7),
        pb.CommandGetLastMessageId(request_id=9, consumer_id=7),
    ),
    "SEEK": (
        commands.seek(9, 7, MessageId(1, 2)),
        pb.CommandSeek(request_id=9, consumer_id=7, message_id=message_id(1, 2)),
    ),
    "UNSUBSCRIBE": (commands.unsubscribe(9, 7), pb.CommandUnsubscribe(request_id=9, consumer_id=7)),
    "CLOSE_CONSUMER": (commands.close_consumer(9, 7), pb.CommandCloseConsumer(request_id=9, consumer_id=7)),
    "TC_CLIENT_CONNECT_REQUEST": (
        commands.tc_client_connect(9, 3),
        pb.CommandTcClientConnectRequest(request_id=9, tc_id=3),
    ),
    "NEW_TXN": (commands.new_txn(9, 3, 1500), pb.CommandNewTxn(request_id=9, tc_id=3, txn_ttl_millis=1500)),
    "ADD_PARTITION_TO_TXN": (
        commands.add_partition_to_txn(9, TxnId(3, 5), ["a", "b"]),
        pb.CommandAddPartitionToTxn(
            request_id=9, txnid_most_bits=3, txnid_least_bits=5, partitions=["a", "b"]
        ),
    ),
    "END_TXN": (
        commands.end_txn(9, TxnId(3, 5), commit=True),
        pb.CommandEndTxn(request_id=9, txnid_most_bits=3, txnid_least_bits=5, txn_action=pb.COMMIT),
    ),
    "CLOSE_PRODUCER": (commands.close_producer(9, 7), pb.CommandCloseProducer(request_id=9, producer_id=7)),
}


def test_a_broker_may_be_told_which_topics_are_meant():
    listed = commands.topics_of_namespace(9, "a/b", "a/b/t.*")
    expected = pb.CommandGetTopicsOfNamespace(request_id=9, namespace="a/b", topics_pattern="a/b/t.*")
    assert body_of(listed) == ("GET_TOPICS_OF_NAMESPACE", expected)
    watched = commands.watch_topic_list(9, 5, "a/b", "a/b/t.*")
    more = pb.CommandWatchTopicList(request_id=9, watcher_id=5, namespace="a/b", topics_pattern="a/b/t.*")
    assert body_of(watched) == ("WATCH_TOPIC_LIST", more)


@for_each("name", CASES)
def test_commands(name):
    data, expected = CASES[name]
    assert body_of(data) == (name, expected)


def test_connect_through_a_proxy():
    _, body = body_of(commands.connect("v", "broker-2:6650"))
    assert body.proxy_to_broker_url == "broker-2:6650"
    _, direct = body_of(commands.connect("v"))
    assert not direct.HasField("proxy_to_broker_url")


def test_connect_with_a_login():
    _, body = body_of(commands.connect("v", login=commands.Login("token", b"xyz")))
    assert (body.auth_method_name, body.auth_data) == ("token", b"xyz")
    _, nobody = body_of(commands.connect("v"))
    assert not nobody.HasField("auth_method_name")
    assert not nobody.HasField("auth_data")


def test_a_login_hides_its_data():
    assert "xyz" not in repr(commands.Login("token", b"xyz"))


def test_acks_are_of_whole_entries():
    _, body = body_of(commands.ack(0, 7, MessageId(1, 2, 3)))
    assert not body.message_id[0].HasField("batch_index")
    assert body.HasField("request_id")


@pytest.mark.parametrize("create", [True, False])
def test_the_wish_to_create_is_always_said(create):
    _, body = body_of(commands.partitioned_metadata(9, "t", create=create))
    assert body.HasField("metadata_auto_creation_enabled")
    assert body.metadata_auto_creation_enabled == create


@pytest.mark.parametrize(
    ("initial", "position"), [(InitialPosition.LATEST, 0), (InitialPosition.EARLIEST, 1)]
)
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("create", [True, False])
def test_subscribe(initial, position, durable, create):
    data = commands.subscribe(9, 7, "t", "s", durable=durable, initial=initial, start=None, create=create)
    name, body = body_of(data)
    assert name == "SUBSCRIBE"
    assert body == pb.CommandSubscribe(
        topic="t",
        subscription="s",
        request_id=9,
        consumer_id=7,
        subType=pb.CommandSubscribe.Exclusive,
        initialPosition=position,
        durable=durable,
        force_topic_creation=create,
        schema={"name": "", "schema_data": b"", "type": pb.Schema.AutoConsume},
    )
    assert body.HasField("durable")
    assert body.HasField("force_topic_creation")  # its default would create the topic


@pytest.mark.parametrize(
    ("start", "ledger", "entry"), [(MessageId(-1, -1), UINT64, UINT64), (MessageId(3, 4), 3, 4)]
)
def test_subscribe_from_an_id(start, ledger, entry):
    data = commands.subscribe(
        9, 7, "t", "s", durable=False, initial=InitialPosition.LATEST, start=start, create=False
    )
    _, body = body_of(data)
    assert body.start_message_id == pb.MessageIdData(ledgerId=ledger, entryId=entry)


def test_subscribe_to_what_compaction_left():
    options: dict[str, Any] = {
        "durable": False,
        "initial": InitialPosition.LATEST,
        "start": None,
        "create": False,
    }
    _, body = body_of(commands.subscribe(9, 7, "t", "s", read_compacted=True, **options))
    assert body.read_compacted
    _, usual = body_of(commands.subscribe(9, 7, "t", "s", **options))
    assert not usual.HasField("read_compacted")


def test_subscribe_with_a_name_properties_and_replication():
    options: dict[str, Any] = {
        "durable": True,
        "initial": InitialPosition.LATEST,
        "start": None,
        "create": False,
    }
    properties = (("team", "sales"), ("é", ""))
    made = commands.subscribe(
        9, 7, "t", "s", consumer_name="etl", properties=properties, is_replicated=False, **options
    )
    _, body = body_of(made)
    assert body.consumer_name == "etl"
    assert [(each.key, each.value) for each in body.subscription_properties] == [
        (b"team", b"sales"),
        ("é".encode(), b""),
    ]
    assert body.HasField("replicate_subscription_state")
    assert not body.replicate_subscription_state
    _, usual = body_of(commands.subscribe(9, 7, "t", "s", **options))
    assert not usual.HasField("consumer_name")
    assert not usual.HasField("replicate_subscription_state")
    assert not usual.subscription_properties


def test_a_look_up_for_a_listener():
    made = commands.lookup(9, "t", authoritative=False, listener="external")
    expected = pb.CommandLookupTopic(
        topic="t", request_id=9, authoritative=False, advertised_listener_name="external"
    )
    assert body_of(made) == ("LOOKUP", expected)


def test_seek_to_a_time():
    name, body = body_of(commands.seek(9, 7, 1_700_000_000_123))
    assert name == "SEEK"
    assert body == pb.CommandSeek(request_id=9, consumer_id=7, message_publish_time=1_700_000_000_123)
    _, first = body_of(commands.seek(9, 7, 0))
    assert first.HasField("message_publish_time")


def test_seek_to_the_earliest():
    _, body = body_of(commands.seek(9, 7, MessageId(-1, -1)))
    assert (body.message_id.ledgerId, body.message_id.entryId) == (UINT64, UINT64)
    assert not body.HasField("message_publish_time")


def test_producer_with_a_name():
    name, body = body_of(commands.producer(9, 7, "t", "mine", 3))
    assert name == "PRODUCER"
    assert body == pb.CommandProducer(
        topic="t",
        producer_id=7,
        request_id=9,
        producer_name="mine",
        epoch=3,
        user_provided_producer_name=True,
    )


def test_producer_that_wants_the_topic_for_itself():
    own = commands.producer(
        9,
        7,
        "t",
        "mine",
        3,
        access_mode=pb.WaitForExclusive,
        topic_epoch=0,
        properties=[("a", "b"), ("c", "")],
    )
    _, body = body_of(own)
    assert body.producer_access_mode == pb.WaitForExclusive
    assert body.HasField("topic_epoch")
    assert [(pair.key, pair.value) for pair in body.metadata] == [(b"a", b"b"), (b"c", b"")]


def test_producer_that_encrypts():
    _, body = body_of(commands.producer(1, 2, "t", None, 0, encrypted=True))
    assert body.encrypted
    _, usual = body_of(commands.producer(1, 2, "t", None, 0))
    assert not usual.HasField("encrypted")


def test_producer_without_a_name():
    _, body = body_of(commands.producer(9, 7, "t", None, 0))
    assert not body.HasField("producer_name")
    assert not body.user_provided_producer_name
    assert body.producer_access_mode == pb.Shared


def test_producer_with_a_schema():
    _, body = body_of(commands.producer(1, 2, "t", None, 0, schema=AVRO))
    assert body.schema == WIRE_AVRO
    _, usual = body_of(commands.producer(1, 2, "t", None, 0))
    assert not usual.HasField("schema")  # type None would be refused where the topic has a schema


def test_the_latest_schema_is_asked_for_without_a_version():
    _, body = body_of(commands.get_schema(9, "t"))
    assert not body.HasField("schema_version")  # an empty one would be refused
    _, first = body_of(commands.get_schema(9, "t", 0))
    assert first.schema_version == bytes(8)


@pytest.mark.parametrize(("messages", "highest"), [(1, None), (2, 11), (1000, 1009)])
def test_send(messages, highest):
    command = commands.send(7, (10, 10 + messages - 1), messages)
    expected = pb.CommandSend(producer_id=7, sequence_id=10)
    if highest is not None:
        expected.num_messages = messages
        expected.highest_sequence_id = highest
    assert command == pb.BaseCommand(type=pb.BaseCommand.SEND, send=expected)


def test_send_in_a_transaction():
    command = commands.send(7, (10, 10), 1, TxnId(3, 5)).send
    assert (command.txnid_most_bits, command.txnid_least_bits) == (3, 5)
    assert not commands.send(7, (10, 10), 1).send.HasField("txnid_least_bits")


def test_abort():
    _, body = body_of(commands.end_txn(9, TxnId(0, 0), commit=False))
    assert body.HasField("txn_action")
    assert body.txn_action == pb.ABORT


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**64 - 2**32),
    st.integers(1, 2**31 - 1) | st.just(1),
    st.integers(0, 2**31),
)
def test_the_head_of_an_entry_is_the_same_without_protobuf(producer_id, sequence_id, messages, size):
    ids = sequence_id, sequence_id + messages - 1
    command = commands.send(producer_id, ids, messages)
    assert commands.send_head(producer_id, ids, messages, size) == encode_command(command, size)


signed = st.integers(-1, 3) | st.integers(-(2**63), 2**63 - 1)
indexes = st.integers(-1, 2**31 - 1)


@given(signed, signed, indexes)
def test_ids_travel_in_two_s_complement(ledger, entry, batch_index):
    data = wire_values.to_wire_id(MessageId(ledger, entry, batch_index))
    again = pb.MessageIdData.FromString(data.SerializeToString())
    assert again.ledgerId == int.from_bytes(ledger.to_bytes(8, "big", signed=True), "big")
    assert again.entryId == int.from_bytes(entry.to_bytes(8, "big", signed=True), "big")
    assert again.HasField("batch_index") == (batch_index >= 0)
    assert wire_values.from_wire_id(again) == MessageId(ledger, entry, batch_index)


@pytest.mark.parametrize(("wire", "value"), [(UINT64, -1), (2**63, -(2**63)), (2**63 - 1, 2**63 - 1), (0, 0)])
def test_golden_two_s_complement(wire, value):
    assert wire_values.from_wire_id(pb.MessageIdData(ledgerId=wire, entryId=wire)) == MessageId(value, value)
    assert wire_values.to_wire_id(MessageId(value, value)).ledgerId == wire


@pytest.mark.parametrize(("wire", "value"), [(0, 0), (5, 5), (2**63 - 1, 2**63 - 1), (UINT64, 0), (2**63, 0)])
def test_a_count_is_never_negative(wire, value):
    assert wire_values.from_wire_count(wire) == value


def test_minus_one_on_the_wire():
    wire = "08" + "ff" * 9 + "01" + "10" + "ff" * 9 + "01"
    assert wire_values.to_wire_id(MessageId(-1, -1)).SerializeToString().hex() == wire
    assert wire_values.from_wire_id(pb.MessageIdData.FromString(bytes.fromhex(wire))) == MessageId(-1, -1)


@given(st.integers(0, UINT64), st.integers(0, UINT64))
def test_ids_of_requests_and_consumers_use_all_64_bits(request_id, consumer_id):
    _, body = body_of(commands.get_last_message_id(request_id, consumer_id))
    assert (body.request_id, body.consumer_id) == (request_id, consumer_id)


def test_a_lookup_of_segments_may_create_the_topic():
    _, command = body_of(commands.scalable_topic_lookup(5, "topic://a/b/c", create=True))
    assert command.create_if_missing
