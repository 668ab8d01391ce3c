"""By which schemas a task's rows are written, and who chooses them."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from pulsar_spark.client import PartKind, PartType, RowType, Schema, VersionedSchema
from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.schema_choice import choose_schema
from pulsar_spark.schema import SchemaType
from pulsar_spark.spark.options.parse import parse_sink
from pulsar_spark.spark.options.sink import SinkOptions
from pulsar_spark.spark.rows.schema import ValueFormat
from pulsar_spark.spark.rows.write import MessageShape, message_shape
from pulsar_spark.spark.rows.write_values import SinkValues
from pulsar_spark.spark.sink import topic_encoders
from pulsar_spark.spark.sink.topic_encoders import TopicEncoders, pinned_schemas, with_schemas
from pulsar_spark.values.key_value import KeyValueParts
from pulsar_spark.values.key_value import schema_of as key_value_schema
from tests.fake_broker import HANG
from tests.spark.options.parsing import sink as options_of

T, U = TopicName.parse("t"), TopicName.parse("u")
INT, LONG, TEXT = (
    VersionedSchema(version, Schema(kind))
    for version, kind in enumerate((SchemaType.INT32, SchemaType.INT64, SchemaType.STRING))
)
ONE = pa.array([1], pa.int32())
AS_INT, AS_LONG = [b"\0\0\0\1"], [b"\0\0\0\0\0\0\0\1"]
NUMBERS = RowType(PartType(PartKind.PRIMITIVE, pa.int32()))
ROWS = StructType().add("n", IntegerType())


def test_each_topic_is_chosen_for_once():
    asked: list[TopicName] = []

    def choose(topic: TopicName) -> VersionedSchema:
        asked.append(topic)
        return LONG

    encoders = TopicEncoders(NUMBERS, {T: INT}, choose)
    for _ in range(2):
        assert encoders.of(T)(ONE).values.to_pylist() == AS_INT
        assert encoders.of(U)(ONE).values.to_pylist() == AS_LONG
    assert encoders.of(T) is encoders.of(T)
    assert (encoders.schema(T), encoders.schema(U)) == (INT, LONG)
    assert asked == [U]


def test_the_schemas_of_many_topics_are_chosen_side_by_side():
    both = threading.Barrier(2, timeout=HANG)

    def choose(topic: TopicName) -> VersionedSchema:
        both.wait()
        return LONG

    encoders = TopicEncoders(NUMBERS, {}, choose)
    for _ in range(2):
        encoders.prepare([T, U])
    assert (encoders.schema(T), encoders.schema(U)) == (LONG, LONG)
    assert encoders.of(U)(ONE).values.to_pylist() == AS_LONG


def test_the_writers_of_a_replay_are_opened_together():
    here = Replay({})
    here.encoders.prepare([T, U])
    assert here.calls == [("open", T), ("open", U)]
    here.encode(T)
    here.encoders.prepare([T, U])
    assert here.calls[2:] == [("open", T), ("open", U)]


def test_rows_that_do_not_fit_are_an_error_of_their_topic():
    with pytest.raises(SchemaError):
        TopicEncoders(NUMBERS, {T: TEXT}, lambda topic: TEXT).of(T)


class Replay:
    """The client, the writers and the deduplication of a task that is run again.

    Attributes:
        stored: versions that rows of an earlier run are stored by.
        versions: that the topic has.
        calls: which writers are opened and closed.
    """

    def __init__(self, stored: dict[TopicName, int], *versions: VersionedSchema) -> None:
        self.stored = stored
        self.versions = dict(versions)
        self.calls: list[tuple[str, TopicName]] = []
        self.schemas = self
        self.encoders = TopicEncoders(NUMBERS, {T: LONG, U: LONG}, lambda topic: LONG)
        fake: Any = self
        self.encoders.follow(fake, fake, fake)

    def at(self, topic: TopicName, version: int, *, load: str) -> Schema | None:
        assert load, "what other tasks have asked for may be of a topic that was deleted since"
        return self.versions.get(version)

    def of(self, topic: TopicName) -> None:
        self.calls.append(("open", topic))

    def open(self, topics: list[TopicName]) -> None:
        for topic in topics:
            self.of(topic)

    def close(self, topic: TopicName) -> None:
        self.calls.append(("close", topic))

    def stored_version(self, topic: TopicName) -> int | None:
        assert ("open", topic) in self.calls, "before it is opened nothing is known"
        return self.stored.get(topic)

    def encode(self, topic: TopicName) -> list[bytes]:
        payloads: list[bytes] = self.encoders.of(topic)(ONE).values.to_pylist()
        return payloads


def test_a_replay_goes_back_to_the_version_of_what_is_stored():
    here = Replay({T: INT.version}, INT)
    for _ in range(2):
        assert here.encode(T) == AS_INT
        assert here.encode(U) == AS_LONG
    assert (here.encoders.schema(T), here.encoders.schema(U)) == (INT, LONG)
    assert here.calls == [("open", T), ("close", T), ("open", U)]


@pytest.mark.parametrize("stored", [{}, {T: LONG.version}, {T: TEXT.version}, {T: 9}])
def test_what_cannot_be_gone_back_to_is_left(stored, caplog):
    """Nothing is stored; it is by this version; by one that rows do not fit; by one that is gone."""
    here = Replay(stored, LONG, TEXT)
    assert here.encode(T) == AS_LONG
    assert here.encoders.schema(T) == LONG
    assert here.calls == [("open", T)]
    assert len(caplog.messages) == (stored == {T: TEXT.version})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is asked of the client, whose name is the service URL."""
    asked: list[tuple[Any, ...]] = []

    def schema_of_rows(
        client: object, topic: TopicName, rows: RowType, latest: VersionedSchema | None, **more: bool
    ) -> VersionedSchema:
        asked.append((client, topic, rows, latest, more))
        return INT

    monkeypatch.setattr(topic_encoders, "shared_client", lambda options: options.service_url)
    monkeypatch.setattr(topic_encoders, "schema_of_rows", schema_of_rows)
    return asked


