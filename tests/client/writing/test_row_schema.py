"""schema_of_rows: what is asked, registered, and chosen anew."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest

from pulsar_spark.client import PartKind, PartType, RowType, VersionedSchema, row_encoder, schema_of_rows
from pulsar_spark.client.client import Client
from pulsar_spark.errors import SchemaError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import from_wire_schema, to_wire_schema
from tests.client.clients import TOPIC, client_of
from tests.fake_broker import FakeBroker, refuses
from tests.fake_clients import Type


def rows(**columns: pa.DataType) -> RowType:
    return RowType(PartType(PartKind.AVRO, pa.struct(list(columns.items()))))


A, AB = rows(a=pa.int32()), rows(a=pa.int32(), b=pa.string())


def schema(*names: str) -> Schema:
    fields = [{"name": name, "type": ["null", "int"], "default": None} for name in names]
    definition = {"type": "record", "name": "Theirs", "fields": fields}
    return Schema(SchemaType.AVRO, json.dumps(definition).encode())


def chosen(client: Client, of: RowType, **more: bool) -> VersionedSchema:
    latest = client.schemas.latest(TOPIC)
    return schema_of_rows(client, TOPIC, of, latest, **{"may_register": True, **more})


def names(versioned: VersionedSchema) -> list[str]:
    return [field["name"] for field in json.loads(versioned.schema.data)["fields"]]


@pytest.mark.parametrize("exists", [True, False])
def test_a_topic_without_a_schema_gets_one(broker, client, caplog, exists):
    if exists:
        broker.create(TOPIC)
    with caplog.at_level(logging.INFO, "pulsar_spark.client.writing.row_schema"):
        first = chosen(client, A)
        assert caplog.messages == [f"{TOPIC}: rows are written with version 0 of its schema"]
        assert (first.version, names(first)) == (0, ["a"])
        assert from_wire_schema(broker.schemas.at(str(TOPIC), 0)) == first.schema
        assert chosen(client, A) == first
    assert len(caplog.messages) == 1
    assert len(broker.seen(Type.GET_OR_CREATE_SCHEMA)) == 1
    second = chosen(client, AB)
    assert (second.version, names(second)) == (1, ["a", "b"])
    assert chosen(client, A) == second


def test_nothing_is_registered_that_may_not_be(broker, client):
    broker.create(TOPIC)
    with pytest.raises(SchemaError, match=f"has no schema, but schemaRegistration .*; topic {TOPIC}"):
        chosen(client, A, may_register=False)
    broker.schemas.register(str(TOPIC), to_wire_schema(schema("a")))
    with pytest.raises(SchemaError, match=f"'b' has no field .*; topic {TOPIC}"):
        chosen(client, AB, may_register=False)
    assert chosen(client, A, may_register=False) == (0, schema("a"))
    assert broker.seen(Type.GET_OR_CREATE_SCHEMA) == []


def registers(broker: FakeBroker, *names: str):
    """Refuse a schema because somebody else has just registered another."""

    def action(connection, frame):
        broker.schemas.register(str(TOPIC), to_wire_schema(schema(*names)))
        refuses(pb.IncompatibleSchema, "with strategy FULL: no")(connection, frame)

    return action


def test_what_others_register_at_the_same_time_is_no_error(broker, client):
    broker.create(TOPIC)
    broker.script(Type.GET_OR_CREATE_SCHEMA, [registers(broker, "c"), registers(broker, "c", "a")])
    assert chosen(client, A) == (1, schema("c", "a"))


def test_a_refusal_is_an_error_with_the_brokers_words(broker, client):
    broker.create(TOPIC)
    broker.script(Type.GET_OR_CREATE_SCHEMA, [refuses(pb.IncompatibleSchema, "with strategy FULL: no")] * 9)
    with pytest.raises(SchemaError, match=f"with strategy FULL: no .*; topic {TOPIC}"):
        chosen(client, A)
    assert len(broker.seen(Type.GET_OR_CREATE_SCHEMA)) == 1


def test_it_is_not_chosen_anew_for_ever(broker, client):
    broker.create(TOPIC)
    others = [registers(broker, f"c{number}") for number in range(20)]
    broker.script(Type.GET_OR_CREATE_SCHEMA, others)
    with pytest.raises(SchemaError, match="with strategy FULL: no"):
        chosen(client, A)
    assert len(broker.seen(Type.GET_OR_CREATE_SCHEMA)) == 5


def test_where_only_encrypted_messages_are_taken():
    with FakeBroker(requires_encryption=True) as broker, client_of(broker) as client:
        assert chosen(client, A, is_encrypted=True).version == 0


def test_the_encoder_of_rows():
    encoder = row_encoder(schema("b", "a"), A)
    assert encoder(pa.array([{"a": 1}], A.arrow)).values.to_pylist() == [b"\x00\x02\x02"]
    with pytest.raises(SchemaError, match="'a' has no field"):
        row_encoder(schema("b"), A)
