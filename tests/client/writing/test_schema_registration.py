"""register_schema: on topics that exist, and on those that do not."""

import pytest

from pulsar_spark.client import register_schema
from pulsar_spark.errors import AuthError, NotAllowedError, ProtocolError, SchemaError
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import to_wire_schema
from tests.client.clients import TOPIC, client_of
from tests.fake_broker import FakeBroker, cut, refuses
from tests.fake_clients import Type

A = Schema(SchemaType.AVRO, b'"int"', {"made": "by"})
B = Schema(SchemaType.STRING)


def test_on_a_topic_that_exists_no_producer_is_needed(broker, client):
    broker.create(TOPIC)
    assert [register_schema(client, TOPIC, schema) for schema in (A, B, A)] == [0, 1, 0]
    assert broker.schemas.at(str(TOPIC), 0) == to_wire_schema(A)
    assert broker.seen(Type.PRODUCER) == []


def test_a_topic_that_does_not_exist_is_created(broker, client):
    assert [register_schema(client, TOPIC, schema) for schema in (A, B)] == [0, 1]
    assert str(TOPIC) in broker.topics
    assert len(broker.seen(Type.PRODUCER)) == 1
    assert broker.open_producers == []


def test_partitions_share_a_schema(broker, client):
    broker.create("parted", 3)
    name = TopicName.parse("parted")
    assert register_schema(client, name, A) == 0
    assert register_schema(client, name.of_partition(2), B) == 1
    asked = broker.seen(Type.GET_OR_CREATE_SCHEMA)
    assert [each.topic for each in asked] == [str(name.of_partition(number)) for number in (0, 2)]


@pytest.mark.parametrize("exists", [True, False])
def test_a_refusal_is_not_tried_again(broker, client, exists):
    if exists:
        broker.create(TOPIC)
    for kind in (Type.GET_OR_CREATE_SCHEMA, Type.PRODUCER):
        action = refuses(pb.IncompatibleSchema, "with strategy FULL: no")
        broker.script(kind, [action] * 9 if exists or kind == Type.PRODUCER else [])
    with pytest.raises(SchemaError, match="with strategy FULL: no") as caught:
        register_schema(client, TOPIC, A)
    assert caught.value.topic == str(TOPIC)
    assert len(broker.seen(Type.GET_OR_CREATE_SCHEMA)) == 1


def test_what_passes_is_tried_again(broker, client):
    broker.create(TOPIC)
    broker.script(Type.GET_OR_CREATE_SCHEMA, [refuses(pb.ServiceNotReady), cut])
    assert register_schema(client, TOPIC, A) == 0
    assert len(broker.seen(Type.LOOKUP)) == 3, "each try begins with a lookup"


def test_a_right_that_is_missing(broker, client):
    broker.create(TOPIC)
    broker.script(Type.GET_OR_CREATE_SCHEMA, [refuses(pb.AuthorizationError)])
    with pytest.raises(AuthError):
        register_schema(client, TOPIC, A)


def test_where_only_encrypted_messages_are_taken():
    with FakeBroker(requires_encryption=True) as broker, client_of(broker) as client:
        with pytest.raises(NotAllowedError, match="Encryption is required"):
            register_schema(client, TOPIC, A)
        assert register_schema(client, TOPIC, A, is_encrypted=True) == 0
        assert broker.open_producers == []


def test_an_answer_without_a_version(broker, client):
    broker.create(TOPIC)

    def answer(connection, frame):
        request_id = frame.command.getOrCreateSchema.request_id
        connection.send(Type.GET_OR_CREATE_SCHEMA_RESPONSE, request_id=request_id)

    broker.script(Type.GET_OR_CREATE_SCHEMA, [answer] * 3)
    with pytest.raises(ProtocolError, match="response to a schema registration has no version"):
        register_schema(client, TOPIC, A)