def sink(schema: StructType, **given: str) -> tuple[SinkOptions, MessageShape]:
    options = parse_sink({"service.url": "pulsar://localhost:6650", **given})
    return options, message_shape(schema, options.topic, values=options.values)


def test_the_driver_chooses_for_the_topic_of_the_option(asked):
    options, shape = sink(ROWS, topic="t", valueFormat="columns", schemaType="primitive")
    assert pinned_schemas(options, shape, LONG) == {T: INT}
    expected = {"may_register": True, "is_encrypted": False}
    assert asked == [("pulsar://localhost:6650", T, NUMBERS, LONG, expected)]
    keys = {"pulsar.producer.encryptionKeys": "a", "pulsar.producer.cryptoKeyReader": "/keys"}
    given = {
        "topic": "t",
        "valueFormat": "columns",
        "schemaType": "primitive",
        "schemaRegistration": "existing",
    }
    pinned_schemas(*sink(ROWS, **given, **keys), None)
    assert asked[-1][-1] == {"may_register": False, "is_encrypted": True}


def test_bytes_are_no_schema_of_a_topic():
    options, _ = sink(ROWS, topic="t", valueFormat="columns", schemaType="primitive")
    values = replace(options.values, value_schema=Schema(SchemaType.NONE))
    with pytest.raises(OptionError, match="column a is written as binary, for which"):
        message_shape(StructType().add("a", StringType()), T, values=values)


def test_nobody_is_asked_where_there_is_no_topic_or_no_schema(asked):
    named = StructType().add("n", IntegerType()).add("__topic", StringType())
    assert pinned_schemas(*sink(named, valueFormat="columns"), None) == {}
    raw = StructType().add("value", StringType())
    assert pinned_schemas(*sink(raw, topic="t"), None) == {}
    options, shape = sink(raw, topic="t")
    client: Any = "client"
    assert topic_encoders.topic_encoders(client, options, shape, {}) is None
    assert asked == []


def test_a_task_chooses_for_the_topics_of_its_rows(asked):
    named = StructType().add("n", IntegerType()).add("__topic", StringType())
    options, shape = sink(named, valueFormat="columns", schemaType="primitive", schemaRegistration="existing")
    client: Any = type("Client", (), {})()
    client.schemas = client
    client.latest = lambda topic: TEXT
    encoders = topic_encoders.topic_encoders(client, options, shape, {T: LONG})
    assert encoders is not None
    assert (encoders.schema(T), encoders.schema(U)) == (LONG, INT)
    assert asked == [(client, U, NUMBERS, TEXT, {"may_register": False, "is_encrypted": False})]


# ---- rows are written as the source reads the topic

RECORD = b'{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
AVRO, JSON = Schema(SchemaType.AVRO, RECORD), Schema(SchemaType.JSON, RECORD)
STRING = Schema(SchemaType.STRING)
COLUMNS = ValueFormat.COLUMNS


def values_for(schema: Schema | None, **options: str) -> SinkValues:
    """What the rows of a topic with a schema are, with ``valueFormat=columns``."""
    client: Any = type("Client", (), {})()
    client.schemas = client
    client.latest = lambda topic: None if schema is None else VersionedSchema(0, schema)
    return with_schemas(options_of(**{"topic": "t", "valueFormat": "columns", **options}), client)[0].values


def test_the_encoding_is_that_of_the_topic_s_schema():
    for schema, expected in {AVRO: PartKind.AVRO, JSON: PartKind.JSON, STRING: PartKind.PRIMITIVE}.items():
        assert values_for(schema, schemaType="json") == SinkValues(COLUMNS, expected)
    assert not values_for(AVRO, schemaRegistration="existing").may_register
    for kind in PartKind:
        assert values_for(None, schemaType=kind.value) == SinkValues(COLUMNS, kind)


def test_the_driver_requests_the_schema_of_the_topic_once(monkeypatch):
    asked: list[TopicName] = []
    client: Any = type("Client", (), {})()
    client.schemas = client
    client.latest = lambda topic: asked.append(topic) or VersionedSchema(3, AVRO)
    monkeypatch.setattr(topic_encoders, "shared_client", lambda options: client)
    options, latest = with_schemas(options_of(topic="t", valueFormat="columns"), client)
    shape = message_shape(StructType().add("id", IntegerType()), T, values=options.values)
    assert pinned_schemas(options, shape, latest) == {T: VersionedSchema(3, AVRO)}
    assert asked == [T]


def test_the_columns_of_key_value_are_key_and_value():
    for part, expected in {AVRO: PartKind.AVRO, STRING: PartKind.PRIMITIVE}.items():
        schema = key_value_schema(KeyValueParts(STRING, part, True))
        assert values_for(schema) == SinkValues(COLUMNS, expected, ("key",))
        assert values_for(schema, keyColumns="id,name").key_columns == ("id", "name")
        assert values_for(schema, valueFormat="struct") == SinkValues(
            ValueFormat.STRUCT, expected, is_pair=True
        )


def test_values_that_are_not_records_are_one_column_in_both_formats():
    long = Schema(SchemaType.AVRO, b'"long"')
    for schema in (long, key_value_schema(KeyValueParts(STRING, long, True))):
        values = values_for(schema, valueFormat="struct")
        rows = StructType().add("value", LongType())
        if values.is_pair:
            rows = StructType().add("pair", rows.add("key", StringType()))
        shape = message_shape(rows, T, values=values)
        assert not isinstance(shape.value, str)
        assert choose_schema(schema, shape.value.type, may_register=False) == (schema, False)


def test_a_topic_whose_values_are_not_written():
    for schema in (Schema(SchemaType.PROTOBUF_NATIVE), Schema(SchemaType.EXTERNAL)):
        with pytest.raises(UnsupportedError, match=f"{schema.type.name} schema are not written"):
            values_for(schema)


def test_the_users_schemas_have_the_types_of_the_topic(tmp_path):
    path = tmp_path / "value.avsc"
    path.write_bytes(RECORD)
    given = {"valueSchema": str(path), "keySchema": "INT64"}
    pairs = key_value_schema(KeyValueParts(STRING, JSON, True))
    for schema, kind in ((None, SchemaType.AVRO), (pairs, SchemaType.JSON)):
        values = values_for(schema, **given, keyColumns="k")
        assert values.value_schema == Schema(kind, RECORD)
        assert values.key_schema == Schema(SchemaType.INT64)
    assert values_for(STRING, valueSchema="STRING").value_schema == STRING
    assert values_for(None, keySchema=RECORD.decode(), keyColumns="k").key_schema == AVRO
    with pytest.raises(OptionError, match="keySchema has no effect without keyColumns"):
        values_for(None, **given)
